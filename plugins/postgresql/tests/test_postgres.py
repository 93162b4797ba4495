"""The PostgreSQL engine: statements, transactions, lost connections, migrations and errors."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import hermes_core
from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.storage.engine import Connection, Statement, ValueRejected
from hermes_memory_postgresql import postgres
from hermes_memory_postgresql.postgres import (
    CommitInDoubt,
    PostgresDatabase,
    RowConflict,
    TransactionAborted,
    psycopg_sql,
)
from tests.manager.conftest import until
from tests.postgres_server import PostgresServer
from tests.storage.notes import posix
from tests.table import table


def make_table(connection: Connection) -> None:
    connection.execute(
        'CREATE TABLE words (id BIGINT PRIMARY KEY, word TEXT COLLATE "C" UNIQUE, size DOUBLE PRECISION)'
    )


CORE = Path(hermes_core.__file__).parent

MIGRATIONS = (("words", make_table),)

ADD = "INSERT INTO words (id, word) VALUES (?, ?)"


@pytest.fixture
def database(postgres_url: str, postgres_schema: str) -> Iterator[PostgresDatabase]:
    with contextlib.closing(
        PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema, pool=4)
    ) as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with contextlib.closing(PostgresServer()) as started:
        yield started


def words(database: PostgresDatabase) -> list[str]:
    return [row["word"] for row in database.execute("SELECT word FROM words ORDER BY id")]


def add_rye(database: PostgresDatabase) -> None:
    database.execute(ADD, (2, "rye"))


def add_rye_last(database: PostgresDatabase) -> None:
    database.insert("words", [{"id": 2, "word": "rye"}], "id", last=True)


def add_rye_later(database: PostgresDatabase) -> None:
    with database.transaction() as connection:
        connection.execute("SELECT 1")
        connection.execute(ADD, (2, "rye"))


# ------------------------------------------------------------------ statements


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT ? , :name", "SELECT %s , %(name)s"),
        ("SELECT '?:a%', \"b?\" WHERE x LIKE '100%'", "SELECT '?:a%%', \"b?\" WHERE x LIKE '100%%'"),
        ("SELECT x::bigint, 'it''s ?' , ?::text", "SELECT x::bigint, 'it''s ?' , %s::text"),
        ("SELECT s.user, \"user\", users, 'user'", "SELECT s.user, \"user\", users, 'user'"),
        ("SELECT 7 % 4", "SELECT 7 %% 4"),
    ],
)
def test_parameters_are_written_as_psycopg_wants_them(sql: str, expected: str) -> None:
    assert psycopg_sql(sql) == expected


@pytest.mark.parametrize(
    "sql", ["SELECT user FROM sessions", "UPDATE s SET x = 1 WHERE USER = ?", "(user, x)"]
)
def test_the_database_role_is_never_taken_for_a_column(sql: str) -> None:
    with pytest.raises(StorageError, match="database role"):
        psycopg_sql(sql)


def statements_in(path: Path) -> Iterator[str]:
    """The texts in a module that look like SQL, those with values in braces as well."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values]
            text = "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if re.match(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH) ", text):
            yield text


# Migrations of SQLite, and tables without users.
OF_SQLITE = {"sessions/schema.py"}


@table("path", sorted(CORE.rglob("*.py")))
def test_no_statement_of_the_package_names_the_database_role(path: Path) -> None:
    if path.relative_to(CORE).as_posix() not in OF_SQLITE:
        for sql in statements_in(path):
            psycopg_sql(sql)


def test_rows_are_read_by_name_and_by_position(database: PostgresDatabase) -> None:
    row = database.execute("SELECT 1 AS a, 'x' AS b").fetchone()
    assert (row["a"], row[1], [*row], row.keys(), {**row}) == (
        1,
        "x",
        [1, "x"],
        ["a", "b"],
        {"a": 1, "b": "x"},
    )
    assert database.execute("SELECT 1 WHERE 1 = 2").fetchone() is None


def test_every_int_is_a_bigint_so_that_an_index_fits(database: PostgresDatabase) -> None:
    with database.transaction() as connection:
        connection.execute("SELECT 1")
        inside = connection.execute("SELECT pg_typeof(?), pg_typeof(?)", (8, [1, 2])).fetchone()
    assert tuple(inside) == ("bigint", "bigint[]")
    assert database.execute("SELECT pg_typeof(?)", (8,)).fetchone()[0] == "bigint"


def test_sums_and_averages_are_numbers_of_python(database: PostgresDatabase) -> None:
    row = database.execute("SELECT sum(n::bigint), avg(n::bigint) FROM generate_series(1, 4) n").fetchone()
    assert [(type(value), value) for value in row] == [(int, 10), (float, 2.5)]


@pytest.mark.parametrize("values", [(), ("a",), ("a", "x'y", "ü\\")])
def test_a_condition_over_a_list_of_values(database: PostgresDatabase, values: tuple[str, ...]) -> None:
    with database.transaction() as connection:
        connection.executemany(ADD, [(1, "a"), (2, "x'y"), (3, "ü\\"), (4, "%s ? :b")])
    condition, parameters = database.dialect.among("word", values)
    rows = database.execute(f"SELECT word FROM words WHERE {condition} ORDER BY id", parameters)  # noqa: S608
    assert [row[0] for row in rows] == list(values)


def test_several_statements_travel_at_once(database: PostgresDatabase) -> None:
    rows = database.batch(
        [(f"{ADD} RETURNING id", (1, "a;b -- '")), ("SELECT word FROM words", ()), (ADD, (2, "b"))]
    )
    assert [[tuple(row) for row in part] for part in rows] == [[(1,)], [("a;b -- '",)], []]
    assert words(database) == ["a;b -- '", "b"]


# ------------------------------------------------------------------ transactions


@pytest.fixture
def round_trips(database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of statements of each round trip with several."""
    sizes: list[int] = []
    send = database._send
    monkeypatch.setattr(
        database, "_send", lambda connection, sent: sizes.append(len(sent)) or send(connection, sent)
    )
    return sizes


def test_a_question_travels_with_the_next_read(database: PostgresDatabase, round_trips: list[int]) -> None:
    database.batch([(ADD, (1, "a"))])
    round_trips.clear()
    first, second = (database.ask([("SELECT word FROM words WHERE id = ?", (at,))]) for at in (1, 2))
    assert database.execute("SELECT 3").fetchall() == [(3,)]
    database.execute(ADD, (2, "b"))
    assert (first(), second(), second()) == ([[("a",)]], [[]], [[]])
    assert round_trips[0] == 3
    assert database.ask([("SELECT 4", ())])() == [[(4,)]]


def test_a_question_that_nobody_asks_any_more_is_not_sent(
    database: PostgresDatabase, round_trips: list[int]
) -> None:
    database.execute("SELECT 1")
    round_trips.clear()
    question = database.ask([("SELECT 1", ())])
    del question
    database.read([("SELECT 2", ()), ("SELECT 3", ())])
    assert round_trips == [2]


def test_a_question_within_a_transaction_sees_its_changes(database: PostgresDatabase) -> None:
    question = database.ask([("SELECT word FROM words", ())])
    with database.transaction() as connection:
        connection.execute(ADD, (1, "a"))
        assert database.execute("SELECT 1").fetchall() == [(1,)]
        assert question() == [[("a",)]]


def test_the_error_of_a_question_is_its_own(database: PostgresDatabase) -> None:
    faulty = database.ask([("SELECT word FROM nothing", ())])
    sound = database.ask([("SELECT word FROM words", ())])
    assert database.execute("SELECT 1").fetchall() == [(1,)]
    with pytest.raises(DatabaseCorrupt, match="nothing"):
        faulty()
    assert sound() == [[]]


def test_a_question_is_of_its_thread(database: PostgresDatabase, round_trips: list[int]) -> None:
    database.execute("SELECT 1")
    round_trips.clear()
    question = database.ask([("SELECT 1", ())])
    with ThreadPoolExecutor(1) as pool:
        pool.submit(database.read, [("SELECT 2", ()), ("SELECT 3", ())]).result()
    assert question() == [[(1,)]]
    assert round_trips == [2, 1]


def test_an_inner_transaction_joins_the_outer_one(database: PostgresDatabase) -> None:
    called = []

    def fail() -> None:
        with database.transaction():
            with database.transaction() as connection:
                connection.execute(ADD, (1, "a"))
                database.after_commit(lambda: called.append("rolled back"))
            assert words(database) == ["a"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert words(database) == []
    with database.transaction() as connection:
        connection.execute(ADD, (1, "a"))
        database.after_commit(lambda: called.append(tuple(words(database))))
        assert called == []
    assert called == [("a",)]


def test_another_thread_has_a_transaction_of_its_own(database: PostgresDatabase) -> None:
    with database.transaction() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute(ADD, (1, "a"))
        assert pool.submit(words, database).result() == []
        assert pool.submit(lambda: database.in_transaction).result() is False


def test_a_transaction_that_a_failed_statement_ended_is_not_taken_for_stored(
    database: PostgresDatabase,
) -> None:
    def write() -> None:
        with database.transaction() as connection:
            connection.execute(ADD, (1, "a"))
            with contextlib.suppress(ValueRejected):
                connection.execute("SELECT 1 / 0")

    with pytest.raises(TransactionAborted, match="rolled back"):
        write()
    assert words(database) == []


def test_a_row_lock_makes_the_second_writer_wait(database: PostgresDatabase) -> None:
    with database.transaction() as connection:
        connection.execute(ADD, (1, "0"))

    def count_up(_number: int) -> None:
        with database.transaction() as connection:
            sql = f"SELECT word FROM words WHERE id = 1{database.dialect.row_lock}"  # noqa: S608
            word = connection.execute(sql).fetchone()[0]
            connection.execute("UPDATE words SET word = ? WHERE id = 1", (str(int(word) + 1),))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, range(40)))
    assert words(database) == ["40"]


def test_nothing_is_left_on_a_connection(database: PostgresDatabase) -> None:
    def settings() -> list[Any]:
        names = ("statement_timeout", "idle_in_transaction_session_timeout", "search_path")
        return [database.execute("SELECT current_setting(?)", (name,)).fetchone()[0] for name in names]

    before = settings()
    with database.transaction() as connection:
        connection.execute(ADD, (1, "a"))
        assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0] == "1min"
    assert settings() == before
    assert database.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()[0] == 0


@pytest.mark.parametrize("use", ["read", "batch", "last of a transaction"])
def test_a_statement_that_an_error_kept_from_being_prepared_is_prepared_later(
    postgres_url: str, postgres_schema: str, use: str
) -> None:
    def run(*statements: Statement) -> None:
        if use != "last of a transaction":
            getattr(database, use)(statements)
            return
        with database.transaction() as connection:
            connection.execute("SELECT 1")
            database.read(statements)

    wrong: Statement = ("SELECT 1 / ?", (0,))
    with contextlib.closing(
        PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema, pool=1)
    ) as database:
        for _ in range(2):
            with pytest.raises(ValueRejected, match="division by zero"):  # before anything is prepared
                run(wrong)
        for times in range(8):  # the error comes with one of the uses that would prepare the statement
            right: Statement = (f"SELECT word FROM words WHERE id = ? + {times}", (1,))  # noqa: S608
            for _ in range(times):
                run(right)
            with pytest.raises(ValueRejected, match="division by zero"):
                run(wrong, right)
            run(right)


def test_columns_that_another_program_changes_are_read_with_a_new_plan(
    database: PostgresDatabase, postgres_url: str, postgres_schema: str
) -> None:
    def read() -> tuple[Any, ...]:
        return tuple(database.execute("SELECT * FROM words").fetchone())

    def read_in_transaction() -> tuple[Any, ...]:
        with database.transaction() as connection:
            return tuple(connection.execute("SELECT * FROM words").fetchone())

    database.execute(ADD, (1, "tea"))
    for number, run in enumerate([read, partial(database.retry, read_in_transaction, idempotent=True)], 1):
        for _ in range(7):
            assert len(run()) == 2 + number
        with contextlib.closing(psycopg.connect(postgres_url, autocommit=True)) as other:
            other.execute(f'SET search_path = "{postgres_schema}"')
            other.execute(f"ALTER TABLE words ADD COLUMN more{number} BIGINT")  # type: ignore[arg-type]
        assert len(run()) == 3 + number


@pytest.mark.parametrize("code", ["26000", "42P05"])
def test_a_pooler_that_loses_prepared_statements_is_told_with_the_setting(
    database: PostgresDatabase, code: str
) -> None:
    statement = f"DO $$ BEGIN RAISE EXCEPTION 'prepared statement' USING ERRCODE = '{code}'; END $$"
    with pytest.raises(DatabaseUnavailable) as caught:
        database.execute(statement)
    assert 'prepare: "off" under storage:' in caught.value.remedy


def test_an_extension_that_the_server_does_not_have_is_told(postgres_url: str, postgres_schema: str) -> None:
    def make(connection: Connection) -> None:
        connection.execute("CREATE EXTENSION not_there")

    with (
        contextlib.closing(PostgresDatabase(postgres_url, [("x", make)], schema=postgres_schema)) as database,
        pytest.raises(DatabaseUnavailable) as caught,
    ):
        words(database)
    assert "not_there" in caught.value.message
    assert "contrib" in caught.value.remedy


def test_without_prepared_statements_the_server_keeps_none(postgres_url: str, postgres_schema: str) -> None:
    kept = {}
    for prepare in ("auto", "off"):
        options: dict[str, Any] = {"schema": postgres_schema, "prepare": prepare, "pool": 1}
        with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, **options)) as database:
            for number in range(12):
                database.execute("SELECT word FROM words WHERE id = ?", (number,))
            kept[prepare] = database.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0]
    assert kept["auto"] > 0
    assert kept["off"] == 0


def test_connections_are_taken_for_a_statement_and_not_for_a_thread(database: PostgresDatabase) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert {row[0] for row in pool.map(lambda _: database.execute("SELECT 1").fetchone(), range(64))} == {
            1
        }
    open_now = database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hermes-memory' AND pid <> pg_backend_pid()"
        " AND query LIKE '%SELECT 1%'"
    ).fetchone()[0]
    assert open_now <= 4


def test_a_transaction_without_statements_takes_no_connection() -> None:
    database = PostgresDatabase("postgresql://nobody@127.0.0.1:1/none")
    with database.transaction():
        pass
    assert not database.in_transaction


# ------------------------------------------------------------------ lost connections


def test_after_a_restart_of_the_server_reads_and_transactions_go_on(server: PostgresServer) -> None:
    with contextlib.closing(PostgresDatabase(server.url, MIGRATIONS)) as database:
        database.batch([(ADD, (1, "a"))])
        server.stop("immediate")
        server.start()
        assert words(database) == ["a"]
        server.stop("immediate")
        server.start()
        with database.transaction() as connection:
            connection.execute(ADD, (2, "b"))
        assert words(database) == ["a", "b"]


def test_a_transaction_that_the_server_did_not_survive_is_repeated_only_from_its_beginning(
    server: PostgresServer,
) -> None:
    tries = []

    def write() -> None:
        with database.transaction() as connection:
            connection.execute(ADD, (1, "a"))
            tries.append(1)
            if len(tries) == 1:
                server.stop("immediate")
                server.start()
            connection.execute(ADD, (2, "b"))

    with contextlib.closing(PostgresDatabase(server.url, MIGRATIONS)) as database:
        with pytest.raises(DatabaseUnavailable, match="nothing was stored"):
            write()
        assert words(database) == []
        tries.clear()
        database.retry(write, idempotent=False)
        assert words(database) == ["a", "b"]


def test_a_server_that_is_down_is_told_at_once_with_what_to_do(server: PostgresServer) -> None:
    with contextlib.closing(PostgresDatabase(server.url, MIGRATIONS)) as database:
        words(database)
        server.stop()
        for call in (lambda: words(database), lambda: database.batch([(ADD, (1, "a"))])):
            with pytest.raises(DatabaseUnavailable) as failure:
                call()
            assert "start the server" in failure.value.remedy
            assert "nothing was stored" in str(failure.value)
        assert database.integrity() != []
        server.start()
        assert words(database) == []


def test_a_silent_server_is_asked_once_and_not_by_each_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "SILENT_PAUSE_S", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = PostgresDatabase(f"postgresql://hermes@127.0.0.1:{silent.getsockname()[1]}/x")
        for _ in range(20):
            with pytest.raises(DatabaseUnavailable, match="can't reach"):
                database.execute("SELECT 1")
            with pytest.raises(DatabaseUnavailable, match="can't reach"):
                database.retry(lambda: database.batch([("SELECT 1", ())]), idempotent=True)
        silent.settimeout(0)
        asked = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                asked += 1
    assert asked == 1


class Relay:
    """A relay before the server that cuts the connection at a COMMIT, after or before it has passed it on."""

    def __init__(self, url: str, *, pass_on: bool) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._pass_on = pass_on
        self.cuts = 1
        self._mute: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{parts.port}", f":{self._listener.getsockname()[1]}")
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, sink in ((client, server), (server, client)):
                    thread = threading.Thread(
                        target=self._copy, args=(source, sink, source is client), daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()

    def _copy(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(65536):
                cut = from_client and self.cuts > 0 and b"COMMIT" in data
                if cut:
                    self.cuts -= 1
                    self._mute.add(source)
                if (cut and not self._pass_on) or sink in self._mute:
                    # The answer of a commit that was passed on: the server has committed.
                    for end in (source, sink):
                        end.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(data)

    def stop_listening(self) -> None:
        """Refuse new connections; those that are there go on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self.stop_listening()
        for thread in self._threads:
            thread.join(5)


@pytest.mark.parametrize("passed_on", [True, False])
def test_a_commit_without_an_answer_may_have_been_stored(
    postgres_url: str, postgres_schema: str, passed_on: bool
) -> None:
    def write() -> None:
        with database.transaction() as connection:
            connection.execute(f"{ADD} ON CONFLICT DO NOTHING", (1, "a"))

    with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)) as direct:
        assert words(direct) == []
        with (
            contextlib.closing(Relay(postgres_url, pass_on=passed_on)) as relay,
            contextlib.closing(PostgresDatabase(relay.url, MIGRATIONS, schema=postgres_schema)) as database,
        ):
            with pytest.raises(CommitInDoubt, match="may have been stored"):
                database.retry(write, idempotent=False)
            assert words(direct) == (["a"] if passed_on else [])
            relay.cuts = 1
            database.retry(write, idempotent=True)
        assert words(direct) == ["a"]


@pytest.mark.parametrize("passed_on", [True, False])
def test_statements_that_travel_with_their_commit_are_repeated_only_if_they_may_be(
    postgres_url: str, postgres_schema: str, passed_on: bool
) -> None:
    with (
        contextlib.closing(Relay(postgres_url, pass_on=passed_on)) as relay,
        contextlib.closing(PostgresDatabase(relay.url, MIGRATIONS, schema=postgres_schema)) as database,
    ):
        relay.cuts = 0
        assert words(database) == []
        relay.cuts = 1
        database.batch(
            [(f"{ADD} ON CONFLICT DO NOTHING", (1, "a")), (f"{ADD} ON CONFLICT DO NOTHING", (2, "b"))]
        )
        assert (relay.cuts, words(database)) == (0, ["a", "b"])

        relay.cuts = 1
        row = {"id": 3, "word": "c"}
        with pytest.raises(CommitInDoubt):
            database.retry(lambda: database.insert("words", [row], "id", last=True), idempotent=False)
        assert words(database) == (["a", "b", "c"] if passed_on else ["a", "b"])


def test_a_commit_in_doubt_stays_in_doubt_if_the_server_is_gone_afterwards(
    postgres_url: str, postgres_schema: str
) -> None:
    """The second try stores nothing, but the first one did."""
    with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)) as direct:
        assert words(direct) == []
        with (
            contextlib.closing(Relay(postgres_url, pass_on=True)) as relay,
            contextlib.closing(PostgresDatabase(relay.url, MIGRATIONS, schema=postgres_schema)) as database,
        ):
            words_before, relay.cuts = words(database), 1
            relay.stop_listening()
            with pytest.raises(CommitInDoubt, match="lost during a commit") as failure:
                database.batch([(f"{ADD} ON CONFLICT DO NOTHING", (1, "a"))])
        assert words_before == []
        assert words(direct) == ["a"]
    assert "nothing was stored" not in str(failure.value)


def test_conflicts_are_repeated_also_after_a_lost_connection(database: PostgresDatabase) -> None:
    errors = [TransactionAborted("lost"), RowConflict("met"), RowConflict("met")]

    def write() -> str:
        if errors:
            raise errors.pop(0)
        return "stored"

    assert database.retry(write, idempotent=False) == "stored"


def test_nothing_may_follow_the_commit_of_a_transaction(database: PostgresDatabase) -> None:
    with database.transaction() as connection:
        database.insert("words", [{"id": 1, "word": "a"}], "id", last=True)
        with pytest.raises(AssertionError, match="last one"):
            connection.execute(ADD, (2, "b"))
    assert words(database) == ["a"]


def test_an_idle_connection_that_the_server_closed_is_not_used(
    database: PostgresDatabase, postgres_url: str
) -> None:
    """Or each write that is one round trip would be in doubt after a restart of the server."""
    for number in (1, 2, 3):
        pid = database.link().pid
        with contextlib.closing(psycopg.connect(postgres_url, autocommit=True)) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        database.retry(
            partial(database.insert, "words", [{"id": number, "word": f"w{number}"}], "id", last=True),
            idempotent=False,
        )
    assert words(database) == ["w1", "w2", "w3"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_commit_that_no_standby_confirmed_is_not_taken_for_stored(server: PostgresServer) -> None:
    """After its statement timeout the server ends the wait for the standby, and reports the commit with a warning."""
    tries = []
    with contextlib.closing(PostgresDatabase(server.url, MIGRATIONS, statement_timeout=3.0)) as database:
        database.execute(ADD, (1, "confirmed"))
        with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
            admin.execute("SELECT pg_reload_conf()")
            assert until(lambda: database.execute("SHOW synchronous_standby_names").fetchone()[0] == "absent")
            # Commits wait only when the checkpointer knows of the setting; it reads it before it does anything.
            admin.execute("CHECKPOINT")

        def write() -> None:
            tries.append(1)
            database.execute(ADD, (2, "unconfirmed"))

        with pytest.raises(CommitInDoubt, match="no standby") as failure:
            database.retry(write, idempotent=True)
        assert "may be lost" in failure.value.remedy
        assert len(tries) == 1  # another try would wait as long, and find the row


@pytest.mark.parametrize("further", [0, 1, 5])
@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_the_error_of_a_statement_is_raised_and_not_that_later_ones_were_not_run(
    database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    further: int,
    pause: float,
) -> None:
    """The error may arrive while statements are sent, at their end, or between the two."""
    leave = psycopg.Pipeline.__exit__

    def leave_late(self: psycopg.Pipeline, *error: Any) -> None:
        time.sleep(pause)
        leave(self, *error)

    monkeypatch.setattr(psycopg.Pipeline, "__exit__", leave_late)
    database.execute(ADD, (1, "a"))
    for _ in range(
        2 if pause else 20
    ):  # the error is there after a pause, and at another moment each time without one
        with pytest.raises(RowConflict, match="another program stored the same row"):
            database.batch([(ADD, (1, "b")), *[("SELECT 1", ())] * further])
    assert [record for record in caplog.records if record.name == "psycopg"] == []


def test_an_error_that_arrives_just_before_the_end_is_raised(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Psycopg then raises that later statements were not run, while it handles the error of the one that failed."""
    leave = psycopg.Pipeline.__exit__

    def leave_with_two_errors(self: psycopg.Pipeline, *error: Any) -> None:
        try:
            leave(self, *error)
        except psycopg.Error:
            raise psycopg.errors.PipelineAborted("pipeline aborted")  # noqa: B904  as psycopg does

    database.execute(ADD, (1, "a"))
    monkeypatch.setattr(psycopg.Pipeline, "__exit__", leave_with_two_errors)
    with pytest.raises(RowConflict, match="another program stored the same row"):
        database.batch([(ADD, (1, "b"))])


@posix
def test_a_fork_opens_connections_of_its_own(database: PostgresDatabase) -> None:
    database.batch([(ADD, (1, "a"))])
    if (child := os.fork()) == 0:
        try:
            database.batch([(ADD, (2, "b"))])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert words(database) == ["a", "b"]


# ------------------------------------------------------------------ errors


def test_a_statement_that_takes_too_long_is_ended(postgres_url: str, postgres_schema: str) -> None:
    options: dict[str, Any] = {"schema": postgres_schema, "statement_timeout": 2.0}
    with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, **options)) as database:
        with pytest.raises(DatabaseUnavailable, match="statement timeout"):
            database.execute("SELECT pg_sleep(20)")
        with (
            pytest.raises(DatabaseUnavailable, match="statement timeout"),
            database.transaction() as connection,
        ):
            connection.execute("SELECT pg_sleep(20)")
        assert words(database) == []


def test_all_connections_in_use_is_said(postgres_url: str, postgres_schema: str) -> None:
    options: dict[str, Any] = {"schema": postgres_schema, "pool": 1}
    with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, **options)) as database:
        words(database)
        database.shorten_waits()
        with database.transaction() as connection, ThreadPoolExecutor(1) as pool:
            connection.execute("SELECT 1")
            with pytest.raises(
                DatabaseUnavailable, match=r"all 1 connections .* are in use; raise storage\.pool"
            ):
                pool.submit(words, database).result()


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("postgresql://hermes:secret-7@db/hermes", "HERMES_STORAGE_PASSWORD"),
        ("host=db password=secret-7", "HERMES_STORAGE_PASSWORD"),
        ("mysql://db/hermes", "postgresql://ROLE@HOST/DATABASE"),
    ],
)
def test_an_address_with_a_password_or_of_another_form_is_refused(url: str, part: str) -> None:
    with pytest.raises(DatabaseUnavailable) as failure:
        PostgresDatabase(url)
    assert part in failure.value.remedy
    assert "secret-7" not in str(failure.value)


@pytest.mark.parametrize("schema", ["", "Upper", "a;b", "x" * 64, "1a", 'a"b'])
def test_a_schema_has_a_plain_name(schema: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="is no name of a schema"):
        PostgresDatabase("postgresql://db/hermes", schema=schema)


def test_a_database_that_does_not_exist(postgres_url: str) -> None:
    absent = PostgresDatabase(f"{postgres_url.rsplit('/', 1)[0]}/absent")
    with pytest.raises(DatabaseUnavailable, match="does not exist") as failure:
        absent.execute("SELECT 1")
    assert "check storage.url" in failure.value.remedy


def test_a_closed_database_is_not_used_again(database: PostgresDatabase) -> None:
    words(database)
    database.close()
    with pytest.raises(DatabaseUnavailable, match="was closed"):
        words(database)


# ------------------------------------------------------------------ schema


def test_many_programs_that_start_at_once_make_the_tables_once(
    postgres_url: str, postgres_schema: str
) -> None:
    made = []

    def slowly(connection: Connection) -> None:
        make_table(connection)
        connection.execute("SELECT pg_sleep(0.05)")
        made.append(1)

    def start(_number: int) -> list[str]:
        migrations = (("words", slowly),)
        with contextlib.closing(
            PostgresDatabase(postgres_url, migrations, schema=postgres_schema)
        ) as database:
            return words(database)

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(start, range(6))) == [[]] * 6
    assert made == [1]


def test_a_migration_that_fails_leaves_nothing(postgres_url: str, postgres_schema: str) -> None:
    def fail(connection: Connection) -> None:
        raise ZeroDivisionError

    migrations = (*MIGRATIONS, ("fails", fail))
    with pytest.raises(ZeroDivisionError):
        words(PostgresDatabase(postgres_url, migrations, schema=postgres_schema))
    with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)) as database:
        assert words(database) == []


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE words",
        "ALTER TABLE words RENAME COLUMN word TO text",
        'DROP SCHEMA "{schema}" CASCADE',
    ],
)
@pytest.mark.parametrize("use", [words, add_rye, add_rye_last, add_rye_later])
def test_tables_that_another_program_changed_are_damage(
    postgres_url: str, postgres_schema: str, change: str, use: Callable[[PostgresDatabase], object]
) -> None:
    with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)) as database:
        database.execute(ADD, (1, "tea"))
        with contextlib.closing(psycopg.connect(postgres_url, autocommit=True)) as admin:
            admin.execute(f'SET search_path = "{postgres_schema}"')
            admin.execute(change.format(schema=postgres_schema))  # type: ignore[call-overload]  # a str of the test's own
        with pytest.raises(DatabaseCorrupt) as caught:
            use(database)
    assert caught.value.message.startswith(f"the schema {postgres_schema!r} of 'postgresql://")
    assert "\n" not in caught.value.message
    assert "restore a backup" in caught.value.remedy


def test_tables_without_a_record_of_their_migrations_are_left_alone(
    postgres_url: str, postgres_schema: str
) -> None:
    with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)) as database:
        database.execute(ADD, (1, "tea"))
        database.execute("DELETE FROM schema_migrations")
    with (
        contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)) as later,
        pytest.raises(DatabaseUnavailable, match="can't hold the tables of this home") as caught,
    ):
        add_rye(later)
    assert "schema of this home's own" in caught.value.remedy


def test_tables_of_a_newer_version_are_refused(postgres_url: str, postgres_schema: str) -> None:
    newer = (*MIGRATIONS, ("later", lambda connection: None))
    with contextlib.closing(PostgresDatabase(postgres_url, newer, schema=postgres_schema)) as database:
        words(database)
    older = PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)
    with pytest.raises(DatabaseUnavailable, match=r"newer version.*'later'.*upgrade"):
        words(older)


def test_the_driver_is_imported_only_when_a_database_is_constructed() -> None:
    code = "import sys, hermes_memory_postgresql.postgres; assert 'psycopg' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

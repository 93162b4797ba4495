"""Faults around a commit on PostgreSQL: callbacks, limits, forks, plans that no longer fit, and errors of every class."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator

import psycopg
import pytest

from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.engine import Connection, Engine
from hermes_core.storage.sqlite import Database
from hermes_memory_postgresql import postgres
from hermes_memory_postgresql.postgres import ConnectionLost, PostgresDatabase


def make_table(connection: Connection) -> None:
    connection.execute("CREATE TABLE words (id BIGINT PRIMARY KEY, word TEXT)")


MIGRATIONS = (("words", make_table),)

ADD = "INSERT INTO words (id, word) VALUES (?, ?)"


@pytest.fixture
def database(postgres_url: str, postgres_schema: str) -> Iterator[PostgresDatabase]:
    with contextlib.closing(
        PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema, pool=4)
    ) as opened:
        yield opened


@pytest.fixture
def direct(postgres_url: str, postgres_schema: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Another program's connection to the schema."""
    options = f"-csearch_path={postgres_schema}"
    with contextlib.closing(psycopg.connect(postgres_url, autocommit=True, options=options)) as connection:
        yield connection


def words(database: Engine) -> list[str]:
    return [row["word"] for row in database.execute("SELECT word FROM words ORDER BY id")]


# ------------------------------------------------------------------ after the commit


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "postgresql":
        yield request.getfixturevalue("database")
        return
    path = request.getfixturevalue("tmp_path") / "words.db"
    with contextlib.closing(Database(path, [("words", make_table)])) as opened:
        yield opened


def test_a_failing_callback_does_not_make_a_commit_seem_to_have_failed(
    either: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """An error like that of a statement would be taken for one, and the write be repeated."""
    calls = []

    def fail() -> None:
        calls.append("fail")
        raise ConnectionLost("the callback's own connection was lost", "try again")

    def write() -> None:
        with either.transaction() as connection:
            connection.execute("INSERT INTO words (id, word) SELECT coalesce(max(id), 0) + 1, 'a' FROM words")
            either.after_commit(fail)
            either.after_commit(lambda: calls.append("next"))

    with caplog.at_level(logging.ERROR):
        either.retry(write, idempotent=False)
    assert words(either) == ["a"]
    assert calls == ["fail", "next"]
    assert "the callback's own connection was lost" in caplog.text
    with either.transaction() as connection:
        connection.execute("DELETE FROM words")
    assert calls == ["fail", "next"]


def test_the_limit_of_a_commit_ends_with_it(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next statement of the connection may take longer than a commit, and a commit may not."""
    monkeypatch.setattr(postgres, "COMMIT_TIMEOUT_S", 2.0)
    with database.transaction() as connection:
        connection.execute(ADD, (1, "a"))
    with database.transaction() as connection:
        connection.execute("SELECT pg_sleep(2.5)")
    with database.transaction() as connection:
        connection.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON words DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION slow()"
        )
    started = time.monotonic()
    with (
        pytest.raises(DatabaseUnavailable, match="canceling statement"),
        database.transaction() as connection,
    ):
        connection.execute(ADD, (2, "b"))  # its trigger runs with the commit
    assert time.monotonic() - started < 30
    assert words(database) == ["a"]


# ------------------------------------------------------------------ forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_within_a_transaction_can_not_end_it(database: PostgresDatabase) -> None:
    words(database)
    with database.transaction() as connection:
        connection.execute(ADD, (1, "a"))
        if (child := os.fork()) == 0:
            code = 1
            try:
                try:
                    connection.execute(ADD, (2, "b"))
                except DatabaseUnavailable:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        connection.execute(ADD, (3, "c"))
    assert words(database) == ["a", "c"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_has_all_connections_of_the_pool_to_itself(postgres_url: str, postgres_schema: str) -> None:
    """A connection that another thread of the parent used at that moment is never given back in the child."""
    options = {"schema": postgres_schema, "statement_timeout": 2.0}
    with contextlib.closing(
        PostgresDatabase(postgres_url, MIGRATIONS, pool=1, **options)  # type: ignore[arg-type]
    ) as database:
        words(database)
        taken = database.take()
        if (child := os.fork()) == 0:
            code = 1
            try:
                database.batch([(ADD, (1, "a"))])
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        database.put_back(taken)
        assert words(database) == ["a"]


# ------------------------------------------------------------------ plans


@pytest.mark.parametrize("way", ["execute", "read", "transaction", "later", "batch"])
def test_a_program_goes_on_when_a_newer_version_has_changed_a_table(
    database: PostgresDatabase, direct: psycopg.Connection[tuple[object, ...]], way: str
) -> None:
    """The server refuses prepared statements whose rows would have other columns."""
    sql = "SELECT * FROM words WHERE id = ?"

    def look() -> list[str]:
        def write() -> list[str]:
            with database.transaction() as connection:
                if way == "later":
                    connection.execute("SELECT 1")
                return [row["word"] for row in connection.execute(sql, (1,))]

        if way == "execute":
            return [row["word"] for row in database.execute(sql, (1,))]
        if way == "read":
            return [row["word"] for row in database.read([(sql, (1,))])[0]]
        if way == "batch":
            return [row["word"] for row in database.batch([(sql, (1,))])[0]]
        return database.retry(write, idempotent=False)

    database.batch([(ADD, (1, "a"))])
    for _ in range(8):
        assert look() == ["a"]
    direct.execute("ALTER TABLE words ADD COLUMN size BIGINT")
    for _ in range(8):
        assert look() == ["a"]


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("XX000", "log of the server"),
        ("58030", "log of the server"),
        ("58000", "log of the server"),
        ("53100", "free space"),
        ("54000", "log of the server"),
        ("55000", "log of the server"),
        ("0A000", "log of the server"),
        ("25006", "takes no writes"),
    ],
)
def test_every_error_of_the_server_is_a_line_with_what_to_do(
    database: PostgresDatabase, code: str, remedy: str
) -> None:
    sql = f"DO $$ BEGIN RAISE EXCEPTION USING MESSAGE = 'could not write block', ERRCODE = '{code}'; END $$"
    for call in (
        lambda: database.execute(sql),
        lambda: database.read([(sql, ())]),
        lambda: database.batch([(ADD, (1, "a")), (sql, ())]),
    ):
        with pytest.raises(DatabaseUnavailable, match="could not write block") as failure:
            call()
        assert remedy in failure.value.remedy
        assert "nothing was stored" in failure.value.remedy
    assert words(database) == []


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE words (other TEXT)", "CREATE TABLE schema_migrations (version TEXT)"]
)
def test_a_schema_with_tables_of_another_program_is_refused(
    postgres_url: str, postgres_schema: str, direct: psycopg.Connection[tuple[object, ...]], statement: str
) -> None:
    direct.execute(f"CREATE SCHEMA {postgres_schema}")
    direct.execute(statement)
    with (
        contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=postgres_schema)) as opened,
        pytest.raises(DatabaseUnavailable, match=postgres_schema) as failure,
    ):
        opened.execute("SELECT 1")
    assert "storage.schema" in failure.value.remedy


@pytest.mark.parametrize("schema", ["pg_hermes", "pg_catalog", "pg_temp", "information_schema"])
def test_a_schema_of_the_server_itself_is_refused(schema: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="is no name of a schema"):
        PostgresDatabase("postgresql://db/hermes", schema=schema)


@pytest.mark.parametrize("schema", ["select", "user", "default", "x" * 63])
def test_reserved_words_and_the_longest_name_are_schemas(postgres_url: str, schema: str) -> None:
    from tests.postgres_server import drop_schema

    try:
        with contextlib.closing(PostgresDatabase(postgres_url, MIGRATIONS, schema=schema)) as opened:
            opened.batch([(ADD, (1, "a"))])
            assert words(opened) == ["a"]
    finally:
        drop_schema(postgres_url, schema)

"""What a store of sessions is asked walks through no whole table: plans on each engine, and the work of SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions.search.filters import Filters
from hermes_core.sessions.search.fts5 import MAX_NEW_MESSAGES
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.postgres import PostgresDatabase, psycopg_sql
from tests.outbox_of import ON_POSTGRES
from tests.postgres_server import drop_schema
from tests.sessions.calls import CALLS, turn

PLANNED = ("SELECT", "WITH", "UPDATE", "DELETE", "INSERT")


class Undone(Exception):
    """End of a transaction that is not to be stored."""


class PlansOfSqlite:
    """Plans of statements in a database of SQLite."""

    def __init__(self, folder: Path) -> None:
        self.store = SessionStore(folder / "state.db")
        self._connection: sqlite3.Connection = self.store.database.connection

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[str]]:
        """Yield the list of the statements that are run in the block."""
        statements: list[str] = []
        self._connection.set_trace_callback(statements.append)
        yield statements
        self._connection.set_trace_callback(None)

    def walks(self, statements: list[str]) -> dict[str, set[str]]:
        """Return the steps that walk through a whole table. An index walked in order ends with the limit."""
        ours = {f"SCAN {name}" for name in ("messages", "m", "sessions", "s", "c", "p", "t", "turns")}
        walks = {}
        for statement in statements:
            steps = {row[3] for row in self._connection.execute(f"EXPLAIN QUERY PLAN {statement}")}
            if found := {step for step in steps if step in ours or "AUTOMATIC" in step}:
                walks[statement] = found
        return walks

    def close(self) -> None:
        self.store.close()


class PlansOfPostgresql:
    """Plans of statements on a PostgreSQL server."""

    def __init__(self, url: str) -> None:
        self._url, self._schema = url, f"test_plans_{uuid.uuid4().hex[:8]}"
        self._database = PostgresEngine(url, schema=self._schema)
        self.store = SessionStore(self._database)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[str]]:
        """Yield the list of the statements that are sent in the block, with their values."""
        statements: list[str] = []
        values = psycopg.ClientCursor(self._connect())
        execute, later = psycopg.Cursor.execute, PostgresDatabase.execute

        def note(cursor: Any, query: Any, parameters: Any = None, **options: Any) -> Any:
            statements.append(values.mogrify(query, parameters))
            return execute(cursor, query, parameters, **options)

        def note_later(database: PostgresDatabase, sql: str, parameters: Any = ()) -> Any:
            statements.append(values.mogrify(psycopg_sql(sql), parameters))
            return later(database, sql, parameters)

        with contextlib.closing(values.connection), pytest.MonkeyPatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", note)
            patch.setattr(PostgresDatabase, "execute", note_later)
            yield statements

    def walks(self, statements: list[str]) -> dict[str, set[str]]:
        """Return the tables that statements walk through although an index could be used."""
        walks = {}
        with contextlib.closing(self._connect()) as connection:
            connection.execute("SET enable_seqscan = off")
            for statement in statements:
                (document,) = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}").fetchone() or ([],)
                # The view of the totals reads all lines: one for each session that waits. Sessions are read only if no
                # message is left, to tell whether some are lost.
                allowed = {"sessions"} if "NOT EXISTS (SELECT 1 FROM messages)" in statement else set()
                if found := set(scanned_tables(document[0]["Plan"])) - {"outbox_lines"} - allowed:
                    walks[statement] = found
        return walks

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._url, autocommit=True, options=f"-c search_path={self._schema}")

    def close(self) -> None:
        self.store.close()
        drop_schema(self._url, self._schema)


def scanned_tables(plan: dict[str, Any]) -> Iterator[str]:
    """Yield the tables that a plan reads from the first row to the last."""
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from scanned_tables(part)


Plans = PlansOfSqlite | PlansOfPostgresql


@pytest.fixture(scope="module", params=["postgresql"] if ON_POSTGRES else ["sqlite", "postgresql"])
def plans(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plans]:
    """The plans of an engine, in a store with so many sessions that an index is worth its use."""
    plans: Plans = (
        PlansOfSqlite(tmp_path_factory.mktemp("plans"))
        if request.param == "sqlite"
        else PlansOfPostgresql(request.getfixturevalue("postgres_url"))
    )
    outbox = Outbox(plans.store.database)
    with plans.store.transaction():
        for number in range(400):
            name = f"s{number}"
            plans.store.create_session(
                name, user=f"u{number % 50}", title=f"Plan {number}", source=f"x{number}"
            )
            plans.store.append_turn(name, turn(number), f"t{number}", 1)
            outbox.put("fake", NewRow("sync_turn", f"t{number}", name, "{}"))
    plans.store.database.execute("ANALYZE")
    yield plans
    plans.close()


@pytest.mark.parametrize("call", CALLS)
def test_no_statement_walks_through_a_table(plans: Plans, call: str) -> None:
    with plans.recorded() as statements, contextlib.suppress(Undone), plans.store.transaction():
        CALLS[call](plans.store)
        raise Undone
    seen = [statement for statement in statements if statement.lstrip().startswith(PLANNED)]
    assert seen
    assert plans.walks(seen) == {}


@pytest.fixture
def filled(db: SessionStore) -> SessionStore:
    for number in range(20):
        db.append_message("s1", "user", f"kumquat trees 部署 {number}")
    return db


def steps(db: SessionStore, search: Callable[[], object]) -> int:
    """How much SQLite works for a search, in hundreds of its steps."""
    connection, counted = db.database.connection, 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.set_progress_handler(count, 100)
    search()
    connection.set_progress_handler(None, 0)
    return counted


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_the_messages_of_a_turn_are_read_without_walking_through_its_session(db: SessionStore) -> None:
    def turn(number: int) -> None:
        said = {"role": "user", "content": "kumquat"}
        assert db.turns.messages(f"t{number}") == [("user", "kumquat")]
        assert len(db.append_turn("s", [said], f"t{number}", 1).message_ids) == 1
        assert len(list(db.turns.complete(number))) == 1

    def say(first: int, last: int) -> None:
        for number in range(first, last):
            db.append_turn("s", [{"role": "user", "content": "kumquat"}], f"t{number}", number + 1)

    db.create_session("s")
    say(0, 10)
    few = steps(db, lambda: turn(9))
    with db.transaction():
        say(10, 1000)
    assert steps(db, lambda: turn(999)) <= few + 1


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_a_search_for_one_user_does_not_walk_through_what_others_said(db: SessionStore) -> None:
    def own() -> None:
        for query in ("kumquat tree", "kumquat AND tree", "部"):
            assert {hit.session_id for hit in db.past.search(query, user="u")} == {"first", "last"}

    def others(first: int, count: int) -> None:
        with db.transaction():
            for number in range(first, first + count):
                if number % 40 == 0:
                    db.create_session(f"of {number}", user=f"v{number}")
                db.append_message(f"of {number - number % 40}", "user", "kumquat trees 部署")

    db.create_session("first", user="u")
    db.append_message("first", "user", "kumquat trees 部署")
    others(0, 400)
    db.create_session("last", user="u")
    db.append_message("last", "user", "kumquat trees 部署")
    few = steps(db, own)
    others(400, 4_000)
    assert steps(db, own) < 1.5 * few


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_a_search_for_the_only_user_costs_no_more_than_a_search_for_all(db: SessionStore) -> None:
    with db.transaction():
        for number in range(120):
            db.create_session(f"of {number}")
            db.append_message(f"of {number}", "user", f"kumquat trees {number % 7} plums")
    hits = db.past.search("kumquat plums", everybody=True)
    all_users = steps(db, lambda: db.past.search("kumquat plums", everybody=True))

    assert db.past.search("kumquat plums", user="") == hits
    assert steps(db, lambda: db.past.search("kumquat plums", user="")) <= 1.2 * all_users
    db.create_session("of another", user="u")
    db.append_message("of another", "user", "kumquat plums kumquat plums")
    assert db.past.search("kumquat plums", everybody=True, limit=1)[0].session_id == "of another"
    assert "of another" not in {hit.session_id for hit in db.past.search("kumquat plums", user="")}


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_a_named_time_is_read_from_its_newest_messages(db: SessionStore) -> None:
    def say(first: int, last: int) -> None:
        with db.transaction():
            for number in range(first, last):
                db.append_message("of then", "user", f"plum {number}", timestamp=1.7e9 + number)

    def asked() -> None:
        assert db.past.search("What about the figs in November 2023?", now=1.8e9)

    db.create_session("of then", started_at=1.7e9)
    say(0, 300)
    few = steps(db, asked)
    say(300, 3_000)
    assert steps(db, asked) < 1.2 * few


@pytest.mark.sqlite_only("a server seeks the names of a question")
def test_a_speaker_who_is_new_since_the_last_search_is_known(db: SessionStore) -> None:
    def named(question: str) -> list[str]:
        return db.index.scope_facts(question, Filters(), ()).names

    db.append_message("s1", "user", "plums", speaker="Ann")
    assert named("What did Ann eat?") == ["Ann"]
    db.append_message("s1", "user", "figs", speaker="Bob")
    assert named("What did Bob and Ann eat?") == ["Ann", "Bob"]
    with db.transaction():
        for number in range(MAX_NEW_MESSAGES + 1):
            db.append_message("s1", "user", "figs", speaker=f"Cy{number}")
    assert named("What did Cy0 eat?") == ["Cy0"]
    db.delete_session("s1")
    assert named("What did Bob and Ann eat?") == []


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_finding_out_whom_a_question_names_does_not_walk_through_what_all_said(db: SessionStore) -> None:
    def said(times: int) -> None:
        with db.transaction():
            for number in range(20 * times):
                db.append_message("s1", "user", "nothing of note", speaker=f"Ann{number % 20:02}")

    said(2)  # more than a proof looks up
    few = steps(db, lambda: db.past.search("What did Ann07 eat?"))
    said(20)
    assert steps(db, lambda: db.past.search("What did Ann07 eat?")) < 1.5 * few


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_a_check_lets_others_write_between_its_looks(filled: SessionStore) -> None:
    connection = filled.database.connection
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    assert filled.check() == []
    connection.set_trace_callback(None)

    held = "\n".join(statements).split("BEGIN IMMEDIATE")[1:]
    long = ("'integrity-check'", "SELECT count(*) FROM (SELECT id FROM ")
    assert [sum(one.count(sign) for sign in long) for one in held] == [1, 1, 1, 0]


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_the_next_number_of_a_title_costs_the_same_among_any_number_of_sessions(db: SessionStore) -> None:
    steps: list[int] = []
    costs = []
    for start, end in ((0, 30), (30, 300)):
        for number in range(start, end):
            db.create_session(f"job{number}", title="Check the mail", user="cron")
        steps.clear()
        db.database.connection.set_progress_handler(lambda: steps.append(1), 10)
        assert db.meta.next_title("Check the mail", user="cron") == f"Check the mail #{end + 1}"
        db.database.connection.set_progress_handler(None, 0)
        costs.append(len(steps))
    assert costs[1] < costs[0] * 1.5

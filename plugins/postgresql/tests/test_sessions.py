"""What only the store on PostgreSQL has: round trips, many writers, and the same statements as on SQLite."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes_core.errors import DatabaseUnavailable, SessionError
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions import lineage
from hermes_core.sessions.daily_usage import daily_usage
from hermes_core.sessions.maintenance import idle_sessions
from hermes_core.sessions.open_turns import HostState, OpenTurnStore
from hermes_core.sessions.owners import give_to_home
from hermes_core.sessions.records import StoredOpenTurn
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.transfer import import_session, session_document
from hermes_core.sessions.turn_records import TurnRecord, record_statements, turn_record
from hermes_memory_agent.message_rows import delete_copy, hide_message
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.postgres import PostgresDatabase, psycopg_sql
from tests.manager.conftest import until
from tests.postgres_server import PostgresServer, columns_of
from tests.sessions.calls import CALLS, turn

OpenStore = Callable[[], SessionStore]


@pytest.fixture
def open_store(postgres_url: str, postgres_schema: str) -> Iterator[OpenStore]:
    """Open the store of the test's schema, as each machine does for itself."""
    opened: list[SessionStore] = []

    def open_it() -> SessionStore:
        opened.append(SessionStore(PostgresEngine(postgres_url, schema=postgres_schema)))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent to the server, one entry a round trip."""
    sent: list[str] = []
    execute, send = psycopg.Cursor.execute, PostgresDatabase.send

    def note(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if not self.connection.pgconn.pipeline_status:
            sent.append(str(query))
        return execute(self, query, *args, **options)

    def note_pipeline(self: Any, connection: Any, queries: Any, before: Any = ()) -> Any:
        sent.append("; ".join([*before, *(sql for sql, _ in queries)]))
        return send(self, connection, queries, before)

    monkeypatch.setattr(psycopg.Cursor, "execute", note)
    monkeypatch.setattr(PostgresDatabase, "send", note_pipeline)
    return sent


# ------------------------------------------------------------------ round trips


def test_a_turn_with_its_outbox_row_takes_six_round_trips(
    open_store: OpenStore, statements: list[str]
) -> None:
    db = open_store()
    outbox = Outbox(db.database)
    db.create_session("s1", user="ann")
    statements.clear()
    context = db.turns.context("s1", "ann", origin=True)
    assert (context.session_id, context.last_number, context.origin) == ("s1", 0, "person")
    with db.transaction():
        record = record_statements("t1", "ann", 1_795_000_000.0, TurnRecord(recall_tokens=3))
        db.append_turn("s1", turn(), "t1", 1, reopen=True, further=record)
        outbox.put("fake", NewRow("sync_turn", "t1", "s1", "{}"))
    assert len(statements) <= 6, statements
    assert turn_record(db, "t1").record == TurnRecord(recall_tokens=3)  # type: ignore[union-attr]
    assert [day.recall_tokens for day in daily_usage(db.database, user="ann")] == [3]
    assert db.turns.count("s1") == 1
    assert outbox.depth == 1


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda db: db.append_message("s1", "user", "tea"), 3),
        (lambda db: db.append_turn("s1", turn() * 50, "t9", 1), 3),
        (lambda db: db.meta.next_title("Plan", user="ann"), 3),
        (lambda db: db.create_session("s9", title="Plan", user="ann"), 10),
        (lambda db: db.get_messages("s1"), 1),
        (lambda db: db.meta.short_id("s1"), 1),
        (lambda db: db.lineage("s1"), 2),
    ],
)
def test_calls_take_few_round_trips(
    open_store: OpenStore, statements: list[str], call: Callable[[SessionStore], object], most: int
) -> None:
    db = open_store()
    db.create_session("s1", user="ann", title="Plan")
    statements.clear()
    call(db)
    assert len(statements) <= most, statements


# ------------------------------------------------------------------ many writers


def test_a_turn_and_its_outbox_row_are_one_commit(open_store: OpenStore) -> None:
    db = open_store()
    outbox = Outbox(db.database)
    db.create_session("s1")

    def fail() -> None:
        with db.transaction():
            db.append_turn("s1", turn(), "t1", 1)
            outbox.put("fake", NewRow("sync_turn", "t1", "s1", "{}"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (db.has_turn("t1"), outbox.depth) == (False, 0)
    assert db.get_session("s1").message_count == 0  # type: ignore[union-attr]


def test_appends_of_many_programs_to_one_session_leave_no_gap(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(4)]
    stores[0].create_session("s1")

    def append(number: int) -> list[int]:
        return stores[number % 4].append_turn("s1", turn(number), f"t{number}", number).message_ids

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(append, range(24)))
    messages = stores[0].get_messages("s1")
    assert [m.id for m in messages] == sorted(m.id for m in messages)
    assert sorted(chain(*ids)) == [m.id for m in messages]
    assert stores[0].get_session("s1").message_count == len(messages) == 96  # type: ignore[union-attr]
    positions = stores[0].database.execute("SELECT position FROM messages ORDER BY position").fetchall()
    assert [row[0] for row in positions] == list(range(96))
    # The messages of a turn stand together.
    assert all(part == list(range(part[0], part[0] + 4)) for part in ids)


def test_the_same_turn_from_several_programs_is_stored_once(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(4)]
    stores[0].create_session("s1")
    with ThreadPoolExecutor(4) as pool:
        turns = list(pool.map(lambda store: store.append_turn("s1", turn(), "t1", 1), stores))
    ids = [stored.message_ids for stored in turns]
    assert ids == [ids[0]] * 4
    assert len(stores[0].get_messages("s1")) == 4


def test_the_same_session_and_title_from_several_programs(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda store: store.create_session("s1", user="ann", title="Plan"), stores))
        named = [f"n{number}" for number in range(4)]
        list(pool.map(lambda store, name: store.create_session(name, user="ann", title="Tea"), stores, named))
    titles = [stores[0].get_session(name).title for name in named]  # type: ignore[union-attr]
    assert sorted(titles) == ["Tea", "Tea #2", "Tea #3", "Tea #4"]
    assert stores[0].get_session("s1").title == "Plan"  # type: ignore[union-attr]


def test_the_same_default_title_from_several_programs(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(6)]
    names = [f"n{number}" for number in range(6)]
    for name in names:
        stores[0].create_session(name, user="ann")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda store, name: store.meta.set_default_title(name, "Tea"), stores, names))
    titles = [stores[0].get_session(name).title for name in names]  # type: ignore[union-attr]
    assert sorted(titles) == ["Tea", *(f"Tea #{number}" for number in range(2, 7))]
    stores[0].meta.set_default_title("n0", "Coffee")
    assert stores[0].get_session("n0").title == titles[0]  # type: ignore[union-attr]


def test_turns_of_different_sessions_do_not_wait_for_one_another(open_store: OpenStore) -> None:
    mine, yours = open_store(), open_store()
    for name, user in (("s1", "ann"), ("s2", "bob")):
        mine.create_session(name, user=user)
    with mine.transaction():
        mine.append_turn("s1", turn(), "t1", 1)
        other = threading.Thread(target=lambda: yours.append_turn("s2", turn(), "t2", 1))
        other.start()
        other.join(20)
        assert not other.is_alive()


def test_a_turn_that_was_rewound_meanwhile_is_refused(open_store: OpenStore) -> None:
    db, other = open_store(), open_store()
    db.create_session("s1")
    ids = db.append_turn("s1", turn(), "t1", 1).message_ids
    db.append_message("s1", "user", "and now?", ref="t2:0")
    other.rewind("s1", ids[0])
    for turn_id in ("t1", "t2"):
        with pytest.raises(SessionError, match="taken back"):
            db.append_turn("s1", turn(), turn_id, 1)


def test_a_server_that_crashes_under_writers_loses_nothing_that_was_acknowledged() -> None:
    with contextlib.closing(PostgresServer()) as server:
        stores = [SessionStore(PostgresEngine(server.url)) for _ in range(3)]
        for number in range(3):
            stores[0].create_session(f"s{number}", user=f"u{number}")
        acknowledged: list[set[str]] = [set(), set(), set()]
        enough = threading.Event()

        def write(number: int) -> None:
            db, outbox = stores[number], Outbox(stores[number].database)
            for count in range(100_000):
                turn_id, session = f"t{number}-{count}", f"s{number}"

                def store(turn_id: str = turn_id, session: str = session, count: int = count) -> None:
                    with db.transaction():
                        db.append_turn(session, turn(count), turn_id, count)
                        outbox.put("fake", NewRow("sync_turn", turn_id, session, "{}"))

                while not enough.is_set():
                    try:
                        db.database.retry(store, idempotent=True)
                    except DatabaseUnavailable:
                        enough.wait(0.02)
                    else:
                        acknowledged[number].add(turn_id)
                        break
                if enough.is_set():
                    return

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            for crash in range(1, 4):
                assert until(lambda least=20 * crash: all(len(ids) >= least for ids in acknowledged))
                server.stop("immediate")
                server.start()
            assert until(lambda: all(len(ids) >= 80 for ids in acknowledged))
        finally:
            enough.set()
            for thread in threads:
                thread.join(60)
        db = stores[0]
        for number, ids in enumerate(acknowledged):
            stored = [entry.turn.id for entry in db.turns.complete(session_id=f"s{number}")]
            assert len(stored) == len(set(stored))
            assert ids <= set(stored)
            messages = db.get_messages(f"s{number}")
            assert len(messages) == 4 * len(stored) == db.get_session(f"s{number}").message_count  # type: ignore[union-attr]
            sent = [
                row.event for row in Outbox(db.database).pending("fake") if row.session_id == f"s{number}"
            ]
            assert sent == stored
        for store in stores:
            store.close()


def test_keys_are_compared_byte_by_byte(open_store: OpenStore) -> None:
    db = open_store()
    names = ["a", "B", "a;", "a:1", "_", "Ä", "z", "\U0001f600"]
    for name in names:
        db.create_session(name)
    rows = db.database.execute("SELECT id FROM sessions ORDER BY id")
    assert [row[0] for row in rows] == sorted(names, key=str.encode)
    sql = """SELECT table_name, column_name FROM information_schema.columns
             WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"""
    assert [tuple(row) for row in db.database.execute(sql)] == []


def test_each_owner_has_numbers_of_their_own_for_messages(open_store: OpenStore) -> None:
    db = open_store()
    for name, user in (("s1", "ann"), ("s2", "bob"), ("s3", "ann")):
        db.create_session(name, user=user)
        db.append_turn(name, turn(), f"t-{name}", 1)
    places = """SELECT o.owner, m.ordinal, m.bucket FROM messages m JOIN owners o ON o.key = m.owner_key
                ORDER BY o.owner, m.ordinal"""
    rows = [tuple(row) for row in db.database.execute(places)]
    assert rows == [("ann", n, 0) for n in range(1, 9)] + [("bob", n, 0) for n in range(1, 5)]
    assert give_to_home(db, "ann") == 2
    rows = [tuple(row) for row in db.database.execute(places)]
    assert rows == [("", n, 0) for n in range(1, 9)] + [("bob", n, 0) for n in range(1, 5)]


# ------------------------------------------------------------------ the same statements as on SQLite


def test_both_engines_have_the_same_tables_and_columns(tmp_path: Path, open_store: OpenStore) -> None:
    with contextlib.closing(SessionStore(tmp_path / "state.db")) as files:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'messages_%' AND name NOT LIKE 'sqlite_%'"
        names = [row[0] for row in files.database.execute(sql)]
        in_files = {name: columns_of(files.database, name) for name in names}
    database = open_store().database
    on_server = {name: columns_of(database, name) for name in names}
    # The model of vectors stands beside them there, and migrations have a number.
    assert in_files.pop("vectors") - on_server.pop("vectors") == {"model"}
    on_server["schema_migrations"] -= {"number"}
    on_server["messages"] -= {"owner_key", "ordinal", "bucket", "terms"}
    assert on_server == in_files


def test_every_statement_that_sqlite_runs_is_one_of_postgresql_as_well(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: set[str] = set()
    execute = sqlite3.Connection.execute

    class Noting(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            ran.add(sql)
            return execute(self, sql, parameters)

        def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
            class NotingCursor(factory):  # type: ignore[misc]
                def execute(self, sql: str, parameters: Any = (), /) -> Any:
                    ran.add(sql)
                    return super().execute(sql, parameters)

            return super().cursor(NotingCursor)

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: connect(*args, factory=Noting, **options)
    )
    with contextlib.closing(SessionStore(tmp_path / "state.db")) as db:
        db.counts()
        ran.clear()  # the migrations of SQLite
        use_everything(db)
    monkeypatch.undo()
    only_sqlite = re.compile(
        r"\s*(PRAGMA|BEGIN|COMMIT|ROLLBACK|CREATE|ALTER|DROP)|sqlite_|messages_fts|json_each"
        r"|INDEXED BY|schema_migrations|INSERT OR|search_index|vectors|outbox_totals VALUES",
    )
    shared = sorted(sql for sql in ran if not only_sqlite.search(sql))
    assert len(shared) > 60
    database = open_store().database
    refused = {}
    for sql in shared:
        try:
            database.execute(f"PREPARE checked AS {prepared(sql)}")
            database.execute("DEALLOCATE checked")
        except (psycopg.Error, DatabaseUnavailable) as exc:
            refused[sql] = str(exc)
    assert refused == {}


def prepared(sql: str) -> str:
    """A statement with PostgreSQL's own parameters, as PREPARE takes them."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match[1] or f"?{len(numbers)}"
        return f"${numbers.setdefault(name, len(numbers) + 1)}"

    return re.sub(r"%(?:\((\w+)\))?s", number, psycopg_sql(sql)).replace("%%", "%")


def use_everything(db: SessionStore) -> None:
    """Call what the row SQL stands in."""
    outbox = Outbox(db.database)
    db.create_session("s1", title="Plan", user="ann", identity={"user_id": "ann"})
    db.create_session("s2", title="Plan", user="ann", parent_id="s1", relation="compression")
    record = record_statements("t1", "ann", 1_795_000_000.0, TurnRecord())
    db.append_turn("s1", turn(), "t1", 1, reopen=True, further=record)
    db.append_message("s1", "user", "tea", ref="r")
    for call in CALLS.values():
        with contextlib.suppress(SessionError):
            call(db)
    db.create_session("s1", title="Plan", user="ann", identity={"user_id": "ann"})
    db.append_turn("s1", turn(), "t2", 2, reopen=True)
    last = db.append_message("s1", "user", "tea", ref="r3")
    db.meta.set_system_prompt("s1", "x")
    db.meta.system_prompt("s1")
    db.meta.freeze_memory_prompt("s1", "x")
    db.meta.memory_prompt("s1")
    db.meta.set_title("s1", "Other")
    db.meta.add_usage("s1", input_tokens=1, cost_usd=0.5)
    db.end_session("s1", "close")
    db.reopen_session("s1")
    db.meta.set_mark("s1", "pinned")
    db.meta.set_mark("s1", "pinned", on=False)
    lineage.children(db.database, "s1")
    list(lineage.first_messages(db.database, "cli", 2))
    db.get_messages_as_conversation("s1", include_ancestors=True)
    db.transcript("s1").messages()
    hide_message(db, "s1", last)
    delete_copy(db, "s1", "none")
    db.turns.has_message("s1", "r3")
    db.counts()
    db.has_turn("t2")
    db.turns.first_message("s1", 1)
    lineage.idle_since(db.database, 9e9, ["cli"])
    db.meta.identity("s1")
    list(db.turns.complete(session_id="s1"))
    lineage.stored_sources(db.database)
    db.meta.set("k", "v")
    db.meta.get("k")
    db.delete_if_unused("s2")
    idle_sessions(db, 9e9)
    turns = OpenTurnStore(db)
    turns.create(StoredOpenTurn("o1", "s1", {"role": "user", "content": "x"}, ""), at=1.0)
    turns.set_contexts("o1", [("a", "b")], "person")
    turns.add("o1", [{"role": "assistant", "content": "y"}], at=2.0)
    turns.get("o1")
    turns.expire(before=0.5)
    turns.delete("o1")
    state = HostState(db, "user", lambda: "ann")
    state["k"] = 1
    assert (state["k"], len(state), list(state)) == (1, 1, ["k"])
    del state["k"]
    document = session_document(db, "s1")
    db.delete_session("s1")
    import_session(db, document)
    for number in range(4):
        outbox.put("fake", NewRow("sync_turn", f"e{number}", "s1", "{}"))
    rows = outbox.pending("fake")
    outbox.failed(rows[0], "x", counted=True)
    outbox.bury(rows[0], "x")
    outbox.retry()
    outbox.delivered(rows[1])
    outbox.drop([rows[2].number])
    outbox.drop_turns("fake", ["e3"])
    outbox.providers_of(["e1"])
    outbox.knows("fake", "sync_turn", "e1")
    assert (outbox.waits("fake"), outbox.waits("fake", "s1")) in [(True, True), (False, False)]
    assert outbox.backlogs().keys() <= {"fake"}
    outbox.refused("fake")
    outbox.last_settled("fake")
    assert outbox.depth >= 0


def test_everything_runs_on_postgresql(open_store: OpenStore) -> None:
    use_everything(open_store())

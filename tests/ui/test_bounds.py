"""A view asks a bounded number of questions and reads a bounded number of rows, whatever the size of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from hermes_core import HermesHome
from hermes_core.memory import Memory, open_memory
from hermes_core.outbox.rows import NewRow
from hermes_core.sessions.search import index
from hermes_core.storage import sqlite
from hermes_core.ui.answers import PageRequest
from hermes_core.ui.routes import PAGES
from hermes_core.ui.site import Site

MAX_STATEMENTS = 250
MAX_ROWS = 1500

QUERIES = {
    "/sessions": [{}, {"before": "s500"}, {"archived": "1"}, {"source": "cron"}],
    "/session": [{"id": "s500"}],
    "/session/delete": [{"id": "s500"}],
    "/session/export": [{"id": "s500"}],
    "/search": [{"q": "kumquat 500"}, {"q": "kumquat"}],
    "/change": [{"id": "1"}],
    "/turn": [{"id": "t1"}],
    "/outbox/drop": [{"row": "1"}],
    "/people/forget": [{"user": "telegram:1"}],
}


def fill(memory: Memory, count: int) -> None:
    """Store this many conversations of one message, of which jobs began the newer half."""
    database = memory.sessions.database
    with database.transaction() as connection:
        connection.executemany(
            "INSERT INTO sessions (id, source, started_at, last_active, message_count) VALUES (?, ?, ?, ?, 1)",
            [
                (f"s{number}", "cli" if number <= count // 2 else "cron", number, number)
                for number in range(count)
            ],
        )
        connection.execute(
            "INSERT INTO messages (session_key, position, size, timestamp, role, content)"
            " SELECT key, 0, 20, last_active, 'user', 'kumquat ' || substr(id, 2) FROM sessions"
        )
    index.rebuild_in_steps(database, lambda _: None)
    session = memory.start_session("talk")
    for number in range(60):
        memory.begin_turn(session, f"question {number}")
        memory.end_turn(session, f"question {number}", "answer", turn_id=f"t{number}", warm=False)
    memory.start_session("theirs", platform="telegram", user_id="1")
    memory.manager.outbox.put("mem0", NewRow("sync_turn", "turn", "theirs", "{}"))
    for number in range(40):
        memory.curated.reset("memory")
        memory.curated.add("memory", f"Note {number}")


@dataclass
class Work:
    """What SQLite was asked: statements, rows that came back, and hundreds of its own steps."""

    statements: int = 0
    rows: int = 0
    steps: int = 0


@contextmanager
def counted(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Count what is asked of all databases in a block."""
    work = Work()

    class CountingCursor(sqlite._Cursor):
        def fetchone(self) -> object:
            row = super().fetchone()
            work.rows += row is not None
            return row

        def fetchall(self) -> list[object]:
            rows = super().fetchall()
            work.rows += len(rows)
            return rows

        def __iter__(self) -> Iterator[object]:
            for row in super().__iter__():
                work.rows += 1
                yield row

    def count_statement(_: str) -> None:
        work.statements += 1

    def count_step() -> None:
        work.steps += 1

    connection = memory.sessions.database.connection
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "_Cursor", CountingCursor)
        connection.set_trace_callback(count_statement)
        connection.set_progress_handler(count_step, 100)
        yield work
        connection.set_trace_callback(None)
        connection.set_progress_handler(None, 0)


def work_of(home: HermesHome, count: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Work]:
    """Return the work of each view on a store of this many sessions."""
    done = {}
    with open_memory(home) as memory:
        fill(memory, count)
        site = Site(memory)
        for path, view in PAGES.items():
            for query in QUERIES.get(path, [{}]):
                with counted(memory, monkeypatch) as work:
                    response = site.answer(path, view, PageRequest(query))
                assert response.status_code == 200, (path, query)
                done[f"{path} {query}"] = work
    return done


@pytest.mark.slow
def test_each_view_does_as_much_for_a_hundred_thousand_sessions_as_for_a_thousand(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = work_of(HermesHome(hermes_home.path / "small"), 1_000, monkeypatch)
    large = work_of(HermesHome(hermes_home.path / "large"), 100_000, monkeypatch)
    for view, work in large.items():
        assert work.statements <= MAX_STATEMENTS, (view, work)
        assert work.rows <= MAX_ROWS, (view, work)
        assert work.statements <= 1.2 * small[view].statements + 5, (view, small[view], work)
        # Deeper trees of an index cost a few steps. A search ranks at most a bounded number of candidates.
        if not view.startswith("/search"):
            assert work.steps <= 1.5 * small[view].steps + 50, (view, small[view], work)

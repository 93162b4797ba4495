"""A view asks a bounded number of questions and reads a bounded number of rows, whatever the size of the store."""

from __future__ import annotations

import html
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from hermes_core import HermesHome
from hermes_core.contract.values import Origin
from hermes_core.curated.document import entry_handle
from hermes_core.memory import Memory, open_memory
from hermes_core.outbox.rows import NewRow
from hermes_core.sessions.search import index
from hermes_core.storage import sqlite
from hermes_core.storage.sqlite import Database
from hermes_memory_agent.skills.store import open_skills
from hermes_memory_ui.answers import PageRequest
from hermes_memory_ui.routes import PAGES
from hermes_memory_ui.site import Site
from hermes_memory_ui.views import facts, notes, providers, timeline
from tests.outbox_of import set_origins
from tests.rounds import rounds

MAX_STATEMENTS = 250
MAX_ROWS = 1500
# Two searches: that of the turn and that of the report.
MAX_ROWS_OF_RECALL = 3500

QUERIES = {
    "/sessions": [{}, {"before": "s500"}, {"archived": "1"}, {"source": "cron"}],
    "/session": [{"id": "s500"}],
    "/session/delete": [{"id": "s500"}],
    "/session/export": [{"id": "s500"}],
    "/search": [{"q": "kumquat 500"}, {"q": "kumquat"}],
    "/recall": [{"q": "kumquat 500", "id": "7"}],
    "/note": [{"target": "memory", "handle": entry_handle("Note 39")}],
    "/provider": [{"name": "holographic"}],
    "/fact": [],  # of a provider, which this home has not
    "/fact/delete": [],
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
    index.Fts5Index(database).rebuild()
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


@pytest.mark.sqlite_only("steps of SQLite are counted")
@pytest.mark.shortened
def test_each_view_does_as_much_for_a_hundred_thousand_sessions_as_for_a_thousand(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = work_of(HermesHome(hermes_home.path / "small"), 1_000, monkeypatch)
    large = work_of(HermesHome(hermes_home.path / "large"), rounds(100_000), monkeypatch)
    for view, work in large.items():
        assert work.statements <= MAX_STATEMENTS, (view, work)
        assert work.rows <= (MAX_ROWS_OF_RECALL if view.startswith("/recall") else MAX_ROWS), (view, work)
        assert work.statements <= 1.2 * small[view].statements + 5, (view, small[view], work)
        # Deeper trees of an index cost a few steps. A search ranks at most a bounded number of candidates.
        if not view.startswith(("/search", "/recall")):
            assert work.steps <= 1.5 * small[view].steps + 50, (view, small[view], work)


def _page(site: Site, path: str, **query: str) -> str:
    response = site.answer(path, PAGES[path], PageRequest(query))
    assert response.status_code == 200, bytes(response.body).decode()
    return bytes(response.body).decode()


def _pages(site: Site, path: str, label: str) -> list[str]:
    """Return a page and all that its link "More" leads to."""
    pages = [_page(site, path)]
    while match := re.search(rf'<a rel="next" href="([^"]*)"[^>]*>{label}<', pages[-1]):
        query = parse_qs(urlsplit(html.unescape(match[1])).query)
        pages.append(_page(site, path, **{name: values[-1] for name, values in query.items()}))
    return pages


def _write_notes(memory: Memory, count: int, origin: Origin) -> None:
    notes = [f"Note {number} of the shed." for number in range(count)]
    memory.home.memory_md.parent.mkdir(parents=True, exist_ok=True)
    memory.home.memory_md.write_text("\n§\n".join(notes))
    memory.curated.read()
    if origin != "person":
        set_origins(memory, dict.fromkeys(notes, origin), "s1")


@pytest.mark.parametrize("origin", ["person", "web"])
def test_a_page_of_three_thousand_notes_shows_and_scans_a_few_of_them(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch, origin: Origin
) -> None:
    with open_memory(hermes_home) as memory:
        _write_notes(memory, 3_000, origin)
        site, scans = Site(memory), [0]
        scan = site.notes._scan.first_threat

        def count(text: str) -> object:
            scans[0] += 1
            return scan(text)

        monkeypatch.setattr(site.notes._scan, "first_threat", count)
        first = _page(site, "/")
        assert first.count('<li class="card') <= 2 * notes.PAGE_SIZE
        assert scans[0] <= 10 * notes.PAGE_SIZE
        assert ("More texts wait than the page shows" in first) == (origin == "web")
        assert f"first={notes.PAGE_SIZE}" in first
        last = _page(site, "/", target="memory", first=str(3_000 - notes.PAGE_SIZE))
        assert "Note 2999 of the shed." in last
        assert "More notes" not in last
        if origin == "web":
            handle = re.findall(r'name="handle" value="(entry:[^"]*)"', first)[0]
            scans[0] = 0
            form = PageRequest({}, {"only": handle})
            assert "accepted" in notes.accept(site, form).message
            assert scans[0] <= 10
        memory.curated.reset("memory")
        for path in ("/timeline", "/change"):
            change = memory.curated.history(limit=1)[0]
            text = _page(site, path, **({"id": str(change.id)} if path == "/change" else {}))
            assert text.count("of the shed.") <= 2 * timeline.MAX_LINES
            assert "more entries" in text


def test_all_rows_of_the_outbox_and_all_users_are_on_some_page(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        for number in range(230):
            memory.start_session(f"s{number}", platform="telegram", user_id=f"{number:03}")
            memory.manager.outbox.put("mem0", NewRow("sync_turn", f"turn{number}", f"s{number}", "{}"))
        for row in memory.manager.outbox.pending()[:120]:
            memory.manager.outbox.bury(row, "refused")
        site = Site(memory)
        for path, label, item in (
            ("/providers", "More writes", r"<code>row (\d+)</code>"),
            ("/people", "More users", r"<code>(telegram:\d+)</code>"),
        ):
            pages = _pages(site, path, label)
            items = [name for page in pages for name in re.findall(item, page)]
            assert len(items) == len(set(items)) == 230
            assert len(pages) == 5


def _copy_row(database: Database, table: str, changes: Iterable[dict[str, object]]) -> None:
    """Insert copies of the first row of a table, each with other values of some columns."""
    with database.transaction() as connection:
        row = dict(connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone())  # noqa: S608
        query = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608
        connection.executemany(query, [tuple((row | change).values()) for change in changes])


@pytest.mark.sqlite_only("steps of SQLite are counted")
def test_one_of_five_thousand_dead_letters_is_read_alone(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(hermes_home) as memory:
        memory.start_session("theirs", platform="telegram", user_id="1")
        outbox = memory.manager.outbox
        outbox.put("mem0", NewRow("sync_turn", "turn", "theirs", "{}"))
        numbers = range(100, 5_100)
        letters = ({"number": number, "event": f"{number}", "state": "dead letter"} for number in numbers)
        _copy_row(outbox.database, "outbox_rows", letters)
        site = Site(memory)
        for action in (
            lambda: _page(site, "/providers"),
            lambda: _page(site, "/outbox/drop", row="4000"),
            lambda: providers.drop(site, PageRequest({}, {"row": "4000"})),
            lambda: providers.retry(site, PageRequest({}, {"row": "4001"})),
        ):
            with counted(memory, monkeypatch) as work:
                action()
            assert work.rows <= 150
        assert [row.number for row in outbox.rows([4_000, 4_001, 4_001])] == [4_001]
        assert len(outbox.dead_letters()) == 4_998


def _copy_facts(path: Path, count: int) -> None:
    """Store copies of the first fact, with its entities and statements, until there are `count` more."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TEMP TABLE copies (fact_id INTEGER, content TEXT)")
        rows = [(1_000 + number, f"Ann owns the boat {number}.") for number in range(count)]
        connection.executemany("INSERT INTO copies VALUES (?, ?)", rows)
        for table, replaced in (
            ("facts", {"fact_id": "c.fact_id", "content": "c.content", "content_key": "c.content"}),
            ("fact_entities", {"fact_id": "c.fact_id"}),
            ("fact_slots", {"fact_id": "c.fact_id", "value": "c.content"}),
        ):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(replaced.get(name, f"t.{name}") for name in columns)
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM copies c, {table} t"  # noqa: S608
                " WHERE t.fact_id = (SELECT min(fact_id) FROM facts)"
            )


def test_ten_thousand_facts_are_a_page_of_fifty(hermes_home: HermesHome) -> None:
    pytest.importorskip("hermes_holographic")
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("memory:\n  provider: holographic\n")
    with open_memory(hermes_home) as memory:
        memory.manager.initialize_all(memory.local_session, wait=30)
        arguments = {"action": "add", "content": "Ann owns the boat Petrel."}
        memory.call_tool(memory.local_session, "fact_store", arguments)
    _copy_facts(hermes_home.path / "memory_store.db", 10_000)
    with open_memory(hermes_home) as memory:
        site = Site(memory)
        memory.manager.initialize_all(site.session, wait=30)
        page = _page(site, "/facts")
        assert page.count('<tr><td dir="auto">') == facts.MAX_FACTS
        assert len(page) < 200_000
        assert "Ann owns the boat" in _page(site, "/facts", entity="Ann")


SKILL = "---\nname: tea\ndescription: How we make tea.\n---\nBoil the water {number} times.\n"


def test_changes_of_skills_are_in_the_timeline_between_those_of_notes(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        skills = open_skills(hermes_home, memory.config, memory.sessions.database)
        skills.create("tea", "kitchen", SKILL.format(number=0), session_id="s")
        for number in range(40):
            memory.curated.reset("memory")
            memory.curated.add("memory", f"Note {number}.")
            skills.patch("tea", f"water {number} times", f"water {number + 1} times")
        site = Site(memory)
        pages = _pages(site, "/timeline", "Earlier changes")
        text = "".join(pages)
        changes = len(memory.curated.history(limit=1000)) + 41
        assert sum(page.count('<li class="card') for page in pages) == changes
        assert [number for number in range(1, 41) if f"+Boil the water {number} times." not in text] == []
        assert "Boil the water 40 times" in pages[0]
        assert "Note 39." in pages[0]
        only = _page(site, "/timeline", target="skills")
        assert "Note" not in re.sub(r"<nav[\s\S]*?</nav>", "", only)
        newest = skills.history(1)[0]
        assert "Taken back" in timeline.undo_skill(site, PageRequest({}, {"id": str(newest.id)})).message
        assert "39 times" in skills.view("tea")
        timeline.restore_skill(site, PageRequest({}, {"id": str(newest.id)}))
        assert "40 times" in skills.view("tea")

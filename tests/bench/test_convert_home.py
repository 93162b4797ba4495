"""Conversion of a home of the last development version. `tests/data/development-home` is one, its databases as SQL."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hermes_holographic.schema import MIGRATIONS as FACTS
from hermes_holographic.store import FactStore

from hermes_core import Session, open_notes
from hermes_core.errors import DatabaseUnavailable
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory
from hermes_core.outbox import recovery
from hermes_core.sessions import schema
from hermes_core.storage.moved import StoreMark
from hermes_core.storage.sqlite import Database
from hermes_memory_agent.skills.store import open_skills
from hermes_memory_testing.fakes import RecordingProvider

pytestmark = pytest.mark.sqlite_only("files of a home")

BENCH = Path(__file__).parents[2] / "bench"
DEVELOPMENT = Path(__file__).parents[1] / "data" / "development-home"

DATABASES = {"state.db": "state", "memories/journal.db": "journal", "skills/.journal.db": "skills"}
ANN = Session("of-ann", platform="telegram", user_id="ann")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("convert_home")


def make_database(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript((DEVELOPMENT / f"{name}.sql").read_text(encoding="utf-8"))


@pytest.fixture
def development(hermes_home: HermesHome) -> HermesHome:
    """A home as the last development version wrote it."""
    shutil.copytree(DEVELOPMENT / "files", hermes_home.path, dirs_exist_ok=True)
    for file, name in DATABASES.items():
        make_database(hermes_home.path / file, name)
    return hermes_home


def rows_of(path: Path, table: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return sorted(database.execute(f"SELECT * FROM {table}"), key=repr)  # noqa: S608  names of the tests


def tables_of(path: Path) -> dict[str, str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, sql FROM sqlite_master"))


def backup_of(home: HermesHome) -> Path:
    return home.path.with_name(f"{home.path.name}.before-0.1.0")


def test_notes_keep_their_entries_their_order_their_origins_and_their_history(
    script: ModuleType, development: HermesHome
) -> None:
    views = {path: path.read_bytes() for path in development.memories.rglob("*.md")}
    assert script.main([str(development.path)]) == 0
    with open_notes(development) as notes:
        stored = notes.read()
        assert stored.entries("memory") == ("Likes green tea.", "Uses uv.")
        assert stored.entries("user") == ("Is called Mel.",)
        assert stored.origin_of("Likes green tea.").origin == "web"
        assert stored.origin_of("Uses uv.").pinned
        assert notes.of(ANN).entries("user") == ("Likes rye.",)
        actions = [version.action for version in notes.history()]
        assert actions == ["add", "remove", "replace", "add", "add", "add"]
        assert notes.undo(5)["success"]
        assert notes.entries("memory") == ("The oven is broken.", "Likes green tea.", "Uses uv.")
        report = notes.changes.verify()
        assert report is not None
        assert report.faults == ()
    for path, data in views.items():
        if path != development.memory_md:
            assert path.read_bytes() == data
    with open_memory(development) as memory:
        skills = open_skills(development, memory.config, memory.sessions.database)
        assert [skill.name for skill in skills.waiting()] == ["brew-tea"]
        assert [change.action for change in skills.history()] == ["patch", "create"]


def test_sessions_and_what_waits_for_a_provider_go_on(script: ModuleType, development: HermesHome) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match=r"bench/convert_home\.py"),
        open_memory(development) as memory,
    ):
        memory.sessions.counts()
    assert script.main([str(development.path)]) == 0
    provider = RecordingProvider()
    with open_memory(development, provider=provider) as memory:
        assert memory.sessions.check() == []
        assert {hit.session_id for hit in memory.sessions.past.search("tent 部署")} == {"s0", "s1"}
        question = memory.conversation("open").resume("open-t1").messages[-1]["content"]
        assert question.startswith("Not answered yet.")
        assert memory.change_memory("add", content="The gate sticks.")["success"]
        memory.end_turn(memory.start_session("s0"), "And the boat?", "Sold.")
        assert memory.flush(30)
        assert memory.problems() == []
    told = [given["turn"].user for hook, given in provider.calls if hook == "sync_turn"]
    assert told[0].startswith("Where is tent 0?")
    assert "And the boat?" in told


def test_the_files_as_they_were_are_kept_and_a_second_run_changes_nothing(
    script: ModuleType, development: HermesHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows_of(development.state_db, "messages")
    assert script.main([str(development.path)]) == 0
    with contextlib.closing(Database(tmp_path / "new.db", schema.MIGRATIONS)) as fresh:
        assert fresh.connection
    assert tables_of(development.state_db) == tables_of(tmp_path / "new.db")
    assert rows_of(backup_of(development) / "state.db", "messages") == before
    for name in ("memories/journal.db", "memories/origins.json", "memories/projects/keys.json"):
        assert (backup_of(development) / name).exists()
        assert not (development.path / name).exists()
    state = development.state_db.read_bytes()
    capsys.readouterr()
    assert script.main([str(development.path)]) == 0
    assert capsys.readouterr().out == "Nothing is to be converted.\n"
    assert development.state_db.read_bytes() == state


def test_tables_and_columns_that_are_not_known_are_refused(
    script: ModuleType, development: HermesHome, capsys: pytest.CaptureFixture[str]
) -> None:
    for harm, told in (
        ("CREATE TABLE more (x)", "has tables that are not known: more"),
        (
            "DROP TABLE more; ALTER TABLE turns ADD COLUMN more TEXT",
            "has columns in 'turns' that are not known: more",
        ),
    ):
        with contextlib.closing(sqlite3.connect(development.state_db)) as database:
            database.executescript(harm)
        before = rows_of(development.state_db, "turns")
        assert script.main([str(development.path)]) == 1
        assert told in capsys.readouterr().err
        assert rows_of(development.state_db, "turns") == before
        assert (development.memories / "journal.db").exists()


def test_a_home_that_is_in_use_is_refused(
    script: ModuleType, development: HermesHome, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM sessions').fetchall();"
        " print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(development.state_db)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert script.main([str(development.path)]) == 1
        assert "another program has" in capsys.readouterr().err
        holder.communicate("")
    assert (development.memories / "journal.db").exists()


def test_the_mark_of_a_moved_store_stays(script: ModuleType, development: HermesHome) -> None:
    mark = StoreMark("m1", "source", complete=True, other="postgresql://x")
    trigger = (
        "CREATE TRIGGER moved_turns_INSERT BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'moved'); END"
    )
    with contextlib.closing(sqlite3.connect(development.state_db)) as database, database:
        database.execute("INSERT INTO schema_migrations VALUES (?, 1)", (mark.name,))
        database.execute(trigger)
    assert script.main([str(development.state_db)]) == 0
    assert tables_of(development.state_db)["moved_turns_INSERT"] == trigger


def test_facts_that_were_cut_by_earlier_rules_are_cut_anew_at_the_next_start(
    script: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "memory_store.db"
    make_database(path, "facts")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "UPDATE schema_migrations SET name = 'one_spelling_1' WHERE name LIKE 'one_spelling%'"
        )
    assert script.main([str(path)]) == 0
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert [row[0] for row in database.execute("SELECT name FROM schema_migrations")] == [FACTS[0][0]]
    store = FactStore(path, 1024, 0.5, lambda: 7.0)
    assert store.add("Mel lives in Oslo", "general", entities=["Mel"], conversation="s1")
    store.db.close()


def test_an_outbox_of_its_own_is_converted(script: ModuleType, hermes_home: HermesHome) -> None:
    make_database(hermes_home.outbox_db, "outbox")
    assert script.main([str(hermes_home.path)]) == 0
    with contextlib.closing(recovery.open_outbox(hermes_home)) as outbox:
        assert outbox.depth == 0


def test_other_files_are_left_alone(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.db").write_text(
        "no database, and long enough to be read as a file of another program " * 20
    )
    with contextlib.closing(sqlite3.connect(tmp_path / "theirs.db")) as theirs, theirs:
        theirs.execute("CREATE TABLE theirs (x)")
    assert script.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "Nothing is to be converted.\n"
    assert script.main([str(tmp_path / "missing")]) == 1
    assert "there is no" in capsys.readouterr().err

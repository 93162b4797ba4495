"""Conversion of a home of the last development version. `tests/data/development-home` has its tables."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hermes_holographic.schema import MIGRATIONS as FACTS
from hermes_holographic.store import FactStore

from hermes_core.curated import journal
from hermes_core.errors import DatabaseUnavailable
from hermes_core.home import HermesHome
from hermes_core.memory import Memory, open_memory
from hermes_core.outbox import recovery
from hermes_core.outbox.rows import NewRow
from hermes_core.sessions import schema
from hermes_core.storage.moved import StoreMark
from hermes_core.storage.sqlite import Database, Migration
from hermes_memory_agent.skills import store as skills
from hermes_memory_testing.fakes import RecordingProvider

pytestmark = pytest.mark.sqlite_only("files of a home")

BENCH = Path(__file__).parents[2] / "bench"
TABLES = Path(__file__).parents[1] / "data" / "development-home"

FILES: dict[str, tuple[str, tuple[Migration, ...]]] = {
    "state.db": ("state", schema.MIGRATIONS),
    "memories/journal.db": ("journal", journal.MIGRATIONS),
    "skills/.journal.db": ("skills", skills.MIGRATIONS),
    "profiles/work/outbox.db": ("outbox", recovery.MIGRATIONS),
    "memory_store.db": ("facts", FACTS),
}

_TABLE_NAMES = """SELECT name FROM {}.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
    AND name NOT LIKE 'messages_%' AND name NOT LIKE 'facts_fts_%' AND name <> 'schema_migrations'"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("convert_home")


def make_development(path: Path, name: str) -> None:
    """Give a database of today the tables of the development version, with the same rows."""
    new = path.rename(path.with_name(f"{path.name}.new"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(
            f"PRAGMA journal_mode = WAL; {(TABLES / f'{name}.sql').read_text(encoding='utf-8')}"
        )
        old.execute("ATTACH ? AS new", (str(new),))
        for (table,) in old.execute(_TABLE_NAMES.format("main")).fetchall():
            columns = [f'"{row[1]}"' for row in old.execute(f"PRAGMA main.table_info({table})")]
            names = ", ".join([*columns, "rowid"] if table == "facts_fts" else columns)
            old.execute(f"DELETE FROM main.{table}")  # noqa: S608  names of the schema
            old.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}")  # noqa: S608
        if old.execute("SELECT 1 FROM new.sqlite_master WHERE name = 'sqlite_sequence'").fetchone():
            old.execute("DELETE FROM sqlite_sequence")
            old.execute("INSERT INTO sqlite_sequence SELECT * FROM new.sqlite_sequence")
    new.unlink()


def write_all(home: HermesHome) -> None:
    """Write rows of each kind into a home of today."""
    with open_memory(home, provider=RecordingProvider()) as memory:
        memory.manager.outbox.held_back = "so that rows wait"
        for number in range(3):
            session = memory.start_session(f"s{number}")
            memory.end_turn(session, f"Where is tent {number}? 部署", "In the garage.")
            memory.sessions.append_message(session.id, "user", "gone")
        memory.sessions.delete_session("s2")
        memory.sessions.meta.set("key", "value")
        memory.change_memory("add", content="The oven is broken.")
        memory.conversation("open").turn("Not answered yet.", turn_id="open-t1")
    with contextlib.closing(skills.SkillJournal(home.skills / skills.JOURNAL)) as changes:
        changes.finish(changes.begin("tea/SKILL.md", "create", None, "text", "s1"))
    work = HermesHome(home.path / "profiles" / "work")
    with contextlib.closing(recovery.open_outbox(work)) as outbox:
        outbox.put("fake", NewRow("sync_turn", "t1", "s1", "{}"))
    store = FactStore(home.path / "memory_store.db", 1024, 0.5, lambda: 7.0)
    store.add("Mel lives in Oslo", "general", entities=["Mel"], conversation="s1")
    store.db.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = HermesHome(tmp_path_factory.mktemp("template") / "home")
    write_all(home)
    for file, (name, _) in FILES.items():
        make_development(home.path / file, name)
    return home.path


@pytest.fixture
def development(hermes_home: HermesHome, template: Path) -> HermesHome:
    """A home as the last development version wrote it."""
    shutil.copytree(template, hermes_home.path, dirs_exist_ok=True)
    return hermes_home


# The indexes, and what triggers and living programs keep.
NOT_COPIED = {"messages_fts", "outbox_totals", "outbox_lines", "leases"}


def rows_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of each table, with the columns by name."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        names = [row[0] for row in database.execute(_TABLE_NAMES.format("main")) if row[0] not in NOT_COPIED]
        names += (
            ["sqlite_sequence"] if database.execute("PRAGMA table_info(sqlite_sequence)").fetchone() else []
        )
        rows = {}
        for name in names:
            columns = sorted(row[1] for row in database.execute(f"PRAGMA table_info({name})"))
            quoted = ", ".join(f'"{column}"' for column in columns)
            query = f"SELECT {quoted} FROM {name}"  # noqa: S608  names of the schema
            rows[name] = sorted(database.execute(query).fetchall(), key=repr)
        return rows


def tables_of(path: Path) -> dict[str, str]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, sql FROM sqlite_master"))


def test_every_row_is_in_the_tables_of_a_new_home(
    script: ModuleType, development: HermesHome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {file: rows_of(development.path / file) for file in FILES}
    assert all(len([name for name, rows in tables.items() if rows]) > 1 for tables in before.values())

    assert script.main([str(development.path)]) == 0

    assert (
        f"state.db: sessions, {sum(map(len, before['state.db'].values())) - 3:,} rows"
        in capsys.readouterr().out
    )
    for file, (_, migrations) in FILES.items():
        assert rows_of(development.path / file) == before[file], file
        with contextlib.closing(Database(tmp_path / "new.db", migrations)) as fresh:
            assert fresh.connection
        assert tables_of(development.path / file) == tables_of(tmp_path / "new.db"), file
        (tmp_path / "new.db").unlink()
        assert (
            rows_of(development.path.with_name(f"{development.path.name}.before-0.1.0") / file)
            == before[file]
        )


def test_a_converted_home_goes_on(script: ModuleType, development: HermesHome) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"turns-by-number.*schema-1.*bench/convert_home\.py"):
        read_all(development, lambda memory: memory.sessions.counts())
    assert script.main([str(development.path)]) == 0
    provider = RecordingProvider()
    with open_memory(development, provider=provider) as memory:
        assert memory.sessions.check() == []
        assert {hit.session_id for hit in memory.sessions.past.search("tent 部署")} == {"s0", "s1"}
        question = memory.conversation("open").resume("open-t1").messages[-1]["content"]
        assert question.startswith("Not answered yet.")
        assert memory.curated.entries("memory") == ("The oven is broken.",)
        assert memory.change_memory("add", content="The gate sticks.")["success"]
        memory.end_turn(memory.start_session("s0"), "And the boat?", "Sold.")
        assert memory.flush(30)
        assert memory.problems() == []
    told = [given["turn"].user for hook, given in provider.calls if hook == "sync_turn"]
    assert told[0].startswith("Where is tent 0?")
    assert "And the boat?" in told


def read_all(home: HermesHome, read: Callable[[Memory], object]) -> None:
    with open_memory(home, provider="") as memory:
        read(memory)


def test_a_converted_home_is_left_as_it_is(
    script: ModuleType, development: HermesHome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(development.path)]) == 0
    before = {file: (development.path / file).read_bytes() for file in FILES}
    capsys.readouterr()
    assert script.main([str(development.path)]) == 0
    assert capsys.readouterr().out == "Nothing is to be converted.\n"
    assert {file: (development.path / file).read_bytes() for file in FILES} == before


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM schema_migrations WHERE name = 'turns-by-number'",
        "INSERT INTO schema_migrations VALUES ('next', 1)",
    ],
)
def test_another_development_version_is_refused_and_nothing_is_changed(
    script: ModuleType, development: HermesHome, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(sqlite3.connect(development.state_db)) as database, database:
        database.execute(harm)
    before = {file: rows_of(development.path / file) for file in FILES}
    assert script.main([str(development.path)]) == 1
    assert "is of another development version" in capsys.readouterr().err
    assert {file: rows_of(development.path / file) for file in FILES} == before
    assert not list(development.path.parent.glob("*.before-0.1.0*"))


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
        before = rows_of(development.state_db)
        assert script.main([str(development.state_db)]) == 1
        assert told in capsys.readouterr().err
        assert rows_of(development.state_db) == before


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
        before = rows_of(development.state_db)
        assert script.main([str(development.state_db)]) == 1
        assert "another program has" in capsys.readouterr().err
        holder.communicate("")
    assert rows_of(development.state_db) == before


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
    with pytest.raises(DatabaseUnavailable, match="moved to"):
        read_all(development, lambda memory: memory.sessions.counts())


def test_the_first_form_of_recall_in_an_unfinished_turn_is_read(
    script: ModuleType, development: HermesHome
) -> None:
    with contextlib.closing(sqlite3.connect(development.state_db)) as database, database:
        database.execute("""UPDATE open_turns SET contexts = '[["notes", "tea"]]'""")
    assert script.main([str(development.path)]) == 0
    with contextlib.closing(sqlite3.connect(development.state_db)) as database:
        contexts = [row[0] for row in database.execute("SELECT contexts FROM open_turns")]
    assert contexts == ['{"contexts": [["notes", "tea"]], "origin": "provider"}']


def test_facts_that_were_cut_by_earlier_rules_are_cut_anew_at_the_next_start(
    script: ModuleType, development: HermesHome
) -> None:
    path = development.path / "memory_store.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "UPDATE schema_migrations SET name = 'one_spelling_1' WHERE name LIKE 'one_spelling%'"
        )
    assert script.main([str(path)]) == 0
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert [row[0] for row in database.execute("SELECT name FROM schema_migrations")] == ["schema-1"]


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

"""A damaged store is refused in one line, copied before it is touched, and what can be read of it is saved."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.contract.values import Session
from hermes_core.curated.edits import Operation
from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, HermesError, SessionError
from hermes_core.safety.origin import Reading
from hermes_core.sessions import maintenance
from hermes_core.sessions.maintenance import repair
from hermes_core.sessions.owners import give_to_home
from hermes_core.sessions.session_store import SessionStore
from tests.storage.notes import posix, run

PAGE = 4096
MESSAGES = 600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store of some hundred pages."""
    found = tmp_path / "state.db"
    with contextlib.closing(SessionStore(found)) as db:
        for number in range(6):
            db.create_session(f"s{number}", user="u1")
            turn = [
                {"role": "user", "content": f"note{number}x{i} about kumquat trees and 部署 " * 8}
                for i in range(MESSAGES // 6)
            ]
            db.append_turn(f"s{number}", turn, f"t{number}", 1)
    return found


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def root_of(path: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(
            connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        )


def texts(path: Path) -> set[str]:
    with contextlib.closing(SessionStore(path)) as db:
        assert db.check() == []
        return {m.content.split()[0] for n in range(6) for m in db.get_messages(f"s{n}")}


def flip_bytes_of_every_tenth_page(path: Path) -> None:
    chance = random.Random(1)
    for page in range(20, path.stat().st_size // PAGE, 10):
        overwrite(path, page * PAGE + chance.randrange(8), bytes([chance.randrange(256)]))


def cut_a_fifth_off(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 4 // 5 + 100)


def break_the_first_page(path: Path) -> None:
    overwrite(path, 0, b"\x07" * 200)


@pytest.mark.parametrize("damage", [flip_bytes_of_every_tenth_page, cut_a_fifth_off, break_the_first_page])
def test_what_can_be_read_is_saved_and_the_original_is_kept(
    path: Path, damage: Callable[[Path], None]
) -> None:
    whole = texts(path)
    damage(path)
    broken = path.read_bytes()
    with contextlib.closing(SessionStore(path)) as db:
        assert "hermes-memory sessions repair" in db.check()[0]
    assert path.read_bytes() == broken

    result = repair(path)

    assert (result.kept / "state.db").read_bytes() == broken
    saved = texts(path)
    assert saved <= whole
    assert len(saved) >= MESSAGES * 0.65  # the tables of the outbox and of turns stand before most messages
    if damage is break_the_first_page:
        assert saved == whole
    with contextlib.closing(SessionStore(path)) as db:
        assert all(
            hit.text.split()[0] in saved for hit in db.past.search("kumquat", everybody=True, limit=20)
        )
        assert db.past.search("kumquat", user="u2") == []


def test_a_store_whose_tables_are_unknown_is_not_repaired_but_copied_and_left_as_it_is(path: Path) -> None:
    broken = b"\x5a" * path.stat().st_size
    path.write_bytes(broken)
    with pytest.raises(DatabaseCorrupt, match="restore a backup") as refused:
        repair(path)
    assert path.read_bytes() == broken
    (copy,) = path.parent.glob("state.db.damaged-*/state.db")
    assert copy.read_bytes() == broken
    assert str(copy.parent) in refused.value.remedy


def test_a_file_that_is_none_of_sqlites_is_refused_with_what_to_do(path: Path) -> None:
    break_the_first_page(path)
    with (
        contextlib.closing(SessionStore(path)) as db,
        pytest.raises(DatabaseCorrupt, match="hermes-memory sessions repair"),
    ):
        db.create_session("new")


def test_an_emptied_store_is_not_taken_for_a_new_one(path: Path) -> None:
    path.write_bytes(b"")
    with (
        contextlib.closing(SessionStore(path)) as db,
        pytest.raises(DatabaseCorrupt, match="is empty, though it held"),
    ):
        db.create_session("new")
    assert path.stat().st_size == 0
    with pytest.raises(DatabaseCorrupt, match="--accept-loss"):
        repair(path)
    assert path.stat().st_size == 0


def test_a_store_that_was_taken_away_begins_anew(path: Path) -> None:
    path.unlink()
    with contextlib.closing(SessionStore(path)) as db:
        db.create_session("new")
        db.append_message("new", "user", "hello")
        assert db.check() == []


UNCLOSED = """
import os, sys
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore
db = SessionStore(Path(sys.argv[1]))
db.create_session("late")
for number in range(5):
    db.append_message("late", "user", f"late{number}")
print("done", flush=True)
os.kill(os.getpid(), 9)
"""


def write_and_die(path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", UNCLOSED, str(path)], check=False, capture_output=True)
    assert child.returncode == -signal.SIGKILL
    assert path.with_name("state.db-wal").stat().st_size > 0


def test_an_emptied_store_is_saved_from_its_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    write_and_die(path)
    path.write_bytes(b"")
    with contextlib.closing(SessionStore(path)) as db, pytest.raises(DatabaseCorrupt, match="is empty"):
        db.get_session("late")
    assert path.with_name("state.db-wal").stat().st_size > 0

    repair(path)

    with contextlib.closing(SessionStore(path)) as db:
        assert [m.content for m in db.get_messages("late")] == [f"late{n}" for n in range(5)]
        assert db.check() == []


def test_a_store_that_a_killed_process_left_is_whole(path: Path) -> None:
    write_and_die(path)
    with contextlib.closing(SessionStore(path)) as db:
        assert db.check() == []
        assert len(db.get_messages("late")) == 5


def test_messages_whose_session_is_lost_are_kept_under_a_name_of_their_own(path: Path) -> None:
    overwrite(path, (root_of(path, "sessions") - 1) * PAGE, b"\xff" * 16)
    result = repair(path)
    assert result.saved["sessions"] == 0
    with contextlib.closing(SessionStore(path)) as db:
        assert len(db.get_messages("recovered-1")) == MESSAGES // 6
        assert db.past.search("kumquat", user="u1") == []
        assert db.check() == []


def test_what_was_rewound_stays_hidden_in_a_repaired_store(path: Path) -> None:
    with contextlib.closing(SessionStore(path)) as db:
        gone = db.append_message("s1", "user", "persimmon secret")
        db.rewind("s1", gone)
    break_the_first_page(path)
    repair(path)
    with contextlib.closing(SessionStore(path)) as db:
        assert db.past.search("persimmon", everybody=True) == []
        assert db.get_message(gone) is None


def test_sessions_that_were_given_to_the_home_stay_there_in_a_repaired_store(tmp_path: Path) -> None:
    path, ann = tmp_path / "state.db", Session("s1", platform="telegram", user_id="42")
    with contextlib.closing(SessionStore(path)) as db:
        db.create_session("s1", user=ann.owner, identity=ann.to_dict())
        db.append_message("s1", "user", "persimmon")
        assert give_to_home(db, "telegram:43") == 0
        assert give_to_home(db, ann.owner) == 1

    repair(path)

    with contextlib.closing(SessionStore(path)) as db:
        assert [session.user for session in (db.get_session("s1"),) if session] == [""]


def test_a_store_that_another_process_has_open_is_not_repaired(path: Path) -> None:
    holding = (
        "import sys; from pathlib import Path; from hermes_core.sessions.session_store import SessionStore;"
        "db = SessionStore(Path(sys.argv[1])); db.counts(); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        before = path.read_bytes()
        with pytest.raises(DatabaseUnavailable, match="another program has"):
            repair(path)
        assert path.read_bytes() == before
        child.communicate()
    assert repair(path).lost["messages"] == 0


def test_on_windows_a_store_that_another_process_has_open_is_not_repaired(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files can be neither renamed nor replaced, and no lock of POSIX says so."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    before, renamed = path.read_bytes(), []

    def refuse(source: Path, target: Path) -> None:
        renamed.append((source, target))
        raise PermissionError(13, "The process cannot access the file because it is being used")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(DatabaseUnavailable, match="another program has"), maintenance.exclusive(path):
            pytest.fail("it is open")
    assert (path.read_bytes(), renamed) == (before, [(path, path)])
    with maintenance.exclusive(path):
        path.replace(path.with_name("moved"))
    assert path.with_name("moved").read_bytes() == before


@posix
def test_a_repair_that_finds_no_room_says_so_and_leaves_nothing_behind(path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from hermes_core.errors import DatabaseUnavailable
from hermes_core.sessions.maintenance import repair
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    repair(Path(sys.argv[1]))
except DatabaseUnavailable as exc:
    print(exc)
"""
    before = {file.name: file.stat().st_size for file in path.parent.iterdir() if file.suffix != ".lock"}
    out, err = run(code, path).communicate()
    assert ("free space" in out, err) == (True, "")
    assert before == {
        file.name: file.stat().st_size for file in path.parent.iterdir() if file.suffix != ".lock"
    }


def test_a_store_in_which_nothing_was_said_yet_may_be_repaired(tmp_path: Path) -> None:
    with contextlib.closing(SessionStore(tmp_path / "state.db")) as db:
        assert db.counts() == {"sessions": 0, "messages": 0}
    assert not any(repair(tmp_path / "state.db").lost.values())


def test_there_must_be_a_store_to_repair(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="no session store"):
        repair(tmp_path / "state.db")


def put_in(path: Path, column: str, value: object) -> None:
    """Change a value of the last message to what its table takes from no statement."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        named = "FROM sqlite_master WHERE name = 'messages'"
        (strict,) = connection.execute(f"SELECT sql {named}").fetchone()
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        for number, sql in enumerate((strict.replace("STRICT", ""), strict), 1):
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'messages'", (sql,))
            connection.execute(f"PRAGMA schema_version = {version + number}")
            if sql != strict:
                connection.execute(f"UPDATE messages SET {column} = ? WHERE id = ?", (value, MESSAGES))  # noqa: S608  # names below
        connection.commit()


def found(db: SessionStore) -> object:
    return db.past.search(f"note5x{MESSAGES // 6 - 1}", everybody=True)


@pytest.mark.parametrize(
    ("column", "value", "ask"),
    [
        ("size", "long", found),
        ("position", "first", found),
        ("content", b"\0\xff", found),
        ("timestamp", "noon", found),
        ("tool_calls", "[", lambda db: db.get_messages("s5")),
    ],
)
def test_a_row_that_damage_made_another_is_told_in_one_line_with_what_to_do(
    path: Path, column: str, value: object, ask: Callable[[SessionStore], object]
) -> None:
    put_in(path, column, value)
    with contextlib.closing(SessionStore(path)) as db:
        with pytest.raises(DatabaseCorrupt, match="hermes-memory sessions repair") as told:
            ask(db)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda db: db.past.search("kumquat", everybody=True),
        lambda db: db.append_message("s1", "user", "x"),
        lambda db: maintenance.vacuum(db),
        lambda db: db.index.rebuild(),
    ],
    ids=["search", "append", "vacuum", "rebuild"],
)
def test_a_search_index_that_can_not_be_opened_is_made_again(
    path: Path, use: Callable[[SessionStore], object]
) -> None:
    root = root_of(path, "messages_fts_data")
    overwrite(path, (root - 1) * PAGE, b"\xff" * PAGE)
    with contextlib.closing(SessionStore(path)) as db:
        use(db)
        db.index.rebuild()
        assert db.check() == []
    assert len(texts(path)) >= MESSAGES
    assert not any(repair(path).lost.values())


def test_a_mistake_of_the_caller_is_no_damage(path: Path) -> None:
    with contextlib.closing(SessionStore(path)) as db, pytest.raises(AttributeError):
        db.past.search(3, everybody=True)  # type: ignore[arg-type]


@pytest.mark.slow
def test_whatever_bytes_are_flipped_nothing_but_our_errors_is_seen(path: Path) -> None:
    original, chance = path.read_bytes(), random.Random(7)
    whole = texts(path)
    shares, told = [], []
    for _ in range(25):
        path.write_bytes(original)
        for _ in range(chance.randrange(1, 5)):
            overwrite(path, chance.randrange(len(original)), bytes([chance.randrange(256)]))
        with contextlib.closing(SessionStore(path)) as db:
            with contextlib.suppress(HermesError):
                db.past.search("kumquat trees", everybody=True)
                db.append_message("s1", "user", "more")
            db.check()
        try:
            result = repair(path)
        except DatabaseCorrupt:
            continue
        with contextlib.closing(SessionStore(path)) as db:
            assert db.check() == []
        shares.append(result.saved["messages"] / len(whole))
        told.append((result.saved["messages"] + result.lost["messages"]) / len(whole))
    assert min(shares) >= 0.8
    assert min(told) >= 0.99


def test_a_statement_that_failed_before_is_not_taken_for_another_program(path: Path) -> None:
    """Its connection is closed with the statement: as garbage, at any moment."""
    garbage: list[object] = []

    def collect(_table: str, _count: int) -> None:
        gc.collect()

    gc.disable()
    try:
        with contextlib.closing(SessionStore(path)) as db:
            db.append_message("s1", "user", "more")
            statement = db.database.connection.execute("SELECT id FROM messages")
            statement.fetchone()
            garbage += [garbage, statement]
            del statement
        garbage = []
        repair(path, progress=collect)
    finally:
        gc.enable()
    assert len(texts(path)) == MESSAGES + 1


def test_a_table_of_which_nothing_is_known_counts_as_lost(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM")  # its tables lie elsewhere than a new store's
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE name = 'turns'")
    assert repair(path).lost["turns"] == 6


@pytest.fixture
def notes_home(hermes_home: HermesHome) -> HermesHome:
    """A closed home with notes of two owners, one of them from a page."""
    with open_memory(hermes_home, provider="") as memory:
        memory.end_turn(memory.start_session("s1"), "Where is the tent?", "In the cellar.")
        for number in range(60):
            assert memory.curated.add("memory", f"Note {number} of the shed.")["success"]
        page = [Operation("add", "The museum opens at 9")]
        memory.curated.write("user", page, memory.local_session, reading=Reading("web"))
        ann = memory.session("s2", platform="telegram", user_id="ann")
        memory.change_memory("add", "memory", "Ann sails", session=ann, by_person=True)
    return hermes_home


def rewrite_rows(home: HermesHome, *statements: str) -> None:
    """Take rows away, as damage does."""
    with contextlib.closing(sqlite3.connect(home.state_db)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_a_repair_keeps_notes_origins_and_history(notes_home: HermesHome) -> None:
    views = notes_home.memory_md.read_bytes()
    break_the_first_page(notes_home.state_db)
    result = repair(notes_home.state_db)
    assert result.lost["note_entries"] == result.lost["note_changes"] == 0
    with open_memory(notes_home, provider="") as memory:
        assert len(memory.curated.entries("memory")) == 60
        assert memory.curated.read().origin_of("The museum opens at 9").origin == "web"
        assert "edit" not in {change.action for change in memory.curated.history(limit=100)}
        assert memory.curated.places.owners() == ["telegram:ann"]
        assert (record := memory.curated.changes.verify()) is not None
        assert record.faults == ()
        assert memory.curated.undo()["success"]
    assert notes_home.memory_md.read_bytes() == views


LOST_ROWS = {
    "entries": "DELETE FROM note_entries WHERE position % 3 = 1 OR file = 'USER.md'",
    "files": "DELETE FROM notes",
    "changes": "DELETE FROM note_changes WHERE id > 20",
    "entries and changes": "DELETE FROM note_entries; DELETE FROM note_changes",
    "all": "DELETE FROM note_entries; DELETE FROM note_changes; DELETE FROM notes; DELETE FROM note_views",
}


@pytest.mark.parametrize("rows", LOST_ROWS)
def test_notes_whose_rows_are_lost_are_found_in_their_files_and_are_no_persons(
    notes_home: HermesHome, rows: str
) -> None:
    rewrite_rows(notes_home, *LOST_ROWS[rows].split("; "))
    flip = root_of(notes_home.state_db, "note_events")  # a repair sees damage at least here
    overwrite(notes_home.state_db, (flip - 1) * PAGE, b"\xff" * 100)
    repair(notes_home.state_db)
    with open_memory(notes_home, provider="") as memory:
        stored = memory.curated.read()
        assert set(stored.entries("memory")) == {f"Note {number} of the shed." for number in range(60)}
        assert stored.entries("user") == ("The museum opens at 9",)
        assert stored.origin_of("The museum opens at 9").origin in ("web", "import")
        ann = memory.session("s2", platform="telegram", user_id="ann")
        assert memory.curated.of(ann).entries("memory") == ("Ann sails",)
        assert memory.curated.add("memory", "Likes tea")["success"]
        assert len(memory.curated.entries("memory")) == 61

"""What was acknowledged is there after kill -9, and two processes lose nothing of one another."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseUnavailable
from hermes_core.sessions.maintenance import repair
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql.engine import PostgresEngine
from tests.outbox_of import ON_POSTGRES
from tests.rounds import rounds
from tests.storage.notes import posix

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from tests.sessions.test_crash import open_at

db, name, count = open_at(sys.argv[1]), sys.argv[2], int(sys.argv[3])
db.create_session(name)
print("ready", flush=True)
for number in range(count):
    text = f"{name} turn{number} 部署{number}"
    turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "answer " + text}]
    db.append_turn(name, turn, f"{name}-{number}", number)
    if number % 7 == 6:
        db.rewind(name, db.append_message(name, "user", "taken back"))
    print(number, flush=True)
"""


def open_at(place: str) -> SessionStore:
    """Open a store: a file by its path, or a schema on a server by the address and the name, separated by a blank."""
    url, _, schema = place.rpartition(" ")
    return SessionStore(PostgresEngine(url, schema=schema) if url.startswith("postgresql") else Path(place))


@pytest.fixture(params=["postgresql"] if ON_POSTGRES else ["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of the test's store on an engine, see `open_at`."""
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    return f"{request.getfixturevalue('postgres_url')} {request.getfixturevalue('postgres_schema')}"


def writer(place: str, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, place, name, str(count)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


@posix
@pytest.mark.shortened
@pytest.mark.slow
def test_killed_at_any_moment_no_acknowledged_turn_is_lost(place: str) -> None:
    chance = random.Random(3)
    for life in range(rounds(25)):
        name = f"life{life}"
        child = writer(place, name, 100_000)
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(chance.randrange(1, 30))]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        acknowledged = [line for line in lines if line.endswith("\n") and line != "ready\n"]

        db = open_at(place)
        turns = [completed.turn for completed in db.turns.complete(session_id=name)]
        assert len(acknowledged) <= len(turns) <= len(acknowledged) + 1
        assert all(len(turn.messages) == 2 for turn in turns)
        # Killed between the append and the rewind, the message is there, as it should be.
        assert len(db.past.search('"taken back"', session=name)) <= len(turns) - len(acknowledged)
        if turns:
            last = turns[-1].number
            assert len(db.past.search(f"turn{last} AND 部署{last}", session=name)) == 2
        assert db.check() == []
        db.close()


@pytest.mark.slow
def test_two_processes_write_one_store_and_lose_nothing(place: str) -> None:
    children = [writer(place, name, 120) for name in ("left", "right")]
    for child in children:
        out, _ = child.communicate()
        assert child.returncode == 0
        assert len(out.splitlines()) == 121

    db = open_at(place)
    assert sorted(c.turn.id for c in db.turns.complete()) == sorted(
        f"{name}-{number}" for name in ("left", "right") for number in range(120)
    )
    assert db.check() == []
    db.close()


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.sqlite_only("kills of a process with a file")
def test_killed_while_the_file_is_made_it_opens_again(tmp_path: Path) -> None:
    for life in range(rounds(10)):
        path = tmp_path / f"{life}" / "state.db"
        child = writer(str(path), "s", 1)
        while not path.exists() and child.poll() is None:
            pass
        child.kill()
        child.communicate()

        db = SessionStore(path)
        db.create_session("after")
        assert db.check() == []
        db.close()


UPKEEP = """
import sys
from pathlib import Path
from hermes_core.sessions import maintenance
from hermes_core.sessions.session_store import SessionStore


db = SessionStore(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    maintenance.vacuum(db) if sys.argv[2] == "vacuum" else db.index.rebuild()
"""


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.sqlite_only("kills of a process with a file")
@pytest.mark.parametrize("work", ["rebuild", "vacuum"])
def test_killed_while_it_is_kept_well_the_store_is_whole(tmp_path: Path, work: str) -> None:
    path, chance = tmp_path / "state.db", random.Random(5)
    db = SessionStore(path)
    db.create_session("s1")
    turn = [{"role": "user", "content": f"word{n % 50} 部署{n}"} for n in range(2_000)]
    db.append_turn("s1", turn, "t1", 1)
    db.close()
    for _ in range(rounds(8)):
        child = subprocess.Popen(
            [sys.executable, "-c", UPKEEP, str(path), work], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(chance.random() / 4)
        child.kill()
        child.communicate()

        db = SessionStore(path)
        faults = db.check()
        assert faults == [] or "made anew up to message" in faults[0]
        # What is written, taken back and deleted meanwhile keeps in step with a half-made index.
        db.rewind("s1", db.append_message("s1", "user", "persimmon"))
        db.rewind("s1", db.get_messages("s1")[-1].id)
        if faults:
            db.index.rebuild()
        assert db.check() == []
        assert db.past.search("persimmon") == []
        assert len(db.past.search("word7", limit=5)) == 5
        db.close()


REPAIR = """
import sys
from pathlib import Path
from hermes_core.sessions.maintenance import repair

print("ready", flush=True)
while True:
    repair(Path(sys.argv[1]))
"""


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.sqlite_only("kills of a process with a file")
def test_killed_while_it_is_repaired_nothing_is_lost(tmp_path: Path) -> None:
    path, chance = tmp_path / "state.db", random.Random(6)
    db = SessionStore(path)
    db.create_session("s1")
    db.append_turn("s1", [{"role": "user", "content": f"word{n}"} for n in range(1_000)], "t1", 1)
    db.close()
    for _ in range(rounds(12)):
        child = subprocess.Popen([sys.executable, "-c", REPAIR, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(chance.random() / 3)
        child.kill()
        child.communicate()

        if path.with_name("state.db.repaired").exists():
            repair(path)
        db = SessionStore(path)
        assert db.check() == []
        assert len(db.get_messages("s1")) == 1_000
        db.close()


KILLED_BEFORE_THE_SWAP = """
import os, sys
from pathlib import Path
from hermes_core.sessions.maintenance import repair

def kill(event, arguments):
    # Not the rename to itself, by which Windows says whether a file is open.
    if event == "os.rename" and str(arguments[1]).endswith("state.db") and arguments[0] != arguments[1]:
        os.kill(os.getpid(), 9)

sys.addaudithook(kill)
repair(Path(sys.argv[1]))
"""


@posix
@pytest.mark.sqlite_only("kills of a process with a file")
def test_a_repair_killed_in_its_last_step_is_finished_by_the_next_before_anyone_writes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    db = SessionStore(path)
    db.create_session("s1")
    db.append_message("s1", "user", "kept")
    db.close()
    child = subprocess.run([sys.executable, "-c", KILLED_BEFORE_THE_SWAP, str(path)], check=False)
    assert child.returncode == -signal.SIGKILL

    db = SessionStore(path)
    with pytest.raises(DatabaseUnavailable, match="run `hermes-memory sessions repair` again"):
        db.append_message("s1", "user", "too early")
    db.close()
    repair(path)

    db = SessionStore(path)
    assert [m.content for m in db.get_messages("s1")] == ["kept"]
    db.close()


OPEN = """
import sys
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore

print("ready", flush=True)
SessionStore(Path(sys.argv[1])).counts()
"""


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.sqlite_only("kills of a process with a file")
def test_killed_while_the_index_is_cut_anew_at_the_start_the_next_start_does_it(tmp_path: Path) -> None:
    path, chance = tmp_path / "state.db", random.Random(8)
    db = SessionStore(path)
    db.create_session("s1")
    db.append_turn("s1", [{"role": "user", "content": f"word{n} 部署{n}"} for n in range(4_000)], "t1", 1)
    db.close()
    for _ in range(rounds(8)):
        with contextlib.closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("DELETE FROM schema_migrations WHERE name LIKE 'text-cut-%'")
        child = subprocess.Popen([sys.executable, "-c", OPEN, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(chance.random() / 6)
        child.kill()
        child.communicate()

        db = SessionStore(path)
        assert len(db.past.search('"word77"')) == 1
        assert db.check() == []
        db.close()


@pytest.mark.sqlite_only("kills of a process with a file")
@pytest.mark.posix_files("moves a home that is open")
@pytest.mark.parametrize("fate", ["moved", "replaced"])
def test_a_store_that_is_no_longer_in_its_place_takes_nothing_and_says_so(tmp_path: Path, fate: str) -> None:
    home, copy = tmp_path / "home", tmp_path / "backup.db"
    with contextlib.closing(SessionStore(home / "state.db")) as db:
        db.create_session("s", "test")
        db.database.backup(copy)
        db.append_message("s", "user", "One.")
        home.rename(tmp_path / "old")
        if fate == "replaced":
            home.mkdir()
            copy.rename(home / "state.db")
        with pytest.raises(DatabaseUnavailable, match="moved, deleted or replaced"):
            db.append_message("s", "user", "Two.")
    with contextlib.closing(SessionStore(home / "state.db")) as db:
        db.create_session("s", "test")
        db.append_message("s", "user", "Three.")

"""What was acknowledged is there after kill -9, and two processes lose nothing of one another."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core.sessions.db import SessionDB

WRITER = """
import sys
from pathlib import Path
from hermes_core.sessions.db import SessionDB

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
db = SessionDB(path)
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


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_killed_at_any_moment_no_acknowledged_turn_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    chance = random.Random(3)
    for life in range(25):
        name = f"life{life}"
        child = writer(path, name, 100_000)
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(chance.randrange(1, 30))]
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        acknowledged = [line for line in lines if line.endswith("\n") and line != "ready\n"]

        db = SessionDB(path)
        turns = [completed.turn for completed in db.complete_turns(session_id=name)]
        assert len(acknowledged) <= len(turns) <= len(acknowledged) + 1
        assert all(len(turn.messages) == 2 for turn in turns)
        # Killed between the append and the rewind, the message is there, as it should be.
        assert len(db.search('"taken back"', session=name)) <= len(turns) - len(acknowledged)
        if turns:
            last = turns[-1].number
            assert len(db.search(f"turn{last} AND 部署{last}", session=name)) == 2
        assert db.check() == []
        db.close()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_two_processes_write_one_store_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    children = [writer(path, name, 120) for name in ("left", "right")]
    for child in children:
        out, _ = child.communicate()
        assert child.returncode == 0
        assert len(out.splitlines()) == 121

    db = SessionDB(path)
    assert sorted(c.turn.id for c in db.complete_turns()) == sorted(
        f"{name}-{number}" for name in ("left", "right") for number in range(120)
    )
    assert db.check() == []
    db.close()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_killed_while_the_file_is_made_it_opens_again(tmp_path: Path) -> None:
    for life in range(10):
        path = tmp_path / f"{life}" / "state.db"
        child = writer(path, "s", 1)
        while not path.exists() and child.poll() is None:
            pass
        child.kill()
        child.communicate()

        db = SessionDB(path)
        db.create_session("after")
        assert db.check() == []
        db.close()

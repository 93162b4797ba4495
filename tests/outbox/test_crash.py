"""Processes are killed, and what they had acknowledged reaches the provider all the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core.home import HermesHome
from hermes_core.outbox.delivery import MAX_ATTEMPTS
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import Row
from tests.rounds import rounds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

KILLS = rounds(50)


class Zygote:
    """Starts processes by forking, and hears what all of them say."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.heard: list[str] = []
        self._runs = 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, **order: Any) -> int:
        """Fork a process for this order; its id in the system. Its run is the number of this call, `001` the first."""
        assert self._process.stdin is not None
        self._runs += 1
        order = {"home": str(self.home), "run": self.run, "rounds": 0, **order}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self.wait(f"pid {self.run} ").split()[2])

    @property
    def run(self) -> str:
        """The run that was started last."""
        return f"{self._runs:03}"

    def wait(self, beginning: str) -> str:
        """The first line that begins so, of those heard and those to come: two processes speak in any order."""
        for line in self.heard:
            if line.startswith(beginning):
                return line
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.heard.append(line.rstrip("\n"))
            if line.startswith(beginning):
                return self.heard[-1]
        raise AssertionError(f"no {beginning!r} in {self.heard[-5:]}")

    def finish(self, **order: Any) -> None:
        """Run one process to its end: it drains what the killed ones left."""
        # A row that was under way at two kills is left alone for a minute, longer than this waits: so let time fly.
        self.start(flush=50.0, speed=30.0, **order)
        self.wait(f"done {self.run}")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def acknowledged(self) -> list[tuple[str, str, str]]:
        """Kind, session and id of each write that was taken, in order."""
        lines = [line.split() for line in self.heard if line.startswith("ack ") and len(line.split()) == 4]
        return [(kind, session, event) for _, kind, session, event in lines]

    @property
    def taken(self) -> list[dict[str, Any]]:
        """What the provider got, in order, with repeats."""
        path = self.home / "taken.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [data for line in lines if "id" in (data := json.loads(line))]

    def waiting(self) -> tuple[list[Row], list[Row]]:
        """The rows that wait, and the dead letters."""
        outbox = open_outbox(HermesHome(self.home))
        with contextlib.closing(outbox.database):
            return outbox.pending(), outbox.dead_letters()


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    zygote = Zygote(tmp_path / "home")
    zygote.home.mkdir()
    yield zygote
    zygote.stop()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def gone(pid: int) -> None:
    """Wait until the process has died."""
    for _ in range(2000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.005)
    raise AssertionError(f"{pid} lives")


def first_of_each(taken: list[dict[str, Any]], session: str) -> list[str]:
    return list(dict.fromkeys(call["id"] for call in taken if call["session"] == session))


@pytest.mark.shortened
@pytest.mark.slow
def test_no_kill_loses_an_acknowledged_write(zygote: Zygote) -> None:
    chance = random.Random(2026)
    for _ in range(KILLS):
        pid = zygote.start(rounds=10_000)
        zygote.wait(f"ready {zygote.run}")
        time.sleep(chance.uniform(0.0, 0.12))
        kill(pid)
        gone(pid)
    zygote.finish()
    taken = zygote.taken
    assert len(zygote.acknowledged) > KILLS
    pending, dead = zygote.waiting()
    assert pending == []
    # A slow machine has one row under way at five kills: that one may be what kills, and a person decides.
    assert all(row.attempts == MAX_ATTEMPTS for row in dead)
    kept = {row.event for row in dead}
    assert {event for _, _, event in zygote.acknowledged} <= {call["id"] for call in taken} | kept
    for session in "ab":
        order = first_of_each(taken, session)
        assert order == sorted(order, key=in_order)
    # A repeat is the row that was under way at a kill: the same id with the same text, at most one a kill.
    assert len({(call["kind"], call["id"], call["text"]) for call in taken}) == len(
        {call["id"] for call in taken}
    )
    assert len(taken) - len({call["id"] for call in taken}) <= KILLS


def in_order(event: str) -> tuple[str, int, str]:
    run, n, *part = event.split("-")
    return run, int(n), part[0] if part else ""


def test_a_kill_inside_the_insert_leaves_nothing(zygote: Zygote) -> None:
    gone(zygote.start(rounds=1, point="inside the insert"))
    zygote.finish()
    assert zygote.acknowledged == []
    assert zygote.taken == []


def test_a_kill_after_the_insert_loses_nothing(zygote: Zygote) -> None:
    gone(zygote.start(rounds=1, point="after the insert"))
    zygote.finish()
    assert [call["id"] for call in zygote.taken] == ["001-0"]


@pytest.mark.parametrize("point", ["in the provider", "before the acknowledgement"])
def test_a_kill_between_the_call_and_its_acknowledgement_sends_the_same_id_again(
    zygote: Zygote, point: str
) -> None:
    order = {"dies_after": "001-0"} if point == "in the provider" else {"point": point}
    gone(zygote.start(rounds=1, **order))
    zygote.finish()
    ids = [call["id"] for call in zygote.taken]
    assert ids[:2] == ["001-0", "001-0"]
    assert len(ids) == len(set(ids)) + 1
    assert {event for _, _, event in zygote.acknowledged} <= set(ids)


def test_a_kill_after_the_acknowledgement_sends_nothing_again(zygote: Zygote) -> None:
    gone(zygote.start(rounds=1, point="after the acknowledgement"))
    zygote.finish()
    ids = [call["id"] for call in zygote.taken]
    assert len(ids) == len(set(ids))
    assert ids[0] == "001-0"


def test_the_next_process_delivers_when_the_lease_of_a_killed_one_has_ended(zygote: Zygote) -> None:
    slow = zygote.start(rounds=5, slow=0.2)
    zygote.wait("ack write")
    zygote.start(rounds=1)
    kill(slow)
    zygote.wait("done 002")
    assert zygote.waiting() == ([], [])
    assert {event for _, _, event in zygote.acknowledged} <= {call["id"] for call in zygote.taken}


def test_two_processes_on_one_session_lose_nothing_and_never_send_at_once(zygote: Zygote) -> None:
    for _ in range(2):
        zygote.start(rounds=15, sessions="a", slow=0.002)
    zygote.wait("done 001")
    zygote.wait("done 002")
    ids = [call["id"] for call in zygote.taken]
    assert sorted(ids) == sorted(event for _, _, event in zygote.acknowledged)
    assert len(ids) == 2 * 15 * 4
    for run in ("001", "002"):
        own = [event for event in ids if event.startswith(run)]
        assert own == sorted(own, key=in_order)
    lines = [json.loads(line) for line in (zygote.home / "taken.jsonl").read_text().splitlines()]
    begins, ends = lines[::2], lines[1::2]
    assert [line["begin"] for line in begins] == [line["id"] for line in ends]


DEADLY = """
import os, sys, time
from hermes_core import HermesHome, MemoryManager, MemoryProvider, Session, Turn
from hermes_core.storage import leases

leases.LEASE_S = 0.2

class Deadly(MemoryProvider):
    name = "deadly"

    def sync_turn(self, turn):
        os._exit(9)

home, life = HermesHome.resolve(sys.argv[1]), 50.0
manager = MemoryManager(home)
manager.add_provider(Deadly)
session = Session("s1", home=str(home.path))
if not home.outbox_db.exists():
    manager.sync_all(Turn("t1", 1, "hello", "hi"), session)
manager.initialize_all(session)
until = time.monotonic() + life
while True:
    health = manager.health()[0]
    if health.dead_letters or "the process ended" in health.reason or time.monotonic() > until:
        break
    time.sleep(0.01)
print(health.state, health.dead_letters, health.reason)
manager.shutdown_all(1)
"""


def test_a_write_of_which_the_process_dies_is_told_and_parked(hermes_home: HermesHome) -> None:
    def live() -> tuple[int, str]:
        command = [sys.executable, "-c", DEADLY, str(hermes_home.path)]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return found.returncode, found.stdout

    assert [live()[0] for _ in range(2)] == [9, 9]
    code, said = live()
    assert code == 0
    assert said.startswith("degraded 0 1 write waits")
    assert "the process ended while the provider took it" in said
    outbox = open_outbox(hermes_home)
    row = outbox.pending("deadly")[0]
    assert row.attempts == 2
    for _ in range(2):
        outbox.failed(row, "as before", counted=True)
    # And once more.
    dead = "UPDATE outbox_lines SET holder = 'x 1 gone', until = 0, ready_at = 0, sending = ?"
    outbox.database.execute(dead, (row.number,))
    outbox.database.close()
    code, said = live()
    assert (code, said.split()[:2]) == (0, ["degraded", "1"])

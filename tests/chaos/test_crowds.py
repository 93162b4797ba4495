"""Many threads and processes on one home, some of which are killed or forked, lose nothing of one another."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.errors import DatabaseUnavailable, HermesError
from tests.chaos import crowd, faults
from tests.chaos.conftest import Record, points

LONG = "CHAOS_KILLS" in os.environ

ROOT = Path(__file__).parents[2]

KILLS = int(os.environ.get("CHAOS_KILLS", "20")) // 10


@pytest.fixture
def home(hermes_home: HermesHome) -> HermesHome:
    crowd.prepare(hermes_home)
    return hermes_home


def crowd_of(home: HermesHome, *numbers: int) -> tuple[list[str], list[int]]:
    """Run `crowd`; the acknowledged writes, and the exit codes of its processes."""
    environment = faults.environment() if len(numbers) > 3 else None
    command = [sys.executable, "-m", "tests.chaos.crowd", str(home.path), *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = done.stdout.splitlines()
    codes = [int(line.split()[1]) for line in lines if line.startswith("exit ")]
    return [line for line in lines if not line.startswith("exit ")], codes


@pytest.mark.slow
def test_sixty_four_threads_lose_nothing(home: HermesHome, record: Record) -> None:
    lines: list[str] = []
    crowd.run(home, "p", 64, 4 if LONG else 1, lines.append)
    assert crowd.losses(home, lines) == []
    record("64 threads", acknowledged=len(lines), lost=0)


@pytest.mark.slow
def test_eight_processes_lose_nothing(home: HermesHome, record: Record) -> None:
    lines, codes = crowd_of(home, 8, 2 if LONG else 1, 8 if LONG else 1)
    assert codes == [0] * 8
    assert crowd.losses(home, lines) == []
    record("8 processes", acknowledged=len(lines), lost=0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(bool(faults.obstacle()), reason=faults.obstacle() or "it is here")
def test_a_kill_of_one_process_costs_the_others_nothing(home: HermesHome, record: Record) -> None:
    lines, codes = crowd_of(home, 2, 2, 2 if LONG else 1, *points(250, KILLS))
    victims, others = codes[::2], codes[1::2]
    assert set(victims) <= {0, -9}
    assert set(others) == {0}
    assert crowd.losses(home, lines) == []
    record("kills: one of two processes", kills=victims.count(-9), acknowledged=len(lines), lost=0)
    assert -9 in victims


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_after_a_fork_the_parent_goes_on_and_the_child_says_what_to_do(home: HermesHome) -> None:
    """The child must not write through what the parent has open. What it does is refused, and costs the parent nothing."""
    lines: list[str] = []
    stop = threading.Event()
    with open_memory(home) as memory:
        session = memory.start_session("shared")

        def talk() -> None:
            number = 0
            while not stop.is_set() and number < 100:
                memory.end_turn(session, f"turn t{number}", "ok")
                lines.append(f"message shared turn t{number}")
                number += 1

        thread = threading.Thread(target=talk)
        thread.start()
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                os._exit(_use_in_child(memory, home))
            children.append(os.waitpid(child, 0)[1])
            memory.end_turn(session, f"turn m{number}", "ok")
            lines.append(f"message shared turn m{number}")
        # A program that the parent starts anew may write, and its forks too.
        written, codes = crowd_of(home, 2, 1, 1)
        lines += written
        stop.set()
        thread.join()
    assert [os.waitstatus_to_exitcode(status) for status in children] == [0] * 4
    assert codes == [0, 0]
    assert crowd.losses(home, lines) == []


def _use_in_child(memory: object, home: HermesHome) -> int:
    """Return 0 if every use of the parent's memory, and of its home, is refused with what to do."""
    faulthandler.dump_traceback_later(
        60, exit=True
    )  # a child that hangs shows where, and does not hold the suite
    uses = [
        lambda: memory.end_turn(memory.start_session("shared"), "turn child", "ok"),  # type: ignore[attr-defined]
        lambda: memory.sessions.get_messages("shared"),  # type: ignore[attr-defined]
        lambda: _end_turn(home),
    ]
    for number, use in enumerate(uses, 1):
        try:
            use()
        except DatabaseUnavailable as exc:
            if "fork first" not in str(exc):
                return 10 + number
        except HermesError:
            return 20 + number
        else:
            return 30 + number
    return 0


def _end_turn(home: HermesHome) -> None:
    with open_memory(home, provider="") as memory:
        memory.end_turn(memory.start_session("shared"), "turn child", "ok")

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes_core.home import HermesHome
from hermes_core.outbox.lines import DeliveryLines
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import NewRow
from tests.manager.conftest import until

FORGETFUL = """
import os, sys
from hermes_core import open_memory
from hermes_memory_testing.fakes import RecordingProvider

class Told(RecordingProvider):
    def answer(self, hook, **given):
        if hook in ("sync_turn", "shutdown"):
            print(hook, flush=True)
        return super().answer(hook, **given)

memory = open_memory(sys.argv[1], provider=Told)
session = memory.start_session()
memory.end_turn(session, "Hello.", "Hello.")
if sys.argv[2] == "fork":
    assert memory.flush(30)
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    print("waited", flush=True)
if sys.argv[2] == "closed":
    memory.close()
"""


@pytest.mark.parametrize("end", ["open", "closed", "fork"])
def test_a_memory_that_nobody_closed_is_closed_when_the_program_ends(tmp_path: Path, end: str) -> None:
    if end == "fork" and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    # From 3.12 on Python warns of every fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORGETFUL, str(tmp_path), end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    told = ["sync_turn", "waited", "shutdown"] if end == "fork" else ["sync_turn", "shutdown"]
    if end == "open" and (3, 12) <= sys.version_info < (3, 12, 3):
        told = [
            "shutdown"
        ]  # these start no thread at their end: what is not under way waits for the next start
    assert done.stdout.split() == told
    assert done.stderr == ""


CLOSED_IN_A_FORK = """
import os, sys, time
from hermes_core import open_memory
from hermes_memory_testing.fakes import RecordingProvider

class Told(RecordingProvider):
    def answer(self, hook, **given):
        if hook == "shutdown":
            print("shutdown", flush=True)
        return super().answer(hook, **given)

with open_memory(sys.argv[1], provider=Told) as memory:
    memory.end_turn(memory.start_session(), "Hello.", "Hello.")
    assert memory.flush(30)
    if os.fork() == 0:
        began = time.monotonic()
        memory.close()
        print("at once" if time.monotonic() - began < 10 else "late", flush=True)
        os._exit(0)
    os.wait()
    print("waited", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_that_closes_its_parents_memory_leaves_it_alone_and_does_not_wait(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CLOSED_IN_A_FORK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["at once", "waited", "shutdown"]
    assert done.stderr == ""


HELD_AT_DEATH = """
import os, sys
from hermes_core import HermesHome
from hermes_core.outbox.lines import DeliveryLines
from hermes_core.outbox.recovery import open_outbox
from hermes_core.storage import leases

leases.LEASE_S = 3.0
lines = DeliveryLines(open_outbox(HermesHome.resolve(sys.argv[1])), "notes")
assert lines.next(()) is not None
if os.fork() == 0:
    lines.release()
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_neither_gives_up_the_leases_of_its_parent_nor_keeps_them_after_it(
    hermes_home: HermesHome,
) -> None:
    with contextlib.closing(open_outbox(hermes_home)) as outbox:
        outbox.put("notes", NewRow("sync_turn", "t1", "s1", "{}"))
        ours = DeliveryLines(outbox, "notes")
        command = [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            HELD_AT_DEATH,
            str(hermes_home.path),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            assert parent.stdin is not None
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"forked\n"
            assert ours.next(()) is None
            parent.kill()
            parent.wait()
            assert until(lambda: ours.next(()) is not None)
        ours.release()


LOCKED_OUT = """
import sqlite3, sys
from hermes_core import open_memory
from hermes_memory_testing.fakes import RecordingProvider

memory = open_memory(sys.argv[1], provider=RecordingProvider)
session = memory.start_session()
memory.end_turn(session, "Hello.", "Hello.")
assert memory.flush(30)
memory.manager.outbox.held_back = "so that a write waits at the end"
memory.end_turn(session, "Hello again.", "Hello.")
memory.manager.outbox.held_back = ""
other = sqlite3.connect(f"{sys.argv[1]}/state.db", isolation_level=None)
other.execute("BEGIN IMMEDIATE")
"""


def test_a_database_that_another_program_keeps_locked_does_not_hold_up_the_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCKED_OUT, str(tmp_path)]
    began = time.monotonic()
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert time.monotonic() - began < 30  # a writer waits that long for the lock at other times

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FORGETFUL = """
import os, sys
from hermes_core import open_memory
from hermes_core.testing.fakes import RecordingProvider

class Told(RecordingProvider):
    def answer(self, hook, **given):
        if hook in ("sync_turn", "shutdown"):
            print(hook, flush=True)
        return super().answer(hook, **given)

memory = open_memory(sys.argv[1], provider=Told)
session = memory.start_session()
memory.end_turn(session, "Hello.", "Hello.")
if sys.argv[2] == "fork":
    assert memory.flush(10)
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    told = ["sync_turn", "waited", "shutdown"] if end == "fork" else ["sync_turn", "shutdown"]
    assert done.stdout.split() == told
    assert done.stderr == ""


LOCKED_OUT = """
import sqlite3, sys
from hermes_core import open_memory
from hermes_core.testing.fakes import RecordingProvider

memory = open_memory(sys.argv[1], provider=RecordingProvider)
session = memory.start_session()
memory.end_turn(session, "Hello.", "Hello.")
assert memory.flush(10)
for name in ("state.db", "outbox.db"):
    other = sqlite3.connect(f"{sys.argv[1]}/{name}", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    globals()[name] = other
"""


def test_databases_that_another_program_keeps_locked_do_not_hold_up_the_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCKED_OUT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert "database is locked" in done.stderr

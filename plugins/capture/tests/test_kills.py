"""Kills of hooks and workers at any time: no message is lost, and none is there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from hermes_core import open_memory
from hermes_memory_capture.hook import SPOOL
from hermes_memory_capture.programs import HOOK
from hermes_memory_capture.worker import Worker
from plugins.capture.tests.conftest import BARE_PYTHON, Account, event_of, records
from tests.rounds import ALL, rounds

WORKERS = rounds(50)
SESSIONS, TURNS = (20, 50) if ALL else (5, 10)
"""Sessions, and turns of each: 2,000 messages in all in `make chaos`."""

# A fork of a process that has imported the worker: a kill hits its work, and not its imports.
SERVER = """
import os, signal, sys
from pathlib import Path
from subprocess import PIPE
from typing import Any
from hermes_memory_capture.worker import work
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if (child := os.fork()) == 0:
        work(Path(line.strip()))
        os._exit(0)
    print(child, flush=True)
"""


@pytest.mark.timeout(3600)
@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no forks")
def test_kills_of_hooks_and_workers_lose_and_double_nothing(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(55)
    account.install()
    paths = [account.transcript(f"s{number}") for number in range(SESSIONS)]
    turns = [(path, number) for number in range(TURNS) for path in paths]
    per_worker = len(turns) // WORKERS
    killed = Counter[str]()
    command = [BARE_PYTHON, "-I", "-S", str(HOOK), str(account.home), "claude-code", "append"]
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=PIPE, stdout=PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    with server, server.stdin as requests:
        for start in range(0, len(turns), per_worker):
            print(account.home, file=requests, flush=True)
            worker = int(server.stdout.readline())
            if chance.random() < 0.7:  # else it is killed while it opens the home
                account.run_hook("claude-code", "start", {"session_id": ""})
            for path, number in turns[start : start + per_worker]:
                append_turn(path, number)
                with subprocess.Popen(command, stdin=PIPE, stderr=subprocess.DEVNULL) as hook:
                    assert hook.stdin is not None
                    hook.stdin.write(json.dumps(event_of(path)).encode())
                    hook.stdin.close()
                    # At its beginning, in the midst, or not at all, however fast the machine is.
                    seconds = chance.choice((0.0, chance.uniform(0.0, 0.3), 600.0))
                    killed["hook"] += not ends_within(hook, seconds)
                    hook.kill()
            # At some step of its work.
            ends_within(server, chance.uniform(0.0, 0.6))
            os.kill(worker, signal.SIGKILL)
            killed["worker"] += 1
    assert killed["worker"] >= WORKERS
    assert 0 < killed["hook"] < len(turns)

    # What a killed hook did not tell of is caught up with from the files.
    monkeypatch.setattr("hermes_memory_capture.worker.QUIET_S", -1.0)
    with open_memory(account.home) as memory:
        before = memory.sessions.counts()["messages"]
        last = Worker(account.capture, memory)
        last.take_spool()
        last.catch_up()
        for path in paths:
            stored = [m.content for m in memory.sessions.get_messages(f"claude-code-{path.stem}")]
            assert stored == [text for number in range(TURNS) for text in texts(path, number)]
    assert list((account.capture / SPOOL).iterdir()) == []
    print(
        f"{sum(killed.values())} kills ({killed}), {2 * len(turns)} messages, {before} before the last worker"
    )


def texts(path: Path, number: int) -> tuple[str, str]:
    return f"question {number} of {path.stem}", f"answer {number} of {path.stem}"


def append_turn(path: Path, number: int) -> None:
    """Write a turn into a transcript, as the program does."""
    question, answer = texts(path, number)
    messages = (("user", question), ("assistant", answer))
    with path.open("a", encoding="utf-8") as file:
        for one in records(path.stem, *messages, first=2 * number):
            file.write(json.dumps(one) + "\n")


def ends_within(program: subprocess.Popen[Any], seconds: float) -> bool:
    """Wait for the end of a program; return False if it still runs."""
    try:
        program.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True

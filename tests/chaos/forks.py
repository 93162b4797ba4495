"""Forks of a process that has imported everything, for tests that would start thousands of interpreters."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos import faults

Say = Callable[[dict[str, Any]], None]


def in_child(home: Path, job: Callable[[Say, int], None]) -> tuple[list[dict[str, Any]], int]:
    """Run the job in a fork; what it said, and its exit status. A fault writes its line to the descriptor of the job."""
    return Fork(home, job).finish()


class Fork:
    """A fork that runs a job beside this process."""

    def __init__(self, home: Path, job: Callable[[Say, int], None]) -> None:
        self._reader, writer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._reader)
            _run(home, job, writer)
        os.close(writer)

    def finish(self) -> tuple[list[dict[str, Any]], int]:
        """Wait for its end, and return what it said and its exit status."""
        with os.fdopen(self._reader, encoding="utf-8") as file:
            lines = file.read().splitlines()
        _, status = os.waitpid(self._child, 0)
        events = [json.loads(line) if line.startswith("{") else {"fault": line} for line in lines]
        return events, os.waitstatus_to_exitcode(status)


def _run(home: Path, job: Callable[[Say, int], None], writer: int) -> None:
    """Run the job, and end this process."""
    status = 0
    try:
        os.environ["HERMES_HOME"] = str(home)
        silence = os.open(home.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(silence, 1)
        os.dup2(silence, 2)

        def say(event: dict[str, Any]) -> None:
            os.write(writer, (json.dumps(event) + "\n").encode())

        job(say, writer)
    except BaseException:  # noqa: BLE001  the test fails with it
        faults.calm()
        os.write(writer, (json.dumps({"trouble": traceback.format_exc()}) + "\n").encode())
        status = 1
    os._exit(status)

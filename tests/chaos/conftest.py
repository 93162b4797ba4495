"""The process that forks the programs of the chaos tests, and the table that `make chaos` prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import faults
from tests.chaos.faults import Call, Fault

Record = Callable[..., None]


class Host:
    """The process that forks: orders go to its standard input, answers come from its standard output.

    Args:
        errors: File for its standard error.
        module: The program, which takes orders for writers.
        words: Arguments of the program.
    """

    def __init__(self, errors: Path, module: str = "tests.chaos.host", *words: str) -> None:
        self._errors = errors.open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=Path(__file__).parents[2],
            env=faults.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def calls(self, writer: str, kinds: Call = Call.CHANGE) -> int:
        """Return the number of calls of the writer that a fault can hit."""
        return int(self._ask(writer=writer, kinds=int(kinds))["calls"])

    def run(self, writer: str, fault: Fault) -> dict[str, Any]:
        """Let the writer meet the fault, and return what became of it."""
        words = [int(fault.action), fault.at, fault.error, int(fault.calls)]
        return self._ask(writer=writer, fault=words)

    def _ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the host ended: {self._errors.read()}")
        answer: dict[str, Any] = json.loads(line)
        assert not answer.get("trouble"), f"{order} {answer.get('fault')}: {answer['trouble']}"
        return answer

    def stop(self) -> None:
        """End the process, which deletes its homes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._errors.close()


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if reason := faults.obstacle():
        pytest.skip(reason)
    host = Host(tmp_path_factory.mktemp("chaos") / "errors")
    yield host
    host.stop()


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Enter a line of the table: its title and its figures by name."""

    def enter(title: str, **figures: object) -> None:
        request.node.user_properties.append(("chaos", (title, figures)))

    return enter


def points(calls: int, count: int) -> list[int]:
    """Return `count` numbers from 1 to `calls`, evenly spread: each of them before any a second time."""
    rounds, rest = divmod(count, calls)
    return sorted(
        [*range(1, calls + 1)] * rounds + [1 + (2 * n + 1) * calls // (2 * rest) for n in range(rest)]
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not os.environ.get("CHAOS_TABLE"):
        return
    rows = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for key, value in report.user_properties
        if key == "chaos"
    ]
    if rows:
        terminalreporter.section("chaos")
    totals: dict[str, int] = {}
    for title, figures in rows:
        terminalreporter.write_line(
            f"{title:<40} " + "  ".join(f"{name} {value}" for name, value in figures.items())
        )
        for name in ("kills", "acknowledged", "lost", "faults"):
            if name in figures:
                totals[name] = totals.get(name, 0) + figures[name]
    if totals:
        words = "  ".join(f"{name} {value:,}" for name, value in totals.items())
        terminalreporter.write_line(f"{'all':<40} {words}")

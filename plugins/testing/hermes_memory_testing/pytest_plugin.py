"""The pytest plugin that comes with the package: a home for each test, and the contract of providers.

It changes no suite: its fixture is for those who ask for it, its options start with `--hermes-`, and it prints a table
only when the contract was run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from hermes_core import HermesHome


PROVIDER = "--hermes-provider"
SCALE = "--hermes-deadlines"


@pytest.fixture
def hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HermesHome:
    """A HERMES_HOME of the test's own, also in the environment; the person's is never touched."""
    from hermes_core import HermesHome

    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HERMES_PROFILE", raising=False)
    return HermesHome(tmp_path / "home")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--hermes-provider NAME` and `--hermes-deadlines FACTOR`."""
    group = parser.getgroup("hermes_core", "contract of memory providers")
    group.addoption(
        PROVIDER, metavar="NAME", default="", help="run the contract on the installed provider NAME"
    )
    group.addoption(
        SCALE, metavar="FACTOR", type=float, default=1.0, help="multiply the deadlines of hooks (default: 1)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Run the contract if `--hermes-provider` is given, and beside it only the files that are named."""
    if name := config.getoption(PROVIDER):
        from hermes_core import HermesHome
        from hermes_core.loader.discover import discover, select
        from hermes_core.loader.load import not_found

        found = discover(HermesHome.resolve())
        if not select(found, name):
            raise pytest.UsageError(str(not_found(name, found)))
        named = config.args if config.args_source is config.ArgsSource.ARGS else []
        # Without this, pytest would also collect `testpaths` of the project in which it is run.
        config.args = [*named, str(Path(__file__).with_name("installed.py"))]


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """Count checks that a provider does not claim by that name. The list of skipped tests is then without them."""
    line = _line(report)
    return ("not claimed", "s", "NOT CLAIMED") if line is not None and line.result == "not claimed" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of the contract, if it was run."""
    stats = terminalreporter.stats
    kinds = ("passed", "failed", "skipped", "not claimed", "error")
    lines = lines_of(report for kind in kinds for report in stats.get(kind, ()))
    if lines:
        terminalreporter.section("contract of memory providers")
        # Whoever tests many providers reads what is wrong; `-v` prints the rest too.
        many = len({line.suite for line in lines}) > MAX_DETAILED_SUITES
        for text in table(lines, brief=many and terminalreporter.verbosity <= 0):
            terminalreporter.line(text)


CHECK = "hermes_core.contract.check"
"""Property of a test's report that makes it a line of the table: [suite, group, title]."""

FIX = "hermes_core.contract.fix"
"""Property of a test's report: [what is wrong, what to do]."""

NOT_CLAIMED = "not claimed: "
NOT_RUN = "not run: "

Result = Literal["passed", "to fix", "not claimed", "not run"]
GROUPS = (
    "lifecycle",
    "recall",
    "writes",
    "tools",
    "boundaries",
    "isolation",
    "failure",
    "outage",
    "configuration",
)
"""Groups in the order of the table; packaging and what authors add come behind."""

MAX_DETAILED_SUITES = 4
"""Suites in one run that get all lines of the table. Of more suites, only what was not passed or not run is printed."""

WIDTH = 200
"""Characters of one line of a finding; SDKs like to print whole requests."""

_PORT = re.compile(r"(?<=127\.0\.0\.1):\d+")
"""Of a stand-in: another one in each check, for the same reason."""

_RESULTS: tuple[Result, ...] = ("passed", "to fix", "not claimed", "not run")


@dataclass(frozen=True, slots=True)
class Line:
    """One check of one suite. `why` says why it is not run or not claimed, or what is wrong; `remedy` what to do."""

    suite: str
    group: str
    title: str
    result: Result
    why: str = ""
    remedy: str = ""


def lines_of(reports: Iterable[Any]) -> list[Line]:
    """The checks among pytest's reports, in their order; other people's tests are none."""
    return [line for report in reports if (line := _line(report)) is not None]


def _line(report: Any) -> Line | None:
    properties = dict(getattr(report, "user_properties", ()))
    if CHECK not in properties or (report.when != "call" and report.passed):
        return None
    suite, group, title = properties[CHECK]
    if report.passed:
        return Line(suite, group, title, "passed")
    if report.skipped:
        reason = _reason(report)
        unclaimed = reason.startswith(NOT_CLAIMED)
        why = reason.removeprefix(NOT_CLAIMED).removeprefix(NOT_RUN)
        return Line(suite, group, title, "not claimed" if unclaimed else "not run", why)
    why, remedy = properties.get(FIX, (_last_line(report.longreprtext), ""))
    return Line(suite, group, title, "to fix", why, remedy)


def _reason(report: Any) -> str:
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(told).removeprefix("Skipped: ")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line[2:].strip() for line in lines if line.startswith("E ")), lines[-1] if lines else "")


def table(lines: Sequence[Line], *, brief: bool = False) -> Iterator[str]:
    """Yield the lines of the table, one part for each suite. If `brief`, leave out groups and what is not claimed."""
    for suite in dict.fromkeys(line.suite for line in lines):
        yield from _part(suite, sorted((line for line in lines if line.suite == suite), key=_place), brief)


def _place(line: Line) -> int:
    return GROUPS.index(line.group) if line.group in GROUPS else len(GROUPS)


def _part(suite: str, lines: Sequence[Line], brief: bool) -> Iterator[str]:
    yield f"{suite}: {_counted(lines)}"
    for group in () if brief else dict.fromkeys(line.group for line in lines):
        yield f"  {group:<14} {_counted([line for line in lines if line.group == group])}"
    for line in lines:
        if line.result == "to fix":
            yield f"  FIX {line.group}: {line.title}"
            yield from (f"      {clipped(text)}" for text in line.why.splitlines())
            if line.remedy:
                yield f"      -> {line.remedy}"
    for result in ("not run",) if brief else ("not claimed", "not run"):
        whys = Counter(_PORT.sub("", line.why) for line in lines if line.result == result)
        for why, count in whys.items():
            yield f"  {result}: {why}" + (f" ({count} checks)" if count > 1 else "")


def clipped(text: str) -> str:
    """One line of a finding, cut in its middle when it is long."""
    half = WIDTH // 2
    return text if len(text) <= WIDTH else f"{text[:half]} ... {text[-half:]}"


def _counted(lines: Sequence[Line]) -> str:
    counts = Counter(line.result for line in lines)
    return ", ".join(f"{counts[result]} {result}" for result in _RESULTS if counts[result])

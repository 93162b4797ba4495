"""The table at the end of a run of the contract: what passed, what is not claimed, what to fix and how."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

CHECK = "hermes_core.contract.check"
"""Property of a test's report that makes it a line of the table: [suite, group, title]."""

FIX = "hermes_core.contract.fix"
"""Property of a test's report: [what is wrong, what to do]."""

SCALE = "--hermes-deadlines"
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


def table(lines: Sequence[Line]) -> Iterator[str]:
    """The table as lines of text, one part a suite."""
    for suite in dict.fromkeys(line.suite for line in lines):
        yield from _part(suite, sorted((line for line in lines if line.suite == suite), key=_place))


def _place(line: Line) -> int:
    return GROUPS.index(line.group) if line.group in GROUPS else len(GROUPS)


def _part(suite: str, lines: Sequence[Line]) -> Iterator[str]:
    yield f"{suite}: {_counted(lines)}"
    for group in dict.fromkeys(line.group for line in lines):
        yield f"  {group:<14} {_counted([line for line in lines if line.group == group])}"
    for line in lines:
        if line.result == "to fix":
            yield f"  FIX {line.group}: {line.title}"
            yield from (f"      {clipped(text)}" for text in line.why.splitlines())
            if line.remedy:
                yield f"      -> {line.remedy}"
    for result in ("not claimed", "not run"):
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

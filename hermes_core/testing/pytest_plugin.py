"""The pytest plugin that comes with the package: a home for each test, and the contract of providers.

It changes no suite: its fixture is for those who ask for it, its options start with `--hermes-`, and it prints a table
only when the contract was run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hermes_core.home import HermesHome

PROVIDER = "--hermes-provider"
SCALE = "--hermes-deadlines"


@pytest.fixture
def hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HermesHome:
    """A HERMES_HOME of the test's own, also in the environment; the person's is never touched."""
    from hermes_core.home import HermesHome

    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HERMES_PROFILE", raising=False)
    return HermesHome(tmp_path / "home")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--hermes-provider NAME` and `--hermes-deadlines FACTOR`."""
    group = parser.getgroup("hermes_core", "contract of memory providers")
    group.addoption(
        PROVIDER, metavar="NAME", default="", help="run the contract on the installed provider NAME"
    )
    group.addoption(
        SCALE, metavar="FACTOR", type=float, default=1.0, help="multiply the deadlines of hooks (default: 1)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """With `--hermes-provider`, run the contract; also the files that are named, and else nothing."""
    if name := config.getoption(PROVIDER):
        from hermes_core.home import HermesHome
        from hermes_core.loader.discover import discover, select
        from hermes_core.loader.messages import not_found

        found = discover(HermesHome.resolve())
        if not select(found, name):
            raise pytest.UsageError(str(not_found(name, found)))
        named = config.args if config.args_source is config.ArgsSource.ARGS else []
        config.args = [*named, str(Path(__file__).with_name("installed.py"))]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of the contract, when it was run."""
    from hermes_core.testing.report import lines_of, table

    stats = terminalreporter.stats
    lines = lines_of(
        report for kind in ("passed", "failed", "skipped", "error") for report in stats.get(kind, ())
    )
    if lines:
        terminalreporter.section("contract of memory providers")
        for text in table(lines):
            terminalreporter.line(text)

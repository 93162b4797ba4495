"""The commands `hermes-memory doctor` and `hermes-memory logs`: what works, and what happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from hermes_core.cli import DEGRADED, home_of
from hermes_core.cli.output import print_result, print_styled, print_table, wants_json
from hermes_core.health.doctor import Examination, examine
from hermes_core.health.finding import Finding
from hermes_core.kit.cli import limit_option, print_json_lines
from hermes_core.logs import LEVELS, Level, LogFile
from hermes_core.safety.terminal import counted, printable
from hermes_core.storage.inventory import Inventory

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "failed": "red", "fixed": "green"}


@click.command()
@click.option(
    "--fix",
    is_flag=True,
    help="Repair what is safe to repair: modes, search index, stale locks, files left by a kill.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Let stores that held data and are empty or gone begin anew; what is left of them is moved aside.",
)
@click.pass_context
def doctor(ctx: click.Context, fix: bool, accept_loss: bool) -> None:
    """Test all of memory, with a real write, recall and delete, and say what to do about what fails.

    Nothing of yours is touched: the writes go to a scratch folder and to a session that is deleted again, and the active
    provider runs its own self-test. The servers of the models that config.yaml names are asked which models they have.
    Exits with 0 only when all that is configured works, else with 3.
    """
    home = home_of(ctx)
    for lost in Inventory(home.path).accept() if accept_loss else ():
        click.echo(printable(f"{lost.message}; it begins anew"), err=True)
    found = examine(home, fix=fix)
    print_result(found.to_dict(), lambda: _show(found))
    if not found.works:
        ctx.exit(DEGRADED)


def _show(found: Examination) -> None:
    width = max(len(finding.what) for finding in found.findings)
    for finding in found.findings:
        print_styled(*_line(finding, width))
    count = sum(finding.failed for finding in found.findings)
    failed = f"{count} of {counted(len(found.findings), 'line')} failed."
    print_styled(("All that is configured works." if found.works else failed, "bold"))


def _line(finding: Finding, width: int) -> tuple[str | tuple[str, str], ...]:
    sign = finding.state.upper() if finding.failed else finding.state
    remedy = f"  -> {printable(finding.remedy)}" if finding.remedy else ""
    what = f"{printable(finding.what):<{width}}  "
    return (f"{sign:<8}", _COLOURS[finding.state]), what, printable(finding.detail), (remedy, "bold")


_HEAD = ("at", "level", "kind", "pid")


@click.command()
@limit_option(50, 100_000)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Lines of this level and above.",
)
@click.pass_context
def logs(ctx: click.Context, limit: int, level: Level) -> None:
    """Show what happened: the last lines of the log, the newest last, with secrets taken out.

    With --json each line is one JSON object, as it stands in logs/hermes.log.
    """
    lines = LogFile(home_of(ctx)).read(limit=limit, level=level)
    if wants_json():
        print_json_lines(lines)
        return
    rows = [(_when(line), line["level"], line["kind"], _said(line)) for line in lines]
    print_table("", ("when", "level", "event", "what"), rows, "The log is empty: nothing went wrong so far.")


def _when(line: dict[str, Any]) -> str:
    try:
        return f"{datetime.fromisoformat(line['at']).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, TypeError):
        return ""


def _said(line: dict[str, Any]) -> str:
    told = {key: value for key, value in line.items() if key not in _HEAD and value not in ("", None)}
    if line["kind"] == "log":
        return str(told.get("message", ""))
    return " ".join(f"{key}={value}" for key, value in told.items())

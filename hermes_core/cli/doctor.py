"""`hermes doctor`."""

from __future__ import annotations

import click
from rich.text import Text

from hermes_core.cli import DEGRADED, home_of
from hermes_core.cli.output import console, json_option, print_json
from hermes_core.health.doctor import Examination, examine
from hermes_core.health.finding import Finding
from hermes_core.kit.text import printable

_SIGNS = {
    "ok": ("ok", "green"),
    "note": ("note", "cyan"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "red"),
    "fixed": ("fixed", "green"),
}


@click.command()
@click.option(
    "--fix",
    is_flag=True,
    help="Repair what is safe to repair: modes, search index, stale locks, files left by a kill.",
)
@json_option
@click.pass_context
def doctor(ctx: click.Context, fix: bool, as_json: bool) -> None:
    """Test all of memory, with a real write, recall and delete, and say what to do about what fails.

    Nothing of yours is touched: the writes go to a scratch folder and to a session that is deleted again, and the active
    provider runs its own self-test. Exits with 0 only when all that is configured works, else with 3.
    """
    found = examine(home_of(ctx), fix=fix)
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)
    if not found.works:
        ctx.exit(DEGRADED)


def _show(found: Examination) -> None:
    out = console()
    width = max(len(finding.what) for finding in found.findings)
    for finding in found.findings:
        out.print(_line(finding, width), soft_wrap=True)
    count = sum(finding.failed for finding in found.findings)
    verdict = (
        "All that is configured works." if found.works else f"{count} of {len(found.findings)} lines failed."
    )
    out.print(Text(verdict, style="bold"))


def _line(finding: Finding, width: int) -> Text:
    sign, colour = _SIGNS[finding.state]
    remedy = f"  -> {printable(finding.remedy)}" if finding.remedy else ""
    return Text.assemble(
        (f"{sign:<8}", colour), f"{finding.what:<{width}}  ", printable(finding.detail), (remedy, "bold")
    )

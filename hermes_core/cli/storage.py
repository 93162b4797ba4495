"""`hermes-memory storage`."""

from __future__ import annotations

import click

from hermes_core.cli import Group, extensions_of, home_of
from hermes_core.cli.output import NOTHING_STORED, print_result, print_table
from hermes_core.health.storage import StorageStatus, storage_status
from hermes_core.safety.terminal import hanging, printable


@click.group(cls=Group)
def storage() -> None:
    """Show where sessions and notes are, and move them to a server or back into files."""


@storage.command()
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show the store that config.yaml names, what is in it, and which files of the home are not read any more."""
    report = storage_status(home_of(ctx), extensions_of(ctx))
    print_result(report, lambda: _show(report))


def _show(report: StorageStatus) -> None:
    schema = f", schema {report.schema}" if report.schema else ""
    click.echo(printable(f"{report.engine}: {report.store}{schema}"))
    if report.mark:
        click.echo(hanging(f"it takes no writes: {report.mark}"))
    rows = [(name, f"{count:,}") for name, count in report.rows.items() if count]
    print_table("", ("table", "rows"), rows, NOTHING_STORED)
    for path, reason in report.unused.items():
        click.echo(hanging(f"{path}: {reason}"))

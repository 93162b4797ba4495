"""`hermes outbox`."""

from __future__ import annotations

import click

from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import json_option, moment, print_json, print_table
from hermes_core.memory import Memory, open_memory


@click.group()
def outbox() -> None:
    """Writes that a provider has not taken yet."""


@outbox.command("list")
@json_option
@click.pass_context
def list_rows(ctx: click.Context, as_json: bool) -> None:
    """Show what waits and what is parked, with the last error."""
    with open_memory(home_of(ctx), provider="") as memory:
        rows = [*memory.manager.outbox.pending(), *memory.manager.outbox.parked()]
    if as_json:
        print_json(rows)
        return
    table = [
        (
            row.number,
            row.provider,
            row.hook,
            row.session_id,
            row.state,
            row.attempts,
            moment(row.created_at),
            row.error,
        )
        for row in rows
    ]
    columns = ("row", "provider", "hook", "session", "state", "tries", "since", "last error")
    print_table("", columns, table, "Nothing waits: every write was taken.")


@outbox.command()
@click.argument("rows", type=int, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All parked rows.")
@click.pass_context
def retry(ctx: click.Context, rows: tuple[int, ...], every: bool) -> None:
    """Try parked ROWS again."""
    _need_rows(rows, every)
    with open_memory(home_of(ctx)) as memory:
        _need_parked(memory, rows)
        count = memory.manager.outbox.retry(None if every else rows)
        delivered = memory.flush()
    click.echo(f"{count} row(s) to be tried again{'' if delivered else '; some are still waiting'}")


@outbox.command()
@click.argument("rows", type=int, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All parked rows.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def drop(ctx: click.Context, rows: tuple[int, ...], every: bool, yes: bool) -> None:
    """Throw parked ROWS away; the provider will never see them."""
    _need_rows(rows, every)
    with open_memory(home_of(ctx), provider="") as memory:
        _need_parked(memory, rows)
        if not yes:
            click.confirm("The provider will never see these writes. Drop them?", abort=True)
        click.echo(f"{memory.manager.outbox.drop(None if every else rows)} row(s) dropped")


def _need_rows(rows: tuple[int, ...], every: bool) -> None:
    if bool(rows) == every:
        raise click.UsageError("name the rows, or give --all")


def _need_parked(memory: Memory, rows: tuple[int, ...]) -> None:
    """Rows that are not parked are named before anything is done to the others."""
    parked = {row.number for row in memory.manager.outbox.parked()}
    if missing := [str(row) for row in rows if row not in parked]:
        raise Failure(f"no parked row {', '.join(missing)}; hermes outbox list shows them")

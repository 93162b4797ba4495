"""The command `hermes-memory outbox`."""

from __future__ import annotations

import click

from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import finish, json_option, moment, print_document, print_table
from hermes_core.kit.cli import limit_option
from hermes_core.memory import Memory, open_memory
from hermes_core.outbox.store import MAX_ROWS


@click.group(cls=Group)
def outbox() -> None:
    """List, retry and drop writes that a provider has not taken yet."""


@outbox.command("list")
@limit_option(20, MAX_ROWS)
@json_option
@click.pass_context
def list_rows(ctx: click.Context, limit: int, as_json: bool) -> None:
    """Show the dead letters, then the writes that wait, oldest first, with the last error."""
    with open_memory(home_of(ctx), provider="") as memory:
        stored = memory.manager.outbox
        rows = stored.dead_letters(limit=limit)
        rows += stored.pending(limit=limit - len(rows))
        more = sum(backlog.depth + backlog.dead_letters for backlog in stored.backlogs().values()) - len(rows)
    if as_json:
        print_document(rows)
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
    if more > 0:
        click.echo(f"{more:,} more; --limit shows them")


@outbox.command()
@click.argument("rows", type=int, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@click.pass_context
def retry(ctx: click.Context, rows: tuple[int, ...], every: bool) -> None:
    """Try the dead letters ROWS again."""
    _need_rows(rows, every)
    with open_memory(home_of(ctx)) as memory:
        chosen = _chosen(memory, rows)
        outbox = memory.manager.outbox
        count = outbox.retry(chosen)
        memory.flush()
        waiting = any(row.number in chosen for row in outbox.pending())
        again = [
            f"row {row.number} is a dead letter again: {row.error}"
            for row in outbox.dead_letters()
            if row.number in chosen
        ]
    click.echo(f"{count} row(s) to be tried again{'; some are still waiting' if waiting else ''}")
    finish(ctx, again)


@outbox.command()
@click.argument("rows", type=int, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def drop(ctx: click.Context, rows: tuple[int, ...], every: bool, yes: bool) -> None:
    """Delete ROWS, dead letters or waiting. The provider never sees them, unless one is on its way just now."""
    _need_rows(rows, every)
    with open_memory(home_of(ctx), provider="") as memory:
        # Chosen before the question: a row that becomes a dead letter meanwhile was not asked about.
        chosen = _chosen(memory, rows, waiting=True)
        if not yes:
            click.confirm("The provider will never see these writes. Drop them?", abort=True)
        click.echo(f"{memory.manager.outbox.drop(chosen)} row(s) dropped")


def _need_rows(rows: tuple[int, ...], every: bool) -> None:
    if bool(rows) == every:
        raise click.UsageError("name the rows, or give --all")


def _chosen(memory: Memory, rows: tuple[int, ...], *, waiting: bool = False) -> tuple[int, ...]:
    """Return the rows, or all dead letters. Rows that do not exist are named before anything is done to the others."""
    outbox = memory.manager.outbox
    dead_letters = tuple(row.number for row in outbox.dead_letters())
    existing = {*dead_letters, *(row.number for row in outbox.pending())} if waiting else dead_letters
    if missing := [str(row) for row in rows if row not in existing]:
        kind = "row" if waiting else "dead letter"
        raise Failure(f"no {kind} {', '.join(missing)}; hermes-memory outbox list shows them")
    return rows or dead_letters

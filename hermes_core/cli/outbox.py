"""The command `hermes-memory outbox`."""

from __future__ import annotations

import click

from hermes_core.actions.dead_letters import chosen_rows, drop_rows, retry_rows
from hermes_core.cli import Group, home_of
from hermes_core.cli.output import finish, json_option, moment, print_document, print_table
from hermes_core.kit.cli import limit_option
from hermes_core.memory import open_memory
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
        sentence, again = retry_rows(memory, chosen_rows(memory, rows))
    click.echo(sentence)
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
        chosen = chosen_rows(memory, rows, waiting=True)
        if not yes:
            click.confirm("The provider will never see these writes. Drop them?", abort=True)
        click.echo(drop_rows(memory, chosen))


def _need_rows(rows: tuple[int, ...], every: bool) -> None:
    if bool(rows) == every:
        raise click.UsageError("name the rows, or give --all")

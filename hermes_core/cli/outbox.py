"""The command `hermes-memory outbox`."""

from __future__ import annotations

import click

from hermes_core.actions.dead_letters import chosen_rows, delete_rows, retry_rows
from hermes_core.cli import Group
from hermes_core.cli.options import with_memory
from hermes_core.cli.output import finish, moment, print_done, print_result, print_table, wants_json
from hermes_core.kit.cli import WholeNumber, confirm, limit_option, yes_option
from hermes_core.memory import Memory
from hermes_core.outbox.store import MAX_ROWS


@click.group(cls=Group, old={"drop": "delete"})
def outbox() -> None:
    """List, retry and delete writes that a provider has not taken yet."""


@outbox.command("list")
@limit_option(20, MAX_ROWS)
@with_memory(begins=False)
def list_rows(memory: Memory, limit: int) -> None:
    """Show the dead letters, then the writes that wait, oldest first, with the last error."""
    stored = memory.manager.outbox
    rows = stored.dead_letters(limit=limit)
    rows += stored.pending(limit=limit - len(rows))
    more = sum(backlog.depth + backlog.dead_letters for backlog in stored.backlogs().values()) - len(rows)
    columns = ("row", "provider", "hook", "session", "state", "tries", "since", "last error")
    table = [
        (r.number, r.provider, r.hook, r.session_id, r.state, r.attempts, moment(r.created_at), r.error)
        for r in rows
    ]
    print_result(rows, lambda: print_table("", columns, table, "Nothing waits: every write was taken."))
    if more > 0 and not wants_json():
        click.echo(f"{more:,} more; --limit shows them")


@outbox.command()
@click.argument("rows", type=WholeNumber(1, 2**63 - 1), nargs=-1)
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@with_memory(provider=None, begins=False)
def retry(memory: Memory, rows: tuple[int, ...], every: bool) -> None:
    """Try the dead letters ROWS again."""
    _need_rows(rows, every)
    chosen = chosen_rows(memory, rows)
    sentence, again = retry_rows(memory, chosen)
    print_done(sentence, rows=chosen, dead_letters=again)
    finish(click.get_current_context(), again)


@outbox.command()
@click.argument("rows", type=WholeNumber(1, 2**63 - 1), nargs=-1)
@click.option("--all", "every", is_flag=True, help="All dead letters.")
@yes_option
@with_memory(begins=False)
def delete(memory: Memory, rows: tuple[int, ...], every: bool) -> None:
    """Delete ROWS, dead letters or waiting. The provider never sees them, unless one is on its way just now."""
    _need_rows(rows, every)
    # Chosen before the question: a row that becomes a dead letter meanwhile was not asked about.
    chosen = chosen_rows(memory, rows, waiting=True)
    confirm("The provider will never see these writes. Delete them?")
    print_done(delete_rows(memory, chosen), rows=chosen)


def _need_rows(rows: tuple[int, ...], every: bool) -> None:
    if bool(rows) == every:
        raise click.UsageError("name the rows, or give --all")

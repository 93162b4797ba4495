"""`hermes-memory turns` and `hermes-memory costs`: what turns were given, and how many tokens memory costs."""

from __future__ import annotations

import click

from hermes_core.actions.turns import explained_turn
from hermes_core.cli import Group
from hermes_core.cli.options import with_memory
from hermes_core.cli.output import moment, print_result, print_styled, print_table
from hermes_core.contract.values import Session
from hermes_core.kit.cli import OldNames, WholeNumber, limit_option
from hermes_core.kit.text import clip, fold_space
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted, printable
from hermes_core.sessions.daily_usage import daily_usage
from hermes_core.sessions.turn_records import StoredTurnRecord, list_turns

MAX_QUESTION_CHARS = 60
MAX_SHOWN_CHARS = 200


@click.group(cls=Group)
def turns() -> None:
    """Show what turns were given: recall by source, its tokens and its time, and what was left out."""


@turns.command("list")
@limit_option(20, 2000)
@with_memory(user=True, begins=False)
def list_recorded(memory: Memory, session: Session, limit: int) -> None:
    """List the turns that were recorded, the latest first. The newest 2,000 turns are."""
    entries = list_turns(memory.sessions, user=session.owner, limit=limit)
    rows = [
        (
            turn.id,
            moment(turn.at),
            f"{turn.recall_tokens:,}",
            f"{turn.elapsed_ms:,.0f} ms",
            clip(fold_space(turn.question), MAX_QUESTION_CHARS),
        )
        for turn in entries
    ]
    columns = ("turn", "when", "recall tokens", "waited", "question")
    print_result(entries, lambda: print_table("", columns, rows, "No turn is recorded yet."))


@turns.command("show")
@click.argument("turn_id", metavar="TURN")
@with_memory(user=True, begins=False)
def show_turn(memory: Memory, session: Session, turn_id: str) -> None:
    """Print what the turn TURN was given: memory in the prompt, recall by source, and what was left out and why."""
    turn = explained_turn(memory, session, turn_id)
    print_result(turn, lambda: _print_turn(turn))


def _print_turn(turn: StoredTurnRecord) -> None:
    print_styled((f"{moment(turn.at)}  session {printable(turn.session_id)}", "bold"))
    record = turn.record
    if record is None:
        click.echo("What this turn was given is not recorded: it was imported, or is too old.")
        return
    click.echo(
        f"prompt: {counted(record.prompt_tokens, 'token')} of memory; recall: "
        f"{counted(record.recall_tokens, 'token')} in {record.elapsed_ms:,.0f} ms"
    )
    rows = [
        (
            source.source,
            source.outcome,
            "" if item.score is None else f"{item.score:.3f}",
            item.tokens,
            "left out: seen already" if item.repeated else "",
            clip(fold_space(item.text), MAX_SHOWN_CHARS),
        )
        for source in record.sources
        for item in source.items
    ]
    print_table("", ("source", "outcome", "score", "tokens", "remark", "text"), rows, "Nothing was recalled.")
    for source in record.sources:
        if source.reason:
            click.echo(printable(f"{source.source}: {source.reason}"))
    for sentence in record.left_out:
        click.echo(printable(sentence))


@click.command()
@click.option(
    "-n",
    "--limit",
    cls=OldNames,
    old=("--days",),
    type=WholeNumber(1, 3650),
    default=30,
    show_default=True,
    help="At most this many days.",
)
@with_memory(user=True, begins=False)
def costs(memory: Memory, session: Session, limit: int) -> None:
    """Show the tokens that memory added to requests on each day, and the share of the input that came from a cache.

    The tokens of memory are estimates. Those of the model are counted by its server, for turns of this agent only.
    """
    usages = daily_usage(memory.sessions.database, user=session.owner, days=limit)
    rows = [
        (
            usage.day,
            usage.turns,
            f"{usage.recall_tokens:,}",
            f"{usage.prompt_tokens:,}",
            f"{usage.input_tokens:,}",
            "" if usage.cache_share is None else f"{usage.cache_share:.0%}",
            f"{usage.output_tokens:,}",
        )
        for usage in usages
    ]
    columns = ("day", "turns", "recall", "memory in prompts", "model input", "from cache", "model output")
    print_result(usages, lambda: print_table("", columns, rows, "Nothing was counted yet."))

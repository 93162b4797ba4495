"""`hermes-memory turns` and `hermes-memory costs`: what turns were given, and how many tokens memory costs."""

from __future__ import annotations

import dataclasses

import click

from hermes_core.actions.notes import session_of_user
from hermes_core.actions.turns import DailyCosts, explained_turn
from hermes_core.cli import Group, home_of
from hermes_core.cli.memory import user_option
from hermes_core.cli.output import json_option, moment, print_document, print_styled, print_table
from hermes_core.kit.cli import limit_option
from hermes_core.kit.text import clip, fold_space
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import counted, printable
from hermes_core.sessions.daily_usage import daily_usage
from hermes_core.sessions.turn_records import list_turns

MAX_QUESTION_CHARS = 60
MAX_SHOWN_CHARS = 200


@click.group(cls=Group)
def turns() -> None:
    """Show what turns were given: recall by source, its tokens and its time, and what was left out."""


@turns.command("list")
@limit_option(20, 2000)
@user_option
@json_option
@click.pass_context
def list_recorded(ctx: click.Context, limit: int, user: str, as_json: bool) -> None:
    """List the turns that were recorded, the latest first. The newest 2,000 turns are."""
    with open_memory(home_of(ctx), provider="") as memory:
        entries = list_turns(memory.sessions, user=session_of_user(memory, user).owner, limit=limit)
    if as_json:
        print_document(entries)
        return
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
    print_table("", ("turn", "when", "recall tokens", "waited", "question"), rows, "No turn is recorded yet.")


@turns.command("show")
@click.argument("turn_id", metavar="TURN")
@user_option
@json_option
@click.pass_context
def show_turn(ctx: click.Context, turn_id: str, user: str, as_json: bool) -> None:
    """Print what the turn TURN was given: memory in the prompt, recall by source, and what was left out and why."""
    with open_memory(home_of(ctx), provider="") as memory:
        turn = explained_turn(memory, session_of_user(memory, user), turn_id)
    if as_json:
        print_document(turn)
        return
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
    "--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="The last days with turns."
)
@user_option
@json_option
@click.pass_context
def costs(ctx: click.Context, days: int, user: str, as_json: bool) -> None:
    """Show the tokens that memory added to requests on each day, and the share of the input that came from a cache.

    The tokens of memory are estimates. Those of the model are counted by its server, for turns of this agent only.
    """
    with open_memory(home_of(ctx), provider="") as memory:
        owner = session_of_user(memory, user).owner
        usages = daily_usage(memory.sessions.database, user=owner, days=days)
    if as_json:
        print_document(
            [DailyCosts(**dataclasses.asdict(usage), cache_share=usage.cache_share) for usage in usages]
        )
        return
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
    print_table("", columns, rows, "Nothing was counted yet.")

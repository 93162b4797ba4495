"""`hermes-memory sessions`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from hermes_core.cli import Group, home_of
from hermes_core.cli.output import console, json_option, moment, print_json, print_table, seconds_of
from hermes_core.cli.recall import LONGEST
from hermes_core.cli.upkeep import UPKEEP, session_named
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import printable


@click.group(cls=Group)
def sessions() -> None:
    """List, search and show past sessions; keep the store well."""


for _command in UPKEEP:
    sessions.add_command(_command)


@sessions.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most this many."
)
@click.option("--source", help="Only sessions of this source.")
@json_option
@click.pass_context
def list_sessions(ctx: click.Context, limit: int, source: str | None, as_json: bool) -> None:
    """List sessions, the latest first; a compressed conversation is one entry."""
    with open_memory(home_of(ctx), provider="") as memory:
        found = memory.sessions.list_sessions(limit=limit, source=source)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.session.id,
            one.session.source,
            moment(one.session.last_active),
            one.session.message_count,
            one.session.title or one.preview,
        )
        for one in found
    ]
    print_table(
        "", ("session", "source", "last active", "messages", "about"), rows, "No session is stored yet."
    )


@sessions.command()
@click.argument("query")
@click.option(
    "-k", "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="At most this many."
)
@click.option("--source", help="Only sessions of this source.")
@click.option(
    "--role", type=click.Choice(["user", "assistant", "tool", "system"]), help="Only messages of this role."
)
@click.option("--since", type=click.DateTime(), help="Only messages from this moment on.")
@click.option("--until", type=click.DateTime(), help="Only messages before this moment.")
@click.option("--sort", type=click.Choice(["newest", "oldest"]), help="By time instead of by relevance.")
@json_option
def search(query: str, as_json: bool, since: datetime | None, until: datetime | None, **filters: Any) -> None:
    """Find messages by QUERY: a question as you would ask it, "a phrase", AND, OR, NOT, prefix*."""
    filters["since"] = seconds_of(since) if since else None
    filters["until"] = seconds_of(until) if until else None
    with open_memory(home_of(click.get_current_context()), provider="") as memory:
        hits = memory.sessions.search(query, **filters)
    if as_json:
        print_json(hits)
        return
    rows = [
        (
            h.session_id,
            h.message_id,
            moment(h.timestamp),
            h.speaker or h.role,
            h.text if 0 < len(h.text) <= LONGEST else h.snippet,
        )
        for h in hits
    ]
    print_table("", ("session", "message", "when", "who", "text"), rows, "No message matches.")


@sessions.command()
@click.argument("session_id")
@json_option
@click.pass_context
def show(ctx: click.Context, session_id: str, as_json: bool) -> None:
    """Print the messages of SESSION_ID; the beginning of an id, or a title, is enough when it is unique."""
    with open_memory(home_of(ctx), provider="") as memory:
        messages = memory.sessions.get_messages(session_named(memory.sessions, session_id).id)
    if as_json:
        print_json(messages)
        return
    for message in messages:
        who = message.speaker or message.role
        console().print(f"{moment(message.timestamp)}  {printable(who)}", style="bold", markup=False)
        console().print(printable(message.content), markup=False, end="\n\n")

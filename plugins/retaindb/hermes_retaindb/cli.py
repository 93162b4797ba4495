"""Commands of the provider, under `hermes-memory retaindb`."""

from __future__ import annotations

from typing import Any

import click

from hermes_core.kit import fold_space
from hermes_core.kit.cli import (
    command_home,
    json_option,
    limit_option,
    open_provider,
    print_rows,
    words_argument,
)
from hermes_retaindb.client import Memory


@click.command()
@words_argument
@limit_option(20, maximum=50)
@json_option
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find memories by WORDS."""
    client, who = _open(context)
    print_rows(client.search(" ".join(words), who, limit), as_json, _line)


@click.command()
@json_option
@click.pass_context
def profile(context: click.Context, as_json: bool) -> None:
    """List all that is remembered about you."""
    client, who = _open(context)
    print_rows(client.profile(who), as_json, _line)


@click.command()
@click.argument("memory")
@click.pass_context
def forget(context: click.Context, memory: str) -> None:
    """Delete the MEMORY of this id."""
    client, _ = _open(context)
    if not client.forget(memory):
        raise click.ClickException(f"there is no memory {memory!r}")
    click.echo(f"deleted {memory}")


@click.command()
@click.pass_context
def seed(context: click.Context) -> None:
    """Tell RetainDB who the agent is: what SOUL.md says."""
    soul = command_home(context).soul_md
    if not soul.is_file():
        raise click.ClickException(f"there is no {soul.name} in this home")
    client, who = _open(context)
    if not client.seed(soul.read_text(encoding="utf-8"), who):
        raise click.ClickException("this server keeps no model of agents")
    click.echo("told")


def _open(context: click.Context) -> Any:
    """Return the client and the scope of the home's person."""
    session = open_provider(context)
    return context.obj.client, context.obj.who(session)


def _line(memory: Memory) -> str:
    return f"{memory.id}  [{memory.type}] {fold_space(memory.text)}"


COMMANDS = (search, profile, forget, seed)

"""Commands of the provider, under `hermes retaindb`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hermes_core import Session
from hermes_core.kit import command_home, fold_space, printable
from hermes_retaindb.client import Client, Memory, Who

if TYPE_CHECKING:
    from hermes_retaindb.provider import RetainDBProvider

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def add_commands(group: click.Group, provider: RetainDBProvider) -> None:
    """Add search, profile, forget and seed to `group`."""
    group.context_settings["obj"] = provider
    for command in (search, profile, forget, seed):
        group.add_command(command)


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 50), default=20, show_default=True, help="At most so many."
)
@_JSON
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find memories by WORDS."""
    client, who = _open(context)
    _show(client.search(" ".join(words), who, limit), as_json)


@click.command()
@_JSON
@click.pass_context
def profile(context: click.Context, as_json: bool) -> None:
    """List all that is remembered about you."""
    client, who = _open(context)
    _show(client.profile(who), as_json)


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


def _open(context: click.Context) -> tuple[Client, Who]:
    """The client of the home that the command line names, closed when the command ends, and who asks."""
    home, provider = command_home(context), context.obj
    client: Client = provider.open(home.path)
    context.call_on_close(provider.shutdown)
    return client, provider.who(Session("", identity=home.profile, home=str(home.path)))


def _show(memories: Sequence[Memory], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(m) for m in memories], ensure_ascii=False, indent=2))
    elif not memories:
        click.echo("nothing found", err=True)
    for memory in () if as_json else memories:
        click.echo(printable(f"{memory.id}  [{memory.type}] {fold_space(memory.text)}"))

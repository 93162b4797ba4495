"""Commands of the provider, under `hermes mem0`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hermes_core import Session
from hermes_core.kit import BackendRefused, command_home, printable
from hermes_mem0.settings import user_of

if TYPE_CHECKING:
    from hermes_mem0.client import Backend, Note
    from hermes_mem0.provider import Mem0Provider

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_USER = click.option("--user", default="", help="Mem0's user id; your own in this profile when not given.")
_LIMIT = click.option(
    "-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many."
)


def add_commands(group: click.Group, provider: Mem0Provider) -> None:
    """Add list, search and forget to `group`."""
    group.context_settings["obj"] = provider
    for command in (listed, search, forget):
        group.add_command(command)


@click.command("list")
@_LIMIT
@_USER
@_JSON
@click.pass_context
def listed(context: click.Context, limit: int, user: str, as_json: bool) -> None:
    """Show what is remembered, with ids."""
    backend, whose = _open(context, user)
    _show(backend.listed(whose, limit), as_json)


@click.command()
@click.argument("words", nargs=-1, required=True)
@_LIMIT
@_USER
@_JSON
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, user: str, as_json: bool) -> None:
    """Find memories by meaning, with their scores."""
    backend, whose = _open(context, user)
    _show(backend.search(" ".join(words), whose, limit, 0.0), as_json)


@click.command()
@click.argument("ids", nargs=-1, required=True)
@click.pass_context
def forget(context: click.Context, ids: tuple[str, ...]) -> None:
    """Delete memories by their IDS."""
    backend, _ = _open(context, "")
    failed = False
    for one in ids:
        try:
            backend.delete(one)
        except BackendRefused as exc:
            failed = True
            click.echo(f"{one}: {exc}", err=True)
    context.exit(1 if failed else 0)


def _open(context: click.Context, user: str) -> tuple[Backend, str]:
    """The backend of the home that the command line names, closed when the command ends, and whose memories are meant."""
    home = command_home(context)
    provider: Any = context.obj
    backend: Backend = provider.open(home.path)
    context.call_on_close(backend.close)
    local = Session("cli", identity=home.profile, home=str(home.path))
    return backend, user or user_of(provider.options, local)


def _show(found: Sequence[Note], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False, indent=2))
        return
    for one in found:
        score = "" if one.score is None else f"[{one.score:.2f}] "
        click.echo(printable(f"{one.id}  {score}{one.text}"))
    if not found:
        click.echo("nothing found", err=True)

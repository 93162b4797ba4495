"""Commands of the provider, under `hermes-memory mem0`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hermes_core.kit import BackendRefused, printable
from hermes_core.kit.cli import json_option, limit_option, open_provider, print_rows, words_argument
from hermes_mem0.settings import user_of

if TYPE_CHECKING:
    from hermes_mem0.backend import Note

_LIMIT = limit_option(50, maximum=1000)
_USER = click.option("--user", default="", help="Mem0's user id; your own in this profile when not given.")


@click.command("list")
@_LIMIT
@_USER
@json_option
@click.pass_context
def listed(context: click.Context, limit: int, user: str, as_json: bool) -> None:
    """Show what is remembered, with ids."""
    backend, whose = _open(context, user)
    print_rows(backend.listed(whose, limit), as_json, _line)


@click.command()
@words_argument
@_LIMIT
@_USER
@json_option
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, user: str, as_json: bool) -> None:
    """Find memories by meaning, with their scores."""
    backend, whose = _open(context, user)
    print_rows(backend.search(" ".join(words), whose, limit, 0.0), as_json, _line)


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
            click.echo(printable(f"{one}: {exc}"), err=True)
    context.exit(1 if failed else 0)


def _open(context: click.Context, user: str) -> Any:
    """Return the backend, and the user whose memories are meant."""
    session = open_provider(context)
    return context.obj.client, user or user_of(context.obj.options, session)


def _line(note: Note) -> str:
    score = "" if note.score is None else f"[{note.score:.2f}] "
    return f"{note.id}  {score}{note.text}"


COMMANDS = (listed, search, forget)

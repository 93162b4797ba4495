"""Commands of the provider, under `hermes-memory byterover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hermes_core import Session
from hermes_core.kit.cli import (
    json_option,
    limit_option,
    open_provider,
    print_facts,
    print_rows,
    words_argument,
)
from hermes_core.kit.process import run_in_terminal

if TYPE_CHECKING:
    from hermes_byterover.provider import ByteRoverProvider

COMMAND_TIMEOUT_S = 60.0
"""Seconds for a command; a person waits in front of it."""


@click.command()
@json_option
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show version, account, model, and the number of changes that wait for your review."""
    provider, session = _open(context)
    print_facts(provider.state(session), as_json)


@click.command()
@words_argument
@limit_option(10, maximum=50)
@json_option
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find WORDS in the tree; no model is asked."""
    from hermes_byterover.provider import readable

    provider, session = _open(context)
    found = provider.client.search(provider.tree(session).folder, " ".join(words), limit, COMMAND_TIMEOUT_S)
    print_rows(found, as_json, lambda one: f"{one['score']:.2f}  {one['path']}  {readable(one['excerpt'])}")


@click.command()
@limit_option()
@json_option
@click.pass_context
def log(context: click.Context, limit: int, as_json: bool) -> None:
    """Show the latest curations and their outcome."""
    provider, session = _open(context)
    entries = provider.client.log(provider.tree(session).folder, COMMAND_TIMEOUT_S, limit)
    rows: list[dict[str, Any]] = [
        {
            "id": entry.id,
            "task": entry.task,
            "status": "kept nothing" if entry.status == "completed" and not entry.kept else entry.status,
            "changes": [path for path, _ in entry.changes],
            "pending_review": entry.pending,
            "error": entry.error,
            "about": entry.context.partition("\n")[0],
        }
        for entry in entries
    ]
    print_rows(rows, as_json, _line)


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def brv(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run brv itself with this profile's data: login, providers connect, review, vc and all others."""
    provider, session = _open(context)
    client = provider.client
    context.exit(
        run_in_terminal([*client.program, *arguments], env=client.env, cwd=provider.tree(session).folder)
    )


def _open(context: click.Context) -> tuple[ByteRoverProvider, Session]:
    """Return the open provider, and a session of the home's person."""
    session = open_provider(context)
    return context.obj, session


def _line(row: dict[str, Any]) -> str:
    came = row["error"] or ", ".join(row["changes"])
    return f"{row['id']}  {row['status']}  {came}  {row['about']}"


COMMANDS = (status, search, log, brv)

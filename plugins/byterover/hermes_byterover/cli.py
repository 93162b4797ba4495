"""Commands of the provider, under `hermes byterover`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from hermes_core import Session
from hermes_core.kit import command_home, printable
from hermes_core.kit.process import attach

if TYPE_CHECKING:
    from hermes_byterover.provider import ByteRoverProvider

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
PATIENCE = 60.0
"""Seconds for a command; a person waits in front of it."""


def add_commands(group: click.Group, provider: ByteRoverProvider) -> None:
    """Add status, search, log and brv to `group`."""
    group.context_settings["obj"] = provider
    for command in (status, search, log, brv):
        group.add_command(command)


@click.command()
@_JSON
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Version, account, model, and how many changes wait for your review."""
    provider, session = _open(context)
    told = provider.state(session)
    lines = (f"{key.replace('_', ' ')}: {value}" for key, value in told.items())
    click.echo(
        json.dumps(told, ensure_ascii=False, indent=2) if as_json else "\n".join(map(printable, lines))
    )


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="At most so many."
)
@_JSON
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find WORDS in the tree; no model is asked."""
    from hermes_byterover.provider import readable

    provider, session = _open(context)
    found = provider.brv.search(provider.tree(session).folder, " ".join(words), limit, PATIENCE)
    lines = (f"{one['score']:.2f}  {one['path']}  {readable(one['excerpt'])}" for one in found)
    _show(found, lines, as_json)


@click.command()
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@_JSON
@click.pass_context
def log(context: click.Context, limit: int, as_json: bool) -> None:
    """The latest curations and what became of them."""
    provider, session = _open(context)
    entries = provider.brv.log(provider.tree(session).folder, PATIENCE, limit)
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
    lines = (
        f"{row['id']}  {row['status']}  {row['error'] or ', '.join(row['changes'])}  {row['about']}"
        for row in rows
    )
    _show(rows, lines, as_json)


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def brv(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run brv itself with this profile's data: login, providers connect, review, vc and all others."""
    provider, session = _open(context)
    client = provider.brv
    context.exit(attach([*client.program, *arguments], env=client.env, cwd=provider.tree(session).folder))


def _open(context: click.Context) -> tuple[ByteRoverProvider, Session]:
    """The provider on the home that the command line names, and a session of its owner."""
    home = command_home(context)
    provider: ByteRoverProvider = context.obj
    provider.open(home.path)
    return provider, Session("command", identity=home.profile, home=str(home.path))


def _show(rows: Any, lines: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    elif not rows:
        click.echo("nothing found", err=True)
    for line in () if as_json else lines:
        click.echo(printable(line))

"""Commands of the provider, under `hermes {{ cookiecutter.name }}`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click
from hermes_core.kit import command_home, printable

if TYPE_CHECKING:
    from {{ cookiecutter.__package }}.provider import {{ cookiecutter.__class }}


def add_commands(group: click.Group, provider: {{ cookiecutter.__class }}) -> None:
    """Add the commands to `group`."""
    group.context_settings["obj"] = provider
    group.add_command(search)


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find everybody's notes by WORDS."""
    client = context.obj.open(command_home(context).path)
    context.call_on_close(client.close)
    found = client.search(" ".join(words), None, limit)
    if as_json:
        notes = [dataclasses.asdict(note) for note in found]
        click.echo(json.dumps(notes, ensure_ascii=False, indent=2))
        return
    for note in found:
        click.echo(printable(note.text))
    if not found:
        click.echo("nothing found", err=True)

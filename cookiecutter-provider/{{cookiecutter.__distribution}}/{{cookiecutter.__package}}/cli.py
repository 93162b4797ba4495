"""Commands of the provider, under `hermes-memory {{ cookiecutter.name }}`."""

from __future__ import annotations

import click
from hermes_core.kit.cli import json_option, limit_option, open_provider, print_rows, words_argument


@click.command()
@words_argument
@limit_option()
@json_option
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find everybody's notes by WORDS."""
    open_provider(context)
    found = context.obj.client.search(" ".join(words), None, limit)
    print_rows(found, as_json, lambda note: note.text)


COMMANDS = (search,)

"""Commands of the provider, under `hermes-memory supermemory`."""

from __future__ import annotations

from typing import Any

import click

from hermes_core.kit import fold_space
from hermes_core.kit.cli import (
    json_option,
    limit_option,
    open_provider,
    print_json,
    print_rows,
    words_argument,
)
from hermes_supermemory.settings import container_of


@click.command()
@words_argument
@limit_option(20, maximum=100)
@json_option
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find memories and passages by WORDS."""
    client, ns = _open(context)
    found = client.search(ns, " ".join(words), limit, "hybrid")
    print_rows(found, as_json, lambda one: f"{one.id}  [{one.score:.2f}] {fold_space(one.text)}")


@click.command()
@json_option
@click.pass_context
def profile(context: click.Context, as_json: bool) -> None:
    """Show what is known about you: what lasts, and what is going on."""
    client, ns = _open(context)
    static, dynamic = client.profile(ns)
    if as_json:
        print_json({"static": static, "dynamic": dynamic})
    else:
        print_rows([*static, *dynamic], as_json, fold_space)


@click.command()
@click.argument("memory")
@click.pass_context
def forget(context: click.Context, memory: str) -> None:
    """Forget the MEMORY of this id, or delete the document of this id."""
    client, ns = _open(context)
    if not (client.forget(ns, memory) or client.delete(ns, memory)):
        raise click.ClickException(f"there is no memory {memory!r}")
    click.echo(f"forgotten {memory}")


def _open(context: click.Context) -> Any:
    """Return the client and the container of the home's person."""
    session = open_provider(context)
    return context.obj.client, container_of(context.obj.options, session)


COMMANDS = (search, profile, forget)

"""Commands of the provider, under `hermes supermemory`."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from hermes_core import Session
from hermes_core.kit import command_home, fold_space, printable
from hermes_supermemory.client import Client
from hermes_supermemory.settings import container_of

if TYPE_CHECKING:
    from hermes_supermemory.provider import SupermemoryProvider

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def add_commands(group: click.Group, provider: SupermemoryProvider) -> None:
    """Add search, profile and forget to `group`."""
    group.context_settings["obj"] = provider
    for command in (search, profile, forget):
        group.add_command(command)


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n", "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="At most so many."
)
@_JSON
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find memories and passages by WORDS."""
    client, ns = _open(context)
    found = client.search(ns, " ".join(words), limit, "hybrid")
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False, indent=2))
        return
    for one in found:
        click.echo(printable(f"{one.id}  [{one.score:.2f}] {fold_space(one.text)}"))
    if not found:
        click.echo("nothing found", err=True)


@click.command()
@_JSON
@click.pass_context
def profile(context: click.Context, as_json: bool) -> None:
    """Show what is known about you: what lasts, and what is going on."""
    client, ns = _open(context)
    static, dynamic = client.profile(ns)
    if as_json:
        click.echo(json.dumps({"static": static, "dynamic": dynamic}, ensure_ascii=False, indent=2))
        return
    for fact in (*static, *dynamic):
        click.echo(printable(fold_space(fact)))
    if not static and not dynamic:
        click.echo("nothing is known yet", err=True)


@click.command()
@click.argument("memory")
@click.pass_context
def forget(context: click.Context, memory: str) -> None:
    """Forget the MEMORY of this id, or delete the document of this id."""
    client, ns = _open(context)
    if not (client.forget(ns, memory) or client.delete(ns, memory)):
        raise click.ClickException(f"there is no memory {memory!r}")
    click.echo(f"forgotten {memory}")


def _open(context: click.Context) -> tuple[Client, str]:
    """The client of the home that the command line names, closed when the command ends, and its container."""
    home, provider = command_home(context), context.obj
    client: Client = provider.open(home.path)
    context.call_on_close(provider.shutdown)
    return client, container_of(provider.options, Session("", identity=home.profile, home=str(home.path)))

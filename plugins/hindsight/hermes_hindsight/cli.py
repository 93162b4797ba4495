"""Commands of the provider, under `hermes hindsight`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hermes_core import HermesHome, Session
from hermes_core.kit import command_home, load_settings, printable
from hermes_hindsight.daemon import daemon_of
from hermes_hindsight.settings import NAME, SETTINGS, bank_of, embedded

if TYPE_CHECKING:
    from hermes_hindsight.client import Client
    from hermes_hindsight.provider import HindsightProvider

Answer = TypeVar("Answer")

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_BANK = click.option("--bank", help="Another bank than that of this profile.")


def add_commands(group: click.Group, provider: HindsightProvider) -> None:
    """Add status, recall, operations, start and stop to `group`."""
    group.context_settings["obj"] = provider
    for command in (status, recall, operations, start, stop):
        group.add_command(command)


@click.command()
@_BANK
@_JSON
@click.pass_context
def status(context: click.Context, bank: str | None, as_json: bool) -> None:
    """The server, its version, and what the bank holds."""
    name = bank or _bank(context)

    async def ask(client: Client) -> dict[str, Any]:
        stats = await client.stats(name)
        return {
            "url": client.url,
            "version": await client.version(),
            "bank": name,
            "documents": stats.total_documents if stats else 0,
            "memories": dict(stats.nodes_by_fact_type) if stats else {},
            "operations": dict(stats.operations_by_status or {}) if stats else {},
        }

    told = _with_client(context, ask)
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    for key, value in told.items():
        counts = ", ".join(f"{n} {kind}" for kind, n in value.items()) if isinstance(value, dict) else value
        click.echo(printable(f"{key}: {counts}"))


@click.command()
@click.argument("words", nargs=-1, required=True)
@_BANK
@_JSON
@click.pass_context
def recall(context: click.Context, words: tuple[str, ...], bank: str | None, as_json: bool) -> None:
    """What is recalled for WORDS, best first, with its scores."""
    name = bank or _bank(context)
    found = _with_client(context, lambda client: client.recall(name, " ".join(words)))
    if as_json:
        click.echo(json.dumps([memory.to_dict() for memory in found], ensure_ascii=False, indent=2))
        return
    for memory in found:
        score = f"{memory.scores.final:.3f}" if memory.scores else "    -"
        click.echo(printable(f"{score}  [{memory.type}] {memory.text}"))
    if not found:
        click.echo("nothing found", err=True)


@click.command()
@click.option("--failed", is_flag=True, help="Only those that failed.")
@click.option("--retry", is_flag=True, help="Let the server try the failed ones again.")
@_BANK
@_JSON
@click.pass_context
def operations(context: click.Context, failed: bool, retry: bool, bank: str | None, as_json: bool) -> None:
    """What the server does with what it was given, the newest first."""
    name = bank or _bank(context)

    async def ask(client: Client) -> list[dict[str, Any]]:
        listed = await client.operations(name, "failed" if failed or retry else None, 100)
        for operation in listed if retry else ():
            await client.retry(name, operation.id)
        return [operation.to_dict() for operation in listed]

    listed = _with_client(context, ask)
    if as_json:
        click.echo(json.dumps(listed, ensure_ascii=False, indent=2))
        return
    for one in listed:
        trouble = f"  {one['error_message']}" if one.get("error_message") else ""
        state = "tried again" if retry else one["status"]
        click.echo(printable(f"{one['created_at'][:19]}  {state:<11}  {one['task_type']}{trouble}"))
    if not listed:
        click.echo("no operation", err=True)


@click.command()
@click.pass_context
def start(context: click.Context) -> None:
    """Start the server of mode local_embedded, and leave it running."""
    _needs_embedded(context)
    click.echo(_with_client(context, _url))


@click.command()
@click.pass_context
def stop(context: click.Context) -> None:
    """Stop the server of mode local_embedded, whoever started it."""
    _needs_embedded(context)
    home = command_home(context)
    trouble = asyncio.run(daemon_of(load_settings(SETTINGS, home.path, NAME), home.path).stop())
    if trouble:
        raise click.ClickException(trouble)
    click.echo("stopped")


async def _url(client: Client) -> str:
    return client.url


def _with_client(context: click.Context, ask: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Ask with a client that lives as long as the question; a server that was started for it stays."""

    async def session() -> Answer:
        client = await context.obj.open(command_home(context).path)
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(session())


def _bank(context: click.Context) -> str:
    """The bank of this profile's own person, who has no user id."""
    home: HermesHome = command_home(context)
    return bank_of(load_settings(SETTINGS, home.path, NAME), Session("", identity=home.profile))


def _needs_embedded(context: click.Context) -> None:
    if not embedded(load_settings(SETTINGS, command_home(context).path, NAME)):
        raise click.ClickException("mode is not local_embedded, so there is no server to start or stop here")

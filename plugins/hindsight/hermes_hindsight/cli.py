"""Commands of the provider, under `hermes-memory hindsight`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hermes_core.kit import Settings
from hermes_core.kit.cli import (
    command_home,
    home_session,
    json_option,
    print_facts,
    print_rows,
    words_argument,
)
from hermes_hindsight.daemon import daemon_of
from hermes_hindsight.settings import bank_of, embedded

if TYPE_CHECKING:
    from hermes_hindsight.client import Client

Answer = TypeVar("Answer")

_BANK = click.option("--bank", help="Another bank than that of this profile.")


@click.command()
@_BANK
@json_option
@click.pass_context
def status(context: click.Context, bank: str | None, as_json: bool) -> None:
    """Show the server, its version, and the contents of the bank."""
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

    print_facts(_with_client(context, ask), as_json)


@click.command()
@words_argument
@_BANK
@json_option
@click.pass_context
def recall(context: click.Context, words: tuple[str, ...], bank: str | None, as_json: bool) -> None:
    """Show what is recalled for WORDS, best first, with scores."""
    name = bank or _bank(context)
    found = _with_client(context, lambda client: client.recall(name, " ".join(words)))
    print_rows([memory.to_dict() for memory in found], as_json, _memory)


@click.command()
@click.option("--failed", is_flag=True, help="Only those that failed.")
@click.option("--retry", is_flag=True, help="Let the server try the failed ones again.")
@_BANK
@json_option
@click.pass_context
def operations(context: click.Context, failed: bool, retry: bool, bank: str | None, as_json: bool) -> None:
    """Show the server's work on what it received, the newest first."""
    name = bank or _bank(context)

    async def ask(client: Client) -> list[dict[str, Any]]:
        listed = await client.operations(name, "failed" if failed or retry else None, 100)
        for operation in listed if retry else ():
            await client.retry(name, operation.id)
        return [operation.to_dict() for operation in listed]

    print_rows(_with_client(context, ask), as_json, partial(_operation, retried=retry))


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
    trouble = asyncio.run(daemon_of(_options(context), command_home(context).path).stop())
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


def _options(context: click.Context) -> Settings:
    found: Settings = context.obj.read_settings(command_home(context).path)
    return found


def _bank(context: click.Context) -> str:
    """Return the bank of this profile's own person, who has no user id."""
    return bank_of(_options(context), home_session(context))


def _needs_embedded(context: click.Context) -> None:
    if not embedded(_options(context)):
        raise click.ClickException("mode is not local_embedded, so there is no server to start or stop here")


def _memory(memory: dict[str, Any]) -> str:
    scores = memory.get("scores")
    score = f"{scores['final']:.3f}" if scores else "    -"
    return f"{score}  [{memory['type']}] {memory['text']}"


def _operation(one: dict[str, Any], retried: bool) -> str:
    trouble = f"  {one['error_message']}" if one.get("error_message") else ""
    state = "tried again" if retried else one["status"]
    return f"{one['created_at'][:19]}  {state:<11}  {one['task_type']}{trouble}"


COMMANDS = (status, recall, operations, start, stop)

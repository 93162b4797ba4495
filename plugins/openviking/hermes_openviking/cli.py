"""Commands of the provider, under `hermes-memory openviking`: what it sees as the person at the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hermes_core.kit import clip, fold_space
from hermes_core.kit.cli import (
    json_option,
    limit_option,
    open_provider,
    print_facts,
    print_rows,
    words_argument,
)

if TYPE_CHECKING:
    from hermes_openviking.provider import OpenVikingProvider
    from hermes_openviking.spaces import Space


@click.command()
@json_option
@click.pass_context
def where(context: click.Context, as_json: bool) -> None:
    """Show the server, our account and user there, and the folders of our memories."""
    provider, space = _open(context)
    client = provider.client
    told = {"url": client.url, "version": client.version, "mode": client.mode, "user": space.user}
    print_facts({**told, "space": space.root}, as_json)


@click.command()
@words_argument
@limit_option(10, maximum=100)
@json_option
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find memories and documents that fit WORDS, with their scores, also those below the recall's threshold."""
    provider, space = _open(context)
    hits = provider.found(space, " ".join(words), space.recalled(documents=True), limit)
    rows: list[dict[str, Any]] = [
        {"uri": hit.uri, "score": round(hit.score, 3), "text": hit.text} for hit in hits
    ]
    print_rows(
        rows,
        as_json,
        lambda row: f"{row['score']:.3f}  {row['uri']}\n       {clip(fold_space(row['text']), 200)}",
    )


@click.command()
@click.argument("uri", required=False)
@json_option
@click.pass_context
def browse(context: click.Context, uri: str | None, as_json: bool) -> None:
    """List the tree below URI; our own space unless one is given."""
    provider, space = _open(context)
    rows = provider.client.entries(space, uri or space.root, deep=True, limit=1000)
    print_rows(rows, as_json, lambda row: f"{row['uri']}{'/' if row.get('isDir') else ''}")


@click.command()
@json_option
@click.pass_context
def learned(context: click.Context, as_json: bool) -> None:
    """Show the state of the sessions that the server learns from."""
    provider, space = _open(context)
    print_rows(provider.client.extractions(space), as_json, _outcome)


def _open(context: click.Context) -> tuple[OpenVikingProvider, Space]:
    """Return the open provider, and the space of the home's person."""
    session = open_provider(context)
    provider: OpenVikingProvider = context.obj
    return provider, provider.space(session)


def _outcome(task: dict[str, Any]) -> str:
    counts = (task.get("result") or {}).get("memories_extracted") or {}
    said = task.get("error") or ", ".join(f"{value} {key}" for key, value in counts.items()) or "nothing new"
    when = str(task.get("updated_at_iso") or "")[:19]
    return f"{when}  {task.get('status')}  {task.get('resource_id')}: {said}"


COMMANDS = (where, search, browse, learned)

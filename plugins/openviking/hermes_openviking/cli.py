"""Commands of the provider, under `hermes openviking`: what it sees as the person at the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hermes_core import Session
from hermes_core.kit import clip, command_home, fold_space, printable

if TYPE_CHECKING:
    from hermes_openviking.provider import OpenVikingProvider
    from hermes_openviking.spaces import Space

_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def add_commands(group: click.Group, provider: OpenVikingProvider) -> None:
    """Add the commands to `group`."""
    group.context_settings["obj"] = provider
    for command in (where, search, browse, learned):
        group.add_command(command)


@click.command()
@_JSON
@click.pass_context
def where(context: click.Context, as_json: bool) -> None:
    """Which server answers, as whom we come, and where our memories are."""
    provider, space = _open(context)
    client = provider.client
    told = {"url": client.url, "version": client.version, "mode": client.mode, "user": space.user}
    rows = [{"what": key, "value": value} for key, value in {**told, "space": space.root}.items()]
    _show(rows, as_json, lambda row: f"{row['what']}: {row['value']}")


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="At most so many.")
@_JSON
@click.pass_context
def search(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find memories and documents that fit WORDS, with their scores, also those below the recall's threshold."""
    provider, space = _open(context)
    hits = provider.search(space, " ".join(words), space.recalled(documents=True), limit)
    rows = [{"uri": hit.uri, "score": round(hit.score, 3), "text": hit.text} for hit in hits]
    _show(
        rows,
        as_json,
        lambda row: f"{row['score']:.3f}  {row['uri']}\n       {clip(fold_space(row['text']), 200)}",
    )


@click.command()
@click.argument("uri", required=False)
@_JSON
@click.pass_context
def browse(context: click.Context, uri: str | None, as_json: bool) -> None:
    """List the tree below URI; our own space unless one is given."""
    provider, space = _open(context)
    rows = provider.client.entries(space, uri or space.root, deep=True, limit=1000)
    _show(rows, as_json, lambda row: f"{row['uri']}{'/' if row.get('isDir') else ''}")


@click.command()
@_JSON
@click.pass_context
def learned(context: click.Context, as_json: bool) -> None:
    """What became of sessions that the server was told to learn from."""
    provider, space = _open(context)
    _show(provider.client.extractions(space), as_json, _outcome)


def _open(context: click.Context) -> tuple[OpenVikingProvider, Space]:
    """The provider on the home that the command line names, closed when the command ends."""
    provider: OpenVikingProvider = context.obj
    home = command_home(context)
    provider.open(home.path)
    context.call_on_close(provider.shutdown)
    return provider, provider.space(Session("cli", identity=home.profile, home=str(home.path)))


def _show(rows: Sequence[dict[str, Any]], as_json: bool, line: Callable[[dict[str, Any]], str]) -> None:
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for row in rows:
        click.echo(printable(line(row)))
    if not rows:
        click.echo("nothing found", err=True)


def _outcome(task: dict[str, Any]) -> str:
    counts = (task.get("result") or {}).get("memories_extracted") or {}
    said = task.get("error") or ", ".join(f"{value} {key}" for key, value in counts.items()) or "nothing new"
    when = str(task.get("updated_at_iso") or "")[:19]
    return f"{when}  {task.get('status')}  {task.get('resource_id')}: {said}"

"""Questions that the wizard of a provider written for Hermes Agent asks through its host."""

from __future__ import annotations

from collections.abc import Sequence

import click

CANCELLED = -1


def select(
    title: str, items: Sequence[str | Sequence[str]], default: int = 0, *, cancel_returns: int | None = None
) -> int:
    """The place of the chosen item; an item is a label, or a label with a hint. `cancel_returns`, else `default`, when
    the person gives up."""
    click.echo(title)
    for number, item in enumerate(items):
        label = item if isinstance(item, str) else " ".join(filter(None, item))
        click.echo(f"  {number}  {label}")
    last = max(0, len(items) - 1)
    try:
        chosen: int = click.prompt("  number", default=default, type=click.IntRange(0, last))
    except click.Abort:
        return default if cancel_returns is None else cancel_returns
    return chosen


def prompt(label: str, default: str | None = None, secret: bool = False) -> str:
    """The answer; the default for Enter, "" when there is none. A secret is not shown."""
    shown = default is not None and not secret
    return str(
        click.prompt(f"  {label}", default=default or "", hide_input=secret, show_default=shown)
    ).strip()


def print_cancelled() -> None:
    """What a wizard says when the person gave up."""
    click.echo("cancelled; nothing was saved")

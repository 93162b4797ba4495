"""`hermes-memory logs`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from hermes_core.cli import home_of
from hermes_core.cli.output import json_option, print_document, print_table
from hermes_core.logs import LEVELS, Level, LogFile

_HEAD = ("at", "level", "kind", "pid")


@click.command()
@click.option(
    "-n",
    "limit",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="At most this many lines.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Lines of this level and above.",
)
@json_option
@click.pass_context
def logs(ctx: click.Context, limit: int, level: Level, as_json: bool) -> None:
    """Show what happened: the last lines of the log, the newest last, with secrets taken out.

    With --json each line is one JSON object, as it stands in logs/hermes.log.
    """
    lines = LogFile(home_of(ctx)).read(limit=limit, level=level)
    if as_json:
        for line in lines:
            print_document(line, compact=True)
        return
    rows = [(_when(line), line["level"], line["kind"], _said(line)) for line in lines]
    print_table("", ("when", "level", "event", "what"), rows, "The log is empty: nothing went wrong so far.")


def _when(line: dict[str, Any]) -> str:
    try:
        return f"{datetime.fromisoformat(line['at']).astimezone():%Y-%m-%d %H:%M:%S}"
    except (ValueError, TypeError):
        return ""


def _said(line: dict[str, Any]) -> str:
    told = {key: value for key, value in line.items() if key not in _HEAD and value not in ("", None)}
    if line["kind"] == "log":
        return str(told.get("message", ""))
    return " ".join(f"{key}={value}" for key, value in told.items())

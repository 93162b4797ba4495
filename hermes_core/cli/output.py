"""How the command line prints: a rich table for people, JSON for programs, never both."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermes_core.cli import DEGRADED
from hermes_core.kit.text import printable

# JSON escapes the C0 controls only. These drive a terminal too, or have no bytes in UTF-8.
_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_NO_LIMIT = 100_000
"""Characters in a line of a table that goes to a file or a pipe: no cell is broken there."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def console() -> Console:
    """Standard output of this moment, so that a redirected stream is honoured."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def warn(problems: Iterable[str]) -> None:
    """Say on standard error what is configured and does not work."""
    for problem in problems:
        click.secho(f"warning: {printable(problem)}", fg="yellow", err=True)


def finish(ctx: click.Context, problems: Sequence[str], *, failed: bool = False) -> None:
    """End a command that did its work: exit code 1 when some of it `failed`, 3 when something configured does not work."""
    warn(problems)
    if failed or problems:
        ctx.exit(1 if failed else DEGRADED)


def print_json(value: Any, *, compact: bool = False) -> None:
    """One JSON document on standard output, any script as it is."""
    text = json.dumps(_plain(value), ensure_ascii=False, indent=None if compact else 2)
    click.echo(_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table of texts; stored text is shown literally, never read as markup, and never cut."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        # The first column is what a person gives to the next command.
        table.add_column(column, overflow="fold", no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    out = console()
    if not out.is_terminal:
        out.width = _NO_LIMIT
    out.print(table if table.row_count else empty)


def moment(seconds: float | None) -> str:
    """A time for people, in their zone; empty when unknown.

    >>> moment(None)
    ''
    """
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)

"""How the command line prints: a rich table for people, JSON for programs, never both."""

from __future__ import annotations

import calendar
import contextlib
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hermes_core.cli import DEGRADED
from hermes_core.kit import cli as kit
from hermes_core.safety.terminal import hanging, printable
from hermes_core.sessions.times import local_time

_NO_LIMIT = 100_000
"""Characters in a line of a table that goes to a file or a pipe: no cell is broken there."""

_NARROW = 60
"""Columns of a terminal below which the cells of a table would be a few letters wide."""


_DOCUMENT = "hermes_core.document"


def json_alone(ctx: click.Context, parameter: click.Parameter, chosen: bool) -> bool:
    """Until the command ends, leave standard output to `print_json`: what a provider prints goes to standard error."""
    del parameter
    if chosen and not ctx.resilient_parsing:
        ctx.meta[_DOCUMENT] = sys.stdout
        ctx.with_resource(contextlib.redirect_stdout(sys.stderr))
    return chosen


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=json_alone, help="Print JSON for programs."
)


def print_json(value: Any, *, compact: bool = False) -> None:
    """One JSON document on standard output, as `kit.cli.print_json`."""
    with contextlib.redirect_stdout(click.get_current_context().meta.get(_DOCUMENT, sys.stdout)):
        kit.print_json(value, compact=compact)


def console() -> Console:
    """Standard output of this moment, so that a redirected stream is honoured."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def warn(problems: Iterable[str]) -> None:
    """Say on standard error what is configured and does not work."""
    for problem in problems:
        click.secho(f"warning: {hanging(problem)}", fg="yellow", err=True)


def finish(ctx: click.Context, problems: Sequence[str], *, failed: bool = False) -> None:
    """End a command that did its work: exit code 1 when some of it `failed`, 3 when something configured does not work."""
    warn(problems)
    if failed or problems:
        ctx.exit(1 if failed else DEGRADED)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table of texts; stored text is shown literally, never read as markup, and never cut.

    A terminal too narrow for columns is shown each row as lines of their own.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    out = console()
    if not cells:
        out.print(empty)
    elif out.is_terminal and out.width < _NARROW:
        for row in cells:
            _print_record(out, columns, row)
    else:
        if not out.is_terminal:
            out.width = _NO_LIMIT
        out.print(_table(title, columns, cells))


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        # The first column is what a person gives to the next command.
        table.add_column(column, overflow="fold", no_wrap=column == columns[0])
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _print_record(out: Console, columns: Sequence[str], row: Sequence[str]) -> None:
    """What a row is about, and below it each of its other cells that says something, with its column."""
    if row[0]:
        out.print(Text(row[0], style="bold", overflow="fold"))
    for column, cell in zip(columns[1:], row[1:], strict=True):
        if cell:
            text = Text(f"{column}: {cell}", overflow="fold")
            for indent, line in enumerate(text.wrap(out, max(out.width - 4, 10))):
                out.print(Padding(line, (0, 0, 0, 4 if indent else 2), expand=False))


def seconds_of(at: datetime) -> float:
    """A moment that a person gave, in seconds since the epoch, also at the ends of the calendar."""
    try:
        return at.timestamp()
    except (ValueError, OverflowError, OSError):
        return float(calendar.timegm(at.timetuple()))


def moment(seconds: float | None) -> str:
    """A time for people, in their zone; empty when unknown.

    >>> moment(None)
    ''
    """
    if not seconds:
        return ""
    at = local_time(seconds)
    return f"{at:%Y-%m-%d %H:%M}" if at else "unknown"

"""Output of the commands: tables and styled lines for people, JSON for programs, never both."""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli import DEGRADED, Failure
from hermes_core.errors import ConfigError
from hermes_core.kit import cli as kit
from hermes_core.safety.terminal import counted, hanging, printable
from hermes_core.sessions.records import local_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from hermes_core.memory import Memory

_MIN_TABLE_WIDTH = 60
"""Columns of a terminal below which the cells of a table would be a few letters wide."""

_GAP = 2
"""Columns between two cells of a row."""

_MAX_WORD = 20
"""Letters of the longest word that is never broken: longer ones are paths, addresses and names of keys."""


# Used with what is here by each command.
json_option, print_document, wants_json = kit.json_option, kit.print_json, kit.wants_json


NOTHING_STORED = "Nothing is stored yet."
"""Sentence of commands on a home whose store was not made yet."""


def print_result(value: Any, show: Callable[[], object]) -> None:
    """Print the result of a command: the JSON document with `--json`, else what `show` prints for people."""
    print_document(value) if wants_json() else show()


def print_done(message: str, **facts: Any) -> None:
    """Print the sentence about what a command did; with `--json` an object with `message` and these facts."""
    print_result({"message": message, **facts}, lambda: click.echo(printable(message)))


def for_terminal() -> bool:
    """Return True if standard output shows styles: a terminal, or FORCE_COLOR is set."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def console() -> Console:
    """Return a rich console on the present standard output, also if that was redirected."""
    # Rich takes a tenth of the time of a short command, so it is loaded for terminals only.
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def print_styled(*parts: str | tuple[str, str], wrap: bool = False) -> None:
    """Print one line of texts, each plain or with a rich style.

    Args:
        parts: A text, or (text, style). Style names work on terminals and are ignored elsewhere.
        wrap: Break a long line between words, instead of leaving that to the terminal.
    """
    if not for_terminal():
        click.echo("".join(part if isinstance(part, str) else part[0] for part in parts))
        return
    from rich.text import Text

    console().print(Text.assemble(*parts), soft_wrap=not wrap)


def warn(problems: Iterable[str]) -> None:
    """Print what is configured and does not work on standard error."""
    for problem in problems:
        click.secho(f"warning: {hanging(problem)}", fg="yellow", err=True)


def note_unread(count: int) -> None:
    """Print on standard error how to make the vectors of messages that search by meaning does not know yet."""
    if count:
        read_now = "`hermes-memory sessions rebuild` reads them now"
        click.secho(
            f"Search by meaning does not know {counted(count, 'message')} yet; {read_now}.",
            dim=True,
            err=True,
        )


def finish(ctx: click.Context, problems: Sequence[str], *, failed: bool = False) -> None:
    """End a command: exit with 1 if a part of its work `failed`, with 3 if something configured does not work."""
    warn(problems)
    if failed or problems:
        ctx.exit(1 if failed else DEGRADED)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Print a table of texts, or `empty` without rows. Stored text is literal, never markup, and never cut.

    A terminal that is too narrow for columns of whole words gets several lines for each row.
    """
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if not cells:
        click.echo(empty)
    elif not for_terminal():
        _print_plain(title, columns, cells)
    elif widths := _column_widths(out := console(), columns, cells):
        _print_columns(out, title, columns, cells, widths)
    else:
        _print_records(out, title, columns, cells)


def _column_widths(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column in which no word is broken; [] if the terminal is too narrow for that.

    Rich would narrow the widest column first, and break its words while another column has room.
    """
    from rich.cells import cell_len

    if out.width < _MIN_TABLE_WIDTH:
        return []
    room = out.width - _GAP * (len(columns) - 1)
    cells = [[columns[at], *(row[at] for row in rows)] for at in range(len(columns))]
    whole = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]
    words = [max(map(cell_len, " ".join(column).split())) for column in cells]
    for limit in (max(words), _MAX_WORD):
        # The first column is what a person gives to the next command.
        widths = [whole[0], *(min(word, limit) for word in words[1:])]
        if sum(widths) <= room:
            break
    else:
        return []
    spare = room - sum(widths)
    by_need = sorted(range(len(columns)), key=lambda at: whole[at] - widths[at])
    for number, at in enumerate(by_need):
        more = min(whole[at] - widths[at], spare // (len(columns) - number))
        widths[at] += more
        spare -= more
    return widths


def _print_plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns for a file or a pipe: no cell is broken, however wide it is."""
    lines = [[cell.split("\n") for cell in row] for row in (columns, *rows)]
    widths = [max(_cell_width(text) for row in lines for text in row[index]) for index in range(len(columns))]
    if title:
        click.echo(title)
    for row in lines:
        for number in range(max(map(len, row))):
            texts = [cell[number] if number < len(cell) else "" for cell in row]
            padded = (
                text + " " * (width - _cell_width(text)) for text, width in zip(texts, widths, strict=True)
            )
            click.echo("  ".join(padded).rstrip())


def _cell_width(text: str) -> int:
    """Return the columns that a text takes in a terminal: two for each wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def _print_columns(
    out: Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    widths: Sequence[int],
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table)


def _print_records(out: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print the first cell of each row, and below it a line for each other cell that is not empty."""
    from rich.padding import Padding
    from rich.text import Text

    if title:
        out.print(Text(title, style="italic"))
    for row in rows:
        if row[0]:
            out.print(Text(row[0], style="bold", overflow="fold"))
        for column, cell in zip(columns[1:], row[1:], strict=True):
            text = Text(f"{column}: {cell}" if cell else "", overflow="fold")
            for indent, line in enumerate(text.wrap(out, max(out.width - 4, 10)) if cell else ()):
                out.print(Padding(line, (0, 0, 0, 4 if indent else 2), expand=False))


def moment(seconds: float | None) -> str:
    """Return a time for people, in their zone; "" if it is unknown.

    >>> moment(None)
    ''
    """
    if not seconds:
        return ""
    at = local_time(seconds)
    return f"{at:%Y-%m-%d %H:%M}" if at else "unknown"


def edit_text(text: str, extension: str) -> str | None:
    """Let the person edit a text in $VISUAL or $EDITOR. Return None if it was not saved. Raise `Failure`."""
    try:
        return click.edit(text, extension=extension, require_save=False)
    except click.ClickException as exc:
        fault = exc.format_message().rstrip(".")
        raise Failure(f"{fault}; set $VISUAL or $EDITOR to an editor that works in this terminal") from exc


def progress_bar(what: str, unit: str) -> Progress:
    """Return a progress bar on standard error, which writes a line now and then if that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not sys.stderr.isatty():
        from hermes_core.cli.progress import ProgressLines

        return ProgressLines(what, unit)
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )


def build_with_progress(memory: Memory) -> None:
    """Compute the vectors for search by meaning now instead of in the background. A fault is among the problems."""
    meaning = memory.sessions.past.vectors
    if meaning is None or not (missing := meaning.missing()):
        return
    with progress_bar("reading for meaning", "messages") as bar, contextlib.suppress(ConfigError):
        task = bar.add_task("", total=missing)
        meaning.build(lambda done: bar.update(task, completed=done))

"""`hermes-memory import`."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hermes_core.cli import home_of
from hermes_core.cli.output import finish, json_option, print_json
from hermes_core.errors import ConfigError, ImportFailed
from hermes_core.importers import FORMATS, Skip, Skipped, stream_file
from hermes_core.importers.detect import Format
from hermes_core.importers.run import Imported, import_sessions
from hermes_core.importers.values import StreamedSession
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted, printable


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="The format of FILE.",
)
@json_option
@click.pass_context
def import_command(ctx: click.Context, file: Path, file_format: Format, as_json: bool) -> None:
    """Bring the conversations of FILE into memory, each turn as if it had just happened.

    Safe to run again: turns that are stored are left alone. FILE may be a pipe, or - for standard input.
    """
    skipped = Skipped()
    sessions = stream_file(_regular(ctx, file), file_format, skipped)
    # Read before memory is opened: of a file that is none, nothing is made.
    first = next(sessions, None)
    broken: list[str] = []
    whole = _until_broken(sessions if first is None else chain([first], sessions), broken)
    with open_memory(home_of(ctx)) as memory:
        done = import_with_progress(memory, whole)
        build_with_progress(memory)
        delivered = memory.flush(timeout=60)
        problems = broken + memory.problems()
    done = replace(done, skipped=tuple(skipped.all()))
    problems += [_told(skip) for skip in done.skipped if skip.fault]
    if as_json:
        print_json(done)
    else:
        turns, messages = counted(done.turns, "turn"), counted(done.messages, "message")
        known = f", {done.known:,} known already" if done.known else ""
        click.echo(f"{turns} ({messages}) of {counted(done.sessions, 'session')} imported{known}")
        for skip in done.skipped:
            if not skip.fault:
                click.echo(printable(f"left out: {_told(skip)}"))
    if not delivered:
        problems.append("some turns still wait for the provider: hermes-memory outbox list shows them")
    finish(ctx, problems)


def _regular(ctx: click.Context, file: Path) -> Path:
    """The file itself, or a copy, until the command ends, of what comes through a pipe: a file is read more than once."""
    dash = str(file) == "-"
    if not dash and file.is_file():
        return file
    folder = ctx.with_resource(tempfile.TemporaryDirectory(prefix="hermes-import-"))
    copy = Path(folder, "standard input" if dash else file.name)
    with copy.open("wb") as whole, contextlib.ExitStack() as opened:
        shutil.copyfileobj(sys.stdin.buffer if dash else opened.enter_context(file.open("rb")), whole)
    return copy


def _until_broken(sessions: Iterable[StreamedSession], broken: list[str]) -> Iterator[StreamedSession]:
    """The sessions up to a place behind which the file can't be read, which is noted."""
    try:
        yield from sessions
    except ImportFailed as exc:
        broken.append(f"the file was read up to here: {exc}")


def _told(skip: Skip) -> str:
    return (
        f"{skip.count} x {skip.reason} ({'at' if skip.count == 1 else 'first at'} {skip.first or 'its end'})"
    )


def import_with_progress(
    memory: Memory, sessions: Iterable[StreamedSession], total: int | None = None
) -> Imported:
    """Import with a bar on standard error, where that is a terminal; `total` is how many turns there are."""
    with _bar("importing", "turns") as bar:
        task = bar.add_task("", total=total)
        return import_sessions(memory, sessions, on_turn=lambda: bar.advance(task))


def build_with_progress(memory: Memory) -> None:
    """Make what search by meaning needs now rather than in the background; a fault is among the problems."""
    meaning = memory.sessions.meaning
    if meaning is None or not (missing := meaning.missing()):
        return
    with _bar("reading for meaning", "messages") as bar, contextlib.suppress(ConfigError):
        task = bar.add_task("", total=missing)
        meaning.build(lambda done: bar.update(task, completed=done))


def _bar(what: str, unit: str) -> Progress:
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        disable=not sys.stderr.isatty(),
    )

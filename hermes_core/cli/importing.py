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
from typing import TYPE_CHECKING

import click

from hermes_core.cli import home_of
from hermes_core.cli.output import finish, json_option, print_document
from hermes_core.errors import ConfigError, ImportFailed
from hermes_core.importers import FORMATS, Format, Skip, SkipLog, stream_file
from hermes_core.importers.run import ImportResult, import_sessions
from hermes_core.importers.values import StreamedSession
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted, hanging

if TYPE_CHECKING:
    from rich.progress import Progress


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
    skips = SkipLog()
    sessions = stream_file(_regular_file(ctx, file), file_format, skips)
    # Read the first session before memory is opened: a wrong file must not create a home.
    first = next(sessions, None)
    faults: list[str] = []
    whole = _until_fault(sessions if first is None else chain([first], sessions), faults)
    with open_memory(home_of(ctx)) as memory:
        done = import_with_progress(memory, whole)
        build_with_progress(memory)
        delivered = memory.flush(timeout=60)
        problems = faults + memory.problems()
    done = replace(done, skipped=tuple(skips.all()))
    problems += [_describe_skip(skip) for skip in done.skipped if skip.fault]
    if as_json:
        print_document(done)
    else:
        turns, messages = counted(done.turns, "turn"), counted(done.messages, "message")
        known = f", {done.known:,} known already" if done.known else ""
        click.echo(f"{turns} ({messages}) of {counted(done.sessions, 'session')} imported{known}")
        for skip in done.skipped:
            if not skip.fault:
                click.echo(hanging(f"left out: {_describe_skip(skip)}"))
    if not delivered:
        problems.append("some turns still wait for the provider: hermes-memory outbox list shows them")
    finish(ctx, problems)


def _regular_file(ctx: click.Context, file: Path) -> Path:
    """Return the file, or a copy of a pipe's content until the command ends: a file is read more than once."""
    dash = str(file) == "-"
    if not dash and file.is_file():
        return file
    folder = ctx.with_resource(tempfile.TemporaryDirectory(prefix="hermes-import-"))
    copy = Path(folder, "standard input" if dash else file.name)
    with copy.open("wb") as whole, contextlib.ExitStack() as opened:
        shutil.copyfileobj(sys.stdin.buffer if dash else opened.enter_context(file.open("rb")), whole)
    return copy


def _until_fault(sessions: Iterable[StreamedSession], faults: list[str]) -> Iterator[StreamedSession]:
    """Yield the sessions up to a fault in the file, and add a sentence about it to `faults`."""
    try:
        yield from sessions
    except ImportFailed as exc:
        faults.append(f"the file was read up to here: {exc}")


def _describe_skip(skip: Skip) -> str:
    return (
        f"{skip.count} x {skip.reason} ({'at' if skip.count == 1 else 'first at'} {skip.first or 'its end'})"
    )


def import_with_progress(
    memory: Memory, sessions: Iterable[StreamedSession], total: int | None = None
) -> ImportResult:
    """Import with a progress bar on standard error, if that is a terminal. `total` is the number of turns."""
    with _bar("importing", "turns") as bar:
        task = bar.add_task("", total=total)
        return import_sessions(memory, sessions, on_turn=lambda: bar.advance(task))


def build_with_progress(memory: Memory) -> None:
    """Compute the vectors for search by meaning now instead of in the background. A fault is among the problems."""
    meaning = memory.sessions.vectors
    if meaning is None or not (missing := meaning.missing()):
        return
    with _bar("reading for meaning", "messages") as bar, contextlib.suppress(ConfigError):
        task = bar.add_task("", total=missing)
        meaning.build(lambda done: bar.update(task, completed=done))


def _bar(what: str, unit: str) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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

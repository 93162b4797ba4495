"""The command `hermes-memory import`, which the command line imports when it runs."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path

import click
from msgspec import Struct, field

from hermes_core import Memory, open_memory
from hermes_core.cli import Failure, extensions_of, home_of
from hermes_core.cli.output import build_with_progress, finish, print_result, progress_bar
from hermes_core.contract.extensions import IMPORT_ARCHIVE
from hermes_core.contract.values import parse_outside_id
from hermes_core.errors import ImportFailed
from hermes_core.kit.cli import yes_option
from hermes_core.loader.extensions import Extensions, import_target, inactive_reason
from hermes_core.safety.terminal import counted, hanging
from hermes_memory_importers import Skip, SkipLog, StreamedItem, find_files, is_known, stream_file
from hermes_memory_importers.copies import CopyFinder
from hermes_memory_importers.formats import known_formats
from hermes_memory_importers.run import ImportResult, import_sessions


class _Import(Struct):
    """The import of several files, with what it brought and left out.

    Attributes:
        memory: Opens the memory, at most once.
        extensions: The extensions of the home, which register formats.
        first: The first file.
        several: False for one file that the person named: then a fault in it ends the command.
        user: The person to whom the content belongs; "" for the person at home.
    """

    memory: Callable[[], Memory]
    extensions: Extensions
    file_format: str
    several: bool
    on_turn: Callable[[], None]
    user: str = ""
    copies: CopyFinder | None = None
    first: str = ""
    done: ImportResult = field(default_factory=ImportResult)
    skips: SkipLog = field(default_factory=SkipLog)
    problems: list[str] = field(default_factory=list)

    def run(self, file: Path) -> None:
        """Import a file. A fault in one of several files is a problem, and the next file is imported."""
        skips = SkipLog()
        self.first = self.first or str(file)
        try:
            if self.several and self.file_format == "auto" and not is_known(file, self.extensions):
                self.skips.note("files of no known format", str(file))
                return
            sessions = stream_file(file, self.file_format, skips, self.extensions)
            # Read the first session before memory is opened: a wrong file must not create a home.
            first = next(sessions, None)
        except ImportFailed as exc:
            if not self.several:
                raise
            self.problems.append(str(exc) if str(file) in exc.message else f"{str(file)!r}: {exc}")
            return
        if first is not None:
            whole = _until_fault(chain([first], sessions), self.problems)
            memory = self.memory()
            # One for all files: it reads the beginnings of all stored sessions.
            self.copies = self.copies or CopyFinder(memory.sessions)
            self.done = self.done.plus(
                import_sessions(memory, whole, self.on_turn, self.copies, self.problems, user=self.user)
            )
        skips.close()
        if self.several:
            self.skips.add(skips, str(file))
        else:
            self.skips = skips

    def result(self) -> ImportResult:
        """Return the counts, and add what people should know to `problems`."""
        done = replace(self.done, skipped=tuple(self.skips.all()))
        brought = done.sessions or done.memories or done.known
        if not brought and (done.skipped or not self.problems):
            place = f" in {self.first}" if self.first else ""
            reason = _describe_skip(done.skipped[0]) if done.skipped else f"no conversation is there{place}"
            self.problems.append(f"nothing was imported: {reason}")
        self.problems += [_describe_skip(skip) for skip in done.skipped if skip.fault and brought]
        return done


class _Formats(click.Choice[str]):
    """The values of `--format`, which come from the extensions."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> list[str]:  # type: ignore[override]  # known when the command line is read
        """The names of the formats."""
        ctx = click.get_current_context(silent=True)
        return known_formats(Extensions() if ctx is None else extensions_of(ctx))


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format", "file_format", type=_Formats(), default="auto", show_default=True, help="The format of FILE."
)
@click.option(
    "--user",
    "users",
    metavar="USER",
    multiple=True,
    help="For this user of a gateway, as telegram:42; of an export: only this user, or 'home'.",
)
@click.option("--dry-run", is_flag=True, help="Of an export: only check it and show what it holds.")
@click.option(
    "--keep-origins", is_flag=True, help="Of an export: it is your own, so that its notes count as before."
)
@yes_option
@click.pass_context
def import_command(
    ctx: click.Context,
    files: tuple[Path, ...],
    file_format: str,
    users: tuple[str, ...],
    dry_run: bool,
    keep_origins: bool,
) -> None:
    """Bring the conversations of FILE into memory, each turn as if it had just happened.

    Safe to run again: turns that are stored are left alone. FILE may be a folder, a pattern such as '*.jsonl', a pipe,
    or - for standard input, and may be packed (.gz, .zst). If FILE is a ZIP archive that `export` wrote, all of it is
    checked and shown first; your yes merges it, and its notes wait for `review` unless you say that it is your own.
    """
    paths = _paths(ctx, files)
    if len(paths) == 1 and _is_zip(paths[0]):
        entry = extensions_of(ctx).commands.get(IMPORT_ARCHIVE)
        if entry is None:
            reason = inactive_reason(extensions_of(ctx), "archive")
            raise Failure(f"{str(paths[0])!r} is a ZIP archive; the import of an export is {reason}")
        import_target(entry.target)(ctx, paths[0], users, keep_origins=keep_origins, dry_run=dry_run)
        return
    if dry_run or keep_origins:
        raise click.UsageError("--dry-run and --keep-origins are for one archive that export wrote")
    if len(users) > 1:
        raise click.UsageError("only an archive that export wrote has several users: give --user once")
    user = "" if users == ("home",) else "".join(users)
    if user:
        parse_outside_id(user)  # before a file is read
    several = len(paths) != 1 or files[0].expanduser().is_dir()
    with contextlib.ExitStack() as stack, progress_bar("importing", "files" if several else "turns") as bar:
        task = bar.add_task("", total=len(paths) if several else None)
        # A bar counts the files; lines on a pipe also the turns, since few files may be large.
        turns = bar.add_task("turns", total=None, visible=False) if several else task
        memory: list[Memory] = []

        def opened() -> Memory:
            if not memory:
                memory.append(stack.enter_context(open_memory(home_of(ctx))))
                stack.enter_context(memory[0].sessions.vectors_later())
            return memory[0]

        run = _Import(opened, extensions_of(ctx), file_format, several, lambda: bar.advance(turns), user)
        for path in paths:
            run.run(path)
            if several:
                bar.advance(task)
        done, delivered = run.result(), True
        bar.stop()
        if memory:
            build_with_progress(memory[0])
            delivered = memory[0].flush(timeout=60)
            run.problems += memory[0].problems()
    print_result(_document(done), lambda: _print(done, len(paths) if several else 0))
    if not delivered:
        run.problems.append("some turns still wait for the provider: hermes-memory outbox list shows them")
    finish(ctx, run.problems)


def _document(done: ImportResult) -> dict[str, object]:
    """Return the counts, those of memories only if there are some."""
    counts = {one.name: getattr(done, one.name) for one in fields(done)}
    return {name: count for name, count in counts.items() if count or name not in ("memories", "notes")}


def _print(done: ImportResult, files: int) -> None:
    turns, messages = counted(done.turns, "turn"), counted(done.messages, "message")
    known = f", {done.known:,} known already" if done.known else ""
    places = f" in {counted(files, 'file')}" if files else ""
    if done.sessions or not (done.memories or done.known):
        click.echo(f"{turns} ({messages}) of {counted(done.sessions, 'session')}{places} imported{known}")
        known = ""
    if done.memories or known:
        click.echo(f"{counted(done.memories, 'memory', 'memories')} imported{known}")
    if done.notes:
        click.echo(f"notes that wait for you among these: {done.notes:,}; hermes-memory review shows them")
    for skip in done.skipped:
        if not skip.fault:
            click.echo(hanging(f"left out: {_describe_skip(skip)}"))


def _paths(ctx: click.Context, patterns: Sequence[Path]) -> list[Path]:
    """Return the files that the arguments name."""
    paths: list[Path] = []
    names = [name for entry in extensions_of(ctx).importers.values() for name in entry.patterns]
    for pattern in patterns:
        if str(pattern) == "-" or (pattern.exists() and not pattern.is_file() and not pattern.is_dir()):
            paths.append(_regular_file(ctx, pattern))
        elif named := find_files(pattern, names):
            paths += named
        elif not pattern.expanduser().is_dir():
            raise click.BadParameter(f"Path {str(pattern)!r} does not exist.", ctx, param_hint="'FILE...'")
    return list(dict.fromkeys(paths))


def _regular_file(ctx: click.Context, file: Path) -> Path:
    """Return a copy of a pipe's content until the command ends: a file is read more than once."""
    dash = str(file) == "-"
    folder = ctx.with_resource(tempfile.TemporaryDirectory(prefix="hermes-import-"))
    copy = Path(folder, "standard input" if dash else file.name)
    with copy.open("wb") as whole, contextlib.ExitStack() as opened:
        shutil.copyfileobj(sys.stdin.buffer if dash else opened.enter_context(file.open("rb")), whole)
    return copy


def _is_zip(path: Path) -> bool:
    """Return True if the file begins as a ZIP archive, also if the rest of it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    except OSError:
        return False


def _until_fault(sessions: Iterable[StreamedItem], faults: list[str]) -> Iterator[StreamedItem]:
    """Yield the sessions up to a fault in the file, and add a sentence about it to `faults`."""
    try:
        yield from sessions
    except ImportFailed as exc:
        faults.append(f"the file was read up to here: {exc}")


def _describe_skip(skip: Skip) -> str:
    return (
        f"{skip.count} x {skip.reason} ({'at' if skip.count == 1 else 'first at'} {skip.first or 'its end'})"
    )

"""The commands `hermes-memory sessions export` and `import`: conversations as files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from hermes_core import Memory
from hermes_core.actions.conversations import exported_lines, named_session
from hermes_core.cli import Failure
from hermes_core.cli.options import with_memory
from hermes_core.cli.output import finish, print_result, wants_json
from hermes_core.config import backup_folder
from hermes_core.errors import SessionError
from hermes_core.kit.cli import without_json
from hermes_core.safety.json_size import TORN, JsonTooLarge, ends_within_value, parse_json
from hermes_core.safety.terminal import counted
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.transfer import import_session
from hermes_core.storage.files import ensure_folder
from hermes_core.storage.output_file import check_output_file, open_partial

MAX_LINE_CHARS = 256 * 2**20
"""Characters of a line of a file to import, which is held in memory."""


@click.command("export")
@click.argument("session_ids", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All sessions.")
@click.option("--source", "sources", multiple=True, help="All sessions of this source; may be given again.")
@click.option("--user", metavar="USER", help="All sessions of this user, as telegram:42.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write (default: standard output).",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@without_json("it writes JSON Lines")
@with_memory(begins=False)
def export_sessions(
    memory: Memory,
    session_ids: tuple[str, ...],
    every: bool,
    sources: tuple[str, ...],
    user: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Write whole conversations as JSON Lines, one session a line, which `sessions import` takes back without loss.

    SESSION_IDS are ids, beginnings of ids, or titles. The file holds everything that was said, also what was undone, and
    no secret is taken out of it: keep it as private as the home.
    """
    if not (session_ids or every or sources or user is not None):
        raise click.UsageError("name sessions, or give --all, --source or --user")
    db = memory.sessions
    if output is not None:
        check_output_file(output, memory.home, backup_folder(memory.home, memory.config), force=force)
    ids = _selected(db, session_ids, every=every, sources=sources, user=user)
    if not (ids or every):
        raise Failure("no session matches; nothing was exported")
    if output is None:
        sys.stdout.writelines(exported_lines(db, ids))
        return
    ensure_folder(output.parent)
    partial, file = open_partial(output)
    try:
        with file:
            file.writelines(line.encode("ascii") for line in exported_lines(db, ids))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    click.echo(f"{counted(len(ids), 'session')} exported to {output}", err=True)


def _selected(
    db: SessionStore, session_ids: tuple[str, ...], *, every: bool, sources: tuple[str, ...], user: str | None
) -> list[str]:
    """Return the ids of the sessions to export, oldest first. A named session stands for its whole conversation."""
    chosen = {other for text in session_ids for other in db.lineage(named_session(db, text).id)}
    rows = db.database.execute(
        "SELECT s.id, s.source, s.user FROM sessions s ORDER BY s.started_at, s.key"
    ).fetchall()
    filtered = bool(sources) or user is not None
    return [
        row["id"]
        for row in rows
        if every
        or row["id"] in chosen
        or (filtered and (not sources or row["source"] in sources) and (user is None or row["user"] == user))
    ]


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.File("r", encoding="utf-8"))
@with_memory()
def import_sessions(memory: Memory, files: tuple[IO[str], ...]) -> None:
    """Bring back sessions that `sessions export` wrote; FILES may be "-" for standard input.

    A session that is here already stays as it is. Nothing is sent to the provider, which got these turns when they were
    new. Exits with 1 if a line could not be imported, with 3 if only the last line is torn.
    """
    counts = {"imported": 0, "present": 0, "different": 0}
    faults, torn = list[str](), list[str]()
    for place, line in _lines(files, torn):
        try:
            document = parse_json(line)
            result = import_session(memory.sessions, document)
        except JsonTooLarge as exc:
            faults.append(f"{place}: {exc}; export the session again")
        except (ValueError, RecursionError) as exc:
            if not line.endswith("\n") and ends_within_value(exc):
                torn.append(f"{place}: {TORN}")
                continue
            faults.append(f"{place}: it is no JSON; export the session again")
        except SessionError as exc:
            faults.append(f"{place}: {exc}")
        else:
            counts[result] += 1
            if result == "different":
                name = document["session"]["id"]
                faults.append(f"{place}: session {name!r} is here with other messages and stays as it is")
    text = f"{counted(counts['imported'], 'session')} imported, {counts['present']} here already"
    print_result({**counts, "faults": [*faults, *torn]}, lambda: click.echo(text))
    finish(click.get_current_context(), torn if wants_json() else [*faults, *torn], failed=bool(faults))


def _lines(files: tuple[IO[str], ...], torn: list[str]) -> Iterator[tuple[str, str]]:
    """Yield place and text of each line that is not empty. Raises `Failure` for a file that is no text."""
    for file in files:
        number = 0
        try:
            while line := file.readline(MAX_LINE_CHARS + 1):
                number += 1
                if len(line) > MAX_LINE_CHARS:
                    raise Failure(
                        f"{file.name!r}, line {number} has more than {MAX_LINE_CHARS:,} characters, as no session has; "
                        "the lines before it were read: name a file that sessions export wrote"
                    )
                if line.strip():
                    yield f"{file.name}, line {number}", line
        except UnicodeDecodeError as exc:
            if ends_within_value(exc) and number:
                torn.append(f"{file.name}, line {number + 1}: {TORN}")
                continue
            raise Failure(f"{file.name!r} is not UTF-8 text; name a file that sessions export wrote") from exc

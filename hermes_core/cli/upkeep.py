"""`hermes-memory sessions check|repair|rebuild|vacuum|prune|delete`: keeping state.db well."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial

import click

from hermes_core.cli import home_of
from hermes_core.cli.output import json_option, moment, print_json, print_table, seconds_of
from hermes_core.config import load_config
from hermes_core.errors import SessionError
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted, printable
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import StoredSession
from hermes_core.sessions.repair import repair as repair_store
from hermes_core.storage.sqlite import wal_of

DAY = 86_400.0


@contextlib.contextmanager
def _store(ctx: click.Context) -> Iterator[SessionDB]:
    """The home's store alone: what keeps it well must work when nothing else does."""
    home = home_of(ctx)
    if not (home.state_db.exists() or wal_of(home.state_db).exists()):
        raise SessionError(
            f"there is no session store {str(home.state_db)!r} yet", "it is made with the first session"
        )
    config = load_config(home)
    db = SessionDB(
        home.state_db,
        journal_mode=config.sessions.journal_mode,
        semantic=config.recall.semantic == "auto",
    )
    with contextlib.closing(db):
        yield db


@click.command()
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Look for damage in the store and its search index. Exit code 1 when there is any."""
    with _store(ctx) as db:
        faults = db.check()
    if as_json:
        print_json({"ok": not faults, "faults": faults})
    else:
        click.echo(printable("\n".join(faults)) or "The store is whole.")
    if faults:
        ctx.exit(1)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def repair(ctx: click.Context, yes: bool, as_json: bool) -> None:
    """Copy a damaged store, then save what can be read into a new one in its place.

    Stop every program that uses this home first.
    """
    path = home_of(ctx).state_db
    if not yes:
        click.confirm(
            f"Save what can be read of {path} into a new store? The old files are kept.", abort=True
        )
    result = repair_store(path, progress=_told)
    if as_json:
        print_json(result)
        return
    for table, saved in result.saved.items():
        lost = result.lost[table]
        click.echo(f"{table}: {saved} saved" + (f", up to {lost} lost" if lost else ""))
    click.echo(f"The files as they were are in {result.kept}; delete them when nothing is missing.")


@click.command()
@json_option
@click.pass_context
def rebuild(ctx: click.Context, as_json: bool) -> None:
    """Make the search index anew from the messages, and with [semantic] their vectors.

    Others may go on writing; until the end a search finds less.
    """
    with _store(ctx) as db:
        total = db.counts()["messages"]
        done = db.rebuild_index(lambda count: _told("search index", count, total))
        vectors = db.rebuild_vectors(partial(_told, "vectors"))
    if as_json:
        print_json({"messages": done, "vectors": vectors})
    else:
        click.echo(
            f"{counted(done, 'message')} indexed."
            + (f" {vectors:,} can be found by meaning." if vectors else "")
        )


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say how much space there is to win.")
@json_option
@click.pass_context
def vacuum(ctx: click.Context, dry_run: bool, as_json: bool) -> None:
    """Take deleted messages out of the file and give their space back.

    Needs as much free space as the store has, and as much again for temporary files. Others that write wait meanwhile;
    with a store of gigabytes stop them, since after half a minute they give up.
    """
    with _store(ctx) as db:
        result = db.vacuum(dry_run=dry_run)
    if as_json:
        print_json({"before": result.before, "after": result.after, "dry_run": dry_run})
    else:
        what = "would be at most" if dry_run else "is"
        click.echo(f"The store was {_size(result.before)} and {what} {_size(result.after)}.")


@click.command()
@click.option(
    "--older-than",
    type=click.IntRange(0, 1_000_000),
    metavar="DAYS",
    help="Without a message for this many days.",
)
@click.option("--before", type=click.DateTime(), help="Without a message since before this moment.")
@click.option("--source", "sources", multiple=True, help="Only sessions of this source; may be given again.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def prune(
    ctx: click.Context,
    older_than: int | None,
    before: datetime | None,
    sources: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete old conversations, and what of them still waits for the provider. A conversation goes as a whole."""
    if (older_than is None) == (before is None):
        raise click.UsageError("give --older-than or --before")
    limit = seconds_of(before) if before else time.time() - DAY * (older_than or 0)
    with open_memory(home_of(ctx), provider="") as memory:
        doomed = memory.sessions.idle_sessions(limit, sources)
        if doomed and not (dry_run or yes):
            _ask(memory.sessions, doomed)
            # While the question stood, one of them may have been taken up again.
            idle = set(memory.sessions.idle_sessions(limit, sources))
            doomed = [session_id for session_id in doomed if session_id in idle]
        _delete(memory, doomed, dry_run=dry_run, as_json=as_json)


@click.command()
@click.argument("session_id")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def delete(ctx: click.Context, session_id: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete one conversation, with all that was compressed, branched or delegated in it, and what it was branched from.

    SESSION_ID is an id of hermes-memory sessions list, the beginning of one, or a title. What waits for the provider goes
    too; what the provider took is in the provider's hands.
    """
    with open_memory(home_of(ctx), provider="") as memory:
        doomed = sorted(memory.sessions.lineage(session_named(memory.sessions, session_id).id))
        if not (dry_run or yes):
            _ask(memory.sessions, doomed)
        _delete(memory, doomed, dry_run=dry_run, as_json=as_json)


def session_named(db: SessionDB, text: str) -> StoredSession:
    """The session that a person means. Raises `SessionError` where that is none, or might be several."""
    session = db.find_session(text)
    if session is None:
        raise SessionError(
            f"there is no session {text!r}",
            "list them with `hermes-memory sessions list`; a part of an id must begin no other",
        )
    return session


UPKEEP = (check, repair, rebuild, vacuum, prune, delete)


def _ask(db: SessionDB, doomed: list[str]) -> None:
    """Show what would go, and end the command unless a person agrees."""
    _show(db, doomed)
    click.confirm(f"Delete these {len(doomed)} session(s) for good?", abort=True)


def _delete(memory: Memory, doomed: list[str], *, dry_run: bool, as_json: bool) -> None:
    """Delete these sessions, and say so."""
    for done, session_id in enumerate(() if dry_run else doomed, 1):
        if memory.sessions.get_session(session_id) is not None:  # went with the one that delegated it
            memory.delete_session(session_id)
        _told("sessions deleted", done, len(doomed))
    if as_json:
        print_json({"sessions": doomed, "deleted": 0 if dry_run else len(doomed), "dry_run": dry_run})
    elif dry_run:
        _show(memory.sessions, doomed)
    else:
        freed = "; the file holds their text until hermes-memory sessions vacuum" if doomed else ""
        click.echo(f"{len(doomed)} session(s) deleted{freed}")


def _show(db: SessionDB, ids: list[str]) -> None:
    found = [session for session in map(db.get_session, ids) if session is not None]
    rows = [(s.id, s.source, moment(s.last_active), s.message_count, s.title) for s in found]
    print_table(
        "", ("session", "source", "last active", "messages", "title"), rows, "No session is that old."
    )


def _told(what: str, done: int, total: int = 0) -> None:
    """A line that counts, where a person watches."""
    if sys.stderr.isatty():
        click.echo(f"\r{what}: {done}{f' of {total}' if total else ''}  ", err=True, nl=done == total)


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"

"""`hermes-memory sessions`: list, search and show past sessions, delete them, and maintain state.db."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from hermes_core.actions.conversations import (
    delete_sessions,
    deletion_message,
    mark_conversation,
    named_session,
    rename_conversation,
)
from hermes_core.cli import Group, extensions_of, home_of
from hermes_core.cli.options import (
    dry_run_option,
    home_to_read,
    limit_results_option,
    source_options,
    time_options,
    with_memory,
)
from hermes_core.cli.output import (
    NOTHING_STORED,
    finish,
    moment,
    note_unread,
    print_done,
    print_result,
    print_styled,
    print_table,
    wants_json,
)
from hermes_core.cli.recall import MAX_TEXT_CHARS
from hermes_core.config import load_config
from hermes_core.contract.values import ORIGIN_NAMES
from hermes_core.errors import ConfigError, SessionError, StorageError
from hermes_core.kit.cli import WholeNumber, confirm, has_yes, limit_option, yes_option
from hermes_core.kit.text import clip, fold_space
from hermes_core.memory import Memory
from hermes_core.safety.origin import may_command
from hermes_core.safety.redact import redact
from hermes_core.safety.terminal import counted, printable
from hermes_core.sessions import maintenance
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.lineage import stored_sources
from hermes_core.sessions.records import (
    DELEGATED_SOURCES,
    PROGRAM_SOURCES,
    Mark,
    SearchHit,
    StoredMessage,
    StoredSession,
)
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.inventory import lost_store
from hermes_core.storage.sqlite import repaired_copy, wal_of

DAY_S = 86_400.0


@click.group(cls=Group)
def sessions() -> None:
    """List, search and show past sessions; keep the store well."""


@sessions.command("list")
@limit_option(20, 10_000)
@source_options
@click.option("--archived", is_flag=True, help="Only those that `sessions archive` took out of the list.")
@with_memory(begins=False)
def list_sessions(
    memory: Memory, limit: int, sources: tuple[str, ...], exclude_sources: tuple[str, ...], archived: bool
) -> None:
    """List sessions, the latest first; a compressed conversation is one entry.

    Sessions that a program began, such as those of cron, are listed only if --source names their source.
    """
    db = memory.sessions
    hidden = () if sources else PROGRAM_SOURCES
    excluded = (*hidden, *exclude_sources)
    entries = db.list_sessions(
        everybody=True, limit=limit, source=sources, exclude_sources=excluded, archived=archived
    )
    programs = sorted(set(stored_sources(db.database)) & set(hidden) - {*DELEGATED_SOURCES, *exclude_sources})
    some = archived or sources or exclude_sources or programs
    empty = "No session matches." if some else "No session is stored yet."
    print_result(entries, lambda: _print_sessions(db, [(e.session, e.preview) for e in entries], empty))
    if programs and not wants_json():
        options = " ".join(f"--source {name}" for name in programs)
        click.secho(f"Sessions of programs are not listed; {options} lists them.", dim=True, err=True)


def _print_sessions(db: SessionStore, previews: Iterable[tuple[StoredSession, str]], empty: str) -> None:
    """Print sessions, each with its title, or else with the beginning of its text."""
    rows = [
        (db.meta.short_id(s.id), s.source, moment(s.last_active), s.message_count, s.title or preview)
        for s, preview in previews
    ]
    print_table("", ("session", "source", "last active", "messages", "about"), rows, empty)


@sessions.command("search")
@click.argument("query")
@limit_results_option(1000, "At most this many.", default=10)
@source_options
@click.option(
    "--role", type=click.Choice(["user", "assistant", "tool", "system"]), help="Only messages of this role."
)
@time_options("messages")
@click.option("--sort", type=click.Choice(["newest", "oldest"]), help="By time instead of by relevance.")
@with_memory(begins=False)
def search_messages(
    memory: Memory, query: str, after: str | None, before: str | None, sources: Sequence[str], **filters: Any
) -> None:
    """Find messages by QUERY: a question as you would ask it, "a phrase", AND, OR, NOT, prefix*."""
    db = memory.sessions
    since = db.past.read_moment(after) if after else None
    until = db.past.read_moment(before) if before else None
    hits = db.past.search(query, everybody=True, since=since, until=until, source=sources, **filters)
    print_result(hits, lambda: print_hits(db, hits))
    note_unread(db.past.unread())
    finish(click.get_current_context(), list(map(redact, db.past.problems_of(hits))))


def print_hits(db: SessionStore, hits: Iterable[SearchHit]) -> None:
    """Print the messages that a search returned."""
    rows = [
        (
            db.meta.short_id(hit.session_id),
            hit.message_id,
            moment(hit.timestamp),
            _speaker(hit),
            hit.text if 0 < len(hit.text) <= MAX_TEXT_CHARS else hit.snippet,
        )
        for hit in hits
    ]
    print_table("", ("session", "message", "when", "who", "text"), rows, "No message matches.")


@sessions.command("show")
@click.argument("session_id")
@with_memory(begins=False)
def show_session(memory: Memory, session_id: str) -> None:
    """Print the messages of SESSION_ID; the beginning of an id, or a title, is enough when it is unique."""
    messages = memory.sessions.get_messages(named_session(memory.sessions, session_id).id)
    print_result(messages, lambda: _print_messages(messages))


def _print_messages(messages: Iterable[StoredMessage]) -> None:
    for message in messages:
        print_styled((f"{moment(message.timestamp)}  {printable(_speaker(message))}", "bold"))
        click.echo(f"{printable(message.content)}\n")


def _speaker(message: StoredMessage | SearchHit) -> str:
    """Return who speaks, with the origin of a text that nobody of the session said."""
    speaker = message.speaker or message.role
    return (
        speaker
        if may_command(message.origin) or message.origin == "user"
        else f"(from {ORIGIN_NAMES[message.origin]}) {speaker}"
    )


@sessions.command()
@click.argument("session_id")
@click.argument("title")
@with_memory(begins=False)
def rename(memory: Memory, session_id: str, title: str) -> None:
    """Give the conversation SESSION_ID the title TITLE; an empty one removes it."""
    session = named_session(memory.sessions, session_id)
    stored = rename_conversation(memory.sessions, session.id, title)
    print_done(f"title: {stored}" if stored else "the title was removed", session=session.id, title=stored)


@sessions.command()
@click.argument("session_id")
@click.option("--off", is_flag=True, help="Bring it back into the lists.")
@with_memory(begins=False)
def archive(memory: Memory, session_id: str, off: bool) -> None:
    """Take the conversation SESSION_ID out of all lists. It stays whole, and search and recall still find it."""
    _mark(memory, session_id, "archived", on=not off)


@sessions.command()
@click.argument("session_id")
@click.option("--off", is_flag=True, help="Let it be pruned again.")
@with_memory(begins=False)
def pin(memory: Memory, session_id: str, off: bool) -> None:
    """Keep the conversation SESSION_ID: neither `sessions prune` nor sessions.retention deletes it."""
    _mark(memory, session_id, "pinned", on=not off)


def _mark(memory: Memory, session_id: str, mark: Mark, *, on: bool) -> None:
    session = named_session(memory.sessions, session_id)
    mark_conversation(memory.sessions, session.id, mark, on=on)
    print_done(mark if on else f"no longer {mark}", session=session.id, **{mark: on})


# ---------------------------------------------------------------------- maintenance


@contextlib.contextmanager
def _store(ctx: click.Context) -> Iterator[SessionStore | None]:
    """Open the home's session store alone, because maintenance must work when nothing else does. None before it is made."""
    with home_to_read(ctx) as home:
        config = load_config(home)
        if not config.storage.url and _is_unmade(home.state_db):
            yield None
            return
        with contextlib.closing(open_sessions(home, config, extensions=extensions_of(ctx))) as db:
            yield db


def _is_unmade(path: Path) -> bool:
    """Return True if there was no store at this path yet."""
    return not (path.exists() or wal_of(path).exists() or repaired_copy(path).exists() or lost_store(path))


@sessions.command("check")
@click.pass_context
def check_store(ctx: click.Context) -> None:
    """Look for damage in the store and its search index. Exit code 1 when there is any."""
    with _store(ctx) as db:
        faults = db.check() if db else []
    text = printable("\n".join(faults)) or ("The store is whole." if db else NOTHING_STORED)
    print_result({"ok": not faults, "faults": faults}, lambda: click.echo(text))
    if faults:
        ctx.exit(1)


@sessions.command("repair")
@yes_option
@click.pass_context
def repair_damaged(ctx: click.Context) -> None:
    """Copy a damaged store, then save what can be read into a new one in its place.

    Stop every program that uses this home first.
    """
    path = home_of(ctx).state_db
    with contextlib.suppress(ConfigError):  # a repair must work when nothing else does
        if url := load_config(home_of(ctx)).storage.url:
            raise SessionError(
                f"the sessions are on the server {url!r}, in no file", "restore a backup of the server"
            )
    if _is_unmade(path) or (path.exists() and _is_whole(path)):
        print_done(NOTHING_STORED if _is_unmade(path) else "The store is whole, so nothing was repaired.")
        return
    confirm(f"Save what can be read of {path} into a new store? The old files are kept.")
    result = maintenance.repair(path, progress=_print_progress)
    print_result(result, lambda: _print_repair(result))


def _is_whole(path: Path) -> bool:
    with contextlib.suppress(StorageError), contextlib.closing(SessionStore(path)) as db:
        return not db.check()
    return False


def _print_repair(result: maintenance.Repair) -> None:
    for table, saved in result.saved.items():
        lost = result.lost[table]
        click.echo(f"{table}: {saved} saved" + (f", up to {lost} lost" if lost else ""))
    click.echo(f"The files as they were are in {result.kept}; delete them when nothing is missing.")


@sessions.command("rebuild")
@click.pass_context
def rebuild_index(ctx: click.Context) -> None:
    """Make the search index anew from the messages, and their vectors for search by meaning.

    The vectors are then by the model of this machine, also on a server with another one's. Others may go on writing;
    until the end a search finds less.
    """
    with _store(ctx) as db:
        if db is None:
            print_result({"messages": 0, "vectors": 0}, lambda: click.echo(NOTHING_STORED))
            return
        total = db.counts()["messages"]
        done = db.index.rebuild(lambda count: _print_progress("search index", count, total))
        vectors = maintenance.rebuild_vectors(db, partial(_print_progress, "vectors"))
    by_meaning = f" {vectors:,} can be found by meaning." if vectors else ""
    text = f"{counted(done, 'message')} indexed.{by_meaning}"
    print_result({"messages": done, "vectors": vectors}, lambda: click.echo(text))


@sessions.command("vacuum")
@click.option("--dry-run", is_flag=True, help="Only say how much space there is to win.")
@click.pass_context
def vacuum_store(ctx: click.Context, dry_run: bool) -> None:
    """Take deleted messages out of the file and give their space back.

    Needs as much free space as the store has, and as much again for temporary files. Others that write wait meanwhile;
    with a store of gigabytes stop them, since after half a minute they give up.
    """
    with _store(ctx) as db:
        if db is None:
            print_result({"before": 0, "after": 0, "dry_run": dry_run}, lambda: click.echo(NOTHING_STORED))
            return
        result = maintenance.vacuum(db, dry_run=dry_run)
    verb = "would be at most" if dry_run else "is"
    text = f"The store was {_mebibytes(result.before)} and {verb} {_mebibytes(result.after)}."
    facts = {"before": result.before, "after": result.after, "dry_run": dry_run}
    print_result(facts, lambda: click.echo(text))


@sessions.command("prune")
@click.option(
    "--older-than",
    type=WholeNumber(0, 1_000_000),
    metavar="DAYS",
    help="Without a message for this many days.",
)
@click.option("--before", metavar="TIME", help="Without a message since before this time, as 2026-01-31.")
@source_options
@click.option("--user", metavar="USER", help="Only sessions of this user, as telegram:42.")
@click.option("--archived", is_flag=True, help="Only archived sessions.")
@click.option(
    "--max-messages", type=WholeNumber(0), metavar="N", help="Only sessions with at most N messages."
)
@click.option(
    "--keep",
    type=WholeNumber(0),
    default=0,
    metavar="N",
    help="Never the N conversations that were active last.",
)
@dry_run_option
@yes_option
@with_memory(begins=False)
def prune_idle(
    memory: Memory, older_than: int | None, before: str | None, dry_run: bool, **filters: Any
) -> None:
    """Delete old conversations, and what of them still waits for the provider. A conversation goes as a whole.

    All filters must fit. Conversations that `sessions pin` marked are never deleted. The key sessions.retention deletes
    old conversations without this command.
    """
    if (older_than is None) == (before is None):
        raise click.UsageError("give --older-than or --before")
    limit = memory.sessions.past.read_moment(before) if before else time.time() - DAY_S * (older_than or 0)
    doomed = maintenance.idle_sessions(memory.sessions, limit, **filters)
    if doomed and not (dry_run or has_yes()):
        _confirm(memory.sessions, doomed)
        # While the question was open, one of them may have been continued.
        idle = set(maintenance.idle_sessions(memory.sessions, limit, **filters))
        doomed = [session_id for session_id in doomed if session_id in idle]
    _delete(memory, doomed, dry_run=dry_run)


@sessions.command("delete")
@click.argument("session_id")
@dry_run_option
@yes_option
@with_memory(begins=False)
def delete_conversation(memory: Memory, session_id: str, dry_run: bool) -> None:
    """Delete one conversation, with all that was compressed, branched or delegated in it, and what it was branched from.

    SESSION_ID is an id of hermes-memory sessions list, the beginning of one, or a title. What waits for the provider goes
    too; what the provider took is in the provider's hands.
    """
    doomed = sorted(memory.sessions.lineage(named_session(memory.sessions, session_id).id))
    if not (dry_run or has_yes()):
        _confirm(memory.sessions, doomed)
    _delete(memory, doomed, dry_run=dry_run)


def _confirm(db: SessionStore, doomed: list[str]) -> None:
    """Show the sessions to delete, and end the command unless a person agrees."""
    _print_doomed(db, doomed)
    confirm(f"Delete {counted(len(doomed), 'session')} for good?")


def _delete(memory: Memory, doomed: list[str], *, dry_run: bool) -> None:
    """Delete these sessions and print the result."""
    for done, _ in enumerate(delete_sessions(memory, () if dry_run else doomed), 1):
        _print_progress("sessions deleted", done, len(doomed))
    facts = {"sessions": doomed, "deleted": 0 if dry_run else len(doomed), "dry_run": dry_run}
    if dry_run:
        print_result(facts, lambda: _print_doomed(memory.sessions, doomed))
    else:
        print_result(facts, lambda: click.echo(deletion_message(memory, len(doomed))))


def _print_doomed(db: SessionStore, ids: Iterable[str]) -> None:
    stored = [session for session in map(db.get_session, ids) if session is not None]
    _print_sessions(
        db, [(s, "" if s.title else _beginning(db, s.id)) for s in stored], "No session is that old."
    )


def _beginning(db: SessionStore, session_id: str) -> str:
    """Return the beginning of what the person said first: a host may give its sessions no titles."""
    messages = db.get_messages(session_id, limit=5)
    return next((clip(fold_space(m.content), 60) for m in messages if m.role == "user"), "")


def _print_progress(unit: str, done: int, total: int = 0) -> None:
    """Print a counter on standard error if it is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r{unit}: {done}{f' of {total}' if total else ''}  ", err=True, nl=done == total)


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"

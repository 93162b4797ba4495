"""The databases: can they be read and written, are they whole, and do the search indexes fit the rows."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from hermes_core.errors import DatabaseCorrupt, HermesError
from hermes_core.health.files import holder, stopping
from hermes_core.health.finding import Finding, failed
from hermes_core.home import HermesHome
from hermes_core.safety.terminal import counted
from hermes_core.sessions.db import SessionDB
from hermes_core.storage.faults import TranslatedErrors, file_errors
from hermes_core.storage.salvage import parts_of
from hermes_core.storage.sqlite import Database, wal_of

PATIENCE = 2.0
"""Seconds that a probe waits for a lock; a turn waits longer, and a writer of ours holds it for milliseconds."""

_INDEX = "FTS5"


def examine_databases(home: HermesHome) -> Iterator[Finding]:
    """Each database with its journal mode, or what is wrong with it."""
    for path in databases(home):
        what = path.relative_to(home.path).as_posix()
        if _is_here(path):
            yield from _examine(path, what, home)
        else:
            yield Finding(what, "ok", "made when it is first needed")


def databases(home: HermesHome) -> tuple[Path, ...]:
    """The files that are SQLite databases of ours."""
    return home.state_db, home.outbox_db, home.journal_db, home.skills_journal_db


def unusable(home: HermesHome) -> list[Finding]:
    """Databases that can't be read or written now; quick, nothing is checked page by page."""
    found = []
    for path in databases(home):
        if _is_here(path):
            try:
                _probe(path)
            except HermesError as exc:
                found.append(_fault(path.relative_to(home.path).as_posix(), path, exc))
    return found


def _examine(path: Path, what: str, home: HermesHome) -> Iterator[Finding]:
    try:
        mode = _probe(path)
        damage = _damage(path)
        if path == home.state_db and not damage:
            _count(path)
    except HermesError as exc:
        yield _fault(what, path, exc)
        return
    if any(_INDEX not in line for line in damage):
        yield failed(what, f"it is damaged: {_first(damage)}", rescue(path))
        return
    size = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*") if part.suffix != ".lock")
    yield Finding(what, "ok", f"whole, {size / 1024:,.0f} KB, journal {mode}")
    if path == home.state_db:
        yield from _index(path, damage)


def _index(path: Path, damage: list[str]) -> Iterator[Finding]:
    """Whether search finds what the rows say, and whether they are all there."""
    db = SessionDB(path)
    try:
        yield from (failed("messages", line, "") for line in db.lost())
        faults = damage or db.check_index()
        if not faults:
            yield Finding("search index", "ok", f"{counted(db.counts()['messages'], 'message')} can be found")
            return
        yield Finding(
            "search index",
            "failed",
            f"it does not fit the messages: {_first(faults)}",
            "hermes-memory doctor --fix makes it anew from the messages",
            repair=lambda: _rebuild(path),
        )
    finally:
        db.close()


def _count(path: Path) -> None:
    """Open the store as its own room does, which knows what it held. Raises `StorageError`."""
    with contextlib.closing(SessionDB(path)) as db:
        db.counts()


def _rebuild(path: Path) -> str:
    db = SessionDB(path)
    try:
        return f"made anew from {counted(db.rebuild_index(), 'message')}"
    finally:
        db.close()


def _is_here(path: Path) -> bool:
    """Whether there is a database, or what was left of one when it was moved away."""
    return path.exists() or (wal_of(path).exists() and wal_of(path).stat().st_size > 0)


def _probe(path: Path) -> str:
    """Read and take the write lock, changing nothing; the journal mode. Raises `StorageError`."""
    if not path.exists():
        raise DatabaseCorrupt("its write-ahead log is here without it")
    with (
        TranslatedErrors(path),
        file_errors(path),
        contextlib.closing(
            sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw", uri=True, timeout=PATIENCE, isolation_level=None
            )
        ) as connection,
    ):
        mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return mode


def _damage(path: Path) -> list[str]:
    database = Database(path, read_only=True, busy_timeout=PATIENCE)
    try:
        return database.integrity()
    finally:
        database.close()


def _fault(what: str, path: Path, exc: HermesError) -> Finding:
    if isinstance(exc, DatabaseCorrupt):
        return failed(what, exc.message, rescue(path))
    if "locked" in exc.message:
        owner = holder(path) or holder(path.with_name(f"{path.name}-shm"))
        return failed(what, f"{owner or 'another program'} keeps it locked", stopping(owner))
    if not os.access(path.parent, os.W_OK):
        return failed(
            what,
            f"it can't be used: {str(path.parent)!r} can't be written",
            "make the folder writable, or use another HERMES_HOME",
        )
    return failed(what, exc.message, exc.remedy)


def rescue(path: Path) -> str:
    """What a person does with a damaged database."""
    if path.name == "state.db":
        return "stop every hermes-memory process, then put a backup in its place or run: hermes-memory sessions repair"
    aside = str(path.with_name(f"{path.name}.damaged"))
    # The log goes along: it holds rows of this file, and beside another one it would be in the way.
    away = " && ".join(
        f"mv {str(part)!r} {aside + part.name.removeprefix(path.name)!r}" for part in parts_of(path)
    )
    if path.name.endswith("journal.db"):
        whole = "the skills" if path.name.startswith(".") else "MEMORY.md and USER.md"
        return f"stop every hermes-memory process, then move it away: {away}; only history and undo are lost, {whole} are whole"
    if not path.exists():
        return f"stop every hermes-memory process and put the database or a backup in its place, or move it away: {away}"
    return (
        f"stop every hermes-memory process and put a backup in its place, or rescue what can be read: {away} && "
        f"sqlite3 {aside!r} .recover | sqlite3 {str(path)!r}"
    )


def _first(lines: list[str]) -> str:
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{lines[0]}{more}"

"""Checks of the databases: access, integrity, the search index of state.db, and search by meaning."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from hermes_core.config import Config, load_config
from hermes_core.errors import ConfigError, DatabaseCorrupt, HermesError
from hermes_core.health.files import holder, stop_remedy
from hermes_core.health.finding import Finding, failed
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import extension_remedy
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted
from hermes_core.sessions.search.protocol import MIN_COVERAGE, VectorIndex
from hermes_core.sessions.session_store import SessionStore
from hermes_core.shell_words import shell_line, shell_moves
from hermes_core.storage.inventory import Inventory, LostStore
from hermes_core.storage.sqlite import Database, TranslatedErrors, database_files, file_errors, wal_of

PROBE_TIMEOUT_S = 2.0
"""Seconds that a probe waits for a lock. Writers of this package hold it for milliseconds."""

READ_NOW = "hermes-memory sessions rebuild"
"""Command that makes the vectors of all messages."""

BEGIN_ANEW = "hermes-memory doctor --accept-loss"
"""Command after which a store that was moved away begins anew."""

STATUS_CHECK_S = 3.0
"""Seconds that a status checks each database for damage: all pages of a gigabyte or so. A doctor checks all of a larger one."""


def databases(home: HermesHome) -> tuple[Path, ...]:
    """Return the SQLite files of a home, without those of sessions and notes if these are on a server."""
    return (home.outbox_db,) if _server_config(home) else (home.state_db, home.outbox_db)


def examine_databases(home: HermesHome) -> Iterator[Finding]:
    """Yield a finding for each database, with its journal mode or its fault."""
    if _server_config(home) and _exists(home.state_db):
        yield Finding("state.db", "note", "not read: storage.url names a server", "keep it, or move it away")
    for path in sorted(home.path.glob(f"{home.state_db.name}.moved-*")):
        aside = "not read: a later move put it aside"
        yield Finding(path.name, "note", aside, "delete it when nothing is missing")
    losses = {lost.name: lost for lost in _losses(home)}
    for path in databases(home):
        name = path.relative_to(home.path).as_posix()
        if lost := losses.get(name):
            yield failed(name, lost.message, lost.remedy)
        elif _exists(path):
            yield from _examine(path, name, is_state=path == home.state_db)
        elif path != home.outbox_db:  # only a manager without a session store makes that file
            yield Finding(name, "ok", "made when it is first needed")
        losses.pop(name, None)
    yield from (failed(lost.name, lost.message, lost.remedy) for lost in losses.values())


def _server_config(home: HermesHome) -> Config | None:
    """Return the configuration if it names a server for the sessions; None if it does not, or can't be read."""
    try:
        config = load_config(home)
    except ConfigError:  # which has a finding of its own
        return None
    return config if config.storage.url else None


def _losses(home: HermesHome) -> list[LostStore]:
    """Return the stores that were lost, without those of sessions and notes if these are on a server."""
    on_server = _server_config(home) is not None
    return [lost for lost in Inventory(home.path).lost() if not (on_server and lost.is_replaced_by_server)]


def unusable(home: HermesHome) -> list[Finding]:
    """Return findings about lost stores, and about databases that are damaged or can't be read or written now."""
    losses = _losses(home)
    findings = [failed(lost.name, lost.message, lost.remedy) for lost in losses]
    for path in databases(home):
        name = path.relative_to(home.path).as_posix()
        if _exists(path) and not any(lost.path == path for lost in losses):
            try:
                _probe(path)
                damage = [line for line in _damage(path, STATUS_CHECK_S) if "FTS5" not in line]
            except HermesError as exc:
                findings.append(_fault(name, path, exc))
            else:
                if damage:
                    findings.append(failed(name, f"it is damaged: {_first(damage)}", rescue(path)))
    return findings


def vector_state(memory: Memory) -> str:
    """Return the state of search by meaning in a few words, without loading the model."""
    if memory.config.recall.semantic == "off" or not memory.config.sessions.search_enabled:
        return "off"
    vectors = memory.sessions.past.vectors
    if vectors is None:
        return "does not work" if memory.sessions.past.vector_problem else "not installed"
    if vectors.mismatch:
        return "by words only, because another model made the vectors"
    if vectors.remedy():
        return f"by words only: {vectors.description()}"
    if not memory.sessions.database.exists or not memory.sessions.counts()["messages"]:
        return "by words only until messages are stored"
    missing = vectors.missing()
    if missing and not _are_enough(memory, vectors, missing):
        return f"by words only: {counted(missing, 'message')} to read, at once by `{READ_NOW}`"
    is_remote = memory.config.recall.embeddings == "http"
    parts = [f"on by {memory.config.recall.embeddings_model}" if is_remote else "on", vectors.description()]
    parts += [f"{counted(missing, 'message')} to read"] if missing else []
    return ", ".join(filter(None, parts))


def _are_enough(memory: Memory, vectors: VectorIndex, missing: int) -> bool:
    """Return True if so many messages have vectors that a search compares them."""
    if memory.sessions.database.shared:  # which counts the messages of each owner by themselves
        return missing <= (1 - MIN_COVERAGE) * memory.sessions.counts()["messages"]
    coverage = vectors.ask_coverage("Where is it?", None)
    return coverage is None or coverage().is_enough


def examine_vectors(memory: Memory) -> list[Finding]:
    """Return the findings about search by meaning, after trying its model."""
    unused = memory.config.recall.unused_setting(search_enabled=memory.config.sessions.search_enabled)
    findings = [Finding("search by meaning", "warning", unused)] if unused else []
    vectors = memory.sessions.past.vectors
    if memory.sessions.past.vector_problem or (vectors is not None and not vectors.works()):
        fault = memory.sessions.past.vector_fault
        return [*findings, failed("search by meaning", fault, "or write `semantic: off` under `recall:`")]
    if vectors is None and vector_state(memory) == "not installed":
        adding = extension_remedy(memory.internals.extensions, "semantic")
        return [*findings, Finding("search by meaning", "ok", f"not installed; to add it, {adding}")]
    state, remedy = vector_state(memory), vectors.remedy() if vectors is not None else ""
    if READ_NOW in state:
        remedy = f"run {READ_NOW}, or let a program that stays open read them"
    if not remedy:
        return [*findings, Finding("search by meaning", "ok", state)]
    return [*findings, Finding("search by meaning", "note", state, remedy)]


def rescue(path: Path) -> str:
    """Return what a person does about a damaged database."""
    if path.name == "state.db":
        return "stop every hermes-memory process, then put a backup in its place or run: hermes-memory sessions repair"
    aside = str(path.with_name(f"{path.name}.damaged"))
    # The log is moved as well: it holds rows of this file, and SQLite would not accept it beside another one.
    move_away = shell_moves(
        (file, aside + file.name.removeprefix(path.name)) for file in database_files(path)
    )
    if not path.exists():
        return f"stop every hermes-memory process and put the database or a backup in its place, or move it away: {move_away}, and then {BEGIN_ANEW}"
    return (
        f"stop every hermes-memory process and put a backup in its place, or rescue what can be read: {move_away}, and then "
        f"{shell_line(('sqlite3', aside, '.recover'))} | {shell_line(('sqlite3', path))}"
    )


def _examine(path: Path, name: str, *, is_state: bool) -> Iterator[Finding]:
    try:
        mode = _probe(path)
        damage = _damage(path)
        if is_state and not damage:
            with contextlib.closing(SessionStore(path)) as sessions:  # which also checks its schema
                sessions.counts()
    except HermesError as exc:
        yield _fault(name, path, exc)
        return
    # A damaged search index can be made again from the messages.
    if any("FTS5" not in line for line in damage):
        yield failed(name, f"it is damaged: {_first(damage)}", rescue(path))
        return
    size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*") if file.suffix != ".lock")
    yield Finding(name, "ok", f"whole, {size / 1024:,.0f} KB, journal {mode}")
    if not is_state:
        return
    with contextlib.closing(SessionStore(path)) as sessions:
        faults = damage or sessions.index.check()
        if not faults:
            count = counted(sessions.counts()["messages"], "message")
            yield Finding("search index", "ok", f"{count} can be found")
            return
    detail = f"it does not fit the messages: {_first(faults)}"
    remedy = "hermes-memory doctor --fix makes it anew from the messages"
    yield Finding("search index", "failed", detail, remedy, repair=lambda: _rebuild(path))


def _damage(path: Path, timeout: float | None = None) -> list[str]:
    """Check the file page by page; return a line for each damage. After `timeout` seconds, return what is known: nothing."""
    with contextlib.closing(Database(path, read_only=True, busy_timeout=PROBE_TIMEOUT_S)) as database:
        if timeout is not None:
            until = time.monotonic() + timeout
            database.connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        try:
            return database.integrity()
        except sqlite3.OperationalError as exc:
            if "interrupted" not in str(exc):
                raise
            return []


def _rebuild(path: Path) -> str:
    with contextlib.closing(SessionStore(path)) as sessions:
        return f"made anew from {counted(sessions.index.rebuild(), 'message')}"


def _exists(path: Path) -> bool:
    """Return whether there is a database, or the log of one that was moved away."""
    return path.exists() or (wal_of(path).exists() and wal_of(path).stat().st_size > 0)


def _probe(path: Path) -> str:
    """Read the file and take its write lock without changing it; return the journal mode. Raises `StorageError`."""
    if not path.exists():
        raise DatabaseCorrupt("its write-ahead log is here without it")
    uri = f"file:{quote(str(path))}?mode=rw"
    with (
        TranslatedErrors(path),
        file_errors(path),
        contextlib.closing(
            sqlite3.connect(uri, uri=True, timeout=PROBE_TIMEOUT_S, isolation_level=None)
        ) as connection,
    ):
        mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return mode


def _fault(name: str, path: Path, exc: HermesError) -> Finding:
    if isinstance(exc, DatabaseCorrupt):
        return failed(name, exc.message, rescue(path))
    if "locked" in exc.message:
        owner = holder(path) or holder(path.with_name(f"{path.name}-shm"))
        return failed(name, f"{owner or 'another program'} keeps it locked", stop_remedy(owner))
    if not os.access(path.parent, os.W_OK):
        remedy = "make the folder writable, or use another HERMES_HOME"
        return failed(name, f"it can't be used: {str(path.parent)!r} can't be written", remedy)
    return failed(name, exc.message, exc.remedy)


def _first(lines: list[str]) -> str:
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{lines[0]}{more}"

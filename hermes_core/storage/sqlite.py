"""SQLite as this house uses it: one writer at a time, a connection a thread, named migrations, no silent damage."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.storage.faults import RESTORE, TranslatedErrors, file_errors, misfits, refuse_others
from hermes_core.storage.files import PRIVATE_FILE, FileSystem, ensure_folder, locked, sync_folder
from hermes_core.storage.files import file_system as file_system_of
from hermes_core.storage.migrations import Migration, migrate, roll_back
from hermes_core.storage.turns import Turns

log = logging.getLogger(__name__)

MINIMUM_SQLITE = (3, 37, 0)
"""STRICT tables and the `unixepoch` of later code; Python 3.11 on every platform we know ships a newer one."""

BUSY_TIMEOUT = 30.0
"""Seconds that a writer waits in line for another process. Transactions of ours last milliseconds."""

IN_VAIN = 1 / 30
"""Share of that time for who waited all of it in vain, until the file was free once: the other program hangs."""

AT_THE_END = 1.0
"""Seconds that a writer waits in line when its program ends."""

MUCH_FREE = 8 * 1024 * 1024
"""Bytes of free pages that are worth giving back when nobody asked."""

JournalMode = Literal["auto", "wal", "delete"]
Synchronous = Literal["NORMAL", "FULL"]

_warned_about: set[str] = set()
_open: dict[sqlite3.Connection, Path] = {}
"""Each open connection and its file. A fork frees what other threads had: to close a connection there waits for ever, if its
thread was in the midst of a statement."""
_of_parent: set[str] = set()
"""Files that were open in the process that this one was forked from, links followed."""


class _Held:
    """A thread's connection, which waits `patience` seconds for others; closed with the thread that it belongs to."""

    def __init__(self, connection: sqlite3.Connection, path: Path, patience: float) -> None:
        self.connection = connection
        self.patience = patience
        self.thread = threading.get_ident()
        self.process = os.getpid()
        self.closed = False
        _open[connection] = path

    def close(self) -> None:
        self.closed = True
        if self.process == os.getpid():
            _open.pop(self.connection, None)
            self.connection.close()

    def __del__(self) -> None:
        self.close()


class _Cursor(sqlite3.Cursor):
    """Raises our errors while rows are read."""

    translated: contextlib.AbstractContextManager[None] = contextlib.nullcontext()

    def fetchone(self) -> Any:
        with self.translated:
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with self.translated:
            return super().fetchall()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        with self.translated:
            while rows := super().fetchmany(100):
                yield from rows


class Database:
    """One SQLite file, opened when first used: a connection for each thread, transactions that take the write lock.

    `migrations` are named functions, run in their order, one transaction each with its record. Two processes may open
    the same file at once; each migration runs exactly once. Files are made with mode 0600.

    A damaged file is refused, and `repair` says in the error what to do. An empty one is a new one, unless a
    write-ahead log stands beside it, or `held_rows` tells that it once held something. `on_open` sees the first
    connection once the file is ready. `take_turns` is for a file that several processes write to all the time; that it
    is still at its path is looked at before each transaction.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[Migration] = (),
        *,
        journal_mode: JournalMode = "auto",
        synchronous: Synchronous = "FULL",
        secure_delete: bool = False,
        read_only: bool = False,
        busy_timeout: float = BUSY_TIMEOUT,
        file_system: Callable[[Path], FileSystem] = file_system_of,
        repair: str = RESTORE,
        held_rows: Callable[[], bool] = lambda: False,
        on_open: Callable[[sqlite3.Connection], None] = lambda _connection: None,
        take_turns: bool = False,
    ) -> None:
        names = [name for name, _ in migrations]
        if len(set(names)) != len(names):
            raise StorageError(f"two migrations share a name in {names!r}", "give each its own")
        self.path = path
        self.journal_mode: str = ""
        self._migrations = tuple(migrations)
        self._wanted_mode = journal_mode
        self._synchronous = synchronous
        self._secure_delete = secure_delete
        self._read_only = read_only
        self._busy_timeout = self._patience = busy_timeout
        self._file_system = file_system
        self._repair = repair
        self._translated = TranslatedErrors(path, repair)
        self._held_rows = held_rows
        self._on_open = on_open
        self._turns = Turns(path) if take_turns else None
        self._local = threading.local()
        self._open_lock = threading.Lock()
        self._write_lock = threading.RLock()
        self._ready = False
        self._closed = False
        self._process = self._inode = 0
        self._all_held: weakref.WeakSet[_Held] = weakref.WeakSet()

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection, in autocommit mode, with rows that answer to names.

        Raises `DatabaseUnavailable` or `DatabaseCorrupt`.
        """
        if self._process and self._process != os.getpid():
            self._refuse_fork()
        held: _Held | None = getattr(self._local, "held", None)
        if held is not None and not held.closed:
            if not self._closed or held.connection.in_transaction:
                return held.connection
            held.close()
        with self._open_lock:
            if self._closed:
                raise DatabaseUnavailable(f"{str(self.path)!r} was closed", "open it again")
            if _of_parent and os.path.realpath(self.path) in _of_parent:
                raise _opened_before_fork(self.path)
            with self._translated, file_errors(self.path):
                try:
                    held = _Held(self._connect(), self.path, self._patience)
                except sqlite3.DatabaseError as exc:
                    self._in_vain(exc)
                    raise
            self._process = os.getpid()
            self._local.held = held
            self._all_held.add(held)
            return held.connection

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        """Run one statement on this thread's connection; damage that shows only while rows are read is ours as well."""
        with self._translated:
            cursor = self.connection.cursor(_Cursor)
            cursor.translated = self._translated
            return cursor.execute(sql, parameters)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the file's write lock, commit when the block ends, roll back when it raises. Nests within a thread.

        Threads of this process take turns before SQLite is asked, so that they never time out on one another.
        """
        self._refuse_fork()
        with self._write_lock, self._translated:
            connection = self.connection
            if connection.in_transaction:
                yield connection
                return
            with self._turns.wait(self._patience) if self._turns else contextlib.nullcontext(True) as in_time:
                patience = self._patience if in_time else self._busy_timeout * IN_VAIN
                self._wait_at_most(patience)
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    self._patience = self._busy_timeout if in_time else patience
                    if self._turns is not None:
                        self._refuse_moved()
                    yield connection
                    connection.execute("COMMIT")
                except sqlite3.DatabaseError as exc:
                    self._in_vain(exc)
                    raise
                finally:
                    roll_back(connection)

    def write(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run one statement that changes rows, as a transaction of its own or in the one under way; how many rows.

        It is durable as one is, and asks SQLite once, where a transaction asks four times and gives other threads
        the interpreter each time.
        """
        connection = self.connection
        with self._write_lock:
            try:
                if self._turns is None or connection.in_transaction:
                    return connection.execute(sql, parameters).rowcount
                with self._turns.wait(self._patience):
                    return connection.execute(sql, parameters).rowcount
            except sqlite3.DatabaseError as exc:
                self._in_vain(exc)
                self._wait_at_most(self._patience)
                with self._translated:
                    raise exc

    @property
    def moved(self) -> bool:
        """Whether the file that was opened was moved, deleted or replaced since."""
        return self._ready and _inode(self.path) != self._inode

    def hurry(self) -> None:
        """Wait for other processes only shortly from now on: the program ends."""
        self._busy_timeout = min(self._busy_timeout, AT_THE_END)
        self._patience = min(self._patience, self._busy_timeout)

    def give_back(self) -> None:
        """Make the file small where most of it is free, which is quick then: for an end. Not while others write to it."""
        if not self._ready or self._closed or self._forked:
            return
        with contextlib.suppress(sqlite3.Error, StorageError):
            connection = self.connection
            size, pages, free = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
            if size * free > MUCH_FREE and free > pages * 3 / 4:
                self._wait_at_most(0)
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Let nobody use the file any more; the write-ahead log is folded in by SQLite at the last connection.

        Connections of other living threads are closed when that thread ends or next comes here: SQLite crashes the
        process when one is closed in the middle of its statement. In a fork nothing is done: all is the parent's.
        """
        if self._forked:
            return
        with contextlib.ExitStack() as taken:
            free = [lock for lock in (self._open_lock, self._write_lock) if lock.acquire(timeout=AT_THE_END)]
            for lock in free:
                taken.callback(lock.release)
            self._closed = True
            if len(free) < 2:
                return  # a thread is in a transaction, or waits for one; what is its own is closed with it
            living = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
            for held in list(self._all_held):
                if held.thread not in living:
                    held.close()
            if self._turns is not None:
                self._turns.close()

    def backup(self, target: Path) -> None:
        """Copy the database, whole and consistent, to `target`, also while others write; an older copy is replaced at the end."""
        partial = target.with_name(f".{target.name}.partial")
        with locked(target, BUSY_TIMEOUT), self._translated, file_errors(target):
            partial.unlink(missing_ok=True)
            try:
                os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
                with contextlib.closing(sqlite3.connect(partial)) as copy:
                    self.connection.backup(copy)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
            sync_folder(target.parent)

    def integrity(self) -> list[str]:
        """What SQLite's own check finds wrong, a line each; empty when the file is whole."""
        with self._translated:
            rows = self.connection.execute("PRAGMA integrity_check").fetchall()
        return [row[0] for row in rows if row[0] != "ok"]

    @contextlib.contextmanager
    def sound(self) -> Iterator[None]:
        """Tell damage from a mistake of ours: what fails in the block because a value is not what was ever stored, in a
        file that SQLite's own check finds damaged, is `DatabaseCorrupt`; everything else is raised as it is.
        """
        try:
            yield
        except (TypeError, ValueError, AttributeError, OverflowError) as exc:
            with self._translated:
                fault = self.connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if fault == "ok" and not isinstance(exc, json.JSONDecodeError):
                raise
            what = str(exc) if fault == "ok" else fault
            raise DatabaseCorrupt(f"{str(self.path)!r} is damaged ({what})", self._repair) from exc

    def _in_vain(self, exc: sqlite3.DatabaseError) -> None:
        """Wait shortly the next time, if another process kept the file locked for all of this one."""
        if "is locked" in str(exc):
            self._patience = self._busy_timeout * IN_VAIN

    def _wait_at_most(self, seconds: float) -> None:
        """How long this thread's connection waits for other processes from now on."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is not None and not held.closed and held.patience != seconds:
            held.connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
            held.patience = seconds

    @property
    def _forked(self) -> bool:
        return self._process not in (0, os.getpid())

    def _refuse_fork(self) -> None:
        """SQLite's locks don't pass to a fork, so that a connection used there damages the file; and a lock of ours that
        a thread held in the parent is held for ever.
        """
        if self._forked:
            raise _opened_before_fork(self.path)

    def _refuse_moved(self) -> None:
        """Nobody would find what is written to a file that is not at its path any more; without a log SQLite looks itself."""
        if self.journal_mode == "wal" and self.moved:
            raise DatabaseUnavailable(
                f"{str(self.path)!r} was moved, deleted or replaced since this program opened it",
                "start this program again; nothing was written",
            )

    def _connect(self) -> sqlite3.Connection:
        if not self._read_only and not self._ready:
            self._prepare_file()
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode={'ro' if self._read_only else 'rw'}",
            uri=True,
            timeout=self._patience,
            isolation_level=None,
            check_same_thread=False,
        )
        with contextlib.ExitStack() as undo:
            undo.callback(connection.close)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            if not self._read_only:
                self._configure(connection)
            undo.pop_all()
        return connection

    def _prepare_file(self) -> None:
        if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
            needed = ".".join(map(str, MINIMUM_SQLITE))
            raise DatabaseUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old", f"{needed} or newer is needed"
            )
        ensure_folder(self.path.parent)
        # In this order: the log of a file that is just being made appears after its first page.
        had_rows = self._held_rows() or _size(wal_of(self.path)) > 0
        if had_rows and not _size(self.path):
            raise DatabaseCorrupt(
                f"{str(self.path)!r} is empty, though it held rows"
                if self.path.exists()
                else f"{str(wal_of(self.path))!r} is here without its database",
                self._repair,
            )
        # Made by us before SQLite sees it, so that it is private from its first byte on.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))

    def _configure(self, connection: sqlite3.Connection) -> None:
        if not self._ready:
            if self._migrations:
                with misfits(connection, self.path, self._repair):
                    refuse_others(connection, self.path, [name for name, _ in self._migrations])
            self.journal_mode = self._set_journal_mode(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute(f"PRAGMA secure_delete = {'ON' if self._secure_delete else 'OFF'}")
        if not self._ready:
            with misfits(connection, self.path, self._repair):
                migrate(connection, self._migrations)
            self._on_open(connection)
            self._inode = _inode(self.path)
            self._ready = True

    def _set_journal_mode(self, connection: sqlite3.Connection) -> str:
        kind = self._file_system(self.path)
        wanted = self._wanted_mode
        if wanted == "auto":
            wanted = "wal" if kind.carries_wal else "delete"
        try:
            mode = self._switch_journal(connection, wanted)
        except sqlite3.OperationalError as exc:
            if wanted == "delete" or not _wal_refused(exc):
                raise
            mode = self._switch_journal(connection, "delete")
        if mode != "wal" and self._wanted_mode != "delete":
            _warn_once(
                str(self.path),
                "%s uses journal mode %s: the file system (%s) does not carry a write-ahead log",
                self.path,
                mode.upper(),
                kind.kind or "unknown",
            )
        return mode

    def _switch_journal(self, connection: sqlite3.Connection, wanted: str) -> str:
        """Ask for a journal mode; the one that the file has then.

        SQLite never waits in line for this statement, so we do: two processes may make one file at the same time.
        """
        until = time.monotonic() + self._patience
        while True:
            try:
                return str(connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0])
            except sqlite3.OperationalError as exc:
                if "is locked" not in str(exc) or time.monotonic() >= until:
                    raise
                time.sleep(0.005)


def _opened_before_fork(path: Path) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"{str(path)!r} was opened before this process was forked",
        "fork first and open memory then, each process its own, or start the process with multiprocessing's spawn",
    )


def _note_open_files() -> None:
    """In a process just forked. SQLite there takes its parent's locks for its own, also for a file that is opened anew: the
    parent takes itself for the last user then, and deletes the log that is written to here (sqlite.org/howtocorrupt.html, 2.6).
    """
    _of_parent.update(map(os.path.realpath, _open.values()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_open_files)


def wal_of(path: Path) -> Path:
    """The write-ahead log beside a database."""
    return path.with_name(f"{path.name}-wal")


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _wal_refused(exc: sqlite3.OperationalError) -> bool:
    return any(sign in str(exc).lower() for sign in ("locking protocol", "not authorized", "disk i/o"))


def _warn_once(key: str, message: str, *arguments: object) -> None:
    if key not in _warned_about:
        _warned_about.add(key)
        log.warning(message, *arguments)

"""SQLite databases: a connection for each thread, write transactions, named migrations, and errors with a remedy."""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import logging
import os
import random
import re
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.storage.engine import Dialect, Statement, ValueRejected, run_callbacks
from hermes_core.storage.files import PRIVATE_FILE, FileSystem, ensure_folder, locked, sync_folder
from hermes_core.storage.files import file_system as file_system_of
from hermes_core.storage.inventory import lost_store, strike
from hermes_core.storage.moved import MOVED_REMEDY, MOVED_WORDS, StoreMark, refuse_marked
from hermes_core.storage.tables import ColumnType, Table, render_table

log = logging.getLogger(__name__)

# The first version of SQLite with STRICT tables. Python 3.11 has a newer one on every platform that we know.
MINIMUM_SQLITE = (3, 37, 0)

# Seconds that a writer waits for other processes. Transactions of this package last milliseconds.
BUSY_TIMEOUT_S = 30.0

# After a timeout, the next wait lasts this share of the busy timeout, because the other program probably hangs.
SHORT_TIMEOUT_SHARE = 1 / 30

# Seconds that a writer waits for other processes when the program ends.
EXIT_TIMEOUT_S = 1.0

# Range of the random pause between two attempts to take the write lock: about the duration of a transaction.
RETRY_PAUSE_S = (0.00005, 0.0002)

# Seconds between two attempts to leave the queue of writers.
QUEUE_PAUSE_S = 0.0005

# Seconds in the queue after which a writer tries the write lock itself: the process before it may be
# suspended.
QUEUE_TIMEOUT_S = 1.0

# `give_back` leaves files with fewer bytes of free pages as they are.
VACUUM_FREE_BYTES = 8 * 1024 * 1024

# Default remedy for a damaged file.
RESTORE = (
    "it was left as it is: restore a backup, or move it away and run `hermes-memory doctor --accept-loss`"
)

Result = TypeVar("Result")

DIALECT = Dialect(
    # unixepoch('subsec') needs SQLite 3.42.
    now="((julianday('now') - 2440587.5) * 86400.0)",
    row_lock="",  # a transaction holds the write lock of the whole file
    any_of="{} IN (SELECT value FROM json_each(?))",
    indexed_by="INDEXED BY {}",
    name_lock="",
    # Damaged JSON has no calls: an error would keep the search from all other messages.
    calls="""(SELECT coalesce(json_extract(value, '$.function.name'), json_extract(value, '$.name'), '') AS name
        FROM json_each(CASE WHEN json_valid({0}) THEN {0} ELSE '[{{}}]' END))""",
)

JournalMode = Literal["auto", "wal", "delete"]
Synchronous = Literal["NORMAL", "FULL"]

_warned_paths: set[Path] = set()
# Each open connection with its file. The reference also keeps a forked process from freeing connections of
# its parent's other threads: closing a connection there waits for ever if its thread was inside a statement.
_open_files: dict[sqlite3.Connection, Path] = {}
# Real paths of the files that were open in the process that this one was forked from.
_parent_files: set[str] = set()
# Asked of the system once in each process: each statement compares it.
_current_process = os.getpid()


class Database:
    """A SQLite database file, opened when it is first used.

    Each thread has its own connection, in autocommit mode. Several processes may open the same file at once. Each
    migration runs exactly once, and all that a file lacks run in one transaction. Files are created with mode 0600.

    Args:
        path: The database file. Its folder is created if it is missing.
        migrations: Named functions that bring the schema up to date, in order.
        journal_mode: "auto" uses a write-ahead log if the file system supports one.
        busy_timeout: Seconds to wait for the lock of another process. After a timeout, the next waits are short
            until the lock was free once, because the other program probably hangs.
        file_system: Returns the type of the file system of a path.
        repair: Remedy in the error about a damaged file.
        empty_is_damage: True to refuse a file of zero bytes as damaged. Otherwise it is a new database.
        queue_writers: True if several processes write to this file all the time. They then wait in a queue.
        marked: True to open a store that is moved to another engine, which others refuse.
    """

    shared = False
    dialect = DIALECT

    def __init__(
        self,
        path: Path,
        migrations: Sequence[Migration] = (),
        *,
        journal_mode: JournalMode = "auto",
        synchronous: Synchronous = "FULL",
        secure_delete: bool = False,
        read_only: bool = False,
        busy_timeout: float = BUSY_TIMEOUT_S,
        file_system: Callable[[Path], FileSystem] = file_system_of,
        repair: str = RESTORE,
        empty_is_damage: bool = False,
        queue_writers: bool = False,
        marked: bool = False,
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
        self._translated = TranslatedErrors(path, repair, self._suspect_connection)
        self._empty_is_damage = empty_is_damage
        self._marked = marked
        self._queue = _WriterQueue(path) if queue_writers and os.name != "nt" else None
        self._local = threading.local()
        self._open_lock = threading.Lock()
        # Threads of this process queue here, so that SQLite never lets them time out on one another.
        self._write_lock = threading.RLock()
        self._after_commit: list[Callable[[], None]] = []
        self._ready = False
        self._closed = False
        self._process = self._inode = 0
        self._connections: weakref.WeakSet[_ThreadConnection] = weakref.WeakSet()

    @property
    def connection(self) -> sqlite3.Connection:
        """Connection of the current thread. Its rows can be indexed by column name.

        Raises:
            DatabaseUnavailable: The file can't be opened.
            DatabaseCorrupt: The file is damaged.
        """
        self._refuse_fork()
        known: _ThreadConnection | None = getattr(self._local, "connection", None)
        if known is not None and not known.closed:
            if known.sqlite.in_transaction or not (self._closed or known.suspect):
                return known.sqlite
            known.close()
        with self._open_lock:
            if self._closed:
                raise DatabaseUnavailable(f"{str(self.path)!r} was closed", "open it again")
            if _parent_files and os.path.realpath(self.path) in _parent_files:
                raise _opened_before_fork(self.path)
            with self._translated, file_errors(self.path):
                try:
                    opened = _ThreadConnection(self._connect(), self.path)
                except sqlite3.DatabaseError as exc:
                    self._shorten_next_wait(exc)
                    raise
            self._process = _current_process
            self._local.connection = opened
            self._connections.add(opened)
            return opened.sqlite

    def execute(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        """Run one statement on the connection of the current thread.

        Errors of SQLite become errors of this package, also while the rows of the returned cursor are read.
        """
        with self._translated:
            cursor = self.connection.cursor(_Cursor)
            cursor.translated = self._translated
            return cursor.execute(sql, parameters)

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Hold the write lock of the database during the `with` block.

        Commit when the block ends; roll back if it raises.

        An inner transaction of the same thread joins the outer one.

        Args:
            durable: False if a loss of power may undo the commit, which then does not wait for the disk. The file stays
                whole, and later commits are not affected.
        """
        self._refuse_fork()
        with self._write_lock, self._translated:
            connection = self.connection
            if connection.in_transaction:
                yield connection
                return
            # Without a write-ahead log, a commit that is not synced could damage the file.
            unsynced = not durable and self.journal_mode == "wal" and self._synchronous == "FULL"
            try:
                if unsynced:
                    connection.execute("PRAGMA synchronous = NORMAL")
                self._begin(connection)
                self._refuse_moved()
                yield connection
                connection.execute("COMMIT")
            finally:
                roll_back(connection)
                if unsynced:
                    connection.execute("PRAGMA synchronous = FULL")
                callbacks, self._after_commit = self._after_commit, []
        run_callbacks(callbacks)

    @property
    def label(self) -> str:
        """The path of the file, for messages."""
        return str(self.path)

    @property
    def exists(self) -> bool:
        """False if there is no file: nothing was ever stored."""
        # Each read asks. That an open file is gone since is found out by the next write, and by the inventory.
        return self._ready or self.path.exists()

    def read(self, statements: Sequence[Statement]) -> list[list[Any]]:
        """Run statements that change nothing, one after the other, and return the rows of each."""
        with self._translated:
            connection = self.connection
            return [connection.execute(sql, parameters).fetchall() for sql, parameters in statements]

    def ask(self, statements: Sequence[Statement]) -> Callable[[], list[list[Any]]]:
        """Return a function that reads the rows of each of these statements when it is called first."""
        return functools.cache(functools.partial(self.read, statements))

    def batch(self, statements: Sequence[Statement], *, durable: bool = True) -> list[list[Any]]:
        """Run statements in order, within a transaction, and return the rows of each.

        Args:
            durable: See `transaction`.
        """
        with self.transaction(durable=durable) as connection:
            return [connection.execute(sql, parameters).fetchall() for sql, parameters in statements]

    def insert(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        key: str,  # noqa: ARG002  always the row id
        further: Sequence[Statement] = (),
        *,
        last: bool = False,  # noqa: ARG002  a file has no round trip to save
    ) -> tuple[list[int], list[list[Any]]]:
        """Insert rows with the same columns, run further statements, and return the keys of the rows in order.

        The rows of the further statements are returned as well.
        """
        keys: list[int] = []
        with self.transaction() as connection:
            # One by one: for an INSERT of several rows, or with RETURNING, SQLite opens a savepoint, at which FTS5
            # writes the words so far into a segment of their own.
            columns = rows[0] if rows else ()
            names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
            sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608  our own names
            for row in rows:
                keys.append(int(connection.execute(sql, tuple(row.values())).lastrowid or 0))
            return keys, [connection.execute(sql, parameters).fetchall() for sql, parameters in further]

    def retry(self, write: Callable[[], Result], *, idempotent: bool) -> Result:  # noqa: ARG002  the protocol's
        """Call `write` once: SQLite reports no error of a kind that a second call would not meet."""
        return write()

    @property
    def in_transaction(self) -> bool:
        """True within a `transaction` of the current thread."""
        return self.connection.in_transaction

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` after the commit of the current thread's transaction, or now if there is none."""
        if self.in_transaction:
            self._after_commit.append(callback)
        else:
            run_callbacks([callback])

    def now(self) -> float:
        """Return the time of day in epoch seconds."""
        return time.time()

    def shorten_waits(self) -> None:
        """Wait at most a second for locks of other processes from now on, because the program ends."""
        self._busy_timeout = min(self._busy_timeout, EXIT_TIMEOUT_S)
        self._patience = min(self._patience, self._busy_timeout)

    def reopen(self) -> Database:
        """Return a database on the same file, for a thread that outlives this one."""
        return Database(self.path, secure_delete=self._secure_delete)

    def _give_back(self) -> None:
        """Make the file smaller if most of its pages are free. Do nothing if another process writes at the moment."""
        if not self._ready or self._closed or self._read_only:
            return
        with contextlib.suppress(sqlite3.Error, StorageError):
            connection = self.connection
            size, pages, free = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
            if size * free > VACUUM_FREE_BYTES and free > pages * 3 / 4:
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Refuse further use, and close the connections that no other thread may be using.

        SQLite crashes the process if a connection is closed in the middle of its statement. So the connection of
        another running thread is closed when this thread ends or next uses the database. A forked process closes
        nothing, because all connections belong to its parent.
        """
        if self._forked:
            return
        self._give_back()
        with contextlib.ExitStack() as acquired:
            # With a timeout, because a thread may hold the lock for as long as another process hangs.
            locks = [
                lock for lock in (self._open_lock, self._write_lock) if lock.acquire(timeout=EXIT_TIMEOUT_S)
            ]
            for lock in locks:
                acquired.callback(lock.release)
            self._closed = True
            if len(locks) < 2:
                return
            others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
            for connection in list(self._connections):
                if connection.thread not in others:
                    connection.close()

    def delete(self) -> None:
        """Close the database, and delete its files and copies. A home that has listed it does not miss it."""
        self.close()
        strike(self.path)
        for file in self.path.parent.glob(f"{glob.escape(self.path.name)}*"):
            # Windows keeps a file that another program has open.
            with contextlib.suppress(PermissionError):
                file.unlink()

    def backup(self, target: Path) -> None:
        """Copy a consistent state of the database to `target`, even while other processes write.

        A file at `target` is replaced when the copy is complete.
        """
        partial = target.with_name(f".{target.name}.partial")
        with locked(target, BUSY_TIMEOUT_S), self._translated, file_errors(target):
            partial.unlink(missing_ok=True)
            try:
                _create_private(partial)
                with contextlib.closing(sqlite3.connect(partial)) as copy:
                    self.connection.backup(copy)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
            sync_folder(target.parent)

    def integrity(self) -> list[str]:
        """Run SQLite's `integrity_check` and return a line for each fault; an empty list if the file is not damaged."""
        with self._translated:
            return integrity_faults(self.connection)

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Take the write lock. Retry with short pauses until the busy timeout.

        SQLite's own busy handler sleeps up to 100 ms between two attempts. With eight processes that wrote all the
        time, some waited for 0.7 to 6 s (`bench/sessions.py`).
        """
        started = time.monotonic()
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                waited = time.monotonic() - started
                # Read anew each time: `shorten_waits` may be called meanwhile.
                last_attempt = waited >= self._patience
                if self._queue is None or waited > QUEUE_TIMEOUT_S or last_attempt or self._queue.enter():
                    try:
                        connection.execute("BEGIN IMMEDIATE")
                    except sqlite3.OperationalError as exc:
                        if not _is_locked(exc) or last_attempt:
                            self._shorten_next_wait(exc)
                            raise
                    else:
                        self._patience = self._busy_timeout
                        return
                    time.sleep(random.uniform(*RETRY_PAUSE_S))  # not for security
                else:
                    time.sleep(QUEUE_PAUSE_S)
        finally:
            if self._queue is not None:
                self._queue.leave()
            connection.execute(f"PRAGMA busy_timeout = {int(self._patience * 1000)}")

    def _suspect_connection(self) -> None:
        """Let the current thread open a new connection after its transaction.

        After a failed read, SQLite may hold pages and schema that do not fit the file. A statement on the old connection
        then reports damage, although the disk works again and the file is whole.
        """
        known: _ThreadConnection | None = getattr(self._local, "connection", None)
        if known is not None:
            known.suspect = True
        if not _size(self.path):  # emptied while it was open: the next connection finds out what was lost
            self._ready = False

    def _shorten_next_wait(self, exc: sqlite3.DatabaseError) -> None:
        """Make the next wait short if another process kept the file locked for the whole busy timeout."""
        if _is_locked(exc):
            self._patience = self._busy_timeout * SHORT_TIMEOUT_SHARE

    @property
    def _forked(self) -> bool:
        return self._process not in (0, _current_process)

    def _refuse_fork(self) -> None:
        """Raise `DatabaseUnavailable` in a fork of the process that constructed this object.

        A fork does not inherit SQLite's locks, so using the connection there damages the file. A Python lock that a
        thread of the parent held at the fork is never released in the fork.
        """
        if self._forked:
            raise _opened_before_fork(self.path)

    def _refuse_moved(self) -> None:
        """Raise if the file is no longer at its path, or was emptied: SQLite would go on writing to its log.

        Without a write-ahead log, SQLite itself raises for a file that is no longer there.
        """
        inode, size = _inode_and_size(self.path)
        if size == 0:
            raise DatabaseCorrupt(f"{str(self.path)!r} was emptied while it was open", self._repair)
        if self.journal_mode == "wal" and self._ready and inode != self._inode:
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
        """Create the file if it does not exist.

        Raise if it is damaged, or if an interrupted repair has to be finished.
        """
        if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
            needed = ".".join(map(str, MINIMUM_SQLITE))
            raise DatabaseUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old", f"{needed} or newer is needed"
            )
        ensure_folder(self.path.parent)
        if repaired_copy(self.path).exists():
            raise DatabaseUnavailable(
                f"a repair of {str(self.path)!r} was not finished",
                "run `hermes-memory sessions repair` again",
            )
        # The order matters: while another process creates the file, its log appears after its first page.
        has_log = _size(wal_of(self.path)) > 0
        if lost := lost_store(self.path):
            raise DatabaseCorrupt(lost.message, lost.remedy)
        if not _size(self.path) and (has_log or (self._empty_is_damage and self.path.exists())):
            raise DatabaseCorrupt(
                f"{str(self.path)!r} is empty, though it held rows"
                if self.path.exists()
                else f"{str(wal_of(self.path))!r} is here without its database",
                self._repair,
            )
        if self._empty_is_damage:
            self._create_with_header()
        else:
            # Created before SQLite sees it, so that it is private from its first byte on.
            _create_private(self.path)

    def _create_with_header(self) -> None:
        """Create the file with its header in one step, so that no crash leaves an empty file behind."""
        if self.path.exists():
            return
        # Two programs may start at once: the second must not replace the file that the first one writes to.
        with locked(self.path):
            if self.path.exists():
                return
            new = self.path.with_name(f".{self.path.name}.new")
            new.unlink(missing_ok=True)
            _create_private(new)
            with contextlib.closing(sqlite3.connect(new)) as connection:
                connection.execute("PRAGMA user_version = 1")
            new.replace(self.path)
            sync_folder(self.path.parent)

    def _configure(self, connection: sqlite3.Connection) -> None:
        if not self._ready:
            if self._migrations:
                with _misfits_as_damage(connection, self.path, self._repair):
                    known = [name for name, _ in self._migrations]
                    _refuse_others(connection, self.path, known, marked=self._marked)
            self.journal_mode = self._set_journal_mode(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        if sys.platform == "darwin":
            # There, fsync leaves data in the cache of the drive: what was acknowledged would not survive a power cut.
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute(f"PRAGMA secure_delete = {'ON' if self._secure_delete else 'OFF'}")
        if not self._ready:
            with _misfits_as_damage(connection, self.path, self._repair):
                migrate(connection, self._migrations)
            self._inode, _ = _inode_and_size(self.path)
            self._ready = True

    def _set_journal_mode(self, connection: sqlite3.Connection) -> str:
        kind = self._file_system(self.path)
        wanted = self._wanted_mode
        if wanted == "auto":
            # Of an unknown type, the file knows better: another program may have found out the type.
            carries = kind.carries_wal or (not kind.kind and _says_wal(self.path))
            wanted = "wal" if carries else "delete"
        try:
            mode = self._switch_journal(connection, wanted)
        except sqlite3.OperationalError as exc:
            # An I/O error may pass, and says nothing about the file system. A file that has a write-ahead log already
            # shows that the file system carries one, and may hold commits that are in the log only.
            refusals = ("locking protocol", "not authorized")
            refused = any(refusal in str(exc).lower() for refusal in refusals)
            if wanted == "delete" or not refused or _says_wal(self.path):
                raise
            mode = self._switch_journal(connection, "delete")
        if mode != "wal" and self._wanted_mode != "delete" and self.path not in _warned_paths:
            _warned_paths.add(self.path)
            log.warning(
                "%s uses journal mode %s: the file system (%s) does not carry a write-ahead log",
                self.path,
                mode.upper(),
                kind.kind or "unknown",
            )
        return mode

    def _switch_journal(self, connection: sqlite3.Connection, wanted: str) -> str:
        """Request a journal mode, and retry while the file is locked. Return the mode that the file has afterwards.

        SQLite ignores its busy timeout for this statement, and two processes may create one file at the same time.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return str(connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0])
            except sqlite3.OperationalError as exc:
                if not _is_locked(exc) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.005)


class _ThreadConnection:
    """Connection of one thread.

    A `threading.local` holds the only reference, so the connection is closed with the thread.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.sqlite = connection
        self.thread = threading.get_ident()
        self.process = os.getpid()
        self.closed = False
        self.suspect = False
        _open_files[connection] = path

    def close(self) -> None:
        self.closed = True
        if self.process == os.getpid():
            _open_files.pop(self.sqlite, None)
            self.sqlite.close()

    def __del__(self) -> None:
        self.close()


class _WriterQueue:
    """Queue of processes that want to write: only the holder of a lock file tries to take SQLite's write lock.

    Without the queue, eight processes tried to take the write lock every millisecond. They kept two cores busy, and
    some waited for 0.5 to 0.8 s (`bench/sessions.py`). The queue only shortens waits; SQLite's lock protects the
    file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}.queue")
        self._file: int | None = None
        self._entered = False

    def enter(self) -> bool:
        """Take the lock file if it is free. Return True if this process may now try to take SQLite's write lock."""
        import fcntl

        if not self._entered:
            try:
                if self._file is None:
                    self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as exc:  # a file system without locks: writers only retry
                log.debug("no queue for writers beside %s: %s", self._path, exc)
                return True
            self._entered = True
        return True

    def leave(self) -> None:
        """Release the lock file."""
        import fcntl

        if self._entered and self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._entered = False

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)


class _Cursor(sqlite3.Cursor):
    """Cursor that translates SQLite's errors to errors of this package while rows are read."""

    translated: TranslatedErrors

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


# ---------------------------------------------------------------------- errors


class TranslatedErrors:
    """Context manager that translates SQLite's errors about the file to errors of this package, with a remedy.

    Errors in SQL pass unchanged. All threads and blocks share one object, because a new object for each statement and each
    row would take time.
    """

    __slots__ = ("_on_fault", "_path", "_repair")

    def __init__(
        self,
        path: Path,
        repair: str = RESTORE,
        on_fault: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._repair = repair
        self._on_fault = on_fault  # called for damage and for failed reads and writes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, sqlite3.Error | OverflowError):
            self._raise_for(exc)

    def _raise_for(self, exc: sqlite3.Error | OverflowError) -> None:
        """Raise the error of this package for an error of SQLite. Return if there is none."""
        text = str(exc).lower()
        if getattr(exc, "sqlite_errorcode", 0) & 0xFF in _DAMAGE_CODES or any(
            sign in text for sign in _DAMAGE_TEXTS
        ):
            self._on_fault()
            if failure := _read_failure(self._path, exc):
                raise DatabaseUnavailable(
                    f"can't read {str(self._path)!r}: {failure}", _UNAVAILABLE["disk i/o error"]
                ) from exc
            raise DatabaseCorrupt(f"{str(self._path)!r} is damaged ({exc})", self._repair) from exc
        for sign, remedy in _UNAVAILABLE.items():
            if sign in text:
                if "locked" not in sign:
                    self._on_fault()
                raise DatabaseUnavailable(f"can't use {str(self._path)!r}: {exc}", remedy) from exc
        if isinstance(exc, sqlite3.IntegrityError) or any(sign in text for sign in _VALUE_TEXTS):
            raise ValueRejected(f"{str(self._path)!r} does not take a value: {exc}") from exc


def _read_failure(path: Path, exc: sqlite3.Error | OverflowError) -> str:
    """Return why the file, which SQLite reported as damaged, is not: "" if it is.

    SQLite reports a read that the disk failed as damage in some places. A person who believes it gives up a whole file.
    """
    code = getattr(exc, "sqlite_errorcode", 0)
    if code & 0xFF != sqlite3.SQLITE_CORRUPT:
        return ""
    try:
        # Not read-only: such a connection leaves an empty log behind.
        uri = f"file:{quote(str(path))}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0.1)) as connection:
            fault = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as again:
        return str(again) if any(sign in str(again) for sign in ("disk I/O error", "unable to open")) else ""
    # The check passes over indexes in virtual tables, which have a code of their own for damage.
    virtual = code == sqlite3.SQLITE_CORRUPT_VTAB
    return f"a read failed ({exc}), and the file is whole" if fault == "ok" and not virtual else ""


_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Damage that SQLite reports without one of these codes. The last four: an impossible size in the header, a changed
# byte that made text invalid UTF-8, and a lost table or column.
_DAMAGE_TEXTS = (
    "malformed",
    "not a database",
    "corrupt",
    "unsupported file format",
    "could not decode to utf-8",
    "no such table",
    "no such column",
)

# What Python says of a value that SQLite has no type for.
_VALUE_TEXTS = ("error binding parameter", "too large to convert to sqlite integer")


def integrity_faults(connection: sqlite3.Connection) -> list[str]:
    """Return a line for each fault that SQLite's `integrity_check` finds in the tables and pages of a file.

    From version 3.44 on, it looks at full-text indexes as well. Their faults are left out: an index has a check of its own,
    and is made anew out of the tables. Source: https://sqlite.org/pragma.html#pragma_integrity_check
    """
    faults = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    return [fault for fault in faults if fault != "ok" and not _OF_INDEX.search(fault)]


# As in "malformed inverted index for FTS5 table main.messages_fts". Pages of an index are named by its tables.
_OF_INDEX = re.compile(r"\bfts[345]\b", re.IGNORECASE)

_UNAVAILABLE = {
    MOVED_WORDS: MOVED_REMEDY,
    "database or disk is full": "free disk space, then try again; nothing was written",
    "disk i/o error": "see that the disk has room and works; nothing was written",
    "locking protocol": "see that the disk has room and works, and try again; nothing was written",
    "readonly database": "check owner and mode of this file and of those beside it (-wal, -shm), and that the file "
    "system is not read-only",
    "unable to open": "check that the folder exists, who owns it, that the disk has room and works, and that this "
    "program has not too many files open",
    "database is locked": "another program holds the file: stop it, then try again",
    "authoriz": "check the file's owner and mode",
}


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Translate errors of opening a database: those of the operating system, and a schema that is not UTF-8."""
    try:
        yield
    except UnicodeDecodeError as exc:
        raise sqlite3.DatabaseError(f"malformed database schema: {exc}") from exc
    except OSError as exc:
        remedy = "check the folder's owner, mode and free space"
        if exc.errno == errno.EMFILE:
            remedy = "close what this program has open, such as memories that are opened again and again, or raise `ulimit -n`"
        raise DatabaseUnavailable(f"can't open {str(path)!r}: {exc.strerror or exc}", remedy) from exc


def _refuse_others(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[str], *, marked: bool
) -> None:
    """Raise if another program or another version of this package made the database.

    Raise also if its sessions are moved to another store, unless `marked` is True.

    The file names are common, so another program may have created the file. A newer version changed the file if its
    last recorded migration is unknown and all known migrations are recorded. Earlier unknown migrations are
    accepted, because a version may drop migrations.
    """
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return
    if "schema_migrations" not in tables:
        raise DatabaseUnavailable(
            f"{str(path)!r} was made by another program (it holds {tables[0]!r})",
            "give this one a home of its own with --home DIR or HERMES_HOME; nothing was changed",
        )
    done = [row[0] for row in connection.execute("SELECT name FROM schema_migrations ORDER BY rowid")]
    if not marked:
        refuse_marked(done, str(path))
    done = [name for name in done if StoreMark.parse(name) is None]
    if done and done[-1] not in migrations and set(done).issuperset(migrations):
        raise DatabaseUnavailable(
            f"{str(path)!r} was changed by a newer version of the package (it has {done[-1]!r})",
            "upgrade the package again, or put a backup of the home in its place; nothing was changed",
        )
    if done and migrations[0] == SCHEMA_1 and SCHEMA_1 not in done:
        raise DatabaseUnavailable(
            f"{str(path)!r} has a format of before 0.1.0 (it has {done[-1]!r}, this version needs {SCHEMA_1!r})",
            "convert the home with `python bench/convert_home.py HOME` in a clone; nothing was changed",
        )


@contextlib.contextmanager
def _misfits_as_damage(connection: sqlite3.Connection, path: Path, repair: str) -> Iterator[None]:
    """Raise `DatabaseCorrupt` if a migration in the block fails because the record of migrations was damaged.

    If a record is lost, its migration runs again, on tables that it has already changed, and fails. In a new file the
    migration itself must be wrong, so its error passes unchanged.
    """
    new = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
    try:
        yield
    except sqlite3.OperationalError as exc:
        if new or exc.sqlite_errorcode != sqlite3.SQLITE_ERROR or "no such module" in str(exc):
            raise
        raise DatabaseCorrupt(
            f"{str(path)!r} is damaged: its record of migrations does not fit its tables ({exc})", repair
        ) from exc


def _is_locked(exc: sqlite3.DatabaseError) -> bool:
    return "is locked" in str(exc)


def _opened_before_fork(path: Path) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"{str(path)!r} was opened before this process was forked",
        "fork first and open memory then, each process its own, or start the process with multiprocessing's spawn",
    )


def _note_fork() -> None:
    """Remember, in a process that was just forked, its id, and which files its parent has open. It must not open them.

    SQLite in the fork would take the parent's locks for its own, even after opening the file again. The parent would
    then take itself for the last user of the file and delete the log to which the fork writes
    (sqlite.org/howtocorrupt.html, section 2.6).
    """
    global _current_process
    _current_process = os.getpid()
    _parent_files.update(map(os.path.realpath, _open_files.values()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


# ---------------------------------------------------------------------- files


def wal_of(path: Path) -> Path:
    """Return the path of the write-ahead log of the database at `path`."""
    return path.with_name(f"{path.name}-wal")


def repaired_copy(path: Path) -> Path:
    """Return the path of the repaired copy of the database at `path`.

    The last step of a repair moves it to `path`.
    """
    return path.with_name(f"{path.name}.repaired")


def database_files(path: Path) -> list[Path]:
    """Return the existing files of the database at `path`: the main file and the files that SQLite writes beside it."""
    names = (path.name + suffix for suffix in ("", "-wal", "-shm", "-journal"))
    return [file for name in names if (file := path.with_name(name)).exists()]


def _create_private(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))


def _says_wal(path: Path) -> bool:
    """Return True if the header of the file says that it has a write-ahead log (sqlite.org/fileformat2.html, 1.3)."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:] == b"\x02\x02"
    except OSError:
        return False


def _inode_and_size(path: Path) -> tuple[int, int]:
    """Return the inode and the size of a file, in one look; 0 and -1 if there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, -1
    return status.st_ino, status.st_size


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# ---------------------------------------------------------------------------------------------------------- migrations

Migration = tuple[str, Callable[[sqlite3.Connection], None]]

# Name of the first migration of each database of this package, which makes all tables of 0.1.0. A later version appends
# migrations to the list. A file without this record is of a version before 0.1.0.
SCHEMA_1 = "tables-1"

_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT
"""


_TYPES: dict[ColumnType, str] = {
    "number": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "text": "TEXT",
    "integer": "INTEGER",
    "real": "REAL",
    "blob": "BLOB",
}


def create_tables(connection: sqlite3.Connection, tables: Iterable[Table]) -> None:
    """Create tables with their indexes and triggers."""
    for table in tables:
        for statement in render_table(table, _TYPES, " STRICT"):
            connection.execute(statement)
        for trigger in table.triggers:
            connection.execute(
                f"CREATE TRIGGER {trigger.name} AFTER {trigger.event} ON {table.name}"
                f" BEGIN {trigger.body.format(now=DIALECT.now)} END"
            )


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[str]:
    """Run the migrations that this database has no record of, in one transaction with their records.

    Return their names.
    """
    if not pending(connection, migrations):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_MIGRATIONS_TABLE)
        # Read again under the write lock: another process may have been first.
        steps = pending(connection, migrations)
        for name, step in steps:
            step(connection)
            connection.execute("INSERT INTO schema_migrations VALUES (?, ?)", (name, time.time()))
        connection.execute("COMMIT")
    finally:
        roll_back(connection)
    return [name for name, _ in steps]


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll back the open transaction, if there is one.

    SQLite itself rolls back some, for instance if the disk is full.
    """
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def pending(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that have no record in this database, in order. The database is not changed."""
    try:
        done = {row[0] for row in connection.execute("SELECT name FROM schema_migrations")}
    except sqlite3.OperationalError:
        done = set()
    return [migration for migration in migrations if migration[0] not in done]

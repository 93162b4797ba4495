"""The inventory of a home: which of its stores have held data, so that an emptied store does not pass for a new one.

The stores are all SQLite files of the home, also those of providers. A store that is in the inventory and is empty or
missing is lost. Nothing is written to a lost database until a backup is in its place or the loss is accepted.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from hermes_core.errors import StorageError
from hermes_core.storage.files import FileValue, ensure_folder, locked, sync_folder, write_atomic

FILE_NAME = "stores.json"

STATE_DB = "state.db"

# In the name of an entry: the loss of this store was accepted.
_ACCEPTED = "accepted: "

# In the name of an entry: a server that has held the sessions and notes; its time is that of their tables.
_SERVER = "server: "

# Files below deeper folders are parts of a store, or a program's own.
MAX_DEPTH = 4

# Times after the year 2286 are damage, and some functions refuse them.
LAST_TIME = 10_000_000_000.0

# The other profiles are homes of their own; the rest holds no memory, or only copies.
_SKIPPED_FOLDERS = frozenset(
    {"profiles", "plugins", "skills", "logs", "migration", "node_modules", "venv", ".venv"}
)
_COPY = re.compile(r"\.damaged|\.lost-|\.repairing")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_LOG_SUFFIXES = ("-wal", "-shm", "-journal")

# Tables of our own databases that have rows before a person has said anything.
_BOOKKEEPING = frozenset({"schema_migrations", "state_meta", "leases"})


class LostStore(Struct, frozen=True):
    """A store that held data and is empty or missing now.

    Attributes:
        name: Path of the store, relative to the home.
        path: The file.
        since: Time in epoch seconds from which it is known that the store held data; None if unknown.
    """

    name: str
    path: Path
    since: float | None = None

    @property
    def message(self) -> str:
        """The fact as a sentence."""
        day = time.strftime(" since %Y-%m-%d", time.localtime(self.since)) if self.since else ""
        if self.path.exists():
            return f"{str(self.path)!r} held data{day} and is empty"
        log = self.path.with_name(f"{self.path.name}-wal")
        left = f"; {str(log)!r} is here without its database" if log.exists() else ""
        return f"{str(self.path)!r} held data{day} and is gone{left}"

    @property
    def is_replaced_by_server(self) -> bool:
        """True if a home with `storage.url` does not read the store: the sessions and the notes."""
        return self.name == STATE_DB

    @property
    def remedy(self) -> str:
        """The commands that restore the store or accept the loss."""
        accept = "or accept the loss with `hermes-memory doctor --accept-loss`"
        rescue = ", or run `hermes-memory sessions repair`" if self._can_be_read else ""
        return f"stop every hermes-memory process and put a backup in its place{rescue}; {accept}"

    @property
    def _can_be_read(self) -> bool:
        return self.name == STATE_DB and any(file.exists() for file in _files_of(self.path))

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}"


class Inventory:
    """The stores of the home `folder` that have held data, in its file `stores.json`.

    The file is written when a store first holds data, and when a loss is accepted. A home that can't be written has no
    inventory; other checks report such a home.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self.path = folder, folder / FILE_NAME
        # Each turn looks at the same files, and making their paths takes longer than that.
        self._paths: dict[str, Path] = {}
        self._clock = clock
        self._known: set[str] = set()
        self._file = FileValue[dict[str, float]]()

    def record(self) -> None:
        """Enter the stores that hold data now."""
        known = self._entries()
        self._add([name for name, path in self._stores() if name not in known and holds_data(path)])

    def add(self, path: Path) -> None:
        """Enter one store that is known to hold data."""
        name = self._name(path)
        if name not in self._known:  # each turn asks
            self._add([name])

    def lost(self) -> list[LostStore]:
        """Return the stores that held data and are empty or missing now."""
        known: dict[str, float | None] = {**self._entries()}
        if STATE_DB not in known and (self.folder / STATE_DB).exists():
            known[STATE_DB] = None  # never made without a header, so that an empty file was emptied
        lost = []
        for name, since in sorted(known.items()):
            if name.startswith((_ACCEPTED, _SERVER)):
                continue
            if (path := self._paths.get(name)) is None:
                path = self._paths[name] = self.folder / name
            if _is_empty(path):
                lost.append(LostStore(name, path, since))
        return lost

    def lost_at(self, path: Path) -> LostStore | None:
        """Return the store at `path` of this home if it held data and is empty or missing now."""
        name = self._name(path)
        since = self._entries().get(name)
        return LostStore(name, path, since) if since is not None and _is_empty(path) else None

    def server_made_at(self, label: str) -> float:
        """Return when the tables of a server were made that has held data of this home; 0 if none has."""
        return self._entries().get(_SERVER + label, 0.0)

    def add_server(self, label: str, made_at: float) -> None:
        """Enter a server that holds data, with the time in epoch seconds at which its tables were made."""
        with contextlib.suppress(StorageError):
            self._change(lambda known: {**known, _SERVER + label: made_at})

    def accepted(self, name: str) -> float:
        """Return the time in epoch seconds at which the loss of a store was accepted last; 0 if it never was."""
        return self._entries().get(_ACCEPTED + name, 0.0)

    def accept(self) -> list[LostStore]:
        """Take the lost stores off the inventory, so that they begin anew. Return them.

        What is left of a database, such as its write-ahead log, is moved to a folder `NAME.lost-TIME` beside it.
        """
        accepted = self.lost()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._clock()))
        for store in accepted:
            _move_aside(store.path, store.path.with_name(f"{store.path.name}.lost-{stamp}"))
        names = {store.name for store in accepted}
        self.remove(names | {name for name in self._entries() if name.startswith(_SERVER)})
        self.accept_loss(names)
        return accepted

    def accept_loss(self, names: Iterable[str]) -> None:
        """Record that data of these stores was lost until now, and that a person goes on without it."""
        accepted = dict.fromkeys((_ACCEPTED + name for name in names), self._clock())
        self._change(lambda known: {**known, **accepted})

    def remove(self, names: set[str]) -> None:
        """Take these stores off the inventory."""
        self._change(lambda known: {name: at for name, at in known.items() if name not in names})
        self._known -= names

    def remove_below(self, folder: Path) -> None:
        """Take all stores of a folder of this home off the inventory, because this program deletes the folder."""
        self.remove({name for name in _read(self.path) if folder in (self.folder / name).parents})

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _entries(self) -> dict[str, float]:
        return self._file.get(self.path, lambda: _read(self.path), missing={})

    def _add(self, names: list[str]) -> None:
        now = self._clock()
        with contextlib.suppress(StorageError):
            if names:
                self._change(lambda known: {**dict.fromkeys(names, now), **known})
            self._known.update(names)

    def _change(self, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
        with locked(self.path):
            before = _read(self.path)
            if (after := change(before)) != before:
                write_atomic(self.path, (json.dumps(after, indent=1, sort_keys=True) + "\n").encode())

    def _stores(self) -> Iterator[tuple[str, Path]]:
        """Yield the name and the path of each store that exists."""
        for folder, folders, files in os.walk(self.folder):
            relative = Path(folder).relative_to(self.folder)
            for name in list(folders):
                skipped = name in _SKIPPED_FOLDERS or _COPY.search(name)
                if skipped or len(relative.parts) + 1 >= MAX_DEPTH:
                    folders.remove(name)
            for name in files:
                if name.endswith(_DATABASES):
                    yield (relative / name).as_posix(), Path(folder, name)


def lost_store(path: Path) -> LostStore | None:
    """Return the store at `path` if it is in the inventory of a folder above it and is empty or missing now."""
    entries = _entries_of(path.absolute()) if _is_empty(path) else ()
    return next((LostStore(name, path.absolute(), since) for _, name, since in entries), None)


def strike(path: Path) -> None:
    """Take a store off the inventories of the folders above it, because its own program deletes it."""
    for folder, name, _ in _entries_of(path.absolute()):
        Inventory(folder).remove({name})


def _entries_of(path: Path) -> Iterator[tuple[Path, str, float]]:
    for folder in path.parents[: MAX_DEPTH + 1]:
        name = path.relative_to(folder).as_posix()
        if (since := _read(folder / FILE_NAME).get(name)) is not None:
            yield folder, name, since


def holds_data(path: Path) -> bool:
    """Return True if a database has rows that are more than its own bookkeeping."""
    with contextlib.suppress(OSError, sqlite3.Error, UnicodeError):
        if _is_empty(path):
            return False
        # Never opened as a plain file: closing it would drop the locks that SQLite holds on it in this process.
        # Not read-only: such a connection leaves an empty log behind.
        uri = f"file:{quote(str(path))}?mode=rw"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0.1)) as connection:
            return _has_rows(connection)
    return False


def _has_rows(connection: sqlite3.Connection) -> bool:
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    # A full-text index keeps rows of its own in tables that are named after it, even when it is empty.
    inner = tuple(f"{name}_" for name, sql in rows if str(sql).upper().startswith("CREATE VIRTUAL"))
    for name, _ in rows:
        if name in _BOOKKEEPING or name.startswith("sqlite_") or f"{name}_".startswith(inner):
            continue
        quoted = name.replace('"', '""')
        if connection.execute(f'SELECT 1 FROM "{quoted}" LIMIT 1').fetchone():  # noqa: S608  a name of its schema
            return True
    return False


def _is_empty(path: Path) -> bool:
    """Return True if the file is missing or empty. False if that can't be found out."""
    try:
        found = path.stat()
        return stat.S_ISREG(found.st_mode) and not found.st_size
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as exc:
        return exc.errno == errno.ELOOP  # a link to itself leads to nothing


def _read(path: Path) -> dict[str, float]:
    """Return the time of the first entry by the name of the store; an empty dict if the file can't be read."""
    try:
        # Opening a pipe would block.
        entries = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not entries or not isinstance(entries, dict):
        return {}
    return {
        name: float(at)
        for name, at in entries.items()
        if isinstance(at, int | float)
        and 0 <= at < LAST_TIME
        and not Path(name).is_absolute()
        and ".." not in Path(name).parts
    }


def _files_of(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + suffix) for suffix in _LOG_SUFFIXES)]


def _move_aside(path: Path, folder: Path) -> None:
    files = [file for file in _files_of(path) if file.exists()]
    if not files:
        return
    ensure_folder(folder)
    for file in files:
        file.replace(folder / file.name)
    sync_folder(path.parent)

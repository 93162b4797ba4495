"""Origins of the notes, in a file `origins.json` beside them, so that the Markdown stays plain.

An entry is known by the hash of its text. An entry that the file does not name was written by a person: by hand, by
another program that a person runs, or before this file existed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from hermes_core.contract.values import Origin
from hermes_core.errors import StorageError
from hermes_core.safety.origin import as_origin, may_command, rank
from hermes_core.storage.files import LOCK_TIMEOUT, FileValue, locked, write_atomic
from hermes_core.storage.inventory import Inventory, lost_store

VERSION = 1

# Hashes in the file. The oldest that no note has any more are dropped, and with them an undo that far back.
MAX_HASHES = 10_000


def entry_hash(entry: str) -> str:
    """Return the SHA-256 of an entry, by which its origin and its confirmation are stored."""
    return hashlib.sha256(entry.encode("utf-8", "surrogatepass")).hexdigest()


class NoteOrigin(Struct, frozen=True):
    """Origin of one entry.

    Attributes:
        origin: Who or what the text comes from.
        at: Time of the write in epoch seconds; 0 if unknown.
        session: Id of the session in which it was written.
        confirmed: Origin before a person confirmed this text; "" if nobody had to.
        pinned: True if only a person may change or remove the entry.
    """

    origin: Origin = "person"
    at: float = 0.0
    session: str = ""
    confirmed: str = ""
    pinned: bool = False


PERSON = NoteOrigin()
UNKNOWN = NoteOrigin("import")


class OriginTable(Struct, frozen=True):
    """Origins of entries by their hash. If the file can't be used, `fault` says why, and no entry counts as a person's."""

    entries: Mapping[str, NoteOrigin] = field(default_factory=dict)
    fault: str = ""

    def of(self, entry: str) -> NoteOrigin:
        """Return the origin of an entry."""
        return UNKNOWN if self.fault else self.entries.get(entry_hash(entry), PERSON)


class NoteOrigins:
    """The file of origins of one folder of notes. Safe to share between threads and processes."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        *,
        lock_timeout: float = LOCK_TIMEOUT,
        inventory: Inventory | None = None,
    ) -> None:
        self.path = path
        self._clock = clock
        self._lock_timeout = lock_timeout
        self._inventory = inventory
        self._table = FileValue[OriginTable]()

    def read(self) -> OriginTable:
        """Read the file. A missing file is an empty table, unless the inventory of the home says that it held data."""
        table = self._table.get(self.path, self._read)
        if (
            table.fault or not table.entries
        ):  # the disk may work again, or the inventory say that entries are lost
            self._table.forget()
        return table

    def _read(self) -> OriginTable:
        try:
            data = self.path.read_bytes() if self.path.is_file() else b""
        except OSError as exc:
            return OriginTable(fault=self._fault(exc.strerror or str(exc)))
        if not data.strip():
            # A table without an inventory is of a shared base, whose notes may be another home's.
            lost = lost_store(self.path) if self._inventory is None else self._inventory.lost_at(self.path)
            return OriginTable(fault=str(lost) if lost else "")
        try:
            value = json.loads(data)
            if value["version"] > VERSION:
                return OriginTable(
                    fault=self._fault(f"it has version {value['version']}, of a newer program")
                )
            entries = {key: _origin(entry) for key, entry in value["entries"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            return OriginTable(fault=self._fault(f"it is damaged ({type(exc).__name__}: {exc})"))
        return OriginTable(entries)

    def record(self, origins: Mapping[str, Origin], session: str, *, raise_to: bool = False) -> None:
        """Store the origins of entries before they are written.

        Args:
            origins: Entry -> origin.
            session: Id of the session that writes.
            raise_to: True if a person wrote the entries. Else the origin of a text is never raised.

        Raises:
            StorageError: The file can't be used or written. Nothing was changed.
        """
        now = self._clock()

        def change(entries: dict[str, NoteOrigin]) -> None:
            for entry, origin in origins.items():
                key = entry_hash(entry)
                before = entries.get(key)
                if before is None and origin == PERSON.origin:
                    continue  # as every entry that the file does not name
                if before is not None and before.confirmed:
                    continue  # a person confirmed exactly this text
                if raise_to or before is None or rank(origin) > rank(before.origin):
                    entries[key] = NoteOrigin(
                        origin, now, session, pinned=before is not None and before.pinned
                    )

        self._change(change)

    def merge(self, origins: Mapping[str, NoteOrigin]) -> None:
        """Add origins of texts by their hash, as another home had them. What is known here stays.

        Raises:
            StorageError: The file can't be used or written. Nothing was changed.
        """

        def change(entries: dict[str, NoteOrigin]) -> None:
            for key, origin in origins.items():
                entries.setdefault(key, origin)

        self._change(change)

    def confirm(self, entries: Iterable[str]) -> None:
        """Store that a person read and confirmed exactly these texts.

        Raises:
            StorageError: The file can't be used or written.
        """
        now = self._clock()

        def change(table: dict[str, NoteOrigin]) -> None:
            for entry in entries:
                before = table.get(entry_hash(entry), PERSON)
                table[entry_hash(entry)] = NoteOrigin(
                    "person", now, before.session, before.confirmed or before.origin, before.pinned
                )

        self._change(change)

    def pin(self, entry: str, *, on: bool = True) -> None:
        """Store that only a person may change or remove an entry, or take that back.

        Raises:
            StorageError: The file can't be used or written.
        """

        def change(table: dict[str, NoteOrigin]) -> None:
            key = entry_hash(entry)
            table[key] = replace(table.get(key, PERSON), pinned=on)

        self._change(change)

    def rebuild(self, entries: Iterable[str]) -> None:
        """Replace an unusable table by one in which all `entries` of the notes wait for a person.

        What is left of a file is kept as `origins.json.damaged` beside it.
        """
        with locked(self.path, self._lock_timeout):
            if self.path.is_file():
                self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
            self._write({entry_hash(entry): UNKNOWN for entry in entries})

    def _change(self, change: Callable[[dict[str, NoteOrigin]], None]) -> None:
        with locked(self.path, self._lock_timeout):
            table = self.read()
            if table.fault:
                raise StorageError(table.fault)
            entries = dict(table.entries)
            change(entries)
            if entries != table.entries:
                self._write(entries)

    def _write(self, entries: Mapping[str, NoteOrigin]) -> None:
        value = {
            "version": VERSION,
            "entries": {
                key: {name: part for name, part in asdict(origin).items() if part}
                for key, origin in newest_origins(entries).items()
            },
        }
        write_atomic(self.path, (json.dumps(value, indent=1) + "\n").encode())
        if self._inventory is not None:
            # Now, and not at the next start: if the file were lost until then, its notes would pass for a person's.
            self._inventory.add(self.path)

    def _fault(self, reason: str) -> str:
        return (
            f"{str(self.path)!r}, which says where each note comes from, can't be used: {reason}; until then the notes "
            "are data for the model; hermes-memory review confirms them anew"
        )


def newest_origins(entries: Mapping[str, NoteOrigin]) -> dict[str, NoteOrigin]:
    """Return what is kept of a table: the newest `MAX_HASHES`, all that are pinned, and all of low origin.

    Without its origin, a text of low origin would pass for a person's.
    """

    def stays(origin: NoteOrigin) -> bool:
        return origin.pinned or not may_command(origin.origin)

    kept = [item for item in entries.items() if stays(item[1])]
    others = [item for item in entries.items() if not stays(item[1])]
    return dict([*kept, *sorted(others, key=lambda item: item[1].at)[-MAX_HASHES:]])


def _origin(value: Mapping[str, object]) -> NoteOrigin:
    at = value.get("at", 0.0)
    return NoteOrigin(
        as_origin(value["origin"]),
        float(at) if isinstance(at, int | float) else 0.0,
        str(value.get("session", "")),
        str(value.get("confirmed", "")),
        value.get("pinned") is True,
    )

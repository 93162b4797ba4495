"""Crash-safe changes of the notes: their files on disk, and the journal of every change for history and undo.

A change is first stored in the journal as an *intent*, then the file is replaced, then the intent is marked *done*.
If the process dies in between, or the disk is full, the intent stays. The next program that opens the file compares
the fingerprints of file and intent, and so finds out whether the file was replaced. All this happens under the
file's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import re
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Session
from hermes_core.curated.document import join_entries, parse_note_file, split_entries
from hermes_core.errors import DatabaseCorrupt, MemoryConflict, OutboxError, StorageError
from hermes_core.storage.chain import ChainReport, EventChain, text_digest
from hermes_core.storage.files import PRIVATE_FILE, locked, open_at_once, write_atomic, write_checked
from hermes_core.storage.inventory import remove_from_inventory
from hermes_core.storage.sqlite import Database

log = logging.getLogger(__name__)

MAX_BACKUPS = 10
"""Number of backup copies beside each file. The oldest are deleted first."""

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Size of the largest file that is read; a larger file does not hold notes."""

MAX_CHANGES = 1000
"""Number of changes in the history of each file. Older changes are deleted and can't be undone."""

# Above every id of a change: the largest integer of SQLite.
MAX_ID = 2**63 - 1

_TABLE = """
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL,
    target TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intent', 'done')),
    at REAL NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    session TEXT NOT NULL,
    writes TEXT NOT NULL,
    mirrored INTEGER NOT NULL,
    undoes INTEGER,
    undone INTEGER NOT NULL DEFAULT 0
) STRICT
"""
_NOT_ENQUEUED = "Saved here, but the memory provider does not know of it yet"
_NOT_RECORDED = "Saved here, but the history does not have the change"
_DAMAGED = "move it away and run `hermes-memory doctor --accept-loss`: only history and undo are lost, MEMORY.md and USER.md are whole"

PORTABLE_COLUMNS = (
    "file",
    "target",
    "action",
    "at",
    "before",
    "after",
    "fingerprint",
    "session",
    "writes",
    "undone",
)
"""Columns of a change that mean the same in every journal."""

OnWrite = Callable[[MemoryWrite, Session], object]


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of the bytes of a file. The journal identifies a version of the file by it."""
    return hashlib.sha256(data).hexdigest()


class NoteFile:
    """MEMORY.md or USER.md on disk. The caller has to hold the lock of the file while it writes.

    `key` is the name of the file in the journal. The USER.md of each user has a different key.
    """

    def __init__(self, path: Path, key: str = "") -> None:
        self.path = path
        self.name = path.name
        self.key = key or path.name

    @property
    def locked_path(self) -> Path:
        """Path that has to be locked: the target of a symbolic link, because two homes may link to the same file."""
        try:
            return self.path.resolve()
        except (OSError, RuntimeError):  # a link to itself; `read` reports it
            return self.path

    def read(self) -> bytes:
        """Return the bytes of the file; b"" if it does not exist.

        Raises:
            MemoryConflict: The file exists and can't be read. It must not be taken for an empty file.
        """
        # The type and the size are checked on the open file, since the path may be replaced in between.
        try:
            with open(self.path, "rb", opener=open_at_once) as file:
                data, status = file.read(MAX_FILE_BYTES + 1), os.fstat(file.fileno())
        except FileNotFoundError:
            return b""
        except OSError as exc:
            raise self.unreadable(exc.strerror or str(exc), "check its owner, its mode and the disk") from exc
        if not stat.S_ISREG(status.st_mode):
            raise self.unreadable("it is not a regular file", "move it away")
        if len(data) > MAX_FILE_BYTES:
            raise self.unreadable(f"it holds {status.st_size:,} bytes", "move it away or shorten it by hand")
        if len(data) < status.st_size:
            reason = f"only {len(data):,} of {status.st_size:,} bytes were read"
            raise self.unreadable(reason, "check the disk")
        return data

    def replace(self, text: str, expected: str) -> None:
        """Write the whole file atomically, with its old mode, if the fingerprint of the file is still `expected`.

        Raises:
            StorageError: The file was changed meanwhile or can't be written. The old file is untouched.
        """

        # An editor does not take our lock. The check runs when the new bytes are on disk, directly before the rename,
        # so that a version that the editor has saved before this moment is not overwritten.
        def check() -> None:
            if fingerprint(self.read()) != expected:
                raise StorageError(f"{self.name} was changed by another program just now", "try again")

        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            mode = PRIVATE_FILE
        write_checked(self.path, text.encode("utf-8"), mode, check)

    def back_up(self, data: bytes) -> Path:
        """Write a backup copy of `data` beside the file, delete the oldest copies, and return the path.

        If a copy with the same bytes exists, return its path.

        Raises:
            StorageError: The copy can't be written.
        """
        digest = fingerprint(data)[:16]
        # A refused write is often retried. One copy for equal bytes keeps the retries from deleting older copies.
        for copy in self._backups():
            if copy.name.endswith(digest):
                return copy
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        copy = self.path.with_name(f"{self.name}.bak.{moment}-{digest}")
        write_atomic(copy, data, PRIVATE_FILE)
        for old in self._backups()[:-MAX_BACKUPS]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        return copy

    def try_back_up(self, data: bytes) -> str:
        """Back up `data` and return the path of the copy. If that fails, return a sentence that there is no copy."""
        try:
            return str(self.back_up(data))
        except StorageError as exc:
            log.warning("no backup of %s: %s", self.path, exc)
            return f"{self.path} (BACKUP FAILED — file unchanged on disk)"

    def drop_backups(self) -> int:
        """Delete all backup copies beside the file and the temporary files of killed writes. Return their number."""
        target = self.locked_path
        copies = self._backups() if self.path.parent.exists() else []
        copies += [
            path
            for name, folder in {(self.name, self.path.parent), (target.name, target.parent)}
            if folder.exists()
            for path in folder.iterdir()
            if re.fullmatch(rf"\.{re.escape(name)}\.(?:bak\..+\.)?\w+\.tmp", path.name)
        ]
        for copy in copies:
            copy.unlink(missing_ok=True)
        return len(copies)

    def unreadable(self, reason: str, remedy: str) -> MemoryConflict:
        """Return the error for a file that exists and can't be read."""
        return MemoryConflict(f"{str(self.path)!r} can't be read: {reason}", remedy)

    def _backups(self) -> list[Path]:
        """Return the backup copies that this class wrote, oldest first, and no `.bak` files of other programs."""
        ours = re.compile(re.escape(self.name) + r"\.bak\.\d{8}T\d{12}-[0-9a-f]{16}")
        return sorted(path for path in self.path.parent.iterdir() if ours.fullmatch(path.name))


@dataclass(frozen=True, slots=True)
class NoteVersion:
    """Change in the history of a file. `action` is add, replace, remove, batch, reset, undo, import, or edit (by hand).

    `before` and `after` are all entries of the file; `undoes` is the id of the change that an undo reverted. `writes` are
    the writes for providers, with the origin of each new text in `metadata`; an edit by hand has none.
    """

    id: int
    target: MemoryTarget
    action: str
    at: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    session_id: str = ""
    undoes: int | None = None
    undone: bool = False
    writes: tuple[MemoryWrite, ...] = ()

    @property
    def added(self) -> tuple[str, ...]:
        """Entries that are in `after` and not in `before`. Duplicates are matched one to one."""
        return tuple((Counter(self.after) - Counter(self.before)).elements())

    @property
    def removed(self) -> tuple[str, ...]:
        """Entries that are in `before` and not in `after`. Duplicates are matched one to one."""
        return tuple((Counter(self.before) - Counter(self.after)).elements())


@dataclass(frozen=True, slots=True)
class OpenNotes:
    """Content of a file whose lock is held. `notice` reports an edit by hand that was just taken into the history."""

    target: MemoryTarget
    file: NoteFile
    session: Session
    fingerprint: str
    entries: tuple[str, ...] = ()
    notice: str = ""


class NoteJournal:
    """Journal of the notes of one home, in `journal.db`.

    All changes of MEMORY.md and USER.md by this package go through it.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        *,
        lock_timeout: float,
        on_write: OnWrite | None = None,
        provider: Callable[[], str] = str,
    ) -> None:
        migrations = [
            ("changes", _create),
            ("changes by file", _index),
            ("who took a change", _takers),
            ("rows in the outbox", _name_outbox),
            ("chain of events", EventChain.create),
        ]
        self._database = Database(
            path, migrations, secure_delete=True, repair=_DAMAGED, reopen_moved=True, fixed_sql=True
        )
        self._chain = EventChain(self._database, MAX_CHANGES, clock)
        self._clock = clock
        self._lock_timeout = lock_timeout
        self._on_write = on_write
        self._provider = provider

    @contextlib.contextmanager
    def opened(self, target: MemoryTarget, file: NoteFile, session: Session) -> Iterator[OpenNotes]:
        """Lock the file for the `with` block and return its content.

        First complete a change that a crash interrupted, and record an edit by hand in the history.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text. The error names a backup copy of the file.
            StorageError: The file can't be locked, or the journal or a backup can't be written.
        """
        # Other processes write the same file: the lock spans from the read to the end of the write.
        with locked(file.locked_path, self._lock_timeout):
            data = file.read()
            present = fingerprint(data)
            self._settle(file.key, present)
            notes = parse_note_file(data)
            if notes.conflict:
                raise MemoryConflict(
                    f"Refusing to write {file.name}: {notes.conflict}, so rewriting it could lose something",
                    f"Save {str(file.path)!r} as UTF-8 text, or move it away and add its facts again with the "
                    "memory tool from the .bak copy",
                    file.try_back_up(data),
                )
            opened = OpenNotes(target, file, session, present, notes.entries)
            known = self._last_done(file.key)
            if (known["fingerprint"] != present) if known else not notes.canonical:
                before = split_entries(known["after"]) if known else notes.entries
                opened = replace(opened, notice=self._adopt(opened, before, data, notes.canonical))
            yield opened

    def write(
        self,
        opened: OpenNotes,
        action: str,
        after: tuple[str, ...],
        writes: Sequence[MemoryWrite],
        undoes: int | None = None,
    ) -> str:
        """Replace the file, record the change, and put its writes into the outbox.

        Args:
            opened: The file with its entries, from `opened`.
            action: The action of the recorded change.
            after: All entries of the new file.
            writes: The writes for the provider.
            undoes: Id of the change that this change reverts.

        Returns:
            A warning if the file was replaced, but the writes could not be put into the outbox or the journal is
            damaged; else "".

        Raises:
            StorageError: The journal or the file could not be written. The next `opened` finds out whether the file
                was replaced, and corrects the history.
        """
        rows = writes if self._on_write else ()
        text = join_entries(after)
        if not after:
            remove_from_inventory(opened.file.path)
        change = self._insert(opened, "intent", action, opened.entries, after, rows, undoes)
        opened.file.replace(text, opened.fingerprint)
        warning = self._enqueue_all(change, rows, opened.session)
        try:
            self._finish(change, enqueued=not warning)
        except StorageError as exc:
            # The file holds the change and the journal its intent, so `_settle` marks it done at the next opening.
            log.warning("change %d of %s is written, not marked done: %s", change, opened.file.name, exc)
            if isinstance(exc, DatabaseCorrupt):  # another opening would not help
                warning = warning or f"{_NOT_RECORDED}: {exc}"
        return warning

    def writers(self) -> set[str]:
        """Return the owner of every session that made a change."""
        rows = self._database.execute("SELECT DISTINCT session FROM changes").fetchall()
        return {Session.from_dict(json.loads(row["session"])).owner for row in rows}

    def now(self) -> float:
        """Return the time of a change that is made now."""
        return self._clock()

    def settle(self, file: NoteFile) -> None:
        """Complete or delete the changes that a crash interrupted, so that the history agrees with the file."""
        with locked(file.locked_path, self._lock_timeout), contextlib.suppress(MemoryConflict):
            self._settle(file.key, fingerprint(file.read()))

    def versions(self, files: Sequence[str], *, before: int | None = None) -> Iterator[NoteVersion]:
        """Yield the completed changes of the files with these keys, newest first.

        Args:
            before: Only changes with a lower id; None for all.
        """
        marks = ", ".join("?" * len(files))
        query = f"""SELECT * FROM changes WHERE state = 'done' AND file IN ({marks}) AND id < ? ORDER BY id DESC"""  # noqa: S608  only question marks
        for row in self._database.execute(query, (*files, MAX_ID if before is None else before)):
            yield NoteVersion(
                id=row["id"],
                target=row["target"],
                action=row["action"],
                at=row["at"],
                before=split_entries(row["before"]),
                after=split_entries(row["after"]),
                session_id=json.loads(row["session"])["id"],
                undoes=row["undoes"],
                undone=bool(row["undone"]),
                writes=tuple(_writes(row["writes"])),
            )

    def record(self, kind: str, subject: str, **details: Any) -> None:
        """Record a decision of a person, such as the confirmation of a text, beside the changes of the notes.

        Args:
            kind: What was decided: confirm, reject, allow.
            subject: Hash of the exact text.
            details: Facts as JSON values, without the text.

        Raises:
            StorageError: The journal can't be written.
        """
        self._chain.append(kind, subject, details)

    def verify(self) -> ChainReport:
        """Check that the record of events is whole and that the history is as it was recorded."""
        with self._database.transaction():  # no change is stored between the two queries
            return self._chain.check(self._contents())

    def accept(self) -> None:
        """Record that a person accepts the history as it is. `verify` checks it from here on."""
        with self._database.transaction():
            self._chain.accept(max(self._contents(), default=0))

    def _contents(self) -> dict[int, str]:
        rows = self._database.execute("SELECT * FROM changes WHERE state = 'done' ORDER BY id")
        return {row["id"]: _digest(row) for row in rows}

    def portable_changes(self, key: str) -> list[dict[str, Any]]:
        """Return the history of a file as JSON data, oldest first, to be taken into another journal."""
        rows = self._database.execute(
            "SELECT * FROM changes WHERE file = ? AND state = 'done' ORDER BY id", (key,)
        )
        return [
            {name: row[name] for name in PORTABLE_COLUMNS} | {"number": row["id"], "undoes": row["undoes"]}
            for row in rows
        ]

    def import_changes(
        self, opened: OpenNotes, changes: Sequence[Mapping[str, Any]], after: tuple[str, ...]
    ) -> int:
        """Take a history of another journal in, and make `after` the entries of the file. Return the number of new changes.

        Changes that are in the journal are left alone. No write is put into an outbox: the history happened elsewhere.

        Args:
            changes: What `portable_changes` returned. The caller has checked it.
        """
        known = {change_key(row) for row in self.portable_changes(opened.file.key)}
        begins = not known and not opened.entries
        new = [change for change in changes if change_key(change) not in known]
        ids: dict[object, int] = {}
        with self._database.transaction() as connection:
            for change in new:
                values = [
                    *(change[name] for name in PORTABLE_COLUMNS[:-1]),
                    int(bool(change["undone"])),
                    ids.get(change.get("undoes")),
                ]
                cursor = connection.execute(
                    f"INSERT INTO changes ({', '.join(PORTABLE_COLUMNS)}, undoes, state, enqueued)"  # noqa: S608  constants
                    f" VALUES ({', '.join('?' * len(values))}, 'done', 1)",
                    values,
                )
                ids[change.get("number")] = int(cursor.lastrowid or 0)
                self._record_change(connection, int(cursor.lastrowid or 0))
        last = self._last_done(opened.file.key)
        text = join_entries(after)
        if begins and (last is None or last["after"] == text):
            # The history ends with what the file gets. The file of the other home may have had another layout.
            self._database.execute(
                "UPDATE changes SET fingerprint = ? WHERE id = (SELECT max(id) FROM changes WHERE file = ?)",
                (fingerprint(text.encode()), opened.file.key),
            )
            opened.file.replace(text, opened.fingerprint)
        elif new or after != opened.entries:
            self.write(opened, "import", after, ())
        return len(new)

    def prune(self, file: NoteFile) -> int:
        """Delete the history and the backups of the file, and return the number of deleted changes and backups.

        Changes whose writes are not in the outbox yet stay. The newest change stays too, without its old entries, if
        the file still has its fingerprint: without a recorded fingerprint, the next `opened` would report an edit by
        hand.
        """
        with locked(file.locked_path, self._lock_timeout):
            present = ""
            with contextlib.suppress(MemoryConflict):
                present = fingerprint(file.read())
                self._settle(file.key, present)
            with self._database.transaction() as connection:
                newest = "(SELECT max(id) FROM changes WHERE file = :file AND state = 'done')"
                connection.execute(
                    f"UPDATE changes SET before = after, writes = '[]', undoes = NULL WHERE id = {newest} AND enqueued",  # noqa: S608  a constant
                    {"file": file.key},
                )
                deleted = connection.execute(
                    f"DELETE FROM changes WHERE file = :file AND enqueued"  # noqa: S608  a constant
                    f" AND NOT (id = {newest} AND fingerprint = :fingerprint)",
                    {"file": file.key, "fingerprint": present},
                ).rowcount
                self._chain.erase(file.key)
                self._chain.append("prune", "", {"changes": deleted})
            # The write-ahead log holds the deleted pages until a checkpoint truncates it.
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return deleted + file.drop_backups()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _settle(self, key: str, present: str) -> None:
        """Mark each intent of a file as done if the file has its fingerprint, and delete it otherwise.

        Args:
            key: The key of the file.
            present: The fingerprint of the file now.
        """
        intents = "SELECT id, fingerprint FROM changes WHERE file = ? AND state = 'intent'"
        for row in self._database.execute(intents, (key,)).fetchall():
            if row["fingerprint"] == present:
                self._finish(row["id"], enqueued=False)
            else:
                self._database.execute("DELETE FROM changes WHERE id = ?", (row["id"],))

    def _last_done(self, key: str) -> sqlite3.Row | None:
        """Return the fingerprint and the text of a file after its last recorded change; None if there is none."""
        query = "SELECT fingerprint, after FROM changes WHERE file = ? AND state = 'done' ORDER BY id DESC LIMIT 1"
        row: sqlite3.Row | None = self._database.execute(query, (key,)).fetchone()
        return row

    def _adopt(self, opened: OpenNotes, before: tuple[str, ...], data: bytes, canonical: bool) -> str:
        """Record an edit by hand as a change, and return a sentence about it.

        Write a backup copy if something would be lost: of the old entries if the file was emptied, or of the file if
        the next write would change its layout.
        """
        file = opened.file
        emptied = bool(before) and not opened.entries
        copy = None
        if emptied or not canonical:
            copy = file.back_up(join_entries(before).encode("utf-8") if emptied else data)
        change = self._insert(opened, "done", "edit", before, opened.entries)
        log.info("adopted an edit of %s from outside as change %d", file.path, change)
        what = "emptied" if emptied else "edited"
        undoable = "" if before == opened.entries else ", which can be undone"
        where = f"; a backup is {str(copy)!r}" if copy else ""
        return f"{file.name} was {what} outside this tool: adopted as change {change}{undoable}{where}."

    def _insert(
        self,
        opened: OpenNotes,
        state: str,
        action: str,
        before: tuple[str, ...],
        after: tuple[str, ...],
        writes: Sequence[MemoryWrite] = (),
        undoes: int | None = None,
    ) -> int:
        """Insert a change into the journal and return its id. The row is on disk when this returns."""
        text = join_entries(after)
        plain: list[dict[str, Any]] = []
        for write in writes:
            fields = dataclasses.asdict(replace(write, metadata={}))
            plain.append(fields | {"metadata": dict(write.metadata)})
        values = (
            opened.file.key,
            opened.target,
            action,
            state,
            self._clock(),
            join_entries(before),
            text,
            # After an edit by hand, the fingerprint is that of the file as it is. For a change of ours, it is the
            # fingerprint of the text that will be written.
            opened.fingerprint if state == "done" else fingerprint(text.encode()),
            json.dumps(opened.session.to_dict()),
            json.dumps(plain),
            not writes,
            undoes,
            self._provider() if state == "intent" else "",
        )
        with self._database.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO changes (file, target, action, state, at, before, after, fingerprint, session, writes,"
                " enqueued, undoes, provider) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            change = int(cursor.lastrowid or 0)
            if state == "done":
                self._record_change(connection, change)
        return change

    def _record_change(self, connection: sqlite3.Connection, change: int) -> None:
        """Append the event of a change that was made, in the transaction that stores this."""
        row = connection.execute("SELECT * FROM changes WHERE id = ?", (change,)).fetchone()
        details = {"content": _digest(row), "session": json.loads(row["session"])["id"]}
        self._chain.append(row["action"], row["file"], details, change)

    def _finish(self, change: int, *, enqueued: bool, provider: str | None = None) -> None:
        """Mark a change as done, and the change that it reverts as undone. Delete changes beyond `MAX_CHANGES`.

        Args:
            enqueued: True if the writes of the change are in the outbox.
            provider: Name of the provider for which they were stored; None keeps the stored name.
        """
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT file, undoes, state FROM changes WHERE id = ?", (change,)
            ).fetchone()
            if row is None:  # another process marked the change first, and then `prune` deleted it
                return
            connection.execute(
                "UPDATE changes SET state = 'done', enqueued = enqueued OR ?, provider = coalesce(?, provider)"
                " WHERE id = ?",
                (enqueued, provider, change),
            )
            if row["state"] == "intent":
                self._record_change(connection, change)
            if row["undoes"] is not None:
                connection.execute("UPDATE changes SET undone = 1 WHERE id = ?", (row["undoes"],))
                # If the reverted change was itself an undo, the change that it had reverted is in effect again.
                connection.execute(
                    "UPDATE changes SET undone = 0 WHERE id = (SELECT undoes FROM changes WHERE id = ?)",
                    (row["undoes"],),
                )
            connection.execute(
                "DELETE FROM changes WHERE file = ? AND enqueued AND id <= "
                "(SELECT id FROM changes WHERE file = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (row["file"], row["file"], MAX_CHANGES),
            )

    # ------------------------------------------------------------------ rows of the outbox

    def enqueue_missing(self) -> int:
        """Put the writes of earlier changes into the outbox that are missing there, after a crash or a full outbox.

        Return the number of these changes. If another provider was in use for a while, also store a removal for each
        entry that the current provider still has, but that was removed during that time.
        """
        count, provider = 0, self._provider()
        since = self._last_enqueued(provider) if provider else 0
        try:
            count = self._enqueue_earlier() if self._on_write else 0
            for change, session, write in self._removed_since(provider, since) if since else ():
                self._enqueue(change, replace(write, action="remove", content=""), session)
        except (OutboxError, StorageError) as exc:
            log.warning("earlier changes of the notes are not in the outbox: %s", exc)
        return count

    def enqueue(self, write: MemoryWrite, session: Session) -> bool:
        """Put a write into the outbox by calling `on_write`. Return False if no provider takes it.

        Raises:
            OutboxError: The outbox does not accept the write, or there is no `on_write`.
            StorageError: The database of the outbox can't be written.
        """
        if self._on_write is None:
            raise OutboxError("no memory provider takes it", "check the provider's state")
        return self._on_write(write, session) is not False

    def _enqueue_earlier(self) -> int:
        """Put writes of completed changes into the outbox if they are not there yet, oldest first.

        Return the number of changes whose writes were put there.
        """
        count, provider = 0, self._provider()
        rows = self._database.execute(
            "SELECT id, session, writes FROM changes"
            " WHERE state = 'done' AND NOT enqueued AND provider IN ('', ?) ORDER BY id",
            (provider,),
        )
        for row in rows.fetchall():
            session = Session.from_dict(json.loads(row["session"]))
            for write in _writes(row["writes"]):
                if not self._enqueue(row["id"], write, session):
                    return count
            self._finish(row["id"], enqueued=True, provider=provider)
            count += 1
        return count

    def _enqueue_all(self, change: int, writes: Sequence[MemoryWrite], session: Session) -> str:
        """Put the writes of a change into the outbox, after those of earlier changes.

        Return a warning if this fails, else "".
        """
        try:
            if writes:
                # Earlier changes go first, because an old change that arrives last would replace a newer one.
                self._enqueue_earlier()
            for write in writes:
                self._enqueue(change, write, session)
        except (OutboxError, StorageError) as exc:
            log.warning("change %d of the notes is not in the outbox: %s", change, exc)
            return f"{_NOT_ENQUEUED}: {exc}"
        return ""

    def _enqueue(self, change: int, write: MemoryWrite, session: Session) -> bool:
        """Put a write into the outbox. Return False if no provider takes it.

        If the write replaces or removes an entry that another user wrote, store a removal for that user, and the new
        entry for the user of `session`.
        """
        origin = self._origin(write.previous, change) if write.previous and session.primary else None
        writer = Session.from_dict(json.loads(origin["session"])) if origin else None
        # Some providers keep a separate memory for each user, others for each user and chat.
        if (
            writer is None
            or not writer.primary
            or (writer.owner, writer.chat_id) == (session.owner, session.chat_id)
        ):
            return self.enqueue(write, session)
        there = replace(writer, identity=session.identity, home=session.home)
        stored = self.enqueue(replace(write, action="remove", content=""), there)
        if not write.content:
            return stored
        new = replace(write, id=f"{write.id}-new", action="add", old_text="", previous="")
        return self.enqueue(new, session) and stored

    def _last_enqueued(self, provider: str) -> int:
        """Return the id of the newest change whose writes were stored for `provider`; 0 if there is none."""
        query = "SELECT coalesce(max(id), 0) FROM changes WHERE provider = ? AND enqueued"
        return int(self._database.execute(query, (provider,)).fetchone()[0])

    def _removed_since(self, provider: str, since: int) -> Iterator[tuple[int, Session, MemoryWrite]]:
        """Yield the writes after the change with id `since` that removed an entry which `provider` has.

        Entries that were added again are left out. Each item is (id of the change, session, write).
        """
        rows = self._database.execute(
            "SELECT id, file, session, writes FROM changes"
            " WHERE id > ? AND state = 'done' AND (enqueued OR provider <> '') AND provider <> ? ORDER BY id",
            (since, provider),
        )
        for row in rows.fetchall():
            for write in _writes(row["writes"]):
                origin = self._origin(write.previous, row["id"]) if write.previous else None
                now = self._last_done(row["file"])
                if (
                    origin
                    and origin["provider"] == provider
                    and now
                    and write.previous not in split_entries(now["after"])
                ):
                    yield row["id"], Session.from_dict(json.loads(row["session"])), write

    def _origin(self, entry: str, change: int) -> sqlite3.Row | None:
        """Return the change that added an entry which `change` removed.

        Return None if the entry was added by hand, or if that change is not in the history any more.
        """
        rows = self._database.execute(
            "SELECT before, after, session, provider FROM changes"
            " WHERE file = (SELECT file FROM changes WHERE id = ?)"
            " AND id < ? AND action <> 'edit' AND instr(after, ?) > 0 ORDER BY id DESC",
            (change, change, entry),
        )
        for row in rows:
            if entry in split_entries(row["after"]) and entry not in split_entries(row["before"]):
                origin: sqlite3.Row = row
                return origin
        return None


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(_TABLE)


def _index(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE INDEX changes_by_file ON changes (file, id)")


def _takers(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE changes ADD COLUMN taker TEXT NOT NULL DEFAULT ''")


def _name_outbox(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE changes RENAME COLUMN mirrored TO enqueued")
    connection.execute("ALTER TABLE changes RENAME COLUMN taker TO provider")


def change_key(change: Mapping[str, Any]) -> str:
    """Return the digest by which a change is known in every journal that took it in."""
    names = ("file", "action", "at", "before", "after", "session", "writes")
    return text_digest(*(change[name] for name in names))


def _digest(row: sqlite3.Row) -> str:
    """Return the digest of what a change did."""
    return text_digest(row["file"], row["action"], row["before"], row["after"])


def _writes(text: str) -> list[MemoryWrite]:
    known = {field.name for field in dataclasses.fields(MemoryWrite)}
    return [
        MemoryWrite(**{key: value for key, value in item.items() if key in known})
        for item in json.loads(text)
    ]

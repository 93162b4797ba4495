"""Crash-safe changes of the notes: their files on disk, and the journal of every change for history and undo.

A change is first stored in the journal as an *intent*, then the file is replaced, then the intent is marked *done*.
If the process dies in between, or the disk is full, the intent stays. The next program that opens the file compares
the fingerprints of file and intent, and so finds out whether the file was replaced. All this happens under the
file's lock.

On a server that several machines share, the text is a row beside the journal. A change is one commit there, with its row
in the outbox, and no lock is held while it is planned: it names the version of the row that it was planned for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Session
from hermes_core.curated.document import join_entries, parse_note_file, split_entries
from hermes_core.curated.places import NoteFile, NotePlace, NoteText, fingerprint
from hermes_core.errors import DatabaseCorrupt, MemoryConflict, OutboxError, StorageError
from hermes_core.storage.chain import ChainReport, EventChain, text_digest
from hermes_core.storage.engine import CommitInDoubt, CommitUnconfirmed, Connection, Engine
from hermes_core.storage.inventory import remove_from_inventory
from hermes_core.storage.sqlite import SCHEMA_1, Database, Migration

log = logging.getLogger(__name__)

MAX_CHANGES = 1000
"""Number of changes in the history of each file. Older changes are deleted and can't be undone."""

# The tables of the journal in a database of several machines.
CHANGES = "note_changes"
EVENTS = "note_events"

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
    enqueued INTEGER NOT NULL,
    undoes INTEGER,
    undone INTEGER NOT NULL DEFAULT 0,
    provider TEXT NOT NULL DEFAULT ''
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


class NoteVersion(Struct, frozen=True):
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


class OpenNotes(Struct, frozen=True):
    """Content of a place whose change is planned. The lock of a file is held.

    `stored` is the text as it was read. `notice` reports an edit by hand that was just taken into the history.
    """

    target: MemoryTarget
    file: NotePlace
    session: Session
    stored: NoteText = field(default_factory=NoteText)
    entries: tuple[str, ...] = ()
    notice: str = ""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the text as it was read."""
        return self.stored.fingerprint


class NoteJournal:
    """Journal of the notes of one home: `journal.db`, or the tables of a server.

    All changes of MEMORY.md and USER.md by this package go through it.

    Args:
        source: The file of the journal, or the database of a server, which the caller closes.
    """

    def __init__(
        self,
        source: Path | Engine,
        clock: Callable[[], float] = time.time,
        *,
        lock_timeout: float,
        on_write: OnWrite | None = None,
        provider: Callable[[], str] = str,
    ) -> None:
        self._is_own = isinstance(source, Path)
        self._database: Engine
        if isinstance(source, Path):
            self._database = journal_database(source)
        else:
            self._database = source
        self._table, events = ("changes", "events") if self._is_own else (CHANGES, EVENTS)
        self._chain = EventChain(self._database, MAX_CHANGES, clock, events)
        self._clock = clock
        self._lock_timeout = lock_timeout
        self._on_write = on_write
        self._provider = provider

    @property
    def exists(self) -> bool:
        """False if nothing was ever recorded."""
        return self._database.exists

    @contextlib.contextmanager
    def opened(self, target: MemoryTarget, file: NotePlace, session: Session) -> Iterator[OpenNotes]:
        """Return the content of a place. The lock of a file is held for the `with` block.

        For a file, first complete a change that a crash interrupted, and record an edit by hand in the history.

        Raises:
            MemoryConflict: The file can't be read or is not UTF-8 text. The error names a backup copy of the file.
            StorageError: The file can't be locked, or the journal or a backup can't be written.
        """
        # Other processes write the same file: the lock spans from the read to the end of the write.
        with file.locked(self._lock_timeout):
            stored = file.load()
            if not file.in_database:
                self._settle(file.key, stored.fingerprint)
            notes = parse_note_file(stored.data)
            if notes.conflict:
                raise MemoryConflict(
                    f"Refusing to write {file.name}: {notes.conflict}, so rewriting it could lose something",
                    f"save {file.label} as UTF-8 text, or move it away and add its facts again from the .bak copy",
                    file.try_back_up(stored.data),
                )
            opened = OpenNotes(target, file, session, stored, notes.entries)
            if not file.in_database:
                known = self._last_done(file.key)
                if (known["fingerprint"] != stored.fingerprint) if known else not notes.canonical:
                    before = split_entries(known["after"]) if known else notes.entries
                    opened = structs.replace(opened, notice=self._adopt(opened, before, notes.canonical))
            yield opened

    def write(
        self,
        opened: OpenNotes,
        action: str,
        after: tuple[str, ...],
        writes: Sequence[MemoryWrite],
        undoes: int | None = None,
        before: Callable[[], object] | None = None,
    ) -> str:
        """Replace the text, record the change, and put its writes into the outbox.

        On a server all of this is one commit.

        Args:
            opened: The file with its entries, from `opened`.
            action: The action of the recorded change.
            after: All entries of the new file.
            writes: The writes for the provider.
            undoes: Id of the change that this change reverts.
            before: Called before anything is written; on a server, what it stores is in the same commit.

        Returns:
            A warning if the file was replaced, but the writes could not be put into the outbox or the journal is
            damaged; else "".

        Raises:
            NotesChanged: Another program changed the row since it was read. Nothing was changed.
            StorageError: The journal or the text could not be written. The next `opened` finds out whether a file was
                replaced, and corrects the history.
        """
        rows = writes if self._on_write else ()
        if opened.file.in_database:
            return self._write_row(opened, action, after, rows, undoes, before)
        if before is not None:
            before()
        if not after:
            remove_from_inventory(opened.file.path)
        change = self._insert(opened, "intent", action, opened.entries, after, rows, undoes)
        opened.file.replace(join_entries(after), opened.stored)
        warning = self._enqueue_all(change, rows, opened.session)
        try:
            self._finish(change, enqueued=not warning)
        except StorageError as exc:
            # The file holds the change and the journal its intent, so `_settle` marks it done at the next opening.
            log.warning("change %d of %s is written, not marked done: %s", change, opened.file.name, exc)
            if isinstance(exc, DatabaseCorrupt):  # another opening would not help
                warning = warning or f"{_NOT_RECORDED}: {exc}"
        return warning

    def _write_row(
        self,
        opened: OpenNotes,
        action: str,
        after: tuple[str, ...],
        rows: Sequence[MemoryWrite],
        undoes: int | None,
        before: Callable[[], object] | None,
    ) -> str:
        """Store text, change and writes in one commit, as `write` does for a place on a server."""
        change = 0
        try:
            with self._database.transaction():
                if before is not None:
                    before()
                # Of several writers the others wait here, and have little to undo.
                opened.file.replace(join_entries(after), opened.stored)
                change = self._insert(opened, "intent", action, opened.entries, after, rows, undoes)
                warning = self._enqueue_all(change, rows, opened.session)
                # Last: all changes of a home wait for one another from here to the commit, because of their hashes.
                self._finish(change, enqueued=not warning)
        except CommitUnconfirmed:
            raise  # it is there, and lost with the primary
        except CommitInDoubt:
            if self._database.in_transaction or not self._has(change):
                raise
        return warning

    def _has(self, change: int) -> bool:
        """Return True if a change is known to be stored. The id of one that was rolled back is never used again."""
        query = f"SELECT 1 FROM {self._table} WHERE id = ?{self._database.row_lock}"
        # The lock makes this a commit that waits for the standby, which then has the change as well.
        with contextlib.suppress(StorageError), self._database.transaction() as connection:
            return connection.execute(query, (change,)).fetchone() is not None
        return False

    def writers(self) -> set[str]:
        """Return the owner of every session that made a change."""
        rows = self._database.execute(f"SELECT DISTINCT session FROM {self._table}").fetchall()
        return {Session.from_dict(json.loads(row["session"])).owner for row in rows}

    def now(self) -> float:
        """Return the time of a change that is made now."""
        return self._clock()

    def settle(self, file: NotePlace) -> None:
        """Complete or delete the changes that a crash interrupted, so that the history agrees with the file."""
        if file.in_database:  # a crash leaves all of a change or nothing
            return
        with file.locked(self._lock_timeout), contextlib.suppress(MemoryConflict):
            self._settle(file.key, file.load().fingerprint)

    def versions(self, files: Sequence[str], *, before: int | None = None) -> Iterator[NoteVersion]:
        """Yield the completed changes of the files with these keys, newest first.

        Args:
            before: Only changes with a lower id; None for all.
        """
        marks = ", ".join("?" * len(files))
        query = f"SELECT * FROM {self._table} WHERE state = 'done' AND file IN ({marks}) AND id < ? ORDER BY id DESC"
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
        with self._database.transaction():
            self._database.serialize(self._chain.table)  # no change is stored between the two queries
            return self._chain.check(self._contents())

    def accept(self) -> None:
        """Record that a person accepts the history as it is. `verify` checks it from here on."""
        with self._database.transaction():
            self._chain.accept(max(self._contents(), default=0))

    def _contents(self) -> dict[int, str]:
        rows = self._database.execute(f"SELECT * FROM {self._table} WHERE state = 'done' ORDER BY id")
        return {row["id"]: _digest(row) for row in rows}

    def portable_changes(self, key: str) -> list[dict[str, Any]]:
        """Return the history of a file as JSON data, oldest first, to be taken into another journal."""
        rows = self._database.execute(
            f"SELECT * FROM {self._table} WHERE file = ? AND state = 'done' ORDER BY id", (key,)
        )
        return [
            {name: row[name] for name in PORTABLE_COLUMNS}
            | {"undone": int(row["undone"]), "number": row["id"], "undoes": row["undoes"]}
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
        text = join_entries(after)
        whole = self._database.transaction() if opened.file.in_database else contextlib.nullcontext()
        with whole:
            if opened.file.in_database and new:
                # The imported changes take the next versions of the row.
                opened.file.replace(join_entries(opened.entries), opened.stored, versions=len(new))
                version = opened.stored.version
                opened = structs.replace(opened, stored=NoteText(opened.stored.data, version + len(new)))
            self._insert_imported(opened, new)
            last = self._last_done(opened.file.key)
            ends_alike = last["after"] == text if last else not opened.file.in_database
            if begins and ends_alike:
                # The history ends with what the file gets. The file of the other home may have had another layout.
                self._database.execute(
                    f"UPDATE {self._table} SET fingerprint = ?"
                    f" WHERE id = (SELECT max(id) FROM {self._table} WHERE file = ?)",
                    (fingerprint(text.encode()), opened.file.key),
                )
                opened.file.replace(text, opened.stored, versions=0)
            elif new or after != opened.entries:
                self.write(opened, "import", after, ())
        return len(new)

    def _insert_imported(self, opened: OpenNotes, changes: Sequence[Mapping[str, Any]]) -> None:
        """Insert changes of another journal, which end at the version of the opened notes."""
        ids: dict[object, int] = {}
        first = opened.stored.version - len(changes) + 1
        with self._database.transaction() as connection:
            for version, change in enumerate(changes, first):
                values = {name: change[name] for name in PORTABLE_COLUMNS[:-1]}
                values |= {"undone": bool(change["undone"]), "undoes": ids.get(change.get("undoes"))}
                values |= {"state": "done", "enqueued": True}
                number = self._insert_row(connection, values, version)
                ids[change.get("number")] = number
                self._record_change(connection, number)

    def prune(self, file: NotePlace) -> int:
        """Delete the history and the backups of the file, and return the number of deleted changes and backups.

        Changes whose writes are not in the outbox yet stay. The newest change stays too, without its old entries, if
        the file still has its fingerprint: without a recorded fingerprint, the next `opened` would report an edit by
        hand.
        """
        with file.locked(self._lock_timeout):
            present = ""
            with contextlib.suppress(MemoryConflict):
                present = file.load().fingerprint
                if not file.in_database:
                    self._settle(file.key, present)
            with self._database.transaction() as connection:
                newest = f"(SELECT max(id) FROM {self._table} WHERE file = :file AND state = 'done')"
                connection.execute(
                    f"UPDATE {self._table} SET before = after, writes = '[]', undoes = NULL"
                    f" WHERE id = {newest} AND enqueued",
                    {"file": file.key},
                )
                deleted = connection.execute(
                    f"DELETE FROM {self._table} WHERE file = :file AND enqueued"
                    f" AND NOT (id = {newest} AND fingerprint = :fingerprint)",
                    {"file": file.key, "fingerprint": present},
                ).rowcount
                self._database.serialize(self._chain.table)  # no event of this file is appended meanwhile
                self._chain.erase(file.key)
                self._chain.append("prune", "", {"changes": deleted})
            if self._database.kind == "sqlite":
                # The write-ahead log holds the deleted pages until a checkpoint truncates it.
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return deleted + file.drop_backups()

    def close(self) -> None:
        """Close the file of the journal. The database of a server is its owner's."""
        if self._is_own:
            self._database.close()

    def _settle(self, key: str, present: str) -> None:
        """Mark each intent of a file as done if the file has its fingerprint, and delete it otherwise.

        Args:
            key: The key of the file.
            present: The fingerprint of the file now.
        """
        intents = f"SELECT id, fingerprint FROM {self._table} WHERE file = ? AND state = 'intent'"
        for row in self._database.execute(intents, (key,)).fetchall():
            if row["fingerprint"] == present:
                self._finish(row["id"], enqueued=False)
            else:
                self._database.execute(f"DELETE FROM {self._table} WHERE id = ?", (row["id"],))

    def _last_done(self, key: str) -> Any:
        """Return the fingerprint and the text of a file after its last recorded change; None if there is none."""
        query = f"SELECT fingerprint, after FROM {self._table} WHERE file = ? AND state = 'done' ORDER BY id DESC LIMIT 1"
        return self._database.execute(query, (key,)).fetchone()

    def _adopt(self, opened: OpenNotes, before: tuple[str, ...], canonical: bool) -> str:
        """Record an edit by hand as a change, and return a sentence about it.

        Write a backup copy if something would be lost: of the old entries if the file was emptied, or of the file if
        the next write would change its layout.
        """
        file = opened.file
        assert isinstance(file, NoteFile), "nobody edits a row by hand"
        emptied = bool(before) and not opened.entries
        copy = None
        if emptied or not canonical:
            copy = file.back_up(join_entries(before).encode("utf-8") if emptied else opened.stored.data)
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
        values = {
            "file": opened.file.key,
            "target": opened.target,
            "action": action,
            "state": state,
            "at": self._clock(),
            "before": join_entries(before),
            "after": text,
            # After an edit by hand, the fingerprint is that of the file as it is. For a change of ours, it is the
            # fingerprint of the text that will be written.
            "fingerprint": opened.fingerprint if state == "done" else fingerprint(text.encode()),
            "session": json.dumps(opened.session.to_dict()),
            "writes": json.dumps(plain),
            "enqueued": not writes,
            "undoes": undoes,
            "provider": self._provider() if state == "intent" else "",
        }
        with self._database.transaction() as connection:
            change = self._insert_row(connection, values, opened.stored.version + 1)
            if state == "done":
                self._record_change(connection, change)
        return change

    def _insert_row(self, connection: Connection, values: Mapping[str, Any], version: int) -> int:
        """Insert a row of the history and return its id. On a server, `version` is that of the row of the notes."""
        if not self._is_own:
            values = {**values, "version": version}
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {self._table} ({', '.join(values)}) VALUES ({marks}) RETURNING id"
        return int(connection.execute(sql, tuple(values.values())).fetchone()[0])

    def _record_change(self, connection: Connection, change: int) -> None:
        """Append the event of a change that was made, in the transaction that stores this."""
        row = connection.execute(f"SELECT * FROM {self._table} WHERE id = ?", (change,)).fetchone()
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
                f"SELECT file, undoes, state FROM {self._table} WHERE id = ?", (change,)
            ).fetchone()
            if row is None:  # another process marked the change first, and then `prune` deleted it
                return
            connection.execute(
                f"UPDATE {self._table} SET state = 'done', enqueued = enqueued OR ?, provider = coalesce(?, provider)"
                " WHERE id = ?",
                (enqueued, provider, change),
            )
            if row["undoes"] is not None:
                connection.execute(f"UPDATE {self._table} SET undone = TRUE WHERE id = ?", (row["undoes"],))
                # If the reverted change was itself an undo, the change that it had reverted is in effect again.
                connection.execute(
                    f"UPDATE {self._table} SET undone = FALSE"
                    f" WHERE id = (SELECT undoes FROM {self._table} WHERE id = ?)",
                    (row["undoes"],),
                )
            connection.execute(
                f"DELETE FROM {self._table} WHERE file = ? AND enqueued AND id <= "
                f"(SELECT id FROM {self._table} WHERE file = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (row["file"], row["file"], MAX_CHANGES),
            )
            if row["state"] == "intent":
                self._record_change(connection, change)

    # ------------------------------------------------------------------ rows of the outbox

    def enqueue_missing(self) -> int:
        """Put the writes of earlier changes into the outbox that are missing there, after a crash or a full outbox.

        Return the number of these changes. If another provider was in use for a while, also store a removal for each
        entry that the current provider still has, but that was removed during that time.
        """
        count, provider = 0, self._provider()
        since = self._last_enqueued(provider) if provider else 0
        try:
            # Another machine may find the same changes at the same moment.
            count = self._database.retry(self._enqueue_earlier, idempotent=True) if self._on_write else 0
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
            f"SELECT id, session, writes FROM {self._table}"
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
            if isinstance(exc, StorageError) and not self._is_own:
                raise  # the outbox is in the same database, whose transaction has failed
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
        query = f"SELECT coalesce(max(id), 0) FROM {self._table} WHERE provider = ? AND enqueued"
        return int(self._database.execute(query, (provider,)).fetchone()[0])

    def _removed_since(self, provider: str, since: int) -> Iterator[tuple[int, Session, MemoryWrite]]:
        """Yield the writes after the change with id `since` that removed an entry which `provider` has.

        Entries that were added again are left out. Each item is (id of the change, session, write).
        """
        rows = self._database.execute(
            f"SELECT id, file, session, writes FROM {self._table}"
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

    def _origin(self, entry: str, change: int) -> Any:
        """Return the change that added an entry which `change` removed.

        Return None if the entry was added by hand, or if that change is not in the history any more.
        """
        find = self._database.dialect.position
        rows = self._database.execute(
            f"SELECT before, after, session, provider FROM {self._table}"
            f" WHERE file = (SELECT file FROM {self._table} WHERE id = ?)"
            f" AND id < ? AND action <> 'edit' AND {find}(after, ?) > 0 ORDER BY id DESC",
            (change, change, entry),
        )
        for row in rows:
            if entry in split_entries(row["after"]) and entry not in split_entries(row["before"]):
                return row
        return None


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(_TABLE)
    connection.execute("CREATE INDEX changes_by_file ON changes (file, id)")
    EventChain.create(connection)


MIGRATIONS: tuple[Migration, ...] = ((SCHEMA_1, _create),)


def journal_database(path: Path, *, marked: bool = False) -> Database:
    """Return the journal in a file.

    Args:
        marked: True to open a journal whose notes are moved to a server.
    """
    return Database(
        path,
        MIGRATIONS,
        secure_delete=True,
        repair=_DAMAGED,
        reopen_moved=True,
        fixed_sql=True,
        marked=marked,
    )


def change_key(change: Mapping[str, Any]) -> str:
    """Return the digest by which a change is known in every journal that took it in."""
    names = ("file", "action", "at", "before", "after", "session", "writes")
    return text_digest(*(change[name] for name in names))


def _digest(row: Any) -> str:
    """Return the digest of what a change did."""
    return text_digest(row["file"], row["action"], row["before"], row["after"])


def _writes(text: str) -> list[MemoryWrite]:
    known = {field.name for field in dataclasses.fields(MemoryWrite)}
    return [
        MemoryWrite(**{key: value for key, value in item.items() if key in known})
        for item in json.loads(text)
    ]

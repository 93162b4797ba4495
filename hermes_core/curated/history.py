"""The history of the notes and skills: every change with what it took away, for undo, and the record of events that shows
tampering."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from msgspec import Struct

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Session
from hermes_core.curated.document import join_entries, split_entries
from hermes_core.curated.origins import Note, note_key, origin_from_plain, plain_origin
from hermes_core.curated.rows import StoredFile
from hermes_core.storage.chain import EVENTS, ChainReport, EventChain, text_digest
from hermes_core.storage.engine import Engine, Statement, detecting_damage

MAX_CHANGES = 1000
"""Number of changes in the history of each file. Older changes are deleted and can't be undone."""

# Beginning of the `target` of a change whose file is not written yet, and which is no part of the history.
PENDING = "pending:"

# Above every id of a change: the largest integer of SQLite.
MAX_ID = 2**63 - 1

PORTABLE_COLUMNS = (
    "file",
    "target",
    "action",
    "at",
    "before",
    "after",
    "gone",
    "session",
    "writes",
    "undone",
)
"""Columns of a change that mean the same in every home."""


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


class NoteHistory:
    """The tables `note_changes` and `note_events` of a home."""

    def __init__(self, database: Engine, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock
        self._chain = EventChain(database, MAX_CHANGES, clock)

    # ------------------------------------------------------------------ writing

    def add(
        self,
        file: StoredFile,
        after: Sequence[str],
        action: str,
        session: Session,
        writes: Sequence[MemoryWrite] = (),
        undoes: int | None = None,
        provider: str = "",
    ) -> Statement:
        """Return the statement that adds a change of a file, and returns its id.

        Args:
            file: The file before the change.
            after: All entries after it.
            provider: Name of the provider for which the writes are stored.
        """
        left = Counter(after)
        gone = {}
        for note in file.notes:
            if left[note.text] > 0:
                left[note.text] -= 1
            else:
                gone[note_key(note.text)] = plain_origin(note.origin) | {"change": note.change}
        values = {
            "file": file.key,
            "target": file.target,
            "action": action,
            "at": self._clock(),
            "before": file.text,
            "after": join_entries(after),
            "gone": json.dumps(gone),
            "session": json.dumps(session.to_dict()),
            "writes": json.dumps([_plain_write(write) for write in writes]),
            "undoes": undoes,
            "undone": 0,
            "provider": provider,
        }
        return insert_change(values)

    def complete(self, file: str, change: int, undoes: int | None) -> list[Statement]:
        """Return the statements that mark what a change reverts, and delete changes beyond `MAX_CHANGES`."""
        statements: list[Statement] = []
        if undoes is not None:
            statements += [
                ("UPDATE note_changes SET undone = 1 WHERE id = ?", (undoes,)),
                # If the reverted change was itself an undo, the change that it had reverted is in effect again.
                (
                    "UPDATE note_changes SET undone = 0 WHERE id = (SELECT undoes FROM note_changes WHERE id = ?)",
                    (undoes,),
                ),
            ]
        oldest = "SELECT id FROM note_changes WHERE file = ? AND id <= ? ORDER BY id DESC LIMIT 1 OFFSET ?"
        statements.append(
            (
                f"DELETE FROM note_changes WHERE file = ? AND id <= ({oldest})",
                (file, file, change, MAX_CHANGES),
            )
        )
        return statements

    def record_change(
        self, file: str, change: int, action: str, before: str, after: str, session_id: str
    ) -> None:
        """Append the event of a change, in the transaction that stores it, as its last step.

        All changes of a home wait for one another from here to the commit, because an event holds the hash of the last one.
        """
        content = text_digest(file, action, before, after)
        self._chain.append(action, file, {"content": content, "session": session_id}, change)

    def record(self, kind: str, subject: str, **details: Any) -> None:
        """Record a decision of a person, such as the confirmation of a text, beside the changes of the notes.

        Args:
            kind: What was decided: confirm, reject, allow.
            subject: Hash of the exact text.
            details: Facts as JSON values, without the text.

        Raises:
            StorageError: The database can't be written.
        """
        self._chain.append(kind, subject, details)

    def prune(self, key: str) -> int:
        """Delete the changes of a file, and what the events say of them. Return the number of deleted changes."""
        with self._database.transaction() as connection:
            deleted = connection.execute("DELETE FROM note_changes WHERE file = ?", (key,)).rowcount
            connection.execute("UPDATE note_entries SET change = 0 WHERE file = ?", (key,))
            self._database.dialect.serialize(
                connection, EVENTS
            )  # no event of this file is appended meanwhile
            self._chain.erase(key)
            self._chain.append("prune", "", {"changes": deleted})
        return deleted

    # ------------------------------------------------------------------ reading

    def has(self, change: int) -> bool:
        """Return True if a change is known to be stored. The id of one that was rolled back is never used again."""
        # The lock makes this a commit that waits for the standby of a server, which then has the change as well.
        query = f"SELECT 1 FROM note_changes WHERE id = ?{self._database.dialect.row_lock}"
        with self._database.transaction() as connection:
            return connection.execute(query, (change,)).fetchone() is not None

    def versions(self, files: Sequence[str], *, before: int | None = None) -> Iterator[NoteVersion]:
        """Yield the changes of the files with these keys, newest first.

        Args:
            before: Only changes with a lower id; None for all.
        """
        if not self._database.exists:
            return
        marks = ", ".join("?" * len(files))
        query = f"SELECT * FROM note_changes WHERE file IN ({marks}) AND id < ? ORDER BY id DESC"
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

    def had_text(self, file: StoredFile, text: str) -> bool:
        """Return True if the notes of a file had exactly this text before or after one of their changes."""
        query = 'SELECT 1 FROM note_changes WHERE file = ? AND ("after" = ? OR "before" = ?)'
        return self._database.execute(query, (file.key, text, text)).fetchone() is not None

    def last_gone(self, files: Sequence[str], entry: str) -> Note | None:
        """Return an entry as it was when a change last took it away; None if none did."""
        key, marks = note_key(entry), ", ".join("?" * len(files))
        query = (
            f"SELECT gone FROM note_changes WHERE file IN ({marks}) AND gone LIKE ? ORDER BY id DESC LIMIT 1"
        )
        # As a name: the id of a session in these values may be the same digits.
        row = self._database.execute(query, (*files, f'%"{key}": %')).fetchone()
        return None if row is None else _gone(entry, json.loads(row["gone"])[key])

    def writer(self, change: int) -> tuple[Session, str] | None:
        """Return the session that made a change, and the provider that was told.

        None for an edit by hand, and if the change is not in the history any more.
        """
        query = "SELECT session, provider FROM note_changes WHERE id = ? AND action <> 'edit'"
        row = self._database.execute(query, (change,)).fetchone()
        return None if row is None else (Session.from_dict(json.loads(row["session"])), row["provider"])

    def writers(self) -> set[str]:
        """Return the owner of every session that made a change of the notes."""
        if not self._database.exists:
            return set()
        # The changes of skills name no more than the id of their session.
        condition, values = self._database.dialect.among("target", get_args(MemoryTarget))
        query = f"SELECT DISTINCT session FROM note_changes WHERE {condition}"
        rows = self._database.execute(query, values).fetchall()
        return {Session.from_dict(json.loads(row["session"])).owner for row in rows}

    def removed_without(self, provider: str) -> Iterator[tuple[Session, MemoryWrite, Note]]:
        """Yield the writes that took an entry away which `provider` has, while another provider was in use.

        Each item is the session of the change, the write, and the entry.
        """
        if not self._database.exists:
            return
        query = "SELECT coalesce(max(id), 0) FROM note_changes WHERE provider = ?"
        since = int(self._database.execute(query, (provider,)).fetchone()[0])
        query = "SELECT session, writes, gone FROM note_changes WHERE id > ? ORDER BY id"
        for row in self._database.execute(query, (since,)).fetchall() if since else ():
            gone = json.loads(row["gone"])
            for write in _writes(row["writes"]):
                if (plain := gone.get(note_key(write.previous))) is None:
                    continue
                note = _gone(write.previous, plain)
                known = self.writer(note.change)
                if known is not None and known[1] == provider:
                    yield Session.from_dict(json.loads(row["session"])), write, note

    # ------------------------------------------------------------------ the record of events

    def verify(self) -> ChainReport | None:
        """Check that the record of events is whole and that the history is as it was recorded; None without a database.

        Raises:
            StorageError: The database can't be read.
        """
        if not self._database.exists:
            return None
        with detecting_damage(self._database), self._database.transaction() as connection:
            self._database.dialect.serialize(
                connection, EVENTS
            )  # no change is stored between the two queries
            return self._chain.check(self._contents())

    def accept_history(self) -> None:
        """Record that a person accepts the history as it is. `verify` checks it from here on."""
        with self._database.transaction():
            self._chain.accept(max(self._contents(), default=0))

    def _contents(self) -> dict[int, str]:
        rows = self._database.execute(
            'SELECT id, file, action, "before", "after" FROM note_changes WHERE target NOT LIKE ? ORDER BY id',
            (f"{PENDING}%",),
        )
        return {
            row["id"]: text_digest(row["file"], row["action"], row["before"], row["after"]) for row in rows
        }

    # ------------------------------------------------------------------ other homes

    def portable(self, key: str) -> list[dict[str, Any]]:
        """Return the history of a file as JSON data, oldest first, to be taken into another home."""
        if not self._database.exists:
            return []
        rows = self._database.execute("SELECT * FROM note_changes WHERE file = ? ORDER BY id", (key,))
        return [
            {name: row[name] for name in PORTABLE_COLUMNS} | {"number": row["id"], "undoes": row["undoes"]}
            for row in rows
        ]

    def take_in(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """Add changes of another home. The caller has checked them and holds a transaction."""
        ids: dict[object, int] = {}
        for change in changes:
            values = {name: change[name] for name in PORTABLE_COLUMNS[:-1]}
            values |= {
                "undone": int(change["undone"]),
                "undoes": ids.get(change.get("undoes")),
                "provider": "",
            }
            number = int(self._database.execute(*insert_change(values)).fetchone()[0])
            ids[change.get("number")] = number
            session_id = json.loads(change["session"])["id"]
            texts = change["before"], change["after"]
            self.record_change(change["file"], number, change["action"], *texts, session_id)


def change_key(change: Mapping[str, Any]) -> str:
    """Return the digest by which a change is known in every home that took it in."""
    names = ("file", "action", "at", "before", "after", "session", "writes")
    return text_digest(*(change[name] for name in names))


def insert_change(values: Mapping[str, Any]) -> Statement:
    """Return the statement that inserts a change with these values by column, and returns its id."""
    names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
    return f"INSERT INTO note_changes ({names}) VALUES ({marks}) RETURNING id", tuple(values.values())


def _gone(entry: str, plain: Mapping[str, Any]) -> Note:
    return Note(entry, origin_from_plain(plain), int(plain.get("change", 0)))


def _plain_write(write: MemoryWrite) -> dict[str, Any]:
    fields = dataclasses.asdict(dataclasses.replace(write, metadata={}))
    return fields | {"metadata": dict(write.metadata)}


def _writes(text: str) -> list[MemoryWrite]:
    known = {field.name for field in dataclasses.fields(MemoryWrite)}
    return [
        MemoryWrite(**{key: value for key, value in item.items() if key in known})
        for item in json.loads(text)
    ]

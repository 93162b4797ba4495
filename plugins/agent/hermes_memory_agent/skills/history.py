"""The changes of skills and the origins of their texts, as rows of the tables of the notes in the database of the home.

A change is two commits with the write of SKILL.md between them. The first one stores the text before, the text after and
the origin of the text after, as a pending change. The second one makes it a change of the history, with its event. So a
process may die at any point: before the write, nothing has happened; after it, the next call finds the text of the
pending change in the file and completes the change. The person's own text is in the database before it is replaced, and
no text is in a file before its origin is known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from hermes_core.contract.values import Origin
from hermes_core.curated.history import MAX_ID, PENDING, NoteHistory, insert_change
from hermes_core.curated.origins import PERSON, NoteOrigin, entry_hash
from hermes_core.errors import SkillError
from hermes_core.safety.origin import as_origin, rank
from hermes_core.storage.engine import Engine
from hermes_memory_agent.skills.document import normalize_lines

_TARGET = "skill"

_CHANGES = 'SELECT id, file, action, at, "before", "after", session FROM note_changes'
_FINISH = """
    UPDATE note_changes SET target = ? WHERE id = ? AND target = ?
    RETURNING file, action, "before", "after", session, undoes
"""
_ORIGINS = "SELECT file, origin, at, session, confirmed, pinned FROM note_entries"
_SET_ORIGIN = """
    INSERT INTO note_entries (file, position, text, origin, at, session, confirmed, pinned, change)
    VALUES (?, 0, '', ?, ?, ?, ?, 0, 0)
    ON CONFLICT (file, position) DO UPDATE
        SET origin = excluded.origin, at = excluded.at, session = excluded.session, confirmed = excluded.confirmed
"""


@dataclass(frozen=True, slots=True)
class SkillChange:
    """Change of one file: its exact text before and after, None if there was or is no file."""

    id: int
    path: str
    action: str
    at: float
    before: str | None
    after: str | None
    session_id: str


class SkillHistory:
    """The rows of the skills in one folder.

    A change has the path of its file as its key. An origin belongs to a text and not to a place, so that a skill which a
    person moves keeps it: its key is the folder with the hash of the text.

    Args:
        folder: Key of the folder: "skills" for those of the home, "users/NAME/skills" for those of a user.
        place: This machine and home, if other machines use the database too. Their files are others.
    """

    def __init__(
        self, database: Engine, folder: str, place: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._folder, self._clock = database, folder, clock
        self._pending = f"{PENDING}{place}"
        self._history = NoteHistory(database, clock)
        # The keys below the folder: "0" is the character after "/".
        self._range = (f"{folder}/", f"{folder}0")

    # ------------------------------------------------------------------ writing

    def begin(
        self,
        path: str,
        action: str,
        before: str | None,
        after: str | None,
        session_id: str,
        origin: Origin | None,
        undoes: int | None,
    ) -> int:
        """Store a change that is about to happen, and return its id.

        Args:
            origin: Origin of the text after the change; None for a text whose origin is known.
            undoes: Id of the change that this one reverts.
        """
        values = {
            "file": f"{self._folder}/{path}",
            "target": self._pending,
            "action": action,
            "at": self._clock(),
            "before": before or "",
            "after": after or "",
            "gone": "{}",
            "session": json.dumps({"id": session_id}),
            "writes": "[]",
            "undoes": undoes,
        }
        with self._database.transaction():
            if after is not None and origin is not None:
                self._record_origin(normalize_lines(after), origin, session_id)
            return int(self._database.execute(*insert_change(values)).fetchone()[0])

    def finish(self, change: int) -> None:
        """Add a change to the history, with its event, after its file was written."""
        with self._database.transaction():
            row = self._database.execute(_FINISH, (_TARGET, change, self._pending)).fetchone()
            if row is None:  # its user was forgotten meanwhile
                return
            self._database.batch(self._history.complete(row["file"], change, row["undoes"]))
            self._history.record_change(
                row["file"],
                change,
                row["action"],
                row["before"],
                row["after"],
                json.loads(row["session"])["id"],
            )

    def pending(self) -> list[Any]:
        """Return id, file and text of the changes that another process is about to make, or that a crash cut short."""
        if not self._database.exists:
            return []
        query = 'SELECT id, file, "after" FROM note_changes WHERE file > ? AND file < ? AND target = ?'
        return self._database.execute(query, (*self._range, self._pending)).fetchall()

    def settle(self, read: Callable[[str], str | None]) -> None:
        """Complete the changes that a crash cut short and whose text is in the file; the others never happened.

        The caller holds the lock of the skills.
        """
        for row in self.pending():
            try:
                now = read(self._path(row["file"]))
            except SkillError:  # it can't be read now: a later call decides
                continue
            if same_text(now, row["after"] or None):
                self.finish(row["id"])
            else:
                self._database.execute("DELETE FROM note_changes WHERE id = ?", (row["id"],))

    def confirm(self, text: str) -> None:
        """Store that a person read and confirmed exactly this text, and record the event."""
        with self._database.transaction():
            before = self.origins([text]).get(entry_hash(text), PERSON)
            confirmed = before.confirmed or before.origin
            self._set_origin(
                text, structs.replace(before, origin="person", at=self._clock(), confirmed=confirmed)
            )
            self._history.record("confirm", entry_hash(text))

    def forget(self) -> None:
        """Delete all changes and origins, and what the events say of them."""
        if not self._database.exists:
            return
        query = "SELECT DISTINCT file FROM note_changes WHERE file > ? AND file < ?"
        for row in self._database.execute(query, self._range).fetchall():
            self._history.prune(row["file"])
        self._database.execute("DELETE FROM note_entries WHERE file > ? AND file < ?", self._range)

    def _record_origin(self, text: str, origin: Origin, session_id: str) -> None:
        """Store the origin of a text that is about to be written. Only a person's own writing raises the origin of a text."""
        before = self.origins([text]).get(entry_hash(text))
        if before is None and origin == PERSON.origin:
            return  # as every text that has no row
        if before is not None and before.confirmed:
            return  # a person confirmed exactly this text
        if before is None or origin in ("person", "owner") or rank(origin) > rank(before.origin):
            self._set_origin(text, NoteOrigin(origin, self._clock(), session_id))

    def _set_origin(self, text: str, origin: NoteOrigin) -> None:
        values = (self._key_of_text(text), origin.origin, origin.at, origin.session, origin.confirmed)
        self._database.execute(_SET_ORIGIN, values)

    # ------------------------------------------------------------------ reading

    def origins(self, texts: Iterable[str]) -> dict[str, NoteOrigin]:
        """Return the origins of those of these texts that have one, by `entry_hash`. The others are the person's.

        Raises:
            StorageError: The database can't be read.
        """
        keys = list(map(self._key_of_text, texts))
        if not keys or not self._database.exists:
            return {}
        condition, values = self._database.dialect.among("file", keys)
        return {
            self._path(row["file"]): NoteOrigin(
                as_origin(row["origin"]), row["at"], row["session"], row["confirmed"], bool(row["pinned"])
            )
            for row in self._database.execute(f"{_ORIGINS} WHERE {condition}", values)
        }

    def changes(self, limit: int, before: int | None = None) -> list[SkillChange]:
        """Return the changes that happened, newest first; only those older than `before` if it is given."""
        newest = MAX_ID if before is None else min(before, MAX_ID)
        return list(self._select("id < ? ORDER BY id DESC LIMIT ?", newest, limit))

    def standing(self) -> Iterator[SkillChange]:
        """Yield the changes that no later one took back, newest first."""
        return self._select("action <> 'undo' AND undone = 0 ORDER BY id DESC")

    def find(self, change: int) -> SkillChange | None:
        """Return the change of this id if it happened, else None."""
        return next(self._select("id = ?", change), None) if abs(change) < MAX_ID else None

    def _select(self, condition: str, *values: int) -> Iterator[SkillChange]:
        if not self._database.exists:
            return
        query = f"{_CHANGES} WHERE file > ? AND file < ? AND target = '{_TARGET}' AND {condition}"
        for row in self._database.execute(query, (*self._range, *values)):
            yield self._change(row)

    def _change(self, row: Any) -> SkillChange:
        return SkillChange(
            row["id"],
            self._path(row["file"]),
            row["action"],
            row["at"],
            row["before"] or None,
            row["after"] or None,
            json.loads(row["session"])["id"],
        )

    def _key_of_text(self, text: str) -> str:
        return f"{self._folder}/{entry_hash(text)}"

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self._folder}/")


def same_text(left: str | None, right: str | None) -> bool:
    """Compare two texts of a file without regard to line ends and a byte order mark. None is no file."""
    return left == right or (
        left is not None and right is not None and normalize_lines(left) == normalize_lines(right)
    )

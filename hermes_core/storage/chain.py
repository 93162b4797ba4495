"""Record of events in which each event holds the hash of the event before it, so that a change of an old event shows.

An event stores the digest of what it is about and not the text, so that the record stays whole if the history is pruned.
Erasing an event deletes its details and keeps its digest: the hashes of later events stay right.

Somebody who may write the database can make a whole new record. The hash of the newest event, written down elsewhere,
shows that as well.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from hermes_core.storage.engine import Engine
from hermes_core.storage.inventory import LAST_TIME

# The table of the events, beside that of the changes.
EVENTS = "note_events"

_STARTS = ("begin", "accept")
"""Kinds of events from which on a record is checked."""


def text_digest(*parts: object) -> str:
    """Return the SHA-256 of some texts and numbers, with the borders between them."""
    data = json.dumps(parts, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    return hashlib.sha256(data).hexdigest()


class ChainEvent(Struct, frozen=True):
    """One event of a record.

    Attributes:
        change: Id of the change in the history that the event is about, or None.
        subject: What the event is about, such as the name of a file.
        details: Facts of the event; empty if it was erased.
        hash: Hash of this event and of all before it.
    """

    id: int
    at: float
    kind: str
    change: int | None
    subject: str
    details: Mapping[str, Any]
    hash: str

    def __str__(self) -> str:
        if isinstance(self.at, int | float) and 0 <= self.at < LAST_TIME:
            day = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        else:
            day = f"impossible time {self.at!r}"
        return f"event {self.id} ({self.kind}{' of ' + self.subject if self.subject else ''}, {day})"


class ChainReport(Struct, frozen=True):
    """Result of checking a record.

    Attributes:
        events: Number of events that were checked.
        head: Hash of the newest event.
        erased: Number of events whose details were deleted with the history.
        unchained: Number of changes in the history that are older than the record.
        faults: A sentence for each event or change that is not as it was recorded.
        hashes: Hash of each event, oldest first, also of those before the begin of the check.
    """

    events: int
    head: str
    erased: int
    unchained: int
    faults: tuple[str, ...]
    hashes: tuple[str, ...] = ()

    def events_since(self, hash_start: str) -> int | None:
        """Return the number of events after the event whose hash begins so; None if no event has it.

        A number of at least `events` says that a person accepted the history since: what is older was not checked.
        """
        places = (place for place, value in enumerate(self.hashes) if value.startswith(hash_start))
        return next((len(self.hashes) - place - 1 for place in places), None)


class EventChain:
    """Record of events in a database.

    Args:
        limit: Number of the newest changes that the history always has; older ones may be missing there.
    """

    def __init__(self, database: Engine, limit: int, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._limit = limit
        self._clock = clock

    def append(self, kind: str, subject: str, details: Mapping[str, Any], change: int | None = None) -> int:
        """Append an event and return its id. In a transaction, it is stored with the rest of that."""
        with self._database.transaction() as connection:
            self._database.dialect.serialize(
                connection, EVENTS
            )  # an event holds the hash of the one before it
            last = connection.execute(f"SELECT id, hash FROM {EVENTS} ORDER BY id DESC LIMIT 1").fetchone()
            if last is None and kind not in _STARTS:
                self.append("begin", "", {"through": 0})
                return self.append(kind, subject, details, change)
            number, previous = (int(last[0]) + 1, last[1]) if last else (1, "")
            at = self._clock()
            # Without a random part, the digest of an erased event would tell who guesses its text that the guess is right.
            text = json.dumps({**details, "nonce": secrets.token_hex(16)}, ensure_ascii=False, sort_keys=True)
            digest = text_digest(subject, text)
            total = text_digest(previous, number, at, kind, change, digest)
            connection.execute(
                f"INSERT INTO {EVENTS} (id, at, kind, change, subject, details, digest, hash)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (number, at, kind, change, subject, text, digest, total),
            )
            return number

    def erase(self, subject: str) -> None:
        """Delete what the events of a subject say. That they happened, and when, stays."""
        self._database.execute(
            f"UPDATE {EVENTS} SET subject = '', details = NULL WHERE subject = ? AND subject <> ''",
            (subject,),
        )

    def events(self) -> list[ChainEvent]:
        """Return all events, oldest first."""
        return [_event(row) for row in self._rows()]

    def accept(self, last_change: int) -> None:
        """Append an event from which on the record is checked: a person accepts what is in the history now."""
        self.append("accept", "", {"through": last_change})

    def check(self, contents: Mapping[int, str]) -> ChainReport:
        """Check the record, and that each change in the history is as it was recorded.

        Args:
            contents: Id -> digest of the content of each change that is in the history.
        """
        rows = self._rows()
        start = max((index for index, row in enumerate(rows) if row["kind"] in _STARTS), default=0)
        faults = ["the record has no events: all of them were deleted"] if contents and not rows else []
        events = [_event(row) for row in rows]
        previous = rows[start - 1]["hash"] if start else ""
        for row, event in zip(rows[start:], events[start:], strict=True):
            faults += _fault_of(row, event, previous)
            previous = row["hash"]
        through = events[start].details.get("through", 0) if events else 0
        if not isinstance(through, int):
            through = 0  # `_fault_of` reports the changed event
        faults += self._faults_of_changes(events[start:], through, contents)
        return ChainReport(
            events=len(rows) - start,
            head=previous,
            erased=sum(row["details"] is None for row in rows[start:]),
            unchained=sum(change <= through for change in contents),
            faults=tuple(faults),
            hashes=tuple(str(row["hash"]) for row in rows),
        )

    def _rows(self) -> list[Any]:
        query = f"SELECT id, at, kind, change, subject, details, digest, hash FROM {EVENTS} ORDER BY id"
        return self._database.execute(query).fetchall()

    def _faults_of_changes(
        self, events: list[ChainEvent], through: int, contents: Mapping[int, str]
    ) -> list[str]:
        recorded = {event.change for event in events if event.change is not None}
        newest = max([*recorded, *contents], default=0)
        faults = []
        for event in events:
            if event.change is None or not event.details:
                continue
            if event.change in contents:
                if contents[event.change] != event.details.get("content"):
                    faults.append(
                        f"{event}: change {event.change} in the history is another text than was recorded"
                    )
            elif event.change > newest - self._limit:  # older changes are deleted
                faults.append(f"{event}: change {event.change} is missing in the history")
        return faults + [
            f"change {change} is in the history and was never recorded"
            for change in sorted(contents)
            if change > through and change not in recorded
        ]


def _event(row: Any) -> ChainEvent:
    try:
        details = json.loads(row["details"] or "{}")
    except (ValueError, RecursionError):
        details = {}
    if not isinstance(details, dict):
        details = {}
    return ChainEvent(row["id"], row["at"], row["kind"], row["change"], row["subject"], details, row["hash"])


def _fault_of(row: Any, event: ChainEvent, previous: str) -> list[str]:
    if row["hash"] != text_digest(previous, row["id"], row["at"], row["kind"], row["change"], row["digest"]):
        return [f"{event} was changed, or an event before it was deleted or inserted"]
    if row["details"] is not None and row["digest"] != text_digest(row["subject"], row["details"]):
        return [f"{event} says another thing than was recorded"]
    return []

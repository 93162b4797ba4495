"""Import of memories that another program keeps. They are no words of the person, whoever wrote them down.

A memory goes to the provider, if that takes memories. Otherwise it becomes a note, which waits for `hermes-memory review`; what
is no note, because it is too long or refused, is stored as a message that a search finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from hermes_core import Memory
from hermes_core.actions.notes import session_of_user
from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import BUILTIN_NAME, MemoryPage, MemoryRecord, MemoryTarget
from hermes_core.curated.answers import changed_something
from hermes_core.curated.document import normalize_entry
from hermes_core.curated.edits import Operation
from hermes_core.kit import redact
from hermes_core.manager.call import CallResult
from hermes_core.safety.origin import Reading
from hermes_memory_importers.stream import json_digest
from hermes_memory_importers.values import PROJECT_KIND, ImportedRecord


class RecordImport:
    """The import of records into the memory of one person.

    Args:
        user: The person, as `Session.outside_id`; "" for the person at home.

    Raises:
        SessionError: `user` names nobody, or all users share the notes.

    Attributes:
        counts: Number of records by what became of them: "provider", "note", "message", or "known" if they were there.
        problems: Reasons of a provider that did not take a record, as sentences.
    """

    def __init__(self, memory: Memory, user: str = "") -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._memory, self._session = memory, session_of_user(memory, user)
        names = [one.name for one in memory.manager.health() if one.name != BUILTIN_NAME]
        self._provider = next(
            (name for name in names if memory.manager.implements(name, "import_memory")), ""
        )
        self._keys: set[str] = set()
        if self._provider:
            memory.manager.initialize_all(self._session, wait=POLICIES["initialize"].deadline)
            self._keys.update(record.key for record in self._stored())

    def take(self, imported: ImportedRecord) -> None:
        """Store a record, unless it is there."""
        record = replace(imported.record, text=redact(imported.record.text).strip())
        if record.key in self._keys:
            self.counts["known"] += 1
        elif self._provider and self._put(record):
            self._keys.add(record.key)
            self.counts["provider"] += 1
        else:
            self.counts[self._keep(record, imported)] += 1

    def _stored(self) -> Iterator[MemoryRecord]:
        """Yield the records that the provider lists; none if it lists none."""
        cursor, more = "", self._memory.manager.implements(self._provider, "export_memories")
        while more:
            result = self._ask("export_memories", cursor=cursor)
            page: MemoryPage = result.value if result.ok else MemoryPage(())
            yield from page.records
            # A provider that gives the same cursor twice would give pages without end.
            more, cursor = page.cursor not in ("", cursor), page.cursor

    def _put(self, record: MemoryRecord) -> bool:
        """Return True if the provider takes the record."""
        result = self._ask("import_memory", record=record)
        if not result.ok:
            fact = f"{self._provider!r} did not take {record.text[:60]!r}: {result.error or result.status}"
            self.problems.append(f"{fact}; it is kept here")
        return result.ok

    def _ask(self, hook: str, **arguments: Any) -> CallResult:
        return self._memory.manager.ask(self._provider, hook, session=self._session, **arguments)

    def _keep(self, record: MemoryRecord, imported: ImportedRecord) -> str:
        """Store a record as a note that waits, else as a message. Return what became of it."""
        session, entry = self._session, normalize_entry(record.text)
        notes, sessions = self._memory.curated.of(session), self._memory.sessions
        target: MemoryTarget = "memory" if record.kind == PROJECT_KIND else "user"
        session_id = f"{imported.source}-memories" + (f"@{quote(session.owner)}" if session.owner else "")
        turn_id = f"{session_id}-{json_digest(entry)}"
        # A note that a person rejected does not come back.
        if entry in notes.entries(target) or notes.files.last_gone(entry) or sessions.has_turn(turn_id):
            return "known"
        notes.start_turn(session)
        result = notes.write(target, [Operation("add", entry)], session, reading=Reading("import"))
        if changed_something(result):
            return "note"
        at = record.created_at or None
        title = f"Memories that {imported.source} saved"
        sessions.create_session(session_id, imported.source, user=session.owner, title=title, started_at=at)
        message = {
            "role": "assistant",
            "content": entry,
            "speaker": imported.title or title,
            "origin": "import",
        }
        sessions.append_turn(session_id, [message], turn_id, at=at)
        sessions.end_session(session_id, "import")
        return "message"

"""What must be true of a write before any file is opened: text that can be an entry, no veto, no threat."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Sequence

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Refused, Session
from hermes_core.curated.document import entry_fault, text_fault, tidy
from hermes_core.curated.edits import Change, Operation, Refusal, in_batch
from hermes_core.curated.snapshot import Scan, Threat

FilterWrite = Callable[[MemoryWrite, Session], MemoryWrite | Refused]


class Vetting:
    """Turns what was asked into writes with ids of their own, or says why not. Reads and changes nothing."""

    def __init__(self, scan: Scan, filter_write: FilterWrite | None) -> None:
        self._scan = scan
        self._filter_write = filter_write

    def operations(
        self,
        target: MemoryTarget,
        asked: Sequence[Operation],
        session: Session,
        *,
        batch: bool,
        limit: int | None,
    ) -> list[MemoryWrite] | Refusal:
        """A write for each operation, in order; the first that may not be, or is longer than `limit`, refuses all."""
        if not asked:
            return Refusal("operations list is empty.")
        writes = []
        for index, operation in enumerate(asked):
            write = self._operation(target, operation, session, limit)
            if isinstance(write, Refusal):
                return in_batch(write, index, operation) if batch else write
            writes.append(write)
        return writes

    def restored(
        self, target: MemoryTarget, changes: Sequence[Change], session: Session, origin: dict[str, str]
    ) -> list[MemoryWrite] | Refusal:
        """Writes for entries that an undo or a reset moves: an observer may veto them, not change them."""
        writes = []
        for change in changes:
            fresh = MemoryWrite(
                str(uuid.uuid4()), change.action, target, old_text=change.previous, metadata=origin
            )
            write = performed(fresh, change)
            kept = self._filter_write(write, session) if self._filter_write else write
            if kept != write:
                reason = kept.reason if isinstance(kept, Refused) else "it would be changed on the way"
                return Refusal(f"An observer refused this write: {reason}")
            writes.append(write)
        return writes

    def _operation(
        self, target: MemoryTarget, asked: Operation, session: Session, limit: int | None
    ) -> MemoryWrite | Refusal:
        write = _tidied(MemoryWrite(str(uuid.uuid4()), asked.action, target, asked.content, asked.old_text))
        if fault := _fault(write, limit):
            return Refusal(fault)
        if self._filter_write:
            kept = self._filter_write(write, session)
            if isinstance(kept, Refused):
                return Refusal(f"An observer refused this write: {kept.reason}")
            if not _is_plain(kept):
                return Refusal("An observer changed this write, and now its content or metadata is no text.")
            # Only text and metadata are the observer's to change; its text is held to the same rules.
            write = _tidied(dataclasses.replace(write, content=kept.content, metadata=kept.metadata))
            if fault := _fault(write, limit):
                return Refusal(f"An observer changed this write, and now: {fault}")
        threat = self._scan(write.content) if write.content else None
        return Refusal(_blocked(threat)) if threat else write


def performed(write: MemoryWrite, change: Change) -> MemoryWrite:
    """The write as it happened, with the whole entry that is gone."""
    return dataclasses.replace(write, action=change.action, content=change.content, previous=change.previous)


def _is_plain(write: MemoryWrite) -> bool:
    """Whether what an observer made can be written down."""
    try:
        json.dumps(dict(write.metadata))
    except (TypeError, ValueError):
        return False
    return isinstance(write.content, str)


def _tidied(write: MemoryWrite) -> MemoryWrite:
    return dataclasses.replace(write, content=tidy(write.content), old_text=tidy(write.old_text))


def _fault(write: MemoryWrite, limit: int | None) -> str:
    if write.action != "add" and not write.old_text:
        return "old_text cannot be empty."
    if write.action == "add" and not write.content:
        return "Content cannot be empty."
    if write.action == "replace" and not write.content:
        return "new_content cannot be empty. Use 'remove' to delete entries."
    size = len(write.content)
    if limit is not None and size > limit:
        return f"Nothing was saved: the text has {size:,} chars, more than the whole store ({limit:,}): write a shorter one."
    fault = entry_fault(write.content) or text_fault(write.old_text)
    return f"Nothing was saved: {fault}." if fault else ""


def _blocked(threat: Threat) -> str:
    return (
        f"Blocked: content matches threat pattern {threat.id!r}: {threat.message}. "
        "Memory goes into every system prompt: write the plain fact, without instructions, secrets or hidden characters."
    )

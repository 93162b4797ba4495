"""Actions on the notes of one user: read them with their origins, change them, undo and restore versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from hermes_core.contract.values import ORIGIN_NAMES, MemoryTarget, Origin, Session, parse_outside_id
from hermes_core.curated.document import entry_handle
from hermes_core.curated.history import NoteVersion
from hermes_core.curated.stored import StoredNotes
from hermes_core.errors import CuratedMemoryError, SessionError
from hermes_core.memory import Memory
from hermes_core.safety.origin import as_origin
from hermes_core.storage.verdicts import Verdict, Verdicts

# Wait for the provider to take a change; after that the change is left in the outbox.
DELIVERY_TIMEOUT_S = 3.0

# Wait before that for a provider that starts slowly, for instance one with a model of its own.
START_TIMEOUT_S = 15.0


def session_of_user(memory: Memory, user: str) -> Session:
    """Return the session that an action is for.

    Args:
        user: "" for the person at this machine, or a `Session.outside_id`: PLATFORM:ID for a user of a gateway,
            PLATFORM/CHAT for a chat without users.

    Raises:
        SessionError: `user` names nobody, or all users share the notes.
    """
    if not user:
        return memory.local_session
    fields = parse_outside_id(user)
    if not memory.config.memory.per_user:
        raise SessionError(
            "all users share the notes and skills", "set memory.per_user to true in config.yaml"
        )
    return memory.session(dataclasses.replace(memory.local_session, **fields))  # type: ignore[arg-type]


def deliver(memory: Memory, session: Session) -> str:
    """Let the provider take a change; what it does not take in time stays in the outbox.

    Returns a sentence for the person if the provider did not answer and no problem is known either, else "".
    """
    memory.manager.initialize_all(session, wait=START_TIMEOUT_S)
    if memory.flush(DELIVERY_TIMEOUT_S) or memory.problems():
        return ""
    return f"{memory.internals.selection.name!r} has not taken it within {DELIVERY_TIMEOUT_S:g} s; it waits in the outbox and is sent later"


class ShownNote(Struct, frozen=True):
    """One entry with its origin: who or what it comes from, when and in which session it was written.

    `confirmed` is the origin before a person confirmed the text; "" if nobody had to. `waits` is True if the origin keeps
    the note out of the system prompt. `pinned` is True if only a person may change the note.
    """

    entry: str
    handle: str
    origin: Origin
    at: float
    session: str
    confirmed: str
    waits: bool
    pinned: bool = False


def notes_with_origins(curated: StoredNotes, target: MemoryTarget, entries: Iterable[str]) -> list[ShownNote]:
    """Return these entries of a file with their origins."""
    waiting = {note.entry for note in curated.waiting_notes() if note.target == target}
    notes = []
    for entry in entries:
        known = curated.origin_of(entry)
        notes.append(
            ShownNote(
                entry,
                entry_handle(entry),
                known.origin,
                known.at,
                known.session,
                known.confirmed,
                entry in waiting,
                known.pinned,
            )
        )
    return notes


class NoteResult(Struct, frozen=True):
    """The result of a change of the notes.

    Attributes:
        result: The result of the store or of the tool `memory`.
        late: A sentence if the provider has not taken the change in time; else "".
        problems: A sentence for each configured part of the memory that does not work.
    """

    result: Mapping[str, Any]
    late: str
    problems: list[str]

    @property
    def ok(self) -> bool:
        """True if the notes were changed as asked."""
        return bool(self.result.get("success"))

    @property
    def text(self) -> str:
        """The message about the change for a person, or why it was refused and what to do."""
        if not self.ok:
            return refusal_text(self.result)
        parts = [self.result.get(key, "") for key in ("message", "usage", "notice", "warning")]
        if changed := self.result.get("changed_entries"):
            parts.append(f"It says otherwise than: {'; '.join(changed)}. Remove what no longer holds.")
        return " ".join(filter(None, parts))


def change_note(
    memory: Memory, session: Session, action: str, target: str, content: str = "", old_text: str = ""
) -> NoteResult:
    """Add, replace or remove a note as the person, and let the provider take the change.

    Args:
        action: "add", "replace" or "remove".
        old_text: A part of the one entry to replace or remove.
    """
    result = memory.change_memory(action, target, content, old_text, session=session, by_person=True)
    return NoteResult(result, deliver(memory, session), memory.problems())


def pin_note(memory: Memory, session: Session, target: str, old_text: str, *, on: bool) -> NoteResult:
    """Let only a person change or remove a note, or take that back. Nothing goes to a provider.

    Args:
        old_text: A part of the one note, or its handle.
    """
    result = memory.curated.of(session).pin(target, old_text, on=on)  # type: ignore[arg-type]  # checked there
    return NoteResult(result, "", memory.problems())


def allow_note(memory: Memory, session: Session, text: str) -> Verdict:
    """Let the exact text of a note stand although the safety scan flags it, and record that.

    Args:
        text: The text, or the handle of an entry that is withheld.

    Raises:
        CuratedMemoryError: The scan finds nothing in it.
    """
    verdicts = Verdicts(memory.home)
    flagged = memory.curated.of(session).read().flagged()
    entry = next((one.entry for one in flagged if one.handle == text), text)
    if verdicts.scan(entry) is None:
        raise CuratedMemoryError(
            f"the scan finds nothing in {entry_handle(entry)}, so it needs no permission"
        )
    verdict = verdicts.allow(entry)
    memory.curated.changes.record("allow", verdict.hash, what=verdict.kind)
    return verdict


def set_field(memory: Memory, session: Session, name: str, value: str | None) -> NoteResult:
    """Set a typed field of the profile as the person, or delete it with None, and let the provider take the change."""
    memory.manager.initialize_all(session)
    result = memory.curated.of(session).set_profile({name: value}, session=session)
    return NoteResult(result, deliver(memory, session), memory.problems())


def undo_change(memory: Memory, session: Session, change: int | None = None) -> NoteResult:
    """Undo the change with this id, or the latest one, and let the provider take it."""
    memory.manager.initialize_all(session)
    result = memory.curated.of(session).undo(change, session=session)
    return NoteResult(result, deliver(memory, session), memory.problems())


def restore_version(memory: Memory, session: Session, change: int) -> NoteResult:
    """Bring back all entries of a file as they were right after a change, and let the provider take it."""
    memory.manager.initialize_all(session)
    result = memory.curated.of(session).restore(change, session=session)
    return NoteResult(result, deliver(memory, session), memory.problems())


def source_of_change(change: NoteVersion) -> str:
    """Return who or what the new entries of a change come from; "" for a removal."""
    if change.action == "edit":
        return ORIGIN_NAMES["person"]
    sources = {
        ORIGIN_NAMES[as_origin(origin)] + (f", as {judge} judged" if judge else "")
        for write in change.writes
        if write.content and (origin := write.metadata.get("origin"))
        for judge in [write.metadata.get("judge", "")]
    }
    return ", ".join(sorted(sources))


def refusal_text(result: Mapping[str, Any]) -> str:
    """Return why a change was refused, what to do, and the entries that may have been meant."""
    error = result.get("for_person") or result.get("error", "the change was refused")
    text = (
        "; ".join(filter(None, [error.rstrip("."), result.get("remediation")]))
        if "remediation" in result
        else error
    )
    entries = result.get("matches") or result.get("current_entries") or []
    return "\n".join([text, *(f"  {entry}" for entry in entries), *filter(None, [result.get("notice")])])

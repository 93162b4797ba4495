"""Notes and skills that wait for a person, and the person's confirmation or rejection of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hermes_core.config import set_value
from hermes_core.contract.values import ORIGIN_NAMES, Origin, Session
from hermes_core.curated.document import entry_handle
from hermes_core.curated.origins import entry_hash
from hermes_core.curated.store import DataNote, MemoryStore
from hermes_core.curated.waiting import (
    HASH_DIGITS,
    WaitingNote,
    accept_notes,
    has_handle,
    named_note,
    reject_note,
    waiting_notes,
)
from hermes_core.errors import CuratedMemoryError
from hermes_core.memory import Memory
from hermes_core.skills.store import open_skills


@dataclass(frozen=True, slots=True)
class WaitingSkill:
    """Skill that is in no list of skills until a person confirms exactly this text."""

    handle: str
    name: str
    text: str
    origin: Origin


WaitingItem = WaitingNote | WaitingSkill


class Approval:
    """The notes and skills of one owner that wait for a person.

    Attributes:
        store: The notes of the owner.
        skills: The skills of the owner.
        accepted_origins: The origins that this approval accepts always.
    """

    def __init__(self, memory: Memory, store: MemoryStore, session: Session) -> None:
        self.store = store
        self.skills = open_skills(memory.home, memory.config, session.owner)
        self.accepted_origins: list[str] = []
        self._memory, self._session = memory, session

    def waiting(self, limit: int | None = None) -> list[WaitingItem]:
        """Return the notes and skills that wait, without those of an origin that this approval accepts always.

        Args:
            limit: Largest number of notes and of skills together; default: all.
        """
        items: list[WaitingItem] = list(waiting_notes(self.store, limit, self._is_wanted))
        items += islice(self._waiting_skills(), None if limit is None else limit - len(items))
        return [item for item in items if item.origin not in self.accepted_origins]

    def named(self, handle: str) -> WaitingItem:
        """Return the note or skill with this handle. Raise `CuratedMemoryError` if there is none."""
        notes = waiting_notes(self.store, None, lambda note: has_handle(note.entry, handle))
        skills = self._waiting_skills() if handle.startswith("skill:") else ()
        return named_item([*notes, *skills], handle)

    def _is_wanted(self, note: DataNote) -> bool:
        return note.origin.origin not in self.accepted_origins

    def accept(self, item: WaitingItem) -> str:
        """Confirm the text of a note or skill as it was shown. Return a sentence about it."""
        flag = ""
        if isinstance(item, WaitingSkill):
            self.skills.confirm(item.name, item.text)
        else:
            accept_notes(self.store, [item])
            if item.flag:
                flag = (
                    f"; it stays data, because of the safety scan: {item.flag}; "
                    f"hermes-memory memory allow {entry_handle(item.entry)} overrules it"
                )
        return f"accepted {item.handle}{flag}"

    def reject(self, item: WaitingItem) -> str:
        """Remove a note or skill. Return a sentence about it.

        Raises:
            CuratedMemoryError: The note can't be removed.
        """
        if isinstance(item, WaitingSkill):
            self.skills.delete(item.name)
        else:
            result = reject_note(self.store, item, self._session)
            if not result.get("success"):
                raise CuratedMemoryError(f"{item.handle} was not removed: {result.get('error')}")
        group = "skills" if isinstance(item, WaitingSkill) else "memory"
        return f"rejected {item.handle}; hermes-memory {group} undo brings it back"

    def accept_origin(self, origin: Origin) -> str:
        """Accept all notes of this origin from now on. Return a sentence about it."""
        origins = [*dict.fromkeys((*self._memory.config.memory.accepted_origins, origin))]
        self.accepted_origins = origins
        set_value(self._memory.home, "memory.accepted_origins", origins)
        return (
            f"notes from {ORIGIN_NAMES[origin]} are accepted from now on, without looking; "
            "hermes-memory config unset memory.accepted_origins takes that back"
        )

    def close(self) -> None:
        """Close the store of skills."""
        self.skills.close()

    def _waiting_skills(self) -> Iterator[WaitingSkill]:
        for skill in self.skills.waiting() if self._memory.config.skills.enabled else ():
            text = self.skills.view(skill.name)
            yield WaitingSkill(f"skill:{entry_hash(text)[:HASH_DIGITS]}", skill.name, text, skill.origin)


def named_item(items: Sequence[WaitingItem], handle: str) -> WaitingItem:
    """Return the note or skill with this handle. Raise `CuratedMemoryError` if there is none."""
    skill = next((item for item in items if isinstance(item, WaitingSkill) and item.handle == handle), None)
    return skill or named_note([item for item in items if isinstance(item, WaitingNote)], handle)

"""Notes and items of parts that wait for a person, and the person's confirmation or rejection of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from hermes_core.config import set_value
from hermes_core.contract.extensions import PartItem
from hermes_core.contract.values import ORIGIN_NAMES, Origin, Session
from hermes_core.curated.document import entry_handle
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import DataNote
from hermes_core.curated.waiting import (
    WaitingNote,
    accept_notes,
    has_handle,
    named_note,
    reject_note,
    waiting_notes,
)
from hermes_core.errors import CuratedMemoryError
from hermes_core.memory import Memory

WaitingItem = WaitingNote | PartItem


class Approval:
    """The notes of one owner that wait for a person, and the items of the parts of the home, such as skills.

    Attributes:
        store: The notes of the owner.
        parts: The items of the owner, by name of the part.
        accepted_origins: The origins that this approval accepts always.
    """

    def __init__(self, memory: Memory, store: Notes, session: Session) -> None:
        self.store = store
        database = memory.sessions.database
        parts = memory.internals.parts
        self.parts = {name: part.items(database, session.owner) for name, part in parts.stores.items()}
        self.accepted_origins: list[str] = []
        self._memory, self._session = memory, session
        self._nouns = {part.noun: name for name, part in parts.known.items()}

    def waiting(self, limit: int | None = None) -> list[WaitingItem]:
        """Return the notes and items that wait, without those of an origin that this approval accepts always.

        Args:
            limit: Largest number of notes and of items together; default: all.
        """
        items: list[WaitingItem] = list(waiting_notes(self.store, limit, self._is_wanted))
        others = chain.from_iterable(part.waiting() for part in self.parts.values())
        items += islice(others, None if limit is None else limit - len(items))
        return [item for item in items if item.origin not in self.accepted_origins]

    def named(self, handle: str) -> WaitingItem:
        """Return the note or item with this handle. Raise `CuratedMemoryError` if there is none."""
        notes = waiting_notes(self.store, None, lambda note: has_handle(note.entry, handle))
        part = self.parts.get(self._nouns.get(handle.partition(":")[0], ""))
        return named_item([*notes, *(part.waiting() if part is not None else ())], handle)

    def name_of(self, item: PartItem) -> str:
        """Return the name of the part that has an item."""
        return self._nouns[item.noun]

    def _is_wanted(self, note: DataNote) -> bool:
        return note.origin.origin not in self.accepted_origins

    def accept(self, item: WaitingItem) -> str:
        """Confirm the text of a note or item as it was shown. Return a sentence about it."""
        return self.accept_all([item])[0]

    def accept_all(self, items: Sequence[WaitingItem]) -> list[str]:
        """Confirm the texts of notes and items as they were shown, the notes at once. Return a sentence about each."""
        if notes := [item for item in items if isinstance(item, WaitingNote)]:
            accept_notes(self.store, notes)
        sentences = []
        for item in items:
            flag = ""
            if isinstance(item, PartItem):
                self.parts[self.name_of(item)].confirm(item)
            elif item.flag:
                flag = (
                    f"; it stays data, because of the safety scan: {item.flag}; "
                    f"hermes-memory memory allow {entry_handle(item.entry)} overrules it"
                )
            sentences.append(f"accepted {item.handle}{flag}")
        return sentences

    def reject(self, item: WaitingItem) -> str:
        """Remove a note or item. Return a sentence about it.

        Raises:
            CuratedMemoryError: The note can't be removed.
        """
        command = "hermes-memory memory undo"
        if isinstance(item, PartItem):
            command = self.parts[self.name_of(item)].reject(item)
        else:
            result = reject_note(self.store, item, self._session)
            if not result.get("success"):
                raise CuratedMemoryError(f"{item.handle} was not removed: {result.get('error')}")
        return f"rejected {item.handle}; {command} brings it back"

    def accept_origin(self, origin: Origin) -> str:
        """Accept all notes of this origin from now on. Return a sentence about it."""
        origins = [*dict.fromkeys((*self._memory.config.memory.accepted_origins, origin))]
        self.accepted_origins = origins
        set_value(self._memory.home, "memory.accepted_origins", origins)
        return (
            f"notes from {ORIGIN_NAMES[origin]} are accepted from now on, without looking; "
            "hermes-memory config unset memory.accepted_origins takes that back"
        )


def named_item(items: Sequence[WaitingItem], handle: str) -> WaitingItem:
    """Return the note or item with this handle. Raise `CuratedMemoryError` if there is none."""
    part_item = next((item for item in items if isinstance(item, PartItem) and item.handle == handle), None)
    return part_item or named_note([item for item in items if isinstance(item, WaitingNote)], handle)

"""Notes that wait for a person: their origin, what they replaced, and the confirmation or rejection of each.

Nothing here may be called by a tool of a model.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_core.contract.values import ORIGIN_NAMES, MemoryTarget, Origin, Session
from hermes_core.curated.document import entry_handle
from hermes_core.curated.origins import Note, entry_hash
from hermes_core.errors import CuratedMemoryError

if TYPE_CHECKING:
    from hermes_core.curated.answers import Result
    from hermes_core.curated.store import Notes
    from hermes_core.curated.stored import DataNote

# Digits of the hash in the name of a waiting note. Eight, as in the handles for models, can be forged in minutes.
HASH_DIGITS = 16


class WaitingNote(Struct, frozen=True):
    """Note that stands in no system prompt until a person confirms exactly this text.

    Attributes:
        handle: Name of the note: the beginning of the hash of its text.
        origin: Who or what the text comes from.
        at: Time of the write in epoch seconds; 0 if unknown.
        session: Id of the session in which it was written.
        previous: The text that it replaced; "" for a new note.
        change: Id of the change in the history that wrote it; None if it is not there any more.
        flag: What the safety scan found in it; "" for nothing.
    """

    handle: str
    target: MemoryTarget
    entry: str
    origin: Origin
    at: float = 0.0
    session: str = ""
    previous: str = ""
    change: int | None = None
    flag: str = ""

    def diff(self) -> list[str]:
        """Return the lines of the text, each with "+" before it, and lines that it took away with "-"."""
        before, after = self.previous.split("\n") if self.previous else [], self.entry.split("\n")
        return [line for line in difflib.ndiff(before, after) if not line.startswith("? ")]


def waiting_notes(
    notes: Notes, limit: int | None = None, wanted: Callable[[DataNote], bool] = lambda _: True
) -> list[WaitingNote]:
    """Return the notes of one owner that wait for a person, in the order of the files.

    Args:
        limit: Largest number of notes; default: all.
        wanted: Returns True for the notes that are meant.
    """
    stored = notes.read()
    waiting = stored.waiting_notes()
    # The scan needs the entry before each, which may hold the beginning of an attack.
    before = dict(zip(waiting[1:], waiting, strict=False))
    waiting = list(islice(filter(wanted, waiting), limit))
    flags: dict[tuple[MemoryTarget, str], str] = {}
    for target in dict.fromkeys(note.target for note in waiting):
        notes_of = [note for note in waiting if note.target == target]
        first = before.get(notes_of[0])
        part = [first] if first is not None and first.target == target else []
        among = [Note(note.entry, note.origin) for note in (*part, *notes_of)]
        for entry, flag in stored.flagged_among(target, among).items():
            flags[target, entry] = flag.reason
    return [
        WaitingNote(
            f"entry:{entry_hash(note.entry)[:HASH_DIGITS]}",
            note.target,
            note.entry,
            note.origin.origin,
            note.origin.at,
            note.origin.session,
            _replaced_by(notes, note),
            note.change or None,
            flags.get((note.target, note.entry), ""),
        )
        for note in waiting
    ]


def _replaced_by(notes: Notes, note: DataNote) -> str:
    """Return the text that a note replaced; "" if it was added."""
    version = notes.version(note.change) if note.change else None
    writes = version.writes if version is not None else ()
    return next((write.previous for write in writes if write.content == note.entry), "")


def has_handle(text: str, handle: str) -> bool:
    """Return True if a handle, of which eight digits are enough, names a note or a skill with this text."""
    digits = handle.strip().rpartition(":")[2].lower()
    return len(digits) >= 8 and entry_hash(text).startswith(digits)


def named_note(notes: Iterable[WaitingNote], handle: str) -> WaitingNote:
    """Return the note with this handle, of which eight digits are enough if they are of one note only.

    Raises:
        CuratedMemoryError: No waiting note has it, or several have.
    """
    digits = handle.strip().removeprefix("entry:").lower()
    matches = {note.entry: note for note in notes if entry_hash(note.entry).startswith(digits)}
    if len(digits) < 8 or len(matches) != 1:
        many = len(digits) >= 8 and len(matches) > 1
        fact = f"{handle!r} names {len(matches)} waiting notes" if many else f"no waiting note is {handle!r}"
        raise CuratedMemoryError(fact, "hermes-memory review lists the notes that wait, with their handles")
    return next(iter(matches.values()))


def accept_notes(store: Notes, notes: Sequence[WaitingNote]) -> None:
    """Store that a person read and confirmed exactly the texts of these notes.

    Raises:
        CuratedMemoryError: A note was changed or removed since it was shown. Nothing is confirmed.
        StorageError: The confirmation can't be stored.
    """
    for note in notes:
        if note.entry not in store.entries(note.target):
            raise CuratedMemoryError(
                f"{note.handle} was changed since it was shown", "run hermes-memory review again"
            )
    store.confirm([note.entry for note in notes])


def reject_note(store: Notes, note: WaitingNote, session: Session) -> Result:
    """Remove a note and return the result of the store. An undo brings the note back, and it waits again."""
    # A note whose text is the handle of another note must not remove that one.
    is_handle = note.entry.startswith("entry:")
    old_text = entry_handle(note.entry) if is_handle else note.entry
    result = store.remove(note.target, old_text, session=session)
    if result.get("success"):
        store.changes.record("reject", entry_hash(note.entry), origin=note.origin)
    return result


def waiting_sentence(origins: Sequence[str]) -> str:
    """Return a sentence that tells a person how many notes wait; "" for none.

    Args:
        origins: The origin of each note that waits.

    >>> waiting_sentence(["web"]), waiting_sentence(["web", "tool"])
    ('1 note from a web page waits', "2 notes from a web page and a tool's result wait")
    """
    if not origins:
        return ""
    names = " and ".join(dict.fromkeys(ORIGIN_NAMES.get(origin, origin) for origin in origins))
    count = len(origins)
    return f"{count} note{'s' * (count != 1)} from {names} wait{'s' * (count == 1)}"

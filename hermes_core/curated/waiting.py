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
from hermes_core.curated.origins import OriginTable, entry_hash
from hermes_core.errors import CuratedMemoryError

if TYPE_CHECKING:
    from hermes_core.curated.store import DataNote, MemoryStore, Result

# Digits of the hash in the name of a waiting note. Eight, as in the handles for models, can be forged in minutes.
HASH_DIGITS = 16

# Changes of the history in which the text that a note replaced is looked up.
MAX_CHANGES = 1000
_VERSIONS_AT_ONCE = 50


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
    store: MemoryStore, limit: int | None = None, wanted: Callable[[DataNote], bool] = lambda _: True
) -> list[WaitingNote]:
    """Return the notes of one owner that wait for a person, in the order of the files.

    Args:
        limit: Largest number of notes; default: all.
        wanted: Returns True for the notes that are meant.
    """
    waiting = store.waiting_notes()
    if not waiting:
        return []
    # The scan needs the entry before each, which may hold the beginning of an attack.
    before = dict(zip(waiting[1:], waiting, strict=False))
    waiting = list(islice(filter(wanted, waiting), limit))
    flags: dict[tuple[MemoryTarget, str], str] = {}
    for target in dict.fromkeys(note.target for note in waiting):
        notes_of = [note for note in waiting if note.target == target]
        first = before.get(notes_of[0])
        part = [first] if first is not None and first.target == target else []
        for entry, flag in store.flagged_among(target, [note.entry for note in (*part, *notes_of)]).items():
            flags[target, entry] = flag.reason
    changes = _changes_of(store, {(note.target, note.entry) for note in waiting})
    notes = []
    for note in waiting:
        change, previous = changes.get((note.target, note.entry), (None, ""))
        notes.append(
            WaitingNote(
                f"entry:{entry_hash(note.entry)[:HASH_DIGITS]}",
                note.target,
                note.entry,
                note.origin.origin,
                note.origin.at,
                note.origin.session,
                previous,
                change,
                flags.get((note.target, note.entry), ""),
            )
        )
    return notes


def _changes_of(
    store: MemoryStore, notes: set[tuple[MemoryTarget, str]]
) -> dict[tuple[MemoryTarget, str], tuple[int, str]]:
    """Return the latest change that wrote each of these notes, and the entry that it replaced."""
    changes: dict[tuple[MemoryTarget, str], tuple[int, str]] = {}
    before = None
    # Each version holds the whole file twice.
    for _ in range(0, MAX_CHANGES, _VERSIONS_AT_ONCE):
        versions = store.history(limit=_VERSIONS_AT_ONCE, before=before)
        for version in versions:
            for write in version.writes:
                if (version.target, write.content) in notes:
                    changes.setdefault((version.target, write.content), (version.id, write.previous))
        if len(changes) == len(notes) or not versions:
            break
        before = versions[-1].id
    return changes


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


def accept_notes(store: MemoryStore, notes: Sequence[WaitingNote]) -> None:
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


def reject_note(store: MemoryStore, note: WaitingNote, session: Session) -> Result:
    """Remove a note and return the result of the store. An undo brings the note back, and it waits again."""
    # A note whose text is the handle of another note must not remove that one.
    is_handle = note.entry.startswith("entry:")
    old_text = entry_handle(note.entry) if is_handle else note.entry
    result = store.remove(note.target, old_text, session=session)
    if result.get("success"):
        store.record("reject", entry_hash(note.entry), origin=note.origin)
    return result


def rebuild_origins(store: MemoryStore) -> int:
    """Replace an unusable file of origins. Return the number of notes, all of which wait now."""
    entries = store.all_entries()
    # An undo or a restore may bring earlier entries back.
    history = store.history(limit=MAX_CHANGES)
    earlier = [entry for version in history for entry in (*version.before, *version.after)]
    store.origins.rebuild([*entries, *earlier])
    return len(entries)


def origins_fault(store: MemoryStore) -> str:
    """Return why the file of origins can't be used; "" if it can."""
    table: OriginTable = store.origins.read()
    return table.fault


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


def earlier_notes(store: MemoryStore) -> list[str]:
    """Return the entries on disk that a version without origins wrote. They count as the person's."""
    table, known = store.origins.read(), set[str]()
    if table.fault:
        return []
    for version in store.history(limit=MAX_CHANGES):
        known |= {
            write.content for write in version.writes if write.content and "origin" not in write.metadata
        }
    readable = [target for target in store.enabled_targets if target not in store.problems()]
    return [
        entry
        for target in readable
        for entry in store.entries(target)
        if entry in known and entry_hash(entry) not in table.entries
    ]

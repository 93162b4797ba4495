"""The checks that a text passes before it becomes a note, and the origin that the note then has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Origin, Refused, Session
from hermes_core.curated.document import (
    entry_fault,
    entry_handle,
    flag_entry,
    join_entries,
    normalize_entry,
    split_threat,
    text_fault,
)
from hermes_core.curated.edits import Edit, Refusal, preview
from hermes_core.curated.files import NoteFiles, OpenFile
from hermes_core.curated.origins import NEW, UNKNOWN, Note, NoteOrigin
from hermes_core.home import HermesHome
from hermes_core.safety.origin import Reading, lowest, may_command, origin_of_text, rank
from hermes_core.safety.parts import UNKNOWN_ORIGIN
from hermes_core.safety.redact import secrets_in
from hermes_core.storage.verdicts import Verdicts

if TYPE_CHECKING:
    from hermes_core.safety.scan import Scan

LIMIT_SETTING: Mapping[MemoryTarget, str] = {
    "memory": "memory.memory_char_limit",
    "user": "memory.user_char_limit",
    "project": "memory.project_char_limit",
}

ALLOW_HINT = "only a person can overrule the scan: hermes-memory memory allow 'the exact text'"


class NoteScan:
    """The threat scan of entries.

    Attributes:
        first_threat: Returns the first threat in a text.
        first_untrusted: The same with the rules for texts of low origin; None if there are none.
        allows: Returns True for a text that a person allowed.
    """

    def __init__(self, home: HermesHome, scan: Scan | None) -> None:
        verdicts = Verdicts(home)
        self.first_threat: Scan = scan or verdicts.scan
        self.first_untrusted: Scan | None = None if scan else partial(verdicts.scan, untrusted=True)
        self.allows: Callable[[str], bool] = verdicts.allows if scan is None else lambda _: False

    def shown(self, target: MemoryTarget, entry: str, limit: int, shorten: Callable[[str], str] = str) -> str:
        """Return the text of an entry for the model; for a flagged entry, return a placeholder."""
        flagged = flag_entry(target, entry, limit, self.first_threat)
        return flagged.withheld if flagged else shorten(entry)

    def refusal_of(self, target: MemoryTarget, content: str, *, is_low: bool) -> Refusal | None:
        """Return the refusal of a new text that holds a threat or a secret.

        Args:
            is_low: True for a text of low origin.
        """
        threat = self.first_threat(content) if content else None
        if threat is None and content and is_low and self.first_untrusted is not None:
            threat = self.first_untrusted(content)
        if threat:
            return Refusal(
                f"Blocked: content matches threat pattern {threat.id!r}: {threat.message}. Memory goes into every "
                "system prompt: write the plain fact, without instructions, secrets or hidden characters.",
                remedy=ALLOW_HINT,
            )
        if kinds := ", ".join(secrets_in(content)):
            return Refusal(
                f"Nothing was saved: this holds what looks like a secret ({kinds}), and {target.upper()}.md is plain text "
                "that goes into every system prompt.",
                remedy="keep it in .env with `hermes-memory keys set NAME`, and note only the name",
            )
        return None

    def refusal_of_old(self, content: str, view: str) -> Refusal | None:
        """Return the refusal of a text that an undo would bring back to a view.

        It may have been written before the rule existed, or removed because of it.
        """
        if threat := self.first_threat(content):
            return Refusal(
                f"Blocked: the entry {entry_handle(content)} matches threat pattern {threat.id!r}: "
                f"{threat.message}. It stays in the history and is not brought back.",
                remedy=f"write the plain fact as a new entry, or edit {view} by hand; {ALLOW_HINT}",
            )
        if kinds := ", ".join(secrets_in(content)):
            return Refusal(
                f"The entry {entry_handle(content)} holds what looks like a secret ({kinds}) and is not brought back.",
                remedy="note only where the secret is; `hermes-memory memory prune` takes it out of the history",
            )
        return None

    def refusal_beside(self, edit: Edit) -> Refusal | None:
        """Return a refusal if a new entry is a threat together with its neighbours in the file."""
        for content in [change.content for change in edit.changes if change.content in edit.entries]:
            place = edit.entries.index(content)
            for at, side in ((place, "before"), (place + 1, "after")):
                entry = edit.entries[at] if at < len(edit.entries) else ""
                threat = (
                    split_threat(join_entries(edit.entries[:at]), entry, self.first_threat) if entry else None
                )
                if threat and not self.allows(content):
                    return Refusal(
                        f"Blocked: together with the entry {side} it, content matches threat pattern {threat.id!r}: "
                        f"{threat.message}. A prompt shows both as one text: write the plain fact.",
                        remedy=ALLOW_HINT,
                    )
        return None


# ---------------------------------------------------------------------- the text of a write


def vetted_write(
    files: NoteFiles, write: MemoryWrite, session: Session, limit: int | None
) -> MemoryWrite | Refusal:
    """Return a write as it may be carried out, after the observers; or a refusal.

    Args:
        limit: Largest number of characters of the text; None for any.
    """
    write = replace(write, content=normalize_entry(write.content), old_text=normalize_entry(write.old_text))
    if fault := _write_fault(write, limit):
        return Refusal(fault)
    vetted = files.hooks.vetted(write, session)
    if isinstance(vetted, Refused):
        return Refusal(f"An observer refused this write: {vetted.reason}")
    if vetted is write:
        return write
    try:
        # An observer may change only content and metadata. The history stores both as JSON.
        json.dumps(dict(vetted.metadata))
        write = replace(write, content=normalize_entry(vetted.content), metadata=vetted.metadata)
    except (TypeError, ValueError, AttributeError):
        return Refusal("An observer changed this write, and now its content or metadata is no text.")
    if fault := _write_fault(write, limit):
        return Refusal(f"An observer changed this write, and now: {fault}")
    return write


def _write_fault(write: MemoryWrite, limit: int | None) -> str:
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


def too_large(files: NoteFiles, target: MemoryTarget, entry: str) -> Refusal:
    """Return the refusal of a write to a file that holds an entry larger than the limit of the whole file."""
    limit, view = files.settings.limits[target], files.places.view(files.key(target))
    data = view.read() if files.settings.mirror else None
    backup = view.try_back_up(data) if data else ""
    return Refusal(
        f"Refusing to write {view.name}: it holds an entry of {len(entry):,} characters, "
        f"more than the whole store ({limit:,}).",
        backup=backup,
        remedy=(
            f"Call memory with action 'remove' or 'replace' and target={target!r}, old_text={entry_handle(entry)!r}; "
            f"or split the entry in the file with lines that hold only '§'; or raise {LIMIT_SETTING[target]} "
            f"to {len(entry)} or more.{' The .bak file has a copy.' if backup else ''}"
        ),
    )


def pinned(target: MemoryTarget, entry: str) -> Refusal:
    """Return the refusal of a change of an entry that only a person may change."""
    return Refusal(
        f"Nothing was saved: the person pinned the entry {preview(entry)!r}, so that it always stays as it is.",
        remedy="add what is new as an entry of its own, or ask the person to change it, or to unpin it: "
        f"hermes-memory memory pin --off --target {target} 'a part of it'",
    )


# ---------------------------------------------------------------------- the origin of a new note


def new_origins(
    owner: str,
    contents: Sequence[str],
    sources: Iterable[NoteOrigin],
    session: Session,
    reading: Reading | None,
) -> dict[str, Origin]:
    """Return the origin of each of these new entries.

    Args:
        owner: Whose notes these are.
        sources: Origins of the entries that the call replaces or merges.
        reading: What the model that calls this has read; None if a person writes.
    """
    own = session.owner == owner
    if reading is None:
        person: Origin = "owner" if session.is_owner else "person"
        return dict.fromkeys(contents, person if own else "user")
    # A model may correct what it wrote in the same turn.
    turn = reading.turn or None
    lower = [source.origin for source in sources if source.turn != turn]
    if not own:  # notes that several users share
        return dict.fromkeys(contents, lowest([reading.origin, "user", *lower]))
    inside = reading.in_scope_of(owner)
    return {content: origin_of_text(content, inside, lower) for content in contents}


def new_notes(
    files: NoteFiles, opened: OpenFile, edit: Edit, session: Session, reading: Reading | None
) -> dict[str, Note]:
    """Return the notes that the writes of a call add, by their text.

    A text that was known keeps a lower origin, or that a person confirmed it.
    """
    previous = [note for change in edit.changes if (note := opened.file.note(change.previous))]
    contents = [change.content for change in edit.changes if change.content]
    origins = new_origins(files.owner, contents, [note.origin for note in previous], session, reading)
    notes = {}
    for content, origin in origins.items():
        own = NoteOrigin(origin, files.clock(), session.id)
        if (known := opened.note(content) or files.last_gone(content)) is not None:
            before = known.origin
            is_lower = not before.turn and rank(origin) <= rank(before.origin)
            if before.confirmed or (reading is not None and is_lower):
                own = before
            else:
                own = structs.replace(own, pinned=before.pinned)
        notes[content] = Note(content, own, NEW)
    for change in edit.changes:  # a pinned entry that a person wrote anew stays pinned
        if change.content and opened.is_pinned(change.previous):
            note = notes[change.content]
            notes[change.content] = structs.replace(note, origin=structs.replace(note.origin, pinned=True))
    return notes


def open_notes(notes: Mapping[str, Note], turn: str) -> dict[str, Note]:
    """Return new notes as they are stored: those that may stand in a system prompt wait until their turn has ended well.

    Args:
        turn: Id of the turn; "" if a person wrote the notes, or a program that knows what its model reads.
    """

    def opened_origin(origin: NoteOrigin) -> NoteOrigin:
        if not turn or origin.confirmed or not may_command(origin.origin):
            return origin
        return structs.replace(origin, origin=UNKNOWN_ORIGIN, turn=turn)

    return {text: structs.replace(note, origin=opened_origin(note.origin)) for text, note in notes.items()}


def returning_notes(files: NoteFiles, opened: OpenFile, edit: Edit) -> dict[str, Note]:
    """Return the notes that an undo or a restored version brings back, by their text."""
    return {
        change.content: structs.replace(
            opened.note(change.content) or files.last_gone(change.content) or Note(change.content, UNKNOWN),
            change=NEW,
        )
        for change in edit.changes
        if change.content
    }


def is_low(files: NoteFiles, content: str, session: Session, reading: Reading | None) -> bool:
    """Return True if a text that a model writes would be a note of low origin."""
    if reading is None or not content:
        return False
    return not may_command(new_origins(files.owner, [content], (), session, reading)[content])

"""Text of MEMORY.md and USER.md as values: entries, their checks, and the block of the system prompt.

A line that holds only `§` separates entries, as in Hermes Agent, so that both programs can use the same files. Layout
that people's editors add (CRLF, a byte order mark, blank lines, headings, a last newline) is accepted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from hermes_core.contract.values import MemoryTarget

if TYPE_CHECKING:
    from hermes_core.safety.scan import Scan

ENTRY_DELIMITER = "\n§\n"
BAR = "═" * 46

_BLOCK_LABELS: Mapping[MemoryTarget, str] = {
    "memory": "MEMORY (your personal notes)",
    "user": "USER PROFILE (who the user is)",
}

PROMPT_LIMITS = 2
"""Limit of the prompt block, as a multiple of the file's limit. A hand edit may fill a file further; the rest of it is
not shown, and the block says so."""

_SEPARATOR = ENTRY_DELIMITER.strip()
# The white space of `str.strip`, and the byte order mark that some editors write at the start of a file.
_EDGES = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class NotesUsage(NamedTuple):
    """Characters `used` of the `limit` of one file. A hand edit may exceed the limit.

    >>> str(NotesUsage(1474, 2200))
    '67% — 1,474/2,200 chars'
    """

    used: int
    limit: int

    def __str__(self) -> str:
        return f"{self.used * 100 // self.limit}% — {self.used:,}/{self.limit:,} chars"


@dataclass(frozen=True, slots=True)
class NoteFileContent:
    """Content of a file: its entries in order, or the `conflict` that keeps it from being used.

    `canonical` is True if `join_entries(entries)` gives exactly these bytes, so that rewriting loses no layout.
    """

    entries: tuple[str, ...] = ()
    conflict: str = ""
    canonical: bool = True


def parse_note_file(data: bytes) -> NoteFileContent:
    """Read the bytes of a file. Never raises; bytes that are no text become a `conflict`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        return NoteFileContent(
            conflict=f"byte {exc.start} ({data[exc.start]:#04x}) is not UTF-8", canonical=False
        )
    if "\0" in text:
        return NoteFileContent(conflict=f"character {text.index(chr(0))} is NUL", canonical=False)
    entries = split_entries(text)
    return NoteFileContent(entries, canonical=join_entries(entries) == text)


def split_entries(text: str) -> tuple[str, ...]:
    """Return the normalized entries of a text. Empty entries are dropped, equal entries kept.

    >>> split_entries("\\ufeff# Notes\\r\\n\\r\\n§\\r\\n\\r\\nLikes tea\\r\\n")
    ('# Notes', 'Likes tea')
    """
    entries: list[str] = []
    lines: list[str] = []
    for line in (*normalize_entry(text).split("\n"), _SEPARATOR):
        if line.strip(_EDGES) != _SEPARATOR:
            lines.append(line)
            continue
        if entry := "\n".join(lines).strip(_EDGES):
            entries.append(entry)
        lines = []
    return tuple(entries)


def normalize_entry(text: str) -> str:
    """Return an entry as it is stored: newlines as `\\n`, no white space or byte order mark around it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip(_EDGES)


def join_entries(entries: Sequence[str]) -> str:
    """Return the text of a file with these entries."""
    return ENTRY_DELIMITER.join(entries)


def measure(entries: Sequence[str]) -> int:
    """Count the characters that these entries take of the limit, separators included."""
    return len(join_entries(entries))


def entry_fault(entry: str) -> str:
    """Return why a normalized text can't be an entry, with a remedy, or "" if it can.

    An entry that held the separator would be two entries after the next read, which no limit and no scan had seen.
    """
    if fault := text_fault(entry):
        return fault
    for line in entry.split("\n"):
        if line.strip(_EDGES) == _SEPARATOR:
            return "a line of the text holds only '§', which separates entries: send one entry for each part"
    # An entry with the bar could imitate the end of its block and the beginning of another.
    if BAR in entry:
        return "the text holds the bar that frames the memory block: leave it out"
    return ""


def text_fault(text: str) -> str:
    """Return why a model's string can't be stored as UTF-8, with a remedy, or "" if it can."""
    if "\0" in text:
        return "the text holds a NUL character: leave it out"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "the text holds half a surrogate pair, which is no character: leave it out"
    return ""


def entry_handle(entry: str) -> str:
    """Return a short name for an entry, valid as `old_text` also if the text of the entry is withheld.

    >>> entry_handle("Likes tea")
    'entry:d73e14c0'
    """
    # Entries come from files and may hold half a surrogate pair, which UTF-8 refuses.
    return f"entry:{hashlib.sha256(entry.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


# ------------------------------------------------------------------ system prompt


@dataclass(frozen=True, slots=True)
class FlaggedEntry:
    """Entry that stays on disk but is kept from prompts and results, with the id of the rule and the reason."""

    target: MemoryTarget
    entry: str
    id: str
    reason: str

    @property
    def handle(self) -> str:
        """Name by which `remove` and `replace` find the entry."""
        return entry_handle(self.entry)

    @property
    def problem(self) -> str:
        """Sentence for a person, with the command that removes the entry."""
        return (
            f"an entry of {self.target} is kept from the model: {self.reason}; "
            f"hermes-memory memory remove --target {self.target} {self.handle}"
        )

    @property
    def withheld(self) -> str:
        """Text that a model reads in place of the entry."""
        return f"[withheld {self.handle}: {self.id}. Use this handle as old_text to remove or replace it.]"


@dataclass(frozen=True, slots=True)
class NotesSnapshot:
    """Blocks of the system prompt by target, frozen at one moment. A target without entries has no block."""

    blocks: Mapping[MemoryTarget, str] = field(default_factory=dict)

    def render(self) -> str:
        """Join all blocks with a blank line between them."""
        return "\n\n".join(self.blocks.values())


def flag_entry(target: MemoryTarget, entry: str, limit: int, scan: Scan) -> FlaggedEntry | None:
    """Return why an entry must not be shown to a model, or None if it may be shown."""
    if len(entry) > limit:
        reason = f"its {len(entry):,} characters are more than the store's {limit:,}"
        return FlaggedEntry(target, entry, "too_large", reason)
    if fault := entry_fault(entry):
        return FlaggedEntry(target, entry, "forged_frame", fault)
    threat = scan(entry)
    return FlaggedEntry(target, entry, threat.id, threat.message) if threat else None


def prompt_block(target: MemoryTarget, entries: Sequence[str], limit: int, scan: Scan) -> str:
    """Return one block of the system prompt without flagged entries, or "" if no entry is left.

    The header counts all characters on disk, since these limit the next write.
    """
    shown: list[str] = []
    room = limit * PROMPT_LIMITS
    for index, entry in enumerate(entries):
        # Every entry is scanned again here: people edit the file, and the rules grow.
        if flag_entry(target, entry, limit, scan):
            continue
        room -= len(entry) + len(ENTRY_DELIMITER)
        if room < 0:
            left = len(entries) - index
            shown.append(
                f"[{left} more entries are on disk and not shown: the store is over its limit. Remove some.]"
            )
            break
        shown.append(entry)
    if not shown:
        return ""
    header = f"{_BLOCK_LABELS[target]} [{NotesUsage(measure(entries), limit)}]"
    return "\n".join((BAR, header, BAR, join_entries(shown)))

"""The text of MEMORY.md and USER.md as values: parse, render, measure. No files, no clock.

Entries are joined by a line that holds only `§`. What Hermes Agent wrote is read as it is, and what is written here is
read by it; what people's editors do on top (CRLF, a byte order mark, blank lines, headings, a last newline) is adopted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hermes_core.contract.values import MemoryTarget

ENTRY_DELIMITER = "\n§\n"
BAR = "═" * 46

BLOCK_LABELS: Mapping[MemoryTarget, str] = {
    "memory": "MEMORY (your personal notes)",
    "user": "USER PROFILE (who the user is)",
}

_MARK = ENTRY_DELIMITER.strip()
# What `str.strip` takes for white space, and the byte order mark, which editors leave at the start of a file.
_EDGES = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class Usage(NamedTuple):
    """How full a store is: characters `used` of its `limit`; more than the limit after an edit by hand.

    >>> str(Usage(1474, 2200))
    '67% — 1,474/2,200 chars'
    """

    used: int
    limit: int

    def __str__(self) -> str:
        return f"{self.used * 100 // self.limit}% — {self.used:,}/{self.limit:,} chars"


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds: `entries` in order, or why it can't be adopted.

    `canonical` says that `render(entries)` gives the very bytes, so that writing loses nothing of a person's layout.
    """

    entries: tuple[str, ...] = ()
    conflict: str = ""
    canonical: bool = True


def parse(data: bytes) -> Document:
    """Read the bytes of a file. Never raises: bytes that are no text become a `conflict`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        return Document(conflict=f"byte {exc.start} ({data[exc.start]:#04x}) is not UTF-8", canonical=False)
    if "\0" in text:
        return Document(conflict=f"character {text.index(chr(0))} is NUL", canonical=False)
    entries = split(text)
    return Document(entries, canonical=render(entries) == text)


def split(text: str) -> tuple[str, ...]:
    """The entries of a text, tidied; empty ones are dropped, equal ones kept.

    >>> split("\\ufeff# Notes\\r\\n\\r\\n§\\r\\n\\r\\nLikes tea\\r\\n")
    ('# Notes', 'Likes tea')
    """
    entries: list[list[str]] = [[]]
    for line in _unified(text).split("\n"):
        if line.strip(_EDGES) == _MARK:
            entries.append([])
        else:
            entries[-1].append(line)
    return tuple(entry for lines in entries if (entry := tidy("\n".join(lines))))


def tidy(text: str) -> str:
    """One entry as it is stored: newlines as `\\n`, no white space or byte order mark around it."""
    return _unified(text).strip(_EDGES)


def render(entries: Sequence[str]) -> str:
    """The text of a file that holds these entries."""
    return ENTRY_DELIMITER.join(entries)


def measure(entries: Sequence[str]) -> int:
    """Characters that these entries take of the store's limit, delimiters included."""
    return len(render(entries))


def entry_fault(entry: str) -> str:
    """Why a tidied text can't be one entry, with what to do; "" when it can.

    An entry that held the delimiter would be two after the next read, each unseen by limits, duplicates and scan.
    """
    if fault := text_fault(entry):
        return fault
    lines = [line.strip(_EDGES) for line in entry.split("\n")]
    if _MARK in lines:
        return "a line of the text holds only '§', which separates entries: send one entry for each part"
    if any(BAR in line for line in lines):
        return "the text holds the bar that frames the memory block: leave it out"
    return ""


def text_fault(text: str) -> str:
    """Why a string of a model can't be kept as UTF-8 text, with what to do; "" when it can."""
    if "\0" in text:
        return "the text holds a NUL character: leave it out"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "the text holds half a surrogate pair, which is no character: leave it out"
    return ""


def render_block(target: MemoryTarget, entries: Sequence[str], *, used: int, limit: int) -> str:
    """The block of the system prompt; "" without entries. `used` counts what is on disk, which limits the next write."""
    if not entries:
        return ""
    header = f"{BLOCK_LABELS[target]} [{Usage(used, limit)}]"
    return "\n".join((BAR, header, BAR, render(entries)))


def _unified(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")

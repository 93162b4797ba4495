"""The text of MEMORY.md and USER.md: parsing into entries, checks of entries, and the block of the system prompt.

A line that holds only `§` separates entries, as in Hermes Agent, so that both programs can use the same files. Layout
from an editor (CRLF, a byte order mark, blank lines, headings, a last newline) is accepted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.origins import entry_hash, note_key
from hermes_core.safety.lookalikes import is_ignorable, skeleton

if TYPE_CHECKING:
    from hermes_core.safety.scan import Scan, Threat

ENTRY_DELIMITER = "\n§\n"
BAR = "═" * 46

_BLOCK_LABELS: Mapping[MemoryTarget, str] = {
    "memory": "MEMORY (your personal notes)",
    "user": "USER PROFILE (who the user is)",
    "project": "PROJECT (notes on the repository of the working folder)",
}

_BASE_LABEL = "SHARED NOTES (from whoever runs this agent; the memory tool does not change them)"

_HEADS = (*_BLOCK_LABELS.values(), _BASE_LABEL)
# An entry may hold shorter bars, as in a drawing of a box.
_SHORTEST_BAR = BAR[:8]

PROMPT_LIMITS = 2
"""Limit of the prompt block, as a multiple of the file's limit. If an edit by hand made the file larger than this, the
block leaves out the rest and says so."""

SCAN_LIMITS = 16
"""Characters of a file that are scanned for a model, as a multiple of the file's limit. Without a bound, the scan of a
file of some megabytes takes seconds in every turn."""

_NOT_SHOWN = " more entries are on disk and not shown: the store is over its limit. Remove some.]"
_MORE = re.compile(r"\[\d+" + re.escape(_NOT_SHOWN))

NEIGHBOUR_CHARS = 300
"""Characters on both sides of a border between two entries that are scanned as one text."""

_SEPARATOR = ENTRY_DELIMITER.strip()
_WAITING_LINE = re.compile(
    r"^[ \t]*<!-- wait for hermes-memory review:([0-9a-f \t]*)-->[ \t]*\r?\n?", re.MULTILINE
)
_KEY_DIGITS = 16
# The white space of `str.strip`, and the byte order mark that some editors write at the start of a file.
_EDGES = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)


class NotesUsage(NamedTuple):
    """Number of characters that one file uses, and its limit. After an edit by hand, `used` may exceed `limit`.

    >>> str(NotesUsage(1474, 2200))
    '67% — 1,474/2,200 chars'
    """

    used: int
    limit: int

    def __str__(self) -> str:
        return f"{self.used * 100 // self.limit}% — {self.used:,}/{self.limit:,} chars"


class NoteFileContent(Struct, frozen=True):
    """Parsed content of a file: its entries in order. If the file can't be used, `conflict` is the reason.

    `canonical` is True if `join_entries(entries)` gives exactly the bytes of the file, so that rewriting loses no
    layout. `waiting` are the entries that the file itself names as those that wait for a person.
    """

    entries: tuple[str, ...] = ()
    conflict: str = ""
    canonical: bool = True
    waiting: tuple[str, ...] = ()


@lru_cache(maxsize=64)  # each step of a turn looks at the same notes
def parse_note_file(data: bytes) -> NoteFileContent:
    """Parse the bytes of a file. Bytes that are not UTF-8 text give a `conflict`; no exception is raised."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        return NoteFileContent(
            conflict=f"byte {exc.start} ({data[exc.start]:#04x}) is not UTF-8", canonical=False
        )
    if "\0" in text:
        return NoteFileContent(conflict=f"character {text.index(chr(0))} is NUL", canonical=False)
    keys = {key for line in _WAITING_LINE.findall(text) for key in line.split()}
    entries = split_entries(_WAITING_LINE.sub("", text))
    waiting = tuple(entry for entry in entries if note_key(entry)[:_KEY_DIGITS] in keys)
    return NoteFileContent(
        entries, canonical=with_waiting_line(join_entries(entries), waiting) == text, waiting=waiting
    )


def with_waiting_line(text: str, waiting: Sequence[str]) -> str:
    """Return the text of a file with a last line that names the entries that wait for a person.

    So a copy of the file alone does not make them the person's in another home.
    """
    keys = " ".join(note_key(entry)[:_KEY_DIGITS] for entry in waiting)
    return f"{text}\n<!-- wait for hermes-memory review: {keys} -->\n" if keys else text


def split_entries(text: str) -> tuple[str, ...]:
    """Split the text of a file into normalized entries. Empty entries are dropped; duplicates stay.

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
    """Return an entry in its stored form: newlines as `\\n`, without outer white space and byte order marks."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip(_EDGES)


def join_entries(entries: Sequence[str]) -> str:
    """Return the text of a file with these entries."""
    return ENTRY_DELIMITER.join(entries)


def measure(entries: Sequence[str]) -> int:
    """Return the number of characters of a file with these entries, including separators.

    The limit applies to this number.
    """
    return len(join_entries(entries))


def entry_fault(entry: str) -> str:
    """Return the reason why a normalized text can't be an entry, with a remedy; "" if it can.

    A text that contains the separator is refused: the next read would split it into two entries that were never
    checked.
    """
    if fault := text_fault(entry):
        return fault
    for line in entry.split("\n"):
        if line.strip(_EDGES) == _SEPARATOR:
            return "a line of the text holds only '§', which separates entries: send one entry for each part"
    if _imitates_frame(entry):
        return "the text holds a bar, a head or a foot of the blocks of notes: leave it out"
    return ""


def _imitates_frame(entry: str) -> bool:
    """Return True if an entry could pass as the end of its block and the start of another part of the prompt."""
    if _SHORTEST_BAR in "".join(char for char in entry if not is_ignorable(char)):
        return True
    lines = (_letters(line) for line in entry.split("\n"))
    return any(line.startswith(_HEAD_LETTERS) or line in _FOOT_LETTERS for line in lines)


def _letters(line: str) -> str:
    """Return the letters of a line as a reader sees them, without anything around and between them."""
    return "".join(symbol for symbol in map(skeleton, line) if symbol.isalpha())


def _foot(head: str) -> str:
    """Return the last line of the block with this head.

    >>> _foot("MEMORY (your personal notes)")
    'END OF MEMORY'
    """
    return f"END OF {head.partition(' (')[0]}"


_HEAD_LETTERS = tuple(map(_letters, _HEADS))
_FOOT_LETTERS = frozenset(_letters(_foot(head)) for head in _HEADS)


def text_fault(text: str) -> str:
    """Return the reason why a string of a model can't be stored as UTF-8, with a remedy; "" if it can."""
    if "\0" in text:
        return "the text holds a NUL character: leave it out"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "the text holds half a surrogate pair, which is no character: leave it out"
    return ""


def entry_handle(entry: str) -> str:
    """Return a short name for an entry.

    A model can pass it as `old_text` even if it may not see the text of the entry.

    >>> entry_handle("Likes tea")
    'entry:d73e14c0'
    """
    return f"entry:{entry_hash(entry)[:8]}"


# ------------------------------------------------------------------ system prompt


class FlaggedEntry(Struct, frozen=True):
    """Entry that no model may see, with the id of the violated rule and the reason. The entry stays on disk."""

    target: MemoryTarget
    entry: str
    id: str
    reason: str

    @property
    def handle(self) -> str:
        """Short name of the entry, which `remove` and `replace` accept as `old_text`."""
        return entry_handle(self.entry)

    @property
    def problem(self) -> str:
        """Sentence that tells a person why no model sees this entry of the notes, with the command that removes it."""
        return (
            f"an entry of {self.target} is kept from the model: {self.reason}; "
            f"hermes-memory memory remove --target {self.target} {self.handle}"
            f"{'' if self.id in ('too_large', 'forged_frame') else f', or if it is right: hermes-memory memory allow {self.handle}'}"
        )

    @property
    def withheld(self) -> str:
        """Text that a model gets in place of the entry."""
        return f"[withheld {self.handle}: {self.id}. Use this handle as old_text to remove or replace it.]"


class NotesSnapshot(Struct, frozen=True):
    """Blocks of the notes for the system prompt, by target, as they were at one moment.

    A target without entries has no block. `base` is the block of the shared base, "" if there is none.
    """

    blocks: Mapping[MemoryTarget, str] = field(default_factory=dict)
    base: str = ""

    def render(self) -> str:
        """Return all blocks, that of the shared base first, joined by a blank line."""
        return "\n\n".join(filter(None, (self.base, *self.blocks.values())))


def flag_entry(target: MemoryTarget, entry: str, limit: int, scan: Scan) -> FlaggedEntry | None:
    """Return a `FlaggedEntry` if no model may see this entry, else None.

    No model may see an entry that the scan refuses, that is longer than `limit`, or that imitates a block of the
    prompt.
    """
    if len(entry) > limit:
        reason = f"its {len(entry):,} characters are more than the store's {limit:,}"
        return FlaggedEntry(target, entry, "too_large", reason)
    if fault := entry_fault(entry):
        return FlaggedEntry(target, entry, "forged_frame", fault)
    threat = scan(entry)
    return FlaggedEntry(target, entry, threat.id, threat.message) if threat else None


Allows = Callable[[str], bool]
"""Function that returns True for an entry that a person allowed."""


def _never(_entry: str) -> bool:
    return False


def split_threat(before: str, entry: str, scan: Scan) -> Threat | None:
    """Return the threat that the end of a text and the beginning of the entry after it are together, but not alone.

    A prompt shows neighbouring entries as one text, so that an attack may be split over them.
    """
    left, right = before[-NEIGHBOUR_CHARS:], entry[:NEIGHBOUR_CHARS]
    threat = scan(f"{left}\n{right}") if left else None
    return threat if threat and not (scan(left) or scan(right)) else None


def flag_entries(
    target: MemoryTarget, entries: Iterable[str], limit: int, scan: Scan, allows: Allows
) -> Iterator[FlaggedEntry | None]:
    """Yield for each of these neighbours a `FlaggedEntry` if no model may see it, else None.

    Args:
        allows: Returns True for an entry that a person allowed.
    """
    before = ""
    for entry in entries:
        flag = flag_entry(target, entry, limit, scan)
        if flag is None and (threat := split_threat(before, entry, scan)) and not allows(entry):
            message = f"together with the entry before it, {threat.message}"
            flag = FlaggedEntry(target, entry, threat.id, message)
        if flag is None:
            before = f"{before}\n{entry}"[-NEIGHBOUR_CHARS:].lstrip("\n")
        yield flag


def distinct_entries(entries: Iterable[str]) -> list[str]:
    """Return the first of all equal entries. A person's file may have them twice, and a prompt has no use for that.

    >>> distinct_entries(["Likes tea", "Caf\u00e9", "Likes tea", "Cafe\u0301"])
    ['Likes tea', 'Caf\u00e9']
    """
    first: dict[str, str] = {}
    for entry in entries:
        first.setdefault(unicodedata.normalize("NFC", entry), entry)
    return list(first.values())


def scanned_entries(entries: Sequence[str], limit: int) -> Sequence[str]:
    """Return the entries at the start of a file that a model may see: `SCAN_LIMITS` times the limit, in characters."""
    room = limit * SCAN_LIMITS
    for index, entry in enumerate(entries):
        # An entry above the limit is flagged because of its length, without a scan.
        room -= len(entry) if len(entry) <= limit else 0
        if room < 0:
            return entries[:index]
    return entries


def entries_for_model(
    target: MemoryTarget,
    entries: Sequence[str],
    limit: int,
    scan: Scan,
    *,
    allows: Allows = _never,
    withheld: bool = False,
) -> list[str]:
    """Return the entries of one file for a model, at most `PROMPT_LIMITS` times the limit in characters.

    A last line says how many more are on disk.

    Args:
        allows: Returns True for an entry that a person allowed.
        withheld: True to show a placeholder with the handle of each flagged entry, so that the model can remove it.
    """
    shown: list[str] = []
    room = limit * PROMPT_LIMITS
    scanned = scanned_entries(entries, limit)
    more = len(entries) - len(scanned)
    # Every entry is scanned again here: people edit the file, and the rules grow.
    flags = flag_entries(target, scanned, limit, scan, allows)
    for index, (entry, flagged) in enumerate(zip(scanned, flags, strict=True)):
        if flagged and not withheld:
            continue
        text = flagged.withheld if flagged else entry
        room -= len(text) + len(ENTRY_DELIMITER)
        if room < 0:
            more = len(entries) - index
            break
        shown.append(text)
    if more:
        shown.append(f"[{more}{_NOT_SHOWN}")
    return shown


def prompt_block(
    target: MemoryTarget,
    entries: Sequence[str],
    limit: int,
    scan: Scan,
    *,
    allows: Allows = _never,
    used: int | None = None,
    project: str = "",
) -> str:
    """Return the block of one file for the system prompt, without flagged entries; "" if no entry is left.

    The head shows the number of characters on disk, including flagged entries, because the limit applies to this
    number.

    Args:
        entries: The entries that may stand in a system prompt.
        allows: Returns True for an entry that a person allowed.
        used: Characters of all entries on disk; default: of `entries`.
        project: Key of the repository of PROJECT.md, which stands in the head of its block.
    """
    shown = entries_for_model(target, distinct_entries(entries), limit, scan, allows=allows)
    if not shown:
        return ""
    usage = NotesUsage(measure(entries) if used is None else used, limit)
    return _framed(_BLOCK_LABELS[target], shown, f" [{usage}]{f' {project}' if project else ''}")


def unreadable_block(target: MemoryTarget) -> str:
    """Return the line that stands in a system prompt for notes on a server that can't be reached."""
    return (
        f"{_BLOCK_LABELS[target]}: they can't be read at the moment, which does not mean that there are none."
    )


def is_incomplete(prompt: str) -> bool:
    """Return True if a system prompt was built while notes on a server could not be read."""
    lines = prompt.split("\n")
    return any(unreadable_block(target) in lines for target in _BLOCK_LABELS)


def _framed(head: str, entries: Sequence[str], usage: str = "") -> str:
    """Return the block of these entries with its head and foot, which no entry can imitate."""
    return "\n".join((BAR, head + usage, BAR, join_entries(entries), BAR, _foot(head)))


def entries_of_prompt(prompt: str) -> tuple[list[str], list[str]]:
    """Return the entries in the blocks of a system prompt: those of the notes, and those of the shared base.

    >>> entries_of_prompt("Be kind.\\n\\n" + base_block(["Likes tea", "Has a cat"]))
    ([], ['Likes tea', 'Has a cat'])
    """
    own, base = list[str](), list[str]()
    for head in _HEADS:
        shown = re.compile(
            f"^{BAR}\n{re.escape(head)}.*\n{BAR}\n([\\s\\S]*?)\n{BAR}\n{_foot(head)}$", re.MULTILINE
        )
        for block in shown.findall(prompt):
            (base if head == _BASE_LABEL else own).extend(block.split(ENTRY_DELIMITER))
    return own, base


def project_of_prompt(prompt: str) -> str:
    """Return the key of the repository whose notes stand in a system prompt; "" if there are none.

    >>> project_of_prompt(prompt_block("project", ["Build with make"], 100, lambda _: None, project="pond-0123456789ab"))
    'pond-0123456789ab'
    """
    shown = re.search(
        f"^{BAR}\n{re.escape(_BLOCK_LABELS['project'])} \\[.*\\] (\\S+)\n{BAR}\n", prompt, re.MULTILINE
    )
    return shown[1] if shown else ""


def entry_changes(prompt: str, other: str) -> tuple[list[str], list[str]]:
    """Return the entries that only the second of two system prompts shows, and those that only the first one shows.

    >>> entry_changes(base_block(["Likes tea", "Has a cat"]), base_block(["Has a cat", "Has a dog"]))
    (['Has a dog'], ['Likes tea'])
    """
    before, after = (
        [entry for entries in entries_of_prompt(text) for entry in entries if not _MORE.fullmatch(entry)]
        for text in (prompt, other)
    )
    return [entry for entry in after if entry not in before], [
        entry for entry in before if entry not in after
    ]


def base_entries(entries: Sequence[str], limit: int, scan: Scan, allows: Allows = _never) -> list[str]:
    """Return the entries of the shared base that a model may see, at most `PROMPT_LIMITS` times the limit in characters."""
    shown = entries_for_model("memory", distinct_entries(entries), limit, scan, allows=allows)
    return [entry for entry in shown if not _MORE.fullmatch(entry)]


def base_block(entries: Sequence[str]) -> str:
    """Return the block of these entries of the shared base for the system prompt; "" if there is none."""
    return _framed(_BASE_LABEL, entries) if entries else ""

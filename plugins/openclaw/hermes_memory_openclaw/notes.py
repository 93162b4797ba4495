"""Markdown notes as entries: one fact each, after its headings; and the plan for a file of notes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial

from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import entry_fault, join_entries, measure, split_threat
from hermes_core.safety.redact import secrets_in
from hermes_core.safety.scan import Scan, first_threat
from hermes_memory_openclaw.migration import (
    AddEntries,
    MigrationItem,
    MigrationStep,
    SourceFile,
    Status,
    TargetHome,
    WriteOverflow,
    entry_key,
)

_FRONT = re.compile(r"\A---[ \t]*\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)\Z")
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+(.*)")
_RULE = re.compile(r"[ \t]*(?:[-*_][ \t]*){3,}\Z")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
# A hint of OpenClaw's templates stands in italics as a whole: `_(What do they care about?)_`.
_HINT = re.compile(r"_[^_].*_\Z", re.DOTALL)
_EMPTY_FIELD = re.compile(r"[^:]{1,60}:(?:\s*_\(.*\)_)?\Z")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

_FILE_HEADINGS = frozenset({"memory", "long-term memory", "user", "user profile", "about your human"})
"""Headings that only name the file."""


@dataclass(frozen=True, slots=True)
class ParsedNotes:
    """The entries of a file in order, and the number of code blocks and tables that were left out."""

    entries: tuple[str, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class _Parser:
    """The state of the parser: the current block and its headings."""

    headings: list[tuple[int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    is_item: bool = False
    indent: int = 0
    left_out: int = 0
    in_table: bool = False


def parse_notes(text: str, name: str = "") -> ParsedNotes:
    """Return the facts that a Markdown file states. If the file's `name` is a day, it is the date of the entries.

    Each bullet, numbered item and paragraph is an entry; items nested under a bullet belong to it. Headings become the
    prefix "A > B: ", except a heading that names the file. Code, tables and empty fields of a template are no facts.

    >>> parse_notes("# Memory\\n## Tools\\n- Uses **uv**\\n- Editor:\\n  - Helix\\n", "MEMORY.md").entries
    ('Tools: Uses uv', 'Tools: Editor: Helix')
    """
    stem = name.rsplit(".", 1)[0]
    day = _DAY.match(stem)
    skipped = _FILE_HEADINGS | {stem.casefold(), name.casefold()}
    parser = _Parser()
    found = [f"{day[0]}: {entry}" if day else entry for entry in _entries(parser, _clean(text), skipped)]
    return ParsedNotes(tuple(dict.fromkeys(found)), parser.left_out)


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    return "".join(_uncommented(_FRONT.sub("", text)))


def _uncommented(text: str) -> Iterator[str]:
    """Yield the text outside comments. This takes linear time, unlike a regular expression."""
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        yield text[at:start]
        at = end + 3
    yield text[at:]


def _entries(state: _Parser, text: str, skipped: Collection[str]) -> Iterator[str]:
    """Yield each finished block."""
    fence = ""
    for line in text.split("\n"):
        if fence or _FENCE.match(line):
            yield from _finish(state)
            fence = _after_fence(state, fence, line)
        elif heading := _HEADING.match(line):
            yield from _finish(state)
            _enter(state, len(heading[1]), _plain(heading[2].rstrip("# \t")), skipped)
        elif not line.strip() or _RULE.match(line) or line.strip() == "§":
            yield from _finish(state)
        elif line.lstrip().startswith("|"):
            was_in_table = state.in_table
            yield from _finish(state)
            state.left_out += not was_in_table
            state.in_table = True
        else:
            yield from _take(state, line)
    yield from _finish(state)


def _after_fence(state: _Parser, fence: str, line: str) -> str:
    """Return the code fence that is open after this line, "" for none."""
    if not fence:
        state.left_out += 1
        match = _FENCE.match(line)
        return match[1] if match else ""
    return "" if line.strip() == fence else fence


def _enter(state: _Parser, level: int, title: str, skipped: Collection[str]) -> None:
    state.headings = [(depth, text) for depth, text in state.headings if depth < level]
    first = title.casefold().split(" - ")[0].split(" — ")[0].strip()
    if title and not {title.casefold(), first} & set(skipped):
        state.headings.append((level, title))


def _take(state: _Parser, line: str) -> Iterator[str]:
    """Add a line of text to the current block. Yield the block if the line begins a new item."""
    item = _ITEM.match(line)
    if item is None:
        state.lines.append(line.strip().removeprefix(">").strip())
        return
    indent = len(item[1].expandtabs(4))
    if state.is_item and indent > state.indent:
        if not state.lines[-1].endswith(":") and not _plain(state.lines[-1]).endswith(":"):
            state.lines[-1] += ";"
        state.lines.append(item[2].strip())
        return
    yield from _finish(state)
    state.is_item, state.indent = True, indent
    state.lines.append(item[2].strip())


def _finish(state: _Parser) -> Iterator[str]:
    """End the current block and yield it, unless it states nothing."""
    raw = " ".join(state.lines).strip()
    text = _plain(raw)
    is_item = state.is_item
    state.lines, state.is_item, state.indent, state.in_table = [], False, 0, False
    if not text or _HINT.match(raw) or (is_item and _EMPTY_FIELD.match(text)):
        return
    path = " > ".join(title for _, title in state.headings)
    yield f"{path}: {text}" if path else text


def _plain(text: str) -> str:
    return " ".join(text.replace("**", "").split())


# --------------------------------------------------------------------------------------------------------------- plan

ArchiveStep = Callable[[str, bytes], tuple[MigrationStep, ...]]
"""Returns the steps that archive a file."""


class NotesPlanner:
    """A planner that fills the stores file after file. Each plan counts the entries that earlier plans add."""

    def __init__(self, here: TargetHome, scan: Scan, archive: ArchiveStep) -> None:
        self._here = here
        self._scan = scan
        # A store looks closer at what is imported than at what its owner writes.
        self._scan_imported = partial(first_threat, untrusted=True) if scan is first_threat else scan
        self._archive = archive
        self._entries = {target: list(store.entries) for target, store in here.stores.items()}
        self._keys = {
            entry_key(target, entry) for target, store in here.stores.items() for entry in store.entries
        }
        self._overflow = set(here.overflow)
        # The entries of the source that the stores have, in the order of the source: a second migration finds the same
        # neighbours, whatever the stores hold at their ends by then.
        self._sequence: dict[MemoryTarget, list[str]] = {target: [] for target in here.stores}

    def plan(self, kind: str, target: MemoryTarget, file: SourceFile, name: str = "") -> MigrationItem:
        """Return the item of a file of notes. The file itself is archived too, because entries don't hold everything."""
        text = file.text
        file_name = f"memories/{'MEMORY' if target == 'memory' else 'USER'}.md"
        if text is None:
            return MigrationItem(kind, file.path, file_name, "error", file.fault or "it is no UTF-8 text")
        notes = parse_notes(text, name or file.path.rsplit("/", 1)[-1])
        counts: Counter[str] = Counter(found=len(notes.entries), left_out=notes.left_out)
        added: list[str] = []
        overflow: list[str] = []
        refused: list[str] = []
        for entry in notes.entries:
            outcome, reason = self._judge(target, entry)
            counts[outcome] += 1
            refused += [reason] if outcome == "refused" else []
            added += [entry] if outcome == "added" else []
            overflow += [entry] if outcome == "overflow" and self._is_new_overflow(target, entry) else []
        steps: tuple[MigrationStep, ...] = (AddEntries(target, tuple(added)),) if added else ()
        steps += (WriteOverflow(target, tuple(overflow)),) if overflow else ()
        steps += self._archive(file.path, file.data)
        status: Status = "migrated" if added else "archived" if steps else "skipped"
        details = {
            name: counts[name] for name in ("found", "added", "known", "overflow", "refused", "left_out")
        }
        reason = self._reason(target, counts, refused)
        return MigrationItem(kind, file.path, file_name, status, reason, details, steps=steps)

    def _judge(self, target: MemoryTarget, entry: str) -> tuple[str, str]:
        """Return the outcome of an entry (added, known, overflow, refused) and why it is refused."""
        key, store = entry_key(target, entry), self._here.stores[target]
        sequence = self._sequence[target]
        if key in self._keys:
            sequence += [entry] if entry not in sequence else []
            return "known", ""
        if fault := entry_fault(entry):
            return "refused", fault
        if threat := self._scan_imported(entry):
            return "refused", threat.message
        if kinds := ", ".join(secrets_in(entry)):
            return "refused", f"it holds what looks like a secret ({kinds})"
        if store.closed or measure([*self._entries[target], entry]) > store.limit:
            return "overflow", ""
        for before in (self._entries[target], sequence):
            if threat := split_threat(join_entries(before), entry, self._scan):
                return "refused", f"together with the entry before it, {threat.message}"
        self._entries[target].append(entry)
        sequence.append(entry)
        self._keys.add(key)
        return "added", ""

    def _is_new_overflow(self, target: MemoryTarget, entry: str) -> bool:
        key = entry_key(target, entry)
        fresh = key not in self._overflow
        self._overflow.add(key)
        return fresh

    def _reason(self, target: MemoryTarget, counts: Counter[str], refused: list[str]) -> str:
        parts = []
        if counts["refused"]:
            parts.append(f"{counts['refused']} refused: {refused[0]}")
        if counts["overflow"]:
            why = self._here.stores[target].closed or "the store has no room for them"
            parts.append(f"{counts['overflow']} kept in the overflow file: {why}")
        if counts["found"] and counts["known"] == counts["found"]:
            parts.append("all of it is here already")
        return "; ".join(parts)

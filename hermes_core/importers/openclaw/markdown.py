"""Markdown notes as entries of curated memory: a fact each, with its headings before it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

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
"""Headings that only say which file it is."""


@dataclass(frozen=True, slots=True)
class Notes:
    """The entries of a file in order, and how many code blocks and tables were left out of them."""

    entries: tuple[str, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class _Reading:
    """The block that is being read."""

    headings: list[tuple[int, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    is_item: bool = False
    indent: int = 0
    left_out: int = 0
    in_table: bool = False


def parse_notes(text: str, name: str = "") -> Notes:
    """The facts that a Markdown file states; `name` is the file's, and dates the entries when it is a day.

    Bullets, numbered items and paragraphs are an entry each, what is nested under a bullet belongs to it. Headings go
    before as "A > B: ", except the one that names the file. Code, tables and empty fields of a template are no facts.

    >>> parse_notes("# Memory\\n## Tools\\n- Uses **uv**\\n- Editor:\\n  - Helix\\n", "MEMORY.md").entries
    ('Tools: Uses uv', 'Tools: Editor: Helix')
    """
    stem = name.rsplit(".", 1)[0]
    day = _DAY.match(stem)
    skipped = _FILE_HEADINGS | {stem.casefold(), name.casefold()}
    reading = _Reading()
    found = [f"{day[0]}: {entry}" if day else entry for entry in _entries(reading, _clean(text), skipped)]
    return Notes(tuple(dict.fromkeys(found)), reading.left_out)


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    return "".join(_uncommented(_FRONT.sub("", text)))


def _uncommented(text: str) -> Iterator[str]:
    """What is in no comment; one that does not end is none. Linear, as a pattern would not be."""
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        yield text[at:start]
        at = end + 3
    yield text[at:]


def _entries(now: _Reading, text: str, skipped: Collection[str]) -> Iterator[str]:
    """Each finished block, line by line."""
    fence = ""
    for line in text.split("\n"):
        if fence or _FENCE.match(line):
            yield from _finish(now)
            fence = _after_fence(now, fence, line)
        elif heading := _HEADING.match(line):
            yield from _finish(now)
            _enter(now, len(heading[1]), _plain(heading[2].rstrip("# \t")), skipped)
        elif not line.strip() or _RULE.match(line) or line.strip() == "§":
            yield from _finish(now)
        elif line.lstrip().startswith("|"):
            was_in_table = now.in_table
            yield from _finish(now)
            now.left_out += not was_in_table
            now.in_table = True
        else:
            yield from _take(now, line)
    yield from _finish(now)


def _after_fence(now: _Reading, fence: str, line: str) -> str:
    """The fence that is open after this line."""
    if not fence:
        now.left_out += 1
        match = _FENCE.match(line)
        return match[1] if match else ""
    return "" if line.strip() == fence else fence


def _enter(now: _Reading, level: int, title: str, skipped: Collection[str]) -> None:
    now.headings = [(depth, text) for depth, text in now.headings if depth < level]
    first = title.casefold().split(" - ")[0].split(" — ")[0].strip()
    if title and not {title.casefold(), first} & set(skipped):
        now.headings.append((level, title))


def _take(now: _Reading, line: str) -> Iterator[str]:
    """One line of text: a new item, or more of the block at hand."""
    item = _ITEM.match(line)
    if item is None:
        now.lines.append(line.strip().removeprefix(">").strip())
        return
    indent = len(item[1].expandtabs(4))
    if now.is_item and indent > now.indent:
        if not now.lines[-1].endswith(":") and not _plain(now.lines[-1]).endswith(":"):
            now.lines[-1] += ";"
        now.lines.append(item[2].strip())
        return
    yield from _finish(now)
    now.is_item, now.indent = True, indent
    now.lines.append(item[2].strip())


def _finish(now: _Reading) -> Iterator[str]:
    """The block that has ended, unless it states nothing."""
    raw = " ".join(now.lines).strip()
    text = _plain(raw)
    is_item = now.is_item
    now.lines, now.is_item, now.indent, now.in_table = [], False, 0, False
    if not text or _HINT.match(raw) or (is_item and _EMPTY_FIELD.match(text)):
        return
    path = " > ".join(title for _, title in now.headings)
    yield f"{path}: {text}" if path else text


def _plain(text: str) -> str:
    return " ".join(text.replace("**", "").split())

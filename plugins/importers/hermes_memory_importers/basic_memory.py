"""Importer for notes of basic-memory: a text in Markdown with a header that has a `permalink`.

Each observation, each relation and each other paragraph becomes a record, behind the title of the note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_memory_importers import NO_WORDS, ImportedRecord, SkipLog, read_fact, read_time
from hermes_memory_importers.saved_memories import paragraphs

SOURCE = "basic-memory"

_HEADER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_PERMALINK = re.compile(r"^permalink:", re.MULTILINE)
_TITLE = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE)
_TYPE = re.compile(r"^type:[ \t]*\S", re.MULTILINE)
_OBSERVED = re.compile(r"^[-*]\s+\[[A-Za-z][^\[\]()\n]{0,60}\]\s+\S", re.MULTILINE)
_ITEM = re.compile(r"[-*]\s+(.*)")
# A box to tick is no category: `[ ]`, `[x]`, `[-]`.
_OBSERVATION = re.compile(r"\[(?![ xX-]\])([^\[\]()]{1,60})\]\s+(.*)")
_RELATION = re.compile(
    r"""(?:(["'])(?P<quoted>.{1,60}?)\1|(?P<name>[\w -]{0,60}?))\s*\[\[(?P<other>.+?)\]\]\s*(?P<more>.*)"""
)
_TIME = re.compile(r"^(created|modified):[ \t]*(\S.*)$", re.MULTILINE)
_SECTIONS = re.compile(r"#{1,6}\s+(?:Observations|Relations)\s*\Z", re.IGNORECASE)


def score_basic_memory(path: Path, head: bytes, value: Any) -> int:
    """Return 4 for a text with the header of a note of basic-memory, else 0."""
    if value is not None or not head.startswith(b"---"):
        return 0
    text = _text(path)
    header = _HEADER.match(text)
    if header is None:
        return 0
    # A note has no permalink if the person turned them off.
    is_note = _TITLE.search(header[1]) and _TYPE.search(header[1]) and _OBSERVED.search(text, header.end())
    return 4 if _PERMALINK.search(header[1]) or is_note else 0


def read_basic_memory(path: Path, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield the records of a note."""
    text = _text(path)
    header = _HEADER.match(text)
    named = _TITLE.search(header[1]) if header else None
    title = named[1].strip("\"' ") if named else path.stem
    body = text[header.end() :] if header else text
    times = {name: value.strip("\"' ") for name, value in _TIME.findall(header[1])} if header else {}
    created = read_fact(read_time, times.get("created"), f"{path}, created", skips) or 0.0
    updated = read_fact(read_time, times.get("modified"), f"{path}, modified", skips) or 0.0
    found = list(_facts_of(body, title))
    skips.open(len(found), 0)
    for words, kind, tags in found:
        record = MemoryRecord(
            f"{title}: {words}", created_at=created, updated_at=updated, kind=kind, tags=tags
        )
        yield ImportedRecord(record, SOURCE, title)
    if not found:
        skips.open(1, 0)
        skips.note(NO_WORDS, str(path))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="replace").replace("\r\n", "\n")


def _facts_of(body: str, title: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each fact as its words, its kind and its tags."""
    rest: list[str] = []
    for line in body.split("\n"):
        item = _ITEM.match(line)
        observed = _OBSERVATION.fullmatch(item[1].strip()) if item else None
        related = _RELATION.fullmatch(item[1].strip()) if item and observed is None else None
        if observed:
            tags = tuple(re.findall(r"(?<!\S)#([\w/-]+)", observed[2]))
            yield observed[2].strip(), observed[1].strip(), tags
        elif related:
            name = (related["quoted"] or related["name"] or "").replace("_", " ").strip()
            facts = (name or "relates to", related["other"], related["more"])
            yield " ".join(filter(None, facts)), "relation", ()
        elif not _SECTIONS.match(line) and line.strip() not in (f"# {title}", "---"):
            rest.append(line)
    for words in paragraphs("\n".join(rest)):
        yield words, "note", ()

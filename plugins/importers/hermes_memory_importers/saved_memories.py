"""Importer for what claude.ai and ChatGPT keep beside conversations: saved memories, and projects with their files.

claude.ai exports them as `memories.json` and `projects.json`, or a file for each project. ChatGPT has memories within its
conversations, and `{"memories": [...]}` as its page shows them. None of it is the person's word: each becomes a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    NO_WORDS,
    PROJECT_KIND,
    ImportedRecord,
    SkipLog,
    expected,
    read_list,
    read_object,
    read_records,
    read_text,
    read_time,
    whole_text,
)

MEMORY_KIND = "saved memory"

_HEADING = re.compile(r"(?:#{1,6}\s+(.+?)|\*\*(.+?)\*\*:?)\s*\Z")
_NUMBERED = re.compile(r"(?:\d+\.\s+)?\[(\d{4}-\d\d-\d\d)\]\.?\s+")
_PROJECT_FIELDS = ("prompt_template", "instructions", "docs", "files")


def score_saved_memories(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 if a value holds saved memories or a project, else 0."""
    known = isinstance(value, dict) and (_is_claude_memory(value) or _is_list(value) or _is_project(value))
    return 4 if known else 0


def read_saved_memories(path: Path, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield a record for each memory, and for the instructions and each file of a project."""
    for number, value in enumerate(read_records(path, skips), 1):
        where = f"record {number}"
        try:
            found = list(_records(read_object(value, where), where, skips))
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        if found:
            skips.open(len(found))
            yield from found
        else:
            skips.note(NO_WORDS, where)


def _is_claude_memory(value: Mapping[str, Any]) -> bool:
    return "conversations_memory" in value or "project_memories" in value


def _is_list(value: Mapping[str, Any]) -> bool:
    listed = value.get("memories")
    return isinstance(listed, list) and all(isinstance(one, dict) and "content" in one for one in listed)


def _is_project(value: Mapping[str, Any]) -> bool:
    has_id = isinstance(value.get("uuid"), str) or str(value.get("id")).startswith("g-p-")
    return has_id and "name" in value and any(field in value for field in _PROJECT_FIELDS)


def _records(value: Mapping[str, Any], where: str, skips: SkipLog) -> Iterator[ImportedRecord]:
    if _is_claude_memory(value):
        for text in paragraphs(read_text(value.get("conversations_memory"), where)):
            yield ImportedRecord(MemoryRecord(text, kind=MEMORY_KIND), "claude-ai")
        projects = value.get("project_memories") or {}
        named = projects.items() if isinstance(projects, dict) else enumerate(read_list(projects, where), 1)
        for name, memory in named:
            for text in paragraphs(read_text(memory, where)):
                yield ImportedRecord(MemoryRecord(text, kind=PROJECT_KIND), "claude-ai", f"project {name}")
    elif _is_list(value):
        for one in value["memories"]:
            at = read_time(one.get("created_at") or one.get("updated_at"), where) or 0.0
            if text := whole_text(read_text(one["content"], where)).strip():
                yield ImportedRecord(MemoryRecord(text, created_at=at, kind=MEMORY_KIND), "chatgpt")
    elif _is_project(value):
        yield from _of_project(value, where, skips)
    else:
        raise expected(where, "saved memories or a project", sorted(value))


def _of_project(value: Mapping[str, Any], where: str, skips: SkipLog) -> Iterator[ImportedRecord]:
    name = whole_text(read_text(value.get("name"), f"{where}, name")).strip()
    source = "claude-ai" if "uuid" in value else "chatgpt"
    at = read_time(value.get("created_at"), f"{where}, created_at") or 0.0

    def record(label: str, text: object, place: str) -> Iterator[ImportedRecord]:
        words = whole_text(read_text(text, f"{where}, {place}")).strip()
        if words:
            stored = MemoryRecord(f"{label}: {words}", created_at=at, kind=PROJECT_KIND)
            yield ImportedRecord(stored, source, f"project {name}")

    yield from record(f"Project {name}", value.get("description"), "description")
    for field in ("prompt_template", "instructions"):
        yield from record(f"Instructions of project {name}", value.get(field), field)
    for field in ("docs", "files"):
        for raw in read_list(value.get(field) or [], f"{where}, {field}"):
            doc = read_object(raw, f"{where}, {field}")
            file = read_text(doc.get("filename") or doc.get("name"), f"{where}, filename")
            held = list(record(f"{file} of project {name}", doc.get("content"), field))
            skips.note_part("attached files", f"{where}, {field}", not held)
            yield from held


def paragraphs(text: str) -> Sequence[str]:
    """Return the paragraphs of a text, each with the heading that it stands under.

    >>> paragraphs("**Work**\\n\\nKeeps bees.\\n\\n- a\\n- b")
    ['Work: Keeps bees.', 'Work: - a\\n- b']
    """
    found, heading = [], ""
    for block in re.split(r"\n[ \t]*\n", whole_text(text).replace("\r\n", "\n")):
        first, _, rest = block.strip().partition("\n")
        if match := _HEADING.match(first):
            heading, block = match[1] or match[2], rest
        if block := block.strip():
            found.append(f"{heading}: {block}" if heading else block)
    return found


class ContextRecords:
    """The memories and the instructions that the conversations of a ChatGPT export repeat, each once."""

    def __init__(self, skips: SkipLog) -> None:
        self._skips = skips
        self._known: set[str] = set()
        self._new: list[ImportedRecord] = []

    def take(self, content: Mapping[str, Any], where: str) -> None:
        """Take the texts of a context message."""
        texts = [
            (text, kind)
            for field, kind in _CONTEXT_FIELDS.items()
            for text in _context_texts(read_text(content.get(field), f"{where}, {field}"), kind)
        ]
        if not texts:
            self._skips.note(NO_WORDS, where)
            return
        self._skips.open(len(texts))
        for text, kind in texts:
            if not self.add(text, kind):
                self._skips.note("records that the file repeats", where)

    def add(self, text: str, kind: str) -> bool:
        """Add a text. Return False if it is known."""
        day = _NUMBERED.match(text)
        words = whole_text(text[day.end() :] if day else text).strip()
        if not words or words in self._known:
            return False
        self._known.add(words)
        at = (read_time(day[1], "") or 0.0) if day else 0.0
        self._new.append(ImportedRecord(MemoryRecord(words, created_at=at, kind=kind), "chatgpt"))
        return True

    def pop(self) -> Iterator[ImportedRecord]:
        """Yield the records since the last call."""
        new, self._new = self._new, []
        yield from new


_CONTEXT_FIELDS = {
    "model_set_context": MEMORY_KIND,
    "user_profile": "custom instructions",
    "user_instructions": "custom instructions",
}
_FENCE = re.compile(r"```\n?(.*?)\n?```", re.DOTALL)


def _context_texts(text: str, kind: str) -> list[str]:
    """Return the memories of a list, or the text within the frame that the program puts around it."""
    if kind == MEMORY_KIND:
        starts = [match.start() for match in re.finditer(rf"(?m)^(?={_NUMBERED.pattern})", text)] or [0]
        ends = [*starts[1:], len(text)]
        return [part for start, end in zip(starts, ends, strict=True) if (part := text[start:end].strip())]
    fence = _FENCE.search(text)
    return [part] if (part := (fence[1] if fence else text).strip()) else []

"""Importer for JSON Lines with a message a line: `session`, `role`, `content`; `timestamp`, `speaker`, `ref`, `title`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

from hermes_memory_importers.parts import BESIDE, read_chat_message
from hermes_memory_importers.stream import (
    JsonLine,
    expected,
    in_time,
    json_digest,
    lines_at,
    read_lines,
    read_object,
    read_text,
    read_time,
)
from hermes_memory_importers.values import (
    ImportedMessage,
    ImportedSession,
    ImportedTurn,
    SkipLog,
    StreamedSession,
    split_turns,
)

_FIELDS = frozenset(
    {"session", "role", "content", "timestamp", "speaker", "ref", "title", "id", "name", "tool_name"}
    | {"tool_calls", "tool_call_id", "function_call", "refusal", "audio", *BESIDE}
)


@dataclass(slots=True)
class _SessionIndex:
    """The result of the first reading of a session: its first message, and the places and times of its lines."""

    beginning: str
    started_at: float | None = None
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    times: array[float] = field(default_factory=lambda: array("d"))


def score_jsonl(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return the score of a value as the beginning of a file, for the detection of its format."""
    return 3 if isinstance(value, dict) and "session" in value and "role" in value else 0


def read_jsonl(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield sessions in the order in which they begin.

    Raises `ImportFailed` for a wrong line before it yields any, but not for a torn last line.
    """
    sessions: dict[str, _SessionIndex] = {}
    titles: dict[str, str] = {}
    strange: set[str] = set()
    for line in read_lines(path, skips, strict=True):
        name, messages = _messages(line, skips)
        titles[name] = titles.get(name) or read_text(line.value.get("title"), f"line {line.number}, title")
        strange |= {field for field, value in line.value.items() if value} - _FIELDS
        if not messages:
            continue
        message = messages[0]
        # Two files may both call a session "1". Its first message tells them apart, and stays when the file grows.
        session = sessions.setdefault(name, _SessionIndex(json_digest([message.role, message.content])))
        if session.started_at is None:
            session.started_at = message.timestamp
        session.numbers.append(line.number)
        session.offsets.append(line.offset)
        session.times.append(nan if message.timestamp is None else message.timestamp)
    if strange:
        shown = ", ".join(sorted(strange)[:8])
        skips.note_part(f"fields of an unknown program in the shape of JSON Lines: {shown}", "line 1")
    for name, session in sessions.items():
        session_id = f"jsonl-{name}-{session.beginning}"
        head = ImportedSession(session_id, "jsonl", titles[name], session.started_at, minted=True)
        yield head, _Turns(path, session)


@dataclass(frozen=True, slots=True)
class _Turns:
    """The turns of a session, read from the file at each iteration."""

    path: Path
    index: _SessionIndex

    def __iter__(self) -> Iterator[ImportedTurn]:
        return split_turns(self._messages())

    def _messages(self) -> Iterator[ImportedMessage]:
        index = self.index
        places = zip(index.numbers, index.offsets, strict=True)
        for line in lines_at(self.path, in_time(places, index.times)):
            yield from _messages(line, SkipLog())[1]


def _messages(line: JsonLine, skips: SkipLog) -> tuple[str, list[ImportedMessage]]:
    """Return the session that a line belongs to, and the messages of the line."""
    where = f"line {line.number}"
    record = read_object(line.value, where)
    name = read_text(record.get("session"), f"{where}, session")
    if not name:
        raise expected(where, "a 'session' that says which conversation it belongs to", sorted(record))
    return name, read_chat_message(
        record,
        where,
        skips,
        ref=read_text(record.get("ref"), f"{where}, ref"),
        at=read_time(record.get("timestamp"), f"{where}, timestamp"),
        speaker=read_text(record.get("speaker"), f"{where}, speaker"),
    )

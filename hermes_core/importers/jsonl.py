"""Importer for JSON Lines with a message a line: `session`, `role`, `content`; `timestamp`, `speaker`, `ref`, `title`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_core.importers.stream import (
    JsonLine,
    expected,
    json_digest,
    lines_at,
    read_content,
    read_lines,
    read_object,
    read_role,
    read_text,
    read_time,
)
from hermes_core.importers.values import (
    ImportedMessage,
    ImportedSession,
    ImportedTurn,
    SkipLog,
    StreamedSession,
    split_turns,
)


@dataclass(slots=True)
class _SessionIndex:
    """The result of the first reading of a session: its first message and the places of its lines."""

    beginning: str
    started_at: float | None = None
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))


def score_jsonl(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return the score of a value as the beginning of a file, for the detection of its format."""
    return 3 if isinstance(value, dict) and "session" in value and "role" in value else 0


def read_jsonl(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield sessions in the order in which they begin. Raises `ImportFailed` for a wrong line before it yields any."""
    sessions: dict[str, _SessionIndex] = {}
    titles: dict[str, str] = {}
    for line in read_lines(path, SkipLog(strict=True)):
        name, message = _message(line)
        titles[name] = titles.get(name) or read_text(line.value.get("title"), f"line {line.number}, title")
        if message is None:
            skips.note("instructions, and messages without a word", f"line {line.number}")
            continue
        # Two files may both call a session "1". Its first message tells them apart, and stays when the file grows.
        session = sessions.setdefault(name, _SessionIndex(json_digest([message.role, message.content])))
        if session.started_at is None:
            session.started_at = message.timestamp
        session.numbers.append(line.number)
        session.offsets.append(line.offset)
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
        for line in lines_at(self.path, zip(self.index.numbers, self.index.offsets, strict=True)):
            _, message = _message(line)
            if message is not None:
                yield message


def _message(line: JsonLine) -> tuple[str, ImportedMessage | None]:
    """Return the session that a line belongs to, and its message, None if the message is empty."""
    where = f"line {line.number}"
    record = read_object(line.value, where)
    name = read_text(record.get("session"), f"{where}, session")
    if not name:
        raise expected(where, "a 'session' that says which conversation it belongs to", sorted(record))
    role = read_role(record.get("role"), f"{where}, role")
    content = read_content(record.get("content"), f"{where}, content")
    if not role or not content.strip():
        return name, None
    return name, ImportedMessage(
        role=role,
        content=content,
        speaker=read_text(record.get("speaker"), f"{where}, speaker"),
        ref=read_text(record.get("ref"), f"{where}, ref"),
        timestamp=read_time(record.get("timestamp"), f"{where}, timestamp"),
        tool_name=read_text(record.get("name"), f"{where}, name") if role == "tool" else "",
    )

"""One message a line: `{"session", "role", "content"}`, with `timestamp`, `speaker`, `ref`, `title` where there are any."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hermes_core.importers.fields import (
    digest,
    expected,
    read_content,
    read_object,
    read_role,
    read_text,
    read_time,
)
from hermes_core.importers.skipped import Skipped
from hermes_core.importers.stream import Line, lines_at, read_lines
from hermes_core.importers.turns import each_turn
from hermes_core.importers.values import ImportedMessage, ImportedSession, ImportedTurn, StreamedSession


@dataclass(slots=True)
class _Told:
    """A session as the first reading finds it: how it begins, and where its lines are."""

    beginning: str
    started_at: float | None = None
    numbers: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))


def read_jsonl(path: Path) -> Iterator[StreamedSession]:
    """Sessions in the order in which they begin. Raises `ImportFailed` for the first line that is wrong, before any."""
    told: dict[str, _Told] = {}
    titles: dict[str, str] = {}
    for line in read_lines(path, Skipped(strict=True)):
        name, message = _message(line)
        titles[name] = titles.get(name) or read_text(line.value.get("title"), f"line {line.number}, title")
        if message is None:
            continue
        # Two files may both call a session "1": what it begins with tells them apart, and stays when the file grows.
        session = told.setdefault(name, _Told(digest([message.role, message.content])))
        if session.started_at is None:
            session.started_at = message.timestamp
        session.numbers.append(line.number)
        session.offsets.append(line.offset)
    for name, session in told.items():
        session_id = f"jsonl-{name}-{session.beginning}"
        head = ImportedSession(session_id, "jsonl", titles[name], session.started_at, minted=True)
        yield head, _Turns(path, session)


@dataclass(frozen=True, slots=True)
class _Turns:
    """The turns of a session, read out of the file each time that they are asked for."""

    path: Path
    told: _Told

    def __iter__(self) -> Iterator[ImportedTurn]:
        return each_turn(self._messages())

    def _messages(self) -> Iterator[ImportedMessage]:
        for line in lines_at(self.path, zip(self.told.numbers, self.told.offsets, strict=True)):
            _, message = _message(line)
            if message is not None:
                yield message


def _message(line: Line) -> tuple[str, ImportedMessage | None]:
    """The session that a line belongs to, and its message unless it says nothing."""
    where = f"line {line.number}"
    told = read_object(line.value, where)
    name = read_text(told.get("session"), f"{where}, session")
    if not name:
        raise expected(where, "a 'session' that says which conversation it belongs to", sorted(told))
    role = read_role(told.get("role"), f"{where}, role")
    content = read_content(told.get("content"), f"{where}, content")
    if not role or not content.strip():
        return name, None
    return name, ImportedMessage(
        role=role,
        content=content,
        speaker=read_text(told.get("speaker"), f"{where}, speaker"),
        ref=read_text(told.get("ref"), f"{where}, ref"),
        timestamp=read_time(told.get("timestamp"), f"{where}, timestamp"),
        tool_name=read_text(told.get("name"), f"{where}, name") if role == "tool" else "",
    )

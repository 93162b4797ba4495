"""Importer for the history of Aider: `.aider.chat.history.md` in the folder of a project, a text in Markdown.

A line `# aider chat started at` begins a session. What the person typed stands behind `#### `, and what the program said behind
`> `, each with two blanks at the end of the line; all other lines are the model's. The file has no times but those at which
sessions began, without a zone; they are read as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hermes_memory_importers import (
    OF_PROGRAM,
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    json_digest,
    split_turns,
)

SOURCE = "aider"

# The file dates a session, not a message. A distance of one second keeps the messages in order.
_SECONDS_BETWEEN_MESSAGES = 1.0

_START = re.compile(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*\Z")
_TYPED = "#### "
_SAID = ">"
_MARK = "  "
"""The end of a line that Aider wrote, by which it differs from a heading or a quotation of the model."""

_ASKED = re.compile(r"/(?:ask|code|architect|context|help|chat)\s+(?=\S)")
_RUN = re.compile(r"(?:/run|/test|!)\s*(?=\S)")
_BLANK = "<blank>"


@dataclass(slots=True)
class _Session:
    """One session: the time at which it began, and its messages as (role, lines)."""

    started: datetime | None = None
    blocks: list[tuple[str, list[str]]] = field(default_factory=list)


def score_aider(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 for a text that begins as a history of Aider, else 0."""
    return 5 if value is None and head.startswith(b"# aider chat st") else 0


def read_aider(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every session of a file, one in memory at a time."""
    strict = _keeps_marks(path)
    session = _Session()
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            if match := _START.match(line):
                yield from _finished(session, skips)
                session = _Session(datetime.fromisoformat(match[1]).replace(tzinfo=UTC))
            else:
                _take(session, line.rstrip("\n"), strict=strict)
    yield from _finished(session, skips)


def _keeps_marks(path: Path) -> bool:
    """Return True if lines of the program still have their blanks at the end, which an editor may have removed."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return any(line.startswith((_TYPED, "> ")) and line.rstrip("\n").endswith(_MARK) for line in file)


def _take(session: _Session, line: str, *, strict: bool) -> None:
    """Add a line to the block of its speaker."""
    marked = not strict or line.endswith(_MARK)
    role: Literal["user", "program", "assistant"] = "assistant"
    if marked and line.startswith(_TYPED):
        role, line = "user", line.removeprefix(_TYPED).rstrip().replace(_BLANK, "")
    elif marked and line.startswith(_SAID):
        role = "program"
    if role == "assistant" and session.blocks and session.blocks[-1][0] == "user" and not line.strip():
        # The next thing that the person typed is another prompt.
        session.blocks.append(("assistant", []))
        return
    if not session.blocks or session.blocks[-1][0] != role:
        session.blocks.append((role, []))
    session.blocks[-1][1].append(line)


def _finished(session: _Session, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield a session that has a word."""
    messages: list[ImportedMessage] = []
    began = f"session of {session.started:%Y-%m-%d %H:%M:%S}" if session.started else "the beginning"
    started = None if session.started is None else session.started.timestamp()
    for role, lines in session.blocks:
        text = "\n".join(lines).strip()
        if not text:
            continue
        skips.read += 1
        words = _words(text) if role == "user" else text
        if role == "program" or not words:
            skips.note(OF_PROGRAM, began)
            continue
        at = None if started is None else started + len(messages) * _SECONDS_BETWEEN_MESSAGES
        messages.append(ImportedMessage(role, words, timestamp=at))
    if messages:
        # The file has no ids. The first words tell two sessions apart that began in the same second.
        begins = json_digest([messages[0].role, messages[0].content])
        stamp = f"{session.started:%Y%m%dT%H%M%S}-" if session.started else ""
        head = ImportedSession(f"{SOURCE}-{stamp}{begins}", SOURCE, "", started)
        yield head, split_turns(messages)


def _words(text: str) -> str:
    """Return the words of the person in what was typed; "" for a command to the program."""
    if match := _ASKED.match(text):
        return text[match.end() :]
    if match := _RUN.match(text):
        return f"!{text[match.end() :]}"
    return "" if text.startswith("/") else text

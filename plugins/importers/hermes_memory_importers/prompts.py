"""Importer for the histories of typed prompts that Codex, Claude Code and Gemini CLI keep.

`~/.codex/history.jsonl` and `~/.claude/history.jsonl` have a prompt a line, `~/.gemini/tmp/<project>/logs.json` has a list.
They stay when the files of the sessions are gone. A session that is stored from its own file has these prompts already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    OF_PROGRAM,
    ImportedMessage,
    ImportedSession,
    ImportedTurn,
    SkipLog,
    StreamedSession,
    excerpt_id,
    expected,
    json_digest,
    read_object,
    read_records,
    read_text,
    read_time,
    whole_text,
)

_PASTE = re.compile(r"\[Pasted text #(\d+)[^\]]*\]")
_COMMAND = re.compile(r"\s*/[\w:-]+\s*\Z")

_FIELDS = {
    "codex": {"session_id", "ts", "text"},
    "claude-code": {"display", "timestamp", "project"},
    "gemini-cli": {"sessionId", "messageId", "type", "message"},
}
"""Fields by which the history of a program is recognised."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt with the session in which it was typed."""

    source: str
    session: str
    text: str
    at: float | None


@dataclass(slots=True)
class _Session:
    """Prompts of one session in their order, by the name of the turn."""

    source: str
    turns: dict[str, ImportedTurn] = field(default_factory=dict)


def score_prompts(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 if a value is a prompt in the history of a program, else 0."""
    return 4 if isinstance(value, dict) and _program(value) else 0


def read_prompts(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the prompts of each session, a turn for each. A turn has the time and the text as its id."""
    sessions: dict[str, _Session] = {}
    for number, value in enumerate(read_records(path, skips), 1):
        where = f"prompt {number}"
        try:
            prompt = _prompt(read_object(value, where), where, skips)
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        if prompt is None or not prompt.text.strip():
            skips.note(OF_PROGRAM, where)
            continue
        session = sessions.setdefault(f"{prompt.source}-{prompt.session}", _Session(prompt.source))
        name = json_digest([prompt.at, prompt.text])
        if name in session.turns:
            skips.note("records that the file repeats", where)
        else:
            message = ImportedMessage("user", prompt.text, ref=name, timestamp=prompt.at)
            session.turns[name] = ImportedTurn((message,), name)
    for session_id, session in sessions.items():
        started = next(iter(session.turns.values())).messages[0].timestamp
        head = ImportedSession(
            excerpt_id(session_id), session.source, "", started, excerpt_of=session_id, copyable=False
        )
        yield head, session.turns.values()


def _program(value: Mapping[str, Any]) -> str:
    return next((name for name, fields in _FIELDS.items() if fields <= value.keys()), "")


def _prompt(value: Mapping[str, Any], where: str, skips: SkipLog) -> _Prompt | None:
    """Return the prompt of a record, None for a command without words, and for a message of the program."""
    source = _program(value)
    if source == "codex":
        session, text, at = value["session_id"], value["text"], value["ts"]
    elif source == "claude-code":
        # Older versions do not name the session.
        session = value.get("sessionId") or f"history-{json_digest(value['project'])}"
        text, at = value["display"], value["timestamp"]
    elif source == "gemini-cli":
        session, text, at = value["sessionId"], value["message"], value.get("timestamp")
    else:
        raise expected(where, "a prompt with its session and its time", sorted(value))
    text = whole_text(read_text(text, f"{where}, text"))
    if value.get("type", "user") != "user" or _COMMAND.match(text):
        return None
    if source == "claude-code":
        text = _with_pastes(text, value.get("pastedContents"), where, skips)
    return _Prompt(source, read_text(session, f"{where}, session"), text, read_time(at, f"{where}, time"))


def _with_pastes(text: str, pasted: object, where: str, skips: SkipLog) -> str:
    """Return a prompt with the texts that were pasted in their places. A picture, and a text that is not there, is counted."""
    texts: dict[str, str] = {}
    for number, paste in pasted.items() if isinstance(pasted, Mapping) else ():
        content = paste.get("content") if isinstance(paste, Mapping) else paste
        kind = paste.get("type", "text") if isinstance(paste, Mapping) else "text"
        if isinstance(content, str) and kind == "text":
            texts[str(number)] = whole_text(content)
        else:
            skips.note_part(f"pasted contents of the kind {str(kind)[:40]!r}", where)
    return _PASTE.sub(lambda match: texts.get(match[1], match[0]), text)

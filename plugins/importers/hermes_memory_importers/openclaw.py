"""Importer for sessions of OpenClaw and of pi: `~/.openclaw/agents/<agent>/sessions/<session>.jsonl`, a record a line.

Records form a tree (`id`, `parentId`); the branch that ends with the last record is read. OpenClaw puts facts about the channel
before the words of the person, and sends prompts of its own in the person's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    OF_PROGRAM,
    ImportedMessage,
    ImportedSession,
    Part,
    SkipLog,
    StreamedSession,
    lines_at,
    read_content,
    read_lines,
    read_message,
    read_object,
    read_parts,
    read_text,
    read_time,
    split_turns,
)

_RECORD = "records of the program's own"
_SUMMARY = "summaries of a compaction"
_REPEATED = "records that the file repeats"
_LEFT = "messages of a branch that was left"

# Records that only say something about the session, and hold no text.
_FACTS = frozenset({"session", "model_change", "thinking_level_change", "label", "session_info", "leaf"})
_OF_OPENCLAW = re.compile(rb"openclaw|clawdbot|moltbot", re.IGNORECASE)
_INSPECTED_BYTES = 1 << 16

# A line such as "Sender (untrusted metadata):", in newer versions with a mark of OpenClaw's, and its block of JSON or its
# paragraph. What stands behind the last one is context of the channel.
_MARK = "\N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}openclaw:ctx\N{MATHEMATICAL RIGHT WHITE SQUARE BRACKET}"
_CONTEXT = re.compile(
    rf"^(?P<label>[^\n]{{1,120}}?)(?:\((?:untrusted[^)\n]*)\):|{_MARK})[ \t]*\n"
    r"(?:[ \t]*```json\n(?P<json>.*?)\n[ \t]*```[ \t]*(?:\n|\Z)|(?:[^\n]+(?:\n|\Z))*)",
    re.DOTALL | re.MULTILINE,
)
_CHANNEL = f"\nContext: {_MARK}"
# A message has a few frames. A text that only looks like thousands of them must not take minutes.
_MAX_FRAMES = 40
_DELIVERY = re.compile(
    r"\s*(?:\[(?:message_id|media attached|[A-Z][a-z]{2} \d{4}-\d\d-\d\d)[^\]\n]*\]"
    r"|\[(?:WhatsApp|Telegram|Discord|Slack|Signal|iMessage|BlueBubbles|Matrix|Teams|WebChat|LINE|Feishu)\b[^\]\n]*\]"
    r"|System(?: \(untrusted\))?: \[[^\n]*(?:\n|\Z)|requester_profile is the verified[^\n]*(?:\n|\Z)"
    r"|<active_memory_plugin>.*?</active_memory_plugin>)",
    re.DOTALL,
)
_MACHINE = re.compile(
    r"\s*(?:A new session was started via /new or /reset|Read HEARTBEAT\.md|HEARTBEAT|\[cron:|Pre-compaction memory flush"
    r"|\[Subagent (?:Context|Task)\]|\[Inter-session message\]|<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
    r"|An async command you ran earlier has completed|Continue where you left off|OpenClaw runtime context)"
)
_DIRECTIVE = re.compile(r"\[\[\s*(?:reply_to(?:_current|:[^\]]*)|audio_as_voice)\s*\]\]\s*")
_SILENT = frozenset({"NO_REPLY", "HEARTBEAT_OK", "ANNOUNCE_SKIP", "REPLY_SKIP"})
_MIRRORS = frozenset({"delivery-mirror", "gateway-injected"})
"""Models that OpenClaw names for its copy of an answer that it delivered."""


@dataclass(slots=True)
class _Index:
    """The result of the first reading of a file.

    Attributes:
        parents: Parent of each record by its name, in the order of the file.
        places: Number and offset of the lines with messages, by the name of the record.
    """

    session_id: str = ""
    title: str = ""
    started_at: float | None = None
    parents: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)


def score_openclaw(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 for the first record of a session, else 0."""
    if not isinstance(value, dict) or value.get("type") != "session":
        return 0
    return 4 if isinstance(value.get("id"), str) and {"timestamp", "cwd"} & value.keys() else 0


def read_openclaw(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the session of a file. A turn has the id of its first record."""
    index = _index(path, skips)
    branch = _branch(index)
    for name, (number, _) in index.places.items():
        if name not in branch:
            skips.note(_LEFT, f"line {number}")
    places = {index.places[name]: name for name in branch if name in index.places}
    messages = _messages(path, places, skips)
    first = next(messages, None)
    if first is not None:
        source = _program(path)
        head = ImportedSession(
            f"{source}-{index.session_id or path.name.partition('.')[0]}",
            source,
            index.title,
            index.started_at or first.timestamp,
            copyable=True,
        )
        yield head, split_turns(chain([first], messages), named=True)


def _program(path: Path) -> str:
    """Return the name of the program: both write the same files, and OpenClaw names itself in them."""
    with path.open("rb") as file:
        return "openclaw" if _OF_OPENCLAW.search(file.read(_INSPECTED_BYTES)) else "pi"


def _index(path: Path, skips: SkipLog) -> _Index:
    index, last = _Index(), ""
    for line in read_lines(path, skips):
        where = f"line {line.number}"
        try:
            value = read_object(line.value, where)
            kind = value.get("type")
            if kind == "session":
                index.session_id = index.session_id or read_text(value.get("id"), f"{where}, id")
                index.started_at = index.started_at or read_time(value.get("timestamp"), where)
                skips.open(0)
                continue
            name = read_text(value.get("id"), f"{where}, id") or where
            parent = value.get("parentId", last)
            index.parents[name], last = parent if isinstance(parent, str) else "", name
            if kind == "message" and name in index.places:
                skips.note(_REPEATED, where)
            elif kind == "message":
                index.places[name] = (line.number, line.offset)
            elif kind in ("compaction", "branch_summary"):
                skips.note(_SUMMARY, where)
            elif isinstance(kind, str) and kind in _FACTS:
                index.title = read_text(value.get("name"), where) if kind == "session_info" else index.title
                skips.open(0)
            else:
                skips.note(_RECORD, where)
        except ImportFailed as exc:
            skips.fault(exc)
    return index


def _branch(index: _Index) -> list[str]:
    """Return the records from the first to the last one of the file."""
    branch: dict[str, None] = {}
    name = next(reversed(index.parents), "")
    while name and name not in branch:
        branch[name] = None
        name = index.parents.get(name, "")
    return list(reversed(branch))


def _messages(path: Path, places: Mapping[tuple[int, int], str], skips: SkipLog) -> Iterator[ImportedMessage]:
    names = {number: name for (number, _), name in places.items()}
    for line in lines_at(path, places):
        try:
            found = _line_messages(line.value, names[line.number], f"line {line.number}", skips)
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            yield from found


def _line_messages(value: Mapping[str, Any], name: str, where: str, skips: SkipLog) -> list[ImportedMessage]:
    message = read_object(value.get("message"), f"{where}, message")
    at = read_time(value.get("timestamp") or message.get("timestamp"), f"{where}, timestamp")
    role, content = message.get("role"), message.get("content")
    read = partial(read_message, where=where, skips=skips, ref=name, at=at)
    if role == "user":
        # This reading counts nothing; the next one does.
        texts = (part.text for part in read_parts(content, where, SkipLog()))
        speaker = next(filter(None, map(_speaker, texts)), "")
        parts = read_parts(content, f"{where}, content", skips)
        return read("user", parts, words=_typed, speaker=speaker)
    if role == "assistant" and message.get("model") in _MIRRORS:
        skips.note(_REPEATED, where)
        return []
    if role == "assistant":
        return read("assistant", _answer(content, where, skips))
    if role == "toolResult":
        call_id, tool = (read_text(message.get(key), f"{where}, {key}") for key in ("toolCallId", "toolName"))
        result = read_content(content, f"{where}, content", skips)
        return read("tool", [Part("result", result, None, tool, call_id)])
    if role == "bashExecution":
        command, output = (read_text(message.get(key), f"{where}, {key}") for key in ("command", "output"))
        return read("user", [Part("text", f"!{command}"), Part("result", output, None, "bash")])
    skips.note(_SUMMARY if str(role).endswith("Summary") else _RECORD, where)
    return []


def _answer(content: object, where: str, skips: SkipLog) -> Iterator[Part]:
    """Yield the parts of an answer without what only steers its delivery."""
    for part in read_parts(content, f"{where}, content", skips):
        text = _DIRECTIVE.sub("", part.text) if part.kind == "text" else part.text
        if part.kind == "text" and text.strip() in _SILENT:
            skips.note_part(OF_PROGRAM, where)
        else:
            yield Part(part.kind, text, part.call, part.name, part.call_id)


def _typed(text: str) -> str:
    """Return the words of the person in a text, without the facts about the channel before them."""
    text = f"\n{text}".partition(_CHANNEL)[0].lstrip()
    for _ in range(_MAX_FRAMES):
        frame = None if _MACHINE.match(text) else _CONTEXT.match(text) or _DELIVERY.match(text)
        if frame is None:
            break
        text = text[frame.end() :].lstrip()
    return "" if _MACHINE.match(text) else text.strip()


def _speaker(text: str) -> str:
    """Return the name of the sender that OpenClaw names before the words, "" if it names none."""
    for frame in islice(_CONTEXT.finditer(text), _MAX_FRAMES):
        try:
            facts = json.loads(frame["json"] or "{}")
        except ValueError:
            continue
        names = [facts.get(name) for name in ("name", "username")] if isinstance(facts, Mapping) else []
        if frame["label"].strip().startswith("Sender"):
            return next((name.strip() for name in names if isinstance(name, str)), "")
    return ""

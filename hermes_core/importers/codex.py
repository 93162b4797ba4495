"""Importer for sessions of Codex: `~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl`, a record a line.

A record is `{"timestamp", "type", "payload"}`; messages have the type `response_item`. Files of early versions hold the
items bare. An event after rewound turns says how many turns the person rewound.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.importers.stream import (
    JsonLine,
    json_digest,
    lines_at,
    read_content,
    read_lines,
    read_object,
    read_text,
    read_time,
    tool_call,
)
from hermes_core.importers.values import (
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    split_turns,
)

SOURCE = "codex"

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")

# Text that the program itself sends to the model in the name of the person.
_INJECTED = re.compile(
    r"\s*(<(environment_context|user_instructions|permissions|collaboration_mode|turn_aborted|skill|user_shell_command"
    r"|subagent_notification|INSTRUCTIONS)|# AGENTS\.md instructions for )",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _SessionIndex:
    """The result of the first reading: facts about the session and the places of its items."""

    id: str = ""
    title: str = ""
    started_at: float | None = None
    subagent: bool = False
    places: list[tuple[int, int]] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    """The number of items before each message of the person."""


def is_codex(value: Mapping[str, Any]) -> bool:
    """Return True if a line looks like a record of Codex."""
    return ("payload" in value and "type" in value) or {"id", "timestamp", "instructions"} <= value.keys()


def read_codex(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the session of a file, nothing if it is a subagent's or empty."""
    index = _SessionIndex()
    for line in read_lines(path, skips):
        try:
            _index_line(index, line, skips)
        except ImportFailed as exc:
            skips.fault(exc)
    if index.subagent:
        skips.note("sessions of a subagent", "line 1")
        return
    messages = _messages(path, index.places, skips)
    first = next(messages, None)
    if first is None:
        return
    session_id = index.id or json_digest([first.role, first.content])
    started = index.started_at if index.started_at is not None else first.timestamp
    yield (
        ImportedSession(f"{SOURCE}-{session_id}", SOURCE, index.title, started),
        split_turns(chain([first], messages), named=True),
    )


def _index_line(index: _SessionIndex, line: JsonLine, skips: SkipLog) -> None:
    where = f"line {line.number}"
    value = read_object(line.value, where)
    kind = value.get("type")
    if kind == "session_meta" or {"id", "timestamp", "instructions"} <= value.keys():
        # A forked session also holds the beginning of its parent; the first record is its own.
        meta = read_object(value.get("payload", value), f"{where}, payload")
        if not index.id:
            index.id = read_text(meta.get("id"), f"{where}, id")
            index.started_at = read_time(meta.get("timestamp"), f"{where}, timestamp")
            source = meta.get("source")
            index.subagent = isinstance(source, Mapping) and "subagent" in source
    elif kind == "event_msg":
        _index_event(index, read_object(value.get("payload"), f"{where}, payload"), where, skips)
    elif (item := _item(value)) is None:
        skips.note("records of the program's own", where)
    elif item.get("type") in ("message", *_CALLS, *_RESULTS):
        if _is_from_person(item):
            index.turns.append(len(index.places))
        index.places.append((line.number, line.offset))
    else:
        skips.note(f"items of the kind {str(item.get('type'))[:40]!r}", where)


def _index_event(index: _SessionIndex, event: Mapping[str, Any], where: str, skips: SkipLog) -> None:
    """Apply the events that rename or rewind the conversation. All others repeat what the items say."""
    if event.get("type") == "thread_name_updated":
        index.title = read_text(event.get("thread_name"), f"{where}, thread_name")
    if event.get("type") != "thread_rolled_back":
        return
    count = event.get("num_turns")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1 or not index.turns:
        return
    start = index.turns[-min(count, len(index.turns))]
    for number, _ in index.places[start:]:
        skips.note("messages that were undone", f"line {number}")
    del index.places[start:]
    del index.turns[-min(count, len(index.turns)) :]


def _item(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the item that a record holds or is, None if it has none."""
    if "payload" not in value:
        return value if "record_type" not in value else None
    payload = value["payload"]
    return payload if value.get("type") == "response_item" and isinstance(payload, Mapping) else None


def _is_from_person(item: Mapping[str, Any]) -> bool:
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    try:
        return bool(_typed(item, "").strip())
    except ImportFailed:
        return False


def _typed(item: Mapping[str, Any], where: str) -> str:
    """Return the text that the person typed, without the text that the program injected."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = (read_content([part] if part is not None else None, f"{where}, content") for part in parts)
    return "\n".join(text for text in texts if text.strip() and not _INJECTED.match(text))


def _messages(path: Path, places: list[tuple[int, int]], skips: SkipLog) -> Iterator[ImportedMessage]:
    tool_names: dict[str, str] = {}
    for line in lines_at(path, places):
        try:
            message = _message(line, tool_names)
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            if message is None:
                skips.note("instructions and other text of the program's own", f"line {line.number}")
            else:
                yield message


def _message(line: JsonLine, tool_names: dict[str, str]) -> ImportedMessage | None:
    where, item = f"line {line.number}", _item(line.value) or {}
    at = read_time(line.value.get("timestamp"), f"{where}, timestamp")
    # Items have no ids. A file only grows, so the line number identifies the item.
    ref = str(line.number)
    kind, role = item.get("type"), item.get("role")
    if kind == "message":
        text = _typed(item, where) if role == "user" else read_content(item.get("content"), where)
        if role not in ("user", "assistant") or not text.strip():
            return None
        return ImportedMessage(str(role), text, ref=ref, timestamp=at)
    call_id = read_text(item.get("call_id") or item.get("id"), f"{where}, call_id")
    if kind in _RESULTS:
        output = _output(item.get("output"), f"{where}, output")
        name = tool_names.pop(call_id, "")
        return (
            ImportedMessage("tool", output, ref=ref, timestamp=at, tool_name=name) if output.strip() else None
        )
    name, arguments = _call(item, where)
    tool_names[call_id] = name
    call = tool_call(call_id, name, arguments)
    return ImportedMessage("assistant", "", ref=ref, timestamp=at, tool_calls=(call,))


def _call(item: Mapping[str, Any], where: str) -> tuple[str, str]:
    kind = item.get("type")
    if kind in ("local_shell_call", "web_search_call"):
        action = json.dumps(item.get("action") or {}, ensure_ascii=False)
        return ("shell" if kind == "local_shell_call" else "web_search"), action
    given = item.get("arguments") if kind == "function_call" else item.get("input")
    return read_text(item.get("name"), f"{where}, name"), read_text(given, f"{where}, arguments")


def _output(output: object, where: str) -> str:
    """Return the text of a result, which may be wrapped in an object, or in the JSON of one, as `output` or `content`."""
    if isinstance(output, str) and output.startswith('{"output"'):
        try:
            output = json.loads(output)
        except (ValueError, RecursionError):
            return read_content(output, where)
    if isinstance(output, Mapping):
        output = output.get("output", output.get("content"))
    return read_content(output, where)

"""Sessions of Codex: `~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl`, one record a line.

A record is `{"timestamp", "type", "payload"}`; what was said are those of type `response_item`. Files of early versions
hold the items bare. Turns that the person took back are followed by an event that says how many they were.
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
from hermes_core.importers.fields import digest, read_content, read_object, read_text, read_time
from hermes_core.importers.skipped import Skipped
from hermes_core.importers.stream import Line, lines_at, read_lines
from hermes_core.importers.turns import each_turn
from hermes_core.importers.values import ImportedMessage, ImportedSession, StreamedSession

SOURCE = "codex"

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")

# What the program says to the model in the person's name.
_PUT_IN = re.compile(
    r"\s*(<(environment_context|user_instructions|permissions|collaboration_mode|turn_aborted|skill|user_shell_command"
    r"|subagent_notification|INSTRUCTIONS)|# AGENTS\.md instructions for )",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Told:
    """What the first reading finds: whose session it is, and where its items are."""

    id: str = ""
    title: str = ""
    started_at: float | None = None
    subagent: bool = False
    places: list[tuple[int, int]] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    """For each message of the person, how many items stand before it."""


def is_codex(value: Mapping[str, Any]) -> bool:
    """Whether a line looks like one of these files."""
    return ("payload" in value and "type" in value) or {"id", "timestamp", "instructions"} <= value.keys()


def read_codex(path: Path, skipped: Skipped) -> Iterator[StreamedSession]:
    """The session of a file; none when it is a subagent's, or nobody spoke."""
    told = _Told()
    for line in read_lines(path, skipped):
        try:
            _note(told, line, skipped)
        except ImportFailed as exc:
            skipped.fault(exc)
    if told.subagent:
        skipped.note("sessions of a subagent", "line 1")
        return
    messages = _messages(path, told.places, skipped)
    first = next(messages, None)
    if first is None:
        return
    session_id = told.id or digest([first.role, first.content])
    started = told.started_at if told.started_at is not None else first.timestamp
    yield (
        ImportedSession(f"{SOURCE}-{session_id}", SOURCE, told.title, started),
        each_turn(chain([first], messages), named=True),
    )


def _note(told: _Told, line: Line, skipped: Skipped) -> None:
    where = f"line {line.number}"
    value = read_object(line.value, where)
    kind = value.get("type")
    if kind == "session_meta" or {"id", "timestamp", "instructions"} <= value.keys():
        # A session that was forked off another holds that one's beginning as well; the first is its own.
        meta = read_object(value.get("payload", value), f"{where}, payload")
        if not told.id:
            told.id = read_text(meta.get("id"), f"{where}, id")
            told.started_at = read_time(meta.get("timestamp"), f"{where}, timestamp")
            source = meta.get("source")
            told.subagent = isinstance(source, Mapping) and "subagent" in source
    elif kind == "event_msg":
        _follow(told, read_object(value.get("payload"), f"{where}, payload"), where, skipped)
    elif (item := _item(value)) is None:
        skipped.note("records of the program's own", where)
    elif item.get("type") in ("message", *_CALLS, *_RESULTS):
        if _is_persons(item):
            told.turns.append(len(told.places))
        told.places.append((line.number, line.offset))
    else:
        skipped.note(f"items of the kind {str(item.get('type'))[:40]!r}", where)


def _follow(told: _Told, event: Mapping[str, Any], where: str, skipped: Skipped) -> None:
    """Events that change what the conversation is; all others tell again what the items say."""
    if event.get("type") == "thread_name_updated":
        told.title = read_text(event.get("thread_name"), f"{where}, thread_name")
    if event.get("type") != "thread_rolled_back":
        return
    count = event.get("num_turns")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1 or not told.turns:
        return
    left = told.turns[-min(count, len(told.turns))]
    for number, _ in told.places[left:]:
        skipped.note("messages that were taken back", f"line {number}")
    del told.places[left:]
    del told.turns[-min(count, len(told.turns)) :]


def _item(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The item that a record holds, or is; None when it has none."""
    if "payload" not in value:
        return value if "record_type" not in value else None
    payload = value["payload"]
    return payload if value.get("type") == "response_item" and isinstance(payload, Mapping) else None


def _is_persons(item: Mapping[str, Any]) -> bool:
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    try:
        return bool(_typed(item, "").strip())
    except ImportFailed:
        return False


def _typed(item: Mapping[str, Any], where: str) -> str:
    """What the person typed, without what the program put in."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = (read_content([part] if part is not None else None, f"{where}, content") for part in parts)
    return "\n".join(text for text in texts if text.strip() and not _PUT_IN.match(text))


def _messages(path: Path, places: list[tuple[int, int]], skipped: Skipped) -> Iterator[ImportedMessage]:
    called: dict[str, str] = {}
    for line in lines_at(path, places):
        try:
            message = _said(line, called)
        except ImportFailed as exc:
            skipped.fault(exc)
        else:
            if message is None:
                skipped.note("instructions and other text of the program's own", f"line {line.number}")
            else:
                yield message


def _said(line: Line, called: dict[str, str]) -> ImportedMessage | None:
    where, item = f"line {line.number}", _item(line.value) or {}
    at = read_time(line.value.get("timestamp"), f"{where}, timestamp")
    # Items have no ids of their own; a file only grows, so the line says which it is.
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
        name = called.pop(call_id, "")
        return (
            ImportedMessage("tool", output, ref=ref, timestamp=at, tool_name=name) if output.strip() else None
        )
    name, arguments = _call(item, where)
    called[call_id] = name
    function: dict[str, object] = {"name": name, "arguments": arguments}
    call: dict[str, object] = {"id": call_id, "type": "function", "function": function}
    return ImportedMessage("assistant", "", ref=ref, timestamp=at, tool_calls=(call,))


def _call(item: Mapping[str, Any], where: str) -> tuple[str, str]:
    kind = item.get("type")
    if kind in ("local_shell_call", "web_search_call"):
        action = json.dumps(item.get("action") or {}, ensure_ascii=False)
        return ("shell" if kind == "local_shell_call" else "web_search"), action
    given = item.get("arguments") if kind == "function_call" else item.get("input")
    return read_text(item.get("name"), f"{where}, name"), read_text(given, f"{where}, arguments")


def _output(output: object, where: str) -> str:
    """The text of a result: plain, or wrapped in an object (also as text) as `output` or `content`."""
    if isinstance(output, str) and output.startswith('{"output"'):
        try:
            output = json.loads(output)
        except (ValueError, RecursionError):
            return read_content(output, where)
    if isinstance(output, Mapping):
        output = output.get("output", output.get("content"))
    return read_content(output, where)

"""Importer for sessions of Codex: `~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl`, a record a line.

A record is `{"timestamp", "type", "payload"}`; messages have the type `response_item`. Files of early versions hold the
items bare. Events repeat the messages of the items. A message that only an event holds is imported from there. An event after rewound
turns says how many turns the person rewound.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import parse_json
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    JsonLine,
    Part,
    SkipLog,
    StreamedSession,
    in_time,
    json_digest,
    lines_at,
    read_content,
    read_fact,
    read_lines,
    read_message,
    read_moment,
    read_object,
    read_parts,
    read_text,
    read_time,
    split_turns,
    tool_call,
)

SOURCE = "codex"

_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")

# Text that the program itself sends to the model in the name of the person.
_INJECTED = re.compile(
    r"\s*(<(environment_context|user_instructions|permissions|collaboration_mode|turn_aborted|skill|user_shell_command"
    r"|user_action|subagent_notification|INSTRUCTIONS|recommended_plugins|model_switch|personality_spec|multi_agent_mode"
    r"|hook_prompt|codex_internal_context|realtime_conversation"
    r"|image\b|/image>)|<[a-z]+([-_][a-z]+)*[-_](context|instructions)\b[^>]*>.*</[^<>]*>\s*\Z"
    r"|# AGENTS\.md( instructions for |\s*\n|\s*\Z)"
    r"|Another language model started to solve this problem and produced a summary)",
    re.IGNORECASE | re.DOTALL,
)

# A line that the person typed for the shell, with its output.
_SHELL = re.compile(r"\s*<user_shell_command>\s*<command>(.*?)</command>", re.IGNORECASE | re.DOTALL)

# A text that is one element. Where events tell what the person typed, any other such text is the program's.
_ELEMENT = re.compile(r"\s*<([a-z][\w-]*)\b[^>]*>.*</\1>\s*\Z", re.IGNORECASE | re.DOTALL)

# An editor and the desktop app put what they know before the request of the person.
_ENVELOPE = re.compile(r"\s*# (Context from my IDE setup|Files mentioned by the user|In app browser):")
_REQUEST = "## My request for Codex:"
_PROGRAM = "instructions and other text of the program's own"
_RECORD = "records of the program's own"
REPEATED = "records that the file repeats"

_RECORDS = frozenset(
    {
        "session_meta",
        "response_item",
        "event_msg",
        "turn_context",
        "compacted",
        "world_state",
        "inter_agent_communication",
    }
)


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an item or an event with a message.

    Attributes:
        prompt: True for a message of the person.
        event: The kind of the event, "" for an item.
        digest: Digest of the message of an event.
    """

    number: int
    offset: int
    prompt: bool
    event: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class _Rollback:
    """An event that the person rewound the last `count` turns."""

    count: int


@dataclass(slots=True)
class _SessionIndex:
    """The result of the first reading: facts about the session and the places of its messages.

    Attributes:
        origin: Id of the session of which this one is a fork.
        program: The name of the internal work that the session does, "" for a conversation of a person.
        said: Digests of the messages of all items.
        times: Time of each step in epoch seconds, NaN if it has none.
        typed: Digests of the messages that events name as the person's.
        records: Digests of the records that have a time.
        is_joined: True if the file holds its session twice.
    """

    id: str = ""
    title: str = ""
    started_at: float | None = None
    origin: str = ""
    program: str = ""
    steps: list[_Place | _Rollback] = field(default_factory=list)
    times: array[float] = field(default_factory=lambda: array("d"))
    said: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)
    records: set[int] = field(default_factory=set)
    is_joined: bool = False


def is_codex(value: Mapping[str, Any]) -> bool:
    """Return True if a line looks like a record of Codex."""
    kind = value.get("type")
    known = isinstance(kind, str) and kind in _RECORDS and isinstance(value.get("payload"), Mapping)
    return known or {"id", "timestamp", "instructions"} <= value.keys()


def score_codex(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 3 if a value looks like a record of Codex, else 0."""
    return 3 if isinstance(value, dict) and is_codex(value) else 0


def read_codex(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the session of a file, nothing if it is internal to the program or empty."""
    index = _SessionIndex()
    for line in read_lines(path, skips):
        try:
            _index_line(index, line, skips)
        except ImportFailed as exc:
            skips.fault(exc)
        if len(index.steps) > len(index.times):
            index.times.append(read_moment(line.value.get("timestamp")))
    if index.program:
        # The session is counted instead of its messages.
        skips.open(1, sum(isinstance(step, _Place) for step in index.steps))
        skips.note(index.program, "line 1")
        return
    messages = _messages(path, _places(index, skips), index.typed, skips)
    first = next(messages, None)
    if first is None:
        return
    session_id = index.id or json_digest([first.role, first.content])
    started = index.started_at if index.started_at is not None else first.timestamp
    head = ImportedSession(
        f"{SOURCE}-{session_id}",
        SOURCE,
        index.title,
        started,
        copyable=True,
        copied_from=f"{SOURCE}-{index.origin}" if index.origin else "",
        in_forms=True,
    )
    yield head, split_turns(chain([first], messages), named=True)


def _index_line(index: _SessionIndex, line: JsonLine, skips: SkipLog) -> None:
    where = f"line {line.number}"
    value = read_object(line.value, where)
    kind = value.get("type")
    if value.get("timestamp"):
        digest = hash(json_digest(value))
        is_known = digest in index.records
        index.records.add(digest)
        # A file that was joined of two copies begins again with its first record.
        index.is_joined |= is_known and kind == "session_meta"
        if is_known and index.is_joined:
            skips.note(REPEATED, where)
            return
    if kind == "session_meta" or {"id", "timestamp", "instructions"} <= value.keys():
        # A forked session also holds the beginning of its parent; the first record is its own.
        meta = read_object(value.get("payload", value), f"{where}, payload")
        skips.open(0)
        if not index.id:
            index.id = read_fact(read_text, meta.get("id"), f"{where}, id", skips) or ""
            index.started_at = read_fact(read_time, meta.get("timestamp"), f"{where}, timestamp", skips)
            index.origin = read_fact(read_text, meta.get("forked_from_id"), where, skips) or ""
            index.program = _program(meta.get("source"), meta.get("thread_source"))
        elif not index.origin:
            other = read_fact(read_text, meta.get("id"), f"{where}, id", skips) or ""
            index.origin = other if other != index.id else ""
    elif kind == "event_msg":
        _index_event(index, line, read_object(value.get("payload"), f"{where}, payload"), where, skips)
    elif (item := _item(value)) is None:
        skips.note(_RECORD, where)
    elif item.get("type") in ("message", *_CALLS, *_RESULTS):
        words = _words(item)
        index.said |= {_digest(item.get("role"), text) for text in ("\n".join(words), *words)}
        index.steps.append(_Place(line.number, line.offset, item.get("role") == "user" and bool(words)))
    else:
        skips.note(f"items of the kind {str(item.get('type'))[:40]!r}", where)


def _program(source: object, thread_source: object) -> str:
    """Return the kind of a session that no person began, "" for a conversation."""
    kinds = source if isinstance(source, Mapping) else (thread_source,)
    if "subagent" in kinds:
        return "sessions of a subagent"
    return "internal sessions of Codex" if "internal" in kinds else ""


def _index_event(
    index: _SessionIndex, line: JsonLine, event: Mapping[str, Any], where: str, skips: SkipLog
) -> None:
    """Apply the events that rename or rewind the conversation, and note the place of those that hold a message."""
    kind, count = event.get("type"), event.get("num_turns")
    if kind == "thread_name_updated":
        index.title = read_fact(read_text, event.get("thread_name"), where, skips) or index.title
        skips.open(0)
    elif (
        kind == "thread_rolled_back" and isinstance(count, int) and not isinstance(count, bool) and count >= 1
    ):
        index.steps.append(_Rollback(count))
        skips.open(0)
    elif (item := _event_item(event)) is not None and (words := _words(item)):
        role, text = item["role"], "\n".join(words)
        digest = _digest(role, text)
        if role == "user":
            index.typed.add(digest)
        index.steps.append(_Place(line.number, line.offset, role == "user", str(kind), digest))
    else:
        skips.note(_RECORD, where)


def _places(index: _SessionIndex, skips: SkipLog) -> list[tuple[int, int]]:
    """Return the places of the messages: without those that repeat others, and those that were rewound."""
    places: list[_Place] = []
    prompts: list[int] = []
    kinds: dict[str, str] = {}
    for step in in_time(index.steps, index.times):
        if isinstance(step, _Rollback):
            start = prompts[-min(step.count, len(prompts))] if prompts else len(places)
            for place in places[start:]:
                skips.note("messages that were undone", f"line {place.number}")
            del places[start:]
            del prompts[max(0, len(prompts) - step.count) :]
        elif not step.event or (
            # Two kinds of events may hold the same message.
            step.digest not in index.said and kinds.setdefault(step.digest, step.event) == step.event
        ):
            if step.prompt:
                prompts.append(len(places))
            places.append(step)
        else:
            skips.note(REPEATED, f"line {step.number}")
    return [(place.number, place.offset) for place in places]


def _event_item(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the message of an event in the form of an item, None if the event has none."""
    kind = event.get("type")
    if kind == "user_message" and event.get("kind", "plain") not in ("plain", None):
        return None  # a text that the program sent in the name of the person
    if kind in ("user_message", "agent_message"):
        return {
            "type": "message",
            "role": "user" if kind == "user_message" else "assistant",
            "content": event.get("message"),
        }
    item = event.get("item")
    if (
        kind == "item_completed"
        and isinstance(item, Mapping)
        and item.get("type") in ("UserMessage", "AgentMessage")
    ):
        role = "user" if item["type"] == "UserMessage" else "assistant"
        return {"type": "message", "role": role, "content": item.get("content")}
    return None


def _digest(role: object, text: str) -> str:
    return json_digest([str(role), *text.split()])


def _item(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the item that a record holds or is, None if it has none."""
    if "payload" not in value:
        return value if "record_type" not in value else None
    payload = value["payload"]
    return payload if value.get("type") == "response_item" and isinstance(payload, Mapping) else None


def _words(item: Mapping[str, Any]) -> list[str]:
    """Return the parts of a message that a person or the model wrote; nothing for a message that can't be read."""
    if item.get("type") != "message" or item.get("role") not in ("user", "assistant"):
        return []
    try:
        texts = [part.text for part in read_parts(item.get("content"), "", SkipLog()) if part.kind == "text"]
    except ImportFailed:
        return []
    return [text for text in map(_typed, texts) if text.strip()] if item["role"] == "user" else texts


def _typed(text: str, typed: Collection[str] = ()) -> str:
    """Return the words of the person in a text that the program may have extended; "" if there are none.

    Args:
        times: Time of each step in epoch seconds, NaN if it has none.
        typed: Digests of the messages that events name as the person's; empty if there are no such events.
    """
    if _ENVELOPE.match(text):
        return text.partition(_REQUEST)[2].strip()
    if shell := _SHELL.match(text):
        return f"!{shell[1].strip()}"
    if _INJECTED.match(text) or (typed and _ELEMENT.match(text) and _digest("user", text) not in typed):
        return ""
    return text


def _messages(
    path: Path, places: list[tuple[int, int]], typed: Collection[str], skips: SkipLog
) -> Iterator[ImportedMessage]:
    for line in lines_at(path, places):
        try:
            found = _line_messages(line, typed, skips)
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            yield from found


def _line_messages(line: JsonLine, typed: Collection[str], skips: SkipLog) -> list[ImportedMessage]:
    where, value = f"line {line.number}", line.value
    item = _item(value) or _event_item(read_object(value.get("payload"), f"{where}, payload")) or {}
    kind, role = item.get("type"), item.get("role")
    call_id = read_text(item.get("call_id") or item.get("id"), f"{where}, call_id")
    parts: Iterable[Part]
    if kind == "message":
        if role not in ("user", "assistant"):
            skips.note(_PROGRAM, where)
            return []
        parts = read_parts(item.get("content"), f"{where}, content", skips)
    elif kind in _RESULTS:
        output = _output(item.get("output"), f"{where}, output", skips)
        parts = [Part("result", output, None, "", call_id)]
    else:
        parts = [Part("call", call=tool_call(call_id, *_call(item, where)))]
    return read_message(
        str(role) if kind == "message" else "assistant",
        parts,
        where,
        skips,
        # Items have no ids. A file only grows, so the line number identifies the item.
        ref=str(line.number),
        at=read_time(value.get("timestamp"), f"{where}, timestamp"),
        words=partial(_typed, typed=typed),
        reason=_PROGRAM,
    )


def _call(item: Mapping[str, Any], where: str) -> tuple[str, str]:
    kind = item.get("type")
    if kind in ("local_shell_call", "web_search_call"):
        action = json.dumps(item.get("action") or {}, ensure_ascii=False)
        return ("shell" if kind == "local_shell_call" else "web_search"), action
    given = item.get("arguments") if kind == "function_call" else item.get("input")
    return read_text(item.get("name"), f"{where}, name"), read_text(given, f"{where}, arguments")


def _output(output: object, where: str, skips: SkipLog) -> str:
    """Return the text of a result, which may be wrapped in an object, or in the JSON of one, as `output` or `content`."""
    if isinstance(output, str) and output.startswith('{"output"'):
        try:
            output = parse_json(output)
        except (ValueError, RecursionError):
            return read_content(output, where, skips)
    if isinstance(output, Mapping):
        output = output.get("output", output.get("content"))
    return read_content(output, where, skips)

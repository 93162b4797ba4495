"""Importer for sessions of Gemini CLI: `~/.gemini/tmp/<project>/chats/session-*.jsonl`, and `session-*.json` of older versions.

`/chat save` writes `checkpoint-*.json`, with the messages as the API has them.

A line is a message, which is written again when it changes; `$set` changes facts about the session, and `$rewindTo` takes a
message and those behind it back. After a compression, `$set` lists the messages that the model still sees; the others stay
parts of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    Part,
    SkipLog,
    StreamedSession,
    in_time,
    json_digest,
    read_content,
    read_fact,
    read_list,
    read_message,
    read_moment,
    read_object,
    read_parts,
    read_records,
    read_text,
    read_time,
    split_turns,
    tool_call,
)

SOURCE = "gemini-cli"

_RECORD = "records of the program's own"
_UNDONE = "messages that were undone"

# Texts that the program sends in the name of the person.
_INJECTED = ("<session_context>", "<state_snapshot>", "This is the Gemini CLI. We are setting up the context")
_OF_API = {"user": "user", "model": "gemini"}
_COMMAND = re.compile(r"\s*[/?][\w:-]*\s*\Z")
_REFERENCED = "\n--- Content from referenced files ---"


@dataclass(slots=True)
class _Session:
    """One session: its facts, and its messages by their ids, each with its place in the file."""

    facts: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)


def score_gemini_cli(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 if a value is a session of Gemini CLI, the first line of one, or a checkpoint or its first message, else 0."""
    if not isinstance(value, dict):
        return 0
    listed = value.get("history")
    begins = listed[0] if isinstance(listed, list) and listed else value
    texts = begins.get("parts") if isinstance(begins, dict) else None
    first = texts[0] if isinstance(texts, list) and texts else None
    is_saved = isinstance(first, dict) and (
        begins is not value or str(first.get("text")).lstrip().startswith(_INJECTED)
    )
    return 4 if is_saved or {"sessionId", "projectHash"} <= value.keys() else 0


def read_gemini_cli(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the session of a file. A turn has the id of its first message."""
    session = _Session()
    for number, value in enumerate(read_records(path, skips), 1):
        try:
            _take(session, read_object(value, f"record {number}"), f"record {number}", skips)
        except ImportFailed as exc:
            skips.fault(exc)
    session_id = read_text(session.facts.get("sessionId"), "sessionId")
    messages: list[ImportedMessage] = []
    moments = [read_moment(value.get("timestamp")) for _, value in session.messages.values()]
    for where, value in in_time(session.messages.values(), moments):
        if session.facts.get("kind") == "subagent":
            skips.note("messages of a subagent", where)
            continue
        try:
            messages += _messages_of(value, where, skips)
        except ImportFailed as exc:
            skips.fault(exc)
    if messages:
        begins = json_digest([(message.role, message.content) for message in messages[:2]])
        yield (
            ImportedSession(
                f"{SOURCE}-{session_id or begins}",
                SOURCE,
                (read_fact(read_text, session.facts.get("summary"), "summary", skips) or "").partition("\n")[
                    0
                ][:200],
                read_fact(read_time, session.facts.get("startTime"), "startTime", skips),
                minted=not session_id,
            ),
            tuple(split_turns(messages, named=True)),
        )


def _take(session: _Session, value: Mapping[str, Any], where: str, skips: SkipLog) -> None:
    """Apply a record to the session, and count the record as what it holds."""
    if "$rewindTo" in value:
        skips.open(0)
        names = list(session.messages)
        target = value["$rewindTo"]
        # A target that is not there takes all messages back.
        for name in names[names.index(target) if target in names else 0 :]:
            skips.note(_UNDONE, session.messages.pop(name)[0])
        return
    facts = value.get("$set", value)
    if "$set" not in value and ({"id", "type"} <= value.keys() or "parts" in value):
        _put(session, value, where, skips)
        return
    session.facts |= {
        name: fact for name, fact in read_object(facts, where).items() if name not in ("messages", "history")
    }
    listed = read_list(facts.get("messages") or facts.get("history") or [], f"{where}, messages")
    skips.open(len(listed))
    for index, message in enumerate(listed, 1):
        place = f"{where}, message {index}"
        try:
            _put(session, read_object(message, place), place, skips)
        except ImportFailed as exc:
            skips.fault(exc)


def _put(session: _Session, value: Mapping[str, Any], where: str, skips: SkipLog) -> None:
    name = read_text(value.get("id"), f"{where}, id") or where
    if name in session.messages:
        skips.open(0)  # a later state of the same message
    session.messages[name] = (where, value)


def _messages_of(value: Mapping[str, Any], where: str, skips: SkipLog) -> list[ImportedMessage]:
    # Lists of `$set` may have messages in the shape of the API.
    kind = value.get("type") or _OF_API.get(str(value.get("role")))
    content = value.get("content", value.get("parts"))
    ref = read_text(value.get("id"), f"{where}, id")
    at = read_time(value.get("timestamp"), f"{where}, timestamp")
    if kind == "user":
        shown = value.get("displayContent")
        if shown is not None and shown != content:
            skips.note_part("contents of files that the person named", where)
        parts = read_parts(content if shown is None else shown, f"{where}, content", skips)
        return read_message("user", parts, where, skips, ref=ref, at=at, words=_typed)
    if kind == "gemini":
        return read_message("assistant", _answer(value, where, skips), where, skips, ref=ref, at=at)
    skips.note(_RECORD, where)
    return []


def _answer(value: Mapping[str, Any], where: str, skips: SkipLog) -> Iterable[Part]:
    """Yield the text of the model, its calls, and the results of these."""
    yield from read_parts(value.get("content", value.get("parts")), f"{where}, content", skips)
    if thoughts := value.get("thoughts"):
        count = len(thoughts) if isinstance(thoughts, list) else 1
        skips.note_part("parts of the kind 'thoughts'", where, count)
    calls = [
        read_object(call, f"{where}, toolCalls")
        for call in read_list(value.get("toolCalls") or [], f"{where}, toolCalls")
    ]
    for call in calls:
        call_id, name = (read_text(call.get(key), f"{where}, {key}") for key in ("id", "name"))
        yield Part("call", call=tool_call(call_id, name, call.get("args")))
    for call in calls:
        if call.get("result") is not None:
            yield _result(call, where, skips)


def _result(call: Mapping[str, Any], where: str, skips: SkipLog) -> Part:
    call_id, name = (read_text(call.get(key), f"{where}, {key}") for key in ("id", "name"))
    texts = []
    given = call["result"]
    for part in given if isinstance(given, list) else [given]:
        answered = part.get("functionResponse") if isinstance(part, Mapping) else None
        response = answered.get("response") if isinstance(answered, Mapping) else None
        if isinstance(response, Mapping):
            fields = (response.get(field) for field in ("output", "error", "content"))
            texts.append(str(next((text for text in fields if isinstance(text, str)), response)))
        else:
            texts.append(read_content(part if isinstance(part, str) else [part], where, skips))
    return Part("result", "\n".join(filter(None, texts)), None, name, call_id)


def _typed(text: str) -> str:
    """Return the words of the person in a text."""
    if text.lstrip().startswith(_INJECTED) or _COMMAND.match(text):
        return ""
    return text.partition(_REFERENCED)[0]

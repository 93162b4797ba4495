"""Importer for agents of Letta: agent files (`*.af`), of both versions.

A file has one agent, or several with their `blocks`. The blocks of memory become records. A message of the person is JSON with
its `type`, and the agent speaks by calls of `send_message`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_core.importers import (
    NO_WORDS,
    OF_PROGRAM,
    ImportedMessage,
    ImportedRecord,
    ImportedSession,
    Part,
    SkipLog,
    StreamedItem,
    expected,
    json_digest,
    read_content,
    read_fact,
    read_list,
    read_message,
    read_object,
    read_parts,
    read_records,
    read_text,
    read_time,
    split_turns,
    tool_call,
    whole_text,
)
from hermes_core.safety.json_size import parse_json

SOURCE = "letta"

_SPEAK = "send_message"


def score_letta(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 for an agent file, else 0."""
    if not isinstance(value, dict):
        return 0
    several = isinstance(value.get("agents"), list) and isinstance(value.get("blocks"), list)
    one = isinstance(value.get("core_memory"), list) and isinstance(value.get("messages"), list)
    return 4 if several or one else 0


def read_letta(path: Path, skips: SkipLog) -> Iterator[StreamedItem]:
    """Yield the conversation of each agent, then the blocks of memory."""
    for value in read_records(path, skips):
        try:
            file = read_object(value, "the file")
            agents = read_list(file.get("agents"), "agents") if "agents" in file else [file]
            blocks = read_list(file.get("blocks", file.get("core_memory")) or [], "blocks")
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        skips.open(len(agents) + len(blocks))
        for number, raw in enumerate(agents, 1):
            yield from _agent(raw, f"agent {number}", skips)
        for number, raw in enumerate(blocks, 1):
            yield from _block(raw, f"block {number}", skips)


def _agent(raw: object, where: str, skips: SkipLog) -> Iterator[StreamedItem]:
    try:
        agent = read_object(raw, where)
        listed = read_list(agent.get("messages") or [], f"{where}, messages")
    except ImportFailed as exc:
        skips.fault(exc)
        return
    skips.open(len(listed))
    messages: list[ImportedMessage] = []
    for number, value in enumerate(listed, 1):
        place = f"{where}, message {number}"
        try:
            messages += _messages_of(read_object(value, place), place, skips)
        except ImportFailed as exc:
            skips.fault(exc)
    if messages:
        name = read_fact(read_text, agent.get("name"), f"{where}, name", skips) or ""
        own_id = read_fact(read_text, agent.get("id"), f"{where}, id", skips)
        # Ids within a file of the second version are its own: "agent-0".
        begins = json_digest([name, messages[0].role, messages[0].content, messages[0].timestamp])
        started = next((m.timestamp for m in messages if m.timestamp is not None), None)
        head = ImportedSession(f"{SOURCE}-{own_id or 'agent'}-{begins}", SOURCE, name, started, minted=True)
        yield head, tuple(split_turns(messages))


def _block(raw: object, where: str, skips: SkipLog) -> Iterator[ImportedRecord]:
    try:
        block = read_object(raw, where)
        label, text = (read_text(block.get(name), f"{where}, {name}") for name in ("label", "value"))
    except ImportFailed as exc:
        skips.fault(exc)
        return
    if text.strip():
        words = f"{label}: {whole_text(text).strip()}" if label else whole_text(text).strip()
        yield ImportedRecord(MemoryRecord(words, kind="block"), SOURCE, f"block {label}".strip())
    else:
        skips.note(NO_WORDS, where)


def _messages_of(value: Mapping[str, Any], where: str, skips: SkipLog) -> list[ImportedMessage]:
    role = value.get("role")
    at = read_time(value.get("created_at"), f"{where}, created_at")
    if role == "system":
        skips.note(NO_WORDS, where)
        return []
    if role not in ("user", "assistant", "tool"):
        raise expected(f"{where}, role", "user, assistant, tool or system", role)
    return read_message(str(role), _parts(value, str(role), where, skips), where, skips, at=at)


def _parts(value: Mapping[str, Any], role: str, where: str, skips: SkipLog) -> Iterator[Part]:
    content = value.get("content", value.get("text"))
    if role == "tool":
        call_id, name = (read_text(value.get(key), f"{where}, {key}") for key in ("tool_call_id", "name"))
        yield Part("result", read_content(content, f"{where}, content", skips), None, name, call_id)
        return
    for part in read_parts(content, f"{where}, content", skips):
        framed = _object(part.text) if part.kind == "text" and role == "user" else {}
        if framed.get("type") == "user_message" and isinstance(framed.get("message"), str):
            yield Part("text", whole_text(framed["message"]))
        elif "type" in framed:
            skips.note_part(OF_PROGRAM, where)  # a heartbeat, a login, an alert
        elif part.kind == "text" and role == "assistant" and value.get("tool_calls"):
            skips.note_part("parts of the kind 'thinking'", where)  # what the agent thinks before it acts
        else:
            yield part
    for raw in read_list(value.get("tool_calls") or [], f"{where}, tool_calls"):
        call = read_object(raw, f"{where}, tool_calls")
        function = read_object(call.get("function") or call, f"{where}, function")
        name, call_id = read_text(function.get("name"), where), read_text(call.get("id"), where)
        said = _object(function.get("arguments")).get("message") if name == _SPEAK else None
        if isinstance(said, str):
            yield Part("text", whole_text(said))
        else:
            yield Part("call", call=tool_call(call_id, name, function.get("arguments")))


def _object(text: object) -> Mapping[str, Any]:
    """Return the object that a text holds as JSON, {} for any other text."""
    if isinstance(text, Mapping):
        return text
    if isinstance(text, str) and text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(value := parse_json(text), dict):
                return value
    return {}

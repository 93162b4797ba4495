"""Importer for conversations of Cursor: the database `globalStorage/state.vscdb` of the editor.

A table of keys and values has `composerData:<id>` for each conversation, with its messages or their order, and in newer versions
`bubbleId:<id>:<message>` for each message.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import parse_json
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    Part,
    SkipLog,
    StreamedSession,
    expected,
    read_fact,
    read_list,
    read_message,
    read_object,
    read_text,
    read_time,
    split_turns,
    tool_call,
    whole_text,
)
from hermes_memory_importers.databases import SQLITE_MAGIC, has_columns, opened_database

SOURCE = "cursor"

_ROLES = {1: "user", 2: "assistant"}
_PREFIX = "composerData:"


def score_cursor(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 for a database of Cursor, else 0."""
    return 5 if head == SQLITE_MAGIC and has_columns(path, cursorDiskKV="key value") else 0


def read_cursor(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every conversation. A turn has the id of its first message."""
    with opened_database(path) as connection:
        sql = "SELECT key FROM cursorDiskKV WHERE key LIKE 'composerData:%' ORDER BY rowid"
        for (key,) in connection.execute(sql).fetchall():
            try:
                facts = read_object(_value(connection, key), str(key))
                yield from _conversation(connection, key.removeprefix(_PREFIX), facts, skips)
            except ImportFailed as exc:
                skips.open(1, 0)
                skips.fault(exc)


def _value(connection: sqlite3.Connection, key: str) -> Any:
    """Return the value of a key. Some versions write the JSON of a text that is JSON itself."""
    row = connection.execute("SELECT value FROM cursorDiskKV WHERE key = ?", (key,)).fetchone()
    value = row["value"] if row is not None else None
    for _ in range(2):
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str):
            try:
                value = parse_json(value)
            except (ValueError, RecursionError) as exc:
                raise expected(key, "JSON", value) from exc
    return value


def _conversation(
    connection: sqlite3.Connection, name: str, facts: Mapping[str, Any], skips: SkipLog
) -> Iterator[StreamedSession]:
    where = f"conversation {name}"
    bubbles = list(read_list(facts.get("conversation") or [], f"{where}, conversation"))
    for raw in read_list(facts.get("fullConversationHeadersOnly") or [], f"{where}, headers"):
        bubble = read_text(read_object(raw, f"{where}, headers").get("bubbleId"), f"{where}, bubbleId")
        try:
            bubbles.append(_value(connection, f"bubbleId:{name}:{bubble}"))
        except ImportFailed as exc:
            skips.open(1, 0)
            skips.fault(exc)
    skips.open(len(bubbles), 0)
    messages: list[ImportedMessage] = []
    for number, bubble in enumerate(bubbles, 1):
        place = f"{where}, message {number}"
        if facts.get("subagentInfo") or facts.get("isSubagent"):
            skips.note("messages of a subagent", place)
            continue
        try:
            messages += _messages_of(read_object(bubble, place), place, skips)
        except ImportFailed as exc:
            skips.fault(exc)
    if messages:
        title = read_fact(read_text, facts.get("name"), f"{where}, name", skips) or ""
        started = read_fact(read_time, facts.get("createdAt"), f"{where}, createdAt", skips)
        yield ImportedSession(f"{SOURCE}-{name}", SOURCE, title, started), split_turns(messages, named=True)


def _messages_of(bubble: Mapping[str, Any], where: str, skips: SkipLog) -> list[ImportedMessage]:
    role = _ROLES.get(bubble["type"]) if isinstance(bubble.get("type"), int) else None
    if role is None:
        raise expected(f"{where}, type", "1 or 2", bubble.get("type"))
    ref = read_text(bubble.get("bubbleId"), f"{where}, bubbleId")
    at = read_fact(read_time, bubble.get("createdAt"), f"{where}, createdAt", skips)
    return read_message(role, _parts(bubble, where, skips), where, skips, ref=ref, at=at)


def _parts(bubble: Mapping[str, Any], where: str, skips: SkipLog) -> Iterator[Part]:
    if text := whole_text(read_text(bubble.get("text"), f"{where}, text")).strip():
        yield Part("text", text)
    for field in ("images", "thinking", "allThinkingBlocks"):
        if beside := bubble.get(field):
            count = len(beside) if isinstance(beside, list) else 1
            skips.note_part(f"parts of the kind {field!r}", where, count)
    tool = bubble.get("toolFormerData")
    if isinstance(tool, Mapping) and tool.get("name"):
        name, call_id = (read_text(tool.get(key), f"{where}, {key}") for key in ("name", "toolCallId"))
        yield Part("call", call=tool_call(call_id, name, tool.get("rawArgs") or tool.get("params")))
        result = tool.get("result")
        if isinstance(result, str) and result.strip():
            yield Part("result", whole_text(result), None, name, call_id)

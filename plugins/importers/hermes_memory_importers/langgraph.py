"""Importer for LangGraph: the threads of its checkpoints and the items of its stores, of SQLite or a dump of PostgreSQL.

A checkpoint holds the state of a graph after a step. The messages of a thread are those of all checkpoints on the way to its last
one, since a graph may take earlier messages out of its state. No class that a checkpoint names is imported or called.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import parse_json
from hermes_memory_importers import (
    NO_WORDS,
    ImportedMessage,
    ImportedRecord,
    ImportedSession,
    SkipLog,
    StreamedItem,
    StreamedSession,
    read_chat_message,
    read_fact,
    read_time,
    split_turns,
    tool_call,
    whole_text,
)
from hermes_memory_importers.databases import has_columns, is_database, opened_database, table_columns

SOURCE = "langgraph"

_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "store")
_CHECKPOINTS = "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id checkpoint"
_STORE = "prefix key value created_at updated_at"

# Kinds of messages of LangChain, and the roles of chats. A message that was streamed has the name of its class.
_ROLES = {
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "developer": "system",
    "function": "tool",
    "human": "user",
    "HumanMessageChunk": "user",
    "system": "system",
    "SystemMessageChunk": "system",
    "tool": "tool",
    "ToolMessageChunk": "tool",
}

_WRITTEN = {
    "checkpoint_writes": "SELECT channel, type, blob FROM checkpoint_writes"
    " WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ? ORDER BY task_id, CAST(idx AS INTEGER)",
    "writes": "SELECT channel, type, value FROM writes"
    " WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ? ORDER BY task_id, idx",
}
"""The statements for what the step behind a checkpoint wrote, on PostgreSQL and on SQLite."""

_BRANCH = "messages of branches that were left"
_SUBGRAPH = "messages within a subgraph"
_STATE = "parts of the state beside its messages"

# Codes of MessagePack of objects, as (module, class, arguments, method), and of the whole value of a channel of deltas.
_LAST_OBJECT, _ARGUMENTS, _SNAPSHOT = 5, 2, 7

_UNREADABLE = (ValueError, TypeError, RecursionError)
"""Exceptions for a value that is encrypted, pickled or damaged."""

_NESTED = 20
"""Depth to which the value of an item in a store is read."""


def score_langgraph(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 for a database with checkpoints or a store of LangGraph, else 0."""
    known = is_database(head) and (
        has_columns(path, checkpoints=_CHECKPOINTS) or has_columns(path, store=_STORE)
    )
    return 5 if known else 0


def read_langgraph(path: Path, skips: SkipLog) -> Iterator[StreamedItem]:
    """Yield a session for each thread, and a record for each item of a store."""
    tables = table_columns(path)
    with opened_database(path, _TABLES) as connection:
        if "checkpoints" in tables:
            yield from _threads(connection, tables, skips)
        if "store" in tables:
            yield from _items(connection, skips)


# ------------------------------------------------------------------------------------------------------------ threads


@dataclass(slots=True)
class _Thread:
    """The messages of a thread, by their names, with the time of the checkpoint that has them first.

    Attributes:
        beside: Names of messages that only other branches or subgraphs have, with the reason.
        state: Names of the parts of the last state beside the messages.
    """

    messages: dict[str, tuple[Mapping[str, Any], float | None]] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)
    state: set[str] = field(default_factory=set)

    def add(self, messages: Iterable[Mapping[str, Any]], at: float | None) -> None:
        """Take the messages of a state. A message that is known gets the newer content."""
        for name, message in _named(messages, 0):
            self.messages[name] = message, self.messages.get(name, (None, at))[1]


def _threads(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], skips: SkipLog
) -> Iterator[StreamedSession]:
    threads = connection.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1").fetchall()
    for (thread_id,) in threads:
        thread = _thread(connection, tables, str(thread_id), skips)
        found: list[ImportedMessage] = []
        for name, (message, at) in thread.messages.items():
            skips.read += 1
            where = f"thread {thread_id}, message {name}"
            try:
                found += _messages_of(message, where, skips, name, at)
            except ImportFailed as exc:
                skips.fault(exc)
        for name, reason in thread.beside.items():
            if name not in thread.messages:
                skips.note_part(reason, f"thread {thread_id}, message {name}")
        for name in sorted(thread.state):
            skips.note_part(_STATE, f"thread {thread_id}, {name}")
        if found:
            head = ImportedSession(f"{SOURCE}-{thread_id}", SOURCE, "", found[0].timestamp)
            yield head, split_turns(found, named=True)


def _thread(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], thread_id: str, skips: SkipLog
) -> _Thread:
    """Return the messages of a thread: each state on the way to the last one is read, one after the other."""
    sql = (
        "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints"
        " WHERE thread_id = ? ORDER BY checkpoint_id"
    )
    rows = connection.execute(sql, (thread_id,)).fetchall()
    parents = {row["checkpoint_id"]: row["parent_checkpoint_id"] for row in rows if not row["checkpoint_ns"]}
    way: set[str] = set()
    step = max(parents, default=None)
    while step is not None and step in parents and step not in way:
        way.add(step)
        step = parents[step]
    thread = _Thread()
    written: list[Mapping[str, Any]] = []
    for namespace, step, _ in rows:
        where = f"thread {thread_id}, checkpoint {step}"
        try:
            at, state = _state(connection, tables, thread_id, namespace, step)
        except _UNREADABLE as exc:
            _log_fault(exc, where, skips)
            continue
        messages = [message for value in state.values() for message in _messages_in(value)]
        if not namespace and step in way:
            # A channel of deltas is whole in some checkpoints only; between them the writes of the steps have the messages.
            thread.add(messages, at)
            if not messages:
                known = len(thread.messages)
                for name, message in _named(written, known):
                    thread.messages[name] = message, thread.messages.get(name, (None, at))[1]
            try:
                written = _written(connection, tables, thread_id, step)
            except _UNREADABLE as exc:
                written = []
                _log_fault(exc, where, skips)
            thread.state = {name for name, value in state.items() if value and not _messages_in(value)}
        else:
            reason = _SUBGRAPH if namespace else _BRANCH
            for name, _ in _named(messages, 0):
                thread.beside.setdefault(name, reason)
    # A step that was stopped wrote messages that no state has.
    for name, _ in _named(written, len(thread.messages)):
        thread.beside.setdefault(name, "messages of a step that did not end")
    thread.state -= {name for name in thread.state if name.startswith(("__", "branch:"))}
    return thread


def _log_fault(exc: Exception, where: str, skips: SkipLog) -> None:
    skips.open(1, 0)
    skips.fault(exc if isinstance(exc, ImportFailed) else ImportFailed(f"{where}: {exc}", "it stays there"))


def _state(
    connection: sqlite3.Connection,
    tables: Mapping[str, set[str]],
    thread_id: str,
    namespace: str,
    step: str,
) -> tuple[float | None, dict[str, Any]]:
    """Return the time of a checkpoint, and the values of its state by their names."""
    sql = "SELECT * FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
    row = connection.execute(sql, (thread_id, namespace, step)).fetchone()
    is_shared = "checkpoint_blobs" in tables
    checkpoint = _value("json" if is_shared else row["type"], row["checkpoint"])
    if not isinstance(checkpoint, Mapping):
        raise ImportFailed(f"thread {thread_id}, checkpoint {step}: it is no checkpoint", "it stays there")
    state = dict(checkpoint.get("channel_values") or {})
    if is_shared:
        sql = (
            "SELECT type, blob FROM checkpoint_blobs"
            " WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ? AND version = ?"
        )
        for name, version in (checkpoint.get("channel_versions") or {}).items():
            blob = connection.execute(sql, (thread_id, namespace, name, str(version))).fetchone()
            if blob is not None and blob["type"] != "empty":
                state[name] = _value(blob["type"], blob["blob"])
    return read_time(checkpoint.get("ts"), f"thread {thread_id}, ts"), state


def _written(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], thread_id: str, step: str
) -> list[Mapping[str, Any]]:
    """Return the messages that the step behind a checkpoint wrote."""
    table = next((name for name in _WRITTEN if name in tables), None)
    if table is None:
        return []
    found: list[Mapping[str, Any]] = []
    for channel, kind, value in connection.execute(_WRITTEN[table], (thread_id, step)):
        if not str(channel).startswith(("__", "branch:")):
            written = _value(kind, value)
            found += _messages_in(written if isinstance(written, list) else [written])
    return found


def _value(kind: str | None, value: Any) -> Any:
    """Return a value of a checkpoint. Raises `ValueError` for one that is encrypted, pickled or damaged."""
    if value is None or kind in ("null", "empty"):
        return None
    if isinstance(value, str) and value.startswith("\\x"):
        value = bytes.fromhex(value[2:])
    if kind == "json":
        return parse_json(value.decode() if isinstance(value, bytes) else value)
    if kind != "msgpack":
        raise ValueError(f"its form {str(kind)[:40]!r} can't be read here")
    # Only this format needs it.
    import ormsgpack

    return ormsgpack.unpackb(value, ext_hook=_plain, option=ormsgpack.OPT_NON_STR_KEYS)


def _plain(code: int, data: bytes) -> Any:
    """Return the data of an object, whose class is not imported: its fields, or the arguments that made it."""
    import ormsgpack

    value = ormsgpack.unpackb(data, ext_hook=_plain, option=ormsgpack.OPT_NON_STR_KEYS)
    is_object = code <= _LAST_OBJECT and isinstance(value, list | tuple) and len(value) > _ARGUMENTS
    return value[_ARGUMENTS] if is_object else value if code == _SNAPSHOT else None


def _messages_in(value: object) -> list[Mapping[str, Any]]:
    """Return the messages of a list, [] for any other value."""
    if not isinstance(value, list | tuple):
        return []
    return [message for one in value if (message := _message(one)) is not None]


def _message(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a message, None for any other value."""
    if not isinstance(value, Mapping):
        return None
    if value.get("lc") and isinstance(value.get("kwargs"), Mapping):
        path = value.get("id") or [""]
        name = str(path[-1]) if isinstance(path, list) else ""
        value = {"type": name.removesuffix("Message").lower(), **value["kwargs"]}
    kind = value.get("type", value.get("role"))
    known = kind in _ROLES or value.get("role") in ("user", "assistant")
    return value if "content" in value and (known or kind == "chat") else None


def _named(messages: Iterable[Mapping[str, Any]], start: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each message with its id, or with its place if it has none."""
    for place, message in enumerate(messages, start):
        own_id = message.get("id")
        yield (own_id if isinstance(own_id, str) and own_id else f"#{place}"), message


def _messages_of(
    raw: Mapping[str, Any], where: str, skips: SkipLog, name: str, at: float | None
) -> list[ImportedMessage]:
    role = raw.get("role") or _ROLES.get(str(raw.get("type")), raw.get("type"))
    calls = raw.get("tool_calls") if isinstance(raw.get("tool_calls"), list) else []
    content = raw.get("content")
    if calls and isinstance(content, list):
        # The model's own form of the same calls.
        content = [
            part for part in content if not (isinstance(part, dict) and "tool" in str(part.get("type")))
        ]
    for beside in ("invalid_tool_calls", "artifact"):
        if held := raw.get(beside):
            count = len(held) if isinstance(held, list) else 1
            skips.note_part(f"parts of the kind {beside!r}", where, count)
    more = raw.get("additional_kwargs")
    if isinstance(more, Mapping) and more.get("reasoning_content"):
        skips.note_part("parts of the kind 'reasoning_content'", where)
    chat = {
        "role": role,
        "content": content,
        "name": raw.get("name"),
        "tool_call_id": raw.get("tool_call_id"),
        "tool_calls": [_call(call) for call in calls or ()],
    }
    return read_chat_message(chat, where, skips, ref=name, at=at)


def _call(call: object) -> object:
    """Return a call of LangChain in the form of chat APIs, and any other value as it is."""
    if not isinstance(call, Mapping) or "args" not in call:
        return call
    return tool_call(str(call.get("id") or ""), str(call.get("name") or ""), call["args"])


# ------------------------------------------------------------------------------------------------------------- stores


def _items(connection: sqlite3.Connection, skips: SkipLog) -> Iterator[ImportedRecord]:
    for row in connection.execute("SELECT * FROM store ORDER BY created_at, prefix, key"):
        where = f"item {row['prefix']}/{row['key']}"
        skips.read += 1
        try:
            value = parse_json(row["value"])
        except (ValueError, TypeError, RecursionError):
            skips.fault(ImportFailed(f"{where}: it is no JSON", "it stays there"))
            continue
        text, kind = _item(value)
        if not text:
            skips.note(NO_WORDS, where)
            continue
        created = read_fact(read_time, row["created_at"], f"{where}, created_at", skips) or 0.0
        updated = read_fact(read_time, row["updated_at"], f"{where}, updated_at", skips) or 0.0
        record = MemoryRecord(text, created_at=created, updated_at=updated, kind=kind or "item")
        yield ImportedRecord(record, SOURCE, str(row["prefix"]).replace(".", "/"))


def _item(value: object) -> tuple[str, str]:
    """Return the words of an item, and its kind. LangMem writes `{"kind": ..., "content": {...}}`."""
    kind = ""
    if (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("content"), dict)
    ):
        kind, value = value["kind"], value["content"]
    words = list(_leaves(value, "", 0))
    if len(words) == 1:
        return words[0][1], kind
    return "; ".join(f"{name}: {text}" if name else text for name, text in words), kind


def _leaves(value: object, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers of a value, each with the names that lead to it."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        if text := whole_text(str(value)).strip():
            yield name, text
    elif isinstance(value, bool):
        yield name, "yes" if value else "no"
    elif isinstance(value, list) and depth < _NESTED:
        for one in value:
            yield from _leaves(one, name, depth + 1)
    elif isinstance(value, dict) and depth < _NESTED:
        for key, one in value.items():
            yield from _leaves(one, f"{name} {key}".strip().replace("_", " "), depth + 1)

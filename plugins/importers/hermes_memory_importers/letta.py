"""Importer for agents of Letta: agent files (`*.af`) of both versions, and the database of its server.

A file has one agent, or several with their `blocks`; the server has tables of the same, in SQLite or PostgreSQL. The blocks of
memory and the passages of the archive become records. A message of the person is JSON with its `type`, and the agent speaks by
calls of `send_message`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import parse_json
from hermes_memory_importers import (
    NO_WORDS,
    OF_PROGRAM,
    ImportedMessage,
    ImportedRecord,
    ImportedSession,
    Part,
    SkipLog,
    StreamedItem,
    expected,
    first_bytes,
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
from hermes_memory_importers.conversations import yield_record
from hermes_memory_importers.databases import has_columns, is_database, opened_database, table_columns

SOURCE = "letta"

_SPEAK = "send_message"

# What one agent sends another one as a message of its user.
_OF_AGENT = "[Incoming message from agent with ID"

_MESSAGES = "id role text tool_calls tool_call_id agent_id created_at"
_PASSAGES = ("archival_passages", "agent_passages", "passages")
_OF_FILES = "source_passages"


def score_letta(path: Path, head: bytes, value: Any) -> int:
    """Return 5 for a database of the server, 4 for an agent file, else 0."""
    if is_database(head):
        return 5 if has_columns(path, agents="id name", messages=_MESSAGES) else 0
    if not isinstance(value, dict):
        return 0
    several = isinstance(value.get("agents"), list) and isinstance(value.get("blocks"), list)
    one = isinstance(value.get("core_memory"), list) and isinstance(value.get("messages"), list)
    return 4 if several or one else 0


def read_letta(path: Path, skips: SkipLog) -> Iterator[StreamedItem]:
    """Yield the conversations of each agent, then the blocks of memory and the passages of archives."""
    if is_database(first_bytes(path)):
        yield from _server(path, skips)
        return
    for value in read_records(path, skips):
        try:
            file = read_object(value, "the file")
            agents = read_list(file.get("agents"), "agents") if "agents" in file else [file]
            blocks = read_list(file.get("blocks", file.get("core_memory")) or [], "blocks")
            passages = read_list(file.get("passages") or [], "passages")
            files = read_list(file.get("files") or [], "files")
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        skips.open(len(agents) + len(blocks) + len(passages))
        skips.note_part("attached files", "files", len(files))
        for number, raw in enumerate(agents, 1):
            yield from _agent(raw, f"agent {number}", skips)
        for number, raw in enumerate(blocks, 1):
            yield from _block(raw, f"block {number}", skips)
        for number, raw in enumerate(passages, 1):
            yield from yield_record(partial(_passage, skips=skips), raw, f"passage {number}", skips)


def _passage(raw: object, where: str, skips: SkipLog) -> ImportedRecord:
    passage = read_object(raw, where)
    text = whole_text(read_text(passage.get("text"), f"{where}, text")).strip()
    at = read_fact(read_time, passage.get("created_at"), f"{where}, created_at", skips) or 0.0
    return ImportedRecord(MemoryRecord(text, created_at=at, kind="passage"), SOURCE, "archive")


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
    if role in ("system", "summary"):
        skips.note(NO_WORDS if role == "system" else "summaries of a compaction", where)
        return []
    if role == "approval":
        # The agent asks for a call, or gets the results of calls that it was allowed.
        role = "assistant" if value.get("tool_calls") else "tool"
    if role not in ("user", "assistant", "tool"):
        raise expected(f"{where}, role", "user, assistant, tool or system", role)
    ref = read_text(value.get("ref"), f"{where}, id")
    return read_message(str(role), _parts(value, str(role), where, skips), where, skips, ref=ref, at=at)


def _parts(value: Mapping[str, Any], role: str, where: str, skips: SkipLog) -> Iterator[Part]:
    content = value.get("text") if value.get("content") is None else value["content"]
    if role == "tool":
        yield from _results(value, content, where, skips)
        return
    for part in read_parts(content, f"{where}, content", skips):
        framed = _object(part.text) if part.kind == "text" and role == "user" else {}
        if framed.get("type") == "user_message" and isinstance(framed.get("message"), str):
            yield Part("text", whole_text(framed["message"]))
        elif "type" in framed or (role == "user" and part.text.startswith(_OF_AGENT)):
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


def _results(value: Mapping[str, Any], content: object, where: str, skips: SkipLog) -> Iterator[Part]:
    """Yield the results of calls. `tool_returns` repeats the content, and has the results if there is none."""
    call_id, name = (read_text(value.get(key), f"{where}, {key}") for key in ("tool_call_id", "name"))
    if content:
        yield Part("result", read_content(content, f"{where}, content", skips), None, name, call_id)
        return
    returned = [*(value.get("tool_returns") or []), *(value.get("approvals") or [])]
    for raw in returned:
        one = read_object(raw, f"{where}, tool_returns")
        found = one.get("func_response", one.get("tool_return"))
        if found is None:
            skips.note_part("answers to a request for approval", where)
        else:
            call_id = read_text(one.get("tool_call_id"), f"{where}, tool_call_id")
            yield Part("result", read_content(found, f"{where}, tool_returns", skips), None, name, call_id)


def _object(text: object) -> Mapping[str, Any]:
    """Return the object that a text holds as JSON, {} for any other text."""
    if isinstance(text, Mapping):
        return text
    if isinstance(text, str) and text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(value := parse_json(text), dict):
                return value
    return {}


# ------------------------------------------------------------------------------------------------------------- server


def _server(path: Path, skips: SkipLog) -> Iterator[StreamedItem]:
    tables = table_columns(path)
    with opened_database(
        path, ("agents", "messages", "conversations", "block", *_PASSAGES, _OF_FILES)
    ) as connection:
        for agent in connection.execute("SELECT * FROM agents ORDER BY created_at, id").fetchall():
            yield from _conversations(connection, tables["messages"], agent, skips)
        if "block" in tables:
            for row in connection.execute("SELECT * FROM block ORDER BY created_at, id"):
                yield from _kept(row, "block", skips)
        for table in _PASSAGES:
            if table in tables:
                for row in connection.execute(_PASSAGES_SQL[table]):
                    yield from _kept(row, "passage", skips)
        if _OF_FILES in tables:
            (count,) = connection.execute("SELECT count(*) FROM source_passages").fetchone()
            skips.note_part("passages of files", "source_passages", count)


_PASSAGES_SQL = {
    "agent_passages": "SELECT * FROM agent_passages ORDER BY created_at, id",
    "archival_passages": "SELECT * FROM archival_passages ORDER BY created_at, id",
    "passages": "SELECT * FROM passages ORDER BY created_at, id",
}


def _conversations(
    connection: sqlite3.Connection, columns: set[str], agent: sqlite3.Row, skips: SkipLog
) -> Iterator[StreamedItem]:
    """Yield the default conversation of an agent, and the others that newer servers keep."""
    names: list[str | None] = [None]
    if "conversation_id" in columns:
        sql = "SELECT DISTINCT conversation_id FROM messages WHERE agent_id = ? ORDER BY 1"
        names = [row[0] for row in connection.execute(sql, (agent["id"],))]
    for name in names:
        messages: list[ImportedMessage] = []
        for row in _rows(connection, columns, agent["id"], name):
            where = f"message {row['id']}"
            skips.read += 1
            if _is_true(row, "is_deleted") or _is_true(row, "is_err"):
                skips.note("messages that were deleted, or of a step that failed", where)
                continue
            try:
                messages += _messages_of(_as_file(row, where), where, skips)
            except ImportFailed as exc:
                skips.fault(exc)
        if messages:
            own_id = f"{SOURCE}-{agent['id']}" + (f"-{name}" if name else "")
            title = read_fact(read_text, agent["name"], f"agent {agent['id']}, name", skips) or ""
            started = next((m.timestamp for m in messages if m.timestamp is not None), None)
            yield ImportedSession(own_id, SOURCE, title, started), split_turns(messages, named=True)


def _rows(
    connection: sqlite3.Connection, columns: set[str], agent: str, conversation: str | None
) -> Iterator[sqlite3.Row]:
    sql = "SELECT * FROM messages WHERE agent_id = ?"
    if "conversation_id" in columns:
        sql += " AND conversation_id IS ?"
    # The values of a dump are texts.
    sql += " ORDER BY " + (
        "CAST(sequence_id AS INTEGER), id" if "sequence_id" in columns else "created_at, id"
    )
    return connection.execute(sql, (agent, conversation) if "conversation_id" in columns else (agent,))


def _as_file(row: sqlite3.Row, where: str) -> dict[str, Any]:
    """Return a row of messages as an agent file has it. Raises `ImportFailed`."""
    value = {name: row[name] for name in row.keys()}  # noqa: SIM118  (a row holds values)
    for name in ("content", "tool_calls", "tool_returns", "approvals"):
        if isinstance(raw := value.get(name), str):
            try:
                value[name] = parse_json(raw)
            except (ValueError, RecursionError) as exc:
                raise expected(f"{where}, {name}", "JSON", raw) from exc
    return {**value, "ref": row["id"]}


def _is_true(row: sqlite3.Row, name: str) -> bool:
    return name in row.keys() and row[name] in (1, "t", "true")  # noqa: SIM118  (a row holds values)


def _kept(row: sqlite3.Row, kind: str, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield the record of a block or of a passage."""
    where = f"{kind} {row['id']}"
    skips.read += 1
    if _is_true(row, "is_deleted") or _is_true(row, "is_template"):
        skips.note("memories that were deleted, and templates", where)
    elif kind == "block":
        yield from _block({"label": row["label"], "value": row["value"]}, where, skips)
    elif text := whole_text(str(row["text"] or "")).strip():
        at = read_fact(read_time, row["created_at"], f"{where}, created_at", skips) or 0.0
        yield ImportedRecord(MemoryRecord(text, created_at=at, kind=kind), SOURCE, "archive")
    else:
        skips.note(NO_WORDS, where)

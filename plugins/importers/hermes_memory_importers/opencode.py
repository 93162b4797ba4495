"""Importer for sessions of opencode: its database, the JSON of `opencode export`, and the files of older versions.

The database is `~/.local/share/opencode/opencode.db`. Older versions have a file for each session, message and part below
`storage`; the file of a session is read with those of its messages.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import parse_json
from hermes_memory_importers import (
    NO_WORDS,
    OF_PROGRAM,
    ImportedMessage,
    ImportedSession,
    Part,
    SkipLog,
    StreamedSession,
    expected,
    first_bytes,
    read_content,
    read_fact,
    read_list,
    read_message,
    read_object,
    read_records,
    read_text,
    read_time,
    split_turns,
    tool_call,
    whole_text,
)
from hermes_memory_importers.databases import SQLITE_MAGIC, has_columns, opened_database

SOURCE = "opencode"

# Parts that mark a step or a state of the files, and hold no text.
_MARKS = frozenset({"step-start", "step-finish", "snapshot", "patch"})
_OF_STORAGE = {"msg_": "role", "prt_": "messageID"}


@dataclass(frozen=True, slots=True)
class _Session:
    """A session with its messages: each is its facts and its parts."""

    facts: Mapping[str, Any]
    messages: Iterable[tuple[Mapping[str, Any], Iterable[Any]]]


def score_opencode(path: Path, head: bytes, value: Any) -> int:
    """Return 5 for a database of opencode, 4 for an export and for a file of its storage, else 0."""
    if head == SQLITE_MAGIC:
        tables = {"session": "id title parent_id", "message": "id session_id data", "part": "message_id data"}
        return 5 if has_columns(path, **tables) else 0
    if not isinstance(value, dict):
        return 0
    info = value.get("info")
    is_export = isinstance(info, dict) and _is_session(info) and isinstance(value.get("messages"), list)
    return 4 if is_export or _is_session(value) or _is_of_storage(value) else 0


def _is_session(value: Mapping[str, Any]) -> bool:
    return str(value.get("id")).startswith("ses_") and {"title", "time"} <= value.keys()


def _is_of_storage(value: Mapping[str, Any]) -> bool:
    """Return True for a message or a part in a file of its own."""
    field = _OF_STORAGE.get(str(value.get("id"))[:4])
    return field is not None and field in value and "sessionID" in value


def read_opencode(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the sessions, the oldest first. A turn has the id of its first message."""
    if first_bytes(path) == SQLITE_MAGIC:
        with opened_database(path) as connection:
            for row in connection.execute("SELECT * FROM session ORDER BY time_created, id").fetchall():
                yield from _stream(_Session(dict(row), _rows(connection, row["id"], skips)), skips)
        return
    for number, value in enumerate(read_records(path, skips), 1):
        try:
            session = _of_json(path, read_object(value, f"session {number}"), f"session {number}", skips)
        except ImportFailed as exc:
            skips.fault(exc)
        else:
            skips.open(0)
            yield from _stream(session, skips)


def _of_json(path: Path, value: Mapping[str, Any], where: str, skips: SkipLog) -> _Session:
    """Return the session of an export or of a file of the storage; one without messages for another file of it."""
    if _is_of_storage(value):
        return _Session(value, ())  # the file of the session is read with this one
    if "info" not in value:
        if not _is_session(value):
            raise expected(where, "a session of opencode", sorted(value))
        storage = next(iter(path.absolute().parents[2:]), path)
        return _Session(value, _files(storage, str(value["id"]), skips))
    listed = [read_object(one, f"{where}, messages") for one in read_list(value.get("messages"), where)]
    messages = [
        (read_object(one.get("info"), f"{where}, info"), read_list(one.get("parts") or [], f"{where}, parts"))
        for one in listed
    ]
    skips.open(len(messages), 0)
    return _Session(read_object(value["info"], f"{where}, info"), messages)


def _rows(
    connection: sqlite3.Connection, session_id: str, skips: SkipLog
) -> Iterator[tuple[Mapping[str, Any], Iterable[Any]]]:
    sql = "SELECT id, data, time_created FROM message WHERE session_id = ? ORDER BY time_created, id"
    for row in connection.execute(sql, (session_id,)).fetchall():
        skips.open(1, 0)
        parts = connection.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (row["id"],))
        facts = {"time": {"created": row["time_created"]}, **_parsed(row["data"], skips), "id": row["id"]}
        yield facts, [_parsed(part["data"], skips) for part in parts]


def _files(
    storage: Path, session_id: str, skips: SkipLog
) -> Iterator[tuple[Mapping[str, Any], Iterable[Any]]]:
    for file in sorted((storage / "message" / session_id).glob("msg_*.json")):
        facts = _parsed(file.read_text(encoding="utf-8", errors="replace"), skips)
        parts = sorted((storage / "part" / file.stem).glob("prt_*.json"))
        skips.open(1, 0)
        yield facts, [_parsed(part.read_text(encoding="utf-8", errors="replace"), skips) for part in parts]


def _parsed(text: str, skips: SkipLog) -> dict[str, Any]:
    """Return an object of JSON, {} with a fault for anything else."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value := parse_json(text), dict):
            return value
    skips.fault(ImportFailed("a message or a part that is no JSON object", "it stays in the old file"))
    skips.open(1, 0)
    return {}


def _stream(session: _Session, skips: SkipLog) -> Iterator[StreamedSession]:
    facts = session.facts
    parent = facts.get("parentID") or facts.get("parent_id")
    time = facts.get("time")
    created = time.get("created") if isinstance(time, Mapping) else facts.get("time_created")
    messages: list[ImportedMessage] = []
    undone = _undone_from(facts.get("revert"))
    place = f"session {facts.get('id')}"
    for info, parts in session.messages:
        name = str(info.get("id", ""))
        where = f"{place}, message {name}"
        if parent:
            skips.note("messages of a subagent", where)
        elif undone and name >= undone:
            # Ids are in the order of time.
            skips.note("messages that were undone", where)
        elif info.get("summary") is True:
            skips.note("summaries of a compaction", where)
        else:
            try:
                messages += _messages_of(info, parts, where, skips)
            except ImportFailed as exc:
                skips.fault(exc)
    if messages:
        head = ImportedSession(
            f"{SOURCE}-{facts.get('id')}",
            SOURCE,
            read_fact(read_text, facts.get("title"), f"{place}, title", skips) or "",
            read_fact(read_time, created, f"{place}, time", skips),
        )
        yield head, split_turns(messages, named=True)


def _undone_from(revert: object) -> str:
    """Return the id of the message from which on the person undid the session, "" for none."""
    if isinstance(revert, str):
        with contextlib.suppress(ValueError, RecursionError):
            revert = parse_json(revert)
    return str(revert.get("messageID") or "") if isinstance(revert, Mapping) else ""


def _messages_of(
    info: Mapping[str, Any], parts: Iterable[Any], where: str, skips: SkipLog
) -> list[ImportedMessage]:
    role, time = info.get("role"), info.get("time")
    if role not in ("user", "assistant"):
        skips.note(NO_WORDS, where)
        return []
    read = (part for raw in parts for part in _parts(read_object(raw, where), str(role), where, skips))
    created = time.get("created") if isinstance(time, Mapping) else None
    return read_message(
        str(role), read, where, skips, ref=str(info.get("id", "")), at=read_time(created, f"{where}, time")
    )


def _parts(raw: Mapping[str, Any], role: str, where: str, skips: SkipLog) -> Iterator[Part]:
    kind = raw.get("type")
    if kind == "text":
        text = whole_text(read_text(raw.get("text"), f"{where}, text"))
        if role == "user" and (raw.get("synthetic") or raw.get("ignored")):
            skips.note_part(OF_PROGRAM, where)
        elif text.strip():
            yield Part("text", text)
    elif kind == "tool":
        name, call_id = (read_text(raw.get(key), f"{where}, {key}") for key in ("tool", "callID"))
        state = read_object(raw.get("state") or {}, f"{where}, state")
        yield Part("call", call=tool_call(call_id, name, state.get("input")))
        output = state.get("output", state.get("error"))
        if output:
            yield Part("result", read_content(output, where, skips), None, name, call_id)
        attached = state.get("attachments")
        skips.note_part("attached files", where, len(attached) if isinstance(attached, list) else 0)
    elif not isinstance(kind, str) or kind not in _MARKS:
        skips.note_part(f"parts of the kind {str(kind)[:40]!r}", where)

"""Importer for sessions of Crush: the database `.crush/crush.db` in the folder of a project."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
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

SOURCE = "crush"


def score_crush(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 for a database of Crush, else 0."""
    is_crush = head == SQLITE_MAGIC and has_columns(
        path, sessions="id parent_session_id title created_at", messages="id session_id role parts created_at"
    )
    return 5 if is_crush else 0


def read_crush(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every session, the oldest first. A turn has the id of its first message."""
    with opened_database(path) as connection:
        for row in connection.execute("SELECT * FROM sessions ORDER BY created_at, id").fetchall():
            messages = list(_messages(connection, row, skips))
            if messages:
                head = ImportedSession(
                    f"{SOURCE}-{row['id']}",
                    SOURCE,
                    read_fact(read_text, row["title"], f"session {row['id']}, title", skips) or "",
                    read_fact(read_time, row["created_at"], f"session {row['id']}, created_at", skips),
                )
                yield head, split_turns(messages, named=True)


def _messages(
    connection: sqlite3.Connection, session: sqlite3.Row, skips: SkipLog
) -> Iterator[ImportedMessage]:
    sql = "SELECT * FROM messages WHERE session_id = ? ORDER BY created_at, rowid"
    for row in connection.execute(sql, (session["id"],)):
        where = f"session {session['id']}, message {row['id']}"
        skips.read += 1
        if session["parent_session_id"]:
            skips.note("messages of a subagent", where)
        elif "is_summary_message" in row.keys() and row["is_summary_message"]:  # noqa: SIM118  (a row holds values)
            skips.note("summaries of a compaction", where)
        else:
            try:
                yield from _messages_of(row, where, skips)
            except (ImportFailed, ValueError) as exc:
                skips.fault(
                    exc if isinstance(exc, ImportFailed) else ImportFailed(f"{where}: {exc}", "it stays")
                )


def _messages_of(row: sqlite3.Row, where: str, skips: SkipLog) -> list[ImportedMessage]:
    role = row["role"]
    if role not in ("user", "assistant", "tool"):
        skips.note(NO_WORDS, where)
        return []
    raw = read_list(parse_json(row["parts"]), f"{where}, parts")
    parts = (part for one in raw for part in _parts(read_object(one, f"{where}, parts"), role, where, skips))
    return read_message(role, parts, where, skips, ref=str(row["id"]), at=read_time(row["created_at"], where))


def _parts(raw: Mapping[str, Any], role: str, where: str, skips: SkipLog) -> Iterator[Part]:
    kind, data = raw.get("type"), read_object(raw.get("data") or {}, f"{where}, data")

    def text_of(name: str) -> str:
        return whole_text(read_text(data.get(name), f"{where}, {name}"))

    if kind == "text" and data.get("hidden") and role == "user":
        skips.note_part(OF_PROGRAM, where)
    elif kind == "text":
        if text_of("text").strip():
            yield Part("text", text_of("text"))
    elif kind == "tool_call":
        yield Part("call", call=tool_call(text_of("id"), text_of("name"), text_of("input")))
    elif kind == "tool_result":
        yield Part("result", text_of("content"), None, text_of("name"), text_of("tool_call_id"))
    elif kind == "shell_command":
        yield Part("text", f"!{text_of('command')}")
        yield Part("result", text_of("output"), None, "shell")
    elif kind != "finish":
        skips.note_part(f"parts of the kind {str(kind)[:40]!r}", where)

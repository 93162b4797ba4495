"""Importer for databases of conversations: sessions of the OpenAI Agents SDK (SQLite), and `logs.db` of llm."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.importers import (
    NO_WORDS,
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    read_chat_message,
    read_fact,
    read_object,
    read_text,
    read_time,
    split_turns,
    whole_text,
)
from hermes_core.safety.json_size import parse_json
from hermes_memory_importers.databases import SQLITE_MAGIC, has_columns, opened_database

_AGENTS = {"agent_sessions": "session_id created_at", "agent_messages": "session_id message_data created_at"}
_LLM = {"conversations": "id name model", "responses": "id prompt response conversation_id datetime_utc"}


def score_chat_databases(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 for a database of the OpenAI Agents SDK or of llm, else 0."""
    known = head == SQLITE_MAGIC and (has_columns(path, **_AGENTS) or has_columns(path, **_LLM))
    return 5 if known else 0


def read_chat_databases(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every session, the oldest first."""
    read = _agent_sessions if has_columns(path, **_AGENTS) else _llm_conversations
    with opened_database(path) as connection:
        yield from read(connection, skips)


def _agent_sessions(connection: sqlite3.Connection, skips: SkipLog) -> Iterator[StreamedSession]:
    sessions = connection.execute("SELECT * FROM agent_sessions ORDER BY created_at, session_id").fetchall()
    for session in sessions:
        messages: list[ImportedMessage] = []
        sql = "SELECT * FROM agent_messages WHERE session_id = ? ORDER BY rowid"
        for row in connection.execute(sql, (session["session_id"],)):
            where = f"session {session['session_id']}, message {row['id']}"
            skips.read += 1
            try:
                item = read_object(parse_json(row["message_data"]), where)
                at = read_time(row["created_at"], f"{where}, created_at")
                messages += read_chat_message(item, where, skips, ref=str(row["id"]), at=at)
            except ImportFailed as exc:
                skips.fault(exc)
            except (ValueError, RecursionError):
                skips.fault(ImportFailed(f"{where}: it is no JSON", "it stays in the old file"))
        if messages:
            started = read_fact(read_time, session["created_at"], f"session {session['session_id']}", skips)
            head = ImportedSession(f"openai-agents-{session['session_id']}", "openai-agents", "", started)
            yield head, split_turns(messages, named=True)


def _llm_conversations(connection: sqlite3.Connection, skips: SkipLog) -> Iterator[StreamedSession]:
    names = {row["id"]: row["name"] for row in connection.execute("SELECT id, name FROM conversations")}
    sql = "SELECT DISTINCT coalesce(conversation_id, id) FROM responses ORDER BY datetime_utc, id"
    for (name,) in connection.execute(sql).fetchall():
        sql = "SELECT * FROM responses WHERE coalesce(conversation_id, id) = ? ORDER BY datetime_utc, id"
        messages: list[ImportedMessage] = []
        for row in connection.execute(sql, (name,)):
            where = f"response {row['id']}"
            at = read_fact(read_time, row["datetime_utc"], f"{where}, datetime_utc", skips)
            for role, column in (("user", "prompt"), ("assistant", "response")):
                text = whole_text(str(row[column] or ""))
                skips.read += 1
                if text.strip():
                    messages.append(ImportedMessage(role, text, ref=f"{row['id']}/{column}", timestamp=at))
                else:
                    skips.note(NO_WORDS, where)
        if messages:
            title = read_fact(read_text, names.get(name), f"conversation {name}", skips) or ""
            head = ImportedSession(f"llm-{name}", "llm", title, messages[0].timestamp)
            yield head, split_turns(messages, named=True)

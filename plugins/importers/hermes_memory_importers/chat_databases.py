"""Importer for databases of conversations: sessions of the OpenAI Agents SDK (SQLite), and `logs.db` of llm."""

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
    SkipLog,
    StreamedSession,
    read_chat_message,
    read_fact,
    read_object,
    read_time,
    split_turns,
)
from hermes_memory_importers.databases import SQLITE_MAGIC, has_columns, opened_database, table_columns
from hermes_memory_importers.llm_logs import NEWER_COLUMNS, OLDER_COLUMNS, read_llm_logs

_AGENTS = {"agent_sessions": "session_id created_at", "agent_messages": "session_id message_data created_at"}


def score_chat_databases(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 for a database of the OpenAI Agents SDK or of llm, else 0."""
    known = head == SQLITE_MAGIC and any(
        has_columns(path, **columns) for columns in (_AGENTS, NEWER_COLUMNS, OLDER_COLUMNS)
    )
    return 5 if known else 0


def read_chat_databases(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every session, the oldest first."""
    tables = table_columns(path)
    with opened_database(path) as connection:
        if _AGENTS.keys() <= tables.keys():
            yield from _agent_sessions(connection, tables, skips)
        else:
            yield from read_llm_logs(connection, tables, skips)


# A session that can branch has the order of each branch beside the messages; "main" is the first branch.
_MAIN = "main"


def _agent_sessions(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], skips: SkipLog
) -> Iterator[StreamedSession]:
    sessions = connection.execute("SELECT * FROM agent_sessions ORDER BY created_at, session_id").fetchall()
    for session in sessions:
        branches = [_MAIN]
        if "message_structure" in tables:
            sql = (
                "SELECT branch_id FROM message_structure WHERE session_id = ? AND branch_id != ?"
                " GROUP BY branch_id ORDER BY min(created_at), branch_id"
            )
            branches += [row[0] for row in connection.execute(sql, (session["session_id"], _MAIN))]
        started = read_fact(read_time, session["created_at"], f"session {session['session_id']}", skips)
        whole = f"openai-agents-{session['session_id']}"
        for branch in branches:
            rows = _rows_of(connection, tables, session["session_id"], branch)
            messages = [message for row in rows for message in _messages_of(session, row, skips)]
            if messages and branch == _MAIN:
                yield ImportedSession(whole, "openai-agents", "", started), split_turns(messages, named=True)
            elif messages:
                head = ImportedSession(
                    f"{whole}-{branch}",
                    "openai-agents",
                    branch,
                    messages[0].timestamp,
                    copyable=True,
                    copied_from=whole,
                )
                yield head, split_turns(messages, named=True)


def _rows_of(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], session: str, branch: str
) -> list[sqlite3.Row]:
    """Return the messages of a branch in their order."""
    if "message_structure" in tables:
        sql = (
            "SELECT agent_messages.* FROM agent_messages JOIN message_structure"
            " ON message_structure.message_id = agent_messages.id AND message_structure.session_id = agent_messages.session_id"
            " WHERE agent_messages.session_id = ? AND branch_id = ? ORDER BY sequence_number"
        )
        if rows := connection.execute(sql, (session, branch)).fetchall():
            return rows
    if branch != _MAIN:
        return []
    sql = "SELECT * FROM agent_messages WHERE session_id = ? ORDER BY rowid"
    return connection.execute(sql, (session,)).fetchall()


def _messages_of(session: sqlite3.Row, row: sqlite3.Row, skips: SkipLog) -> list[ImportedMessage]:
    where = f"session {session['session_id']}, message {row['id']}"
    skips.read += 1
    try:
        item = read_object(parse_json(row["message_data"]), where)
        at = read_time(row["created_at"], f"{where}, created_at")
        if "__enc__" in item:
            skips.note("messages that are encrypted", where)
            return []
        return read_chat_message(item, where, skips, ref=str(row["id"]), at=at)
    except ImportFailed as exc:
        skips.fault(exc)
    except (ValueError, RecursionError):
        skips.fault(ImportFailed(f"{where}: it is no JSON", "it stays in the old file"))
    return []

"""Reader of `logs.db` of llm, of both generations of its tables.

Newer versions keep threads of turns over a tree of messages, and share a message between the threads that have it. Older ones
keep a response a row. A conversation that was begun with an older version and continued with a newer one is a thread as a whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import parse_json
from hermes_memory_importers import (
    NO_WORDS,
    ImportedMessage,
    ImportedSession,
    Part,
    SkipLog,
    StreamedSession,
    expected,
    read_fact,
    read_message,
    read_text,
    read_time,
    split_turns,
    tool_call,
    whole_text,
)

SOURCE = "llm"

OLDER_COLUMNS = {"responses": "id prompt response conversation_id datetime_utc"}
NEWER_COLUMNS = {
    "threads": "id name tip_message_hash",
    "turns": "id thread_id tip_message_hash datetime_utc",
    "messages": "hash parent_hash role",
    "parts": "message_hash position type text payload",
}

_FRAGMENTS = "fragments: files that a prompt names"

# What stands beside the prompt of a response, which is counted.
_BESIDE = {
    "prompt_attachments": ("SELECT count(*) FROM prompt_attachments WHERE response_id = ?", "attached files"),
    "prompt_fragments": ("SELECT count(*) FROM prompt_fragments WHERE response_id = ?", _FRAGMENTS),
    "system_fragments": ("SELECT count(*) FROM system_fragments WHERE response_id = ?", NO_WORDS),
}

_TOOLS = {
    "tool_calls": "SELECT * FROM tool_calls WHERE response_id = ? ORDER BY id",
    "tool_results": "SELECT * FROM tool_results WHERE response_id = ? ORDER BY id",
}


def read_llm_logs(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], skips: SkipLog
) -> Iterator[StreamedSession]:
    """Yield the threads, then the conversations and the single prompts of older versions."""
    threads: set[str] = set()
    if NEWER_COLUMNS.keys() <= tables.keys():
        for row in connection.execute("SELECT * FROM threads ORDER BY id").fetchall():
            threads.add(row["id"])
            yield from _thread(connection, row, skips)
    if "responses" in tables:
        yield from _conversations(connection, tables, threads, skips)


# ------------------------------------------------------------------------------------------------------------ threads


def _thread(connection: sqlite3.Connection, thread: sqlite3.Row, skips: SkipLog) -> Iterator[StreamedSession]:
    sql = "SELECT tip_message_hash, datetime_utc FROM turns WHERE thread_id = ? ORDER BY id"
    turns = connection.execute(sql, (thread["id"],)).fetchall()
    tip = thread["tip_message_hash"] or (turns[-1]["tip_message_hash"] if turns else None)
    # A message has the time of the first turn that has it.
    times: dict[str, float | None] = {}
    for turn in turns:
        at = read_fact(read_time, turn["datetime_utc"], f"thread {thread['id']}, datetime_utc", skips)
        for row in _chain(connection, turn["tip_message_hash"], times):
            times[row["hash"]] = at
    chain = list(_chain(connection, tip, {}))
    messages: list[ImportedMessage] = []
    for row in reversed(chain):
        messages += _messages_of(connection, row, times.pop(row["hash"], None), skips)
    for name in times:
        sql = "SELECT count(*) FROM parts WHERE message_hash = ?"
        (count,) = connection.execute(sql, (name,)).fetchone()
        skips.note_part("messages of turns that the thread left", f"message {name}", count)
    if messages:
        forked = thread["forked_from"] if "forked_from" in thread.keys() else None  # noqa: SIM118  (a row holds values)
        yield (
            ImportedSession(
                f"{SOURCE}-{thread['id']}",
                SOURCE,
                read_fact(read_text, thread["name"], f"thread {thread['id']}, name", skips) or "",
                messages[0].timestamp,
                copyable=bool(forked),
                copied_from=f"{SOURCE}-{forked}" if forked else "",
            ),
            split_turns(messages, named=True),
        )


def _chain(
    connection: sqlite3.Connection, tip: str | None, known: Mapping[str, object]
) -> Iterator[sqlite3.Row]:
    """Yield a message, the one before it, and so on up to the first one, or to one that is known."""
    seen: set[str] = set()
    while tip and tip not in known and tip not in seen:
        seen.add(tip)
        row = connection.execute("SELECT * FROM messages WHERE hash = ?", (tip,)).fetchone()
        if row is None:
            return
        yield row
        tip = row["parent_hash"]


def _messages_of(
    connection: sqlite3.Connection, row: sqlite3.Row, at: float | None, skips: SkipLog
) -> list[ImportedMessage]:
    where = f"message {row['hash']}"
    parts = connection.execute(
        "SELECT * FROM parts WHERE message_hash = ? ORDER BY position", (row["hash"],)
    ).fetchall()
    if row["role"] == "system":
        skips.note_part(NO_WORDS, where, len(parts))
        return []
    skips.read += 1
    role = row["role"] if row["role"] in ("user", "assistant") else "tool"
    try:
        found = [part for one in parts for part in _parts(one, where, skips)]
        return read_message(role, found, where, skips, ref=row["hash"], at=at)
    except ImportFailed as exc:
        skips.fault(exc)
        return []


def _parts(row: sqlite3.Row, where: str, skips: SkipLog) -> Iterator[Part]:
    payload: Any = {}
    if row["payload"]:
        try:
            payload = parse_json(row["payload"])
        except (ValueError, RecursionError) as exc:
            raise expected(f"{where}, payload", "JSON", row["payload"]) from exc
    kind = row["type"]
    if not isinstance(payload, dict):
        raise expected(f"{where}, payload", "an object", payload)
    if kind == "text":
        pieces = [piece for piece in payload.get("text_ref") or [] if isinstance(piece, dict)]
        skips.note_part(_FRAGMENTS, where, sum("fragment" in piece for piece in pieces))
        text = row["text"] or "".join(str(piece.get("literal", "")) for piece in pieces).strip()
        if text.strip():
            yield Part("text", whole_text(text))
    elif kind == "tool_call":
        name, call_id = (read_text(payload.get(key), f"{where}, {key}") for key in ("name", "tool_call_id"))
        yield Part("call", call=tool_call(call_id, name, payload.get("arguments")))
    elif kind == "tool_result":
        skips.note_part("attached files", where, len(payload.get("attachments") or []))
        name, call_id = (read_text(payload.get(key), f"{where}, {key}") for key in ("name", "tool_call_id"))
        yield Part("result", whole_text(str(payload.get("output") or "")), None, name, call_id)
    elif kind == "attachment":
        skips.note_part("attached files", where)
    else:
        skips.note_part(f"parts of the kind {str(kind)[:40]!r}", where)


# ----------------------------------------------------------------------------------------------------- older versions


def _conversations(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], threads: set[str], skips: SkipLog
) -> Iterator[StreamedSession]:
    names = (
        {row["id"]: row["name"] for row in connection.execute("SELECT id, name FROM conversations")}
        if "conversations" in tables
        else {}
    )
    sql = "SELECT DISTINCT coalesce(conversation_id, id) FROM responses ORDER BY datetime_utc, id"
    for (name,) in connection.execute(sql).fetchall():
        if name in threads:
            continue
        sql = "SELECT * FROM responses WHERE coalesce(conversation_id, id) = ? ORDER BY datetime_utc, id"
        messages: list[ImportedMessage] = []
        for row in connection.execute(sql, (name,)):
            messages += _response(connection, tables, row, skips)
        if messages:
            title = read_fact(read_text, names.get(name), f"conversation {name}", skips) or ""
            head = ImportedSession(f"{SOURCE}-{name}", SOURCE, title, messages[0].timestamp)
            yield head, split_turns(messages, named=True)


def _response(
    connection: sqlite3.Connection, tables: Mapping[str, set[str]], row: sqlite3.Row, skips: SkipLog
) -> Iterator[ImportedMessage]:
    """Yield the results that the model was given, the prompt, and the answer with its calls."""
    where = f"response {row['id']}"
    at = read_fact(read_time, row["datetime_utc"], f"{where}, datetime_utc", skips)
    for table, (sql, reason) in _BESIDE.items():
        if table in tables:
            (count,) = connection.execute(sql, (row["id"],)).fetchone()
            skips.note_part(reason, where, count)
    for column, reason in (("system", NO_WORDS), ("reasoning", "parts of the kind 'reasoning'")):
        if column in row.keys() and row[column]:  # noqa: SIM118  (a row holds values)
            skips.note_part(reason, where)
    results, calls = (
        connection.execute(_TOOLS[table], (row["id"],)).fetchall() if table in tables else []
        for table in ("tool_results", "tool_calls")
    )
    given = [
        Part("result", _text(one["output"]), None, _text(one["name"]), one["tool_call_id"] or "")
        for one in results
    ]
    asked = [Part("text", _text(row["prompt"]))]
    answer = [Part("text", _text(row["response"]))]
    answer += [
        Part("call", call=tool_call(one["tool_call_id"] or "", _text(one["name"]), one["arguments"]))
        for one in calls
    ]
    for role, parts, side in (
        ("tool", given, "results"),
        ("user", asked, "prompt"),
        ("assistant", answer, "response"),
    ):
        held = [part for part in parts if part.kind != "text" or part.text.strip()]
        # A prompt that only brings results has no words of its own, and an answer that only calls has none.
        if held or (parts and not (calls or results)):
            skips.read += 1
            yield from read_message(role, held, where, skips, ref=f"{row['id']}/{side}", at=at)


def _text(value: object) -> str:
    return whole_text(str(value or ""))

"""Importer for past sessions of Hermes Agent: its `state.db`, schema 22 and later, the JSON of its export, and the files in
the folder `sessions` of its home.

The file is only read. An export holds the rows of the database as objects: a session with its `messages`, in a list or one a
line.

A message is `active`, `compacted` (out of the context, still found) or neither, if the person undid it. A compaction in
place, or into a new session, writes the messages that it keeps a second time.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import parse_json
from hermes_core.sessions.records import Relation
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    first_bytes,
    json_digest,
    read_chat_message,
    read_list,
    read_object,
    read_records,
    read_time,
    split_turns,
    whole_text,
)
from hermes_memory_importers.hermes_sessions import (
    CONTEXTS,
    OF_HERMES,
    SOURCE,
    is_session_file,
    persons_words,
    read_session_file,
    session_id_of,
)

SQLITE_MAGIC = b"SQLite format 3\0"
# Earlier schemas can't tell an undone message from a compacted one.
OLDEST_SCHEMA = 22

_PARTS = "\0json:"
"""The prefix of content that is a list of parts, as JSON."""

_SUMMARY = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")

# Nobody writes so many characters twice by chance. A shorter text is a copy only if its time is the same
# too.
_DISTINCTIVE_CHARS = 40

_COLUMNS = (
    "id",
    "role",
    "content",
    "tool_calls",
    "tool_name",
    "tool_call_id",
    "timestamp",
    "active",
    "compacted",
)

_FURTHER_COLUMNS = ("display_kind", "reasoning")
"""Columns that some versions lack."""


def score_hermes_agent(path: Path, head: bytes, value: Any) -> int:
    """Return 5 for a state.db of Hermes Agent, a session of its export and a file of its sessions, else 0.

    Raises `ImportFailed` for a database of another program.
    """
    if head == SQLITE_MAGIC:
        if not is_hermes_agent(path):
            raise _other_program()
        return 5
    known = isinstance(value, dict) and (is_hermes_export(value) or is_session_file(path, value))
    return 5 if known else 0


def read_hermes_agent(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every session of a state.db or an export, the oldest first; of a file of one session that session."""
    if not first_bytes(path).startswith((b"{", b"[")):
        return read_database(path, skips)
    first = next(read_records(path, SkipLog()), None)
    if isinstance(first, dict) and not is_hermes_export(first) and is_session_file(path, first):
        return read_session_file(path, skips)
    return stream_hermes_export(read_records(path, skips), skips)


def read_database(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every session, the oldest first. A turn has the id of its first message.

    Raises `ImportFailed` for a file of an older schema or of another program. From a damaged file the readable sessions
    are yielded first.
    """
    try:
        with contextlib.closing(_open(path)) as connection:
            yield from _sessions(connection, skips)
    except sqlite3.Error as exc:
        raise _damaged(exc) from exc


# The tables of state.db, as far as they are read.
_TABLES = """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, source TEXT, user_id TEXT, chat_id TEXT, chat_type TEXT, thread_id TEXT,
        parent_session_id TEXT, started_at REAL, ended_at REAL, end_reason TEXT, title TEXT, model_config TEXT);
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT, tool_name TEXT,
        tool_call_id TEXT, timestamp REAL, active INTEGER, compacted INTEGER, display_kind TEXT, reasoning TEXT);
    CREATE INDEX messages_of_sessions ON messages (session_id, id);
"""


def is_hermes_export(value: Mapping[str, Any]) -> bool:
    """Return True if a value looks like a session of the export of Hermes Agent."""
    named = {"id", "source", "started_at", "messages"} <= value.keys()
    return named and bool({"parent_session_id", "end_reason", "model_config", "user_id"} & value.keys())


def stream_hermes_export(values: Iterable[Any], skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield every session of an export, the oldest first. A session may name a parent that comes later in the file."""
    with tempfile.TemporaryDirectory(prefix="hermes-import-") as folder:
        connection = sqlite3.connect(Path(folder, "state.db"), isolation_level=None)
        with contextlib.closing(connection):
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = OFF")
            connection.executescript(_TABLES)
            for number, value in enumerate(values, 1):
                try:
                    where = f"conversation {number}"
                    _store(connection, read_object(value, where), where, skips)
                except ImportFailed as exc:
                    skips.fault(exc)
            yield from _sessions(connection, skips)


def _store(connection: sqlite3.Connection, session: Mapping[str, Any], where: str, skips: SkipLog) -> None:
    """Store a session of an export. The later state of a session that the file has twice counts."""
    if not isinstance(session.get("id"), str):
        raise ImportFailed(f"{where}: a session of Hermes Agent without an id", "it stays in the old file")
    messages = read_list(session.get("messages"), f"{where}, messages")
    earlier = connection.execute("DELETE FROM messages WHERE session_id = ?", (_plain(session["id"]),))
    skips.note_part("messages of an earlier state of the session", where, earlier.rowcount)
    _insert(connection, "sessions", session, {})
    for message in messages:
        row = dict(read_object(message, f"{where}, messages"))
        if isinstance(row.get("content"), list | dict):
            row["content"] = _PARTS + json.dumps(row["content"])
        own = {"session_id": session["id"], "active": 1, "compacted": 0}
        taken = connection.execute("SELECT 1 FROM messages WHERE id = ?", (_plain(row.get("id")),)).fetchone()
        _insert(connection, "messages", row | ({"id": None} if taken else {}), own)
    skips.open(0)  # the messages are counted when they are read


def _insert(
    connection: sqlite3.Connection, table: str, row: Mapping[str, Any], own: Mapping[str, Any]
) -> None:
    names = sorted(_columns(connection, table))
    values = [_plain(own[name] if row.get(name) is None and name in own else row.get(name)) for name in names]
    marks = ", ".join("?" * len(names))
    sql = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608  # names of _TABLES
    try:
        connection.execute(sql, values)
    except sqlite3.Error as exc:
        raise ImportFailed(f"a row of {table} can't be read: {exc}", "it stays in the old file") from exc


def _plain(value: object) -> str | int | float | None:
    """Return a value of JSON as SQLite stores it."""
    if isinstance(value, str):
        return whole_text(value)
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    return json.dumps(value)


def is_hermes_agent(path: Path) -> bool:
    """Return True for a state.db of Hermes Agent of any schema; False for a database of another program."""
    try:
        with contextlib.closing(_connect(path)) as connection:
            return _has_its_tables(connection)
    except sqlite3.Error:
        # Damaged; `read_database` says how.
        return True


def _connect(path: Path) -> sqlite3.Connection:
    # mode=ro: Hermes Agent may be running on this file.
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=10)
    connection.row_factory = sqlite3.Row
    return connection


def _open(path: Path) -> sqlite3.Connection:
    with contextlib.ExitStack() as undo:
        connection = _connect(path)
        undo.callback(connection.close)
        # A transcript may hold half a character; one must not stop the import.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        _refuse_other(connection)
        undo.pop_all()
    return connection


def _refuse_other(connection: sqlite3.Connection) -> None:
    """Raise `ImportFailed` unless the database is a state.db that can be read."""
    if not _has_its_tables(connection):
        raise _other_program()
    version = connection.execute("SELECT max(version) FROM schema_version").fetchone()[0]
    if not isinstance(version, int) or version < OLDEST_SCHEMA:
        raise ImportFailed(
            f"its schema is {version!r}, and {OLDEST_SCHEMA} is the oldest that is read",
            "open it once with Hermes Agent 0.19 or later, which brings it up to date",
        )
    missing = {"id", "source", "started_at"} - _columns(connection, "sessions")
    missing = missing or set(_COLUMNS) - _columns(connection, "messages")
    if missing:
        raise ImportFailed(f"it lacks the columns {sorted(missing)}", "please report this with the version")


def _other_program() -> ImportFailed:
    return ImportFailed(
        "this database is no state.db of Hermes Agent",
        "name the file that its home holds; a home of this program moves as a whole, as a copy of its folder",
    )


def _has_its_tables(connection: sqlite3.Connection) -> bool:
    return "version" in _columns(connection, "schema_version") and "compacted" in _columns(
        connection, "messages"
    )


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}


def _sessions(connection: sqlite3.Connection, skips: SkipLog) -> Iterator[StreamedSession]:
    held = _columns(connection, "messages")
    columns = (*_COLUMNS, *(name for name in _FURTHER_COLUMNS if name in held))
    rows = connection.execute("SELECT * FROM sessions ORDER BY started_at, id").fetchall()
    known = {row["id"]: row for row in rows}
    for row in rows:
        said = split_turns(_messages(connection, row, known, columns, skips), named=True)
        first = next(said, None)
        if first is None:
            skips.note_part("sessions without a word", f"session {row['id']}")
            continue
        parent = known.get(dict(row).get("parent_session_id"))
        relation = _relation(dict(row), {} if parent is None else dict(parent))
        head = _head(row, first.messages[0].timestamp)
        if relation == "delegation":
            # In some versions a delegate has the source of its parent, and only a mark shows that no person spoke.
            head = replace(head, identity={**head.identity, "agent_context": "subagent"})
        origin = head.identity.get("parent_id", "") if relation == "branch" else ""
        # A branch begins with a copy of its parent.
        head = replace(head, relation=relation, copyable=bool(origin), copied_from=origin, in_forms=True)
        yield head, chain([first], said)


def _relation(child: Mapping[str, Any], parent: Mapping[str, Any]) -> Relation:
    """Return how a session comes from its parent: by a mark of its own, else by the end of the parent."""
    marks, ended = _text(child.get("model_config")), _text(parent.get("end_reason"))
    if child["source"] in CONTEXTS or '"_delegate_from"' in marks:
        return "delegation"
    if ended.startswith("branch") or '"_branched_from"' in marks:
        return "branch"
    return "compression" if ended == "compression" else ""


def _head(row: sqlite3.Row, first_at: float | None) -> ImportedSession:
    facts = dict(row)
    source = _text(facts["source"]) or SOURCE
    identity = {"agent_context": CONTEXTS.get(source, "primary")}
    if facts.get("parent_session_id"):
        identity["parent_id"] = session_id_of(facts["parent_session_id"])
    if facts.get("user_id") or facts.get("chat_id"):  # the owner decides who may find the session
        identity["platform"] = source
        for name in ("user_id", "chat_id", "chat_type", "thread_id"):
            identity[name] = _text(facts.get(name))
    try:
        started = read_time(facts["started_at"], "")
    except ImportFailed:
        started = first_at
    return ImportedSession(
        session_id_of(facts["id"]), source, _text(facts.get("title")), started, identity=identity
    )


def _messages(
    connection: sqlite3.Connection,
    session: sqlite3.Row,
    known: Mapping[Any, sqlite3.Row],
    columns: Sequence[str],
    skips: SkipLog,
) -> Iterator[ImportedMessage]:
    session_id, earlier = session["id"], set()
    parent = known.get(dict(session).get("parent_session_id"))
    if parent is not None and dict(parent).get("end_reason") == "compression":
        rows = _rows(connection, parent["id"], columns)
        earlier = {_copy_key(row) for row in rows if row["active"] or row["compacted"]}
    for row in _rows(connection, session_id, columns):
        where = f"session {session_id}, message {row['id']}"
        key = _copy_key(row)
        skips.read += 1
        if not (row["active"] or row["compacted"]):
            skips.note("messages that were undone", where)
        elif "display_kind" in columns and row["display_kind"] == "hidden":
            skips.note("messages that were hidden from the person", where)
        elif _text(row["content"]).startswith(_SUMMARY):
            skips.note("summaries of a compaction", where)
        elif key in earlier:
            skips.note("messages that a compaction wrote again", where)
        else:
            if row["compacted"]:
                earlier.add(key)
            try:
                yield from _read_row(row, where, skips)
            except ImportFailed as exc:
                skips.fault(exc)


def _rows(
    connection: sqlite3.Connection, session_id: object, columns: Sequence[str]
) -> Iterator[sqlite3.Row]:
    # Several cursors are open at once, so each query needs a cursor of its own.
    sql = f"SELECT {', '.join(columns)} FROM messages WHERE session_id = ? ORDER BY id"  # noqa: S608  # the names above
    return connection.execute(sql, (session_id,))


def _copy_key(row: sqlite3.Row) -> str:
    values = [_text(row[name]) for name in ("role", "content", "tool_calls", "tool_call_id")]
    distinctive = len(values[1]) + len(values[2]) >= _DISTINCTIVE_CHARS
    return json_digest(values if distinctive else [*values, _text(row["timestamp"])])


def _read_row(row: sqlite3.Row, where: str, skips: SkipLog) -> list[ImportedMessage]:
    value = {
        "role": row["role"],
        "content": _content(row["content"], where),
        "tool_calls": _calls(row["tool_calls"], where),
        "tool_call_id": _text(row["tool_call_id"]),
        "tool_name": _text(row["tool_name"]),
        "reasoning": "reasoning" in row.keys() and _text(row["reasoning"]).strip(),  # noqa: SIM118  # a Row has no `in`
    }
    at = read_time(row["timestamp"], f"{where}, timestamp")
    return read_chat_message(
        value, where, skips, ref=str(row["id"]), at=at, words=persons_words, reason=OF_HERMES
    )


def _content(stored: object, where: str) -> object:
    if isinstance(stored, bytes):
        return stored.decode("utf-8", "replace")
    if isinstance(stored, str) and stored.startswith(_PARTS):
        return _json(stored.removeprefix(_PARTS), f"{where}, content")
    return None if stored is None else str(stored)


def _calls(stored: object, where: str) -> list[dict[str, object]]:
    if not stored:
        return []
    calls = _json(_text(stored), f"{where}, tool_calls")
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ImportFailed(f"{where}, tool_calls: no list of calls", "it stays in the old file")
    return calls


def _json(text: str, where: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as exc:
        raise ImportFailed(f"{where}: no JSON", "it stays in the old file") from exc


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _damaged(exc: sqlite3.Error) -> ImportFailed:
    return ImportFailed(
        f"it can't be read: {exc}", "close Hermes Agent and try again; let it repair a damaged file"
    )

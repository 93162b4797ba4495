"""Sessions as JSON, to be taken out of one store and into another without loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from hermes_core.contract.values import Session
from hermes_core.errors import SessionError
from hermes_core.kit.text import clip
from hermes_core.safety.json_size import parse_json
from hermes_core.safety.origin import RANKS
from hermes_core.sessions import lineage
from hermes_core.sessions.records import SESSION_META, State, meta_key, sqlite_text
from hermes_core.sessions.schema import SESSION_TABLES
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Engine, Reader, ValueRejected, detecting_damage

FORMAT = "hermes-memory-session"
VERSION = 1

Imported = Literal["imported", "present", "different"]

# Columns that a store counts or numbers for itself.
_OWN_COLUMNS = {
    "sessions": {"key", "message_count"},
    "messages": {"id", "session_key", "position", "size"},
    "turns": {"key", "session_key", "first_message_id", "last_message_id"},
}
_COLUMNS = {
    table.name: [name for name in table.column_names if name not in _OWN_COLUMNS[table.name]]
    for table in SESSION_TABLES
    if table.name in _OWN_COLUMNS
}


def _is_list_of_calls(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(call.get("function", {}), Mapping) for call in value if isinstance(call, Mapping)
    )


def _is_identity(value: object) -> bool:
    try:
        return isinstance(value, dict) and Session.from_dict({"id": "", **value}).owner is not None
    except (TypeError, ValueError, AttributeError):
        return False


# Columns that hold JSON, or "", with the check that what reads them needs and the words for it. A session with another
# value would be stored and could then not be shown, sent or searched.
_JSON_COLUMNS: dict[str, tuple[Callable[[object], bool], str]] = {
    "tool_calls": (_is_list_of_calls, "a list of tool calls"),
    "parts": (lambda value: isinstance(value, list), "a list of parts"),
    "native": (lambda _: True, "a message"),
    "identity": (_is_identity, "the identity of a session"),
}


def session_document(db: SessionStore, session_id: str) -> dict[str, Any]:
    """Return a session with all its messages and turns, also those that were undone, as JSON data.

    Raises `SessionError` if there is no such session.
    """
    connection = db.database
    with detecting_damage(db.database):
        session = connection.execute(
            "SELECT * FROM sessions WHERE id = ?", (sqlite_text(session_id),)
        ).fetchone()
        if session is None:
            raise SessionError(
                f"there is no session {session_id!r}", "list them: hermes-memory sessions list"
            )
        messages = _rows(
            connection, "SELECT * FROM messages WHERE session_key = ? ORDER BY id", session["key"]
        )
        places = {row["id"]: place for place, row in enumerate(messages)}
        turns = _rows(connection, "SELECT * FROM turns WHERE session_key = ? ORDER BY key", session["key"])
        meta = {kind: db.meta.get(meta_key(kind, session["id"])) for kind in SESSION_META}
    return {
        "format": FORMAT,
        "version": VERSION,
        "session": _portable("sessions", session),
        "messages": [_portable("messages", row) for row in messages],
        "turns": [
            _portable("turns", row)
            | {"first": places[row["first_message_id"]], "last": places[row["last_message_id"]]}
            for row in turns
            if row["first_message_id"] in places and row["last_message_id"] in places
        ],
        "meta": {kind: value for kind, value in meta.items() if value is not None},
    }


def import_session(db: SessionStore, document: object, *, keep_origins: bool = False) -> Imported:
    """Store a session that `session_document` returned, and return what became of it.

    A session whose id is stored already stays as it is: "present" if it has the same messages, else "different". A title
    that another session of the user has gets a number.

    Args:
        keep_origins: True if a person says that they made the document themselves. Else all messages are imports.

    Raises:
        SessionError: The document is no session, or of a newer version. Nothing was stored.
    """
    parts = _checked(document)
    return db.with_index(lambda: _store(db, *parts, keep_origins=keep_origins))


def check_document(document: object) -> None:
    """Raise `SessionError` if `import_session` would refuse the document because of its form."""
    _checked(document)


def _store(
    db: SessionStore,
    session: dict[str, Any],
    messages: list[dict[str, Any]],
    turns: list[dict[str, Any]],
    meta: Mapping[str, str],
    *,
    keep_origins: bool,
) -> Imported:
    with db.transaction() as connection:
        known = connection.execute("SELECT key FROM sessions WHERE id = ?", (session["id"],)).fetchone()
        if known is not None:
            rows = _rows(connection, "SELECT * FROM messages WHERE session_key = ? ORDER BY id", known["key"])
            same = [_without_origin(_portable("messages", row)) for row in rows] == [
                _without_origin(message) for message in messages
            ]
            return "present" if same else "different"
        title = str(session.get("title") or "")
        # Anybody may have written the file: its prompts are not sent, and nobody here said its texts.
        (key,) = _insert(
            db.database,
            "sessions",
            [{**_known("sessions", session), "title": "", "system_prompt": "", "memory_prompt": None}],
        )
        if title:
            lineage.set_free_title(connection, session["id"], title, str(session.get("user", "")))
        rows = []
        position = 0
        for message in messages:
            hidden = message.get("state") == State.REWOUND
            size = len(str(message.get("content", ""))) + len(str(message.get("tool_calls", "")))
            place: dict[str, Any] = {
                "session_key": key,
                "size": size,
                "position": None if hidden else position,
            }
            if not keep_origins or message.get("origin", "") not in ("", *RANKS):
                place["origin"] = "import"
            rows.append({**_known("messages", message), **place, **db.index.columns(message)})
            position += not hidden
        ids = _insert(db.database, "messages", rows)
        db.index.add(connection, ids, rows)
        connection.execute("UPDATE sessions SET message_count = ? WHERE key = ?", (position, key))
        new_turns = []
        for turn in turns:
            taken = connection.execute("SELECT 1 FROM turns WHERE id = ?", (str(turn.get("id")),)).fetchone()
            if taken:  # a fork of this conversation is stored already, and a provider must get the turn once
                continue
            first, last = ids[turn["first"]], ids[turn["last"]]
            place = {"session_key": key, "first_message_id": first, "last_message_id": last}
            new_turns.append({**_known("turns", turn), **place})
        _insert(db.database, "turns", new_turns)
        connection.executemany(
            "INSERT INTO state_meta VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
            [(meta_key(kind, session["id"]), value) for kind, value in meta.items()],
        )
    return "imported"


def _without_origin(message: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "origin"}


def _checked(
    document: object,
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]], dict[str, str]]:
    """Return the parts of a document with their known columns. Raise `SessionError` if a value is of a wrong type."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise SessionError("this is no exported session", f"its 'format' must be {FORMAT!r}")
    version = document.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise SessionError(
            f"the export has version {version!r}", "import it with a newer version of this program"
        )
    session = _row_of(document.get("session"), "session")
    if not session.get("id") or not isinstance(session["id"], str):
        raise SessionError("an exported session needs an id", "export it again")
    parts = {}
    for name in ("messages", "turns"):
        rows = document.get(name, [])
        if not isinstance(rows, list):
            raise SessionError(
                f"{name!r} must be a list, got {type(rows).__name__}", "export the session again"
            )
        parts[name] = [_row_of(row, name) for row in rows]
    for message in parts["messages"]:
        if (state := message.get("state", State.LIVE)) not in tuple(State):
            raise SessionError(f"a message has no state {state!r}", "export the session again")
    count = len(parts["messages"])
    for turn in parts["turns"]:
        first, last = turn.get("first"), turn.get("last")
        if not (isinstance(first, int) and isinstance(last, int) and 0 <= first <= last < count):
            raise SessionError(
                f"turn {turn.get('id')!r} names messages that are not there", "export it again"
            )
    meta = document.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise SessionError("'meta' must be an object", "export the session again")
    kept = {kind: value for kind, value in meta.items() if kind in SESSION_META and isinstance(value, str)}
    return session, parts["messages"], parts["turns"], kept


def _row_of(row: object, name: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise SessionError(
            f"{name!r} must be an object, got {type(row).__name__}", "export the session again"
        )
    for column, value in row.items():
        if not isinstance(value, str | int | float | None):
            raise SessionError(
                f"{column!r} of {name!r} must be text or a number, got {value!r}", "export it again"
            )
        if column in _JSON_COLUMNS and value not in ("", None):
            _check_json(str(column), value)
    return {
        str(column): sqlite_text(value) if isinstance(value, str) else value for column, value in row.items()
    }


def _check_json(column: str, value: object) -> None:
    """Raise `SessionError` if the value of a column is not the JSON that its readers need."""
    accepts, words = _JSON_COLUMNS[column]
    try:
        accepted = isinstance(value, str) and accepts(parse_json(value))
    except (ValueError, RecursionError):
        accepted = False
    if not accepted:
        raise SessionError(
            f"{column!r} must be {words} as JSON, got {clip(str(value), 80)!r}", "export the session again"
        )


def _insert(database: Engine, table: str, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Insert rows and return their ids. Raise `SessionError` for a wrong value."""
    key = "id" if table == "messages" else "key"
    ids: list[int] = []
    # Rows of an export may have different columns: those with the same ones are inserted together.
    for _, group in groupby(rows, list):
        try:
            ids += database.insert(table, list(group), key)[0]
        except ValueRejected as exc:
            raise SessionError(
                f"a row of {table!r} has a wrong or a missing value ({exc})", "export the session again"
            ) from exc
    return ids


def _rows(connection: Reader, sql: str, key: int) -> list[Any]:
    return connection.execute(sql, (key,)).fetchall()


def _portable(table: str, row: Any) -> dict[str, Any]:
    return {name: row[name] for name in _COLUMNS[table]}


def _known(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that this version has, in one order."""
    return {name: row[name] for name in _COLUMNS[table] if name in row}

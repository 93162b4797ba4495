"""Importer for Mem0: its memories as JSON, and the stores of its open-source version.

The API lists memories as `{"results": [{"memory": ...}]}`. The open-source version keeps each change of a memory, and the last
messages, in `history.db`, and by default the memories themselves in a folder of Qdrant. Each memory becomes a record.
"""

from __future__ import annotations

import io
import pickle
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    NO_WORDS,
    ImportedMessage,
    ImportedRecord,
    ImportedSession,
    SkipLog,
    StreamedItem,
    StreamedSession,
    expected,
    first_bytes,
    read_chat_message,
    read_fact,
    read_list,
    read_object,
    read_records,
    read_time,
    split_turns,
    whole_text,
)
from hermes_memory_importers.conversations import note_other_lists, yield_record
from hermes_memory_importers.databases import SQLITE_MAGIC, has_columns, opened_database, table_columns

SOURCE = "mem0"

_HISTORY = "memory_id new_memory event created_at updated_at is_deleted"
_POINTS = "id point"

# The fields of a memory in a list, and in a point of Qdrant.
_LISTED, _STORED = "memory", "data"

# What a pickle raises that is damaged, or that needs an object to be more than inert.
_DAMAGED = (
    *(pickle.PickleError, ArithmeticError, AttributeError, EOFError, ImportError),
    *(LookupError, MemoryError, RecursionError, TypeError, ValueError),
)

_EXPIRED = "memories that have expired"


def score_mem0(path: Path, head: bytes, value: Any) -> int:
    """Return 5 for a database of the open-source version, 4 for a list of memories, else 0."""
    if head == SQLITE_MAGIC:
        known = has_columns(path, history=_HISTORY) or has_columns(path, points=_POINTS)
        return 5 if known else 0
    return 4 if isinstance(value, dict) and (_is_memory(value) or _is_list(value)) else 0


def read_mem0(path: Path, skips: SkipLog) -> Iterator[StreamedItem]:
    """Yield a record for each memory, and a session for each scope whose last messages are kept."""
    if first_bytes(path) == SQLITE_MAGIC:
        tables = table_columns(path)
        with opened_database(path) as connection:
            if "points" in tables:
                yield from _points(connection, skips)
            else:
                yield from _history(connection, skips)
                if "messages" in tables:
                    yield from _sessions(connection, skips)
        return
    read = partial(_record, field=_LISTED, skips=skips)
    for number, value in enumerate(read_records(path, skips), 1):
        where = f"record {number}"
        listed: list[tuple[str, Any]] = [(where, value)]
        related: Sequence[Any] = ()
        if isinstance(value, dict) and _is_list(value):
            listed = [(f"{where}, memory {at}", raw) for at, raw in enumerate(value["results"], 1)]
            related = read_list(value.get("relations") or [], f"{where}, relations")
            skips.open(len(listed) + len(related))
            note_other_lists(value, ("results", "relations"), where, skips)
        for place, raw in listed:
            if isinstance(raw, dict) and _is_expired(raw):
                skips.note(_EXPIRED, place)
            else:
                yield from yield_record(read, raw, place, skips)
        for at, raw in enumerate(related, 1):
            yield from yield_record(_relation, raw, f"{where}, relation {at}", skips)


def _is_memory(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get(_LISTED), str) and bool(
        {"id", "hash", "user_id", "created_at"} & value.keys()
    )


def _is_list(value: Mapping[str, Any]) -> bool:
    """Return True for the answer that holds a list of memories."""
    listed = value.get("results")
    return (
        isinstance(listed, list)
        and bool(listed)
        and all(isinstance(one, dict) and _is_memory(one) for one in listed)
    )


def _record(raw: object, where: str, field: str, skips: SkipLog) -> ImportedRecord:
    value = read_object(raw, where)
    if not isinstance(value.get(field), str):
        raise expected(where, f"a memory with {field!r}", sorted(value))
    created = read_fact(read_time, value.get("created_at"), f"{where}, created_at", skips)
    updated = read_fact(read_time, value.get("updated_at"), f"{where}, updated_at", skips)
    named = value.get("categories")
    tags = tuple(tag for tag in named if isinstance(tag, str)) if isinstance(named, list) else ()
    text = whole_text(value[field]).strip()
    record = MemoryRecord(
        text, created_at=created or 0.0, updated_at=updated or 0.0, kind="memory", tags=tags
    )
    return ImportedRecord(record, SOURCE)


def _relation(raw: object, where: str) -> ImportedRecord:
    """Return the record of a relation in the graph of entities, which the answer has beside the memories."""
    value = read_object(raw, where)
    names = [value.get("source"), value.get("relationship"), value.get("target", value.get("destination"))]
    if not all(isinstance(name, str) for name in names):
        raise expected(where, "a relation with 'source', 'relationship' and 'target'", sorted(value))
    text = whole_text(" ".join(map(str, names)).replace("_", " ")).strip()
    return ImportedRecord(MemoryRecord(text, kind="relation"), SOURCE)


# ---------------------------------------------------------------------------------------------------- the open source


def _history(connection: sqlite3.Connection, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield the last state of each memory in the history, without deleted ones."""
    # Of a group SQLite gives the row with the greatest rowid, which is the last change: each has the time of the first one.
    sql = "SELECT *, max(rowid) AS last FROM history GROUP BY memory_id ORDER BY last"
    for row in connection.execute(sql):
        where = f"memory {row['memory_id']}"
        skips.open(1, 0)
        text = whole_text(str(row["new_memory"] or "")).strip()
        if row["is_deleted"] or row["event"] == "DELETE":
            skips.note("memories that were deleted", where)
        elif not text:
            skips.note(NO_WORDS, where)
        else:
            created = read_fact(read_time, row["created_at"], where, skips) or 0.0
            updated = read_fact(read_time, row["updated_at"], where, skips) or 0.0
            record = MemoryRecord(text, created_at=created, updated_at=updated, kind="memory")
            yield ImportedRecord(record, SOURCE)


def _sessions(connection: sqlite3.Connection, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the messages of each scope, as a user or a run. Mem0 keeps the last ten of each."""
    scopes = connection.execute("SELECT DISTINCT session_scope FROM messages ORDER BY 1").fetchall()
    for (scope,) in scopes:
        messages: list[ImportedMessage] = []
        sql = "SELECT * FROM messages WHERE session_scope IS ? ORDER BY created_at, rowid"
        for row in connection.execute(sql, (scope,)):
            where = f"message {row['id']}"
            skips.read += 1
            chat = {"role": row["role"], "content": row["content"], "name": row["name"]}
            try:
                at = read_time(row["created_at"], f"{where}, created_at")
                messages += read_chat_message(chat, where, skips, ref=str(row["id"]), at=at)
            except ImportFailed as exc:
                skips.fault(exc)
        if messages:
            head = ImportedSession(f"{SOURCE}-{scope}", SOURCE, str(scope), messages[0].timestamp)
            yield head, split_turns(messages, named=True)


class _Inert:
    """Something in the place of every object of a pickle, with the state that the pickle gives it."""

    state: object = None

    def __init__(self, *arguments: object) -> None:
        """Take the arguments of the object, which are not used."""

    def __setstate__(self, state: object) -> None:
        """Keep the state."""
        self.state = state


class _InertUnpickler(pickle.Unpickler):
    """A reader of pickles that imports and calls nothing that they name."""

    def find_class(self, module: str, name: str) -> type:  # noqa: ARG002  (the arguments of `Unpickler`)
        """Return the inert class, whatever the pickle names."""
        return _Inert


def _points(connection: sqlite3.Connection, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield the memories of a collection. A point of Qdrant is a pickle, with the memory in its payload."""
    read = partial(_record, field=_STORED, skips=skips)
    for number, (point,) in enumerate(connection.execute("SELECT point FROM points ORDER BY rowid"), 1):
        where = f"point {number}"
        skips.read += 1
        payload = _payload(point)
        if payload is None:
            skips.fault(ImportFailed(f"{where}: it is no point of Qdrant", "it stays there"))
        elif "linked_memory_ids" in payload or not payload.get(_STORED):
            skips.note("entities that only link memories, and points without a memory", where)
        elif _is_expired(payload):
            skips.note(_EXPIRED, where)
        else:
            yield from yield_record(read, payload, where, skips)


def _payload(point: object) -> Mapping[str, Any] | None:
    """Return the payload of a pickled point, None for anything else."""
    try:
        found = _InertUnpickler(io.BytesIO(bytes(point))).load()  # type: ignore[call-overload]
    except _DAMAGED:
        return None
    fields = getattr(found, "state", None)
    fields = fields.get("__dict__", fields) if isinstance(fields, dict) else {}
    payload = fields.get("payload") if isinstance(fields, dict) else None
    return payload if isinstance(payload, dict) else None


def _is_expired(payload: Mapping[str, Any]) -> bool:
    try:
        until = read_time(payload.get("expiration_date"), "expiration_date")
    except ImportFailed:
        return False
    return until is not None and until < time.time()

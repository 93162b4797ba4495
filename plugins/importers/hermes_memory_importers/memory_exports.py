"""Importer for memories of other programs: Mem0, and the file of the memory server of MCP.

Mem0 lists memories as `{"results": [{"memory": ...}]}`, and its open-source version keeps each change in `history.db`. The
server of MCP has a graph, an entity or a relation a line. Nothing of it is the person's word: each memory becomes a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_core.importers import (
    NO_WORDS,
    ImportedRecord,
    SkipLog,
    expected,
    first_bytes,
    read_fact,
    read_list,
    read_object,
    read_records,
    read_text,
    read_time,
    whole_text,
)
from hermes_memory_importers.databases import SQLITE_MAGIC, has_columns, opened_database

_MEM0_COLUMNS = "memory_id new_memory event created_at is_deleted"
_GRAPH_FIELDS = {"entity": {"name", "observations"}, "relation": {"from", "to", "relationType"}}


def score_memory_exports(path: Path, head: bytes, value: Any) -> int:
    """Return 5 for a database of Mem0, 4 for a list of its memories and for a line of a graph of MCP, else 0."""
    if head == SQLITE_MAGIC:
        return 5 if has_columns(path, history=_MEM0_COLUMNS) else 0
    return 4 if isinstance(value, dict) and (_is_mem0(value) or _is_listed(value) or _is_graph(value)) else 0


def read_memory_exports(path: Path, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield a record for each memory, for each entity with its observations, and for each relation."""
    if first_bytes(path) == SQLITE_MAGIC:
        yield from _history(path, skips)
        return
    for number, value in enumerate(read_records(path, skips), 1):
        where = f"record {number}"
        try:
            item = read_object(value, where)
            if _is_listed(item):
                skips.open(len(item["results"]))
                for at, raw in enumerate(item["results"], 1):
                    yield from _one(raw, f"{where}, memory {at}", skips)
            else:
                yield from _one(item, where, skips)
        except ImportFailed as exc:
            skips.fault(exc)


def _is_mem0(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("memory"), str) and bool(
        {"id", "hash", "user_id", "created_at"} & value.keys()
    )


def _is_listed(value: Mapping[str, Any]) -> bool:
    """Return True for the answer of Mem0 that holds a list of memories."""
    listed = value.get("results")
    return (
        isinstance(listed, list)
        and bool(listed)
        and all(isinstance(one, dict) and _is_mem0(one) for one in listed)
    )


def _is_graph(value: Mapping[str, Any]) -> bool:
    fields = _GRAPH_FIELDS.get(str(value.get("type")))
    return fields is not None and fields <= value.keys()


def _one(value: object, where: str, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield the record of a memory. One that has no words, or that can't be read, is counted."""
    try:
        item = read_object(value, where)
        record = _of_mem0(item, where, skips) if _is_mem0(item) else _of_graph(item, where)
    except ImportFailed as exc:
        skips.fault(exc)
        return
    if record.record.text:
        yield record
    else:
        skips.note(NO_WORDS, where)


def _of_mem0(value: Mapping[str, Any], where: str, skips: SkipLog) -> ImportedRecord:
    created = read_fact(read_time, value.get("created_at"), f"{where}, created_at", skips)
    updated = read_fact(read_time, value.get("updated_at"), f"{where}, updated_at", skips)
    named = value.get("categories")
    tags = tuple(tag for tag in named if isinstance(tag, str)) if isinstance(named, list) else ()
    text = whole_text(value["memory"]).strip()
    record = MemoryRecord(
        text, created_at=created or 0.0, updated_at=updated or 0.0, kind="memory", tags=tags
    )
    return ImportedRecord(record, "mem0")


def _of_graph(value: Mapping[str, Any], where: str) -> ImportedRecord:
    def named(field: str) -> str:
        return whole_text(read_text(value.get(field), f"{where}, {field}")).strip()

    if value.get("type") == "entity":
        observed = read_list(value.get("observations"), f"{where}, observations")
        facts = [whole_text(read_text(one, f"{where}, observations")).strip() for one in observed]
        kind = named("entityType")
        name = f"{named('name')} ({kind})" if kind else named("name")
        text = f"{name}: {'; '.join(filter(None, facts))}" if any(facts) else name
    elif value.get("type") == "relation":
        text = f"{named('from')} {named('relationType').replace('_', ' ')} {named('to')}"
    else:
        raise expected(where, "a memory of Mem0, an entity or a relation", sorted(value))
    return ImportedRecord(MemoryRecord(text, kind=str(value["type"])), "mcp-memory")


def _history(path: Path, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield the last state of each memory in the history of Mem0, without deleted ones."""
    with opened_database(path) as connection:
        latest: dict[str, Any] = {}
        for row in connection.execute("SELECT * FROM history ORDER BY created_at, rowid"):
            latest[str(row["memory_id"])] = row
        for name, row in latest.items():
            where = f"memory {name}"
            skips.open(1, 0)
            text = whole_text(str(row["new_memory"] or "")).strip()
            if row["is_deleted"] or row["event"] == "DELETE":
                skips.note("memories that were deleted", where)
            elif not text:
                skips.note(NO_WORDS, where)
            else:
                at = read_fact(read_time, row["created_at"], where, skips) or 0.0
                yield ImportedRecord(MemoryRecord(text, created_at=at, kind="memory"), "mem0")

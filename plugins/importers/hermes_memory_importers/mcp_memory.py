"""Importer for the file of the memory server of MCP: a graph, an entity or a relation a line.

Nothing of it is the person's word: each entity with its observations, and each relation, becomes a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_memory_importers import (
    ImportedRecord,
    SkipLog,
    expected,
    read_list,
    read_object,
    read_records,
    read_text,
    whole_text,
)
from hermes_memory_importers.conversations import yield_record

SOURCE = "mcp-memory"

_FIELDS = {"entity": {"name", "observations"}, "relation": {"from", "to", "relationType"}}


def score_mcp_memory(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 for a line of a graph, else 0."""
    if not isinstance(value, dict):
        return 0
    fields = _FIELDS.get(str(value.get("type")))
    return 4 if fields is not None and fields <= value.keys() else 0


def read_mcp_memory(path: Path, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield a record for each entity with its observations, and for each relation."""
    for number, value in enumerate(read_records(path, skips), 1):
        yield from yield_record(_record, value, f"record {number}", skips)


def _record(raw: object, where: str) -> ImportedRecord:
    value: Mapping[str, Any] = read_object(raw, where)

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
        raise expected(where, "an entity or a relation", sorted(value))
    return ImportedRecord(MemoryRecord(text, kind=str(value["type"])), SOURCE)

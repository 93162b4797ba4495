"""Importer for the file of the memory server of MCP, an entity or a relation a line, and for the graph that its tools answer.

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
from hermes_memory_importers.conversations import note_other_lists, yield_record

SOURCE = "mcp-memory"

_FIELDS = {"entity": {"name", "observations"}, "relation": {"from", "to", "relationType"}}
_LISTS = ("entities", "relations")


def score_mcp_memory(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 4 for a line of a graph, else 0."""
    if not isinstance(value, dict):
        return 0
    return 4 if _kind(value) or any(_kind(one) for _, one in _listed(value)) else 0


def read_mcp_memory(path: Path, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield a record for each entity with its observations, and for each relation."""
    for number, value in enumerate(read_records(path, skips), 1):
        where = f"record {number}"
        if isinstance(value, dict) and not _kind(value) and (listed := _listed(value)):
            skips.open(len(listed))
            note_other_lists(value, _LISTS, where, skips)
            for place, one in listed:
                yield from yield_record(_record, one, f"{where}, {place}", skips)
        else:
            yield from yield_record(_record, value, where, skips)


def _listed(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the entities and relations of a graph, each with its place."""
    lists = {name: held for name in _LISTS if isinstance(held := value.get(name), list)}
    return [(f"{name} {at}", one) for name, held in lists.items() for at, one in enumerate(held, 1)]


def _kind(value: object) -> str:
    """Return the kind of an element; "" for anything else. Only the lines of the file name it."""
    kinds = (kind for kind, fields in _FIELDS.items() if isinstance(value, dict) and fields <= value.keys())
    return next((kind for kind in kinds if value.get("type", kind) == kind), "")  # type: ignore[attr-defined]


def _record(raw: object, where: str) -> ImportedRecord:
    value: Mapping[str, Any] = read_object(raw, where)

    def named(field: str) -> str:
        return whole_text(read_text(value.get(field), f"{where}, {field}")).strip()

    element = _kind(value)
    if element == "entity":
        observed = read_list(value.get("observations"), f"{where}, observations")
        facts = [whole_text(read_text(one, f"{where}, observations")).strip() for one in observed]
        kind = named("entityType")
        name = f"{named('name')} ({kind})" if kind else named("name")
        text = f"{name}: {'; '.join(filter(None, facts))}" if any(facts) else name
    elif element == "relation":
        text = f"{named('from')} {named('relationType').replace('_', ' ')} {named('to')}"
    else:
        raise expected(where, "an entity or a relation", sorted(value))
    return ImportedRecord(MemoryRecord(text, kind=element), SOURCE)

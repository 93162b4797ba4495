"""Memories on their way between providers: what a backend keeps of one, and pages of a list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hermes_core.contract.values import MemoryPage, MemoryRecord

PAGE_SIZE = 200
"""Records of a page. Each page is one call, and a call of a remote backend takes about as long as its records."""


def pack_record(record: MemoryRecord) -> str:
    """Return the fields of a record beside its text and id as one text, for a backend that keeps such a text with a memory.

    >>> pack_record(MemoryRecord("Likes tea", kind="user_pref"))
    '{"kind":"user_pref"}'
    """
    fields = record.to_dict()
    packed = {name: value for name, value in fields.items() if value and name not in ("text", "id")}
    return json.dumps(packed, separators=(",", ":"), sort_keys=True)


def unpack_record(packed: str, record: MemoryRecord) -> MemoryRecord:
    """Return the record with the fields that `pack_record` wrote; the record itself if the text is another one.

    Args:
        packed: What the backend keeps beside the memory.
        record: The memory as the backend alone knows it.
    """
    try:
        fields = json.loads(packed)
        whole = MemoryRecord.from_dict({**fields, "text": record.text})
    except (ValueError, TypeError, RecursionError):
        return record
    return replace(whole, id=record.id)


def page_of(records: Sequence[MemoryRecord], cursor: str, size: int = PAGE_SIZE) -> MemoryPage:
    """Return the page of a list that a cursor names. Use it if the backend gives the whole list at once."""
    start = int(cursor) if cursor.isdecimal() else 0
    end = start + size
    return MemoryPage(tuple(records[start:end]), str(end) if end < len(records) else "")

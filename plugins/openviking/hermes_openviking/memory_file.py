"""A memory file: its text, and behind it the fields that the server keeps of it and shows nobody."""

from __future__ import annotations

import json
import re
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.kit import epoch_time, pack_record, unpack_record, utc_time

_FIELDS = re.compile(r"\s*<!-- MEMORY_FIELDS\s*\n(.*?)\n-->\s*$", re.DOTALL)
_LINE_OF_FIELDS = re.compile(r'\s*(?:<!-- MEMORY_FIELDS|-->|[{}\]],?\s*$|"\w+": )')
_RECORD = "hermes_record"


def with_record(text: str, record: MemoryRecord) -> str:
    """Return the file of a memory that comes from another provider, with its times and all further facts as fields."""
    times = {"created_at": utc_time(record.created_at), "updated_at": utc_time(record.updated_at)}
    fields = {**{name: time for name, time in times.items() if time}, _RECORD: pack_record(record)}
    return f"{text}\n\n<!-- MEMORY_FIELDS\n{json.dumps(fields, indent=2)}\n-->"


def split_fields(file: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a file as it is stored, and the fields, {} if there are none."""
    found = _FIELDS.search(file)
    if found is None:
        return file.strip(), {}
    try:
        fields = json.loads(found[1])
    except (ValueError, RecursionError):
        fields = None
    return file[: found.start()].strip(), fields if isinstance(fields, dict) else {}


def record_of(file: str, uri: str, kind: str, changed: str) -> MemoryRecord:
    """Return the memory in a file as it is stored. `changed` is the time of the file, which counts if no field has one."""
    text, fields = split_fields(file)
    created, updated = (epoch_time(str(fields.get(name) or "")) for name in ("created_at", "updated_at"))
    record = MemoryRecord(text, uri, created, updated or (0.0 if created else epoch_time(changed)), kind)
    return unpack_record(str(fields.get(_RECORD) or ""), record)


def is_field(line: str) -> bool:
    """Return True for a line of a stored file that holds fields, and no text of the memory."""
    return _LINE_OF_FIELDS.match(line) is not None

"""Importer for Supermemory: memories and documents, as the lists of its API answer them.

A memory becomes a record, except an older version and one that was forgotten; so does a document with its content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    ImportedRecord,
    SkipLog,
    expected,
    read_fact,
    read_list,
    read_object,
    read_records,
    read_text,
    read_time,
    whole_text,
)
from hermes_memory_importers.conversations import note_other_lists, yield_record

SOURCE = "supermemory"

_LISTS = ("memories", "memoryEntries", "documents", "results")
_PIECES = "chunks"

_MARKS = {"isLatest", "isForgotten", "isStatic", "isInference", "similarity", "spaceId"}
_DOCUMENT = {"containerTags", "customId", "connectionId", "processingMetadata", "memoryEntries", "system"}


def score_supermemory(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 for an answer or an element of Supermemory, else 0."""
    if not isinstance(value, dict):
        return 0
    listed = [one for name in _LISTS if isinstance(value.get(name), list) for one in value[name][:5]]
    known = _kind(value) or any(isinstance(one, dict) and _kind(one) for one in [*listed, *_profile(value)])
    return 5 if known else 0


def read_supermemory(path: Path, skips: SkipLog) -> Iterator[ImportedRecord]:
    """Yield a record for each memory and each document."""
    for number, raw in enumerate(read_records(path, skips), 1):
        where = f"record {number}"
        try:
            value = read_object(raw, where)
            if _kind(value):
                yield from _element(value, where, skips)
                continue
            elements = [
                (name, one)
                for name in _LISTS
                if value.get(name)
                for one in read_list(value[name], f"{where}, {name}")
            ]
            elements += [("profile", one) for one in _profile(value)]
            pieces = len(read_list(value.get(_PIECES) or [], f"{where}, {_PIECES}"))
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        skips.open(len(elements))
        note_other_lists(value, (*_LISTS, _PIECES), where, skips)
        skips.note_part("pieces of documents", where, pieces)
        for at, (name, one) in enumerate(elements, 1):
            yield from _element(one, f"{where}, {name} {at}", skips)


def _profile(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the memories of the profile of a person, whose answer has only their texts."""
    profile = value.get("profile")
    lists = profile.items() if isinstance(profile, dict) else ()
    return [
        {"memory": text, "isStatic": name == "static"}
        for name, held in lists
        for text in (held if isinstance(held, list) else [])
    ]


def _kind(value: Mapping[str, Any]) -> str:
    if isinstance(value.get("memory"), str):
        return "memory" if _MARKS & value.keys() else ""
    is_document = bool(_DOCUMENT & value.keys()) and "type" in value and "title" in value
    return "document" if is_document else ""


def _element(raw: object, where: str, skips: SkipLog) -> Iterator[ImportedRecord]:
    kind = _kind(raw) if isinstance(raw, dict) else ""
    if kind == "memory" and isinstance(raw, dict):
        if raw.get("isForgotten"):
            skips.note("memories that were forgotten", where)
            return
        if raw.get("isLatest") is False:
            skips.note("older versions of memories", where)
            return
    yield from yield_record(partial(_record, kind=kind, skips=skips), raw, where, skips)
    entries = raw.get("memoryEntries") if isinstance(raw, dict) else None
    for at, entry in enumerate(entries if isinstance(entries, list) else (), 1):
        skips.open(1, 0)
        yield from _element(entry, f"{where}, memory {at}", skips)


def _record(raw: object, where: str, kind: str, skips: SkipLog) -> ImportedRecord:
    value = read_object(raw, where)
    if not kind:
        raise expected(where, "a memory or a document", sorted(value))
    system = value.get("system")
    facts = {**value, **system} if isinstance(system, dict) else value
    created, updated = (
        read_fact(read_time, facts.get(name), f"{where}, {name}", skips)
        for name in ("createdAt", "updatedAt")
    )
    title = read_text(value.get("title"), f"{where}, title").strip()
    if kind == "memory":
        text = read_text(value["memory"], where).strip()
    else:
        text = read_text(value.get("content") or value.get("summary"), f"{where}, content").strip()
        text = f"{title}: {text}" if title and text and not text.startswith(title) else text
    named = value.get("containerTags")
    tags = tuple(tag for tag in named if isinstance(tag, str)) if isinstance(named, list) else ()
    record = MemoryRecord(
        whole_text(text), created_at=created or 0.0, updated_at=updated or 0.0, kind=kind, tags=tags
    )
    return ImportedRecord(record, SOURCE, title)

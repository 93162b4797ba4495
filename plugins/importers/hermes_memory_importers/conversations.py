"""Steps that the readers of several tools share: sessions of whole conversations, and the record of one value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_memory_importers import NO_WORDS, ImportedRecord, ImportedSession, SkipLog, StreamedSession


def stream_conversations(
    values: Iterable[Any], read: Callable[[Any, str], ImportedSession], skips: SkipLog
) -> Iterator[StreamedSession]:
    """Yield the sessions that `read(value, place)` makes of values, without empty ones.

    A conversation that can't be read is logged as a fault, and the next one is read.
    """
    for index, value in enumerate(values, 1):
        where = f"conversation {index}"
        try:
            session = read(value, where)
        except ImportFailed as exc:
            skips.fault(exc)
            continue
        if session.turns:
            yield replace(session, turns=()), session.turns
        else:
            skips.note_part("conversations without a word", where)


def yield_record(
    read: Callable[[object, str], ImportedRecord], value: object, where: str, skips: SkipLog
) -> Iterator[ImportedRecord]:
    """Yield the record that `read(value, where)` makes. One without words, or that can't be read, is counted."""
    try:
        record = read(value, where)
    except ImportFailed as exc:
        skips.fault(exc)
        return
    if record.record.text.strip():
        yield record
    else:
        skips.note(NO_WORDS, where)


def note_other_lists(value: Mapping[str, Any], known: Collection[str], where: str, skips: SkipLog) -> None:
    """Count the objects of an answer's lists that its importer does not read; `known` names the others."""
    for name, held in value.items():
        if name not in known and isinstance(held, list):
            count = sum(isinstance(one, dict) for one in held)
            skips.note_part(f"elements of the list {name[:40]!r}", f"{where}, {name}", count)

"""A step that the readers of several tools share: sessions of whole conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.importers import ImportedSession, SkipLog, StreamedSession


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

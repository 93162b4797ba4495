"""Steps that the readers of several tools share: sessions of whole conversations, and tool calls."""

from __future__ import annotations

import json
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
            skips.note("conversations without a word", where)


def tool_call(call_id: str, name: str, arguments: object) -> dict[str, object]:
    """Return a tool call in the form of chat APIs. Arguments that are no text become JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}

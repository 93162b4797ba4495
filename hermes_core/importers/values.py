"""What an importer hands over: sessions of turns of messages, frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """One message. `role` is user, assistant or tool; `speaker` and `ref` are the file's own name and reference for it.

    `timestamp` is in seconds since the epoch, None where the file has none.
    """

    role: str
    content: str
    speaker: str = ""
    ref: str = ""
    timestamp: float | None = None
    tool_name: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """What the person said and all that answered it."""

    messages: tuple[ImportedMessage, ...]


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One conversation. `id` is the same at every import of it; `source` is the format it came from."""

    id: str
    source: str
    title: str
    started_at: float | None
    turns: tuple[ImportedTurn, ...]


def into_turns(messages: Iterable[ImportedMessage]) -> tuple[ImportedTurn, ...]:
    """Cut a conversation where the person speaks after an answer; messages sent in a row stay in one turn."""
    turns: list[list[ImportedMessage]] = []
    for message in messages:
        if not turns or (message.role == "user" and turns[-1][-1].role != "user"):
            turns.append([])
        turns[-1].append(message)
    return tuple(ImportedTurn(tuple(turn)) for turn in turns)

"""What an importer reads out of a file: sessions of turns of messages, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """One message. `ref` is its own id in the file, unique within its session; `timestamp` is in epoch seconds."""

    role: str
    content: str
    speaker: str = ""
    ref: str = ""
    timestamp: float | None = None
    tool_name: str = ""
    tool_calls: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """One exchange: the user's message or messages, then the assistant's."""

    messages: tuple[ImportedMessage, ...]


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One conversation. `id` is the same each time the file is read, so that a second import adds nothing."""

    id: str
    source: str
    title: str
    started_at: float | None
    turns: tuple[ImportedTurn, ...]

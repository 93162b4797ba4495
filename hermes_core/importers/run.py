"""Bring imported sessions into memory, exactly as live ones come: stored, searchable, and told to the provider."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hermes_core.contract.values import Message, Session
from hermes_core.importers.skipped import Skip
from hermes_core.importers.values import ImportedMessage, ImportedTurn, StreamedSession
from hermes_core.memory import Memory

PLATFORM = "import"

# Turn ids come from where a turn stood, so that a second import of the file finds its turns already there.
_NAMESPACE = uuid.UUID("6f2d2f1e-3d0c-5c4e-9a53-0d6a1f1c7f2b")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought in; `known` turns had been imported before, `skipped` tells what was left out."""

    sessions: int = 0
    turns: int = 0
    messages: int = 0
    known: int = 0
    skipped: tuple[Skip, ...] = ()


def import_sessions(
    memory: Memory,
    sessions: Iterable[StreamedSession],
    on_turn: Callable[[], None] = lambda: None,
) -> Imported:
    """Store every turn of `sessions` that is not stored yet; safe to run again, also after a kill.

    `on_turn` is called once a turn, for a progress bar.
    """
    total = Imported()
    for imported, turns in sessions:
        session = memory.start_session(
            imported.id,
            source=imported.source,
            title=imported.title,
            started_at=imported.started_at,
            **{"platform": PLATFORM, **imported.identity},
        )
        new = known = messages = 0
        for index, turn in enumerate(turns):
            stored = _import_turn(memory, session, index, turn, on_turn)
            new, known, messages = new + bool(stored), known + (not stored), messages + stored
        memory.end_session(session, "import")
        total = Imported(
            total.sessions + 1, total.turns + new, total.messages + messages, total.known + known
        )
    return total


def _import_turn(
    memory: Memory, session: Session, index: int, turn: ImportedTurn, on_turn: Callable[[], None]
) -> int:
    """The number of messages stored, 0 when the turn was known."""
    turn_id = uuid.uuid5(_NAMESPACE, f"{session.id}/{turn.id or index}").hex
    known = memory.sessions.has_turn(turn_id)
    if not known:
        memory.end_turn(
            session,
            _spoken(turn, "user"),
            _spoken(turn, "assistant"),
            messages=[_message(message) for message in turn.messages],
            turn_id=turn_id,
            at=next((m.timestamp for m in turn.messages if m.timestamp is not None), None),
        )
    on_turn()
    return 0 if known else len(turn.messages)


def _spoken(turn: ImportedTurn, role: str) -> str:
    return "\n".join(message.content for message in turn.messages if message.role == role)


def _message(imported: ImportedMessage) -> Message:
    message = Message(role=imported.role, content=imported.content)
    if imported.speaker:
        message["speaker"] = imported.speaker
    if imported.ref:
        message["ref"] = imported.ref
    if imported.timestamp is not None:
        message["timestamp"] = imported.timestamp
    if imported.tool_name:
        message["name"] = imported.tool_name
    if imported.tool_calls:
        message["tool_calls"] = [dict(call) for call in imported.tool_calls]
    return message

"""Bring imported sessions into memory, exactly as live ones come: stored, searchable, and told to the provider."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hermes_core.contract.values import Message, Session
from hermes_core.importers.again import as_known
from hermes_core.importers.fields import digest
from hermes_core.importers.skipped import Skip
from hermes_core.importers.values import ImportedMessage, ImportedTurn, StreamedSession
from hermes_core.memory import Memory
from hermes_core.sessions.records import storable, turn_ref

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
    for imported, turns in as_known(memory.sessions, sessions):
        who = {"platform": PLATFORM, **imported.identity}
        if memory.sessions.get_session(imported.id) is not None:
            # The home's own so far, if the file, or the import, said no more before.
            memory.sessions.create_session(imported.id, user=Session(imported.id, **who).owner)  # type: ignore[arg-type]
        session = memory.start_session(
            imported.id,
            source=imported.source,
            title=imported.title,
            started_at=imported.started_at,
            **who,
        )
        if imported.relation:  # filled in, since it is there now
            memory.sessions.create_session(imported.id, relation=imported.relation)
        new = known = messages = 0
        seen: dict[str, int] = {}
        for index, told in enumerate(turns):
            turn = _apart(told, seen)
            turn_id = _turn_id(memory, session, turn, index)
            if memory.sessions.has_turn(turn_id):
                known, messages = known + 1, messages + _import_rest(memory, session, turn, turn_id)
            else:
                new, messages = new + 1, messages + _import_turn(memory, session, turn_id, turn)
            on_turn()
        memory.end_session(session, "import")
        total = Imported(
            total.sessions + 1, total.turns + new, total.messages + messages, total.known + known
        )
    return total


def _apart(turn: ImportedTurn, seen: dict[str, int]) -> ImportedTurn:
    """The turn, in which a message that has the `ref` of another one has none: else it would be taken for that one."""
    messages = []
    for m in turn.messages:
        said = hash((m.role, m.content))
        messages.append(replace(m, ref="") if m.ref and seen.setdefault(m.ref, said) != said else m)
    return replace(turn, messages=tuple(messages))


def _turn_id(memory: Memory, session: Session, turn: ImportedTurn, index: int) -> str:
    """Made from the turn's name, or from its place; unless another one stood there, on a branch that was left since."""
    turn_id = _id(session, turn.id or str(index))
    first = turn.messages[0].ref
    if turn.id or not memory.sessions.has_turn(turn_id):
        return turn_id
    if not first:
        said = [(m.role, storable(m.content)) for m in turn.messages]
        there = memory.sessions.said_in_turn(turn_id)
        alike = all(one == other for one, other in zip(said, there, strict=False))
        return turn_id if alike else _id(session, f"{index} {digest(said)}")
    by_ref = _id(session, f"ref {first}")
    known = memory.sessions.has_message(session.id, first) and not memory.sessions.has_turn(by_ref)
    return turn_id if known else by_ref


def _id(session: Session, name: str) -> str:
    return uuid.uuid5(_NAMESPACE, f"{session.id}/{name}").hex


def _import_turn(memory: Memory, session: Session, turn_id: str, turn: ImportedTurn) -> int:
    """The number of messages stored."""
    memory.end_turn(
        session,
        _spoken(turn, "user"),
        _spoken(turn, "assistant"),
        messages=[_message(message) for message in turn.messages],
        turn_id=turn_id,
        at=next((m.timestamp for m in turn.messages if m.timestamp is not None), None),
    )
    return len(turn.messages)


def _import_rest(memory: Memory, session: Session, turn: ImportedTurn, turn_id: str) -> int:
    """The number of messages stored of a known turn: those that came to it since, as when an agent was still at work.

    The provider has had its turn, and is not told of it a second time.
    """
    stored = len(memory.sessions.said_in_turn(turn_id))
    rest = 0
    for number, m in enumerate(turn.messages):
        # What has no name of its own is known by its place in the turn.
        ref = m.ref or turn_ref(turn_id, number)
        if (not m.ref and number < stored) or memory.sessions.has_message(session.id, ref):
            continue
        memory.sessions.append_message(
            session.id,
            m.role,
            m.content,
            tool_calls=m.tool_calls,
            tool_name=m.tool_name,
            timestamp=m.timestamp,
            speaker=m.speaker,
            ref=ref,
        )
        rest += 1
    return rest


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

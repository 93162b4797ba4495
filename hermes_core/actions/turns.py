"""Report on a turn: its recall and notes."""

from __future__ import annotations

from msgspec.structs import replace

from hermes_core.contract.values import Session
from hermes_core.curated.document import entry_handle
from hermes_core.errors import MemoryConflict, SessionError
from hermes_core.memory import Memory
from hermes_core.sessions.turn_records import (
    MAX_TEXT_CHARS,
    RecalledItem,
    StoredTurnRecord,
    turn_record,
)

GONE = "(removed since)"


def explained_turn(memory: Memory, session: Session, turn_id: str) -> StoredTurnRecord:
    """Return a turn with its record, in which notes and messages have the texts that they have now.

    Raises:
        SessionError: There is no such turn, or it is of another user.
    """
    turn = turn_record(memory.sessions, turn_id)
    if turn is None or turn.user != session.owner:
        raise SessionError(f"there is no turn {turn_id!r}", "list them: hermes-memory turns list")
    if turn.record is None:
        return turn
    texts = _notes(memory, session)
    sources = tuple(
        replace(source, items=tuple(_with_text(memory, session, item, texts) for item in source.items))
        for source in turn.record.sources
    )
    return replace(turn, record=replace(turn.record, sources=sources))


def _notes(memory: Memory, session: Session) -> dict[str, str]:
    """Return the notes of a user by their handles."""
    notes = memory.curated.of(session).read()
    texts: dict[str, str] = {}
    for target in notes.files:
        try:
            texts |= {entry_handle(entry): entry for entry in notes.entries(target)}
        except MemoryConflict:  # `memory status` says what is wrong with the file
            continue
    return texts


def _with_text(memory: Memory, session: Session, item: RecalledItem, notes: dict[str, str]) -> RecalledItem:
    """Return an item with the text of the note or message that it names."""
    if item.text:
        return item
    text = notes.get(item.handle, GONE) if item.handle else GONE
    if item.message_id is not None:
        message = memory.sessions.get_message(item.message_id)
        stored = memory.sessions.get_session(message.session_id) if message else None
        if message is not None and stored is not None and stored.user == session.owner:
            text = message.content[slice(*item.span)] if item.span else message.content
    return replace(item, text=text[:MAX_TEXT_CHARS])

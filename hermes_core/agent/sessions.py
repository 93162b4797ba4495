"""The agent's sessions in state.db: which one to go on with, and its messages there and back."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from hermes_core.agent.answer import KEPT_BACK, Chat, ToolRequest, Usage
from hermes_core.agent.compression import SUMMARY_MARK, is_summary, text_of
from hermes_core.agent.given import id_of
from hermes_core.agent.tools import sendable
from hermes_core.agent.turn import Turn, title_of
from hermes_core.contract.values import Message, Session
from hermes_core.errors import SessionError
from hermes_core.memory import Memory, known_context
from hermes_core.sessions.lineage import clean_title
from hermes_core.sessions.records import StoredMessage, storable, turn_of_ref, turn_ref
from hermes_core.sessions.records import text_of as stored_text

RECENT = 6
"""Messages before the person's that providers are told with a recall."""


def identify(memory: Memory, session_id: str, identity: Mapping[str, Any]) -> Session:
    """The session to begin, or to go on with where it is stored: then the newest of its compressions.

    Raises `SessionError` when the stored one is another person's, for what is no id, and for no known `agent_context`.
    """
    session_id = id_of(session_id) if session_id else ""
    known = memory.sessions.get_session(memory.sessions.compression_tip(session_id)) if session_id else None
    fields: dict[str, Any] = {"identity": memory.home.profile, **identity, "home": str(memory.home.path)}
    if known is None:
        return known_context(Session(id=session_id or uuid.uuid4().hex, **fields))
    session = Session(id=known.id, **{**fields, "parent_id": known.parent_id})
    if known.user != session.owner:
        raise SessionError(f"session {session_id!r} belongs to another user", "use an id of your own")
    return known_context(session)


def find_session(memory: Memory, text: str, mine: Session) -> Session:
    """The stored session that `text` names, of the same person as `mine`. Raises `SessionError`."""
    found = memory.sessions.find_session(id_of(text), user=mine.owner)
    if found is None:
        raise SessionError(
            f"there is no session {text!r}",
            "list them with `hermes-memory sessions list`; a part of an id must begin no other",
        )
    known = memory.sessions.get_session(memory.sessions.compression_tip(found.id)) or found
    return replace(mine, id=known.id, parent_id=known.parent_id)


def undoable(memory: Memory, session: Session, turns: int, seen: Sequence[Chat]) -> StoredMessage:
    """The person's message that begins the last `turns` turns, to take them back. Raises `SessionError` without so many,
    and when one of them is not in the conversation that the person has `seen`: another process has it.

    What a compression carried along belongs to turns of the session before, which providers know under that one.
    """
    if not isinstance(turns, int) or turns < 1:
        raise SessionError(f"{turns!r} is no number of turns", "give 1 or more")
    if memory.sessions.compression_tip(session.id) != session.id:
        raise SessionError("another process has compressed this conversation", "go on with it before")
    stored = memory.sessions.get_session(session.id)
    carried = stored is not None and stored.relation == "compression"
    messages = memory.sessions.get_messages(session.id)
    said = [m for m in messages if m.role == "user" and not m.content.startswith(SUMMARY_MARK)]
    asked = [m for m in said if not m.carried and (m.ref or not carried)]
    if len(asked) < turns:
        few = f"of {turns} turns only {len(asked)} can be taken back"
        raise SessionError(
            few if asked else "there is no turn to take back",
            "what was said before a compression or in another session stays",
        )
    known = [
        storable(stored_text(m.get("content"))) for m in seen if m["role"] == "user" and not is_summary(m)
    ]
    wanted = [message.content for message in asked[-turns:]]
    if not set(wanted) <= set(known):
        raise SessionError(
            "another process said something in this session that is not seen here",
            "take it back there, or leave and resume the session",
        )
    if wanted != known[-turns:]:  # a full disk kept it out, or it stands in the session of another process
        raise SessionError("what was said last is not stored in this session", "so it can't be taken back")
    return asked[-turns]


def successor(session: Session, parent: bool) -> Session:
    """A new session of the same person in the same place."""
    return replace(session, id=uuid.uuid4().hex, parent_id=session.id if parent else "")


def store_message(
    memory: Memory, session_id: str, message: Chat, ref: str = "", speaker: str = "", carried: bool = False
) -> int:
    """Put one chat message into state.db; one that is kept back stays so where it is copied to."""
    return memory.sessions.append_message(
        session_id,
        message["role"],
        message.get("content"),
        tool_calls=message.get("tool_calls", ()),
        tool_name=message.get("name", ""),
        tool_call_id=message.get("tool_call_id", ""),
        reasoning=message.get("reasoning", ""),
        speaker=speaker,
        ref=ref or message.get(KEPT_BACK, ""),
        carried=carried,
    )


def tell_of_turn(memory: Memory, session: Session, text: str) -> None:
    """Let the providers hear that the person spoke, where nothing is recalled."""
    memory.manager.on_turn_start(memory.sessions.turn_count(session.id) + 1, text, session)


def store_turn(memory: Memory, session: Session, turn: Turn, *, warm: bool) -> None:
    """Mark a turn as complete, and hand it to the provider."""
    memory.end_turn(
        session,
        turn.text,
        turn.answer,
        messages=turn.stored(),
        turn_id=turn.id,
        warm=warm,
        author=turn.author,
    )


def store_usage(memory: Memory, session_id: str, usage: Usage, beside: Callable[[], None]) -> None:
    """Add to the session's counters what a turn used, and store what is to be stored `beside`."""
    with memory.sessions.transaction():
        if usage != Usage():
            memory.sessions.add_usage(
                session_id,
                input_tokens=usage.prompt,
                output_tokens=usage.completion,
                cache_read_tokens=usage.cached,
            )
        beside()


def give_title(memory: Memory, session_id: str, title: str) -> None:
    """Name a session that has no title yet."""
    with memory.sessions.transaction():  # or another takes the number in between
        stored = memory.sessions.get_session(session_id)
        if stored is not None and not stored.title:
            memory.sessions.set_title(session_id, memory.sessions.next_title(title, user=stored.user))


def take_back(memory: Memory, session_id: str, message_id: int) -> list[str]:
    """Take back this message and all after it, and the session's title if it was made of one of them; the ids of the
    turns that go.
    """
    sessions, before = memory.sessions, _titles(memory, session_id)
    turns = sessions.rewind(session_id, message_id)
    stored, gone = sessions.get_session(session_id), before - _titles(memory, session_id)
    if stored is not None and {stored.title, re.sub(r" #\d+$", "", stored.title)} & gone:
        sessions.set_title(session_id, "")
    return turns


def _titles(memory: Memory, session_id: str) -> set[str]:
    """What each message of the person would name the session."""
    said = (m.content for m in memory.sessions.get_messages(session_id) if m.role == "user")
    return {clean_title(title_of(text)) for text in said}


def said_elsewhere(memory: Memory, session_id: str, after: int, own: Collection[str]) -> list[StoredMessage]:
    """What other processes said in a session after this message: turns that ended, and are none of one's `own`."""

    def ended(message: StoredMessage) -> bool:
        turn_id = turn_of_ref(message.ref)
        return turn_id not in own and (not turn_id or memory.sessions.has_turn(turn_id))

    stored = memory.sessions.get_messages(session_id)
    return [m for m in stored if m.id > after and not m.carried and ended(m)]


def carry_turn(memory: Memory, turn: Turn, session_id: str) -> None:
    """Put a turn also where its session goes on, if another process has compressed that meanwhile."""
    tip = memory.sessions.compression_tip(session_id)
    for message, stored in zip(turn.chat(), turn.messages, strict=True) if tip != session_id else ():
        store_message(memory, tip, message, stored["ref"], turn.speaker_of(message), carried=True)


def conversation(memory: Memory, session_id: str) -> list[Chat]:
    """The live messages of a session as the model is given them; those that are kept back from providers say so."""
    live = [message for message in memory.sessions.get_messages(session_id) if not message.compacted]
    ended = memory.sessions.turns_among({turn_of_ref(message.ref) for message in live})
    return [
        chat_of(message) if turn_of_ref(message.ref) in ended else chat_of(message) | {KEPT_BACK: message.ref}
        for message in live
    ]


def chat_of(message: StoredMessage) -> Chat:
    """A stored message as the model is given it. Tool calls that an import or a host stored in a form of their own become
    those of a chat, and parts their text.
    """
    chat = message.as_chat()
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in message.parts):
        chat["content"] = message.content
    if message.tool_calls:
        chat["tool_calls"] = [_as_call(call, message.id, at) for at, call in enumerate(message.tool_calls)]
    return chat


def _as_call(call: Any, message_id: int, at: int) -> Chat:
    """The call where it is one of a chat already. An id that it lacks is made of its place: Mistral takes nine digits."""
    own: Mapping[str, Any] = call if isinstance(call, Mapping) else {}
    function = own.get("function", own)
    function = function if isinstance(function, Mapping) else {}
    given = function.get("arguments")
    name, arguments = str(function.get("name") or ""), given if isinstance(given, str) else json.dumps(given)
    made = ToolRequest(str(own.get("id") or f"{message_id % 10**7:07}{at % 100:02}"), name, arguments)
    return dict(own) if {**own, **made.chat()} == own else sendable(made).chat()


def kept_back_too(before: Sequence[Chat], shorter: Sequence[Chat]) -> list[Chat]:
    """A conversation after its compression. Where a message is gone from it that was kept back from providers, what stands
    in its place is kept back as well.
    """
    there = [message.get(KEPT_BACK) for message in shorter]
    if all(message.get(KEPT_BACK) in there for message in before if KEPT_BACK in message):
        return list(shorter)
    made = uuid.uuid4().hex
    return [
        message if message in before else {**message, KEPT_BACK: turn_ref(made, number)}
        for number, message in enumerate(shorter)
    ]


def last_told(history: Sequence[Chat]) -> list[Message]:
    """The last messages of those that a provider may be told."""
    found = islice((message for message in reversed(history) if KEPT_BACK not in message), RECENT)
    return as_text([*found][::-1])


def as_text(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Messages as providers see them: role and text."""
    return [Message(role=m["role"], content=text_of(m.get("content"))) for m in messages]


def compressed(memory: Memory, session: Session) -> list[str]:
    """The sessions that were compressed into this one, the last first."""
    before: list[str] = []
    found = memory.sessions.get_session(session.id)
    while found is not None and found.relation == "compression" and len(before) < 100:
        before.append(found.parent_id)
        found = memory.sessions.get_session(found.parent_id)
    return before

"""The agent's turns and sessions: messages in memory, and in state.db and back."""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, cast

from hermes_core.agent.answer import ECHO, HIDDEN, ChatMessage, Messages, ToolRequest, Usage
from hermes_core.agent.compression import SUMMARY_MARK, is_summary
from hermes_core.agent.tools import sendable
from hermes_core.agent.validation import session_id_of
from hermes_core.contract.values import Message, Session
from hermes_core.errors import SessionError
from hermes_core.manager.manager import RecallResult
from hermes_core.memory import Memory, TurnRecall, known_context
from hermes_core.safety.fence import sanitize_context
from hermes_core.safety.redact import redact
from hermes_core.sessions.lineage import clean_title
from hermes_core.sessions.records import StoredMessage, sqlite_text, text_of, turn_of_ref, turn_ref

# Messages before the person's that providers get with a recall.
RECENT_MESSAGES = 6

MAX_TITLE = 60

# A message of the person: text, or OpenAI content parts of text and pictures.
TurnInput = str | Sequence[Mapping[str, Any]]

TurnOutcome = Literal["answered", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn.

    Attributes:
        text: The text that the person saw.
        outcome: "answered", "interrupted" or "failed".
        session_id: The session of the turn; a compression may have changed it.
        turn_id: The id of the turn.
        recall: The recall of each provider.
        problems: A sentence for each part of memory or model that did not work.
        tool_calls: Number of tool calls.
        usage: Tokens of the turn's own requests; a subagent's are counted with its session.
        contexts: Label and text of all that was recalled, from past sessions too.
    """

    text: str
    outcome: TurnOutcome
    session_id: str
    turn_id: str
    recall: RecallResult = field(default_factory=RecallResult)
    problems: tuple[str, ...] = ()
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    contexts: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class AgentTurn:
    """A turn in progress.

    Attributes:
        text: The person's message as recall, titles and providers see it.
        author: The name of the person, if several speak in the session.
        content: The person's message as the model gets it.
        messages: The messages so far, the person's first.
        message_id: The id under which the person's message is stored; 0 before that.
    """

    text: str
    author: str
    content: Any = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    messages: list[ChatMessage] = field(default_factory=list)
    message_id: int = 0
    recall: TurnRecall | None = None
    answer: str = ""
    outcome: TurnOutcome = "failed"
    used_memory: bool = False

    @classmethod
    def of(cls, message: TurnInput, author: str = "") -> AgentTurn:
        """Begin a turn with a message, from which fences are removed. Raise `SessionError` if it is no message."""
        content: Any
        if isinstance(message, str):
            content = sanitize_context(message)
        elif isinstance(message, Sequence) and all(isinstance(part, Mapping) for part in message):
            content = [_valid_part(part) for part in message if isinstance(part, Mapping)]
        else:
            raise SessionError(
                f"a message must be a text or a list of content parts, got {message!r}", "write a message"
            )
        return cls(text_of(content), author, content)

    def add(self, message: ChatMessage) -> str:
        """Add a message; return the reference under which it is stored once, however often that is tried."""
        ref = turn_ref(self.id, len(self.messages))
        self.messages.append({**message, "ref": ref})
        calls = message.get("tool_calls", ())
        self.used_memory = self.used_memory or any(call["function"]["name"] == "memory" for call in calls)
        return ref

    def speaker_of(self, message: ChatMessage) -> str:
        """Return the author for the person's messages, "" for others."""
        return self.author if message["role"] == "user" else ""

    def chat(self) -> list[ChatMessage]:
        """Return the messages for the next request."""
        return [{key: value for key, value in message.items() if key != "ref"} for message in self.messages]

    def hidden(self) -> list[ChatMessage]:
        """Return the messages as `chat` does, each marked as hidden from providers."""
        pairs = zip(self.chat(), self.messages, strict=True)
        return [{**message, HIDDEN: stored["ref"]} for message, stored in pairs]

    def stored(self) -> list[Message]:
        """Return the messages as they are stored and as providers get them: text, without the model's thoughts."""
        return [_plain(message) for message in self.messages]

    def result(self, session_id: str, problems: Sequence[str], tool_calls: int, usage: Usage) -> TurnResult:
        """Return the result; `problems` are those of the agent, to which those of the recall are added."""
        recall = self.recall or TurnRecall(RecallResult(), ())
        # They reach the person and other programs; an error may quote an address with a password.
        all_problems = tuple(dict.fromkeys(map(redact, (*recall.problems, *problems))))
        visible = [text_of(m.get("content")) for m in self.messages if m["role"] == "assistant"]
        return TurnResult(
            self.answer or "".join(visible),
            self.outcome,
            session_id,
            self.id,
            recall.recall,
            all_problems,
            tool_calls,
            usage,
            recall.contexts,
        )


def _valid_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part without a fence. Raise `SessionError` for a part that would fail every later request too."""
    text = part.get("text")
    clean = {**part, "text": sanitize_context(text)} if isinstance(text, str) else dict(part)
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        json.dumps(clean, allow_nan=False)
        if isinstance(clean.get("type"), str):
            return clean
    raise SessionError(
        f"invalid content part {str(clean)[:200]}",
        "give its type, and what can be written as JSON: bytes as a data URL",
    )


def _plain(message: ChatMessage) -> Message:
    fields: dict[str, Any] = {key: value for key, value in message.items() if key not in ("reasoning", ECHO)}
    return cast(Message, {**fields, "content": text_of(message.get("content"))})


# -------------------------------------------------------------- sessions


def resolve_session(memory: Memory, session_id: str, identity: Mapping[str, Any]) -> Session:
    """Return the session with this id, or a new one. A compressed session continues in the newest of its compressions.

    Raises `SessionError` if the stored session is another person's, and for an unknown `agent_context`.
    """
    session_id = session_id_of(session_id) if session_id else ""
    stored = memory.sessions.get_session(memory.sessions.compression_tip(session_id)) if session_id else None
    fields: dict[str, Any] = {"identity": memory.home.profile, **identity, "home": str(memory.home.path)}
    if stored is None:
        return known_context(Session(id=session_id or uuid.uuid4().hex, **fields))
    session = Session(id=stored.id, **{**fields, "parent_id": stored.parent_id})
    if stored.user != session.owner:
        raise SessionError(f"session {session_id!r} belongs to another user", "use an id of your own")
    return known_context(session)


def find_session(memory: Memory, text: str, current: Session) -> Session:
    """Return the stored session of the same person that `text` names. Raise `SessionError` if there is none."""
    match = memory.sessions.find_session(session_id_of(text), user=current.owner)
    if match is None:
        raise SessionError(
            f"there is no session {text!r}",
            "list them with `hermes-memory sessions list`; a part of an id must begin no other",
        )
    newest = memory.sessions.get_session(memory.sessions.compression_tip(match.id)) or match
    return replace(current, id=newest.id, parent_id=newest.parent_id)


def successor(session: Session, parent: bool) -> Session:
    """Return a new session of the same person in the same place."""
    return replace(session, id=uuid.uuid4().hex, parent_id=session.id if parent else "")


def rewind_target(memory: Memory, session: Session, turns: int, history: Messages) -> StoredMessage:
    """Return the person's message that begins the last `turns` turns.

    Raises `SessionError` if there are not so many, and if one of them is not in `history`: another process said it.
    Messages that a compression copied belong to turns of the session before: providers know them under that one.
    """
    if not isinstance(turns, int) or turns < 1:
        raise SessionError(f"turns must be 1 or more, got {turns!r}", "give a number")
    if memory.sessions.compression_tip(session.id) != session.id:
        raise SessionError("another process has compressed this conversation", "send a message first")
    stored = memory.sessions.get_session(session.id)
    is_compression = stored is not None and stored.relation == "compression"
    messages = memory.sessions.get_messages(session.id)
    from_user = [m for m in messages if m.role == "user" and not m.content.startswith(SUMMARY_MARK)]
    own = [m for m in from_user if not m.copied and (m.ref or not is_compression)]
    if len(own) < turns:
        few = f"of {turns} turns only {len(own)} can be undone"
        raise SessionError(
            few if own else "there is no turn to undo",
            "turns before a compression or in another session stay",
        )
    visible = [
        sqlite_text(text_of(m.get("content"))) for m in history if m["role"] == "user" and not is_summary(m)
    ]
    wanted = [message.content for message in own[-turns:]]
    if not set(wanted) <= set(visible):
        raise SessionError(
            "another process added messages to this session that are not in this conversation",
            "undo them there, or leave and resume the session",
        )
    if wanted != visible[-turns:]:  # a full disk kept it out, or it is in the session of another process
        raise SessionError("the last turn is not stored in this session", "it can't be undone")
    return own[-turns]


def rewind_session(memory: Memory, session_id: str, message_id: int) -> list[str]:
    """Remove this message and all after it, and a title that was made of one of them; return the ids of the turns."""
    sessions, titles_before = memory.sessions, _default_titles(memory, session_id)
    turns = sessions.rewind(session_id, message_id)
    stored, removed = sessions.get_session(session_id), titles_before - _default_titles(memory, session_id)
    if stored is not None and {stored.title, re.sub(r" #\d+$", "", stored.title)} & removed:
        sessions.set_title(session_id, "")
    return turns


def set_default_title(memory: Memory, session_id: str, text: str) -> None:
    """Name a session without a title after its first message."""
    with memory.sessions.transaction():  # else another process takes the same number in between
        stored = memory.sessions.get_session(session_id)
        if stored is not None and not stored.title:
            memory.sessions.set_title(
                session_id, memory.sessions.next_title(title_of(text), user=stored.user)
            )


def title_of(text: str) -> str:
    """Return the beginning of a text as a title."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1].rsplit(" ", 1)[0] + "…"


def _default_titles(memory: Memory, session_id: str) -> set[str]:
    """Return the titles that the person's messages would give the session."""
    messages = memory.sessions.get_messages(session_id)
    return {clean_title(title_of(m.content)) for m in messages if m.role == "user"}


def compression_ancestors(memory: Memory, session: Session) -> list[str]:
    """Return the ids of the sessions that were compressed into this one, the newest first."""
    ids: list[str] = []
    stored = memory.sessions.get_session(session.id)
    # Bounded: a damaged row may point to itself.
    while stored is not None and stored.relation == "compression" and len(ids) < 100:
        ids.append(stored.parent_id)
        stored = memory.sessions.get_session(stored.parent_id)
    return ids


# -------------------------------------------------------------- messages


def store_message(
    memory: Memory,
    session_id: str,
    message: ChatMessage,
    ref: str = "",
    speaker: str = "",
    copied: bool = False,
) -> int:
    """Store a chat message and return its id; a message that is hidden from providers stays hidden as a copy."""
    return memory.sessions.append_message(
        session_id,
        message["role"],
        message.get("content"),
        tool_calls=message.get("tool_calls", ()),
        tool_name=message.get("name", ""),
        tool_call_id=message.get("tool_call_id", ""),
        reasoning=message.get("reasoning", ""),
        speaker=speaker,
        ref=ref or message.get(HIDDEN, ""),
        copied=copied,
    )


def copy_turn(memory: Memory, turn: AgentTurn, session_id: str) -> None:
    """Copy a turn to the newest session, if another process has compressed this one meanwhile."""
    tip = memory.sessions.compression_tip(session_id)
    if tip != session_id:
        for message, stored in zip(turn.chat(), turn.messages, strict=True):
            store_message(memory, tip, message, stored["ref"], turn.speaker_of(message), copied=True)


def messages_of_others(
    memory: Memory, session_id: str, after: int, own_turns: Collection[str]
) -> list[StoredMessage]:
    """Return the messages that other processes stored in a session after a message, in turns that ended."""

    def is_complete(message: StoredMessage) -> bool:
        turn_id = turn_of_ref(message.ref)
        return turn_id not in own_turns and (not turn_id or memory.sessions.has_turn(turn_id))

    stored = memory.sessions.get_messages(session_id)
    return [m for m in stored if m.id > after and not m.copied and is_complete(m)]


def load_history(memory: Memory, session_id: str) -> list[ChatMessage]:
    """Return the messages of a session for the model; those that are hidden from providers are marked."""
    live = [message for message in memory.sessions.get_messages(session_id) if not message.compacted]
    complete = {"", *filter(memory.sessions.has_turn, {turn_of_ref(message.ref) for message in live})}
    return [
        chat_of(message) if turn_of_ref(message.ref) in complete else chat_of(message) | {HIDDEN: message.ref}
        for message in live
    ]


def chat_of(message: StoredMessage) -> ChatMessage:
    """Return a stored message for the model.

    Imports and hosts may have stored tool calls and parts in another form: their calls are converted, and their parts
    become text.
    """
    chat = message.as_chat()
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in message.parts):
        chat["content"] = message.content
    if message.tool_calls:
        chat["tool_calls"] = [_chat_call(call, message.id, at) for at, call in enumerate(message.tool_calls)]
    return chat


def _chat_call(call: Any, message_id: int, at: int) -> ChatMessage:
    """Return a stored call as a chat's call. A missing id is made of the call's place: Mistral takes nine digits."""
    own: Mapping[str, Any] = call if isinstance(call, Mapping) else {}
    function = own.get("function", own)
    function = function if isinstance(function, Mapping) else {}
    stored = function.get("arguments")
    name, arguments = (
        str(function.get("name") or ""),
        stored if isinstance(stored, str) else json.dumps(stored),
    )
    request = ToolRequest(str(own.get("id") or f"{message_id % 10**7:07}{at % 100:02}"), name, arguments)
    return dict(own) if {**own, **request.chat()} == own else sendable(request).chat()


def recent_messages(history: Messages) -> list[Message]:
    """Return the last messages that are not hidden from providers."""
    newest_first = islice((m for m in reversed(history) if HIDDEN not in m), RECENT_MESSAGES)
    return text_messages([*newest_first][::-1])


def text_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages as providers see them: role and text."""
    return [Message(role=m["role"], content=text_of(m.get("content"))) for m in messages]

"""The agent's turns and sessions: the turn in progress, and reading and writing of sessions in state.db."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, cast

from hermes_core import Memory, TurnRecall
from hermes_core.contract.values import Message, Origin, Session
from hermes_core.errors import SessionError, StorageError
from hermes_core.kit import redact
from hermes_core.manager.manager import RecallResult
from hermes_core.origins import is_said
from hermes_core.problems import distinct
from hermes_core.safety.fence import without_context
from hermes_core.safety.origin import lowest, may_command
from hermes_core.safety.terminal import counted
from hermes_core.sessions.lineage import clean_title
from hermes_core.sessions.records import (
    StoredMessage,
    meta_key,
    read_meta,
    sqlite_text,
    text_of,
    turn_of_ref,
    turn_ref,
    words_of,
)
from hermes_memory_agent.answer import ECHO, HIDDEN, ORIGIN, ChatMessage, Messages, ToolRequest, Usage
from hermes_memory_agent.compression import SUMMARY_MARK, is_summary
from hermes_memory_agent.tools import sendable
from hermes_memory_agent.validation import session_id_of

log = logging.getLogger(__name__)

# Number of messages before the person's message that providers get when they are asked for recall.
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
        session_id: Id of the session in which the turn ended; a compression in the turn begins a new session.
        turn_id: The id of the turn.
        recall: The recall of each provider.
        problems: A sentence for each failure of the memory or the model.
        tool_calls: Number of tool calls.
        usage: Tokens of the turn's own requests. Tokens of a subagent are stored with the subagent's session.
        contexts: Label and text of each recalled text, from providers and from past sessions.
        origin: The lowest origin of the messages of the turn.
        noted: Line for the person that names notes of the session that wait; "" for none, or if it is not shown.
        set_aside: True if the model's server refused the message for good: later requests leave it out.
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
    origin: Origin = "person"
    noted: str = ""
    set_aside: bool = False


@dataclass(slots=True)
class AgentTurn:
    """A turn in progress.

    Attributes:
        text: The person's message as text, for recall, titles and providers.
        author: The name of the person, if several speak in the session.
        content: The person's message as the model gets it: text, or a list of content parts.
        id: The id of the turn.
        messages: The messages of the turn so far, beginning with the person's message.
        message_id: The id of the person's message in state.db; 0 until the message is stored.
        recall: The recall of the turn; None before recall, or if there was none.
        answer: The text of the answer.
        outcome: "answered", "interrupted" or "failed".
        used_memory: True if the model called the memory tool.
        origin: Origin of the person's message.
        shows_line: True if the program shows the line that names notes that wait.
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
    origin: Origin = "person"
    shows_line: bool = False
    set_aside: bool = False

    @classmethod
    def of(cls, message: TurnInput, author: str = "", origin: Origin = "person") -> AgentTurn:
        """Begin a turn with a message. A text that no person wrote loses recall fences.

        Raise `SessionError` if `message` is neither a text nor a list of valid content parts.
        """
        content: Any
        if isinstance(message, str):
            content = message
        elif isinstance(message, Sequence) and all(isinstance(part, Mapping) for part in message):
            content = [_valid_part(part) for part in message if isinstance(part, Mapping)]
        else:
            raise SessionError(
                f"a message must be a text or a list of content parts, got {message!r}", "write a message"
            )
        content = without_context(content, is_said=is_said(origin))
        return cls(text_of(content), author, content, origin=origin)

    def add(self, message: ChatMessage) -> str:
        """Add a message to the turn; return its `ref`, which keeps state.db from storing the message twice."""
        ref = turn_ref(self.id, len(self.messages))
        self.messages.append({**message, "ref": ref})
        calls = message.get("tool_calls", ())
        self.used_memory = self.used_memory or any(call["function"]["name"] == "memory" for call in calls)
        return ref

    def speaker_of(self, message: ChatMessage) -> str:
        """Return the author if `message` is the person's, else ""."""
        return self.author if message["role"] == "user" else ""

    def chat(self) -> list[ChatMessage]:
        """Return the messages of the turn in chat form, as the model gets them."""
        return [{key: value for key, value in message.items() if key != "ref"} for message in self.messages]

    def hidden(self) -> list[ChatMessage]:
        """Return the messages of the turn in chat form, each marked as hidden from providers."""
        pairs = zip(self.chat(), self.messages, strict=True)
        return [{**message, HIDDEN: stored["ref"]} for message, stored in pairs]

    def stored(self) -> list[Message]:
        """Return the messages of the turn for `Memory.end_turn`: content as text, without the model's thoughts."""
        return [_plain(message) for message in self.messages]

    def result(self, session_id: str, problems: Sequence[str], tool_calls: int, usage: Usage) -> TurnResult:
        """Return the result of the turn.

        Args:
            session_id: Id of the session in which the turn ended.
            problems: Sentences for failures outside of the recall. The result adds the failures of the recall.
            tool_calls: Number of tool calls.
            usage: Tokens of the turn's requests.
        """
        recall = self.recall or TurnRecall(RecallResult(), ())
        # Redacted, because problems reach the person and other programs: an error may quote an address with a password.
        all_problems = tuple(distinct(map(redact, (*recall.problems, *problems))))
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
            lowest(message.get(ORIGIN, "person") for message in self.messages),
            recall.noted,
            self.set_aside,
        )


def _valid_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a content part of a message. Raise `SessionError` if it is invalid.

    Servers refuse a request with an invalid part. If the part were stored, every later request of the session would
    fail.
    """
    clean = dict(part)
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


def resolve_session(
    memory: Memory, session_id: str, identity: Mapping[str, Any], problems: list[str]
) -> tuple[Session, bool]:
    """Return the stored session with this id and True, or a new session and False if none is stored.

    If state.db can't be read, the session is a new one, and `problems` gets a sentence about it. If the stored session was compressed, return the newest session that continues it. If another person has a session
    with this id, the person is appended to the id. Raises `SessionError` if the `agent_context` in `identity` is not one
    that the contract names, or if another person's session continues the session.

    Args:
        memory: The memory.
        session_id: Id of the session; "" for a new session with a new id.
        identity: Fields of `Session`: platform, user_id, chat_id and others.
        problems: List to which sentences are appended.
    """
    session = memory.session(session_id_of(session_id) if session_id else "", **identity)
    stored = None
    if session_id:
        try:
            stored = memory.sessions.get_session(memory.sessions.compression_tip(session.id))
        except StorageError as exc:
            log.warning("session %r can't be read: %s", session_id, exc)
            problems.append(f"reading the session failed: {exc}")
    if stored is None:
        return session, False
    if stored.user != session.owner and (stored.user or stored.message_count):
        # The newest session of a conversation may name another person's session as its parent.
        raise SessionError(f"session {session_id!r} belongs to another user", "use an id of your own")
    return replace(session, id=stored.id, parent_id=stored.parent_id), True


def find_session(memory: Memory, text: str, current: Session) -> Session:
    """Return the stored session whose id, beginning of an id, or title is `text`.

    Only sessions of the person of `current` count. If the session was compressed, return the newest session that
    continues it. Raise `SessionError` if there is no such session.
    """
    match = memory.sessions.find_session(session_id_of(text), user=current.owner)
    if match is None:
        raise SessionError(
            f"there is no session {text!r}",
            "list them with `hermes-memory sessions list`; a part of an id must begin no other",
        )
    newest = memory.sessions.get_session(memory.sessions.compression_tip(match.id)) or match
    return replace(current, id=newest.id, parent_id=newest.parent_id)


def successor(session: Session, parent: bool) -> Session:
    """Return a new session of the same person in the same place; with `parent`, as a child of `session`."""
    return replace(session, id=uuid.uuid4().hex, parent_id=session.id if parent else "")


def rewind_target(memory: Memory, session: Session, turns: int, history: Messages) -> StoredMessage:
    """Return the person's message with which the last `turns` turns of the session begin.

    Turns whose messages a compression copied into the session don't count: providers know them as turns of the session
    before the compression. Raises `SessionError` if the session has fewer turns, or if `history` lacks one of the turns
    because another process added it.
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
        few = f"of {counted(turns, 'turn')} only {len(own)} can be undone"
        raise SessionError(
            few if own else "there is no turn to undo",
            "turns before a compression or in another session stay",
        )
    visible = [
        sqlite_text(text_of(m.get("content"))) for m in history if m["role"] == "user" and not is_summary(m)
    ]
    refused = set_aside_turns(memory, session.id)
    wanted = [message.content for message in own[-turns:] if turn_of_ref(message.ref) not in refused]
    if not set(wanted) <= set(visible):
        raise SessionError(
            "another process added messages to this session that are not in this conversation",
            "undo them there, or leave and resume the session",
        )
    if (
        wanted != visible[len(visible) - len(wanted) :]
    ):  # a full disk prevented storing it, or another process compressed the session
        raise SessionError("the last turn is not stored in this session", "it can't be undone")
    return own[-turns]


def rewind_session(memory: Memory, session_id: str, message_id: int) -> list[str]:
    """Remove a message and all later messages from a session; return the ids of the turns that are removed.

    Also remove the session's title if it was made from one of the removed messages.
    """
    sessions, titles_before = memory.sessions, _default_titles(memory, session_id)
    turns = sessions.rewind(session_id, message_id)
    stored, removed = sessions.get_session(session_id), titles_before - _default_titles(memory, session_id)
    if stored is not None and {stored.title, re.sub(r" #\d+$", "", stored.title)} & removed:
        sessions.meta.set_title(session_id, "")
    return turns


def set_default_title(memory: Memory, session_id: str, text: str) -> None:
    """Give a session without a title the beginning of `text` as its title."""
    memory.sessions.meta.set_default_title(session_id, title_of(text))


def title_of(text: str) -> str:
    """Return the beginning of a text on one line, with at most `MAX_TITLE` characters, as a title."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1].rsplit(" ", 1)[0] + "…"


def _default_titles(memory: Memory, session_id: str) -> set[str]:
    """Return the default titles that the messages of the person in the session would have given it."""
    messages = memory.sessions.get_messages(session_id)
    return {clean_title(title_of(m.content)) for m in messages if m.role == "user"}


def compression_ancestors(memory: Memory, session: Session) -> list[str]:
    """Return the ids of the sessions that were compressed, one after another, into `session`; newest first."""
    ids: list[str] = []
    stored = memory.sessions.get_session(session.id)
    # Limited to 100, because a damaged row may be its own parent.
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
    """Store a chat message in state.db and return its id.

    Args:
        memory: The memory.
        session_id: Id of the session.
        message: The message. If it is marked as hidden from providers, its stored copy stays hidden.
        ref: The message's own id, which prevents storing it twice; "" for none.
        speaker: The name of the person who wrote the message.
        copied: True if a compression copies the message from another session.
    """
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
        origin=message.get(ORIGIN, ""),
    )


def copy_turn(memory: Memory, turn: AgentTurn, session_id: str) -> None:
    """Copy the messages of a turn to the newest session if another process compressed the turn's session meanwhile."""
    tip = memory.sessions.compression_tip(session_id)
    if tip != session_id:
        for message, stored in zip(turn.chat(), turn.messages, strict=True):
            store_message(memory, tip, message, stored["ref"], turn.speaker_of(message), copied=True)


def messages_of_others(
    memory: Memory, session_id: str, after: int, own_turns: Collection[str]
) -> list[StoredMessage]:
    """Return the messages of complete turns that other processes stored in a session.

    Args:
        memory: The memory.
        session_id: Id of the session.
        after: Id of a message; only later messages are returned.
        own_turns: Ids of this process's own turns.
    """

    def is_complete(message: StoredMessage) -> bool:
        turn_id = turn_of_ref(message.ref)
        return turn_id not in own_turns and (not turn_id or memory.sessions.has_turn(turn_id))

    stored = memory.sessions.get_messages(session_id)
    return [m for m in stored if m.id > after and not m.copied and is_complete(m)]


def set_aside_turns(memory: Memory, session_id: str) -> list[str]:
    """Return the ids of the turns of a session whose message the model's server refused for good."""
    key = meta_key("set_aside", session_id)
    turns: list[str] = read_meta(key, memory.sessions.meta.get(key), json.loads, [])
    return turns


def set_turn_aside(memory: Memory, session_id: str, turn_id: str) -> None:
    """Leave the messages of a turn out of what the model gets of a session, also in another process."""
    with memory.sessions.transaction():
        turns = [*set_aside_turns(memory, session_id), turn_id]
        memory.sessions.meta.set(meta_key("set_aside", session_id), json.dumps(turns))


def load_history(memory: Memory, session_id: str) -> list[ChatMessage]:
    """Return a stored session's messages for the model. Mark messages of incomplete turns as hidden from providers."""
    refused = set_aside_turns(memory, session_id)
    live = [
        message
        for message in memory.sessions.get_messages(session_id)
        if not message.ref or turn_of_ref(message.ref) not in refused
    ]
    complete = {"", *filter(memory.sessions.has_turn, {turn_of_ref(message.ref) for message in live})}
    return [
        chat_of(message) if turn_of_ref(message.ref) in complete else chat_of(message) | {HIDDEN: message.ref}
        for message in live
    ]


def chat_of(message: StoredMessage) -> ChatMessage:
    """Return a stored message in the OpenAI chat form, as the model gets it.

    If an import or a host stored tool calls or content parts in another form, convert the calls, and turn the parts
    into text.
    """
    # Earlier versions, other hosts and imports stored recall with the message. What a tool returned stays, because a
    # file that the agent read may hold a tag.
    clean = dict if message.role == "tool" else without_context
    chat: ChatMessage = clean(message.as_chat())
    if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in message.parts):
        chat["content"] = clean({"content": message.content})["content"]
    if message.role != "assistant" or not may_command(message.origin):  # as the loop writes it
        chat[ORIGIN] = message.origin
    if message.tool_calls:
        chat["tool_calls"] = [_chat_call(call, message.id, at) for at, call in enumerate(message.tool_calls)]
    return chat


def _chat_call(call: Any, message_id: int, at: int) -> ChatMessage:
    """Return a stored tool call in the OpenAI chat form.

    If the call has no id, make one of nine digits from its place, because Mistral accepts only ids of nine letters and
    digits.

    Args:
        call: The stored call.
        message_id: Id of the message that contains the call.
        at: Index of the call in the message.
    """
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


def said_in(history: Messages) -> list[str]:
    """Return the texts of the messages that the person wrote."""
    return [
        words_of(message.get("content"))
        for message in history
        if message["role"] == "user" and is_said(message.get(ORIGIN, "person")) and not is_summary(message)
    ]


def recent_messages(history: Messages) -> list[Message]:
    """Return the newest `RECENT_MESSAGES` messages that are not hidden from providers, oldest first."""
    newest_first = islice((m for m in reversed(history) if HIDDEN not in m), RECENT_MESSAGES)
    return text_messages([*newest_first][::-1])


def text_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages as providers get them for recall: only role and text."""
    return [Message(role=m["role"], content=text_of(m.get("content"))) for m in messages]

"""What the session store hands out and takes in, as plain values."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, cast

from hermes_core.contract.values import Message, Turn
from hermes_core.errors import SessionError
from hermes_core.sessions.times import epoch_seconds

_TURN_REF = re.compile(r"([0-9a-f]{32}):\d+")

Relation = Literal["", "compression", "branch", "delegation"]
"""How a session comes from its parent; "" leaves it to the times of the two."""


class State(IntEnum):
    """Of a message. Compacted ones left the context and are still found; rewound ones are shown nowhere; carried ones
    stand in the session before, which was compressed: they are in the context, and are found there.
    """

    LIVE = 0
    COMPACTED = 1
    REWOUND = 2
    CARRIED = 3


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as it lies in the store. `content` is its text; `parts` is set when it had other parts as well."""

    id: int
    session_id: str
    role: str
    content: str
    timestamp: float
    speaker: str = ""
    ref: str = ""
    tool_name: str = ""
    tool_call_id: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    reasoning: str = ""
    parts: tuple[Any, ...] = ()
    compacted: bool = False
    carried: bool = False

    def as_chat(self) -> dict[str, Any]:
        """In the OpenAI chat form, with all its parts."""
        chat: dict[str, Any] = {"role": self.role, "content": list(self.parts) or self.content}
        if self.tool_calls:
            chat["tool_calls"] = list(self.tool_calls)
        if self.tool_call_id:
            chat["tool_call_id"] = self.tool_call_id
        if self.tool_name:
            chat["name"] = self.tool_name
        return chat

    def as_text(self) -> Message:
        """In the form that providers see: text only, with who said it and when."""
        message = Message(role=self.role, content=self.content, timestamp=self.timestamp)
        if self.tool_calls:
            message["tool_calls"] = list(self.tool_calls)
        if self.tool_call_id:
            message["tool_call_id"] = self.tool_call_id
        if self.tool_name:
            message["name"] = self.tool_name
        if self.speaker:
            message["speaker"] = self.speaker
        return message


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session. `last_active` is the time of its newest message; `ended_at` is None while it lives."""

    id: str
    source: str
    user: str
    parent_id: str
    relation: str
    title: str
    model: str
    started_at: float
    last_active: float
    ended_at: float | None
    end_reason: str
    message_count: int
    tool_call_count: int
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class ListedSession:
    """An entry of the list: a conversation, shown as the newest session of its chain. `preview` is how it began."""

    session: StoredSession
    root_id: str
    preview: str


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """A turn that was stored whole. `key` grows with each; `complete_turns(since=key)` goes on after it.

    `identity` is the contract's `Session` as data, empty when the session was made without.
    """

    key: int
    session_id: str
    turn: Turn
    identity: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that answers. `score` compares within one search; `snippet` marks what matched as >>>this<<<."""

    message_id: int
    session_id: str
    role: str
    text: str
    snippet: str
    score: float
    timestamp: float
    speaker: str
    ref: str
    tool_name: str
    source: str
    model: str
    title: str
    session_started: float


@dataclass(frozen=True, slots=True)
class Window:
    """Messages around one: `messages` holds it; how many visible ones of the session stand before and after them."""

    messages: tuple[StoredMessage, ...]
    before: int
    after: int


# ---------------------------------------------------------------------- messages of a turn under way


def turn_ref(turn_id: str, number: int) -> str:
    """The `ref` of a message that is stored before its turn (a `uuid4().hex`) is complete; `number` counts from 0."""
    return f"{turn_id}:{number}"


def turn_of_ref(ref: str) -> str:
    """The turn that a message with this `ref` was said in; "" for any other.

    >>> turn_of_ref(turn_ref("0123456789abcdef" * 2, 3))
    '0123456789abcdef0123456789abcdef'
    """
    found = _TURN_REF.fullmatch(ref)
    return found[1] if found else ""


# ---------------------------------------------------------------------- out of the store

MESSAGE_COLUMNS = """
    m.id, s.id AS session_id, m.role, m.content, m.timestamp, m.speaker, m.ref, m.tool_name, m.tool_call_id,
    m.tool_calls, m.reasoning, m.parts, m.state
"""

SESSION_COLUMNS = """
    s.id, s.source, s.user, s.parent_id, s.relation, s.title, s.model, s.started_at, s.last_active, s.ended_at,
    s.end_reason, s.message_count, s.tool_call_count, s.cwd
"""


def message_of(row: sqlite3.Row) -> StoredMessage:
    """The message in a row of `MESSAGE_COLUMNS`."""
    return StoredMessage(
        id=row["id"],
        session_id=row["session_id"],
        role=row["role"],
        content=row["content"],
        timestamp=row["timestamp"],
        speaker=row["speaker"],
        ref=row["ref"],
        tool_name=row["tool_name"],
        tool_call_id=row["tool_call_id"],
        tool_calls=tuple(json.loads(row["tool_calls"] or "[]")),
        reasoning=row["reasoning"],
        parts=tuple(json.loads(row["parts"] or "[]")),
        compacted=row["state"] == State.COMPACTED,
        carried=row["state"] == State.CARRIED,
    )


def session_of(row: sqlite3.Row) -> StoredSession:
    """The session in a row of `SESSION_COLUMNS`."""
    return StoredSession(*row)


def turn_of(turn: sqlite3.Row, messages: Sequence[StoredMessage]) -> Turn:
    """The contract's value of a stored turn: `user` and `assistant` join the texts of those roles."""
    return Turn(
        id=turn["id"],
        number=turn["number"],
        user=_joined(messages, "user"),
        assistant=_joined(messages, "assistant"),
        messages=tuple(message.as_text() for message in messages),
        author=turn["author"],
        at=turn["at"],
    )


def _joined(messages: Sequence[StoredMessage], role: str) -> str:
    return "\n".join(m.content for m in messages if m.role == role and m.content)


# ---------------------------------------------------------------------- into the store


def storable(text: str) -> str:
    """Text that SQLite takes: surrogate pairs joined, lone ones and NUL replaced.

    >>> storable("a\\ud83d\\ude00b\\udc80")
    'a😀b\\ufffd'
    """
    if text.isascii():  # known without a look at the letters
        return text.replace("\0", "\ufffd")
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def as_json(value: object) -> str:
    """Compact JSON in the letters that it is about, so that a search for them finds it; "" for nothing."""
    return (
        storable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)) if value else ""
    )


Content = str | Sequence[Mapping[str, Any]] | None
"""What a chat API calls the content of a message: text, or parts, of which some may be pictures; None beside tool calls."""


def text_of(content: object) -> str:
    """The text that a message's content says: parts that are text joined, pictures and files named as such."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return "\n".join(filter(None, map(_part_text, content)))
    return str(content)


def in_text(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Messages of a chat API as providers see them: what has parts, or nothing beside its tool calls, as text.

    Raises `SessionError` for what is no message of one.
    """
    return tuple(map(_in_text, messages))


def _in_text(message: Mapping[str, Any]) -> Message:
    if not (isinstance(message, Mapping) and message.get("role")):
        raise SessionError(
            f"a {type(message).__name__} was given that is no message with a role",
            "give each as {'role': 'user', 'content': 'text'}; an SDK's objects often have model_dump() for that",
        )
    if isinstance(message.get("content"), str):
        return cast(Message, message)
    return cast(Message, {**message, "content": text_of(message.get("content"))})


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return str(part)
    if isinstance(text := part.get("text"), str):
        return text
    kind = str(part.get("type", "part"))
    return f"[{kind.removeprefix('input_').removesuffix('_url')}]"


def columns_of(message: Mapping[str, Any], now: float) -> dict[str, Any]:
    """The stored columns of a message in chat form; what is missing is empty, a time that is none becomes `now`."""
    content = message.get("content")
    text = storable(text_of(content))
    called = message.get("tool_calls")
    calls = as_json(list(called) if isinstance(called, list | tuple) else [])
    at = epoch_seconds(message.get("timestamp"))
    role = message.get("role", "")
    return {
        "state": State.CARRIED if message.get("carried") else State.LIVE,
        "role": storable(
            str.__str__(role) if isinstance(role, str) else str(role)
        ),  # not an enumeration's name
        "content": text,
        "parts": as_json(list(content)) if isinstance(content, list | tuple) else "",
        "size": len(text) + len(calls),
        "timestamp": now if at is None else at,
        "speaker": storable(str(message.get("speaker") or "")),
        "ref": storable(str(message.get("ref") or "")),
        "tool_name": storable(str(message.get("tool_name") or message.get("name") or "")),
        "tool_call_id": storable(str(message.get("tool_call_id") or "")),
        "tool_calls": calls,
        "reasoning": storable(str(message.get("reasoning") or "")),
    }

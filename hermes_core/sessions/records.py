"""Values that the session store returns and accepts, and their conversion to and from rows of its tables."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from functools import partial
from typing import Any, Literal, TypeVar, cast

from msgspec import Struct

from hermes_core.contract.values import Message, Origin, Turn
from hermes_core.errors import SessionError
from hermes_core.safety.origin import RANKS, as_origin, lowest, may_command
from hermes_core.safety.parts import PARTS, named_part
from hermes_core.storage.engine import Statement

log = logging.getLogger(__name__)

Value = TypeVar("Value")

_MEDIA_LINE = re.compile(r"^\[[\w-]+\]$", re.MULTILINE)
_TURN_REF = re.compile(r"([0-9a-f]{32}):\d+")

# Roles of the instructions that a host sends before a conversation. They are no part of it.
SYSTEM_ROLES = frozenset({"system", "developer"})

# Sources of sessions of a delegated task. What matters of them stands in the session that delegated the task.
DELEGATED_SOURCES = ("subagent", "tool")

# Sources of sessions that a program began, where no person talks. They often repeat the same words, so a search ranks
# them behind the sessions of persons.
PROGRAM_SOURCES = (
    *DELEGATED_SOURCES,
    *(
        "cron",
        "scheduler",
        "heartbeat",
        "webhook",
        "hook",
        "batch",
        "review",
        "flush",
        "background",
        "curator",
    ),
)

# Tools of this package that read or change the memory. A search in the memory would find its own earlier answers.
MEMORY_TOOLS = ("memory", "session_search", "skill_view", "skill_manage", "skills_list", "todo")

# The relation of a session to its parent. "" means that the times of both sessions show the relation.
Relation = Literal["", "compression", "branch", "delegation"]


# Order of search results by time.
Order = Literal["newest", "oldest"]


class State(IntEnum):
    """The state of a message.

    Attributes:
        LIVE: The model gets the message, and search finds it.
        REWOUND: The message was undone. Neither the model nor search gets it.
        COPIED: A compression copied the message from the previous session. The model gets the copy; search finds the
            original.
    """

    LIVE = 0
    REWOUND = 2
    COPIED = 3


class StoredMessage(Struct, frozen=True):
    """A stored message.

    Attributes:
        id: Id of the message; a message that is stored later has a higher id.
        session_id: Id of the message's session.
        role: Role of the message: user, assistant, tool, system.
        content: Text of the message.
        timestamp: Time in epoch seconds.
        speaker: Name of the person who wrote the message, if known.
        ref: The message's own id in another program, or "".
        tool_name: Name of the tool whose result the message is.
        tool_call_id: Id of the tool call whose result the message is.
        tool_calls: The tool calls of the message.
        reasoning: The model's thoughts.
        parts: All content parts if the message was stored as parts.
        copied: True if a compression copied the message from the previous session.
        native_json: The message in the form of a framework, as JSON; see `native`.
        origin: Who or what the text comes from.
    """

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
    copied: bool = False
    native_json: str = ""
    origin: Origin = "person"

    @property
    def native(self) -> Any:
        """The message as a framework stored it; None if it stored none."""
        return json.loads(self.native_json) if self.native_json else None

    def as_chat(self) -> dict[str, Any]:
        """Return the message in the OpenAI chat form, with all content parts."""
        chat: dict[str, Any] = {"role": self.role, "content": list(self.parts) or self.content}
        if self.tool_calls:
            chat["tool_calls"] = list(self.tool_calls)
        if self.tool_call_id:
            chat["tool_call_id"] = self.tool_call_id
        if self.tool_name:
            chat["name"] = self.tool_name
        return chat

    def as_text(self) -> Message:
        """Return the message as providers get it: with its content as text, its time and its speaker.

        Its origin is there if it is lower than that of the people of the session and their agent.
        """
        message = cast(Message, {**self.as_chat(), "content": self.content, "timestamp": self.timestamp})
        if self.speaker:
            message["speaker"] = self.speaker
        if not may_command(self.origin):
            message["origin"] = self.origin
        return message


class StoredOpenTurn(Struct, frozen=True):
    """An unfinished turn in the store.

    Attributes:
        id: Id of the turn.
        session_id: Id of the session of the turn.
        user: The person's message in chat form, without recall.
        author: Name of the person, if several people speak in the session.
        contexts: (label, text) of each part of the recall for the turn; None if the recall had not come yet.
        messages: Messages after the person's message so far.
        origin: The lowest origin of the recall.
    """

    id: str
    session_id: str
    user: Mapping[str, Any]
    author: str
    contexts: tuple[tuple[str, str], ...] | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    origin: Origin = "person"


class StoredSession(Struct, frozen=True):
    """A stored session. `last_active` is the time of the newest message; `ended_at` is None for an open session."""

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


class ListedSession(Struct, frozen=True):
    """A conversation in a list.

    Attributes:
        session: The newest session of the conversation.
        root_id: Id of the first session of the conversation.
        preview: Beginning of the first message of the user.
    """

    session: StoredSession
    root_id: str
    preview: str


class CompletedTurn(Struct, frozen=True):
    """A completed turn in the store.

    Attributes:
        key: Number that grows with each stored turn. `complete_turns(since=key)` yields the turns after this one.
        session_id: Id of the turn's session.
        turn: The turn.
        identity: The contract's `Session` as data; empty if the session was created without it.
    """

    key: int
    session_id: str
    turn: Turn
    identity: Mapping[str, Any] = {}


class SearchHit(Struct, frozen=True):
    """A message that answers a query. `snippet` is a part of its text with matches marked as >>>this<<<.

    `score` can only be compared with the scores of the same search. `span` is the place of the part that answers best in
    a long text: its first character, and the character after its last; None for a text that is short enough to be
    shown whole. `newer` is the id of a newer message that states the same kind of thing about the same subject, if the
    search knows one.
    """

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
    origin: Origin = "person"
    span: tuple[int, int] | None = None
    newer: int | None = None

    @property
    def excerpt(self) -> str:
        """The text; of a long text the part at `span`; for a message without text its snippet without marks."""
        if self.span is not None:
            return self.text[slice(*self.span)]
        return self.text or self.snippet.replace(">>>", "").replace("<<<", "")


class SearchHits(list[SearchHit]):
    """The messages that a search returned.

    Attributes:
        problem: A sentence if the search may have missed messages that are stored; "" if it did not.
    """

    problem = ""


class Window(Struct, frozen=True):
    """A message and its neighbours in the session.

    Attributes:
        messages: The message and its neighbours, in order.
        before: Number of messages of the session before `messages`.
        after: Number of messages of the session after `messages`.
    """

    messages: tuple[StoredMessage, ...]
    before: int
    after: int


def calls_as_text(tool_calls: str) -> str:
    """Return stored tool calls, which are JSON, as one line for people.

    >>> arguments = json.dumps({"command": "git push"})
    >>> calls_as_text(json.dumps([{"function": {"name": "terminal", "arguments": arguments}}]))
    'terminal(command="git push")'
    """
    try:
        calls = json.loads(tool_calls or "[]")
        return "; ".join(_call_as_text(call["function"]) for call in calls)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return tool_calls


def _call_as_text(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments") or ""
    if isinstance(arguments, str):
        # A model's arguments may be broken JSON; they are then shown as they are.
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    if isinstance(arguments, dict):
        arguments = ", ".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()
        )
    return f"{function['name']}({arguments})"


# ---------------------------------------------------------------------- messages of an unfinished turn


def turn_ref(turn_id: str, number: int) -> str:
    """Return the `ref` of a message that is stored before its turn ends.

    Args:
        turn_id: Id of the turn, a `uuid4().hex`.
        number: Index of the message in the turn.
    """
    return f"{turn_id}:{number}"


def turn_of_ref(ref: str) -> str:
    """Return the id of the turn in a `ref` that `turn_ref` made; "" for another `ref`.

    >>> turn_of_ref(turn_ref("0123456789abcdef" * 2, 3))
    '0123456789abcdef0123456789abcdef'
    """
    match = _TURN_REF.fullmatch(ref)
    return match[1] if match else ""


# ---------------------------------------------------------------------- rows to values

MESSAGE_COLUMNS = """
    m.id, s.id AS session_id, m.role, m.content, m.timestamp, m.speaker, m.ref, m.tool_name, m.tool_call_id,
    m.tool_calls, m.reasoning, m.parts, m.state, m.native, m.origin
"""

SESSION_COLUMNS = """
    s.id, s.source, s.user, s.parent_id, s.relation, s.title, s.model, s.started_at, s.last_active, s.ended_at,
    s.end_reason, s.message_count, s.tool_call_count, s.cwd
"""


MESSAGES = f"SELECT {MESSAGE_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key"


def messages_statement(
    session_id: str,
    *,
    limit: int | None = None,
    offset: int = 0,
    last_message_id: int | None = None,
    last: int | None = None,
) -> Statement:
    """Return the statement of `SessionStore.get_messages`."""
    # Positions have no gaps, so that a part is reached without reading what stands before it.
    sql = f"""{MESSAGES} WHERE s.id = ? AND m.position >= ? AND m.position >= s.message_count - ? AND m.id <= ?
              ORDER BY m.position LIMIT ?"""
    return sql, (
        session_id,
        offset,
        2**62 if last is None else max(last, 0),
        2**62 if last_message_id is None else last_message_id,
        2**62 if limit is None else limit,
    )


def last_turns_statement(session_id: str, turns: int | None) -> Statement:
    """Return the statement of the messages of the last turns of a session; None for all turns.

    A turn begins with a person's message, so that no call of a tool is cut from its result.
    """
    session_id = sqlite_text(session_id)
    if turns is None or turns < 1:
        return messages_statement(session_id, last=None if turns is None else 0)
    sql = f"""{MESSAGES} WHERE s.id = ? AND m.position >= coalesce((
                  SELECT u.position FROM messages u JOIN sessions s ON s.key = u.session_key
                  WHERE s.id = ? AND u.role = 'user' AND u.state IN (?, ?)
                  ORDER BY u.position DESC LIMIT 1 OFFSET ?), 0)
              ORDER BY m.position"""
    return sql, (session_id, session_id, State.LIVE, State.COPIED, turns - 1)


def message_of(row: Any) -> StoredMessage:
    """Return a row with the columns `MESSAGE_COLUMNS` as a message."""
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
        copied=row["state"] == State.COPIED,
        native_json=row["native"],
        origin=stored_origin(row["role"], row["origin"], row["tool_name"]),
    )


def stored_origin(role: str, origin: str, tool_name: str) -> Origin:
    """Return the origin of a stored message. If it was stored without one, its role decides."""
    if origin:
        return as_origin(origin)
    if role == "tool":
        return "assistant" if tool_name in MEMORY_TOOLS else "tool"
    return "assistant" if role == "assistant" else "person"


def open_turn_statement(turn_id: str) -> Statement:
    """Return the statement of which `open_turn_of` needs the rows."""
    sql = """SELECT -1 AS number, s.id, o.user, o.author, o.contexts FROM open_turns o
             JOIN sessions s ON s.key = o.session_key WHERE o.id = ?
             UNION ALL SELECT m.number, '', m.message, '', '' FROM open_messages m
             WHERE m.turn_key = (SELECT key FROM open_turns WHERE id = ?) ORDER BY number"""
    return sql, (sqlite_text(turn_id),) * 2


def open_turn_of(turn_id: str, rows: Sequence[Any]) -> StoredOpenTurn | None:
    """Return an unfinished turn from the rows of `open_turn_statement`; None if there is none."""
    if not rows:
        return None
    (_, session_id, user, author, recall), *messages = rows
    contexts, origin = _recall_of(recall)
    return StoredOpenTurn(
        turn_id,
        session_id,
        json.loads(user),
        author,
        contexts,
        tuple(json.loads(message[2]) for message in messages),
        origin,
    )


def _recall_of(text: str) -> tuple[tuple[tuple[str, str], ...] | None, Origin]:
    """Return the stored recall of a turn and its origin; None as the recall if it had not come yet."""
    if not text:
        return None, "person"
    value = json.loads(text)
    return tuple((label, part) for label, part in value["contexts"]), as_origin(value["origin"])


def session_of(row: Any) -> StoredSession:
    """Return a row with the columns `SESSION_COLUMNS` as a session."""
    return StoredSession(*row)


def turn_from_row(turn: Any, messages: Sequence[StoredMessage]) -> Turn:
    """Return a row of the table `turns` and the turn's messages as the contract's `Turn`.

    `Turn.user` joins the texts of the messages with the role user, and `Turn.assistant` those with the role assistant.
    """
    return Turn(
        id=turn["id"],
        number=turn["number"],
        user=_joined(messages, "user"),
        assistant=_joined(messages, "assistant"),
        messages=tuple(message.as_text() for message in messages),
        author=turn["author"],
        at=turn["at"],
        origin=lowest((message.origin for message in messages), "person"),
        user_at=next((m.timestamp for m in messages if m.role == "user"), turn["at"]),
    )


def _joined(messages: Sequence[StoredMessage], role: str) -> str:
    return "\n".join(m.content for m in messages if m.role == role and m.content)


# ---------------------------------------------------------------------- values to rows


def as_tuple(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one text or several as a tuple; an empty one for None."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def with_owner(identity: str) -> str:
    """Return the stored identity of a session, as JSON, as that of a session of the person at home."""
    try:
        return as_json({**json.loads(identity), "is_owner": True})
    except (ValueError, TypeError):  # none, or damaged
        return identity


def sqlite_text(text: str) -> str:
    """Return text that SQLite accepts: surrogate pairs joined, lone surrogates and NUL replaced.

    >>> sqlite_text("a\\ud83d\\ude00b\\udc80")
    'a😀b\\ufffd'
    """
    if text.isascii():  # a flag of the string, so that most messages are not copied
        return text.replace("\0", "\ufffd")
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def as_json(value: object) -> str:
    """Return a value as compact JSON; "" for an empty value. Letters are not escaped, so that a search finds them."""
    if not value:
        return ""
    return sqlite_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


# The content of a message in a chat API: a text, or a list of parts (text and pictures), or None if the message has
# only tool calls.
Content = str | Sequence[Mapping[str, Any]] | None


def text_of(content: object) -> str:
    """Return the content of a message as text. A part that is no text becomes its type, as in "[image]"."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        return "\n".join(filter(None, map(_part_text, content)))
    return _part_text(content)


def words_of(content: object) -> str:
    """Return the words of who speaks in the content of a message: its text without the lines that stand for media."""
    return _MEDIA_LINE.sub("", text_of(content)).strip()


def in_text(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return messages of a chat API with their content as text, as providers get them.

    Raises `SessionError` for a value that is no message with a role.
    """
    return tuple(map(_in_text, messages))


def _in_text(message: Mapping[str, Any]) -> Message:
    if not (isinstance(message, Mapping) and message.get("role")):
        raise SessionError(
            f"a {type(message).__name__} was given that is no message with a role",
            "give each as {'role': 'user', 'content': 'text'}; an SDK's objects often have model_dump() for that",
        )
    if isinstance(message.get("content"), str) and "native" not in message:
        return cast(Message, message)
    shared = {key: value for key, value in message.items() if key != "native"}
    return cast(Message, {**shared, "content": text_of(message.get("content"))})


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, bool | int | float):
        return str(part)
    if isinstance(part, Mapping):
        name, _ = named_part(part)
        if name in PARTS and PARTS[name].holds == "media":  # also one with a text: that is not who speaks
            return f"[{name.removeprefix('input_').removesuffix('_url')}]"
    # An SDK has objects with these attributes. A foreign object is named by its type and never shown by its repr.
    read: Callable[..., Any] = part.get if isinstance(part, Mapping) else partial(getattr, part)
    if isinstance(text := read("text", None), str):
        return text
    kind = read("type", None)
    if not isinstance(kind, str):
        kind = "part" if isinstance(part, Mapping) else type(part).__name__
    return f"[{kind.removeprefix('input_').removesuffix('_url')}]"


def columns_of(message: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Return a message in chat form as columns of the table `messages`; `now` replaces a missing or invalid time."""
    content = message.get("content")
    text = sqlite_text(text_of(content))
    parts = (
        [content] if isinstance(content, Mapping) else content if isinstance(content, list | tuple) else ()
    )
    tool_calls = message.get("tool_calls")
    calls = as_json(list(tool_calls) if isinstance(tool_calls, list | tuple) else [])
    at = epoch_seconds(message.get("timestamp"))
    role = message.get("role", "")
    return {
        "state": State.COPIED if message.get("copied") else State.LIVE,
        # `str.__str__`: an SDK's enumeration would give the name of its member.
        "role": sqlite_text(str.__str__(role) if isinstance(role, str) else str(role)),
        "content": text,
        "parts": as_json(parts),
        "size": len(text) + len(calls),
        "timestamp": now if at is None else at,
        "speaker": sqlite_text(str(message.get("speaker") or "")),
        "ref": sqlite_text(str(message.get("ref") or "")),
        "tool_name": sqlite_text(str(message.get("tool_name") or message.get("name") or "")),
        "tool_call_id": sqlite_text(str(message.get("tool_call_id") or "")),
        "tool_calls": calls,
        "reasoning": sqlite_text(str(message.get("reasoning") or "")),
        "native": "" if message.get("native") is None else as_json([message["native"]])[1:-1],
        "origin": message["origin"] if message.get("origin") in RANKS else "",
    }


# ---------------------------------------------------------------------- values beside the sessions

# Kinds of values that agents store for a session; they are deleted with it.
SESSION_META = ("cadence", "fullness", "left_out", "flushed", "reviewed", "set_aside", "archived", "pinned")

Mark = Literal["archived", "pinned"]
"""Marks that a person sets: an archived session is in no list, a pinned session is never pruned."""


def meta_key(kind: str, session_id: str) -> str:
    """Return the key in `state_meta` under which agents store a value of this kind for a session."""
    return f"{kind}:{sqlite_text(session_id)}"


def read_meta(key: str, text: str | None, read: Callable[[str], Value], default: Value) -> Value:
    """Parse a text from `state_meta` with `read` and return the value; return `default` if the text can't be parsed.

    A disk, a repair or a person may have damaged the text; this is logged.

    Args:
        key: Key of the text, for the log.
        text: The text; None if none was stored.
        read: Function that parses the text.
        default: Value for a missing or damaged text.
    """
    if text is None:
        return default
    try:
        return read(text)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as exc:
        log.error("%r of the sessions can't be read and is begun anew: %s", key, exc)
        return default


# ---------------------------------------------------------------------- times from other programs

# Years 1 to 9999 without the first and the last day, so that each time has a date in every time zone.
_FIRST, _LAST = -62_135_510_400.0, 253_402_214_400.0

_FINER = (1e3, 1e6, 1e9)
_MILLISECONDS_OF_1973 = 1e11


class AppendedTurn(Struct, frozen=True):
    """The result of storing a turn.

    Attributes:
        message_ids: Ids of the turn's messages.
        number: Number of the turn in its session.
        results: Rows of each of the further statements; None if the turn was stored already, because they are not run
            then.
    """

    message_ids: list[int]
    number: int
    results: list[list[Any]] | None


def epoch_seconds(value: object) -> float | None:
    """Return a time in epoch seconds; None for a value that is no time.

    A number that would be a time after the year 5000 is taken for milliseconds, microseconds or nanoseconds.

    >>> epoch_seconds(1716672060), epoch_seconds(1716672060000), epoch_seconds("soon"), epoch_seconds(1e300)
    (1716672060.0, 1716672060.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    if seconds < _MILLISECONDS_OF_1973:
        return seconds if seconds > _FIRST else None
    for unit in _FINER:
        if seconds / unit < _MILLISECONDS_OF_1973:
            return seconds / unit
    return None


def local_time(seconds: float) -> datetime | None:
    """Return a time in epoch seconds as a `datetime` in this machine's time zone; None outside the years 1 to 9999.

    >>> local_time(1e300) is None
    True
    """
    if not _FIRST < seconds < _LAST:
        return None
    return datetime.fromtimestamp(seconds, UTC).astimezone()

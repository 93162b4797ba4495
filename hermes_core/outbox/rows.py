"""Rows of the outbox: conversion of the call of a durable hook to redacted JSON, and back in a later process."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from hermes_core.contract.hooks import TranscriptReader
from hermes_core.contract.values import (
    Delegation,
    EndReason,
    MemoryWrite,
    Message,
    Session,
    SessionSwitch,
    Turn,
)
from hermes_core.errors import OutboxError
from hermes_core.kit.text import field_names, plain

SCHEMA = 1
"""Version of the JSON in a row. A row with a higher version becomes a dead letter; it can be sent after an upgrade."""

MAX_TRANSCRIPT = 4_000_000
"""Characters of JSON in a stored transcript, before compression. The oldest messages are left out of a longer one."""

Redact = Callable[[Any], Any]
Transcripts = Callable[[str, int | None], TranscriptReader]
"""Function that returns a reader of the messages of a session: (session id, id of the last message) -> reader."""

RowState = Literal["pending", "dead letter"]

TRACE_CONTEXT: ContextVar[Mapping[str, str]] = ContextVar("trace_context", default=MappingProxyType({}))
"""Trace headers (`traceparent`) of the operation that stores rows, which telemetry sets. The rows keep them."""


class NewRow(NamedTuple):
    """A hook call that is ready to be stored. `event` is its unique id; `body` is its JSON."""

    hook: str
    event: str
    session_id: str
    body: str


class Row(Struct, frozen=True):
    """A stored hook call that is pending, or a dead letter. `attempts` is the number of failed tries."""

    number: int
    provider: str
    session_id: str
    hook: str
    event: str
    state: RowState
    attempts: int
    error: str
    created_at: float
    fingerprint: str
    body: str


DELIVERED_ROW: ContextVar[Row | None] = ContextVar("delivered_row", default=None)
"""The row that the outbox worker delivers, for telemetry."""


def encode(hook: str, value: Turn | MemoryWrite | Delegation, session: Session, redact: Redact) -> NewRow:
    """Return the row of a hook whose arguments are `value` and the session."""
    return NewRow(hook, value.id, session.id, _body(session, _redacted(plain(value), redact)))


def with_turn_number(row: NewRow, number: int) -> NewRow:
    """Return the row of a turn with another number of the turn. Nothing else in it changes."""
    data = json.loads(row.body)
    data["value"]["number"] = number
    return row._replace(body=json.dumps(data))


def encode_switch(switch: SessionSwitch, redact: Redact) -> NewRow:
    """Return the row of a session switch. It is delivered after the earlier rows of the old session."""
    body = _body(switch.old, _redacted(plain(switch), redact))
    return NewRow("on_session_switch", switch.id, switch.old.id, body)


def encode_forget(event: str, user: str, session: Session) -> NewRow:
    """Return the row that asks a provider to forget a user. It is delivered after the earlier rows of the session."""
    return NewRow("forget_user", event, session.id, _body(session, {"user": user}))


def encode_end(
    event: str,
    session: Session,
    reason: EndReason,
    last_message_id: int | None,
    messages: Sequence[Message] | None,
    redact: Redact,
) -> NewRow:
    """Return the row of the end of a session.

    It holds the id of the last message, or `messages` if there is no such id.
    """
    value: dict[str, Any] = {"reason": reason, "last_message_id": last_message_id}
    if messages is not None:
        value["messages"], value["omitted"] = _compress(redact(plain(messages)))
    return NewRow("on_session_end", event, session.id, _body(session, value))


def decode(
    row: NewRow | Row, transcripts: Transcripts | None, redact: Redact
) -> tuple[Session, dict[str, Any]]:
    """Return the session of a row and the arguments of its hook.

    Raises:
        OutboxError: The row can't be read.
    """
    try:
        data = json.loads(row.body)
        if data["schema"] > SCHEMA:
            raise OutboxError(f"the row has schema {data['schema']!r}", "upgrade hermes-memory-core")
        session = Session.from_dict(data["session"])
        return session, {
            "session": session,
            **_arguments(row.hook, data["value"], session, transcripts, redact),
        }
    except (KeyError, TypeError, ValueError, zlib.error) as exc:
        raise OutboxError(f"the row of {row.hook!r} can't be read ({exc!r})", "drop it") from exc


def asks_to_forget(row: Row) -> bool:
    """Return True if the row asks the provider to forget a user, or is a session switch with rewound turns."""
    if row.hook == "on_session_switch":
        with contextlib.suppress(ValueError, TypeError, LookupError):
            return bool(json.loads(row.body)["value"]["rewound_turns"])
    return row.hook == "forget_user"


def forgotten_user(row: Row) -> str:
    """Return the user whom the row asks the provider to forget; "" for any other row."""
    return str(json.loads(row.body)["value"]["user"]) if row.hook == "forget_user" else ""


def switch_from(value: Mapping[str, Any]) -> SessionSwitch:
    """Return the `SessionSwitch` from the JSON data that `plain` made of it."""
    sides = {side: Session.from_dict(value[side]) for side in ("old", "new")}
    rewound = tuple(value.get("rewound_turns", ()))
    return SessionSwitch(**_known(SessionSwitch, {**value, **sides, "rewound_turns": rewound}))


class Transcript:
    """A `TranscriptReader` that calls a function each time, so that what is gone by then is not read."""

    def __init__(self, read: Callable[[], Sequence[Message]]) -> None:
        self._read = read

    def messages(self) -> Sequence[Message]:
        """Return the messages, oldest first; no messages if the session was deleted."""
        return self._read()


def _redacted_messages(stored: TranscriptReader, redact: Redact) -> Sequence[Message]:
    # The session store keeps them unredacted.
    return tuple(redact(plain(stored.messages())))


def _body(session: Session, value: dict[str, Any]) -> str:
    headers = TRACE_CONTEXT.get()
    trace = {"trace": dict(headers)} if headers else {}
    return json.dumps({"schema": SCHEMA, "session": session.to_dict(), "value": value, **trace})


def _redacted(value: dict[str, Any], redact: Redact) -> dict[str, Any]:
    # Ids are not redacted: they must come back as they were, and some look like keys.
    identity = {key: value[key] for key in ("id", "old", "new") if key in value}
    return {**redact({key: entry for key, entry in value.items() if key not in identity}), **identity}


def _compress(messages: list[Any]) -> tuple[str, int]:
    """Return the newest messages within `MAX_TRANSCRIPT` as compressed text, and the number of older ones left out."""
    texts = [json.dumps(message) for message in messages]
    size, first = 0, len(texts)
    while first and size + len(texts[first - 1]) <= MAX_TRANSCRIPT:
        first -= 1
        size += len(texts[first]) + 1
    packed = zlib.compress(json.dumps(messages[first:]).encode("ascii"))
    return base64.b85encode(packed).decode("ascii"), first


def _arguments(
    hook: str, value: dict[str, Any], session: Session, transcripts: Transcripts | None, redact: Redact
) -> dict[str, Any]:
    if hook == "sync_turn":
        return {"turn": Turn(**_known(Turn, {**value, "messages": tuple(value.get("messages", ()))}))}
    if hook == "on_memory_write":
        return {"write": MemoryWrite(**_known(MemoryWrite, value))}
    if hook == "on_delegation":
        return {"delegation": Delegation(**_known(Delegation, value))}
    if hook == "on_session_switch":
        return {"switch": switch_from(value)}
    if hook == "forget_user":
        return {"user": value["user"]}
    if hook == "on_session_end":
        read: Callable[[], Sequence[Message]] = tuple
        if "messages" in value:
            read = partial(tuple, json.loads(zlib.decompress(base64.b85decode(value["messages"]))))
        elif transcripts is not None:
            read = partial(_redacted_messages, transcripts(session.id, value["last_message_id"]), redact)
        return {"reader": Transcript(read), "reason": value["reason"]}
    raise KeyError(hook)


def _known(kind: type, value: Mapping[str, Any]) -> dict[str, Any]:
    # A later version of this package may have written fields that this version does not know.
    return {name: value[name] for name in field_names(kind) if name in value}

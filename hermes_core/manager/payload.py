"""A write as a row of the outbox: from the arguments of a hook to redacted JSON, and back in a later process."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from operator import attrgetter, eq
from typing import Any, NamedTuple

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
from hermes_core.manager.call import attempt

SCHEMA = 1
"""Version of the JSON below; a row of a newer one is parked until this package is upgraded."""

MAX_TRANSCRIPT = 4_000_000
"""Characters of JSON that a stored transcript has at most, before compression; the oldest messages are left out."""

Redact = Callable[[Any], Any]

_json = json.JSONEncoder().encode
_text = encode_basestring_ascii
Transcripts = Callable[[str, int | None], TranscriptReader]


class Write(NamedTuple):
    """One call of a durable hook, ready to be stored: `event` is its id, minted once, `body` its JSON."""

    hook: str
    event: str
    session_id: str
    body: str


def pack(hook: str, value: Turn | MemoryWrite | Delegation, session: Session, redact: Redact) -> Write:
    """The row of a hook that takes one value and the session."""
    clean = _turn_json(value, redact) if isinstance(value, Turn) else ""
    clean = clean or _json(_clean(plain(value), redact))
    return Write(hook, value.id, session.id, _body(session, clean))


def pack_switch(switch: SessionSwitch, redact: Redact) -> Write:
    """The row of a session switch, in the order of the old session."""
    body = _body(switch.old, _json(_clean(plain(switch), redact)))
    return Write("on_session_switch", switch.id, switch.old.id, body)


def pack_end(
    event: str,
    session: Session,
    reason: EndReason,
    last_message_id: int | None,
    messages: Sequence[Message] | None,
    redact: Redact,
) -> Write:
    """The row of a session's end: it names the last message, or carries `messages` themselves."""
    value: dict[str, Any] = {"reason": reason, "last_message_id": last_message_id}
    if messages is not None:
        value["messages"], value["omitted"] = _compressed(plain(messages), redact)
    return Write("on_session_end", event, session.id, _body(session, _json(_clean(value, redact))))


def unpack(
    hook: str, body: str, transcripts: Transcripts | None, redact: Redact
) -> tuple[Session, dict[str, Any]]:
    """The session of a row and the arguments of its hook. Raises `OutboxError` for a row that can't be read."""
    try:
        data = json.loads(body)
        if data["schema"] > SCHEMA:
            raise OutboxError(f"the row has schema {data['schema']!r}", "upgrade hermes-memory-core")
        session = Session.from_dict(data["session"])
        return session, {"session": session, **_ARGUMENTS[hook](data["value"], session, transcripts, redact)}
    except (KeyError, TypeError, ValueError, zlib.error) as exc:
        raise OutboxError(f"the row of {hook!r} can't be read ({exc!r})", "drop it") from exc


def takes_back(hook: str, body: str) -> bool:
    """Whether a row tells the provider to forget turns."""
    if hook == "on_session_switch":
        with contextlib.suppress(ValueError, TypeError, LookupError):
            return bool(json.loads(body)["value"]["rewound_turns"])
    return False


def plain(value: Any) -> Any:
    """`value` as JSON data, copied: what cannot be written as JSON becomes its `str`.

    >>> plain(Delegation("d1", "task", "result"))["task"]
    'task'
    """
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, dict):
        return {str(key): entry if type(entry) in _AS_IT_IS else plain(entry) for key, entry in value.items()}
    if isinstance(value, _LISTS):
        return [plain(entry) for entry in value]
    if names := _field_names(type(value)):  # type: ignore[arg-type]  # mypy takes no type for hashable
        return plain({name: getattr(value, name) for name in names})
    return plain(dict(value)) if isinstance(value, Mapping) else str(value)


_SCALARS = (str, int, float, type(None))
_AS_IT_IS = frozenset({*_SCALARS, bool})
_LISTS = (list, tuple, set, frozenset)


@lru_cache(maxsize=64)
def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass, none of another type; asked for each value of each row."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


class Transcript:
    """A `TranscriptReader` over messages that are at hand."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = tuple(messages)

    def messages(self) -> Sequence[Message]:
        """The messages, oldest first."""
        return self._messages


class _Redacted:
    """A reader whose messages are redacted as they are read: the store keeps what the person wrote."""

    def __init__(self, reader: TranscriptReader, redact: Redact) -> None:
        self._reader = reader
        self._redact = redact

    def messages(self) -> Sequence[Message]:
        return tuple(self._redact(plain(self._reader.messages())))


def _body(session: Session, clean: str) -> str:
    return f'{{"schema": {SCHEMA}, "session": {_session_json(session)}, "value": {clean}}}'


def _clean(value: dict[str, Any], redact: Redact) -> dict[str, Any]:
    # Identity is not redacted: ids must come back as they were, and some look like keys.
    kept = {key: value[key] for key in ("id", "old", "new") if key in value}
    return {**redact({key: entry for key, entry in value.items() if key not in kept}), **kept}


_parts = attrgetter("id", "user", "assistant", "author", "number", "at")
_PARTS = (str, str, str, str, int, float)


def _turn_json(turn: Turn, redact: Redact) -> str:
    """A turn as JSON, without a walk through what is nearly all text: every turn waits for this.

    "" when a part is not of the type that `Turn` names; no turn of a host is lost for that.
    """
    parts = _parts(turn)
    if tuple(map(type, parts)) != _PARTS or not math.isfinite(turn.at):
        return ""
    event, user, assistant, author, number, at = parts
    question, answer = _text(redact(user)), _text(redact(assistant))
    if _question_and_answer(turn):
        messages = f'{{"role": "user", "content": {question}}}, {{"role": "assistant", "content": {answer}}}'
    else:
        messages = ", ".join([_json(redact(plain(message))) for message in turn.messages])
    return (
        f'{{"id": {_text(event)}, "number": {number}, "author": {_text(redact(author) if author else "")}, "at": {at!r},'
        f' "user": {question}, "assistant": {answer}, "messages": [{messages}]}}'
    )


def _question_and_answer(turn: Turn) -> bool:
    """Whether the messages say what the turn says already, as those of most turns do. An array refuses to be compared."""
    said = ({"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.assistant})
    return attempt(eq, turn.messages, said)[0] is True


@lru_cache(maxsize=256)
def _session_json(session: Session) -> str:
    """A conversation's identity is the same in each of its rows."""
    return _json(session.to_dict())


def _compressed(messages: list[Any], redact: Redact) -> tuple[str, int]:
    texts = [_json(redact(message)) for message in messages]
    size, first = 0, len(texts)
    while first and size + len(texts[first - 1]) <= MAX_TRANSCRIPT:
        first -= 1
        size += len(texts[first]) + 1
    packed = zlib.compress(f"[{','.join(texts[first:])}]".encode("ascii"))
    return base64.b85encode(packed).decode("ascii"), first


def _turn(value: dict[str, Any], *_: Any) -> dict[str, Any]:
    return {"turn": _known(Turn, {**value, "messages": tuple(value.get("messages", ()))})}


def _write(value: dict[str, Any], *_: Any) -> dict[str, Any]:
    return {"write": _known(MemoryWrite, value)}


def _delegation(value: dict[str, Any], *_: Any) -> dict[str, Any]:
    return {"delegation": _known(Delegation, value)}


def switch_of(value: Mapping[str, Any]) -> SessionSwitch:
    """The switch that `plain` made this of."""
    sides = {side: Session.from_dict(value[side]) for side in ("old", "new")}
    rewound = tuple(value.get("rewound_turns", ()))
    found: SessionSwitch = _known(SessionSwitch, {**value, **sides, "rewound_turns": rewound})
    return found


def _switch(value: dict[str, Any], *_: Any) -> dict[str, Any]:
    return {"switch": switch_of(value)}


def _end(
    value: dict[str, Any], session: Session, transcripts: Transcripts | None, redact: Redact
) -> dict[str, Any]:
    reader: TranscriptReader = Transcript(())
    if "messages" in value:
        reader = Transcript(json.loads(zlib.decompress(base64.b85decode(value["messages"]))))
    elif transcripts is not None:
        reader = _Redacted(transcripts(session.id, value["last_message_id"]), redact)
    return {"reader": reader, "reason": value["reason"]}


def _known(kind: Any, value: Mapping[str, Any]) -> Any:
    return kind(**{name: value[name] for name in _field_names(kind) if name in value})


_ARGUMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "sync_turn": _turn,
    "on_memory_write": _write,
    "on_delegation": _delegation,
    "on_session_switch": _switch,
    "on_session_end": _end,
}

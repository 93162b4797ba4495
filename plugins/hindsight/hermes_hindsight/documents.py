"""Documents of sessions and of single entries, and the ids that make a repeat harmless."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from hermes_core import Turn
from hermes_core.kit import Settings, clip, epoch_time, fold_space, key_of, local_day, storable, utc_time

MAX_TEXT_CHARS = 100_000
"""Characters of one side of a turn, or of one note. What is longer is a pasted document, and each costs a model call."""

MAX_LABEL_CHARS = 200
"""Characters of a tag, or of what the model says a note is about."""


_DAY = re.compile(r":\d{4}-\d{2}-\d{2}")


def turn_item(options: Settings, turn: Turn) -> dict[str, Any]:
    """Return a turn as an item: a JSON array, which the server appends to the document."""
    prefixes = {"user": options.retain_user_prefix, "assistant": options.retain_assistant_prefix}
    said = [
        {
            "role": role,
            "content": f"{prefixes[role]}: {clip(text, MAX_TEXT_CHARS)}",
            **timed(utc_time(at)),
            "turn": turn.id,
        }
        for role, text, at in turn.said
    ]
    return session_item(options, said)


def session_item(options: Settings, messages: list[Any]) -> dict[str, Any]:
    """Return messages as an item of a session's document, with the time of the last one that has any."""
    times = [str(m["timestamp"]) for m in messages if isinstance(m, dict) and m.get("timestamp")]
    content = json.dumps(messages, ensure_ascii=False)
    return {"content": content, "context": options.retain_context, **timed(max(times, default=""))}


def timed(time: str) -> dict[str, str]:
    """Return the field of an item that dates what is learned from it."""
    return {"timestamp": time} if time else {}


def operation_id(bank: str, event: str) -> str:
    """Return the id under which the server takes an event once. It refuses an id of another bank."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, storable(f"hermes-hindsight:{bank}:{event}")))


def entry_id(kind: str, content: str) -> str:
    """Return the document of an entry. Equal texts have one document."""
    return f"{kind}-{key_of(fold_space(content))}"


def mirror_tag(target: str) -> str:
    """Return the tag of entries of MEMORY.md or USER.md."""
    return f"mirror:{target}"


def without(text: str, turns: frozenset[str]) -> list[Any] | None:
    """Return a document's messages without those of `turns`, None if it has none of them."""
    messages = _messages(text)
    left = [m for m in messages if not (isinstance(m, dict) and m.get("turn") in turns)]
    return left if len(left) < len(messages) else None


def texts_of(text: str) -> list[tuple[str, float]]:
    """Return what a document holds, with the time at which it was said, 0 if that is not known: each message of a
    session's document, or the whole text of another one.
    """
    said = [
        (str(m["content"]), epoch_time(str(m.get("timestamp") or "")))
        for m in _messages(text)
        if isinstance(m, dict) and m.get("content")
    ]
    return [(one.strip(), at) for one, at in said or [(text, 0.0)] if one.strip()]


def first_day(text: str) -> str:
    """Return the day of the first message of a session's document, "" if it has none."""
    times = (str(m["timestamp"]) for m in _messages(text) if isinstance(m, dict) and m.get("timestamp"))
    return local_day(next(times, ""))


def day_document(session_id: str, day: str) -> str:
    """Return the document of a session's later day."""
    return f"{session_id}:{day}"


def is_of_session(document: str, session_id: str) -> bool:
    """Return True if a document holds turns of the session."""
    rest = document.removeprefix(session_id)
    return rest != document and (not rest or _DAY.fullmatch(rest) is not None)


def readable(text: str) -> str:
    """Return a memory as one line. A server without a model remembers raw pieces of the document; their text is
    taken out.
    """
    said = (str(m["content"]) for m in _messages(text) if isinstance(m, dict) and m.get("content"))
    return fold_space(" ".join(said) or text)


def _messages(text: str) -> list[Any]:
    """Return the entries of a document's arrays: one array, or from older servers one a line. Other documents
    have none.
    """
    decoder, messages, at = json.JSONDecoder(), [], 0
    while at < len(text):
        try:
            part, at = decoder.raw_decode(text, at)
        except ValueError:
            return []
        if not isinstance(part, list):
            return []
        messages += part
        at += len(text[at:]) - len(text[at:].lstrip())
    return messages

"""Documents of sessions and of single entries, and the ids that make a repeat harmless."""

from __future__ import annotations

import json
import uuid
from typing import Any

from hermes_core import Turn
from hermes_core.kit import Settings, clip, fold_space, key_of, storable, utc_time

MAX_TEXT_CHARS = 100_000
"""Characters of one side of a turn, or of one note. What is longer is a pasted document, and each costs a model call."""

MAX_LABEL_CHARS = 200
"""Characters of a tag, or of what the model says a note is about."""


def turn_item(options: Settings, turn: Turn) -> dict[str, Any]:
    """Return a turn as an item: a JSON array, which the server appends to the document."""
    at = utc_time(turn.at)
    sides = (
        ("user", options.retain_user_prefix, turn.user),
        ("assistant", options.retain_assistant_prefix, turn.assistant),
    )
    said = [
        {
            "role": role,
            "content": f"{prefix}: {clip(text, MAX_TEXT_CHARS)}",
            **({"timestamp": at} if at else {}),
            "turn": turn.id,
        }
        for role, prefix, text in sides
        if text.strip()
    ]
    content = json.dumps(said, ensure_ascii=False)
    return {"content": content, "context": options.retain_context, **({"timestamp": at} if at else {})}


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


def texts_of(text: str) -> list[str]:
    """Return what a document holds: each message of a session's document, or the whole text of another one."""
    said = [str(m["content"]) for m in _messages(text) if isinstance(m, dict) and m.get("content")]
    return [one.strip() for one in said or [text] if one.strip()]


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

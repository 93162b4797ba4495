"""Checked reading of the fields of a message. Errors name the place and what was expected there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.sessions.records import epoch_seconds

_ROLES = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    # Instructions to a model are no part of the conversation.
    "system": "",
    "developer": "",
}


def expected(where: str, what: str, found: object) -> ImportFailed:
    """Return the error for a wrong value at `where`."""
    shown = repr(found)
    return ImportFailed(
        f"{where}: expected {what}, found {shown if len(shown) <= 60 else shown[:57] + '...'}",
        "correct the file, or name its format",
    )


def read_object(value: object, where: str, what: str = "an object") -> Mapping[str, Any]:
    """Return the value if it is a JSON object. Raises `ImportFailed`."""
    if not isinstance(value, dict):
        raise expected(where, what, value)
    return value


def read_list(value: object, where: str, what: str = "a list") -> Sequence[Any]:
    """Return the value if it is a JSON list. Raises `ImportFailed`."""
    if not isinstance(value, list):
        raise expected(where, what, value)
    return value


def read_role(value: object, where: str) -> str:
    """Return user, assistant or tool, "" for instructions, which are not imported."""
    if not isinstance(value, str) or value not in _ROLES:
        raise expected(where, f"a role ({', '.join(_ROLES)})", value)
    return _ROLES[value]


def read_content(value: object, where: str) -> str:
    """Return the text of a message: a string, null, or a list of parts. Parts without text are left out."""
    if value is None:
        return ""
    if isinstance(value, str):
        return whole_text(value)
    texts = []
    for part in read_list(value, where, "text or a list of parts"):
        text = part if isinstance(part, str) else read_object(part, where, "text or an object").get("text")
        if isinstance(text, str) and text.strip():
            texts.append(whole_text(text))
    return "\n".join(texts)


def read_text(value: object, where: str) -> str:
    """Return an optional short text, "" for null. A number becomes text."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise expected(where, "text", value)
    return whole_text(str(value))


def read_time(value: object, where: str) -> float | None:
    """Return seconds since the epoch, None if there is no time.

    The value is an ISO 8601 text (UTC if it names no zone), or a number of seconds or of milliseconds.
    """
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    if (seconds := epoch_seconds(value)) is not None:
        return seconds
    raise expected(where, "seconds since the epoch or an ISO 8601 time", value)


def whole_text(text: str) -> str:
    """Replace lone surrogates, which JSON can spell and no encoding can store."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def json_digest(value: object) -> str:
    """Return sixteen hex digits that identify this JSON value, the same on every machine."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def tool_call(call_id: str, name: str, arguments: object) -> dict[str, object]:
    """Return a tool call in the form of chat APIs. Arguments that are no text become JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}

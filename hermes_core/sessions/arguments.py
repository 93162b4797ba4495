"""What a call of `session_search` may say: the schema that the model is given, and how its arguments are read.

A model's arguments are taken for what they most likely mean; only a date that is none is refused.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal, get_args

from hermes_core.errors import SessionError
from hermes_core.sessions.filters import Order

DEFAULT_LIMIT, MAX_LIMIT, MAX_INDEX_LIMIT = 3, 5, 10
DEFAULT_WINDOW, MAX_WINDOW = 5, 20

Detail = Literal["index", "snippet", "full"]
"""How much of a result of a search is shown: a line, the matching part, or the messages around it as well."""

_NO_MODEL, _A_MODEL = "no model is called", "no model is called unless you ask for a summary"

SESSION_SEARCH_SCHEMA: dict[str, Any] = {
    "name": "session_search",
    "description": (
        f"Search past conversations with the person, or read them. Returns stored messages as they were said; {_NO_MODEL}. "
        "Use it when the person refers to something said before, or when earlier work would help. "
        "Without arguments: recent conversations. With `query`: the messages that answer best, one per conversation, "
        "each with the messages around it and how its conversation began and ended; ask in plain words, or use "
        '"exact phrases", AND, OR, NOT and prefix*. With `session_id` and `around_message_id`: scroll, the messages '
        "around that one; take `match_message_id` from a result, then the first or last id shown to go on. With "
        "`session_id` alone: read that session. What you still see of this conversation is left out. What "
        "was said may be out of date: for the present state of a file or a service, look at the source first."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, as a question or in key words."},
            "role_filter": {
                "type": "string",
                "description": "Roles to look at, comma-separated: user, assistant, tool. Default: user,assistant.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_INDEX_LIMIT,
                "default": DEFAULT_LIMIT,
                "description": f"At most {MAX_LIMIT}, or {MAX_INDEX_LIMIT} with detail index.",
            },
            "detail": {
                "type": "string",
                "enum": list(get_args(Detail)),
                "default": "full",
                "description": "full: with the messages around each match. snippet: the match only. index: one short "
                "line each, to choose what to read.",
            },
            "since": {"type": "string", "description": "Only messages from this date or time on (ISO 8601)."},
            "until": {"type": "string", "description": "Only messages up to this date or time (ISO 8601)."},
            "source": {"type": "string", "description": "Only sessions of these sources, comma-separated."},
            "sort": {
                "type": "string",
                "enum": list(get_args(Order)),
                "description": "Order relevant results by time instead of by relevance.",
            },
            "session_id": {"type": "string", "description": "A session to scroll or read."},
            "around_message_id": {
                "type": "integer",
                "description": "Scroll around this message of the session.",
            },
            "window": {"type": "integer", "minimum": 1, "maximum": MAX_WINDOW, "default": DEFAULT_WINDOW},
        },
    },
}

SUMMARY_PARAMETER: dict[str, Any] = {
    "type": "boolean",
    "default": False,
    "description": "With a query: another model reads the sessions that were found and sums up what in them answers. "
    "Slow; for a question about a whole conversation.",
}
"""Of the schema, where there is a `summarise`."""


def schema(*, summaries: bool) -> dict[str, Any]:
    """The tool as it is offered to the model."""
    if not summaries:
        return SESSION_SEARCH_SCHEMA
    description = SESSION_SEARCH_SCHEMA["description"].replace(_NO_MODEL, _A_MODEL)
    parameters = SESSION_SEARCH_SCHEMA["parameters"]
    properties = {**parameters["properties"], "summary": SUMMARY_PARAMETER}
    return {
        **SESSION_SEARCH_SCHEMA,
        "description": description,
        "parameters": {**parameters, "properties": properties},
    }


def text(value: object) -> str:
    """Text without space around it, also of a number; "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip()


def integer(value: object) -> int | None:
    """A message id, also as digits in a string or a whole float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 2**62 and (isinstance(value, str) or number == value) else None


def number(value: object, default: int, most: int) -> int:
    """A number from 1 to `most`, the nearest to the one given; `default` for what is none."""
    given = integer(value)
    return default if given is None else min(max(given, 1), most)


def names(value: object) -> tuple[str, ...]:
    """Names, comma-separated or in a list."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple):
        return ()
    return tuple(name.strip() for name in value if isinstance(name, str) and name.strip())


def detail(value: object) -> Detail:
    """How much is shown: all, unless less is asked for."""
    return value if value in get_args(Detail) else "full"  # type: ignore[return-value]  # asked on its left


def moment(value: object, zone: tzinfo | None, *, end: bool = False) -> float | None:
    """A date or time in epoch seconds; the `end` of a day when no time of it is given. Raises `SessionError`."""
    given = text(value)
    if not given:
        return None
    try:
        told = datetime.fromisoformat(given)
        if end and len(given) <= len("2026-01-31"):
            told += timedelta(days=1)
        return (told if told.tzinfo else told.replace(tzinfo=zone)).timestamp()
    except (OverflowError, ValueError) as exc:
        raise SessionError(f"{value!r} is not a date", "write it as 2026-01-31 or 2026-01-31T12:00") from exc

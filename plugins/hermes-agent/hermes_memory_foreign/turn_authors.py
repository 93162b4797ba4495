"""Authors of turns in the form of Hermes Agent: an id, a name, and whether a program wrote the turn.

The id of a bot is `bot:PROFILE` or `bot:ORIGIN/PROFILE`, that of a plugin `plugin:ID`, that of a person the id of their
platform.
"""

from __future__ import annotations

import json
import os
import socket
import unicodedata
from collections.abc import Mapping, MutableMapping
from typing import Any

TURN_AUTHOR_ENV = "HERMES_TURN_AUTHOR"
"""The variable in which a program that starts an agent names the author of the turn."""

BOT_PREFIX, PLUGIN_PREFIX = "bot:", "plugin:"

# Authors come from other programs, and their names get into prompts and database keys.
_MAX_CHARS = 200
_TRUE_WORDS = frozenset({"1", "true", "yes"})


def turn_author(author: str, user_id: str = "", user_name: str = "") -> dict[str, Any] | None:
    """Return the author of a turn for a provider, None if nothing is known of them.

    Args:
        author: Name that the host gave to the turn. With the prefix of a bot or a plugin it is the author's id.
        user_id: The user of the session, who wrote the turn if the author is a person.
        user_name: Their name, if `author` is "".
    """
    text = _clean(author)
    for prefix in (BOT_PREFIX, PLUGIN_PREFIX):
        if text.startswith(prefix):
            name = text.removeprefix(prefix).rpartition("/")[2]
            return {"id": text, "name": name or text, "is_bot": True}
    name = text or _clean(user_name)
    return {"id": user_id, "name": name, "is_bot": False} if user_id or name else None


def author_text(author: Mapping[str, Any] | None) -> str:
    """Return the text that names an author of Hermes Agent in a turn of ours; `turn_author` is its inverse.

    A program is named by its id, which has a prefix, and a person by their name.
    """
    known = author or {}
    return _clean(known.get("id" if known.get("is_bot") else "name"))


def bot_author_id(profile: str, origin: str | None = None) -> str:
    """Return the id of a bot, with the installation that it runs on if that is another one."""
    place = f"{origin.strip()}/" if origin and origin.strip() else ""
    return f"{BOT_PREFIX}{place}{profile}"


def plugin_author_id(plugin_id: str) -> str:
    """Return the id of a plugin that queued a turn."""
    return f"{PLUGIN_PREFIX}{(plugin_id or '').strip()}"


def plugin_turn_author(plugin_id: str, name: str = "") -> dict[str, Any] | None:
    """Return the author of a turn that a plugin queued, None without a plugin."""
    known = _clean(plugin_id)
    return {"id": plugin_author_id(known), "name": _clean(name) or known, "is_bot": True} if known else None


def parse_turn_author(raw: Any) -> dict[str, Any] | None:
    """Return an author as `{"id", "name", "is_bot"}` from a mapping or its JSON, None if it names nobody."""
    if isinstance(raw, str | bytes):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            return None
    if not isinstance(raw, Mapping):
        return None
    identity, name, origin = (_clean(raw.get(key)) for key in ("id", "name", "origin"))
    if not identity and not name:
        return None
    if origin and identity.startswith(BOT_PREFIX) and "/" not in identity:
        identity = _clean(bot_author_id(identity.removeprefix(BOT_PREFIX), origin))
    return {"id": identity or None, "name": name or None, "is_bot": _is_true(raw.get("is_bot"))}


def turn_author_from_env(environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the author in `HERMES_TURN_AUTHOR`, None without one."""
    return parse_turn_author(environ.get(TURN_AUTHOR_ENV))


def take_turn_author_from_env(environ: MutableMapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the author in `HERMES_TURN_AUTHOR` and remove it, so that no child process inherits it."""
    return parse_turn_author(environ.pop(TURN_AUTHOR_ENV, None))


def turn_author_env(author: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that names this author to a child process."""
    return {TURN_AUTHOR_ENV: json.dumps(dict(author), separators=(",", ":"))}


def local_origin() -> str:
    """Return the name of this machine as part of a bot's id."""
    return _clean(socket.gethostname()).replace("/", "")


def a2a_key(author: Mapping[str, Any] | None) -> str | None:
    """Return the key under which the turns of one bot belong together, None for a person."""
    known = isinstance(author, Mapping) and author.get("is_bot") and author.get("id")
    return f"a2a:{known}" if known else None


def _clean(value: Any) -> str:
    """Return the text without control, private and unassigned characters, "" for anything else."""
    text = value if isinstance(value, str) else ""
    kept = (char for char in text if unicodedata.category(char) not in ("Cc", "Cs", "Cn", "Co"))
    return "".join(kept).strip()[:_MAX_CHARS]


def _is_true(value: Any) -> bool:
    return value.strip().lower() in _TRUE_WORDS if isinstance(value, str) else value is True or value == 1


VIEWS: dict[str, dict[str, object]] = {
    "agent.turn_author": {
        "TURN_AUTHOR_ENV": TURN_AUTHOR_ENV,
        **{
            function.__name__: function
            for function in (
                bot_author_id,
                plugin_author_id,
                plugin_turn_author,
                parse_turn_author,
                turn_author_from_env,
                take_turn_author_from_env,
                turn_author_env,
                local_origin,
                a2a_key,
            )
        },
    }
}

"""The settings, and a session's bank and tags, which follow from them."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

from hermes_core import Field, Session
from hermes_core.kit import START_TIMEOUT, ConfigError, Settings, key_of, person_name, profile_name

KEY = "HINDSIGHT_API_KEY"
NAME = "hindsight"
CLOUD = "https://api.hindsight.vectorize.io"
OWN_SERVER = "http://localhost:8888"
SESSION_TAG = "session:"
SCOPES = ("per_tag", "combined", "all_combinations", "shared")

_PLAIN = re.compile(r"\+?[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")
_HASHED = re.compile(r"-[0-9a-f]{8}$")

_LOCAL: dict[str, str | int | float | bool] = {"mode": "local_embedded"}

_More = partial(Field, advanced=True)
"""A setting that setup does not ask for."""

SETTINGS = (
    Field(
        "mode",
        default="cloud",
        choices=("cloud", "local_external", "local_embedded", "local"),
        env="HINDSIGHT_MODE",
        identity=True,
        help="Hindsight Cloud, a server of your own, or one that is run here (local is an older word for that).",
    ),
    Field(
        "api_url", env="HINDSIGHT_API_URL", identity=True, help="Address; the mode's usual one if not set."
    ),
    Field(
        "api_key",
        env=KEY,
        secret=True,
        required=True,
        when={"mode": "cloud"},
        url="https://ui.hindsight.vectorize.io",
        help="Key of the server.",
        aliases=("apiKey",),
    ),
    Field(
        "bank_id",
        env="HINDSIGHT_BANK_ID",
        identity=True,
        help="The one bank for everything; if not set, each profile and each user of a messenger has one.",
        aliases=("banks.hermes.bankId",),
    ),
    _More(
        "bank_id_template",
        identity=True,
        help="Bank by session: text with {profile}, {workspace}, {platform}, {user}, {session}.",
    ),
    Field("bank_mission", help="Who the agent is and what it is to think about when it reflects."),
    _More("bank_retain_mission", help="What is worth keeping of what is said."),
    _More("disposition_skepticism", int, minimum=1, maximum=5, help="1 trusting to 5 sceptical."),
    _More("disposition_literalism", int, minimum=1, maximum=5, help="1 free to 5 literal."),
    _More("disposition_empathy", int, minimum=1, maximum=5, help="1 detached to 5 empathetic."),
    Field(
        "memory_mode",
        default="hybrid",
        choices=("hybrid", "context", "tools"),
        help="Recall by itself and tools, recall only, or tools only.",
        aliases=("recall_mode",),
    ),
    _More("auto_recall", bool, True, "Recall before each turn."),
    _More("auto_retain", bool, True, "Keep each turn."),
    _More(
        "recall_prefetch_method",
        default="recall",
        choices=("recall", "reflect"),
        help="Memories as they are, or the server's own answer from them where it is quick enough.",
        aliases=("prefetch_method",),
    ),
    _More(
        "recall_budget",
        default="mid",
        choices=("low", "mid", "high"),
        env="HINDSIGHT_BUDGET",
        help="How far the server looks.",
        aliases=("budget", "banks.hermes.budget"),
    ),
    _More(
        "recall_max_tokens", int, 4096, "Tokens that recall may take, within the turn's budget.", minimum=1
    ),
    _More("recall_max_input_chars", int, 800, "Characters of a message that are searched with.", minimum=1),
    _More("recall_min_score", float, 0.0, "Score below which nothing is recalled.", minimum=0.0, maximum=1.0),
    _More("recall_timeout", float, 4.5, "Seconds for recall before a turn.", minimum=0.1, maximum=60.0),
    _More("recall_types", help="Any of world, experience, observation; all if not set, without repeats."),
    _More("recall_tags", help="Recall only what has these tags."),
    _More(
        "recall_tags_match",
        default="any",
        choices=("any", "all", "any_strict", "all_strict", "exact"),
        help="How they must match; the strict ones leave out what has no tags.",
    ),
    _More("recall_prompt_preamble", help="Text above what is recalled."),
    _More("retain_async", bool, True, "Let the server extract facts later; false waits for it."),
    _More("retain_context", default="conversation between Hermes Agent and the User", help="What turns are."),
    _More("retain_tags", env="HINDSIGHT_RETAIN_TAGS", help="Tags of all that is kept."),
    _More(
        "observation_scopes",
        env="HINDSIGHT_RETAIN_OBSERVATION_SCOPES",
        help="per_tag, combined, all_combinations, shared, or a JSON list of lists of tags.",
    ),
    _More("retain_source", env="HINDSIGHT_RETAIN_SOURCE", help="A word for where this comes from."),
    _More(
        "retain_user_prefix", default="User", env="HINDSIGHT_RETAIN_USER_PREFIX", help="Before their words."
    ),
    _More(
        "retain_assistant_prefix",
        default="Assistant",
        env="HINDSIGHT_RETAIN_ASSISTANT_PREFIX",
        help="Before the agent's words.",
    ),
    START_TIMEOUT,
    _More("timeout", float, 50.0, "Seconds for one call; at most 55.", env="HINDSIGHT_TIMEOUT", minimum=0.1),
    _More("profile", default="hermes", identity=True, help="Profile of hindsight-embed.", when=_LOCAL),
    Field("llm_provider", when=_LOCAL, help="Model provider of the server, as openai or ollama."),
    Field("llm_model", when=_LOCAL, help="Its model."),
    Field("llm_base_url", when=_LOCAL, env="HINDSIGHT_API_LLM_BASE_URL", help="Its address."),
    Field(
        "llm_api_key",
        env="HINDSIGHT_LLM_API_KEY",
        secret=True,
        when=_LOCAL,
        help="Its key.",
        aliases=("llmApiKey",),
    ),
    _More(
        "database_url",
        env="HINDSIGHT_EMBED_API_DATABASE_URL",
        secret=True,
        when=_LOCAL,
        help="A Postgres to use instead of the server's own.",
    ),
    _More("stop_daemon", bool, True, "Stop the server in the end if we started it.", when=_LOCAL),
)


def embedded(options: Settings) -> bool:
    """Return whether the server runs here."""
    return options.mode in ("local_embedded", "local")


def bank_of(options: Settings, session: Session) -> str:
    """Return the bank of a session: by the template, else the configured one, else one for each profile and user."""
    values = {
        "profile": session.identity,
        "workspace": session.workspace,
        "platform": session.platform,
        "user": _person(session),
        "session": session.id,
    }
    filled = re.sub(r"\{(\w+)\}", lambda m: _slug(values.get(m[1], "")), options.bank_id_template or "")
    filled = re.sub(r"([-_])[-_]+", r"\1", filled).strip("-_")
    if filled or options.bank_id:
        return filled or str(options.bank_id)
    return "-".join(filter(None, (profile_name(session.identity), person_name(session))))


def bank_config(options: Settings) -> dict[str, Any]:
    """Return the person's configuration of the bank in the server's words; empty if nothing is set."""
    wanted = {
        "reflect_mission": options.bank_mission,
        "retain_mission": options.bank_retain_mission,
        "disposition_skepticism": options.disposition_skepticism,
        "disposition_literalism": options.disposition_literalism,
        "disposition_empathy": options.disposition_empathy,
    }
    return {name: value for name, value in wanted.items() if value not in (None, "")}


def labels(options: Settings, session: Session) -> dict[str, Any]:
    """Return tags, metadata and scopes for everything that a session stores.

    They are equal for each piece: the server gives a document's earlier memories the tags of the last appended one.
    """
    known = {
        "session_id": session.id,
        "platform": session.platform,
        "user_id": session.user_id,
        "user_name": session.user_name,
        "chat_id": session.chat_id,
        "chat_name": session.chat_name,
        "chat_type": session.chat_type,
        "thread_id": session.thread_id,
        "agent_identity": session.identity,
        "source": options.retain_source or "",
    }
    parent = [f"parent:{session.parent_id}"] if session.parent_id else []
    told: dict[str, Any] = {
        "tags": [*words(options.retain_tags), f"{SESSION_TAG}{session.id}", *parent],
        "metadata": {name: value for name, value in known.items() if value},
    }
    if options.observation_scopes:
        told["observation_scopes"] = _scopes(options.observation_scopes)
    return told


def words(text: str | None) -> list[str]:
    """Return the entries of a text with commas.

    >>> words("home, work,")
    ['home', 'work']
    """
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _scopes(text: str) -> str | list[list[str]]:
    """Return `text` as the server takes it: one of its words, or lists of tags. Raises `ConfigError`."""
    if text.strip() in SCOPES:
        return text.strip()
    try:
        lists = json.loads(text)
    except ValueError:
        lists = None
    if not isinstance(lists, list) or not all(isinstance(tags, list) for tags in lists):
        raise ConfigError(
            f"'observation_scopes' is {text!r}", f'write one of {", ".join(SCOPES)}, or [["tag", ...], ...]'
        )
    return [[str(tag) for tag in tags] for tags in lists]


def _person(session: Session) -> str:
    """Return the user's id for a template, "" for the person at home.

    An id that loses characters, or looks as if it had, gets a hash. So does a chat without users, so that it
    differs from a user of that id.
    """
    if not session.owner:
        return ""
    user, who = session.user_id, session.user_id or session.chat_id or session.owner
    if _PLAIN.fullmatch(user) and not _HASHED.search(user):
        return who
    key = key_of(who, length=8) if user else key_of("chat", who, length=8)
    return f"{_slug(who).strip('-_') or 'x'}-{key}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")

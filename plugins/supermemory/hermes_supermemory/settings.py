"""The settings, declared once for validation and setup, and the container of a session."""

from __future__ import annotations

import re

from hermes_core import Field, Session
from hermes_core.kit import RECALL_MODE, Settings, key_of

NAME = "supermemory"
KEY = "SUPERMEMORY_API_KEY"
HOSTED = "https://api.supermemory.ai"

ENTITY_CONTEXT = """A conversation between a person and their AI assistant. Keep what lasts: who the person is, what they
like and dislike, what they decided, their projects, plans, people and dates. Leave out small talk, what the assistant
merely proposed, and instructions that hold for one task only."""
"""What is extracted unless the settings say otherwise."""

SETTINGS = (
    Field(
        "api_key",
        env=KEY,
        secret=True,
        help="Key of your Supermemory account, or of your own server.",
        url="https://console.supermemory.ai",
    ),
    Field(
        "base_url",
        str,
        "",
        "Address of a server of your own; empty: supermemory.ai.",
        env="SUPERMEMORY_BASE_URL",
        identity=True,
    ),
    Field(
        "api",
        str,
        "auto",
        "API that the server speaks; auto: v5, and v4 where there is no v5.",
        choices=("auto", "v5", "v4"),
        advanced=True,
    ),
    Field(
        "container_tag",
        str,
        "",
        "Container (namespace) of the memories, {identity} stands for the profile; empty: one for each profile.",
        env="SUPERMEMORY_CONTAINER_TAG",
        identity=True,
    ),
    RECALL_MODE,
    Field("auto_recall", bool, True, "Recall before each turn."),
    Field("auto_capture", bool, True, "Send each turn as it ends."),
    Field(
        "capture_mode",
        str,
        "all",
        "all: every turn but small talk; everything: small talk too.",
        choices=("all", "everything"),
        advanced=True,
    ),
    Field(
        "search_mode",
        str,
        "hybrid",
        "What is searched: memories, passages of documents, or both.",
        choices=("hybrid", "memories", "documents"),
        advanced=True,
    ),
    Field(
        "max_recall_results",
        int,
        10,
        "Memories that a turn is given at most.",
        minimum=1,
        maximum=20,
        clamp=True,
        advanced=True,
    ),
    Field(
        "min_score",
        float,
        0.5,
        "Memories that fit a message less than this are not recalled.",
        minimum=0.0,
        maximum=1.0,
        advanced=True,
    ),
    Field(
        "profile_frequency",
        int,
        50,
        "The person's profile comes with the first turn and then every this many turns.",
        minimum=1,
        maximum=500,
        clamp=True,
        advanced=True,
    ),
    Field(
        "entity_context",
        str,
        ENTITY_CONTEXT,
        "What to extract, in plain words; 1500 characters are read.",
        advanced=True,
    ),
    Field(
        "api_timeout",
        float,
        5.0,
        "Seconds to wait for an answer.",
        minimum=0.5,
        maximum=15.0,
        clamp=True,
        advanced=True,
    ),
    Field(
        "enable_custom_container_tags",
        bool,
        False,
        "Let the model choose among more containers.",
        advanced=True,
    ),
    Field("custom_containers", str, "", "Names of those containers, with commas.", advanced=True),
    Field("custom_container_instructions", str, "", "When to use which, for the model.", advanced=True),
)


def primary_tag(options: Settings, identity: str) -> str:
    """Return the container of a profile as Hermes Agent spells it: letters, digits and underscores."""
    own = "hermes" if identity == "default" else "hermes_{identity}"
    return _spelt((options.container_tag or own).replace("{identity}", identity or "default"))


def custom_tags(options: Settings) -> list[str]:
    """Return the further containers that the model may choose."""
    if not options.enable_custom_container_tags:
        return []
    return list(dict.fromkeys(_spelt(tag) for tag in options.custom_containers.split(",") if tag.strip()))


def container_of(options: Settings, session: Session, tag: str = "") -> str:
    """Return the container of a session's memories; a messenger's user, or a chat without users, has one beside it."""
    tag = tag or primary_tag(options, session.identity)
    if not session.owner:
        return tag
    who = (session.platform, session.user_id) if session.user_id else (session.owner,)
    return f"{tag}_{_spelt(session.platform)[:16]}_{key_of(*who, length=16)}"


def guidance(options: Settings) -> str:
    """Return instructions on what the server extracts."""
    return str(options.entity_context or ENTITY_CONTEXT)


def _spelt(name: str) -> str:
    return re.sub("[^A-Za-z0-9_]+", "_", name).strip("_")[:60] or "hermes"

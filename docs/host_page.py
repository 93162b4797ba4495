"""The page for hosts: the public names that a program calls, with every method of theirs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kit_page import call_of
from tables import cell, docstring_markdown

import hermes_core
from hermes_core import agent
from hermes_core.sessions.db import SessionDB
from hermes_core.telemetry import Telemetry

NAMES = (
    "open_memory",
    "Memory",
    "Conversation",
    "OpenTurn",
    "ToolResult",
    "TurnRecall",
    "open_memory_async",
    "AsyncMemory",
    "AsyncConversation",
    "AsyncOpenTurn",
    "MemoryStore",
    "MemoryManager",
    "HermesHome",
    "discover_providers",
    "load_provider",
    "register_in_hermes_agent",
    "sanitize_context",
    "StreamingContextScrubber",
)
"""From what every host calls to what few need."""

AGENT_NAMES = (
    "Agent",
    "TurnResult",
    "Tool",
    "OpenAIModel",
    "ModelSettings",
    "ConfiguredModels",
    "ChatModel",
    "Answer",
    "ToolRequest",
    "Usage",
)
"""The public names of `hermes_core.agent`, in the same order."""


def host_page() -> Iterator[str]:
    """Every name with its signature and docstring, and so each method of a class."""
    yield "# The API for hosts\n"
    yield (
        "What a program that embeds memory calls. [Embed it](../how-to/embed.md) shows how it goes together, "
        "[values](values.md) what is passed and [errors](errors.md) what is raised. The names are imported from `hermes_core`, "
        f"but for those of the agent, which come from `hermes_core.agent`: {', '.join(f'`{name}`' for name in AGENT_NAMES)}.\n"
    )
    yield "`Memory.sessions` is a `hermes_core.sessions.db.SessionDB`, whose name a program needs for annotations only. "
    yield "`Telemetry` comes from `hermes_core.telemetry`, which needs the extra `[otel]`.\n"
    public = {name: getattr(hermes_core if name in NAMES else agent, name) for name in (*NAMES, *AGENT_NAMES)}
    for name, it in {**public, "SessionDB": SessionDB, "Telemetry": Telemetry}.items():
        yield from section(f"## {name}", name, it)
        ours = [cls for cls in getattr(it, "__mro__", ()) if cls.__module__.startswith("hermes_core.")]
        members = {member: what for cls in reversed(ours) for member, what in vars(cls).items()}
        shown = [(member, what) for member, what in members.items() if not member.startswith("_")]
        facts = [(member, what) for member, what in shown if isinstance(what, property)]
        if facts:
            yield "| | |\n|---|---|"
            yield from (f"| `{member}` | {cell(inspect.getdoc(fact) or '')} |" for member, fact in facts)
            yield ""
        for member, what in shown:
            if isinstance(what, staticmethod | classmethod) or inspect.isfunction(what):
                yield from section(f"### {name}.{member}", member, getattr(it, member))


def section(heading: str, name: str, it: Callable[..., Any]) -> Iterator[str]:
    """A heading, how it is called, and the docstring."""
    yield f"{heading}\n\n`{name}{call_of(it)}`\n\n{docstring_markdown(inspect.getdoc(it) or '')}\n"


PAGES: dict[str, Callable[[], Iterable[str]]] = {"reference/host.md": host_page}

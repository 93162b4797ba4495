"""The pages for hosts: the public names that a program calls, with every method of theirs, a page for each subject."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from kit_page import call_of
from tables import cell, docstring_markdown

import hermes_core
import hermes_memory_agent as agent
from hermes_core.sessions.past_sessions import PastSessions
from hermes_core.sessions.session_meta import SessionMeta
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_store import TurnStore
from hermes_memory_telemetry.telemetry import Telemetry


@dataclass(frozen=True)
class Subject:
    """One page: its file, its title, a sentence about it, and its names, from what every host calls to what few need."""

    file: str
    title: str
    about: str
    names: tuple[str, ...]


SUBJECTS = (
    Subject(
        "memory",
        "The memory",
        "A home that is open: recall, turns, notes, sessions and the provider.",
        ("open_memory", "Memory"),
    ),
    Subject(
        "conversation",
        "A conversation",
        "One conversation and its turns, with what to send to a model.",
        ("Conversation", "OpenTurn", "ToolResult", "TurnRecall"),
    ),
    Subject(
        "asyncio",
        "The memory on asyncio",
        "The same names, awaitable; [the awaitable twin](../async.md) says what differs.",
        ("open_memory_async", "AsyncMemory", "AsyncConversation", "AsyncOpenTurn"),
    ),
    Subject("notes", "Notes", "The notes of a memory: `Memory.curated`.", ("Notes", "open_notes")),
    Subject(
        "sessions",
        "The store of sessions",
        "`Memory.sessions`, a `hermes_core.sessions.session_store.SessionStore`, whose name a program needs for annotations "
        "only. Its attributes `past`, `turns` and `meta` have [a page of their own](past-sessions.md).",
        ("SessionStore",),
    ),
    Subject(
        "past-sessions",
        "Past sessions and turns",
        "What `Memory.sessions` has as `past`, `turns` and `meta`: search, turns, and facts about sessions.",
        ("PastSessions", "TurnStore", "SessionMeta"),
    ),
    Subject(
        "agent",
        "The agent",
        "The reference agent and its models. Import these names from `hermes_memory_agent`.",
        (
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
        ),
    ),
    Subject(
        "providers",
        "Providers",
        "What lists, loads and calls providers, and the home that they keep their data in.",
        ("MemoryManager", "HermesHome", "discover_providers", "load_provider", "register_in_hermes_agent"),
    ),
    Subject(
        "telemetry",
        "Traces and metrics",
        "The settings of OpenTelemetry. Import it from `hermes_memory_telemetry.telemetry`, of the package `hermes-memory-telemetry`.",
        ("Telemetry",),
    ),
    Subject(
        "recalled-text",
        "Recalled text",
        "What keeps the recall fence out of stored messages and answers.",
        ("sanitize_context", "StreamingContextScrubber"),
    ),
)

OTHERS: dict[str, Any] = {
    "PastSessions": PastSessions,
    "SessionMeta": SessionMeta,
    "SessionStore": SessionStore,
    "Telemetry": Telemetry,
    "TurnStore": TurnStore,
}
"""Names that neither package exports."""


def overview() -> Iterator[str]:
    """The subjects with their names."""
    yield "# The API for hosts\n"
    yield (
        "What a program that embeds memory calls. [Embed it](../how-to/embed.md) shows how it goes together, "
        "[values](values.md) what is passed and [errors](errors.md) what is raised. Import the names from `hermes_core` "
        "unless their page names another module.\n"
    )
    yield "| subject | names |\n|---|---|"
    for subject in SUBJECTS:
        page = f"host/{subject.file}.md"
        links = ", ".join(f"[`{name}`]({page}#{name.lower()})" for name in subject.names)
        yield f"| [{subject.title}]({page}) | {links} |"
    authors = ", ".join(f"`{name}`" for name in sorted(hermes_core.AUTHORS))
    yield (
        "\n`hermes_core` also has names for [authors of providers](../how-to/write-a-provider.md), which a host does not call: "
        f"{authors}. Both use `Session`, `Turn`, `HermesError` and `HermesHome`."
    )


def subject_page(subject: Subject) -> Iterator[str]:
    """Every name of a subject with its signature and docstring, and so each method of a class."""
    yield f"# {subject.title}\n\n{subject.about}\n"
    for name in subject.names:
        it = OTHERS.get(name) or getattr(hermes_core, name, None) or getattr(agent, name)
        yield from section(f"## {name}", name, it)
        ours = [
            cls
            for cls in getattr(it, "__mro__", ())
            if cls.__module__.startswith(("hermes_core.", "hermes_memory_"))
        ]
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


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "reference/host.md": overview,
    **{f"reference/host/{subject.file}.md": partial(subject_page, subject) for subject in SUBJECTS},
}

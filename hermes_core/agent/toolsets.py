"""The tools that come with the house: memory and the provider's, search, skills, a list of steps."""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from hermes_core.agent.answer import Chat
from hermes_core.agent.compression import text_of
from hermes_core.agent.tools import Tool, error
from hermes_core.contract.values import Session
from hermes_core.memory import Memory
from hermes_core.skills.store import SkillStore
from hermes_core.skills.tool import SKILL_MANAGE_SCHEMA, SKILL_VIEW_SCHEMA, SkillTools

log = logging.getLogger(__name__)

SEARCH = "session_search"
CURATED = "memory"
TOOLSETS = ("memory", SEARCH, "skills", "todo", "delegation", "host")
"""The toolsets of every agent; `host` is that of tools that name none."""


def unknown_toolsets(named: Collection[str] | None, host_tools: Iterable[Tool]) -> list[str]:
    """A sentence for each name in `enabled_toolsets` that no tool can have, as a misspelt one."""
    known = sorted({*TOOLSETS, *(tool.toolset for tool in host_tools)})
    told = []
    for name in named or ():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            instead = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            told.append(f"there is no toolset {name!r} (enabled_toolsets); {instead}")
    return told


def with_memory(
    memory: Memory, others: Sequence[Tool], enabled: Collection[str] | None, problems: list[str]
) -> list[Tool]:
    """`memory`, `session_search`, and what the provider offers, before the `others`. What the provider names like one of
    these is left out, and `problems` says so.
    """

    def offered(tools: Iterable[Tool]) -> list[Tool]:
        return [tool for tool in tools if enabled is None or tool.toolset in enabled]

    taken = {tool.name for tool in offered(others)} - {CURATED, SEARCH}
    found = offered(_memory_tools(memory))
    for name in sorted(taken & {tool.name for tool in found}):
        problems.append(f"the memory provider's tool {name!r} is left out: the host has one of that name")
        log.warning(problems[-1])
    return [*(tool for tool in found if tool.name not in taken), *others]


def without_memory(memory: Memory, others: Sequence[Tool], session: Session) -> list[Tool]:
    """`session_search` before the `others`; not for a subagent, whose parent tells it all that it needs."""
    found = [] if session.agent_context == "subagent" else _memory_tools(memory)
    return [*(tool for tool in found if tool.name == SEARCH), *others]


def _memory_tools(memory: Memory) -> list[Tool]:
    return [
        Tool.of(
            schema,
            partial(memory.call_tool, schema["name"]),
            SEARCH if schema["name"] == SEARCH else "memory",
            quick=schema["name"] in (SEARCH, CURATED),
        )
        for schema in memory.tool_schemas()
    ]


def open_skills(memory: Memory) -> SkillStore | None:
    """The skills of the home, None where they are switched off."""
    settings = memory.config.skills
    return SkillStore(memory.home.skills, settings.external_dirs) if settings.enabled else None


def house_tools(skills: SkillStore | None, memory: Memory) -> list[Tool]:
    """`skill_view` and `skill_manage`, where skills are not switched off, and `todo`."""

    def stored(session: Session) -> Sequence[Chat]:
        return memory.sessions.get_messages_as_conversation(session.id, include_ancestors=True)

    return [*(_skill_tools(skills) if skills is not None else ()), todo_tool(stored)]


def _skill_tools(store: SkillStore) -> list[Tool]:
    tools = SkillTools(store)
    return [
        Tool.of(schema, partial(tools.call, schema["name"]), "skills", quick=True)
        for schema in (SKILL_VIEW_SCHEMA, SKILL_MANAGE_SCHEMA)
    ]


def todo_tool(stored: Callable[[Session], Sequence[Chat]] = lambda _: ()) -> Tool:
    """A list of steps that the model keeps for itself during a session, also behind compressions.

    `stored` is the whole conversation so far, in which an agent that goes on with it finds the list.
    """
    steps: dict[str, list[dict[str, str]]] = {}

    def run(arguments: Mapping[str, Any], session: Session) -> str:
        given = arguments.get("todos")
        if isinstance(given, list):
            steps[session.id] = [_step(item) for item in given if isinstance(item, dict | str)]
        elif given is not None:
            return error("todos must be a list of steps", "send the whole list again")
        elif session.id not in steps:
            steps[session.id] = steps.get(session.parent_id) or _last_steps(stored(session))
        return json.dumps({"todos": steps[session.id]}, ensure_ascii=False)

    return Tool("todo", _TODO_DESCRIPTION, _TODO_PARAMETERS, run, "todo", quick=True)


def _last_steps(conversation: Sequence[Chat]) -> list[dict[str, str]]:
    for message in reversed(conversation):
        if message["role"] == "tool" and message.get("name") == "todo":
            with contextlib.suppress(ValueError, TypeError, KeyError):
                found = json.loads(text_of(message.get("content")))["todos"]
                return [_step(item) for item in found if isinstance(item, dict | str)]
    return []


_TODO_STATES = ("pending", "in_progress", "completed", "cancelled")
_TODO_DESCRIPTION = "Your list of steps for a task of three steps or more. With `todos`: the whole new list. Without: the list as it is."
_TODO_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "todos": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": list(_TODO_STATES)},
                },
                "required": ["content", "status"],
            },
        }
    },
}


def _step(item: Mapping[str, Any] | str) -> dict[str, str]:
    if isinstance(item, str):
        item = {"content": item}
    status = item.get("status")
    known = status if status in _TODO_STATES else "pending"
    return {"content": str(item.get("content", "")), "status": known}

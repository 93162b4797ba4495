"""What an agent has with it in a session: its tools, and the system prompt that speaks of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import TypeVar

from hermes_core.agent.cancel import Cancel
from hermes_core.agent.chat_model import require_model
from hermes_core.agent.delegation import delegate_tool
from hermes_core.agent.exchange import untold
from hermes_core.agent.given import Kind, refused, require, require_function
from hermes_core.agent.prompt import PromptParts, context_file, read_part, system_prompt
from hermes_core.agent.review import Background
from hermes_core.agent.shared import shared_of
from hermes_core.agent.tools import Tool, Toolbelt
from hermes_core.agent.toolsets import house_tools, unknown_toolsets, with_memory, without_memory
from hermes_core.contract.values import Session
from hermes_core.memory import Memory

Item = TypeVar("Item")


class Equipment:
    """The tools of the house, of the memory's provider and `host_tools`, as far as they belong to `toolsets`.

    `problems` say what of it can't be had as asked. The rest is as in `Agent`.
    """

    def __init__(
        self,
        memory: Memory,
        session: Session,
        *,
        instructions: str,
        host_tools: Iterable[Tool],
        toolsets: Collection[str] | None,
        folder: str | os.PathLike[str] | None,
        skip_memory: bool,
        result_limit: int,
        delegate: Callable[[str, str], str],
    ) -> None:
        require("instructions", instructions, str, "a text")
        require("folder", folder, (str, os.PathLike, NoneType), "a path")
        self.host_tools = _all("tool", host_tools, Tool, "Tool(name, description, parameters, run)")
        if toolsets is not None:
            toolsets = _all("toolset", toolsets, str, "a name")
        wanted = toolsets if toolsets is not None else memory.config.enabled_toolsets.of(session.platform)
        self.skills = shared_of(memory).skills
        self.toolsets = None if wanted is None else frozenset(wanted)
        self.problems = unknown_toolsets(wanted, self.host_tools)
        self._memory = memory
        self._instructions = instructions
        self._folder = None if folder is None else Path(folder)
        self._skip_memory = skip_memory
        delegating = [delegate_tool(delegate)] if session.agent_context != "subagent" else []
        others = [*delegating, *house_tools(self.skills, memory), *self.host_tools]
        if skip_memory:
            tools = without_memory(memory, others, session)
        else:
            tools = with_memory(memory, others, self.toolsets, self.problems)
        self.belt = Toolbelt(tools, self.toolsets, result_limit)

    def has(self, toolset: str) -> bool:
        """Whether the model gets the tools of this name."""
        return self.toolsets is None or toolset in self.toolsets

    def prompt(self, session: Session, now: float, problems: list[str]) -> str:
        """The system prompt of a session that begins `now`; what is left out of it is added to `problems`."""
        parts = PromptParts(
            identity=read_part(self._memory.home.soul_md, problems),
            instructions=self._instructions,
            memory="" if self._skip_memory else self._memory.system_prompt(session),
            skills=self.skills.index() if self.skills is not None and self.has("skills") else "",
            context_file=context_file(self._folder, problems),
            today=datetime.fromtimestamp(now).astimezone().date(),
            platform=session.platform,
        )
        return system_prompt(parts, [schema["name"] for schema in self.belt.schemas])


def _all(what: str, given: Iterable[Item], kind: Kind, instead: str) -> tuple[Item, ...]:
    """What a host gives several of. Raises `ConfigError` for one in place of several, and for what is none of them."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise refused(f"{what}s", given, f"a list, and in it {instead}")
    found = tuple(given)
    for one in found:
        require(f"a {what}", one, kind, instead)
    return found


def require_parts(
    memory: object, model: object, auxiliary: object, background: object, cancel: object, reviewed: object
) -> None:
    """Raises `ConfigError` for a part of an agent that is none."""
    require("memory", memory, Memory, "what open_memory returned")
    require_model("model", model)
    require_model("auxiliary", auxiliary or model)
    require("background", background, (Background, NoneType), "a Background, or none")
    require("cancel", cancel, (Cancel, NoneType), "a Cancel, or none")
    require_function("reviewed", reviewed or untold)

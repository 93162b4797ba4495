"""The agent's tools: registration, calls by a model, and the built-in tools.

Each call is answered with text. If the arguments are no JSON, the name is unknown or the tool fails, the text is an
error for the model to read, and the turn continues.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import logging
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hermes_core import Memory
from hermes_core.config import Config
from hermes_core.contract.values import LONGEST_TOOL_NAME, TOOL_NAME_LETTERS, Origin, Session
from hermes_core.errors import ConfigError, HermesError
from hermes_core.kit import redact
from hermes_core.loader.extras import ProviderExtras
from hermes_core.manager.call import attempt, ends_program
from hermes_core.manager.providers import schema_fault
from hermes_core.safety.fence import clean_result, without_context
from hermes_core.safety.origin import current_reading, report_result
from hermes_core.sessions.records import text_of
from hermes_memory_agent.answer import Messages, ToolRequest
from hermes_memory_agent.cancel import Cancel, interruptible
from hermes_memory_agent.skills.store import SkillStore
from hermes_memory_agent.skills.tool import SKILL_MANAGE_SCHEMA, SKILL_VIEW_SCHEMA, SkillTools

log = logging.getLogger(__name__)

# The memory's own tools: their results say themselves where their texts come from.
TRUSTED_TOOLS = Config().memory.trusted_tools

# Arguments that were no JSON object are sent back to the model as text under this key, since servers demand an object.
MALFORMED = "malformed_arguments"

_INVALID_NAME = re.compile(f"[^{TOOL_NAME_LETTERS}]+")
# Approximate length of the note in a truncated text.
_TRUNCATION_NOTE = 60

_RETURN_RESULT = "give a function that waits for its whole result"

_FIELDS: Mapping[str, tuple[Any, str]] = {
    "name": (str, "a text"),
    "description": (str, "a text"),
    "parameters": (Mapping, "a JSON schema"),
    "run": (Callable, "a function of arguments and session"),
    "toolset": (str, "one name"),
}

Run = Callable[[Mapping[str, Any], Session], Any]
Refuse = Callable[[str, Mapping[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool for the model.

    Attributes:
        name: Name of the tool.
        description: Text that tells the model when and how to use the tool.
        parameters: JSON schema of the arguments.
        run: Function of the arguments and the session. Its result is sent to the model; a result that is no text is
            sent as JSON.
        toolset: Name of the tool's group, by which config.yaml enables tools on a platform.
        quick: True to run the tool on the turn's own thread, where an interrupt waits for its end. Any other tool runs
            on a separate thread and is abandoned when the person interrupts.
        parallel: True if the tool may run at the same time as other parallel tools that the model calls in one answer.
            Other calls run one after another, in the order of the answer.
        origin: Origin of the results: "tool", or "web" for a tool that reads pages.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Run
    toolset: str = "host"
    quick: bool = False
    parallel: bool = False
    origin: Origin = "tool"

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.run):
            raise ConfigError(f"tool {self.name!r} is async", _RETURN_RESULT)
        for field, (kind, instead) in _FIELDS.items():
            if not isinstance(value := getattr(self, field), kind):
                raise ConfigError(
                    f"tool {self.name!r} has a {type(value).__name__} for its {field}", f"give {instead}"
                )
        if fault := schema_fault(self.schema):
            raise ConfigError(f"no model takes the tool {self.name!r}", fault)

    @classmethod
    def of(cls, schema: Mapping[str, Any], run: Run, toolset: str, *, quick: bool = False) -> Tool:
        """Create a tool from a schema `{"name", "description", "parameters"}`; see `Tool` for the other arguments."""
        fields: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        name: Any = fields.get("name")  # None is refused like anything else that is no text
        return cls(name, fields.get("description", ""), fields.get("parameters", {}), run, toolset, quick)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool's schema for the model. OpenAI refuses empty `parameters`, so they describe at least an object."""
        parameters = {"type": "object", "properties": {}, **self.parameters}
        return {"name": self.name, "description": self.description, "parameters": parameters}


class ToolRegistry:
    """The tools that an agent may call, in a fixed order.

    Args:
        tools: The tools.
        enabled: Names of the enabled toolsets; tools of other toolsets are left out. None enables all.
        result_limit: Characters of the longest result; a longer result is truncated.
        trusted: Names of the tools whose results count as the agent's own words.

    Raises:
        ConfigError: two tools have the same name.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        enabled: Collection[str] | None = None,
        result_limit: int = 40_000,
        trusted: Collection[str] = TRUSTED_TOOLS,
    ) -> None:
        self._tools: dict[str, Tool] = {}
        self._trusted = frozenset(trusted)
        self._result_limit = result_limit
        for tool in tools:
            if enabled is not None and tool.toolset not in enabled:
                continue
            if tool.name in self._tools:
                raise ConfigError(f"two tools are named {tool.name!r}", "rename the host's own")
            self._tools[tool.name] = tool

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The schemas for the model, the same in every request of the session."""
        return [tool.schema for tool in self._tools.values()]

    def is_parallel(self, name: str) -> bool:
        """Return True if calls of the tool with this name may run at the same time as other parallel calls."""
        tool = self._tools.get(name)
        return tool is not None and tool.parallel

    def origin_of(self, name: str) -> Origin:
        """Return the origin of the results of a tool that does not report one itself."""
        tool = self._tools.get(name)
        if tool is None:
            return "assistant"
        # A host's own tool may have the name of one of ours that is switched off.
        trusted = name in self._trusted and not (name in TRUSTED_TOOLS and tool.toolset == "host")
        return "assistant" if trusted else tool.origin

    def restricted(self, names: Collection[str], refuse: Refuse) -> ToolRegistry:
        """Return a registry of the same tools that answers calls of most of them with an error.

        All schemas stay, so that a request begins with the same text and the server's prefix cache can be used.

        Args:
            names: Names of the tools that still run.
            refuse: Function of a tool's name and its arguments that returns the reason to refuse a call, or "".
        """

        def guard(tool: Tool) -> Tool:
            def run(arguments: Mapping[str, Any], session: Session) -> str:
                if tool.name not in names:
                    return error(f"{tool.name!r} can not be used here", "use the memory and skill tools only")
                reason = refuse(tool.name, arguments)
                return error(reason) if reason else tool.run(arguments, session)

            return replace(tool, run=run, parallel=False)

        return ToolRegistry(
            map(guard, self._tools.values()), result_limit=self._result_limit, trusted=self._trusted
        )

    def call(self, request: ToolRequest, session: Session, cancel: Cancel) -> str:
        """Run a tool call; return the result as text, or an error as text. Raise only `Cancelled`, on an interrupt."""
        tool = self._tools.get(request.name)
        if tool is None:
            return error(f"there is no tool {request.name!r}", f"tools are: {', '.join(self._tools)}")
        arguments = parse_arguments(request)
        if isinstance(arguments, str):
            return error(arguments, "send the call again")
        result, failure = _run(tool, arguments, session, cancel)
        if failure is not None:
            log.info("tool %r failed", tool.name, exc_info=failure)
            reason = truncated(str(failure), self._result_limit)
            return error(f"tool {tool.name!r} failed: {type(failure).__name__}: {reason}")
        return truncated(result, self._result_limit)


def watched(tool: Tool, extras: ProviderExtras) -> Tool:
    """Return the tool with the hooks of a provider's package around it, which may refuse a call or change its result."""

    def run(arguments: Mapping[str, Any], session: Session) -> str:
        if reason := extras.before_tool(tool.name, arguments, session):
            return error(reason)
        result = _text(tool.run(arguments, session))
        changed = extras.after_tool(tool.name, arguments, result, session)
        if changed != result:
            report_result(["provider"])
        return changed

    return replace(tool, run=run)


def error(message: str, remedy: str = "") -> str:
    """Return an error as JSON for the model, with secrets removed; `remedy` says what the model should do."""
    text = redact(f"{message}; {remedy}" if remedy else message)
    return json.dumps({"error": text}, ensure_ascii=False)


def parse_arguments(request: ToolRequest) -> dict[str, Any] | str:
    """Return the decoded arguments of a tool call, or a sentence with the fault if they are no JSON object.

    Recall fences that the model copied into the arguments are removed.
    """
    try:
        arguments = without_context(
            json.loads(request.arguments or "{}", strict=False, parse_constant=_refuse_constant)
        )
    except (ValueError, RecursionError) as exc:  # a model that can't stop writes "[[[["
        return f"the arguments of {request.name!r} are no JSON ({exc})"
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        return f"the arguments of {request.name!r} must be an object, not {type(arguments).__name__}"
    if MALFORMED in arguments:
        return f"the arguments of {request.name!r} were no JSON object: {arguments[MALFORMED]!r}"
    return arguments


def sendable(call: ToolRequest, known: Container[str] = (), prefix: str = "") -> ToolRequest:
    """Return a tool call in a form that every server accepts when a later request contains it.

    Args:
        call: The call as the model wrote it.
        known: Names of tools that stay unchanged. In another name, each letter that servers refuse becomes "_".
        prefix: Text to put before arguments that are no JSON object, to tell the model what went wrong.
    """
    arguments = parse_arguments(call)
    valid = {MALFORMED: prefix + call.arguments[:2000]} if isinstance(arguments, str) else arguments
    name = call.name
    if name not in known:
        name = _INVALID_NAME.sub("_", name.strip())[:LONGEST_TOOL_NAME] or "unnamed"
    return replace(call, name=name, arguments=json.dumps(valid, ensure_ascii=False))


def _refuse_constant(name: str) -> None:
    """Raise `ValueError` for NaN and Infinity: Python's JSON reads them, but servers refuse them in later requests."""
    raise ValueError(f"{name} is none of its values")


def truncated(text: str, limit: int) -> str:
    """Replace the middle of a text that is longer than `limit` characters by a note.

    Truncating the result again with the same limit does not change it.
    """
    if len(text) <= limit + _TRUNCATION_NOTE:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"


def _run(
    tool: Tool, arguments: Mapping[str, Any], session: Session, cancel: Cancel
) -> tuple[Any, BaseException | None]:
    def work() -> tuple[Any, BaseException | None]:
        return attempt(lambda: _text(tool.run(arguments, session)))

    if not tool.quick:
        try:
            return interruptible(work, cancel, f"agent-tool-{tool.name}")
        except HermesError as exc:  # no thread is left
            return None, exc
    result, failure = work()
    if failure is not None and ends_program(failure):
        raise failure
    return result, failure


def _text(result: Any) -> str:
    if isinstance(result, Awaitable | AsyncIterator | Iterator):
        if isinstance(result, Coroutine):
            result.close()  # else Python warns that it was never awaited
        raise TypeError(f"it gave a {type(result).__name__}; {_RETURN_RESULT}")
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


# -------------------------------------------------------------- built-in tools

SEARCH_TOOL = "session_search"
MEMORY_TOOL = "memory"
# The toolsets of every agent. Tools of the host that name no toolset are in `host`.
TOOLSETS = ("memory", SEARCH_TOOL, "skills", "todo", "delegation", "host")


def unknown_toolsets(names: Collection[str] | None, host_tools: Iterable[Tool]) -> list[str]:
    """Return a sentence for each unknown, perhaps misspelt, toolset in `names`, the setting `enabled_toolsets`.

    Toolsets of the host's own tools are known. None as `names` enables all toolsets.
    """
    known = sorted({*TOOLSETS, *(tool.toolset for tool in host_tools)})
    problems = []
    for name in names or ():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            instead = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            problems.append(f"there is no toolset {name!r} (enabled_toolsets); {instead}")
    return problems


def with_memory_tools(
    memory: Memory, others: Sequence[Tool], enabled: Collection[str] | None, problems: list[str]
) -> list[Tool]:
    """Return the memory's tools, followed by the tools in `others`.

    The memory's tools are `memory` for the notes, `session_search`, and the tools of the provider. If a provider's tool
    has the name of an enabled tool in `others`, it is left out, and `problems` gets a sentence about it.

    Args:
        memory: The memory.
        others: All other tools of the agent.
        enabled: Names of the enabled toolsets; None for all.
        problems: List to which sentences are appended.
    """

    def is_enabled(tool: Tool) -> bool:
        return enabled is None or tool.toolset in enabled

    # A host's own tool with the name of one of ours is an error instead: `ToolRegistry` raises it.
    names = {tool.name for tool in others if is_enabled(tool)} - {MEMORY_TOOL, SEARCH_TOOL}
    own = [tool for tool in _memory_tools(memory) if is_enabled(tool)]
    for name in sorted(names & {tool.name for tool in own}):
        problems.append(f"the memory provider's tool {name!r} is left out: the host has one of that name")
        log.warning(problems[-1])
    return [*(tool for tool in own if tool.name not in names), *others]


def without_memory_tools(memory: Memory, others: Sequence[Tool], session: Session) -> list[Tool]:
    """Return `session_search`, followed by the tools in `others`.

    A subagent gets no `session_search`, because its task should contain all that it needs.
    """
    own = [] if session.agent_context == "subagent" else _memory_tools(memory)
    return [*(tool for tool in own if tool.name == SEARCH_TOOL), *others]


def _memory_tools(memory: Memory) -> list[Tool]:
    def call(name: str, arguments: Mapping[str, Any], session: Session) -> str:
        return memory.call_tool(session, name, arguments)

    return [
        Tool.of(
            schema,
            partial(call, schema["name"]),
            SEARCH_TOOL if schema["name"] == SEARCH_TOOL else "memory",
            quick=schema["name"] in (SEARCH_TOOL, MEMORY_TOOL),
        )
        for schema in memory.tool_schemas()
    ]


def built_in_tools(skills: SkillStore | None, memory: Memory) -> list[Tool]:
    """Return the tools `skill_view`, `skill_manage` and `todo`; without the skill tools if `skills` is None."""

    def stored_messages(session: Session) -> Messages:
        return memory.sessions.get_messages_as_conversation(session.id, include_ancestors=True)

    tools = [todo_tool(stored_messages)]
    if skills is not None:
        skill_tools = SkillTools(skills)
        tools[:0] = [
            Tool.of(schema, partial(skill_tools.call, schema["name"]), "skills", quick=True)
            for schema in (SKILL_VIEW_SCHEMA, SKILL_MANAGE_SCHEMA)
        ]
    return tools


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


def todo_tool(stored_messages: Callable[[Session], Messages] = lambda _: ()) -> Tool:
    """Return the tool `todo`, with which the model keeps a list of steps during a conversation.

    `stored_messages` returns all messages of the conversation. A new agent finds the last list there.
    """
    lists: dict[str, list[dict[str, str]]] = {}
    origins: dict[str, Origin] = {}  # of each list: a list that the person undid is still there

    def run(arguments: Mapping[str, Any], session: Session) -> str:
        todos = arguments.get("todos")
        if isinstance(todos, list):
            lists[session.id] = [_todo_item(item) for item in todos if isinstance(item, dict | str)]
            reading = current_reading()
            origins[session.id] = reading.origin if reading is not None else "assistant"
        elif todos is not None:
            return error("todos must be a list of steps", "send the whole list again")
        elif session.id not in lists:
            lists[session.id] = lists.get(session.parent_id) or _last_todos(stored_messages(session))
        # A list that another agent stored is read with the session, whose messages have their origins.
        report_result([origins.get(session.id) or origins.get(session.parent_id, "assistant")])
        return json.dumps({"todos": lists[session.id]}, ensure_ascii=False)

    return Tool("todo", _TODO_DESCRIPTION, _TODO_PARAMETERS, run, "todo", quick=True)


def _last_todos(conversation: Messages) -> list[dict[str, str]]:
    for message in reversed(conversation):
        if message["role"] == "tool" and message.get("name") == "todo":
            with contextlib.suppress(ValueError, TypeError, KeyError):
                todos = json.loads(text_of(message.get("content")))["todos"]
                return [_todo_item(item) for item in todos if isinstance(item, dict | str)]
    return []


def _todo_item(item: Mapping[str, Any] | str) -> dict[str, str]:
    if isinstance(item, str):
        item = {"content": item}
    status = item.get("status")
    return {
        "content": str(item.get("content", "")),
        "status": status if status in _TODO_STATES else "pending",
    }


_DELEGATE_DESCRIPTION = (
    "Give a self-contained task to a subagent and get its report. It sees nothing of this conversation and has no "
    "memory: put all that it needs into `task` and `context`. For work that would fill your context with detail."
)
_DELEGATE_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "What to do, and what to report."},
        "context": {"type": "string", "description": "Facts that it needs: names, paths, constraints."},
    },
    "required": ["task"],
}


def delegate_tool(delegate: Callable[[str, str], str]) -> Tool:
    """Return the tool `delegate_task`. It calls `delegate(task, context)`, which returns the subagent's report."""

    def run(arguments: Mapping[str, Any], session: Session) -> str:
        del session
        task, context = arguments.get("task"), arguments.get("context") or ""
        if not isinstance(task, str) or not task.strip():
            return error(f"task must be a text, is {task!r}", "say what to do")
        if not isinstance(context, str):
            context = json.dumps(context, ensure_ascii=False)
        return json.dumps({"report": clean_result(delegate(task, context))}, ensure_ascii=False)

    return Tool(
        "delegate_task", _DELEGATE_DESCRIPTION, _DELEGATE_PARAMETERS, run, "delegation", parallel=True
    )

"""The tools of one session: whose name leads where, and what a model's call becomes.

Whatever the model sends is answered with text: arguments that are no JSON, names that don't exist and tools that fail
are errors for the model to read, and none of them ends the turn.
"""

from __future__ import annotations

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
)
from dataclasses import dataclass, replace
from typing import Any

from hermes_core.agent.answer import ToolRequest
from hermes_core.agent.cancel import Cancel, interruptible
from hermes_core.contract.values import LONGEST_TOOL_NAME, TOOL_NAME_LETTERS, Session
from hermes_core.errors import ConfigError, HermesError
from hermes_core.manager.call import attempt, ends_program
from hermes_core.manager.providers import schema_fault
from hermes_core.safety.fence import sanitize_context

log = logging.getLogger(__name__)

MALFORMED = "malformed_arguments"
"""Key under which arguments that were no JSON object go back to the model."""

MAX_LEVELS = 100
"""How deep arguments may be nested; what each version of Python still reads differs by thousands."""

_NO_NAME = re.compile(f"[^{TOOL_NAME_LETTERS}]+")

_WAIT = "give a function that waits for its whole result"

_FIELDS: Mapping[str, tuple[Any, str]] = {
    "name": (str, "a text"),
    "description": (str, "a text"),
    "parameters": (Mapping, "a JSON schema"),
    "run": (Callable, "a function of arguments and session"),
    "toolset": (str, "one name"),
}

Run = Callable[[Mapping[str, Any], Session], Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool for the model; `parameters` is a JSON schema, `run` gives what the model reads: a text, else made JSON.

    `toolset` is the name by which config.yaml enables it on a platform. A `quick` tool runs on the turn's own thread;
    any other can be left behind when the person interrupts. One that is `parallel` may run beside others that are, when
    the model calls several in one answer; all else runs one after the other, in the order of the calls.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Run
    toolset: str = "host"
    quick: bool = False
    parallel: bool = False

    def __post_init__(self) -> None:
        if inspect.iscoroutinefunction(self.run):
            raise ConfigError(f"tool {self.name!r} is async", _WAIT)
        for field, (kind, instead) in _FIELDS.items():
            if not isinstance(value := getattr(self, field), kind):
                raise ConfigError(
                    f"tool {self.name!r} has a {type(value).__name__} for its {field}", f"give {instead}"
                )
        if fault := schema_fault(self.schema):
            raise ConfigError(f"no model takes the tool {self.name!r}", fault)

    @classmethod
    def of(cls, schema: Mapping[str, Any], run: Run, toolset: str, *, quick: bool = False) -> Tool:
        """The tool that a schema `{"name", "description", "parameters"}` describes."""
        given: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
        name: Any = given.get("name")  # None is refused as any other that is no text
        return cls(name, given.get("description", ""), given.get("parameters", {}), run, toolset, quick)

    @property
    def schema(self) -> dict[str, Any]:
        """What the model is told; of a tool without parameters too, since OpenAI refuses an empty schema."""
        parameters = {"type": "object", "properties": {}, **self.parameters}
        return {"name": self.name, "description": self.description, "parameters": parameters}


class Toolbelt:
    """The tools in a fixed order, of the enabled toolsets. Raises `ConfigError` when two share a name."""

    def __init__(
        self, tools: Iterable[Tool], enabled: Collection[str] | None = None, result_limit: int = 40_000
    ) -> None:
        self._tools: dict[str, Tool] = {}
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
        """What the model is told, the same in every request of the session."""
        return [tool.schema for tool in self._tools.values()]

    def parallel(self, name: str) -> bool:
        """Whether calls of this tool may run beside one another."""
        tool = self._tools.get(name)
        return tool is not None and tool.parallel

    def only(self, names: Collection[str], refuse: Callable[[str, Mapping[str, Any]], str]) -> Toolbelt:
        """A belt with the same schemas that runs only these tools, and of their calls only what `refuse` says "" to."""
        return Toolbelt(
            (_guarded(tool, names, refuse) for tool in self._tools.values()),
            result_limit=self._result_limit,
        )

    def call(self, request: ToolRequest, session: Session, cancel: Cancel) -> str:
        """Run the call; raises `Cancelled` when the person interrupts it, and nothing else."""
        tool = self._tools.get(request.name)
        if tool is None:
            return error(f"there is no tool {request.name!r}", f"tools are: {', '.join(self._tools)}")
        arguments = arguments_of(request)
        if isinstance(arguments, str):
            return error(arguments, "send the call again")
        result, failure = _run(tool, arguments, session, cancel)
        if failure is not None:
            log.info("tool %r failed", tool.name, exc_info=failure)
            said = clipped(str(failure), self._result_limit)
            return error(f"tool {tool.name!r} failed: {type(failure).__name__}: {said}")
        return clipped(result, self._result_limit)


def error(message: str, remedy: str = "") -> str:
    """What the model reads when something went wrong."""
    return json.dumps({"error": f"{message}; {remedy}" if remedy else message}, ensure_ascii=False)


def arguments_of(request: ToolRequest) -> dict[str, Any] | str:
    """The arguments as a dict, without any recalled text that the model copied; a sentence when they are none."""
    try:
        found = without_fence(json.loads(request.arguments or "{}", strict=False, parse_constant=_no_json))
    except (ValueError, RecursionError) as exc:  # a model that can't stop writes "[[[["
        return f"the arguments of {request.name!r} are no JSON ({exc})"
    if found is None:
        return {}
    if not isinstance(found, dict):
        return f"the arguments of {request.name!r} must be an object, not {type(found).__name__}"
    if MALFORMED in found:
        return f"the arguments of {request.name!r} were no JSON object: {found[MALFORMED]!r}"
    return found


def sendable(call: ToolRequest, known: Container[str] = (), cut: str = "") -> ToolRequest:
    """The call as every server takes it back: a name in its letters, unless it is `known`, and arguments that are a JSON
    object. Chat templates parse them again.
    """
    found = arguments_of(call)
    kept = {MALFORMED: cut + call.arguments[:2000]} if isinstance(found, str) else found
    name = call.name if call.name in known else _NO_NAME.sub("_", call.name.strip())[:LONGEST_TOOL_NAME]
    return replace(call, name=name or "unnamed", arguments=json.dumps(kept, ensure_ascii=False))


def _no_json(name: str) -> None:
    """NaN and Infinity, which Python reads and a server that gets them back does not."""
    raise ValueError(f"{name} is none of its values")


def without_fence(value: Any, levels: int = MAX_LEVELS) -> Any:
    """JSON data whose texts carry no fence. Raises `ValueError` when it is nested in more than so many levels."""
    if isinstance(value, str):
        return sanitize_context(value)
    if isinstance(value, list | dict) and not levels:
        raise ValueError(f"nested in more than {MAX_LEVELS} levels")
    if isinstance(value, list):
        return [without_fence(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {key: without_fence(item, levels - 1) for key, item in value.items()}
    return value


def _run(
    tool: Tool, arguments: Mapping[str, Any], session: Session, cancel: Cancel
) -> tuple[Any, BaseException | None]:
    def work() -> tuple[Any, BaseException | None]:
        return attempt(lambda: _text(tool.run(arguments, session)))

    if not tool.quick:
        try:
            return interruptible(work, cancel, f"agent-tool-{tool.name}")
        except HermesError as exc:
            return None, exc
    result, failure = work()
    if failure is not None and ends_program(failure):
        raise failure
    return result, failure


def _text(result: Any) -> str:
    if isinstance(result, Awaitable | AsyncIterator | Iterator):
        if isinstance(result, Coroutine):
            result.close()  # else Python warns of it
        raise TypeError(f"it gave a {type(result).__name__}; {_WAIT}")
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def _guarded(tool: Tool, names: Collection[str], refuse: Callable[[str, Mapping[str, Any]], str]) -> Tool:
    def run(arguments: Mapping[str, Any], session: Session) -> str:
        if tool.name not in names:
            return error(f"{tool.name!r} can not be used here", "use the memory and skill tools only")
        refusal = refuse(tool.name, arguments)
        return error(refusal) if refusal else tool.run(arguments, session)

    return replace(tool, run=run, parallel=False)


_NOTE_ROOM = 60


def clipped(text: str, limit: int) -> str:
    """A text of about `limit` characters at most, with a note where its middle is left out; such a one stays as it is."""
    if len(text) <= limit + _NOTE_ROOM:
        return text
    head, tail = limit * 2 // 3, limit // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"

"""Tools from typed functions: one declaration gives the schema, the validation and the dispatch.

    @tool(description="Find facts.")
    def find(self, query: Annotated[str, "words to look for"], limit: Annotated[int, Range(1, 50)] = 10) -> JSON:
        ...

    box = ToolBox(provider.find)
    box.schemas            # for get_tool_schemas
    box.dispatch(call)     # for handle_tool_call

A model may send anything. What it sends wrong comes back to it as `{"error": ...}` that says what to send.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from hermes_core.config.schema import Range as Range
from hermes_core.config.schema import checked, did_you_mean, expected, field_of, json_schema
from hermes_core.contract.values import Field, Session, ToolCall
from hermes_core.errors import BackendRefused, ConfigError, ProviderInvalid, ToolInputInvalid
from hermes_core.kit.text import storable
from hermes_core.safety.redact import redact

# A longer result pushes the conversation itself out of the model's context.
MAX_RESULT_CHARS = 50_000

_SPEC = "_hermes_tool"

_ARGUMENTS = Field("arguments", dict)

Function = TypeVar("Function", bound=Callable[..., Any])


class _Spec(Struct, frozen=True):
    """A tool as the model sees it; `session_argument` is the parameter that gets the session, "" if none does."""

    name: str
    description: str
    parameters: tuple[Field, ...]
    session_argument: str

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "parameters": {
                "type": "object",
                "properties": {p.name: json_schema(p) for p in self.parameters},
                "required": [p.name for p in self.parameters if p.required],
            },
        }

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function wants them. Raises `ToolInputInvalid`."""
        names = [p.name for p in self.parameters]
        for name in arguments:
            if name not in names:
                advice = f"send only {', '.join(names)}"
                raise ToolInputInvalid(
                    f"{self.name} takes no {name!r}", did_you_mean(str(name), names, advice)
                )
        # Models send null for what they leave out.
        present = [p for p in self.parameters if arguments.get(p.name) is not None]
        for missing in self.parameters:
            if missing.required and missing not in present:
                raise ToolInputInvalid(f"{missing.name} is missing", f"send {expected(missing)}")
        return {p.name: _argument(p, arguments[p.name]) for p in present}


def _argument(parameter: Field, raw: Any) -> Any:
    try:
        value = checked(parameter, raw, clamp=parameter.clamp)
    except ConfigError as exc:
        raise ToolInputInvalid(exc.message) from exc
    if isinstance(value, list):
        return [storable(item) if isinstance(item, str) else item for item in value]
    if not isinstance(value, str):
        return value
    value = storable(value)
    if parameter.required and not parameter.choices and not value.strip():
        raise ToolInputInvalid(f"{parameter.name} is empty", f"send {parameter.help or 'some text'}")
    return value


def tool(name: str = "", *, description: str = "") -> Callable[[Function], Function]:
    """Mark a function or method as a tool, by default with its own name and its docstring as description.

    Parameters are `str`, `int`, `float`, `bool`, a `Literal` of them, a `list` of one of these, or a `dict`. `| None`
    and a default make a parameter optional, `Annotated` adds a description and a `Range`. A parameter annotated
    `Session` gets the caller's session and is not shown to the model. A text without a default must not be
    blank. Raises `ProviderInvalid` for any other annotation.
    """
    if not isinstance(name, str):
        raise ProviderInvalid(f"@tool above {name!r} lacks its parentheses", "write @tool() or @tool('name')")

    def mark(function: Function) -> Function:
        setattr(function, _SPEC, _spec_of(function, name or function.__name__, description))
        return function

    return mark


def marked_tools(owner: object) -> list[Callable[..., Any]]:
    """Return the methods of `owner` that are marked `@tool`, in the order of the source."""
    names = dict.fromkeys(name for cls in reversed(type(owner).__mro__) for name in vars(cls))
    return [getattr(owner, name) for name in names if hasattr(getattr(type(owner), name), _SPEC)]


class ToolBox:
    """Tools by name: their schemas, and the dispatch of a model's calls. Holds no state of its own."""

    def __init__(self, *functions: Callable[..., Any], max_result: int = MAX_RESULT_CHARS) -> None:
        self._tools: dict[str, tuple[_Spec, Callable[..., Any]]] = {}
        self._max_result = max_result
        for function in functions:
            spec = getattr(function, _SPEC, None)
            if not isinstance(spec, _Spec):
                raise ProviderInvalid(f"{function!r} is no tool", "write @tool() above it")
            if spec.name in self._tools:
                raise ProviderInvalid(f"two tools share the name {spec.name!r}", "give each its own")
            self._tools[spec.name] = spec, function

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools, in the order of the arguments."""
        return tuple(self._tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Schemas for `get_tool_schemas`."""
        return [spec.schema for spec, _ in self._tools.values()]

    @property
    def is_async(self) -> bool:
        """True if a tool is an `async def`, so that `dispatch_async` must be called."""
        return any(inspect.iscoroutinefunction(function) for _, function in self._tools.values())

    def dispatch(self, call: ToolCall, session: Session | None = None) -> str:
        """Run the tool that `call` names and return JSON text.

        If the model sent something wrong, or the backend refuses it (`BackendRefused`), the text is an
        object with `error`. Other errors pass to the manager.
        """
        try:
            return self._answer(self._called(call, session))
        except (ToolInputInvalid, BackendRefused) as exc:
            return _error(str(exc))

    async def dispatch_async(self, call: ToolCall, session: Session | None = None) -> str:
        """Do the same as `dispatch`, and await a tool that is an `async def`."""
        try:
            result = self._called(call, session)
            return self._answer(await result if inspect.isawaitable(result) else result)
        except (ToolInputInvalid, BackendRefused) as exc:
            return _error(str(exc))

    def _called(self, call: ToolCall, session: Session | None) -> Any:
        """Call the function and return its result. Raises `ToolInputInvalid`."""
        if call.name not in self._tools:
            raise ToolInputInvalid(f"there is no tool {call.name!r}", f"call one of {', '.join(self._tools)}")
        spec, function = self._tools[call.name]
        arguments = spec.read(_argument(_ARGUMENTS, call.arguments))
        if spec.session_argument:
            arguments[spec.session_argument] = session
        return function(**arguments)

    def _answer(self, result: Any) -> str:
        data = {"result": result} if isinstance(result, str) else result
        text = json.dumps(data, ensure_ascii=False)
        if len(text) <= self._max_result:
            return text
        return _error(f"the result has {len(text)} characters, over {self._max_result}; ask for less")


def _error(message: str) -> str:
    return json.dumps({"error": redact(message)}, ensure_ascii=False)


def _spec_of(function: Callable[..., Any], name: str, description: str) -> _Spec:
    hints = typing.get_type_hints(function, include_extras=True)
    parameters: list[Field] = []
    session_argument = ""
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if hint in (Session, Session | None):
            session_argument = parameter.name
        elif parameter.name != "self":
            required = parameter.default is parameter.empty
            try:
                parameters.append(field_of(parameter.name, hint, required=required))
            except TypeError as exc:
                raise ProviderInvalid(
                    f"tool {name!r} annotates {parameter.name!r} as {hint!r}",
                    "use str, int, float, bool, dict, a Literal, or a list of one of these",
                ) from exc
    text = description or inspect.getdoc(function) or ""
    return _Spec(name, " ".join(text.split()), tuple(parameters), session_argument)

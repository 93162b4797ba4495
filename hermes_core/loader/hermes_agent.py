"""Runs a provider written for Hermes Agent behind our hooks, unmodified.

`adapt(...)` wraps one object. The wrapped signatures drifted over the years, so every call is cut to what the method
takes: text goes by position, `session_id` and what else the host offers by keyword, and optional extras only to a
method that names them. Results are accepted as they come: None is nothing, a dict from a tool becomes JSON.

These providers keep their session on `self`, so there is one object for each session (`scope="session"`).
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_core.contract.hooks import HOOK_NAMES, TranscriptReader
from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import (
    Availability,
    Capabilities,
    Delegation,
    EndReason,
    Field,
    MemoryWrite,
    Message,
    Query,
    Recall,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.errors import ProviderInvalid
from hermes_core.home import HermesHome
from hermes_core.loader.hermes_base import HOST_BASE_MODULE
from hermes_core.loader.hermes_home import call_in, environment_of
from hermes_core.loader.load import Failure, attempt
from hermes_core.loader.registration import RegisteredTool, Registrations

logger = logging.getLogger(__name__)

_ALWAYS = frozenset({"is_available", "initialize", "get_tool_schemas"})
_NEVER = frozenset({"check", "register_cli"})
_SWITCH_REASONS: dict[str, str] = {"new": "new_session", "reset": "new_session"}


def adapt(wrapped: Any, name: str, home: HermesHome, registrations: Registrations) -> HermesAgentProvider:
    """A provider of ours around `wrapped`, called `name`, with only the hooks that it really has.

    What it lacks is None on the adapter's class, and pluggy passes over that.
    """
    claimed = {hook for hook in HOOK_NAMES if hook in _ALWAYS or _defines(wrapped, hook)}
    if registrations.tools:
        claimed.add("handle_tool_call")
    members: dict[str, Any] = dict.fromkeys(HOOK_NAMES - claimed | _NEVER)
    with call_in(home.path):
        members.update(name=name, settings=_settings(wrapped), __doc__=type(wrapped).__doc__)
    adapter: type[HermesAgentProvider] = type("HermesAgentProvider", (HermesAgentProvider,), members)
    return adapter(wrapped, home, registrations)


class HermesAgentProvider(MemoryProvider):
    """Our hooks on the outside, the published ones of Hermes Agent on the inside. Made by `adapt`."""

    capabilities = Capabilities(scope="session")

    def __init__(self, wrapped: Any, home: HermesHome, registrations: Registrations) -> None:
        self.wrapped = wrapped
        self.registrations = registrations
        self._home = home

    # ------------------------------------------------------------------ setup

    def is_available(self) -> Availability:
        """Its own answer; the reason is its own too, or the settings that are still empty."""
        with environment_of(self._home.path):
            if self.wrapped.is_available():
                return Availability()
            given = attempt(lambda: _text(self.wrapped.unavailable_reason()))
        missing = [f.env for f in self.settings if f.required and f.env]
        reason = given if isinstance(given, str) and given else "it says that it can't run here"
        return Availability.no(reason, f"set {', '.join(missing)}" if missing else "see its documentation")

    def backup_paths(self) -> list[str]:
        """Paths outside the home."""
        return [str(path) for path in self._call("backup_paths") or ()]

    def store_settings(self, values: Mapping[str, Any]) -> None:
        """Hand settings that are no secrets to the provider's own store (`save_config`), if it has one."""
        if _defines(self.wrapped, "save_config"):
            self._call("save_config", dict(values), str(self._home.path))

    # ------------------------------------------------------------------ start

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Its tools and those it registered beside itself, in the form `name, description, parameters`."""
        own = [_schema(raw) for raw in self._call("get_tool_schemas") or ()]
        names = {schema["name"] for schema in own}
        beside = [_schema(tool.schema) for tool in self._tools().values() if tool.name not in names]
        return [*own, *beside]

    def initialize(self, session: Session) -> None:
        """Start it with what its host would tell; `user_id` is left out on the command line, as there."""
        facts = {"hermes_home": str(self._home.path), **dict(_identity(session))}
        first = _shape(self.wrapped.initialize).positions
        by_position = (session.id,) if first and "session_id" not in first else ()
        with environment_of(self._home.path):
            _call(self.wrapped.initialize, *by_position, facts=facts)

    def system_prompt_block(self) -> str:
        """Its block, "" for None."""
        return _text(self._call("system_prompt_block"))

    # ------------------------------------------------------------------- turn

    def on_turn_start(self, turn_number: int, message: str, session: Session) -> None:
        """The turn's number and message, and who speaks."""
        author = {"author_id": session.user_id, "author_name": session.user_name} if session.user_id else {}
        self._call("on_turn_start", turn_number, message, extras={"platform": session.platform, **author})

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Its text; None and blanks are an empty recall.

        Many of these providers answer only what `queue_prefetch` has warmed. When nothing is warm, this very message
        is queued and asked for once more, so that the first turn of a process has its recall too.
        """
        text = self._recalled(query, session)
        if not text.strip() and type(self).queue_prefetch is not None:
            self.queue_prefetch(query, session)
            text = self._recalled(query, session)
        return Recall(text=text)

    def _recalled(self, query: Query, session: Session) -> str:
        return _text(self._call("prefetch", query.text, facts={"session_id": session.id}))

    def queue_prefetch(self, query: Query, session: Session) -> None:
        """Warm it up; what it found comes with its next `prefetch`."""
        self._call("queue_prefetch", query.text, facts={"session_id": session.id})

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run its tool, or one it registered beside itself; the result is text as it comes."""
        arguments = dict(call.arguments)
        beside = self._tools().get(call.name)
        if beside is not None and call.name not in self._own_tools():
            with call_in(self._home.path):
                return _text(_call(beside.handler, arguments, extras={"session_id": session.id}))
        return _text(self._call("handle_tool_call", call.name, arguments, extras={"session_id": session.id}))

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """The two texts; messages, author and the turn's id to those that take them."""
        extras: dict[str, Any] = {"turn_id": turn.id}
        author = turn.author or session.user_name
        if session.user_id or author:
            extras["turn_author"] = {"id": session.user_id, "name": author, "is_bot": False}
        facts: dict[str, Any] = {"session_id": session.id}
        if turn.messages:
            facts["messages"] = [dict(message) for message in turn.messages]
        self._call("sync_turn", turn.user, turn.assistant, facts=facts, extras=extras)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """The change, with `old_text` and its origin in the metadata."""
        self._call(
            "on_memory_write",
            write.action,
            write.target,
            write.content,
            facts={"metadata": _write_metadata(write, session)},
        )

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """The task and its result."""
        facts = {"child_session_id": delegation.child_session_id}
        self._call(
            "on_delegation",
            delegation.task,
            delegation.result,
            facts=facts,
            extras={"session_id": session.id},
        )

    # --------------------------------------------------------------- boundary

    def on_pre_compress(self, messages: Sequence[Message]) -> str:
        """Its text for the summary, "" for None."""
        return _text(self._call("on_pre_compress", [dict(message) for message in messages]))

    def on_session_end(self, reader: TranscriptReader, reason: EndReason, session: Session) -> None:
        """All messages of the session."""
        messages = [dict(message) for message in reader.messages()]
        self._call("on_session_end", messages, extras={"session_id": session.id, "reason": reason})

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """The new id; `rewound` is passed only when turns were taken back."""
        facts: dict[str, Any] = {
            "parent_session_id": _parent_of(switch),
            "reset": switch.reset,
            "reason": _SWITCH_REASONS.get(switch.reason, switch.reason),
        }
        if switch.reason == "rewind":
            facts["rewound"] = True
        self._call("on_session_switch", switch.new.id, facts=facts)

    # -------------------------------------------------------------------- end

    def shutdown(self) -> None:
        """Close it."""
        self._call("shutdown")

    # ------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        *values: Any,
        facts: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
    ) -> Any:
        with call_in(self._home.path):
            return _call(getattr(self.wrapped, method), *values, facts=facts, extras=extras)

    def _own_tools(self) -> set[str]:
        return {_schema(raw)["name"] for raw in self._call("get_tool_schemas") or ()}

    def _tools(self) -> dict[str, RegisteredTool]:
        """Tools registered beside the provider that are offered now."""
        return {tool.name: tool for tool in self.registrations.tools if tool.check is None or tool.check()}


# -------------------------------------------------------------------------------------------------------- signatures


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a method takes: positions (None: any number), names, and whether any keyword goes."""

    positions: tuple[str, ...] | None
    keywords: frozenset[str]
    any_keyword: bool


def _call(
    function: Callable[..., Any],
    *values: Any,
    facts: Mapping[str, Any] | None = None,
    extras: Mapping[str, Any] | None = None,
) -> Any:
    """Call with what the function takes: `values` by position, `facts` by keyword also into `**kwargs`, `extras`
    only to parameters that it names."""
    shape = _shape(function)
    given = values if shape.positions is None else values[: len(shape.positions)]
    taken = set() if shape.positions is None else set(shape.positions[: len(given)])
    named = {**(facts or {}), **(extras or {})}
    accepted = {
        key: value
        for key, value in named.items()
        if key not in taken and (key in shape.keywords or (shape.any_keyword and key in (facts or {})))
    }
    return function(*given, **accepted)


def _shape(function: Callable[..., Any]) -> _Shape:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return _Shape(None, frozenset(), any_keyword=True)
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return _Shape(
        None if starred else tuple(positional),
        frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)),
        any_keyword=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _defines(wrapped: Any, method: str) -> bool:
    """Whether the provider brings this method itself, rather than the host's empty default."""
    for owner in type(wrapped).__mro__:
        if method in vars(owner):
            return owner.__module__ != HOST_BASE_MODULE and callable(getattr(wrapped, method, None))
    return callable(vars(wrapped).get(method)) if hasattr(wrapped, "__dict__") else False


# ------------------------------------------------------------------------------------------------------------ values


def _text(value: Any) -> str:
    """What a provider returned, as text: None is nothing, data becomes JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _schema(raw: Any) -> dict[str, Any]:
    """A tool's schema in the bare form: unwrapped, `input_schema` renamed, parameters always an object."""
    if isinstance(raw, Mapping) and isinstance(raw.get("function"), Mapping):
        raw = raw["function"]
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise ProviderInvalid(f"a tool schema without a name: {raw!r}", "report it to the provider's author")
    parameters = raw.get("parameters") or raw.get("input_schema") or {"type": "object", "properties": {}}
    return {
        "name": raw["name"],
        "description": _text(raw.get("description")),
        "parameters": {"type": "object", **parameters},
    }


def _identity(session: Session) -> Iterator[tuple[str, str]]:
    """The keyword arguments of `initialize`; facts that are not known are left out."""
    yield "session_id", session.id
    yield "platform", session.platform
    yield "agent_context", session.agent_context
    optional = {
        "agent_identity": session.identity,
        "agent_workspace": session.workspace,
        "parent_session_id": session.parent_id,
        "chat_id": session.chat_id,
        "chat_name": session.chat_name,
        "chat_type": session.chat_type,
        "thread_id": session.thread_id,
        "gateway_session_key": session.gateway_session_key,
    }
    if session.platform != "cli":
        optional |= {"user_id": session.user_id, "user_name": session.user_name}
    yield from ((key, value) for key, value in optional.items() if value)


def _write_metadata(write: MemoryWrite, session: Session) -> dict[str, Any]:
    origin = "assistant_tool" if session.primary else "background_review"
    facts = {
        "write_origin": origin,
        "execution_context": "foreground" if session.primary else "background_review",
        "session_id": session.id,
        "parent_session_id": session.parent_id,
        "platform": session.platform,
        "tool_name": "memory",
        **write.metadata,
        "old_text": write.old_text,
        "previous_content": write.previous,
    }
    return {key: value for key, value in facts.items() if value}


def _parent_of(switch: SessionSwitch) -> str:
    if switch.reason == "rewind":
        return ""
    return switch.new.parent_id if switch.reason == "resume" else switch.old.id


# ---------------------------------------------------------------------------------------------------------- settings

_TYPES: dict[str, type[str] | type[int] | type[float] | type[bool]] = {
    "integer": int,
    "int": int,
    "number": float,
    "float": float,
    "boolean": bool,
    "bool": bool,
}


def _settings(wrapped: Any) -> tuple[Field, ...]:
    """Its `get_config_schema()` as our fields. One that can't be read is left out and logged."""
    if not _defines(wrapped, "get_config_schema"):
        return ()
    listed = attempt(lambda: list(wrapped.get_config_schema() or ()))
    if isinstance(listed, Failure):
        logger.warning("the settings of %r can't be read: %s", type(wrapped).__name__, listed)
        return ()
    return tuple(_field(raw) for raw in listed if isinstance(raw, Mapping) and raw.get("key"))


def _field(raw: Mapping[str, Any]) -> Field:
    given = raw.get("choices")
    choices = tuple(str(choice) for choice in given) if isinstance(given, list | tuple) else ()
    default = raw.get("default")
    if choices and str(default) not in choices:
        default = None
    when = raw.get("when")
    return Field(
        name=str(raw["key"]),
        type=_TYPES.get(str(raw.get("type", "")).lower(), str),
        default=default if isinstance(default, str | int | float | bool) else None,
        help=_text(raw.get("description")),
        choices=choices,
        minimum=_number(raw.get("minimum")),
        maximum=_number(raw.get("maximum")),
        env=_text(raw.get("env_var")),
        secret=bool(raw.get("secret")),
        required=bool(raw.get("required")),
        url=_text(raw.get("url")),
        when=dict(when) if isinstance(when, Mapping) else {},
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

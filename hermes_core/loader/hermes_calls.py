"""Calls a method of a provider written for Hermes Agent with what it takes: the signatures drifted over the years."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_core.errors import ProviderInvalid
from hermes_core.loader.hermes_base import HOST_BASE_MODULE


@dataclass(frozen=True, slots=True)
class Shape:
    """What a method takes: positions (None: any number), names, and whether any keyword goes."""

    positions: tuple[str, ...] | None
    keywords: frozenset[str]
    any_keyword: bool


def call_as_taken(
    function: Callable[..., Any],
    *values: Any,
    facts: Mapping[str, Any] | None = None,
    extras: Mapping[str, Any] | None = None,
) -> Any:
    """Call with what the function takes: `values` by position, `facts` by keyword also into `**kwargs`, `extras`
    only to parameters that it names."""
    takes = shape(function)
    given = values if takes.positions is None else values[: len(takes.positions)]
    taken = set() if takes.positions is None else set(takes.positions[: len(given)])
    named = {**(facts or {}), **(extras or {})}
    accepted = {
        key: value
        for key, value in named.items()
        if key not in taken and (key in takes.keywords or (takes.any_keyword and key in (facts or {})))
    }
    return function(*given, **accepted)


def shape(function: Callable[..., Any]) -> Shape:
    """What `function` takes; one that can't be inspected takes anything."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Shape(None, frozenset(), any_keyword=True)
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return Shape(
        None if starred else tuple(positional),
        frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)),
        any_keyword=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def defines(wrapped: Any, method: str) -> bool:
    """Whether the provider brings this method itself, rather than the host's empty default."""
    for owner in type(wrapped).__mro__:
        if method in vars(owner):
            return owner.__module__ != HOST_BASE_MODULE and callable(getattr(wrapped, method, None))
    return callable(vars(wrapped).get(method)) if hasattr(wrapped, "__dict__") else False


def as_text(value: Any) -> str:
    """What a provider returned, as text: None is nothing, data becomes JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def tool_schema(raw: Any) -> dict[str, Any]:
    """A tool's schema in the bare form: unwrapped, `input_schema` renamed, parameters always an object."""
    if isinstance(raw, Mapping) and isinstance(raw.get("function"), Mapping):
        raw = raw["function"]
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise ProviderInvalid(f"a tool schema without a name: {raw!r}", "report it to the provider's author")
    parameters = raw.get("parameters") or raw.get("input_schema") or {"type": "object", "properties": {}}
    return {
        "name": raw["name"],
        "description": as_text(raw.get("description")),
        "parameters": {"type": "object", **parameters},
    }

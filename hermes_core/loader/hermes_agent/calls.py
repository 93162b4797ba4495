"""Calls of methods whose signatures drifted over the years: each gets the arguments that it takes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from hermes_core.errors import ProviderInvalid

# A method that is defined in this module is the empty default of Hermes Agent's base class, not the
# provider's own.
HOST_BASE_MODULE = "agent.memory_provider"


def call_accepted(
    function: Callable[..., Any],
    *values: Any,
    keywords: Mapping[str, Any] | None = None,
    optional: Mapping[str, Any] | None = None,
) -> Any:
    """Call a function with those of the arguments that it takes.

    Args:
        values: Passed by position, as many as there are parameters.
        keywords: Passed by keyword, also into `**kwargs`.
        optional: Passed by keyword to parameters of that name only.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin, or a callable with a broken __signature__, takes anything
        return function(*values, **(keywords or {}))
    names = positional_names(function)
    if names is not None:
        values = values[: len(names)]
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    filled = set(names[: len(values)] if names is not None else ())
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
    accepted = {
        key: value
        for key, value in {**(keywords or {}), **(optional or {})}.items()
        if key not in filled and (key in named or (any_keyword and key in (keywords or {})))
    }
    return function(*values, **accepted)


def positional_names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names of the positional parameters, None if the function takes any number of them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def overrides(provider: Any, method: str) -> bool:
    """Return True if the provider defines this method itself, not only Hermes Agent's empty default."""
    for owner in type(provider).__mro__:
        if method in vars(owner):
            return owner.__module__ != HOST_BASE_MODULE and callable(getattr(provider, method, None))
    return callable(vars(provider).get(method)) if hasattr(provider, "__dict__") else False


def result_text(value: Any) -> str:
    """Return what a provider returned as text: "" for None, JSON for data."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def bare_schema(raw: Any) -> dict[str, Any]:
    """Return a tool's schema in the bare form: not wrapped, with `parameters`, which is always an object."""
    if isinstance(raw, Mapping) and isinstance(raw.get("function"), Mapping):
        raw = raw["function"]
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise ProviderInvalid(f"a tool schema without a name: {raw!r}", "report it to the provider's author")
    parameters = raw.get("parameters") or raw.get("input_schema") or {"type": "object", "properties": {}}
    return {
        "name": raw["name"],
        "description": result_text(raw.get("description")),
        "parameters": {"type": "object", **parameters},
    }

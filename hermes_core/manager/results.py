"""What each hook may return. A value of another type is a failed call, told to the author, never an exception later."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

from hermes_core.contract.values import Availability, Check, MemoryWrite, Recall, RecallItem, Refused
from hermes_core.errors import ProviderInvalid

_NOTHING = Recall()
_OF_ITEM: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("text", "id", "session_id", "ref", "speaker", "when"), (str,)),
    "score": (float, int, NoneType),
    "message_id": (int, NoneType),
}


def checked(hook: str, value: Any) -> Any:
    """`value` in the one type that callers of `hook` rely on. Raises `ProviderInvalid` for a value of another type.

    Hooks that return nothing may return anything; it is left unread.
    """
    check = _CHECKS.get(hook)
    return None if check is None else check(value)


def as_recall(value: Any) -> Recall:
    """A `Recall`; a text is wrapped, None is an empty one.

    >>> as_recall("likes tea")
    Recall(items=(), text='likes tea')
    """
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        return Recall(text=value)
    if not isinstance(value, Recall) or not isinstance(value.text, str):
        raise _wrong(value, "a Recall, a str or None")
    items: Any = value.items
    if type(items) is not tuple:
        items = tuple(items) if isinstance(items, Sequence) else (items,)
    for item in items:
        if not isinstance(item, RecallItem):
            raise _wrong(item, "RecallItem inside Recall.items")
        for name, kinds in _OF_ITEM.items():
            if not isinstance(found := getattr(item, name), kinds):
                kind = type(found).__name__
                raise ProviderInvalid(f"{name} of a RecallItem is a {kind}", f"make it a {kinds[0].__name__}")
    return value if items is value.items and type(value) is Recall else Recall(items, value.text)


def _availability(value: Any) -> Availability:
    if isinstance(value, Availability):
        return value
    if isinstance(value, bool):
        return Availability(value, "" if value else "is_available() returned False without a reason")
    raise _wrong(value, "an Availability or a bool")


def _tool_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as exc:
            raise ProviderInvalid(f"the tool's result can't be written as JSON ({exc})") from exc
    raise _wrong(value, "text, or a dict or list that JSON can carry")


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise _wrong(value, "a str")


def _schemas(value: Any) -> tuple[dict[str, Any], ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise _wrong(value, "a list of tool schemas")
    return tuple(_schema(entry) for entry in value)


def _schema(entry: Any) -> dict[str, Any]:
    """One tool as `{"name", "description", "parameters"}`; the wrapped form of the OpenAI API is unwrapped."""
    if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping):
        entry = entry["function"]
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"].strip():
        raise _wrong(entry, "a tool schema with a name")
    given = {key: value for key, value in entry.items() if value is not None}
    if not isinstance(given.get("parameters", {}), Mapping):
        raise _wrong(given["parameters"], f"a JSON schema as parameters of {given['name']!r}")
    return {"description": "", "parameters": {"type": "object", "properties": {}}, **given}


def _list_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    def check(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise _wrong(value, f"a list of {kind.__name__}")
        for entry in value:
            if not isinstance(entry, kind):
                raise _wrong(entry, f"a list of {kind.__name__}")
        return tuple(value)

    return check


def _one_of(*kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise _wrong(value, " or ".join(kind.__name__ for kind in kinds))
        return value

    return check


def _wrong(value: Any, wanted: str) -> ProviderInvalid:
    return ProviderInvalid(f"returned a {type(value).__name__}", f"return {wanted}")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "construct": lambda value: value,
    "is_available": _availability,
    "check": _list_of(Check),
    "backup_paths": _list_of(str),
    "get_tool_schemas": _schemas,
    "system_prompt_block": _text,
    "prefetch": as_recall,
    "queue_prefetch": as_recall,
    "handle_tool_call": _tool_text,
    "on_pre_compress": _text,
    "filter_write": _one_of(MemoryWrite, Refused),
    "filter_recall": _one_of(Recall, Refused),
}

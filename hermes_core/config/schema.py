"""One check of values against their `Field`: keys of config.yaml, settings of providers, answers, arguments of tools."""

from __future__ import annotations

import datetime
import difflib
import json
import math
import operator
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union

import msgspec

from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, HermesError

_BOOL_WORDS = {"yes": True, "on": True, "no": False, "off": False}
_TYPES: dict[Any, tuple[str, str]] = {
    str: ("a string", "string"),
    int: ("a whole number", "integer"),
    float: ("a number", "number"),
    bool: ("true or false", "boolean"),
    dict: ("a JSON object", "object"),
    list: ("a JSON list", "array"),
}
MAX_SHOWN_CHARS = 80


class Range(msgspec.Struct, frozen=True):
    """Bounds of a number, both included. A value outside is moved to the nearer bound, not refused."""

    minimum: float | None = None
    maximum: float | None = None


def field_of(name: str, hint: Any, default: Any = None, **attributes: Any) -> Field:
    """Return the setting that an annotation describes.

    Args:
        name: Name of the setting.
        hint: `str`, `int`, `float`, `bool`, `dict`, `list`, a `Literal`, a list or tuple of one of these, or `None`
            beside it. In `Annotated`, `msgspec.Meta` gives a range, `Range` one that values are moved into, a text the
            help, and a mapping further attributes of `Field`.
        default: Default of the setting.
        attributes: Attributes of `Field` that the annotation does not give.

    Raises:
        TypeError: The annotation is of another form.
    """
    kind, is_list = hint, False
    while True:
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        if origin is Annotated:
            kind = parts[0]
            for note in parts[1:]:
                attributes |= _noted(note)
        elif origin in (Union, types.UnionType) and len(parts) == 2 and types.NoneType in parts:
            kind = parts[parts[0] is types.NoneType]
        elif origin in (list, tuple) and not is_list:
            kind, is_list = parts[0], True
        else:
            kind = dict if kind == dict[str, Any] else kind
            break
    if origin is Literal:
        kind, attributes["choices"] = type(parts[0]), parts
    if is_list and kind in (str, int, float, bool, Any):
        kind = list if kind is Any else types.GenericAlias(list, (kind,))
    elif is_list or kind not in _TYPES:
        raise TypeError(f"{hint!r} is no type of a setting")
    return Field(name, kind, default, **attributes)


def _noted(note: Any) -> Mapping[str, Any]:
    if isinstance(note, str):
        return {"help": note}
    if isinstance(note, msgspec.Meta):
        return {"minimum": note.ge, "maximum": note.le}
    if isinstance(note, Range):
        return {"minimum": note.minimum, "maximum": note.maximum, "clamp": True}
    return note if isinstance(note, Mapping) else {}


def item_type(field: Field) -> Any:
    """Return the type of a list's items, None if the setting is no list of one type."""
    return next(iter(typing.get_args(field.type)), None)


def expected(field: Field) -> str:
    """Return the allowed values in words: "a whole number from 1 up to 50"."""
    if field.form:
        return field.form
    item = item_type(field)
    noun = f"one of {', '.join(map(repr, field.choices))}" if field.choices else _TYPES[item or field.type][0]
    low, high = (
        f"{bound:.15g}" if isinstance(bound, float) else bound for bound in (field.minimum, field.maximum)
    )
    if low is not None:
        noun += f" of at least {low}" if high is None else f" from {low} up to {high}"
    elif high is not None:
        noun += f" of at most {high}"
    return f"a list, each item {noun}" if item else noun


def json_schema(field: Field) -> dict[str, Any]:
    """Return the allowed values in JSON Schema, as language models read it."""
    item = item_type(field)
    schema: dict[str, Any] = {"type": _TYPES[item or field.type][1]}
    more = {"enum": [*field.choices] or None, "minimum": field.minimum, "maximum": field.maximum}
    schema |= {name: value for name, value in more.items() if value is not None}
    if item or field.type is list:
        schema = {"type": "array", "items": schema if item else {}}
    return schema | ({"description": field.help} if field.help else {})


def checked(field: Field, raw: Any, label: str = "", *, strict: bool = False, clamp: bool = False) -> Any:
    """Return a value as its setting wants it.

    Args:
        field: Declaration of the setting.
        raw: The value as a file, a person or a model gives it.
        label: Name of the setting and its place, for the error; by default the name.
        strict: Convert nothing but a whole number to a number. Else text is read as a number, as true or false (also
            yes, no, on, off, 1 and 0), or as JSON.
        clamp: Move a number that is out of range to the nearer end instead of refusing it.

    Raises:
        ConfigError: It is no such value. The message says what is expected and what was found.
    """
    try:
        value = _converted(field, raw, strict)
        items = [_in_range(field, item, clamp) for item in (value if isinstance(value, list) else [value])]
        if field.check is not None:
            for item in items:
                field.check(item)
    except (ValueError, RecursionError, msgspec.ValidationError, HermesError) as exc:
        remedy = "" if field.default in (None, "", ()) else f"write for example {json.dumps(field.default)}"
        raise ConfigError(
            f"{label or field.name} must be {expected(field)}, is {_shown(field, raw)}", remedy
        ) from exc
    return items if isinstance(value, list) else items[0]


def _converted(field: Field, raw: Any, strict: bool) -> Any:
    kind = field.type
    if isinstance(raw, bool) and field.choices:  # YAML 1.1 reads a bare `yes` or `off` as a truth value
        words = [word for word, meaning in _BOOL_WORDS.items() if meaning is raw]
        raw = next((choice for choice in field.choices if choice in words), raw)
    elif isinstance(raw, str) and not strict and kind is not str:
        raw = raw.strip()
        is_json = kind in (dict, list) or (raw.startswith("[") and item_type(field) is not None)
        raw = json.loads(raw) if is_json else _BOOL_WORDS.get(raw.lower(), raw)
    return raw if type(raw) is kind else msgspec.convert(raw, kind, strict=strict)


def _in_range(field: Field, value: Any, clamp: bool) -> Any:
    """Return the value, or the end of the range that it is beyond. Raises `ValueError` if it is not allowed."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite")
    if field.choices and str(value) not in map(str, field.choices):
        raise ValueError(f"{value!r} is none of the choices")
    for bound, is_beyond in ((field.minimum, operator.lt), (field.maximum, operator.gt)):
        if bound is not None and is_beyond(value, bound):
            if not clamp:
                raise ValueError("it is out of range")
            return type(value)(bound)
    return value


def _shown(field: Field, raw: Any) -> str:
    if field.secret:
        return "***"
    try:
        text = str(raw) if isinstance(raw, datetime.date) else repr(raw)
    except (ValueError, RecursionError):
        # A number with more digits, or a list with more levels, than Python writes.
        return "a value that is too large"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return a question that offers the name closest to a wrong one, `otherwise` if none is close."""
    close = difflib.get_close_matches(name, [*names], n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise

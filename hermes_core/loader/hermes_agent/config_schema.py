"""Settings that a provider written for Hermes Agent declares with `get_config_schema`, as our fields.

Few entries name a type, so the type is derived from the choices or the default. A part that contradicts another (a
default outside the choices, a bound that is no number) is dropped without an error, because the person can't correct it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes_core.contract.values import Field
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.loader.hermes_agent.calls import overrides, result_text

logger = logging.getLogger(__name__)

Type = type[str] | type[int] | type[float] | type[bool]
Value = str | int | float | bool

_TYPES: Mapping[str, Type] = {
    **dict.fromkeys(("integer", "int"), int),
    **dict.fromkeys(("number", "float", "double"), float),
    **dict.fromkeys(("boolean", "bool", "flag", "toggle"), bool),
    **dict.fromkeys(
        ("text", "string", "str", "select", "choice", "enum", "secret", "password", "url", "path"), str
    ),
}
_SECRET = frozenset({"secret", "password"})
_TRUTH: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0", ""), False),
}


def settings_of(wrapped: Any) -> tuple[Field, ...]:
    """Return `get_config_schema()` of a provider as our fields. If it raises, log that and return none."""
    if not overrides(wrapped, "get_config_schema"):
        return ()
    listed = call_foreign(lambda: list(wrapped.get_config_schema() or ()))
    if isinstance(listed, ForeignError):
        logger.warning("the settings of %r can't be read: %s", type(wrapped).__name__, listed)
        return ()
    fields: dict[str, Field] = {}
    for raw in listed:
        if isinstance(raw, Mapping) and raw.get("key"):
            fields.setdefault(str(raw["key"]), field_of(raw))
    return tuple(fields.values())


def field_of(raw: Mapping[str, Any]) -> Field:
    """Return one entry of `get_config_schema` as a typed field."""
    listed = [*_choices(raw.get("choices"))]
    kind = _type(raw, listed)
    # True and false need no list of choices.
    choices = () if kind is bool else tuple(dict.fromkeys(str(_as(kind, choice)) for choice in listed))
    default = _as(kind, raw.get("default"))
    if choices and str(default) not in choices:
        default = None
    numeric = kind in (int, float)
    return Field(
        name=str(raw["key"]),
        type=kind,
        default=default,
        help=result_text(raw.get("description")),
        choices=choices,
        minimum=_number(raw.get("minimum")) if numeric else None,
        maximum=_number(raw.get("maximum")) if numeric else None,
        env=_first_text(raw.get("env_var")),
        secret=_truth(raw.get("secret")) or _word(raw.get("type")) in _SECRET,
        required=_truth(raw.get("required")),
        url=result_text(raw.get("url")),
        when=_conditions(raw.get("when")),
        default_from=_default_from(raw.get("default_from"), kind, choices),
    )


def _type(raw: Mapping[str, Any], choices: Sequence[Value]) -> Type:
    """Return the named type, else the type of the choices, else of the default, else str."""
    named = _TYPES.get(_word(raw.get("type")))
    if named is not None:
        fits = not choices or named is bool or all(_as(named, choice) is not None for choice in choices)
        return named if fits else str
    kinds = {type(choice) for choice in choices}
    if choices:
        only = kinds.pop() if len(kinds) == 1 else float if kinds == {int, float} else str
        return only if only in (bool, int, float) else str
    default = raw.get("default")
    return type(default) if isinstance(default, bool | int | float) else str


def _word(named: Any) -> str:
    """Return the name of a type that is given as text or as a Python type."""
    return (named.__name__ if isinstance(named, type) else str(named or "")).strip().lower()


def _choices(listed: Any) -> Iterator[Value]:
    """Yield the values to choose from: plain ones, ones with a label, or the keys of a mapping."""
    for choice in listed if isinstance(listed, list | tuple | Mapping) else ():
        value = choice
        if isinstance(choice, Mapping):
            value = choice.get("value", choice.get("id", choice.get("name")))
        elif isinstance(choice, list | tuple) and choice:
            value = choice[0]
        if isinstance(value, Value):
            yield value


def _as(kind: Type, value: Any) -> Value | None:
    """Return `value` in this type, None if it has another."""
    if not isinstance(value, Value) or (value == "" and kind is not str):
        return None
    if kind is bool:
        return _TRUTH.get(str(value).strip().lower())
    if kind is str:
        return str(value).lower() if isinstance(value, bool) else str(value)
    number = _number(value)
    if number is None or (kind is int and not number.is_integer()):
        return None
    return int(number) if kind is int else number


def _number(value: Any) -> float | None:
    """Return a finite number, also if it is written as text, else None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _conditions(when: Any) -> dict[str, Value]:
    if not isinstance(when, Mapping):
        return {}
    return {str(key): value for key, value in when.items() if isinstance(value, Value)}


def _default_from(raw: Any, kind: Type, choices: Sequence[str]) -> tuple[str, dict[str, Value]] | None:
    """Return the other field and its map of value to default, from `{"field": name, "map": {value: default}}`.

    Defaults of another type, or outside the choices, are dropped.
    """
    if not isinstance(raw, Mapping) or not raw.get("field") or not isinstance(raw.get("map"), Mapping):
        return None
    typed = {result_text(value): _as(kind, default) for value, default in raw["map"].items()}
    valid = {
        value: default
        for value, default in typed.items()
        if default is not None and (not choices or str(default) in choices)
    }
    return str(raw["field"]), valid


def _truth(value: Any) -> bool:
    return _TRUTH.get(value.strip().lower(), True) if isinstance(value, str) else bool(value)


def _first_text(value: Any) -> str:
    """Return the name of the variable, the first one if several are listed."""
    if isinstance(value, list | tuple):
        value = next(iter(value), "")
    return value if isinstance(value, str) else ""

"""One conversion of raw values to declared types: for config keys, settings, tool arguments and the command line."""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_BOOL_WORDS = {"yes": True, "on": True, "no": False, "off": False}
_NOUNS: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a JSON object",
    list: "a JSON list",
}
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """The values that a declaration allows.

    Attributes:
        kind: `str`, `int`, `float`, `bool`, `dict`, `list`, or `list[...]` of one of the first four.
        choices: The only values, or items of a list, that are allowed; all values if it is empty.
        minimum: Smallest number that is allowed.
        maximum: Largest number that is allowed.
    """

    kind: Any
    choices: Sequence[Any] = ()
    minimum: float | None = None
    maximum: float | None = None

    @property
    def item(self) -> Any:
        """Type of a list's items, None if the value is no list of one type."""
        return next(iter(typing.get_args(self.kind)), None)

    @property
    def expected(self) -> str:
        """The allowed values in words, for an error: "a whole number from 1 up to 50"."""
        if self.choices:
            noun = f"one of {', '.join(map(repr, self.choices))}"
        else:
            noun = _NOUNS[self.item or self.kind]
        match self.minimum, self.maximum:
            case float() | int() as low, float() | int() as high:
                noun += f" from {low:g} up to {high:g}"
            case float() | int() as low, None:
                noun += f" of at least {low:g}"
            case None, float() | int() as high:
                noun += f" of at most {high:g}"
        return f"a list, each item {noun}" if self.item else noun

    @property
    def json_schema(self) -> dict[str, Any]:
        """The same in JSON Schema, as language models read it."""
        schema: dict[str, Any] = {"type": _JSON_TYPES[self.item or self.kind]}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        if self.maximum is not None:
            schema["maximum"] = self.maximum
        return {"type": "array", "items": schema} if self.item else schema

    def convert(self, raw: Any, *, strict: bool = False, clamp: bool = False) -> Any:
        """Return `raw` as a value of this schema.

        Args:
            raw: The value as a file, a person or a model gives it.
            strict: Convert nothing but a whole number to a number. Else text is read as a number, as true or false
                (also yes, no, on, off, 1 and 0), or as JSON.
            clamp: Move a number that is out of range to the nearer end instead of refusing it.

        Raises:
            ValueError: It is no such value; `expected` says what is.
        """
        if isinstance(raw, bool) and self.choices:  # YAML 1.1 reads a bare `yes` or `off` as a truth value
            words = [word for word, meaning in _BOOL_WORDS.items() if meaning is raw]
            raw = next((choice for choice in self.choices if choice in words), raw)
        value = raw if type(raw) is self.kind else _converted(raw, self.kind, strict)
        for item in value if self.item else (value,):
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{item!r} is not finite")
            if self.choices and str(item) not in map(str, self.choices):
                raise ValueError(f"{item!r} is none of the choices")
            if not clamp and self.clamp(item) != item:
                raise ValueError(f"{item!r} is out of range")
        if not clamp:
            return value
        return [self.clamp(item) for item in value] if self.item else self.clamp(value)

    def clamp(self, value: Any) -> Any:
        """Return the number, or the end of the range that it is beyond."""
        if self.minimum is not None and value < self.minimum:
            return type(value)(self.minimum)
        if self.maximum is not None and value > self.maximum:
            return type(value)(self.maximum)
        return value


def _converted(raw: Any, kind: Any, strict: bool) -> Any:
    import msgspec  # here, since the values of most files have their types already, and its import takes 15 ms

    if isinstance(raw, str) and not strict:
        if kind in (dict, list):
            raw = json.loads(raw)
        elif kind is bool:
            raw = _BOOL_WORDS.get(raw.strip().lower(), raw.strip())
        elif kind in (int, float):
            raw = raw.strip()
    try:
        return msgspec.convert(raw, kind, strict=strict)
    except msgspec.ValidationError as exc:
        raise ValueError(str(exc)) from exc

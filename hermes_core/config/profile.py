"""Typed fields of a person's profile, as `memory.profile_fields` of config.yaml declares them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_core.config.schema import ValueSchema

TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}

FIELD_FORM = "{name, type, description}, where type is string, integer, number or boolean"

# Characters of a value: fields share the room of USER.md with all else in it.
MAX_VALUE_CHARS = 200

_NAME = re.compile(r"[^\W\d_][\w -]{0,39}")


def is_field_name(text: str) -> bool:
    """Return True if a field may have this name.

    >>> is_field_name("home town"), is_field_name("see https")
    (True, True)
    >>> is_field_name("- tea"), is_field_name("")
    (False, False)
    """
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class ProfileField:
    """A typed field of the profile.

    Attributes:
        name: Its name in USER.md, as timezone.
        type: The type of its values: "string", "integer", "number" or "boolean".
        description: What the model should put into it.
    """

    name: str
    type: str = "string"
    description: str = ""

    @classmethod
    def from_config(cls, value: Any) -> ProfileField:
        """Return the field that an item of `memory.profile_fields` declares.

        Raises:
            ValueError: The item is no field.
        """
        if not isinstance(value, Mapping) or not all(
            isinstance(value.get(key, ""), str) for key in ("name", "type", "description")
        ):
            raise ValueError(f"{value!r} is not {FIELD_FORM}")
        field = cls(value.get("name", ""), value.get("type", "string"), value.get("description", ""))
        if unknown := value.keys() - {"name", "type", "description"}:
            raise ValueError(f"{min(map(str, unknown))!r} is none of name, type and description")
        if not _NAME.fullmatch(field.name) or field.type not in TYPES:
            raise ValueError(f"{value!r} is not {FIELD_FORM}")
        return field

    @property
    def json_schema(self) -> dict[str, Any]:
        """The field as a property of a tool's parameters; null deletes the value."""
        schema: dict[str, Any] = {"type": [self.type, "null"]}
        return schema | ({"description": self.description} if self.description else {})

    def text_of(self, value: Any) -> str:
        """Return a value of this field as it stands in USER.md.

        >>> ProfileField("age", "integer").text_of("42")
        '42'

        Raises:
            ValueError: The value has another type, is empty, or has several lines.
        """
        schema = ValueSchema(kind=TYPES[self.type])
        try:
            converted = schema.convert(value)
        except ValueError:
            raise ValueError(f"{self.name!r} takes {schema.expected}, not {value!r:.100}") from None
        text = str(converted).lower() if self.type == "boolean" else f"{converted}".strip()
        if not text or len(text.splitlines()) != 1 or len(text) > MAX_VALUE_CHARS:
            raise ValueError(f"{self.name!r} takes one line of 1 to {MAX_VALUE_CHARS} characters")
        return text


def parse_profile_fields(values: Iterable[Any]) -> tuple[ProfileField, ...]:
    """Return the fields that `memory.profile_fields` declares.

    Raises:
        ValueError: An item is no field, or two have the same name.
    """
    fields = tuple(ProfileField.from_config(value) for value in values)
    names = [field.name.casefold() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two fields are called {name!r}")
    return fields

"""Typed fields of a person's profile, as `memory.profile_fields` of config.yaml declares them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from hermes_core.config.schema import checked
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError

TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}

FIELD_FORM = "{name, type, description}, where type is string, integer, number or boolean"

# Characters of a value: fields share the room of USER.md with all else in it.
MAX_VALUE_CHARS = 200

_NAME = r"[^\W\d_][\w -]{0,39}"


def is_field_name(text: str) -> bool:
    """Return True if a field may have this name.

    >>> is_field_name("home town"), is_field_name("see https")
    (True, True)
    >>> is_field_name("- tea"), is_field_name("")
    (False, False)
    """
    return re.fullmatch(_NAME, text) is not None


class ProfileField(Struct, frozen=True, forbid_unknown_fields=True):
    """A typed field of the profile.

    Attributes:
        name: Its name in USER.md, as timezone.
        type: The type of its values.
        description: What the model should put into it.
    """

    name: Annotated[str, Meta(pattern=rf"\A{_NAME}\Z")]
    type: Literal["string", "integer", "number", "boolean"] = "string"
    description: str = ""

    @classmethod
    def from_config(cls, value: Any) -> ProfileField:
        """Return the field that an item of `memory.profile_fields` declares.

        Raises:
            ValueError: The item is no field.
        """
        try:
            return convert(value, cls)
        except ValidationError as exc:
            raise ValueError(f"{value!r} is not {FIELD_FORM}: {exc}") from exc

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
        try:
            converted = checked(Field(self.name, TYPES[self.type]), value, repr(self.name))
        except ConfigError as exc:
            raise ValueError(exc.message) from None
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

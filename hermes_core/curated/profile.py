"""The typed fields of a profile in USER.md: lines `name: value` at its beginning.

The lines are the beginning of the first entry, so that a person can edit them as any text. A line that is no `name: value`
ends them. A value between them whose field is not declared any more stays in its line, until a person removes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_core.config.profile import ProfileField, is_field_name
from hermes_core.curated.document import entry_handle
from hermes_core.curated.edits import Operation, Refusal


def profile_values(entries: Sequence[str], fields: Sequence[ProfileField]) -> dict[str, str]:
    """Return the values of the fields in these entries of USER.md, by name.

    >>> profile_values(["Age: 42\\nLikes tea"], [ProfileField("age", "integer")])
    {'age': '42'}
    """
    return _split(entries, fields)[0]


def field_operation(
    entries: Sequence[str], values: Mapping[str, Any], fields: Sequence[ProfileField]
) -> Operation | Refusal | None:
    """Return the operation that sets fields of the profile; None if all have these values already.

    Args:
        entries: The entries of USER.md.
        values: The new values by the names of fields; None deletes a value.
        fields: The declared fields.
    """
    by_name = {field.name.casefold(): field for field in fields}
    present, undeclared, rest = _split(entries, fields)
    changed = dict(present)
    for name, value in values.items():
        field = by_name.get(str(name).casefold())
        if field is None:
            known = ", ".join(field.name for field in fields) or "none is declared in memory.profile_fields"
            return Refusal(f"There is no profile field {name!r}. Fields: {known}.")
        if value is None:
            changed.pop(field.name, None)
            continue
        try:
            changed[field.name] = field.text_of(value)
        except ValueError as exc:
            return Refusal(f"{exc}.")
    if changed == present:
        return None
    lines = [f"{field.name}: {changed[field.name]}" for field in fields if field.name in changed]
    lines += [f"{name}: {value}" for name, value in undeclared.items()]
    text = "\n".join(filter(None, ["\n".join(lines), rest]))
    if not present:
        return Operation("add", text, after="")
    return Operation("replace" if text else "remove", text, entry_handle(entries[0]))


def undeclared_values(entries: Sequence[str], fields: Sequence[ProfileField]) -> dict[str, str]:
    """Return the values between those of the fields whose field is not declared any more, by name.

    >>> undeclared_values(["Name: Ann\nAge: 42\nLikes: tea"], [ProfileField("age", "integer")])
    {'Name': 'Ann'}
    """
    return _split(entries, fields)[1]


def _split(
    entries: Sequence[str], fields: Sequence[ProfileField]
) -> tuple[dict[str, str], dict[str, str], str]:
    """Return the values of the fields, the values of other fields above the last one, and the rest of the entry."""
    names = {field.name.casefold(): field.name for field in fields}
    lines = entries[0].split("\n") if entries else []
    values, undeclared, others = dict[str, str](), dict[str, str](), dict[str, str]()
    end = 0
    for number, line in enumerate(lines, 1):
        name, colon, value = (part.strip() for part in line.partition(":"))
        declared = names.get(name.casefold())
        if not (colon and value) or declared in values or name in others or not is_field_name(name):
            break
        if declared is None:
            others[name] = value
            continue
        values[declared] = value
        end, undeclared = number, dict(others)
    # Without a declared field, the lines are a text like any other.
    return values, undeclared, "\n".join(lines[end:]) if values else ""

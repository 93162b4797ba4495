"""The typed fields of a profile in USER.md: lines `name: value` at its beginning.

The lines are the beginning of the first entry, so that a person can edit them as any text. A line whose name no field has
ends them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_core.config.profile import ProfileField
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
    present, rest = _split(entries, fields)
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
    text = "\n".join(filter(None, ["\n".join(lines), rest]))
    if not present:
        return Operation("add", text, after="")
    return Operation("replace" if text else "remove", text, entry_handle(entries[0]))


def _split(entries: Sequence[str], fields: Sequence[ProfileField]) -> tuple[dict[str, str], str]:
    """Return the values of the fields, and the rest of the entry that holds them."""
    names = {field.name.casefold(): field.name for field in fields}
    lines = entries[0].split("\n") if entries else []
    values: dict[str, str] = {}
    for number, line in enumerate(lines):
        name, colon, value = line.partition(":")
        declared = names.get(name.strip().casefold())
        if not (colon and declared and value.strip()) or declared in values:
            return values, "\n".join(lines[number:]) if values else ""
        values[declared] = value.strip()
    return values, ""

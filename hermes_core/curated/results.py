"""What a call of curated memory answers, as plain JSON data with the keys that models and clients know."""

from __future__ import annotations

from typing import Any

from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import measure, usage
from hermes_core.curated.edits import Edit

Result = dict[str, Any]

_DONE = "Write saved. This update is complete — do not repeat it."
_HANDED_ON = "The memory provider keeps this; the local file is unchanged. Do not repeat it."

_UNCHANGED = {
    "add": "Entry already exists (no duplicate added).",
    "replace": "Entry already says this (nothing changed).",
    "batch": "All operations were done already (nothing changed).",
    "undo": "The entries are as they were before that change (nothing changed).",
}
_CHANGED = {
    "add": "Entry added.",
    "replace": "Entry replaced.",
    "remove": "Entry removed.",
    "batch": "Applied {count} operation(s).",
    "undo": "Undone: {count} entry change(s) taken back.",
    "reset": "Removed {count} entries; undo brings them back.",
}


def saved(target: MemoryTarget, action: str, edit: Edit, limit: int, asked: int) -> Result:
    """Success, also of a call that found everything done; `asked` is the number of operations in a batch."""
    table = _CHANGED if edit.changes else _UNCHANGED
    count = asked if action == "batch" else len(edit.changes)
    return {
        "success": True,
        "done": True,
        "target": target,
        "usage": usage(measure(edit.entries), limit),
        "entry_count": len(edit.entries),
        "message": table.get(action, "Nothing to change.").format(count=count),
        "note": _DONE,
    }


def handed_on(target: MemoryTarget, count: int) -> Result:
    """Success of writes that only the memory provider holds."""
    return {
        "success": True,
        "done": True,
        "target": target,
        "performed": False,
        "message": f"Handed {count} operation(s) to the memory provider.",
        "note": _HANDED_ON,
    }


def refused(reason: str) -> Result:
    """Nothing was changed, and why."""
    return {"success": False, "error": reason}

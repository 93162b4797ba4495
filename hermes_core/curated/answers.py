"""The dicts that the `memory` tool answers with."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.curated.document import NotesUsage, measure
from hermes_core.curated.edits import Edit
from hermes_core.safety.redact import secrets_in
from hermes_core.safety.terminal import counted

Result = dict[str, Any]

MAX_REFUSALS_PER_TURN = 3
"""Refusals in one turn of a session that tell the model how to correct the call. Later refusals tell it to stop."""

_MAX_COUNTED_SESSIONS = 1024

UNCHANGED = {
    "add": "Entry already exists (no duplicate added).",
    "replace": "Entry already says this (nothing changed).",
    "batch": "All operations were done already (nothing changed).",
    "undo": "The entries are as they were before that change (nothing changed).",
    "restore": "The entries are as they were after that change (nothing changed).",
}
NOTHING = "Nothing to change."
_CHANGED = {
    "add": "Entry added.",
    "replace": "Entry replaced.",
    "remove": "Entry removed.",
    "batch": "Applied {operations}.",
    "undo": "Undone: {changes} taken back.",
    "restore": "Restored: {changes} made.",
    "reset": "Removed {entries}; undo brings back what went.",
}
_SAVED = "Write saved. This update is complete — do not repeat it."
WAITS = (
    "Write saved. This update is complete — do not repeat it. Its text comes from {origin}, so it is recalled as data "
    "and stands in no system prompt until the person confirms it: hermes-memory review."
)
_HANDED_ON = "The memory provider keeps this; the local file is unchanged. Do not repeat it."


def answer(target: MemoryTarget, action: str, edit: Edit, limit: int, operations: int) -> Result:
    """Return the answer to a call that was carried out, or that had nothing to change.

    Args:
        operations: Number of operations of the call.
    """
    count = operations if action == "batch" else len(edit.changes)
    message = (_CHANGED if edit.changes else UNCHANGED).get(action, NOTHING)
    return {
        "success": True,
        "done": True,
        "target": target,
        "usage": str(NotesUsage(measure(edit.entries), limit)),
        "entry_count": len(edit.entries),
        "message": message.format(
            operations=counted(count, "operation"),
            changes=counted(count, "entry change"),
            entries=counted(count, "entry", "entries"),
        ),
        "note": _SAVED,
    }


def handed_on(target: MemoryTarget, count: int) -> Result:
    """Return the answer to operations of which only the provider keeps the entries."""
    return {
        "success": True,
        "done": True,
        "target": target,
        "performed": False,
        "message": f"Handed {counted(count, 'operation')} to the memory provider.",
        "note": _HANDED_ON,
    }


def taken_away(edit: Edit, shown: Callable[[str], str], *, listed: bool) -> Result:
    """Return the entries that an edit removed or replaced, and a warning if one of them holds a secret.

    Args:
        shown: Returns the text of an entry as a model may see it.
        listed: True to list several entries. A reset would list the whole file.
    """
    gone: Result = {}
    for action, key in (("remove", "removed"), ("replace", "replaced")):
        entries = [
            shown(change.previous) for change in edit.changes if change.previous and change.action == action
        ]
        if entries and len(edit.changes) == 1:
            gone[f"{key}_entry"] = entries[0]
        elif entries and listed:
            gone[f"{key}_entries"] = entries
    return gone | caution(edit)


def caution(edit: Edit) -> Result:
    """Return a warning if a removed entry holds a secret, since it stays in the history; else {}."""
    removed = Counter(kind for change in edit.changes for kind in secrets_in(change.previous))
    if not removed:
        return {}
    return {
        "caution": (
            f"What went looks like a secret ({', '.join(removed)}): the history keeps it for undo until "
            "`hermes-memory memory prune`."
        )
    }


def changed_something(result: Mapping[str, Any]) -> bool:
    """Return True if the call with this result changed the notes.

    A successful call may have had nothing to change.
    """
    return bool(result.get("success")) and result.get("message") not in (*UNCHANGED.values(), NOTHING)


class RefusalCounter:
    """Counter of refusals by session, to stop a model that repeats a failing write. Safe to share between threads."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()  # sessions of a gateway write from threads of their own

    def add(self, session: Session, reason: str) -> str:
        """Count a refusal. If there were too many, return a text that tells the model to stop; else ""."""
        # A background review has the id of its session, but is counted separately.
        key = session.id, session.agent_context
        with self._lock:
            count = self._counts.pop(key, 0) + 1
            self._counts[key] = count
            # A gateway may have any number of sessions, so the least recently used count is dropped.
            while len(self._counts) > _MAX_COUNTED_SESSIONS:
                self._counts.popitem(last=False)
        if count <= MAX_REFUSALS_PER_TURN:
            return ""
        return (
            f"Memory consolidation failed {counted(count, 'time')} this turn. Stop calling this tool now, answer the person, "
            f"and leave memory as it is; nothing was changed. The last reason: {reason}"
        )

    def reset(self, session: Session) -> None:
        """Set the count of this session to 0, after a success or at the start of a turn."""
        with self._lock:
            self._counts.pop((session.id, session.agent_context), None)

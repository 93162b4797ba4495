"""What a call of curated memory answers, as plain JSON data with the keys that models and clients know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.curated.breaker import RetryBreaker
from hermes_core.curated.document import Usage, measure
from hermes_core.curated.edits import PREVIEW, Edit, Refusal, clip, handle
from hermes_core.curated.snapshot import Scan, flag
from hermes_core.errors import MemoryConflict
from hermes_core.safety.redact import secrets_in

Result = dict[str, Any]
Read = Callable[[MemoryTarget], tuple[str, ...]]

_DONE = "Write saved. This update is complete — do not repeat it."
_HANDED_ON = "The memory provider keeps this; the local file is unchanged. Do not repeat it."

_UNCHANGED = {
    "add": "Entry already exists (no duplicate added).",
    "replace": "Entry already says this (nothing changed).",
    "batch": "All operations were done already (nothing changed).",
    "undo": "The entries are as they were before that change (nothing changed).",
}
_NOTHING = "Nothing to change."
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
        "usage": str(Usage(measure(edit.entries), limit)),
        "entry_count": len(edit.entries),
        "message": table.get(action, _NOTHING).format(count=count),
        "note": _DONE,
    }


def changed_something(result: Mapping[str, Any]) -> bool:
    """Whether a call changed the file: one that found everything done is a success too, and there is nothing to undo."""
    return bool(result.get("success")) and result.get("message") not in (*_UNCHANGED.values(), _NOTHING)


def caution(target: MemoryTarget, edit: Edit) -> Result:
    """What a person should know of a secret that came into the file, or that went and is in the history still."""
    for change in edit.changes:
        if kinds := ", ".join(secrets_in(change.content)):
            name = handle(change.content)
            return {
                "caution": (
                    f"This holds what looks like a secret ({kinds}), and {target.upper()}.md is plain text that goes into "
                    f"every system prompt. Keep it in .env and remove the entry (old_text {name!r}: `hermes-memory memory remove "
                    f"--target {target} {name}`), then forget the history, which keeps it: `hermes-memory memory prune`."
                )
            }
    if kinds := ", ".join(kind for change in edit.changes for kind in secrets_in(change.previous)):
        return {
            "caution": (
                f"What went looks like a secret ({kinds}): the history keeps it for undo until `hermes-memory memory prune`."
            )
        }
    return {}


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


class Answers:
    """Refusals for one model, with the entries that it may see and an end to its tries."""

    def __init__(
        self,
        limits: Mapping[MemoryTarget, int],
        scan: Scan,
        read: Read,
        breaker: RetryBreaker | None = None,
    ) -> None:
        self._limits = limits
        self._scan = scan
        self._read = read
        self.breaker = breaker or RetryBreaker()

    def refuse(self, refusal: Refusal, target: MemoryTarget | None, session: Session) -> Result:
        """A refusal as a result; after too many in one turn, one that tells the model to stop."""
        if stop := self.breaker.failed(session, refusal.reason):
            return {"success": False, "done": True, "error": stop}
        result = refused(refusal.reason)
        if target and refusal.matches:
            result["matches"] = [self.shown(target, entry, PREVIEW) for entry in refusal.matches]
        if target and refusal.show_entries:
            result |= self._current(target)
        if refusal.backup:
            result["drift_backup"] = refusal.backup
        if refusal.remedy:
            result["remediation"] = refusal.remedy
        return result

    def previous(self, target: MemoryTarget, edit: Edit) -> Result:
        """The whole entry that a single change took away."""
        if len(edit.changes) != 1 or not edit.changes[0].previous:
            return {}
        key = "removed_entry" if edit.changes[0].action == "remove" else "replaced_entry"
        return {key: self.shown(target, edit.changes[0].previous)}

    def shown(self, target: MemoryTarget, entry: str, width: int | None = None) -> str:
        """An entry, or its beginning; in place of a flagged one, its handle."""
        flagged = flag(target, entry, self._limits[target], self._scan)
        if flagged:
            return flagged.withheld
        return entry if width is None else clip(entry, width)

    def _current(self, target: MemoryTarget) -> Result:
        """All entries and the usage, for a model that has to choose."""
        try:
            entries = self._read(target)
        except MemoryConflict:
            return {}
        return {
            "current_entries": [self.shown(target, entry) for entry in entries],
            "usage": f"{measure(entries):,}/{self._limits[target]:,}",
        }


def refused(reason: str) -> Result:
    """Nothing was changed, and why."""
    return {"success": False, "error": reason}

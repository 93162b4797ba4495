"""What one call does to a list of entries: matching, budget, all or nothing. Pure; refusals are values."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hermes_core.contract.values import MemoryAction
from hermes_core.curated.document import measure

PREVIEW = 80
"""Characters of an entry or argument that a message shows."""

_HANDLE = re.compile(r"entry:[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing asked for: `content` is tidied text, `old_text` a fragment, a whole entry, or a handle."""

    action: MemoryAction
    content: str = ""
    old_text: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened: `operation` is its index in the call, `previous` the whole entry that is gone."""

    operation: int
    action: MemoryAction
    content: str = ""
    previous: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """The entries after a call, and what changed on the way; no changes when all of it was there already."""

    entries: tuple[str, ...]
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing happened. `matches` are the entries to choose from; `show_entries` asks for all of them."""

    reason: str
    matches: tuple[str, ...] = ()
    show_entries: bool = False
    backup: str = ""
    remedy: str = ""


def handle(entry: str) -> str:
    """A short name that stands for an entry in `old_text`, also for one whose text is not shown.

    >>> handle("Likes tea")
    'entry:d73e14c0'
    """
    return f"entry:{hashlib.sha256(entry.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def clip(text: str, width: int = PREVIEW) -> str:
    """The beginning of a text, marked when there is more."""
    return text if len(text) <= width else f"{text[:width]}..."


def apply(entries: Sequence[str], operations: Sequence[Operation], *, batch: bool = False) -> Edit | Refusal:
    """All operations in order, or none: the first that can't be done refuses the rest."""
    current, changes = list(entries), []
    for index, operation in enumerate(operations):
        change = _apply_one(current, index, operation)
        if isinstance(change, Refusal):
            return in_batch(change, index, operation) if batch else change
        if change:
            changes.append(change)
    return Edit(tuple(current), tuple(changes))


def over_budget(
    before: Sequence[str], edit: Edit, operations: Sequence[Operation], limit: int, *, batch: bool
) -> Refusal | None:
    """Growing past the limit is refused. Shrinking never is, so that a store that a hand edit overfilled gets out."""
    used, after = measure(before), measure(edit.entries)
    if after <= limit or after <= used:
        return None
    if batch:
        reason = f"Applying the operations would put memory at {after:,}/{limit:,} chars."
        advice = (
            "Remove or shorten more in the same batch. No operations were applied (batch is all-or-nothing)."
        )
    elif operations[0].action == "add":
        size = len(operations[0].content)
        reason = (
            f"Memory at {used:,}/{limit:,} chars. Adding this entry ({size:,} chars) would exceed the limit."
        )
        advice = "Replace or remove existing entries first, or do both in one call with 'operations'."
    else:
        reason = f"Replacement would put memory at {after:,}/{limit:,} chars."
        advice = "Shorten the new content, or remove other entries first."
    return Refusal(f"{reason} {advice}", show_entries=True)


def find(entries: Sequence[str], old_text: str) -> int | Refusal:
    """The index of the one entry that `old_text` names: by handle, as the whole entry, or by a fragment of it."""
    if _HANDLE.fullmatch(old_text):
        for index, entry in enumerate(entries):
            if handle(entry) == old_text:
                return index
    if old_text in entries:
        return entries.index(old_text)
    wanted = _composed(old_text)
    found = [index for index, entry in enumerate(entries) if old_text in entry or wanted in _composed(entry)]
    found = [index for index in found if _composed(entries[index]) == wanted][:1] or found
    if not found:
        return Refusal(_no_match(old_text, bool(entries)), show_entries=True)
    matches = tuple(dict.fromkeys(entries[index] for index in found))
    if len(matches) > 1:
        return Refusal(f"Multiple entries matched {clip(old_text)!r}. Be more specific.", matches)
    return found[0]


def oversized(before: Sequence[str], edit: Edit, limit: int) -> str:
    """An entry that alone is larger than the whole store, and would still be there; "" when there is none."""
    return next((entry for entry in before if len(entry) > limit and entry in edit.entries), "")


def reverse(entries: Sequence[str], before: Sequence[str], after: Sequence[str]) -> Edit | Refusal:
    """Take back the step from `before` to `after` on entries that may have moved on since."""
    gone, came = _missing(before, after), _missing(after, before)
    current, changes = list(entries), []
    for position in range(max(len(gone), len(came))):
        index, old = gone[position] if position < len(gone) else (0, "")
        new = came[position][1] if position < len(came) else ""
        if new and new not in current:
            return Refusal(
                f"The entry {clip(new)!r} was changed again later.", remedy="undo that change first"
            )
        change = _swap(current, new, old, index)
        if change:
            changes.append(change)
    return Edit(tuple(current), tuple(changes))


def _apply_one(current: list[str], index: int, operation: Operation) -> Change | Refusal | None:
    if operation.action == "add":
        if _stands_in(current, operation.content):
            return None
        current.append(operation.content)
        return Change(index, "add", operation.content)
    at = find(current, operation.old_text)
    if isinstance(at, Refusal):
        return at
    previous = current[at]
    if operation.action == "replace" and operation.content == previous:
        return None
    # A replacement that another entry says already would be a duplicate: the old entry goes, that one stays.
    others = [*current[:at], *current[at + 1 :]]
    if operation.action == "remove" or _stands_in(others, operation.content):
        del current[at]
        return Change(index, "remove", "", previous)
    current[at] = operation.content
    return Change(index, "replace", operation.content, previous)


def _stands_in(entries: Sequence[str], content: str) -> bool:
    return _composed(content) in map(_composed, entries)


def _composed(text: str) -> str:
    """Text as it is compared: some systems send é as e and its accent, which nobody can see."""
    return unicodedata.normalize("NFC", text)


def _swap(current: list[str], new: str, old: str, index: int) -> Change | None:
    """Put `old` back for `new`; either may be empty."""
    present = old in current
    if not new:
        if present:
            return None
        current.insert(min(index, len(current)), old)
        return Change(0, "add", old)
    at = current.index(new)
    if not old or present:
        del current[at]
        return Change(0, "remove", "", new)
    current[at] = old
    return Change(0, "replace", old, new)


def _missing(here: Sequence[str], there: Sequence[str]) -> list[tuple[int, str]]:
    """Index and text of the entries that are here and not there, counting equal ones."""
    left = list(there)
    missing = []
    for index, entry in enumerate(here):
        if entry in left:
            left.remove(entry)
        else:
            missing.append((index, entry))
    return missing


def in_batch(refusal: Refusal, index: int, operation: Operation) -> Refusal:
    """The refusal of one operation, as the answer to the whole batch."""
    reason = (
        f"Operation {index + 1} ({operation.action}): {refusal.reason} "
        "No operations were applied (batch is all-or-nothing)."
    )
    return replace(refusal, reason=reason, show_entries=True)


def _no_match(old_text: str, any_entries: bool) -> str:
    if not any_entries:
        return f"No entry matched {clip(old_text)!r}. The store is empty; use 'add'."
    return (
        f"No entry matched {clip(old_text)!r}. Copy a unique fragment of one of current_entries into old_text, "
        "exactly as it is written there, and try once more; or use 'add' if the fact is new."
    )

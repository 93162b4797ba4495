"""Edits of a list of entries: matching, limits, batches and undo.

The functions are pure and return refusals as values.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from msgspec import Struct
from msgspec.structs import replace

from hermes_core.contract.values import MemoryAction
from hermes_core.curated.document import entry_handle, measure

_PREVIEW_CHARS = 80

# Dashes, quotes, and characters without width. NFKC folds full-width letters, "…" and special spaces.
_FOLDS = str.maketrans(
    dict.fromkeys("‐‑‒–—―−﹘", "-")
    | dict.fromkeys("‘’‚‛′`´ʼ‹›", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff", "")
)

_HANDLE = re.compile(r"entry:[0-9a-f]{8}")


class Operation(Struct, frozen=True):
    """Requested change of one entry.

    `content` is the new text, normalized. `old_text` identifies the entry: a fragment of it, its whole text or its
    handle. `after` is the place of an added entry: the whole text of the entry before it, "" for the first place. Without
    it, or if there is no such entry any more, the entry is added at the end.
    """

    action: MemoryAction
    content: str = ""
    old_text: str = ""
    after: str | None = None


class NoteChange(Struct, frozen=True):
    """Change of one entry, as a part of an `Edit`.

    `operation` is the index of the operation in the call; `previous` is the whole entry that was replaced or removed.
    """

    operation: int
    action: MemoryAction
    content: str = ""
    previous: str = ""


class Edit(Struct, frozen=True):
    """Result of a call: all entries after it, and the changes that it made.

    `changes` is empty if nothing had to be changed.
    """

    entries: tuple[str, ...]
    changes: tuple[NoteChange, ...] = ()


class Refusal(Struct, frozen=True):
    """Refusal of a call, which changed nothing. `error` is the reason.

    `for_person` is the reason in words for a person, who has no tool and no list of operations; "" if it is the same.
    `matches` are entries of which one has to be chosen. If `show_entries` is True, the answer lists all entries.
    `backup` is the path of a copy of the file, and `remedy` says what to do.
    """

    reason: str
    matches: tuple[str, ...] = ()
    show_entries: bool = False
    backup: str = ""
    remedy: str = ""
    for_person: str = ""


def preview(text: str) -> str:
    """Return the first 80 characters of an entry or argument, with "..." if there is more."""
    return text if len(text) <= _PREVIEW_CHARS else f"{text[:_PREVIEW_CHARS]}..."


def apply(entries: Sequence[str], operations: Sequence[Operation], *, batch: bool = False) -> Edit | Refusal:
    """Apply all operations in order. If one of them can't be applied, return its refusal: then none is applied.

    Equal entries count as one: all of them are replaced or removed.
    """
    current, changes = list(entries), []
    for index, operation in enumerate(operations):
        action, content, previous = operation.action, operation.content, ""
        place = _place(current, operation)
        if action != "add":
            match = find(current, operation.old_text)
            if isinstance(match, Refusal):
                return in_batch(match, index, operation) if batch else match
            previous = current[match]
            equal = [_composed(entry) == _composed(previous) for entry in current]
            if action == "replace" and content == previous and sum(equal) == 1:
                continue
            place = equal[:match].count(False)
            current = [entry for entry, is_equal in zip(current, equal, strict=True) if not is_equal]
        if action != "remove" and _composed(content) not in map(_composed, current):
            current.insert(place, content)
        elif action == "add":
            continue
        else:  # a replacement that equals another entry only removes the old entry: duplicates are not allowed
            action, content = "remove", ""
        changes.append(NoteChange(index, action, content, previous))
    return Edit(tuple(current), tuple(changes))


def _place(entries: Sequence[str], operation: Operation) -> int:
    """Return the index at which the operation adds an entry."""
    if (after := operation.after) == "":
        return 0
    return entries.index(after) + 1 if after is not None and after in entries else len(entries)


def over_budget(
    before: Sequence[str], edit: Edit, operations: Sequence[Operation], limit: int, *, batch: bool
) -> Refusal | None:
    """Return the refusal of an edit that makes the file larger than `limit`; None if the edit is allowed.

    An edit that makes the file smaller is always allowed, so that a file above the limit can be brought below it in
    steps.
    """
    used, after, for_person = measure(before), measure(edit.entries), ""
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
        advice = "Replace or remove existing entries first"
        for_person, advice = f"{reason} {advice}.", f"{advice}, or do both in one call with 'operations'."
    else:
        reason = f"Replacement would put memory at {after:,}/{limit:,} chars."
        advice = "Shorten the new content, or remove other entries first."
    return Refusal(f"{reason} {advice}", show_entries=True, for_person=for_person)


def find(entries: Sequence[str], old_text: str) -> int | Refusal:
    """Return the index of the entry with this handle, whole text or fragment.

    If no entry has the fragment as it is, look for one that differs from it only in dashes, quotes, spaces, case or
    Unicode form. Refuse if there is none, or more than one. Equal entries count as one.
    """
    # The handle is tried first: it is all that a model knows of a flagged entry, whose text it can't see.
    if _HANDLE.fullmatch(old_text):
        for index, entry in enumerate(entries):
            if entry_handle(entry) == old_text:
                return index
    if old_text in entries:
        return entries.index(old_text)
    for form in (_composed, _folded):
        fragment = form(old_text)
        places: dict[str, int] = {}
        for index, entry in enumerate(entries):
            # A dict, so that of equal entries only the first one counts.
            if fragment and fragment in form(entry):
                places.setdefault(_composed(entry), index)
        # An entry that equals the text wins over longer entries that contain it.
        equal = [index for index in places.values() if form(entries[index]) == fragment]
        matching = equal if len(equal) == 1 else list(places.values())
        if len(matching) > 1:
            matches = tuple(entries[index] for index in matching)
            return Refusal(f"Multiple entries matched {preview(old_text)!r}. Be more specific.", matches)
        if matching:
            return matching[0]
    no_match = f"No entry matched {preview(old_text)!r}."
    advice = "The store is empty; use 'add'."
    if entries:
        advice = (
            "Copy a unique fragment of one of current_entries into old_text, exactly as it is written there, and try once "
            "more; or use 'add' if the fact is new."
        )
    for_person = f"{no_match} {'These are there:' if entries else 'There is none yet.'}"
    return Refusal(f"{no_match} {advice}", show_entries=True, for_person=for_person)


def names_entry(old_text: str, entry: str) -> bool:
    """Return True if `old_text` is the handle or the whole text of `entry`, and not only a fragment."""
    return old_text in (entry_handle(entry), entry)


def reverse(entries: Sequence[str], before: Sequence[str], after: Sequence[str]) -> Edit | Refusal:
    """Undo the change from `before` to `after` in `entries`, which later changes may have altered.

    Changes of other entries stay. Refuse if an entry that the change added is not there any more.
    """
    removed, added = _missing(before, after), _missing(after, before)
    current, changes = list(entries), []
    for position in range(max(len(removed), len(added))):
        index, old = removed[position] if position < len(removed) else (0, "")
        new = added[position][1] if position < len(added) else ""
        if new and new not in current:
            return Refusal(
                f"The entry {preview(new)!r} was changed again later.", remedy="undo that change first"
            )
        change = _swap(current, new, old, index)
        if change:
            changes.append(change)
    return Edit(tuple(current), tuple(changes))


def merge(
    base: Sequence[str], mine: Sequence[str], theirs: Sequence[str], *, both: bool = False
) -> tuple[str, ...] | None:
    """Join two edits of the same entries, entry by entry; None if both changed the same entry in different ways.

    If both added entries at the same place, those of `theirs` come first. An entry that both added stands there once.

    Args:
        both: True to keep an entry that both changed in both forms.

    >>> merge(["tea", "rye"], ["tea", "oats"], ["tea", "rye", "milk"])
    ('tea', 'oats', 'milk')
    """
    edits = (theirs, mine)
    # At one place an addition comes before a change of the entry there.
    hunks = sorted(
        ((*hunk, side) for side, edited in enumerate(edits) for hunk in changed_ranges(base, edited)),
        key=lambda hunk: (hunk[0], hunk[1], hunk[3]),
    )
    merged: list[str] = []
    at = 0
    while hunks:
        group = [hunks.pop(0)]
        start, end = group[0][:2]
        while hunks and hunks[0][0] < end and start < hunks[0][1]:
            end = max(end, hunks[0][1])
            group.append(hunks.pop(0))
        forms = [
            _edited(base, start, end, [hunk for hunk in group if hunk[3] == side])
            for side in sorted({hunk[3] for hunk in group})
        ]
        before, (first, last) = base[start:end], (forms[0], forms[-1])
        if first != last and not both:
            return None
        # An entry that only one of them left as it was, the other one has removed.
        merged += [*base[at:start], *(entry for entry in first if entry not in before or entry in last)]
        merged += [entry for entry in last if entry not in before and entry not in first]
        at = end
    merged += base[at:]
    left = Counter(mine) | Counter(theirs)
    once = []
    for entry in merged:
        if left[entry]:
            left[entry] -= 1
            once.append(entry)
    # Of equal entries, each edit may have removed the one that the other left.
    return tuple(once + [entry for entry in dict.fromkeys(mine) if entry in theirs and entry not in once])


def _edited(
    base: Sequence[str], start: int, end: int, hunks: Iterable[tuple[int, int, list[str], int]]
) -> list[str]:
    """Return the entries of a range of `base` after changes in it."""
    entries: list[str] = []
    for first, last, new, _ in hunks:
        entries += [*base[start:first], *new]
        start = last
    return [*entries, *base[start:end]]


def replacements(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each entry that an edit of the whole text changed, with the entry in its place."""
    for start, end, entries in changed_ranges(before, after):
        if end - start == len(entries) == 1:
            yield before[start], entries[0]


def changed_ranges(base: Sequence[str], edited: Sequence[str]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the changed ranges of `base`, each with the entries in its place, entry by entry as far as they pair up."""
    for tag, start, end, first, last in SequenceMatcher(None, base, edited, autojunk=False).get_opcodes():
        if tag == "replace" and end - start == last - first:
            yield from ((start + i, start + i + 1, [edited[first + i]]) for i in range(end - start))
        elif tag == "delete":
            yield from ((i, i + 1, []) for i in range(start, end))
        elif tag != "equal":
            yield start, end, list(edited[first:last])


def _composed(text: str) -> str:
    """Return the text in Unicode form NFC, because some systems send é as two characters."""
    return unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    """Return the text without differences that models and editors make when they copy it."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_FOLDS).casefold().split())


def _swap(current: list[str], new: str, old: str, index: int) -> NoteChange | None:
    """Replace the entry `new` by `old` in `current`, and return the change; None if there is nothing to change.

    If `new` is "", insert `old` at `index`. If `old` is "", remove `new`.
    """
    present = old in current
    if not new:
        if present:
            return None
        current.insert(min(index, len(current)), old)
        return NoteChange(0, "add", old)
    at = current.index(new)
    if not old or present:
        del current[at]
        return NoteChange(0, "remove", "", new)
    current[at] = old
    return NoteChange(0, "replace", old, new)


def _missing(entries: Sequence[str], others: Sequence[str]) -> list[tuple[int, str]]:
    """Return index and text of each entry that is not in `others`. Duplicates are matched one to one."""
    left = list(others)
    missing = []
    for index, entry in enumerate(entries):
        if entry in left:
            left.remove(entry)
        else:
            missing.append((index, entry))
    return missing


def in_batch(refusal: Refusal, index: int, operation: Operation) -> Refusal:
    """Return the refusal of a whole batch because of the refusal of its operation at `index`."""
    reason = (
        f"Operation {index + 1} ({operation.action}): {refusal.reason} "
        "No operations were applied (batch is all-or-nothing)."
    )
    return replace(refusal, reason=reason, show_entries=True, for_person="")

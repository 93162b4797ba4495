"""The timeline: what was remembered, when, in which session, from which origin; undo and restore."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from hermes_core.actions.notes import restore_version, source_of_change, undo_change
from hermes_core.curated.journal import NoteVersion
from hermes_core.curated.waiting import waiting_sentence
from hermes_core.errors import SessionError
from hermes_core.ui.answers import Page, PageRequest, Redirect
from hermes_core.ui.site import Site
from hermes_core.ui.views.notes import FILES, told

PAGE_SIZE = 25

MAX_ENTRIES = 20
"""Entries of one change that the list shows."""

MAX_LINES = 500
"""Lines of a comparison, and entries of a change, that its page shows."""


def show(site: Site, request: PageRequest) -> Page:
    """Show the changes of the notes, newest first, a page at a time."""
    target = next((name for name in site.notes.targets if name == request.query.get("target")), None)
    changes = site.notes.history(target, limit=PAGE_SIZE + 1, before=request.number("before"))
    more = changes[PAGE_SIZE - 1].id if len(changes) > PAGE_SIZE else None
    rows = [{"change": change, "source": source_of_change(change)} for change in changes[:PAGE_SIZE]]
    return Page(
        "timeline.html",
        {
            "rows": rows,
            "more": more,
            "target": target,
            "names": FILES,
            "limit": MAX_ENTRIES,
            "waiting": waiting_sentence([note.origin.origin for note in site.notes.waiting_notes()]),
            "stored": site.stored_sessions(change.session_id for change in changes),
        },
    )


def _difference(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the entries of two versions, each behind a sign as in a diff."""
    # Whole entries: `difflib.ndiff` compares the letters of all pairs of similar ones, which takes minutes for a hundred.
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, first_after, last_after in matcher.get_opcodes():
        if kind == "equal":
            yield from (f"  {entry}" for entry in before[first:last])
        else:
            yield from (f"- {entry}" for entry in before[first:last])
            yield from (f"+ {entry}" for entry in after[first_after:last_after])


def change(site: Site, request: PageRequest) -> Page:
    """Show one change: what it did, and how its version differs from the file of now."""
    version = _version(site, request.required_number("id"))
    current = site.notes.entries(version.target)
    difference = list(_difference(current, version.after))
    return Page(
        "change.html",
        {
            "change": version,
            "source": source_of_change(version),
            "difference": difference[:MAX_LINES],
            "more_lines": max(len(difference) - MAX_LINES, 0),
            "limit": MAX_LINES,
            "same": tuple(current) == version.after,
            "names": FILES,
        },
    )


def undo(site: Site, request: PageRequest) -> Redirect:
    """Undo a change; later changes of other entries stay."""
    version = _version(site, request.required_number("id"))
    return told(undo_change(site.memory, site.session, version.id), "/timeline")


def restore(site: Site, request: PageRequest) -> Redirect:
    """Bring back all entries of a file as they were right after a change."""
    version = _version(site, request.required_number("id"))
    return told(restore_version(site.memory, site.session, version.id), "/timeline")


def _version(site: Site, change: int) -> NoteVersion:
    """Return a change of this user's notes. Raise `SessionError` if there is none with this id."""
    version = site.notes.version(change)
    if version is None:
        raise SessionError(f"there is no change {change}", "the timeline lists all changes")
    return version

"""The timeline: what was remembered, when, in which session, from which origin; undo and restore. Skills too."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from hermes_core.actions.notes import restore_version, source_of_change, undo_change
from hermes_core.contract.extensions import PartItems
from hermes_core.curated.history import NoteVersion
from hermes_core.errors import SessionError
from hermes_core.safety.terminal import counted
from hermes_memory_ui.answers import Page, PageRequest, Redirect
from hermes_memory_ui.site import Site
from hermes_memory_ui.views.notes import FILES, told

PAGE_SIZE = 25

MAX_ENTRIES = 20
"""Entries of one change that the list shows."""

MAX_SKILL_LINES = 40
"""Lines of a change of a skill that the list shows."""

MAX_LINES = 500
"""Lines of a comparison, and entries of a change, that its page shows."""


SKILLS = "skills"
"""Name of the part of the timeline with the changes of skills."""


def show(site: Site, request: PageRequest) -> Page:
    """Show the changes of the notes and of the skills, newest first, a page at a time."""
    chosen = request.query.get("target")
    target = next((name for name in site.notes.files.targets if name == chosen), None)
    notes: list[NoteVersion] = []
    skills: list[Any] = []
    before, before_skill = request.number("before"), request.number("before_skill")
    if chosen != SKILLS:
        notes = site.notes.history(target, limit=PAGE_SIZE + 1, before=before)
    if target is None:
        store = _skills(site)
        skills = [] if store is None else store.history(PAGE_SIZE + 1, before_skill)
    both: list[Any] = [*notes, *skills]
    changes = sorted(both, key=lambda change: -change.at)
    shown, more = changes[:PAGE_SIZE], ""
    if len(changes) > PAGE_SIZE:
        # The next page begins behind the last change of each kind that this one, or one before it, shows.
        last_note = next((one.id for one in reversed(shown) if isinstance(one, NoteVersion)), before)
        last_skill = next(
            (one.id for one in reversed(shown) if not isinstance(one, NoteVersion)), before_skill
        )
        query = {"target": chosen, "before": last_note, "before_skill": last_skill}
        more = site.link("/timeline", **query)
    rows = [
        {"skill": None, "change": change, "source": source_of_change(change)}
        if isinstance(change, NoteVersion)
        else {"skill": change, "lines": _skill_lines(change), "change": None}
        for change in shown
    ]
    return Page(
        "timeline.html",
        {
            "rows": rows,
            "more": more,
            "target": SKILLS if chosen == SKILLS else target,
            "names": {
                **{name: FILES[name] for name in site.notes.files.targets},
                **({SKILLS: "Skills"} if SKILLS in site.memory.internals.parts.stores else {}),
            },
            "limit": MAX_ENTRIES,
            "stored": site.stored_sessions(change.session_id for change in shown),
        },
    )


def _skills(site: Site) -> PartItems | None:
    """Return the skills of the user, None if no extension has skills."""
    part = site.memory.internals.parts.stores.get(SKILLS)
    return None if part is None else part.items(site.memory.sessions.database, site.session.owner)


def _changed_skills(site: Site) -> PartItems:
    """Return the skills of the user for a change. Raise `SessionError` if no extension has skills."""
    if (items := _skills(site)) is None:
        raise SessionError("no extension that is active has skills", "see hermes-memory extensions")
    return items


def _skill_lines(change: Any) -> list[str]:
    """Return the lines in which a change of a skill differs, each behind a sign as in a diff."""
    before, after = ((text or "").splitlines() for text in (change.before, change.after))
    # Without the two names of files, and the numbers of lines before the first part.
    diff = list(difflib.unified_diff(before, after, lineterm="", n=1))[3:]
    lines = ["  …" if line.startswith("@@") else line for line in diff]
    rest = len(lines) - MAX_SKILL_LINES
    return [*lines[:MAX_SKILL_LINES], *([f"  and {counted(rest, 'more line')}"] if rest > 0 else ())]


def undo_skill(site: Site, request: PageRequest) -> Redirect:
    """Undo changes of skills that were not changed since."""
    changes = [_changed_skills(site).undo(number) for number in request.numbers("id")]
    text = "\n".join(f"Taken back: {change.action} of {change.path}" for change in changes)
    return Redirect("/" if request.form.get("back") == "/" else "/timeline", text)


def restore_skill(site: Site, request: PageRequest) -> Redirect:
    """Bring back a skill as it was right after a change."""
    change = _changed_skills(site).restore(request.required_number("id"))
    return Redirect("/timeline", f"Restored: {change.path} as of change {change.id}")


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
    """Undo changes, the newest first; later changes of other entries stay."""
    back = "/" if request.form.get("back") == "/" else "/timeline"
    versions = [_version(site, number) for number in sorted(request.numbers("id"), reverse=True)]
    answers = [told(undo_change(site.memory, site.session, version.id), back) for version in versions]
    text = "\n".join(dict.fromkeys(answer.message for answer in answers))
    return Redirect(back, text, failed=any(answer.failed for answer in answers))


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

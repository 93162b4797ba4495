"""The notes: MEMORY.md and USER.md with their usage and origins, and what waits for the person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hermes_core.actions.approval import Approval, WaitingItem
from hermes_core.actions.notes import (
    NoteResult,
    ShownNote,
    change_note,
    deliver,
    notes_with_origins,
    pin_note,
)
from hermes_core.contract.extensions import PartItem
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import FlaggedEntry, NotesUsage
from hermes_core.errors import SessionError
from hermes_memory_ui.answers import Page, PageRequest, Redirect
from hermes_memory_ui.site import Site

FILES = {"memory": "MEMORY.md", "user": "USER.md", "project": "PROJECT.md"}


PAGE_SIZE = 40
"""Notes of a file, and texts that wait, that a page shows."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """One file of notes. `problem` says why it can't be read; "" if it can. `more` is the place of the next page."""

    target: MemoryTarget
    name: str
    enabled: bool
    problem: str = ""
    usage: NotesUsage | None = None
    notes: list[ShownNote] = field(default_factory=list)
    flags: dict[str, FlaggedEntry] = field(default_factory=dict)
    more: int | None = None


def show(site: Site, request: PageRequest) -> Page:
    """Show the files, and what waits; a page of one file alone if the request names it."""
    target, first = request.query.get("target", ""), request.number("first", 0) or 0
    items: list[WaitingItem] = []
    if not target:
        items = approval_of(site).waiting(PAGE_SIZE + 1)
    waiting = [
        {
            "handle": item.handle,
            "name": f"{item.noun} {item.name}" if isinstance(item, PartItem) else FILES[item.target],
            "origin": item.origin,
            "lines": item.text.split("\n") if isinstance(item, PartItem) else item.diff(),
            "flag": "" if isinstance(item, PartItem) else item.flag,
            "at": 0.0 if isinstance(item, PartItem) else item.at,
            "session": "" if isinstance(item, PartItem) else item.session,
        }
        for item in items[:PAGE_SIZE]
    ]
    files = list(_files(site, target, first))
    sessions = [note.session for file in files for note in file.notes] + [
        str(item["session"]) for item in waiting
    ]
    return Page(
        "notes.html",
        {
            "files": files,
            "waiting": waiting,
            "more_wait": len(items) > PAGE_SIZE,
            "names": FILES,
            "stored": site.stored_sessions(sessions),
        },
    )


def _files(site: Site, chosen: str, first: int) -> Iterator[ShownFile]:
    notes = site.notes.read()
    for target in (name for name in site.notes.files.targets if not chosen or name == chosen):
        name = FILES[target]
        if target not in notes.files:
            yield ShownFile(target, name, enabled=False)
        elif target in notes.problems:
            yield ShownFile(target, name, enabled=True, problem=str(notes.problems[target]))
        else:
            listed, end = notes.in_order(target), first + PAGE_SIZE
            shown = notes_with_origins(notes, target, [note.text for note in listed[first:end]])
            flags = notes.flagged_among(target, listed[max(first - 1, 0) : end])
            more = end if len(listed) > end else None
            yield ShownFile(target, name, True, "", notes.usage(target), shown, flags, more)


def approval_of(site: Site) -> Approval:
    """Return the notes and skills of the user that wait."""
    return Approval(site.memory, site.notes, site.session)


def add(site: Site, request: PageRequest) -> Redirect:
    """Add a note."""
    form = request.form
    result = change_note(site.memory, site.session, "add", form.get("target", ""), form.get("content", ""))
    return told(result, "/", draft=form.get("content", ""))


def replace(site: Site, request: PageRequest) -> Redirect:
    """Replace a note by a new text."""
    form = request.form
    result = change_note(
        site.memory,
        site.session,
        "replace",
        form.get("target", ""),
        form.get("content", ""),
        _handle(form.get("handle", "")),
    )
    return told(result, "/", draft=form.get("content", ""))


def remove(site: Site, request: PageRequest) -> Redirect:
    """Remove a note; the timeline brings it back."""
    form = request.form
    handle = _handle(form.get("handle", ""))
    return told(
        change_note(site.memory, site.session, "remove", form.get("target", ""), old_text=handle), "/"
    )


def pin(site: Site, request: PageRequest) -> Redirect:
    """Pin a note, so that only a person changes or removes it, or take that back."""
    form = request.form
    result = pin_note(
        site.memory,
        site.session,
        form.get("target", ""),
        _handle(form.get("handle", "")),
        on=form.get("on") == "1",
    )
    return told(result, "/")


def accept(site: Site, request: PageRequest) -> Redirect:
    """Confirm a note or skill that waits, with exactly the text that was shown."""
    approval = approval_of(site)
    return Redirect("/", approval.accept(approval.named(request.form.get("handle", ""))))


def reject(site: Site, request: PageRequest) -> Redirect:
    """Remove a note or skill that waits."""
    approval = approval_of(site)
    sentence = approval.reject(approval.named(request.form.get("handle", "")))
    late = deliver(site.memory, site.session)
    return Redirect("/", " ".join(filter(None, (sentence, late))))


def told(result: NoteResult, location: str, *, draft: str = "") -> Redirect:
    """Return the way back after a change of the notes, with what became of it."""
    sentences = [result.text, str(result.result.get("caution", "")), result.late, *result.problems]
    message = "\n".join(filter(None, sentences))
    return Redirect(location, message, failed=not result.ok, draft="" if result.ok else draft)


def _handle(handle: str) -> str:
    """Return the handle of a note. Raise `SessionError` if it is a text, which could name another note."""
    if not handle.startswith("entry:"):
        raise SessionError(f"{handle!r} is no handle of a note", "go back and load the page again")
    return handle

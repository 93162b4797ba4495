"""The notes: MEMORY.md and USER.md with their usage and origins, and what waits for the person."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hermes_core.actions.approval import WaitingItem
from hermes_core.actions.notes import (
    NoteResult,
    ShownNote,
    allow_note,
    change_note,
    deliver,
    notes_with_origins,
    pin_note,
    source_of_change,
    undo_change,
)
from hermes_core.contract.extensions import PartItem
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import FlaggedEntry, NotesUsage, entry_handle
from hermes_core.curated.history import NoteVersion
from hermes_core.errors import SessionError
from hermes_memory_ui.answers import Page, PageRequest, Redirect
from hermes_memory_ui.site import Site

FILES = {"memory": "MEMORY.md", "user": "USER.md", "project": "PROJECT.md"}


PAGE_SIZE = 40
"""Notes of a file, and texts that wait, that a page shows."""

NOTHING_CHOSEN = Redirect("/", "Nothing is chosen: tick the texts that you mean.", failed=True)

MAX_VERSIONS = 300
"""Changes among which the history of a note is looked for."""

MAX_OTHERS = 100
"""Notes that can be chosen for a merge."""


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


@dataclass(frozen=True, slots=True)
class ShownText:
    """One note with its file and its short name."""

    target: MemoryTarget
    entry: str
    handle: str


def shown_texts(site: Site) -> Iterator[ShownText]:
    """Yield all notes of the files that can be read."""
    notes = site.notes.read()
    for target in notes.files:
        if target not in notes.problems:
            for note in notes.in_order(target):
                yield ShownText(target, note.text, entry_handle(note.text))


def show(site: Site, request: PageRequest) -> Page:
    """Show the files, and what waits; a page of one file alone if the request names it."""
    target, first = request.query.get("target", ""), request.number("first", 0) or 0
    items: list[WaitingItem] = [] if target else site.approval().waiting(PAGE_SIZE + 1)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for item in items[:PAGE_SIZE]:
        shown = _waiting(item)
        groups.setdefault((shown["origin"], shown["session"]), []).append(shown)
    files = list(_files(site, target, first))
    sessions = {note.session for file in files for note in file.notes} | {session for _, session in groups}
    return Page(
        "notes.html",
        {
            "files": files,
            "groups": groups,
            "more_wait": len(items) > PAGE_SIZE,
            "names": FILES,
            "stored": site.stored_sessions(sessions),
            "is_empty": not items and not any(file.notes for file in files) and not _has_sessions(site),
        },
    )


def _waiting(item: WaitingItem) -> dict[str, Any]:
    """Return what the list shows of a note or an item that waits."""
    if isinstance(item, PartItem):
        name, lines = f"{item.noun} {item.name}", item.text.split("\n")
        shown = {"name": name, "lines": lines, "flag": "", "at": 0.0, "session": "", "note": None}
    else:
        note = {"target": item.target, "handle": entry_handle(item.entry)}
        shown = {"name": FILES[item.target], "lines": item.diff(), "flag": item.flag, "at": item.at}
        shown |= {"session": item.session, "note": note}
    return shown | {"handle": item.handle, "origin": item.origin}


def _has_sessions(site: Site) -> bool:
    return bool(site.memory.sessions.list_sessions(user=site.owner, limit=1))


def show_note(site: Site, request: PageRequest) -> Page:
    """Show one note: where it comes from, its history, and what a person can do with it."""
    target, text = _named(site, request.query.get("target", ""), request.query.get("handle", ""))
    notes = site.notes.read()
    (note,) = notes_with_origins(notes, target, [text])
    flag = next((flag for flag in notes.flagged(target) if flag.entry == text), None)
    versions = list(_versions(site, target, text))
    other = request.query.get("with", "")
    return Page(
        "note.html",
        {
            "target": target,
            "name": FILES[target],
            "note": note,
            "flag": flag,
            "versions": versions,
            "other": other,
            "content": "\n".join([text, _named(site, target, other)[1]]) if other else text,
            "others": [one for one in shown_texts(site) if one.target == target and one.entry != text][
                :MAX_OTHERS
            ],
            "stored": site.stored_sessions([note.session, *(version.session_id for version, _ in versions)]),
        },
    )


def _versions(site: Site, target: MemoryTarget, text: str) -> Iterator[tuple[NoteVersion, str]]:
    """Yield the changes that made a note what it is, the newest first, each with what its texts come from."""
    texts = {text}
    for version in site.notes.history(target, limit=MAX_VERSIONS):
        added, removed = version.added, version.removed
        if texts.isdisjoint(added) and texts.isdisjoint(removed):
            continue
        yield version, source_of_change(version)
        if len(added) == len(removed) == 1:  # the text before it is the same note
            texts.update(removed)


def _named(site: Site, target: str, handle: str) -> tuple[MemoryTarget, str]:
    """Return the file and the text of a note. Raise `SessionError` if it is not there any more."""
    for one in shown_texts(site):
        if (one.target, one.handle) == (target, handle):
            return one.target, one.entry
    raise SessionError("there is no such note any more", "the timeline shows what became of it")


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
    """Remove a note; a button beside the message brings it back."""
    target, text = _named(site, request.form.get("target", ""), request.form.get("handle", ""))
    result = change_note(site.memory, site.session, "remove", target, old_text=entry_handle(text))
    return dataclasses.replace(told(result, "/"), undo=_undo(site, [text]))


def merge(site: Site, request: PageRequest) -> Redirect:
    """Make one note of two: the other is removed, then this one gets the new text."""
    form = request.form
    target, text = _named(site, form.get("target", ""), form.get("handle", ""))
    _, other = _named(site, target, form.get("with", ""))
    # The other first: the file may have no room for both.
    removed = change_note(site.memory, site.session, "remove", target, old_text=entry_handle(other))
    if not removed.ok:
        return told(removed, "/")
    content = form.get("content", "")
    result = change_note(site.memory, site.session, "replace", target, content, entry_handle(text))
    if not result.ok:
        undo_change(site.memory, site.session, site.notes.history(target, limit=1)[0].id)
        return told(result, "/", draft=content)
    return dataclasses.replace(told(result, "/"), undo=_undo(site, [text, other]))


def allow(site: Site, request: PageRequest) -> Redirect:
    """Let the exact text of a note stand, although the safety scan flags it."""
    _, text = _named(site, request.form.get("target", ""), request.form.get("handle", ""))
    verdict = allow_note(site.memory, site.session, text)
    return Redirect("/", f"Allowed. hermes-memory memory allow --remove {verdict.id} takes it back.")


def _undo(site: Site, texts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the button that takes back the newest changes that took these texts away."""
    wanted = set(texts)
    versions = site.notes.history(limit=len(wanted) + 1)
    changes = [one.id for one in versions if not wanted.isdisjoint(one.removed) and not one.undoes]
    return _undo_button("/notes/undo", changes)


def _undo_button(path: str, changes: Iterable[int]) -> dict[str, dict[str, str]]:
    ids = " ".join(map(str, changes))
    return {path: {"id": ids, "back": "/"}} if ids else {}


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
    """Confirm the notes and skills that are chosen, with exactly the texts that were shown."""
    approval = site.approval()
    items = [approval.named(handle) for handle in _chosen(request)]
    return Redirect("/", "\n".join(approval.accept_all(items))) if items else NOTHING_CHOSEN


def reject(site: Site, request: PageRequest) -> Redirect:
    """Remove the notes and skills that are chosen."""
    approval = site.approval()
    items = [approval.named(handle) for handle in _chosen(request)]
    if not items:
        return NOTHING_CHOSEN
    sentences, skills = [], []
    for item in items:
        sentences.append(approval.reject(item))
        if isinstance(item, PartItem):
            skills.append(approval.parts[approval.name_of(item)].history(1)[0].id)
    late = deliver(site.memory, site.session)
    undo = _undo(site, [item.entry for item in items if not isinstance(item, PartItem)])
    undo |= _undo_button("/skills/undo", skills)
    return Redirect("/", "\n".join(filter(None, (*sentences, late))), undo=undo)


def _chosen(request: PageRequest) -> list[str]:
    """Return the handles of a button, or of the ticked boxes."""
    return request.form.get("only", "").split() or list(request.chosen)


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

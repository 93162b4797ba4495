"""The users of the home, and the deletion of all that is stored of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes_core.actions.people import forget_person, report_counts, report_sentences
from hermes_core.errors import SessionError
from hermes_core.forget import forget_user
from hermes_core.sessions.owners import stored_users
from hermes_memory_ui.answers import Page, PageRequest, Redirect, question
from hermes_memory_ui.site import Site

MAX_USERS = 50
MAX_PROJECTS = 20
MAX_SHOWN_NOTES = 3
PAGE_WAIT_S = 15.0
"""Seconds that a page waits for the provider, which goes on afterwards."""


def show(site: Site, request: PageRequest) -> Page:
    """Show the users who wrote, without their texts. A page of one user shows this user only."""
    after = request.query.get("after", "")
    database = site.memory.sessions.database
    users = [site.owner] if site.owner else stored_users(database, limit=MAX_USERS + 1, after=after)
    owners = site.memory.config.identity.owners
    return Page(
        "people.html",
        {
            "owners": [] if site.owner else owners,
            "users": [_row(site, user) for user in users[:MAX_USERS] if user not in owners],
            "projects": list(_projects(site)),
            "more": users[MAX_USERS - 1] if len(users) > MAX_USERS else None,
        },
    )


def _row(site: Site, user: str) -> dict[str, Any]:
    """Return what the list shows of a user."""
    last = site.memory.sessions.list_sessions(user=user, limit=1)
    return {"name": user, "last": last[0].session.last_active if last else 0.0, "alone": bool(site.owner)}


def _projects(site: Site) -> Iterator[dict[str, Any]]:
    """Yield the repositories that have notes, on the page of the person at home, who has them."""
    curated = site.memory.curated
    here = None if site.notes.files.project is None else site.notes.files.project.key
    for key in [] if site.owner else curated.places.repositories()[:MAX_PROJECTS]:
        entries = curated.of_repository(key).entries("project")
        if entries:
            yield {
                "name": key,
                "count": len(entries),
                "notes": entries[:MAX_SHOWN_NOTES],
                "here": key == here,
            }


def ask_forget(site: Site, request: PageRequest) -> Page:
    """Show what a deletion would delete."""
    user = _user(site, request)
    counts = report_counts(forget_user(site.memory, user, dry_run=True))
    return question(
        f"Forget {user} for good?",
        f"{counts} of this user would be deleted, with what waits for the provider, and the provider is asked to forget"
        " the user's turns. Nothing brings them back.",
        ("/people/forget/confirmed", "Forget for good", {"user": user}),
        "/people",
    )


def forget(site: Site, request: PageRequest) -> Redirect:
    """Delete all that is stored of a user."""
    report, late = forget_person(site.memory, _user(site, request), timeout=PAGE_WAIT_S)
    return Redirect("/people", "\n".join(filter(None, [*report_sentences(report), late])))


def _user(site: Site, request: PageRequest) -> str:
    """Return the user that a request names. Raise `SessionError` if it is not a user of this page."""
    user = request.form.get("user", request.query.get("user", "")).strip()
    if site.owner and user != site.owner:
        raise SessionError(f"this page is for {site.owner!r} only", "start hermes-memory ui without --user")
    return user

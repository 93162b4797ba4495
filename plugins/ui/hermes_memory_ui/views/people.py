"""The users of the home, and the deletion of all that is stored of one."""

from __future__ import annotations

from hermes_core.actions.people import forget_person, report_counts, report_sentences
from hermes_core.errors import SessionError
from hermes_core.forget import forget_user
from hermes_core.sessions.owners import stored_users
from hermes_memory_ui.answers import Page, PageRequest, Redirect
from hermes_memory_ui.site import Site

MAX_USERS = 50
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
            "users": [user for user in users[:MAX_USERS] if user not in owners],
            "more": users[MAX_USERS - 1] if len(users) > MAX_USERS else None,
        },
    )


def ask_forget(site: Site, request: PageRequest) -> Page:
    """Show what a deletion would delete."""
    user = _user(site, request)
    return Page(
        "forget.html", {"user": user, "counts": report_counts(forget_user(site.memory, user, dry_run=True))}
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

"""The recall of a message: what a turn would get, what brought it, and why a message is not there."""

from __future__ import annotations

from typing import Any

from hermes_memory_ui.answers import Page, PageRequest
from hermes_memory_ui.site import Site

SOURCES = {"memory": "Notes", "provider": "Provider", "sessions": "Past sessions"}


def show(site: Site, request: PageRequest) -> Page:
    """Show what a turn with a message would get, and why."""
    message_id = request.number("id")
    values: dict[str, Any] = {"reason": "", "report": None, "sources": SOURCES, "stored": frozenset[str]()}
    if site.read_only:
        values["reason"] = "A read-only page starts no provider. hermes-memory recall --why shows the same."
    elif text := request.query.get("q", "").strip():
        absent = [] if message_id is None else [message_id]
        # The person at home may search the sessions of all.
        report = site.memory.recall(
            text, session=site.session, everybody=not site.owner, why=True, absent=absent
        )
        stored = site.stored_sessions(hit.session_id for hit in report.results)
        values |= {"report": report, "stored": stored}
    return Page("recall.html", values)

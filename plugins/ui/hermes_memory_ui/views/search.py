"""The search: past messages, notes and facts that answer a question, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from hermes_core.errors import HermesError
from hermes_core.sessions.lineage import stored_sources
from hermes_core.sessions.owners import stored_users
from hermes_core.sessions.records import Order
from hermes_memory_ui.answers import Page, PageRequest
from hermes_memory_ui.site import Site
from hermes_memory_ui.views import facts
from hermes_memory_ui.views.conversations import beginning
from hermes_memory_ui.views.notes import FILES, ShownText, shown_texts

ORDERS = {"": "by relevance", "newest": "newest first", "oldest": "oldest first"}
KINDS = {
    "": "everything",
    "user": "what people said",
    "assistant": "what the agent said",
    "tool": "results of tools",
    "notes": "notes",
    "facts": "facts",
}
EVERYBODY = "*"
"""The person that stands for all users of the home."""

PAGE_SIZE = 20
MAX_RESULTS = 200
"""Messages that a search ranks for the pages, since each page is a search."""

MAX_PEOPLE = 100


def show(site: Site, request: PageRequest) -> Page:
    """Show what a search finds. A page behind the first has messages only."""
    query = request.query
    text, kind, first = query.get("q", "").strip(), query.get("kind", ""), request.number("first", 0) or 0
    values: dict[str, Any] = {"rows": [], "notes": [], "facts": [], "more": "", "problems": []}
    try:
        if text and kind not in ("notes", "facts"):
            values |= _messages(site, query, text, first)
        if text and kind in ("", "notes") and not first:
            values["notes"] = list(_notes(site, text))[:PAGE_SIZE]
        if (text and kind == "facts") or (text and not kind and not first):
            values["facts"] = facts.search(site, text, PAGE_SIZE)
    except HermesError as exc:
        values["problems"] = [*values["problems"], str(exc)]
    database = site.memory.sessions.database
    return Page(
        "search.html",
        {
            **values,
            "text": text,
            "orders": ORDERS,
            "kinds": KINDS,
            "sources": stored_sources(database),
            "people": [] if site.owner else stored_users(database, limit=MAX_PEOPLE),
            "files": FILES,
        },
    )


def _messages(site: Site, query: Mapping[str, str], text: str, first: int) -> dict[str, Any]:
    """Return the messages of one page, with what the person may have to know about them."""
    past, sessions = site.memory.sessions.past, site.memory.sessions
    person = "" if site.owner else query.get("person", "")
    sort = query.get("sort", "")
    since, until = query.get("since"), query.get("until")
    hits = past.search(
        text,
        role=query.get("kind") or ("user", "assistant"),
        source=query.get("source") or None,
        user=None if person == EVERYBODY else person or site.owner,
        everybody=person == EVERYBODY,
        limit=MAX_RESULTS,  # on each page, since an order by time is one of those that were ranked
        sort=cast("Order", sort) if sort and sort in ORDERS else None,
        snippets=False,
        distinct=True,
        since=past.read_moment(since) if since else None,
        until=past.read_moment(until, end=True) if until else None,
    )
    rows = []
    for hit in hits[first : first + PAGE_SIZE]:
        session = sessions.get_session(hit.session_id)
        user = "" if session is None else session.user
        rows.append(
            {
                "hit": hit,
                "title": hit.title or beginning(site, hit.session_id),
                "snippet": past.snippet(hit.message_id, text),
                "user": user if user != site.owner else "",
            }
        )
    more = ""
    if len(hits) > first + PAGE_SIZE:
        filters = {
            name: query.get(name) for name in ("q", "kind", "source", "person", "since", "until", "sort")
        }
        more = site.link("/search", **filters, first=first + PAGE_SIZE)
    return {"rows": rows, "more": more, "problems": past.problems_of(hits)}


def _notes(site: Site, text: str) -> Iterator[ShownText]:
    """Yield the notes with all words of the text."""
    words = text.casefold().split()
    for note in shown_texts(site):
        if all(word in note.entry.casefold() for word in words):
            yield note

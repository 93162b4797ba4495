"""The search: what the tool `session_search` answers to the model, with the evidence in its context."""

from __future__ import annotations

import json
from typing import Any

from hermes_memory_ui.answers import Page, PageRequest
from hermes_memory_ui.site import Site

ORDERS = {"": "by relevance", "newest": "newest first", "oldest": "oldest first"}
# As many as the tool returns at most.
MAX_RESULTS = 5
ROLES = {"": "you and the agent", "user": "you", "assistant": "the agent", "tool": "tools"}


def show(site: Site, request: PageRequest) -> Page:
    """Show what a search finds."""
    query = request.query
    arguments: dict[str, Any] = {
        "query": query.get("q", "").strip(),
        "role_filter": query.get("role", ""),
        "since": query.get("since", ""),
        "until": query.get("until", ""),
        "sort": query.get("sort", ""),
        "limit": MAX_RESULTS,
    }
    arguments = {name: value for name, value in arguments.items() if value}
    answer = json.loads(site.search.call(arguments, site.session)) if "query" in arguments else {}
    for result in answer.get("results", ()):
        stored = site.memory.sessions.get_session(result["session_id"])
        # The person at this machine may search the sessions of all users; this page shows only those of one.
        result["user"] = stored.user if stored is not None and stored.user != site.owner else ""
    return Page("search.html", {"answer": answer, "orders": ORDERS, "roles": ROLES})

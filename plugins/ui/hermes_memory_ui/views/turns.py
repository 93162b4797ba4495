"""The turns: a list, and what one of them was given."""

from __future__ import annotations

from hermes_core.actions.turns import explained_turn
from hermes_core.recall.tokens import count_tokens
from hermes_core.sessions.turn_records import MAX_RECORDS, list_turns
from hermes_memory_ui.answers import Page, PageRequest
from hermes_memory_ui.site import Site

PAGE_SIZE = 25
MAX_PROMPT_CHARS = 20_000
MAX_MESSAGE_CHARS = 4_000


def show_all(site: Site, request: PageRequest) -> Page:
    """Show the turns that were recorded, newest first, a page at a time."""
    turns = list_turns(
        site.memory.sessions, user=site.owner, before=request.number("before"), limit=PAGE_SIZE + 1
    )
    more = turns[PAGE_SIZE - 1].key if len(turns) > PAGE_SIZE else None
    return Page("turns.html", {"turns": turns[:PAGE_SIZE], "more": more, "kept": MAX_RECORDS})


def show(site: Site, request: PageRequest) -> Page:
    """Show what one turn was given: the prompt of its session, and recall by source."""
    turn = explained_turn(site.memory, site.session, request.query.get("id", ""))
    prompt = site.memory.sessions.meta.memory_prompt(turn.session_id) or ""
    return Page(
        "turn.html",
        {
            "turn": turn,
            "prompt": prompt[:MAX_PROMPT_CHARS],
            "prompt_tokens": count_tokens(prompt),
            "limit": MAX_MESSAGE_CHARS,
        },
    )

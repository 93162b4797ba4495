"""The conversations: a list, the messages of one, and what a person does with it."""

from __future__ import annotations

import json
import re

from hermes_core.actions.conversations import (
    delete_sessions,
    deletion_message,
    exported_lines,
    mark_conversation,
    rename_conversation,
)
from hermes_core.errors import SessionError
from hermes_core.kit import clip
from hermes_core.sessions.lineage import stored_sources
from hermes_core.sessions.records import PROGRAM_SOURCES, Mark, StoredSession, calls_as_text
from hermes_core.sessions.turn_records import turns_at
from hermes_memory_ui.answers import FileAnswer, Page, PageRequest, Redirect
from hermes_memory_ui.site import Site, address

PAGE_SIZE = 25
MESSAGES = 40

# A message may be a whole file; the rest of it is in the export.
MAX_MESSAGE_CHARS = 10_000

# Sessions of a conversation that a question about its deletion lists by name.
MAX_NAMED = 20

MARKS: dict[str, Mark] = {"archived": "archived", "pinned": "pinned"}

_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def show_all(site: Site, request: PageRequest) -> Page:
    """Show conversations, the last active first, a page at a time."""
    query = request.query
    archived, source = query.get("archived") == "1", query.get("source", "")
    entries = site.memory.sessions.list_sessions(
        user=site.owner,
        archived=archived,
        source=source or None,
        exclude_sources=() if source else PROGRAM_SOURCES,
        before=query.get("before") or None,
        limit=PAGE_SIZE + 1,
    )
    shown = entries[:PAGE_SIZE]
    rows = [
        {"entry": entry, "pinned": site.memory.sessions.meta.is_marked(entry.session.id, "pinned")}
        for entry in shown
    ]
    return Page(
        "sessions.html",
        {
            "rows": rows,
            "more": shown[-1].session.id if len(entries) > PAGE_SIZE else None,
            "archived": archived,
            "source": source,
            "programs": [
                name for name in stored_sources(site.memory.sessions.database) if name in PROGRAM_SOURCES
            ],
        },
    )


def show(site: Site, request: PageRequest) -> Page:
    """Show the messages of a session, a page at a time; or those around one message."""
    db, session = site.memory.sessions, _session(site, request)
    first, message_id = request.number("first", 0) or 0, request.number("at")
    around = None if message_id is None else db.past.around(message_id, MESSAGES // 2)
    if around is not None and around.messages[0].session_id == session.id:
        first = around.before
    messages = db.get_messages(session.id, limit=MESSAGES + 1, offset=first)
    turns = turns_at(db, session.id, messages)
    return Page(
        "session.html",
        {
            "session": session,
            "title": session.title or beginning(site, session.id) or "Session without a title",
            "at": message_id,
            "messages": [
                {
                    "message": message,
                    "calls": calls_as_text_of(message.tool_calls),
                    "turn": turns.get(message.id),
                }
                for message in messages[:MESSAGES]
            ],
            "limit": MAX_MESSAGE_CHARS,
            "earlier": max(first - MESSAGES, 0) if first else None,
            "later": first + MESSAGES if len(messages) > MESSAGES else None,
            "archived": db.meta.is_marked(session.id, "archived"),
            "pinned": db.meta.is_marked(session.id, "pinned"),
        },
    )


def beginning(site: Site, session_id: str) -> str:
    """Return the beginning of a conversation, which stands for its title as in the list of sessions."""
    messages = site.memory.sessions.get_messages(session_id, limit=2)
    return next((clip(" ".join(one.content[:500].split()), 80) for one in messages if one.content), "")


def calls_as_text_of(calls: tuple[dict[str, object], ...]) -> str:
    """Return the tool calls of a message as one line; "" for none."""
    return calls_as_text(json.dumps(calls)) if calls else ""


def export(site: Site, request: PageRequest) -> FileAnswer:
    """Return the conversation as JSON Lines, as `hermes-memory sessions export` writes it."""
    db, session = site.memory.sessions, _session(site, request)
    name = _NOT_IN_FILE_NAMES.sub("-", session.id)[:60] or "session"
    return FileAnswer(f"{name}.jsonl", exported_lines(db, sorted(db.lineage(session.id))))


def rename(site: Site, request: PageRequest) -> Redirect:
    """Give the conversation another title."""
    session = _session(site, request)
    title = rename_conversation(site.memory.sessions, session.id, request.form.get("title", ""))
    return Redirect(_place(session), f"The title is now {title!r}." if title else "The title was removed.")


def mark(site: Site, request: PageRequest) -> Redirect:
    """Archive or pin the conversation, or take that back."""
    session, on = _session(site, request), request.form.get("on") == "1"
    chosen = MARKS.get(request.form.get("mark", ""))
    if chosen is None:
        raise SessionError(f"there is no mark {request.form.get('mark')!r}", "use archived or pinned")
    mark_conversation(site.memory.sessions, session.id, chosen, on=on)
    return Redirect(_place(session), f"The conversation is {'now' if on else 'no longer'} {chosen}.")


def ask_deletion(site: Site, request: PageRequest) -> Page:
    """Show what a deletion would delete."""
    db, session = site.memory.sessions, _session(site, request)
    ids = sorted(db.lineage(session.id))
    sessions = [stored for stored in map(db.get_session, ids[:MAX_NAMED]) if stored is not None]
    return Page("delete.html", {"session": session, "sessions": sessions, "count": len(ids)})


def delete(site: Site, request: PageRequest) -> Redirect:
    """Delete the conversation for good."""
    session = _session(site, request)
    count = sum(1 for _ in delete_sessions(site.memory, sorted(site.memory.sessions.lineage(session.id))))
    return Redirect("/sessions", f"{deletion_message(site.memory, count)}.")


def _session(site: Site, request: PageRequest) -> StoredSession:
    """Return the session that a request names. Raise `SessionError` if it is not of the user of this page."""
    name = request.form.get("id", request.query.get("id", ""))
    session = site.memory.sessions.get_session(name)
    if session is None:
        raise SessionError(f"there is no session {name!r}", "it may have been deleted")
    if session.user != site.owner:
        raise SessionError(
            f"session {name!r} is of another user", f"hermes-memory ui --user {session.user} shows it"
        )
    return session


def _place(session: StoredSession) -> str:
    return address("/session", id=session.id)

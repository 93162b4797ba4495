"""Actions on stored conversations: find one by name, rename, archive, pin, export and delete it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from hermes_core.errors import SessionError
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted
from hermes_core.sessions.records import Mark, StoredSession
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.transfer import session_document


def named_session(db: SessionStore, text: str) -> StoredSession:
    """Return the session that a person means by an id, the beginning of an id, or a title.

    Raises:
        SessionError: There is none, or there are several.
    """
    session = db.find_session(text, everybody=True)
    if session is None:
        raise SessionError(
            f"there is no session {text!r}",
            "list them with `hermes-memory sessions list`; a part of an id must begin no other",
        )
    return session


def rename_conversation(db: SessionStore, session_id: str, title: str) -> str:
    """Set the title of a conversation, "" to remove it, and return the title as stored."""
    return db.meta.set_title(db.compression_tip(session_id), title)


def mark_conversation(db: SessionStore, session_id: str, mark: Mark, *, on: bool) -> None:
    """Set or remove a mark of all sessions of a conversation."""
    for related in db.lineage(session_id):
        db.meta.set_mark(related, mark, on=on)


def delete_sessions(memory: Memory, ids: Iterable[str]) -> Iterator[str]:
    """Delete these sessions with what waits of them for the provider, and yield the id of each when it is gone."""
    for session_id in ids:
        # A delegated session is deleted with the one that delegated it.
        if memory.sessions.get_session(session_id) is not None:
            memory.delete_session(session_id)
        yield session_id


def deletion_message(memory: Memory, count: int) -> str:
    """Return how many sessions were deleted, and where their text still is."""
    in_file = count and not memory.sessions.database.shared
    rest = "; the file holds their text until hermes-memory sessions vacuum" if in_file else ""
    return f"{counted(count, 'session')} deleted{rest}"


def exported_lines(db: SessionStore, ids: Iterable[str]) -> Iterator[str]:
    """Yield each session as a line of JSON, which `hermes-memory sessions import` reads."""
    for session_id in ids:
        yield json.dumps(session_document(db, session_id)) + "\n"

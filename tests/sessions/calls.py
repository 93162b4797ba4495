"""Calls that a turn, a tool or a command makes of a store of sessions, by their names, for tests of the statements behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hermes_core.contract.values import Session
from hermes_core.outbox.rows import NewRow
from hermes_core.outbox.store import Outbox
from hermes_core.sessions import lineage
from hermes_core.sessions.daily_usage import daily_usage
from hermes_core.sessions.open_turns import OpenTurnStore
from hermes_core.sessions.owners import give_to_home, stored_users
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool
from hermes_core.sessions.turn_records import list_turns, turn_record


def turn(number: int = 0) -> list[dict[str, Any]]:
    """Return the messages of a turn with a tool."""
    return [
        {"role": "user", "content": f"Where do kumquats grow? {number}"},
        {"role": "assistant", "content": "In Ghana.", "tool_calls": [{"id": "1", "function": {"name": "x"}}]},
        {"role": "tool", "content": "a page", "tool_call_id": "1"},
        {"role": "assistant", "content": "In the south of China 部署."},
    ]


def last_of(db: SessionStore, session: str) -> int:
    return db.last_message_id(session) or 0


def search_tool(db: SessionStore, **arguments: Any) -> str:
    """Call the tool for past sessions as the model does."""
    return SessionSearchTool(db).call(arguments, Session("now"))


CALLS: dict[str, Callable[[SessionStore], object]] = {
    # Sessions named s1 to s5 with the turns t1 to t5 are there, of the users u1 to u5.
    "append": lambda db: db.append_message("s1", "user", "kumquat", ref="r"),
    "turn": lambda db: db.append_turn("s1", turn(), "t-new", 1),
    "known turn": lambda db: db.append_turn("s5", turn(), "t5", 1),
    "session": lambda db: db.get_session("s1"),
    "id": lambda db: lineage.id_for(db.database, "s1", "u1"),
    "prefix": lambda db: db.find_session("s", everybody=True),
    "title": lambda db: db.find_session("Plan", title_only=True, everybody=True),
    "title of a user": lambda db: db.find_session("Plan", title_only=True, user="u1"),
    "next title": lambda db: db.meta.next_title("Plan", user="u1"),
    "messages": lambda db: db.get_messages("s1", limit=3, offset=5),
    "around": lambda db: db.past.around(5),
    "last": lambda db: db.last_message_id("s1"),
    "context": lambda db: db.turns.context("s1", "u1", lineage=True, origin=True, recent=6),
    "count of turns": lambda db: db.turns.count("s1"),
    "last turn": lambda db: db.turns.last_number("s1"),
    "turn's messages": lambda db: db.turns.messages("t5"),
    "conversation": lambda db: db.turns.conversation("t5"),
    "rewind": lambda db: db.rewind("s1", last_of(db, "s1")),
    "users": lambda db: stored_users(db.database),
    "some users": lambda db: stored_users(db.database, limit=1),
    "give to home": lambda db: give_to_home(db, "u2"),
    "tip": lambda db: db.compression_tip("s1"),
    "family": lambda db: db.lineage("s1"),
    "list": lambda db: db.list_sessions(limit=3, everybody=True),
    "list of a user": lambda db: db.list_sessions(limit=3, user="u1"),
    "list after a session": lambda db: db.list_sessions(before="s1", everybody=True),
    "list of a user after a session": lambda db: db.list_sessions(user="u1", before="s1"),
    "list of sources": lambda db: db.list_sessions(limit=3, user="u1", exclude_sources=("x1",)),
    "archived": lambda db: db.list_sessions(archived=True, everybody=True),
    "delete": lambda db: db.delete_session("s3"),
    "marks": lambda db: db.meta.marked("pinned"),
    "usage": lambda db: db.meta.add_usage("s1", input_tokens=5),
    "usage of days": lambda db: daily_usage(db.database),
    "records": lambda db: list_turns(db, user="u1"),
    "record": lambda db: turn_record(db, "t5"),
    "sources": lambda db: lineage.stored_sources(db.database),
    "open turns": lambda db: OpenTurnStore(db).open_in("s1"),
    "open turns of a user": lambda db: OpenTurnStore(db).count("u1"),
    "outbox": lambda db: Outbox(db.database).put("fake", NewRow("sync_turn", "t", "s1", "{}")),
    "outbox of a session": lambda db: Outbox(db.database).drop_session("s1"),
    "next row": lambda db: Outbox(db.database).next("fake"),
    "word": lambda db: db.past.search("kumquat", everybody=True),
    "newest first": lambda db: db.past.search("kumquat", sort="newest", everybody=True),
    "boolean": lambda db: db.past.search("kumquat AND China NOT pomelo", everybody=True),
    "CJK": lambda db: db.past.search("部 AND 署", everybody=True),
    "words of a user": lambda db: db.past.search("kumquat China", user="u1"),
    "browse": lambda db: search_tool(db),
    "browse of a user": lambda db: SessionSearchTool(db).call({}, Session("now", user_id="u1")),
    "tool": lambda db: search_tool(db, query="why kumquat trees?"),
    "read": lambda db: search_tool(db, session_id="s2"),
    "scroll": lambda db: search_tool(db, session_id="s2", around_message_id=last_of(db, "s2")),
}

"""`session_search`, the model's tool for past sessions. Its arguments choose one of four modes.

    no arguments                      browse    recent conversations
    query                             discover  the best message of each conversation, with the messages around it
    session_id + around_message_id    scroll    the messages around a message
    session_id                        read      a whole session, without its middle if it is long

The tool returns stored messages. It calls a model only if the host passed `summarise` and the call asks for summaries.
A call never raises an error.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Literal, get_args

from msgspec import Struct

from hermes_core.contract.values import Session
from hermes_core.errors import HermesError, SessionError
from hermes_core.safety.fence import clean_result
from hermes_core.safety.origin import may_command, report_result
from hermes_core.safety.redact import redact
from hermes_core.safety.terminal import counted
from hermes_core.sessions import lineage
from hermes_core.sessions.records import (
    DELEGATED_SOURCES,
    PROGRAM_SOURCES,
    SYSTEM_ROLES,
    Order,
    SearchHit,
    StoredMessage,
    StoredSession,
    sqlite_text,
)
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.summaries import Summarise, summarise_all, transcript_text

DEFAULT_ROLES = ("user", "assistant")
BOOKEND = 3
MAX_MESSAGE_CHARS = 4_000
MAX_BOOKEND_CHARS = 1_200
MIN_MESSAGE_CHARS = 300
# Characters of content in one answer, about 12,000 tokens: more would fill the context of a small model. If messages
# have more, each is cut to an equal share, but not below `MIN_MESSAGE_CHARS`. The message that matched is not cut so.
MAX_ANSWER_CHARS = 48_000

INDEX_SNIPPET = 140
READ_FIRST, READ_LAST = 20, 10
# Hits to ask for, for each conversation in the answer: several hits are often in one conversation.
HITS_PER_SESSION = 12

# Number of messages around a match from which the text for a summary is chosen; a longer session is not read whole.
SUMMARISED_MESSAGES = 5_000

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


DEFAULT_LIMIT, MAX_LIMIT, MAX_INDEX_LIMIT = 3, 5, 10
DEFAULT_WINDOW, MAX_WINDOW = 5, 20

# Size of a search result: a line, the matching part, or the matching part with the messages around it.
Detail = Literal["index", "snippet", "full"]

_NO_MODEL, _A_MODEL = "no model is called", "no model is called unless you ask for a summary"

SESSION_SEARCH_SCHEMA: dict[str, Any] = {
    "name": "session_search",
    "description": (
        f"Search past conversations with the person, or read them. Returns stored messages as they were said; {_NO_MODEL}. "
        "Use it when the person refers to something said before, or when earlier work would help. "
        "Without arguments: recent conversations. With `query`: the messages that answer best, one per conversation, "
        "each with the messages around it and how its conversation began and ended; ask in plain words, or use "
        '"exact phrases", AND, OR, NOT and prefix*. With `session_id` and `around_message_id`: scroll, the messages '
        "around that one; take `match_message_id` from a result, then the first or last id shown to go on. With "
        "`session_id` alone: read that session. What you still see of this conversation is left out. What "
        "was said may be out of date: for the present state of a file or a service, look at the source first."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, as a question or in key words."},
            "role_filter": {
                "type": "string",
                "description": "Roles to look at, comma-separated: user, assistant, tool. Default: user,assistant.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_INDEX_LIMIT,
                "default": DEFAULT_LIMIT,
                "description": f"At most {MAX_LIMIT}, or {MAX_INDEX_LIMIT} with detail index.",
            },
            "detail": {
                "type": "string",
                "enum": list(get_args(Detail)),
                "default": "full",
                "description": "full: with the messages around each match. snippet: the match only. index: one short "
                "line each, to choose what to read.",
            },
            "after": {
                "type": "string",
                "description": "Only messages from this date on: ISO 8601, or words such as last week, March, 3 days ago.",
            },
            "before": {
                "type": "string",
                "description": "Only messages before this date; written as `after`.",
            },
            "source": {"type": "string", "description": "Only sessions of these sources, comma-separated."},
            "sort": {
                "type": "string",
                "enum": list(get_args(Order)),
                "description": "Order relevant results by time instead of by relevance.",
            },
            "session_id": {"type": "string", "description": "A session to scroll or read."},
            "around_message_id": {
                "type": "integer",
                "description": "Scroll around this message of the session.",
            },
            "window": {"type": "integer", "minimum": 1, "maximum": MAX_WINDOW, "default": DEFAULT_WINDOW},
        },
    },
}

# Parameter that the tool has only if the host passed `summarise`, because models would use it in vain.
SUMMARY_PARAMETER: dict[str, Any] = {
    "type": "boolean",
    "default": False,
    "description": "With a query: another model reads the sessions that were found and sums up what in them answers. "
    "Slow; for a question about a whole conversation.",
}


def session_search_schema(*, summaries: bool) -> dict[str, Any]:
    """Return the schema of `session_search` for the model; with `summaries`, it has the parameter `summary`."""
    if not summaries:
        return SESSION_SEARCH_SCHEMA
    description = SESSION_SEARCH_SCHEMA["description"].replace(_NO_MODEL, _A_MODEL)
    parameters = SESSION_SEARCH_SCHEMA["parameters"]
    properties = {**parameters["properties"], "summary": SUMMARY_PARAMETER}
    return {
        **SESSION_SEARCH_SCHEMA,
        "description": description,
        "parameters": {**parameters, "properties": properties},
    }


class SessionSearchTool:
    """The tool `session_search`, by which the model searches and reads past sessions.

    Args:
        db: The store of sessions; or a function that returns the store, called at each use of the tool; or None if
            search is switched off.
        zone: Time zone of dates; the machine's by default.
        summarise: Function of a session's text and a question that returns a summary, for calls that ask for summaries.
            None offers no summaries. The attribute `summarise` may be set at any time.
    """

    def __init__(
        self,
        db: SessionStore | Callable[[], SessionStore] | None,
        *,
        zone: tzinfo | None = None,
        summarise: Summarise | None = None,
    ) -> None:
        self._db = db
        self._zone = zone
        self.summarise = summarise

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the tool, as the model gets it."""
        return session_search_schema(summaries=self.summarise is not None)

    def call(self, arguments: object, session: Session, now: float | None = None) -> str:
        """Answer a call of the model with JSON: `success`, `mode` and results, or `success: false` and `error`.

        Args:
            arguments: The arguments of the call; anything but a mapping counts as no arguments.
            session: The session of the model. Its messages in the context, and other owners' sessions, are left out.
            now: Time of the session in epoch seconds, from which "last week" counts; the time of the store by default.
        """
        given = arguments if isinstance(arguments, Mapping) else {}
        try:
            db = self._db if isinstance(self._db, SessionStore) or self._db is None else self._db()
            if db is None:
                return _failed("session database not available", "enable sessions.search_enabled")
            search = _Call(db, session, self._zone, self.summarise, now)
            answer = search.answer(given)
            report_result(search.origins)
            return _json({"success": True, **clean_result(answer)})
        except SessionError as exc:
            return _failed(exc.message, exc.remedy)
        except HermesError as exc:
            return _failed(f"session database not available: {exc.message}", exc.remedy)
        except sqlite3.Error as exc:
            return _failed(f"the search failed: {exc}", "check state.db, or restore a backup of it")


class _SearchResult(Struct, frozen=True):
    """A search result: the message that answers best in one conversation.

    Attributes:
        root: Id of the first session of the conversation.
        session: The session of the message.
        anchor: The message.
        snippet: The part of the message that matches.
        role: Role of the message, or "session_title" if the query is the title of the session.
        span: First character, and the character after the last, of the part of a long message that answers best.
        newer: Id of a newer message that changes what the message says.
    """

    root: str
    session: StoredSession
    anchor: StoredMessage
    snippet: str
    role: str
    span: tuple[int, int] | None = None
    newer: int | None = None


class _Call:
    """One call of the tool `session_search` by the model of one session."""

    def __init__(
        self,
        db: SessionStore,
        session: Session,
        zone: tzinfo | None,
        summarise: Summarise | None,
        now: float | None,
    ) -> None:
        self._db = db
        self._current = lineage.in_context(db.database, session.id)
        self._user = session.owner or None
        self._everybody = self._user is None  # the person at home may ask about all sessions
        self._zone = zone
        self._now = now
        self._summarise = summarise
        self.origins: list[str] = []
        """The origins of the texts in the answer, also of titles, which are made from the first message."""

    def _include(self, messages: Iterable[StoredMessage], *session_ids: str) -> None:
        self.origins += [message.origin for message in messages]
        for session_id in session_ids:
            self.origins += [message.origin for message in self._db.get_messages(session_id, limit=1)]

    def answer(self, given: Mapping[Any, Any]) -> dict[str, Any]:
        session_id, query = _text(given.get("session_id")), _text(given.get("query"))
        anchor = given.get("around_message_id")
        if anchor is not None and not session_id:
            raise SessionError("scroll requires session_id", "take it from a result of a search")
        if session_id:
            wanted = self._session(session_id)
            return self._read(wanted) if anchor is None else self._scroll(wanted, anchor, given)
        detail: Detail = given["detail"] if given.get("detail") in get_args(Detail) else "full"
        limit = _number(
            given.get("limit"),
            DEFAULT_LIMIT,
            MAX_INDEX_LIMIT if detail == "index" or not query else MAX_LIMIT,
        )
        return (
            self._discover(query, limit, detail, given)
            if query
            else self._browse(limit, _names(given.get("source")))
        )

    def _session(self, session_id: str) -> StoredSession:
        found = self._db.find_session(session_id, user=self._user, everybody=self._everybody)
        if found is None:
            raise SessionError(f"session_id not found: {session_id}", "take it from a result of a search")
        return found

    # ------------------------------------------------------------------ browse

    def _browse(self, limit: int, sources: Sequence[str]) -> dict[str, Any]:
        entries = self._db.list_sessions(
            source=sources or None,
            # A person who asks about "last week" doesn't mean what programs did.
            exclude_sources=() if sources else PROGRAM_SOURCES,
            exclude_sessions=sorted(self._current),
            user=self._user,
            everybody=self._everybody,
            limit=limit,
        )
        self._include((), *(entry.root_id for entry in entries))
        results = [
            {
                "session_id": entry.session.id,
                "title": entry.session.title or None,
                "source": entry.session.source,
                "started_at": self._when(entry.session.started_at),
                "last_active": self._when(entry.session.last_active),
                "message_count": entry.session.message_count,
                "preview": _clean(entry.preview),
            }
            for entry in entries
        ]
        message = (
            f"{len(results)} recent conversations. Give a query to search them, a session_id to read one."
        )
        return {"mode": "browse", "results": results, "count": len(results), "message": message}

    # ------------------------------------------------------------------ discover

    def _discover(self, query: str, limit: int, detail: Detail, given: Mapping[Any, Any]) -> dict[str, Any]:
        sort = given.get("sort")
        sources = _names(given.get("source"))
        hits = self._db.past.search(
            query,
            role=_names(given.get("role_filter")) or DEFAULT_ROLES,
            user=self._user,
            everybody=self._everybody,
            source=sources or None,
            since=self._moment(given.get("after")) or self._moment(given.get("since")),
            until=self._moment(given.get("before")) or self._moment(given.get("until"), end=True),
            now=self._now,
            exclude_sources=() if sources else DELEGATED_SOURCES,
            exclude_sessions=sorted(self._current),
            limit=limit * HITS_PER_SESSION,
            sort=sort if sort in get_args(Order) else None,
            snippets=False,
            distinct=True,
        )
        best: dict[str, SearchHit] = {}
        for hit in hits:
            best.setdefault(lineage.root(self._db.database, hit.session_id), hit)
        titled = self._titled(query, sources)
        results = [titled] if titled is not None else []
        others = [(root, hit) for root, hit in best.items() if titled is None or titled.root != root]
        results += [self._result(root, hit, query) for root, hit in others[: limit - len(results)]]
        self._include([one.anchor for one in results], *(one.root for one in results))
        summed = self._summaries(results, query) if given.get("summary") is True else {}
        shown = [
            self._shown(one, detail, MAX_ANSWER_CHARS // limit, summed.get(one.root, "")) for one in results
        ]
        answer: dict[str, Any] = {"mode": "discover", "query": query, "results": shown}
        answer |= {"count": len(shown), "sessions_searched": len(best)}
        if problems := self._db.past.problems_of(hits):
            answer["warning"] = redact("; ".join(problems))
        return answer if shown else answer | {"message": "No matching sessions found."}

    def _moment(self, value: object, *, end: bool = False) -> float | None:
        """Return an argument that is a date or words for a time in epoch seconds; None for an empty value.

        Raises `SessionError` for a text that names no time.
        """
        text = _text(value)
        return self._db.past.read_moment(text, now=self._now, zone=self._zone, end=end) if text else None

    def _titled(self, query: str, sources: Sequence[str]) -> _SearchResult | None:
        """Return the session whose title is `query` as a search result; None if there is none.

        It is the first result of the answer. `sources` are the only sources to search, if there are any.
        """
        title = query.strip("\"'` ")
        session = self._db.find_session(title, user=self._user, everybody=self._everybody, title_only=True)
        if session is None or session.id in self._current:
            return None
        hidden = session.source not in sources if sources else session.source in DELEGATED_SOURCES
        first = self._db.get_messages(session.id, limit=1)
        if hidden or not first:
            return None
        snippet = first[0].content[:MAX_BOOKEND_CHARS]
        return _SearchResult(
            lineage.root(self._db.database, session.id), session, first[0], snippet, "session_title"
        )

    def _result(self, root: str, hit: SearchHit, query: str) -> _SearchResult:
        session, message = self._db.get_session(hit.session_id), self._db.get_message(hit.message_id)
        if session is None or message is None:
            raise SessionError(f"message {hit.message_id} was deleted meanwhile", "search again")
        snippet = self._db.past.snippet(message.id, query)
        return _SearchResult(root, session, message, snippet, message.role, hit.span, hit.newer)

    def _summaries(self, results: Sequence[_SearchResult], query: str) -> dict[str, str]:
        """Return summaries of the results' conversations, by `root`; "" for a summary that fails or is late."""
        if self._summarise is None:
            return {}
        views = [self._db.past.around(one.anchor.id, SUMMARISED_MESSAGES // 2) for one in results]
        for view in views:
            self._include(view.messages if view else ())
        texts = [
            transcript_text(view.messages if view else (one.anchor,))
            for one, view in zip(results, views, strict=True)
        ]
        made = summarise_all(texts, query, self._summarise)
        return {one.root: summary for one, summary in zip(results, made, strict=True)}

    def _shown(self, match: _SearchResult, detail: Detail, budget: int, summary: str) -> dict[str, Any]:
        session, anchor = match.session, match.anchor
        snippet = _clean(match.snippet)
        result: dict[str, Any] = {
            "session_id": session.id,
            "when": self._when(anchor.timestamp),
            "started_at": self._when(session.started_at),
            "source": session.source,
            "model": session.model or None,
            "title": session.title or None,
            "matched_role": match.role,
            "match_message_id": anchor.id,
            "snippet": snippet,
        }
        if session.parent_id:
            result["parent_session_id"] = session.parent_id
        if match.newer is not None:
            result["changed_by_message_id"] = match.newer
        if summary:
            return result | {"summary": _clean(summary)}
        if detail == "index":
            short = " ".join(snippet.split())
            result["snippet"] = short[:INDEX_SNIPPET] + ("..." if len(short) > INDEX_SNIPPET else "")
            return {
                name: value for name, value in result.items() if name not in ("model", "parent_session_id")
            }
        return result if detail == "snippet" else result | self._surroundings(match, budget)

    def _surroundings(self, match: _SearchResult, budget: int) -> dict[str, Any]:
        """Return the messages around the message of a result, and the first and last messages of its session.

        All texts together keep about to `budget` characters.
        """
        session, anchor = match.session, match.anchor
        view = self._db.past.around(anchor.id, DEFAULT_WINDOW, roles=DEFAULT_ROLES)
        messages = view.messages if view else (anchor,)
        shown = {message.id for message in messages}
        began = _said(self._db.get_messages(session.id, limit=BOOKEND), shown)
        shown |= {m.id for m in began}
        last = self._db.get_messages(session.id, offset=max(session.message_count - BOOKEND, 0))
        ended = _said(last, shown)
        self._include([*began, *messages, *ended])
        cap = _cap([*began, *(m for m in messages if m.id != anchor.id), *ended], budget - MAX_MESSAGE_CHARS)
        ends = min(cap, MAX_BOOKEND_CHARS)
        return {
            "bookend_start": [_shape(message, cap=ends) for message in began],
            "messages": [
                _shape(m, anchor.id, MAX_MESSAGE_CHARS, match.span)
                if m.id == anchor.id
                else _shape(m, cap=cap)
                for m in messages
            ],
            "bookend_end": [_shape(message, cap=ends) for message in ended],
            "messages_before": view.before if view else 0,
            "messages_after": view.after if view else 0,
        }

    # ------------------------------------------------------------------ scroll and read

    def _scroll(
        self, session: StoredSession, given_anchor: object, given: Mapping[Any, Any]
    ) -> dict[str, Any]:
        anchor_id = _integer(given_anchor)
        if anchor_id is None:
            raise SessionError(
                "scroll requires integer around_message_id", "take match_message_id from a result"
            )
        window = _number(given.get("window"), DEFAULT_WINDOW, MAX_WINDOW)
        anchor, view = self._db.get_message(anchor_id), self._db.past.around(anchor_id, window)
        family = self._db.lineage(session.id)
        if anchor is None or view is None or anchor.session_id not in family:
            raise SessionError(
                f"around_message_id {anchor_id} not in session_id {session.id}", "take both from one result"
            )
        if anchor.session_id in self._current:
            raise SessionError(
                "scroll rejected: anchor lives in the current session lineage (already in your active context)",
                "scroll in another session",
            )
        holder = self._session(anchor.session_id)
        self._include(view.messages, holder.id)
        cap = _cap(view.messages, MAX_ANSWER_CHARS)
        result = {
            "mode": "scroll",
            "session_id": holder.id,
            "around_message_id": anchor_id,
            "session_meta": self._meta(holder),
            "window": window,
            "messages": [
                _shape(m, anchor_id, MAX_MESSAGE_CHARS if m.id == anchor_id else cap)
                for m in view.messages
                if m.role not in SYSTEM_ROLES
            ],
            "messages_before": view.before,
            "messages_after": view.after,
        }
        if holder.id != session.id:
            result["warning"] = (
                f"the message lies in {holder.id}, of the same conversation; rebound transparently"
            )
        return result

    def _read(self, session: StoredSession) -> dict[str, Any]:
        if session.id in self._current:
            raise SessionError(
                "read rejected: this session is the current one", "its messages are in your context"
            )
        count = session.message_count
        truncated = count > READ_FIRST + READ_LAST
        messages = self._db.get_messages(session.id, limit=READ_FIRST if truncated else None)
        if truncated:
            messages += self._db.get_messages(session.id, offset=count - READ_LAST)
        self._include(messages)
        result: dict[str, Any] = {
            "mode": "read",
            "session_id": session.id,
            "session_meta": self._meta(session),
            "message_count": count,
            "truncated": truncated,
            "messages": [
                _shape(message, cap=_cap(messages, MAX_ANSWER_CHARS))
                for message in messages
                if message.role not in SYSTEM_ROLES
            ],
        }
        if truncated:
            left_out = count - READ_FIRST - READ_LAST
            result["message"] = (
                f"{counted(left_out, 'message')} in the middle left out: scroll around one to read the rest."
            )
        return result

    def _meta(self, session: StoredSession) -> dict[str, Any]:
        return {
            "when": self._when(session.started_at),
            "source": session.source,
            "model": session.model or None,
            "title": session.title or None,
        }

    def _when(self, timestamp: float | None) -> str:
        if timestamp is None:
            return "unknown"
        try:
            moment = datetime.fromtimestamp(timestamp, self._zone).astimezone(self._zone)
        except (OverflowError, OSError, ValueError):
            return "unknown"
        return moment.strftime("%B %d, %Y at %I:%M %p")


# ---------------------------------------------------------------------- shapes and arguments


def _said(messages: Sequence[StoredMessage], shown: Collection[int]) -> list[StoredMessage]:
    """Return the messages with text that are not in `shown` (message ids) and are no instructions of a host."""
    return [m for m in messages if m.content and m.id not in shown and m.role not in SYSTEM_ROLES]


def _shape(
    message: StoredMessage,
    anchor_id: int | None = None,
    cap: int = MAX_MESSAGE_CHARS,
    span: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Return a message as JSON data for the model.

    Args:
        message: The message.
        anchor_id: Id of the message that matched, which is marked as `anchor`.
        cap: Characters of the content. Longer content is cut, and its full length is added.
        span: The part of the content that stays if the content is cut; None for the beginning.
    """
    content = _clean(message.content)
    start = 0
    if span is not None and len(content) > cap:
        first, end = (len(_clean(message.content[:at])) for at in span)
        if end > cap:  # as much text before the part as after it
            start = min((first + end - cap) // 2, len(content) - cap)
    shape: dict[str, Any] = {
        "id": message.id,
        "role": message.role,
        "content": content[start : start + cap],
        "timestamp": message.timestamp,
    }
    if len(content) > cap:
        shape |= {"content_truncated": True, "original_content_chars": len(content)}
    if start:
        shape["content_start"] = start
    if message.speaker:
        shape["speaker"] = message.speaker
    if not may_command(message.origin):
        shape["origin"] = message.origin
    if message.tool_name:
        shape["tool_name"] = message.tool_name
    if message.tool_calls:
        shape["tool_calls"] = _calls(message.tool_calls, cap)
    if message.tool_call_id:
        shape["tool_call_id"] = message.tool_call_id
    if message.id == anchor_id:
        shape["anchor"] = True
    return shape


def _calls(calls: Sequence[Any], cap: int) -> Any:
    """Return the stored tool calls, or their JSON cut to `cap` characters if it is longer."""
    text = json.dumps(calls, ensure_ascii=False)
    return list(calls) if len(text) <= cap else _clean(text[:cap])


def _clean(text: str) -> str:
    return _CONTROL.sub("", text)


def _cap(messages: Sequence[StoredMessage], budget: int) -> int:
    """Return the largest number of characters of each message, so that all messages together keep to `budget`.

    The result is at least `MIN_MESSAGE_CHARS`.
    """
    if not messages or sum(min(len(message.content), MAX_MESSAGE_CHARS) for message in messages) <= budget:
        return MAX_MESSAGE_CHARS
    return max(min(budget // len(messages), MAX_MESSAGE_CHARS), MIN_MESSAGE_CHARS)


def _failed(error: str, remedy: str = "") -> str:
    remedies = {"remedy": redact(remedy)} if remedy else {}
    return _json(clean_result({"success": False, "error": redact(error), **remedies}))


def _json(value: object) -> str:
    return sqlite_text(json.dumps(value, ensure_ascii=False))


# ---------------------------------------------------------------------- arguments
# Models often send arguments of a wrong type, so a wrong value is read as what it most likely means. Only an invalid
# date is refused.


def _text(value: object) -> str:
    """Return a text or a number as text without spaces around it; "" for any other value."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip()


def _integer(value: object) -> int | None:
    """Return an integer from an int, a whole float or a string of digits; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 2**62 and (isinstance(value, str) or number == value) else None


def _number(value: object, default: int, maximum: int) -> int:
    """Return `value` as an integer, raised to 1 or lowered to `maximum`; `default` for a value that is no integer."""
    number = _integer(value)
    return default if number is None else min(max(number, 1), maximum)


def _names(value: object) -> tuple[str, ...]:
    """Return the names in a list or a comma-separated text; no names for any other value."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple):
        return ()
    return tuple(name.strip() for name in value if isinstance(name, str) and name.strip())

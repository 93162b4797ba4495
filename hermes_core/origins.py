"""The origins of texts that are not stored yet: what a model has read in a session since its last stored turn."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from hermes_core.config.keys import TRUSTED_TOOLS
from hermes_core.contract.values import Origin, Query, Session
from hermes_core.curated.tool import MEMORY_SCHEMA
from hermes_core.errors import SessionError
from hermes_core.problems import ProblemLog
from hermes_core.safety.origin import RANKS, Reading, current_reading, lowest, may_command, report_result
from hermes_core.sessions.open_turns import OpenTurnStore
from hermes_core.sessions.records import StoredMessage, StoredOpenTurn, text_of
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.turn_recall import BegunTurn

Value = TypeVar("Value")
Name = TypeVar("Name")

# Begun turns, and results of tools, of which the origin is known until they are stored.
MAX_REMEMBERED = 4096

# Types of content parts that hold the result of a tool.
RESULT_PARTS = ("tool_result", "function_call_output")

# Authors of turns that are programs in a chat.
PROGRAM_AUTHORS = ("bot:", "plugin:")


class OriginLedger:
    """The origins of begun turns and of results of tools, by session, until the turns are stored.

    Args:
        sessions: The store, in which the origins of stored messages and of unfinished turns are.
        trusted_tools: Names of tools whose results count as the agent's own words.
        problem_log: Gets what can't be read.
    """

    def __init__(self, sessions: SessionStore, trusted_tools: Sequence[str], problem_log: ProblemLog) -> None:
        self._sessions, self._trusted, self._problem_log = sessions, trusted_tools, problem_log
        # What hosts without open turns have begun, and what tools answered, by session: neither is stored yet.
        self._begun: OrderedDict[str, BegunTurn] = OrderedDict()
        self._results: OrderedDict[tuple[str, str], Origin] = OrderedDict()
        self._returned: OrderedDict[str, Origin] = OrderedDict()

    def begin(self, begun: BegunTurn) -> None:
        """Remember a turn that begins. It gets the origin of an earlier turn that nobody has finished."""
        if earlier := self._begun.get(begun.session.id):  # two turns at once, or one that nobody finished
            begun.origin, begun.at = lowest([begun.origin, earlier.origin]), earlier.at
        remember(self._begun, begun.session.id, begun)

    def begun(self, session: Session) -> BegunTurn | None:
        """Return the turn that was begun in a session and is not stored; None if there is none."""
        return self._begun.get(session.id)

    def add_answer(self, session: Session, text: str, origin: Origin) -> None:
        """Remember the result of a tool of ours, which the model reads before the host adds it to the turn."""
        self.remember_result(session, text, origin)
        remember(self._returned, session.id, lowest([self._returned.get(session.id, "person"), origin]))

    def remember_result(self, session: Session, text: str, origin: Origin) -> None:
        """Remember the origin of a tool's result, which the host adds to the turn later."""
        remember(self._results, (session.id, _digest(text)), origin)

    def note_read(self, session: Session, origin: Origin) -> None:
        """Note that the model of a session may have read a text of this origin, which no message of the turn shows."""
        report_result([origin])
        if may_command(origin):
            return
        begun = self._begun.get(session.id) or BegunTurn(Query(""), session, at=time.time())
        begun.origin = lowest([origin, begun.origin])
        remember(self._begun, session.id, begun)

    def finish(self, session: Session, messages: Sequence[Mapping[str, Any]]) -> None:
        """Forget a turn whose messages are stored with their origins now."""
        for message in messages if self._results else ():
            self._results.pop((session.id, _digest(text_of(message.get("content")))), None)
        self.forget(session)

    def forget(self, session: Session) -> None:
        """Forget the turn that was begun in a session and that nobody finishes."""
        self._begun.pop(session.id, None)
        self._returned.pop(session.id, None)

    def reading_of(self, session: Session, stored: Origin | None = None) -> Reading:
        """Return what the model has read in a session, as far as the memory knows: stored messages, unfinished turns, recall.

        A host whose model reads other texts before it calls a tool adds them with `OpenTurn.add`.

        Args:
            session: A result of `Memory.complete`.
            stored: The lowest origin of its stored messages; None to read it.
        """
        if stored is None:
            context = partial(self._sessions.turns.context, session.id, session.owner, origin=True)
            unread = TurnContext(session.id, origin="import")
            stored = self._problem_log.read("origins", context, unread).origin
        origins: list[str] = [author_origin(session), stored, self._returned.get(session.id, "person")]
        said: list[str] = []
        if begun := self._begun.get(session.id):
            said += [begun.query.text] if is_said(begun.speaker) else []
            origins += [begun.origin, begun.speaker]
        open_turns = partial(OpenTurnStore(self._sessions).open_in, session.id)
        for turn in self._problem_log.read("open turns", open_turns, list[StoredOpenTurn]()):
            speaker = author_origin(session, turn.author)
            read = lowest([turn.origin, stored])
            messages = self.with_origins(session, [turn.user, *turn.messages], speaker, read)
            origins += [turn.origin, *(message["origin"] for message in messages)]
            said += [
                text_of(m.get("content")) for m in messages if m["role"] == "user" and is_said(m["origin"])
            ]

        @cache  # a tool may ask for each of several texts
        def all_said() -> list[str]:
            messages = partial(self._sessions.get_messages, session.id)
            history = self._problem_log.read("messages", messages, list[StoredMessage]())
            return [*said, *(m.content for m in history if m.role == "user" and is_said(m.origin))]

        return Reading(lowest(origins), all_said)

    def with_origins(
        self, session: Session, messages: Sequence[Mapping[str, Any]], speaker: Origin, read: Origin
    ) -> list[dict[str, Any]]:
        """Return messages with the origin of each: what a model writes has the lowest of what it had read before.

        The "origin" of a message that the host gives may lower its origin, and not raise it.

        Args:
            speaker: Origin of messages of the role "user".
            read: The lowest origin of what the model had read before these messages.
        """
        names = {
            call.get("id"): (call.get("function") or call).get("name")
            for message in messages
            for call in message.get("tool_calls") or ()
            if isinstance(call, Mapping)
        }
        labelled = []
        for message in messages:
            if message["role"] == "user" and not _holds_results(message):
                origin = speaker
            elif message["role"] != "assistant":
                name = (
                    message.get("name") or message.get("tool_name") or names.get(message.get("tool_call_id"))
                )
                known = self._results.get((session.id, _digest(text_of(message.get("content")))))
                trusted = name in self._trusted and name not in TRUSTED_TOOLS
                origin = known or ("assistant" if trusted else "tool")
            else:
                origin = "assistant" if may_command(read) else read
            named = str(message.get("origin") or "")
            origin = lowest([named, origin]) if named in RANKS else origin
            read = lowest([read, origin])
            labelled.append({**message, "origin": origin})
        return labelled


def _holds_results(message: Mapping[str, Any]) -> bool:
    """Return True if a message of the role "user" has results of tools, as in Anthropic's form."""
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return any(isinstance(part, Mapping) and part.get("type") in RESULT_PARTS for part in parts)


def calls_memory(message: Mapping[str, Any]) -> bool:
    """Return True if a message of the model calls the `memory` tool."""
    names = [
        (call.get("function") or call).get("name")
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
    return MEMORY_SCHEMA["name"] in names


def author_origin(session: Session, author: str = "") -> Origin:
    """Return the origin of what the person of a session writes. Programs may speak in a chat too."""
    if author.lower().startswith(PROGRAM_AUTHORS):
        return "tool"
    if session.owner:
        return "user"
    return "owner" if session.is_owner else "person"


def message_origin(session: Session, author: str, origin: Origin | None) -> Origin:
    """Return the origin of a message of the role "user": the lower of its author's and the one that the host gives.

    Raises:
        SessionError: There is no such origin.
    """
    if origin is not None and origin not in RANKS:
        raise SessionError(f"there is no origin {origin!r}", f"use one of {', '.join(RANKS)}")
    # In a tool, the words are those of the model that calls it.
    reading = current_reading()
    read = [] if reading is None or may_command(reading.origin) else [reading.origin]
    return lowest([author_origin(session, author), *([] if origin is None else [origin]), *read])


def is_said(origin: str) -> bool:
    """Return True if a person of the session's own scope said a text of this origin."""
    return origin in ("person", "owner", "user")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def remember(table: OrderedDict[Name, Value], key: Name, value: Value) -> None:
    """Store a value as the newest one, and drop the oldest beyond `MAX_REMEMBERED`."""
    table.pop(key, None)
    table[key] = value
    while len(table) > MAX_REMEMBERED:
        table.popitem(last=False)

"""The origins of texts that are not stored yet: what a model has read in a session since its last stored turn."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

from msgspec import Struct

from hermes_core.config.keys import TRUSTED_TOOLS, MemoryConfig
from hermes_core.contract.values import Origin, Query, Session
from hermes_core.curated.store import Notes
from hermes_core.curated.tool import MEMORY_SCHEMA
from hermes_core.errors import SessionError
from hermes_core.kit.text import key_of
from hermes_core.problems import ProblemLog
from hermes_core.safety.origin import (
    RANKS,
    Judge,
    Reading,
    current_reading,
    lowest,
    may_command,
    origins_behind,
    report_result,
)
from hermes_core.safety.parts import UNKNOWN_ORIGIN, author_of, foreign_origins
from hermes_core.sessions.open_turns import OpenTurnStore
from hermes_core.sessions.records import PROGRAM_SOURCES, StoredMessage, StoredOpenTurn, text_of, words_of
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.turn_recall import BegunTurn

Value = TypeVar("Value")
Name = TypeVar("Name")

# Begun turns, and results of tools, of which the origin is known until they are stored.
MAX_REMEMBERED = 4096

# Names of programs, as platforms write them: `bot:ci`, `ci[bot]`, `CI (bot)`, `ci-bot`, `CiBot`.
_PROGRAM = re.compile(
    r"\s*(?:bot|plugin|app|webhook|cron|job)\s*[:/].*|.*(?:[\[(]\s*bot\s*[\])]|[\s_.-]bot|(?-i:[a-z0-9]Bot))\s*",
    re.IGNORECASE | re.DOTALL,
)

# Platforms on which no person writes, whose messages are those of jobs and programs.
_PROGRAM_PLATFORMS = frozenset({*PROGRAM_SOURCES, "import", "job", "bot", "plugin"})


class NoteWrite(Struct, frozen=True):
    """Call of the `memory` tool in a turn that has not ended.

    Attributes:
        call_id: Id that the model gave the call; "" if the host did not name it.
        answer: Digest of the result.
        read: The lowest origin of what the model had read, if the program of the turn named all of that; None otherwise.
        judged: What the judge said of texts of the call.
    """

    call_id: str
    answer: str
    read: Origin | None
    judged: Mapping[str, bool] = {}

    def is_answered_by(self, message: Mapping[str, Any]) -> bool:
        """Return True if a message is the result of the call."""
        called = bool(self.call_id) and message.get("tool_call_id") == self.call_id
        return message["role"] == "tool" and (
            called or key_of(text_of(message.get("content"))) == self.answer
        )


class OriginLedger:
    """The origins of begun turns and of results of tools, by session, until the turns are stored.

    Args:
        sessions: The store, in which the origins of stored messages and of unfinished turns are.
        notes: The notes of the home.
        config: The configuration of the notes.
        problem_log: Gets what can't be read.

    Attributes:
        judge: The judge of notes that the rule does not find in the person's words, unless `memory.judge` is false. It is asked
            once for each such note, in a session whose model has read text of a lower origin. None for none.
    """

    def __init__(
        self, sessions: SessionStore, notes: Notes, config: MemoryConfig, problem_log: ProblemLog
    ) -> None:
        self._sessions, self._notes, self._problem_log = sessions, notes, problem_log
        self._config = config
        self.judge: Judge | None = None
        # What hosts without open turns have begun, and what tools answered, by session: neither is stored yet.
        self._begun: OrderedDict[str, BegunTurn] = OrderedDict()
        self._results: OrderedDict[tuple[str, str], Origin] = OrderedDict()
        self._returned: OrderedDict[str, Origin] = OrderedDict()
        # What the model wrote in turns that have not ended, by the id of the turn.
        self._writes: OrderedDict[str, tuple[NoteWrite, ...]] = OrderedDict()

    def begin(self, begun: BegunTurn) -> None:
        """Remember a turn that begins. It gets the origin of an earlier turn that nobody has finished."""
        if earlier := self._begun.get(begun.session.id):  # two turns at once, or one that nobody finished
            owner = begun.session.owner
            begun.origin, begun.at = lowest([begun.origin, earlier.origin], owner=owner), earlier.at
        remember(self._begun, begun.session.id, begun)

    def begun(self, session: Session) -> BegunTurn | None:
        """Return the turn that was begun in a session and is not stored; None if there is none."""
        return self._begun.get(session.id)

    def note_write(self, reading: Reading, call_id: str, answer: str, *, is_exact: bool) -> None:
        """Note a call of the `memory` tool in a turn.

        Args:
            reading: What the model has read.
            is_exact: True if the program of the turn has named all of that itself.
        """
        if reading.turn:
            read = reading.origin if is_exact else None
            write = NoteWrite(call_id, key_of(answer), read, reading.judged)
            remember(self._writes, reading.turn, (*self._writes.get(reading.turn, ()), write))

    def settle(
        self,
        session: Session,
        turns: Collection[str],
        messages: Sequence[Mapping[str, Any]] = (),
        read: Origin = "person",
    ) -> None:
        """Store the origin of the notes that a model wrote in a turn, now that the turn has ended well.

        If the messages of the turn do not show each call of `memory`, they do not show what else the model read.

        Args:
            turns: Ids of the turn.
            messages: Its messages with their origins.
            read: The lowest origin of what the model had read before.
        """
        writes = [write for turn in turns for write in self._writes.pop(turn, ())]
        answered = all(any(write.is_answered_by(m) for m in messages) for write in writes)
        shown = answered if writes else any(map(calls_memory, messages))
        late = has_late_result(messages)
        if not (writes or shown or late):
            return
        is_known = shown or late
        exact = [write.read for write in writes if write.read is not None]
        held = [origin for message in messages for origin in (message["origin"], *foreign_origins(message))]
        if exact and len(exact) == len(writes):
            is_known = True
        else:
            exact = [read, *held] if is_known else [UNKNOWN_ORIGIN]
        reading = self.reading(
            session, lowest(exact, owner=session.owner), partial(self._said_in, session, ()), turns
        )
        reading.judged = {text: said for write in writes for text, said in write.judged.items()}
        lowers = session.id if late else ""
        settle = partial(self._notes.of(session).settle, turns, reading, is_known=is_known, lowers=lowers)
        self._problem_log.read("origins of notes", settle, None)

    def add_answer(self, session: Session, text: str, origin: Origin) -> None:
        """Remember the result of a tool of ours, which the model reads before the host adds it to the turn."""
        self.remember_result(session, text, origin)
        earlier = self._returned.get(session.id, "person")
        remember(self._returned, session.id, lowest([earlier, origin], owner=session.owner))

    def remember_result(self, session: Session, text: str, origin: Origin) -> None:
        """Remember the origin of a tool's result, which the host adds to the turn later."""
        remember(self._results, (session.id, key_of(text)), origin)

    def note_read(self, session: Session, origin: Origin) -> None:
        """Note that the model of a session may have read a text of this origin, which no message of the turn shows."""
        report_result([origin])
        if may_command(origin):
            return
        begun = self._begun.get(session.id) or BegunTurn(Query(""), session, at=time.time())
        begun.origin = lowest([origin, begun.origin], owner=session.owner)
        remember(self._begun, session.id, begun)

    def finish(self, session: Session, messages: Sequence[Mapping[str, Any]]) -> None:
        """Forget a turn whose messages are stored with their origins now."""
        for message in messages if self._results else ():
            self._results.pop((session.id, key_of(text_of(message.get("content")))), None)
        self.forget(session)

    def forget(self, session: Session) -> None:
        """Forget the turn that was begun in a session and that nobody finishes."""
        self._begun.pop(session.id, None)
        self._returned.pop(session.id, None)

    def reading_of(self, session: Session, stored: Origin | None = None, turn: str = "") -> Reading:
        """Return what the model has read in a session, as far as the memory knows: stored messages, unfinished turns, recall.

        A host whose model reads other texts before it calls a tool adds them with `OpenTurn.add`.

        Args:
            session: A result of `Memory.session`.
            stored: The lowest origin of its stored messages; None to read it.
            turn: Id of the turn in which the model reads; default: the last one that began in the session.
        """
        if stored is None:
            context = partial(self._sessions.turns.context, session.id, session.owner, origin=True)
            unread = TurnContext(session.id, origin="import")
            stored = self._problem_log.read("origins", context, unread).origin
        origins: list[str] = [author_origin(session), stored, self._returned.get(session.id, "person")]
        said: list[str] = []
        if begun := self._begun.get(session.id):
            turn = turn or begun.turn
            said += [words_of(begun.query.text)] if is_said(begun.speaker) else []
            origins += [begun.origin, begun.speaker]
        for one in self._open_turns(session):
            speaker = author_origin(session, one.author)
            read = lowest([one.origin, stored], owner=session.owner)
            texts = [one.user, *one.messages]
            messages = self.with_origins(session, texts, speaker, read, author=one.author)
            origins += [one.origin, *(message["origin"] for message in messages)]
            origins += [held for message in messages for held in foreign_origins(message)]
            if one.session_id == session.id:
                turn = turn or one.id  # of a turn that another process began
                said += [
                    words_of(m["content"]) for m in messages if m["role"] == "user" and is_said(m["origin"])
                ]
        all_said = cache(partial(self._said_in, session, said))  # a tool may ask for each of several texts
        return self.reading(
            session, lowest(origins, owner=session.owner), all_said, [turn or session_turn(session)]
        )

    def _said_in(self, session: Session, said: Sequence[str]) -> list[str]:
        """Return the person's stored messages of a session, and those that are not stored yet."""
        messages = partial(self._sessions.get_messages, session.id)
        history = self._problem_log.read("messages", messages, list[StoredMessage]())
        return [*(words_of(m.content) for m in history if m.role == "user" and is_said(m.origin)), *said]

    def reading(
        self,
        session: Session,
        origin: Origin,
        said: Callable[[], Sequence[str]],
        turns: Collection[str] = (),
    ) -> Reading:
        """Return what a model has read in a session beside the notes that wait.

        Args:
            origin: The lowest origin of it.
            said: Returns the person's own messages.
            turns: Ids of the turn in which the model reads.
        """

        @cache  # several notes of one call are compared with them
        def waiting() -> list[tuple[str, Origin]]:
            return self._notes.of(session).read().data_with_origins(turns)

        judge = self.judge if self._config.judge else None
        return Reading(origin, said, waiting=waiting, judge=judge, turn=next(iter(turns), ""))

    def _open_turns(self, session: Session) -> list[StoredOpenTurn]:
        """Return the unfinished turns of a session, and of its parent, whose model may pass on what it has read."""
        store, turns = OpenTurnStore(self._sessions), list[StoredOpenTurn]()
        for session_id in filter(None, (session.id, session.parent_id)):
            turns += self._problem_log.read("open turns", partial(store.open_in, session_id), [])
        return turns

    def with_origins(
        self,
        session: Session,
        messages: Sequence[Mapping[str, Any]],
        speaker: Origin,
        read: Origin,
        waiting: Sequence[tuple[str, Origin]] = (),
        *,
        author: str = "",
        asked: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return messages with the origin of each: what a model writes has the lowest of what it had read before.

        What a message holds beside words, such as an attachment or a citation, counts as read. The "origin" of a message
        that the host gives may lower its origin, and not raise it.

        Args:
            speaker: Origin of the person's message.
            read: The lowest origin of what the model had read before these messages.
            waiting: Texts of notes that the model may have read as data, with their origins.
            author: Name of the person.
            asked: Text of the person's message; None for the first message of the role "user". Others of this role come
                from elsewhere: another agent, a framework, or a history.
        """
        people = names_of(session, author)
        answer = messages[-1] if messages else {}
        agent = author_of(answer) if answer.get("role") == "assistant" else ""
        names = {
            call.get("id"): (call.get("function") or call).get("name")
            for message in messages
            for call in message.get("tool_calls") or ()
            if isinstance(call, Mapping)
        }
        labelled = []
        for message in messages:
            held, name = foreign_origins(message), author_of(message)
            if message["role"] == "user":
                asked = text_of(message.get("content")) if asked is None else asked
                # A person may send several messages before the answer: `asked` has the lines of all.
                own = f"\n{text_of(message.get('content'))}\n" in f"\n{asked}\n" and name in people
                origin = words_origin([speaker if own else UNKNOWN_ORIGIN], held)
            elif message["role"] != "assistant":
                called = names.get(message.get("tool_call_id"))
                tool = message.get("name") or message.get("tool_name") or called
                known = self._results.get((session.id, key_of(text_of(message.get("content")))))
                trusted = tool in self._config.trusted_tools and tool not in TRUSTED_TOOLS
                origin = known or ("assistant" if trusted else "tool")
            else:
                behind = origins_behind(text_of(message.get("content")), waiting)
                own_words = lowest(["assistant", *behind]) if may_command(read) else read
                others = [] if name in ("", agent) else [UNKNOWN_ORIGIN]
                origin = lowest([own_words, *held, *others], owner=session.owner)
            named = str(message.get("origin") or "")
            origin = lowest([named, origin]) if named in RANKS else origin
            read = lowest([read, origin, *held], owner=session.owner)
            labelled.append({**message, "origin": origin})
        return labelled


def session_turn(session: Session) -> str:
    """Return the id of the turn of a host that begins no turn before its model writes."""
    return f"session {session.id}"


def words_origin(origins: Iterable[str], held: Iterable[str]) -> Origin:
    """Return the origin of a person's words, given that of all that their message holds: a file beside them is no word."""
    return lowest([*origins, *(origin for origin in held if origin != "file")])


def names_of(session: Session, author: str) -> frozenset[str]:
    """Return the names by which a message may call the person of a session; "" is among them."""
    return frozenset({"", author.strip(), session.user_name, session.user_id, session.user_id_alt})


def calls_memory(message: Mapping[str, Any]) -> bool:
    """Return True if a message of the model calls the `memory` tool."""
    names = [
        (call.get("function") or call).get("name")
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
    return MEMORY_SCHEMA["name"] in names


def has_late_result(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the messages of a turn have a result of a call that is not among them: of an earlier turn perhaps."""
    calls = {
        call.get("id") for m in messages for call in m.get("tool_calls") or () if isinstance(call, Mapping)
    }
    return any(
        message["role"] == "tool"
        and message.get("tool_call_id") not in calls
        and not may_command(message["origin"])
        for message in messages
    )


def author_origin(session: Session, author: str = "") -> Origin:
    """Return the origin of what the person of a session writes. Programs may speak in a chat too."""
    names = (author, session.user_name, session.user_id)
    if is_program(session) or any(_PROGRAM.fullmatch(name) for name in names):
        return "tool"
    if session.owner:
        return "user"
    return "owner" if session.is_owner else "person"


def is_program(session: Session) -> bool:
    """Return True if no person writes in a session: one of a job, a webhook or an import."""
    words = re.split(r"[\W_]+", session.platform.casefold())
    return session.agent_context == "cron" or not _PROGRAM_PLATFORMS.isdisjoint(words)


def message_origin(
    session: Session, author: str, origin: Origin | None, message: Mapping[str, Any] | None = None
) -> Origin:
    """Return the origin of a message of the role "user": the lower of its author's and the one that the host gives.

    Args:
        message: The message, for the name of its author and what it holds beside words.

    Raises:
        SessionError: There is no such origin.
    """
    if origin is not None and origin not in RANKS:
        raise SessionError(f"there is no origin {origin!r}", f"use one of {', '.join(RANKS)}")
    # In a tool, the words are those of the model that calls it.
    reading = current_reading()
    read = [] if reading is None or may_command(reading.origin) else [reading.origin]
    origins = [author_origin(session, author), *([] if origin is None else [origin]), *read]
    if message is None:
        return lowest(origins)
    known = author_of(message) in names_of(session, author)
    return words_origin(origins if known else [*origins, UNKNOWN_ORIGIN], foreign_origins(message))


def is_said(origin: str) -> bool:
    """Return True if a person of the session's own scope said a text of this origin."""
    return origin in ("person", "owner", "user")


def remember(table: OrderedDict[Name, Value], key: Name, value: Value) -> None:
    """Store a value as the newest one, and drop the oldest beyond `MAX_REMEMBERED`."""
    table.pop(key, None)
    table[key] = value
    while len(table) > MAX_REMEMBERED:
        table.popitem(last=False)

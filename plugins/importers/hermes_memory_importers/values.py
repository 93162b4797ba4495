"""Values that importers read from a file: sessions of turns of messages, and what was left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hermes_core import sanitize_context
from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import ImportFailed
from hermes_core.sessions.records import Relation


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message.

    Recall that was injected into the message is removed: only the people's own words are stored.

    Attributes:
        ref: Id of the message in the file, unique within its session.
        timestamp: Time in epoch seconds.
        tool_call_id: Id of the call whose result the message is. A result gets the name of the tool from its call, and its
            place behind the call.
        parts: Number of parts of the file that the message holds; 0 for one text and each call.
    """

    role: str
    content: str
    speaker: str = ""
    ref: str = ""
    timestamp: float | None = None
    tool_name: str = ""
    tool_calls: tuple[dict[str, object], ...] = ()
    tool_call_id: str = ""
    parts: int = 0

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "parts", max(1, bool(self.content.strip()) + len(self.tool_calls)))
        if self.role in ("user", "assistant"):
            object.__setattr__(self, "content", sanitize_context(self.content))


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """One exchange: the messages of the user, then those of the assistant.

    `id` names the turn within its session. If the file has no such name, the turn's position names it. `copied` says if
    another session holds the turn, or the beginning that is not among `messages`.
    """

    messages: tuple[ImportedMessage, ...]
    id: str = ""
    copied: Literal["", "wholly", "partly"] = ""


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A conversation.

    Attributes:
        id: The same each time the file is read, so that a second import adds nothing.
        identity: Fields of the contract's `Session` that the file names: platform, user_id, parent_id and others.
        minted: True if the program that wrote the file may give the session another id next time; then the session is
            also recognised by its messages.
        relation: How the session comes from its parent.
        copyable: True if the program copies conversations under new ids; then a beginning that another session holds is
            left out.
        copied_from: Id of the session that the file says it copied. The session becomes a branch of it.
        in_forms: True if the program writes a session in several forms, whose messages have no common ids. Then a message
            is known if another form brought it.
        excerpt_of: Id of the session of which these are only the prompts, as a program keeps them in a history of what was
            typed. They are stored if that session is not, no provider is told, and that session replaces them.
    """

    id: str
    source: str
    title: str
    started_at: float | None
    turns: tuple[ImportedTurn, ...] = ()
    identity: Mapping[str, str] = field(default_factory=dict)
    minted: bool = False
    relation: Relation = ""
    copyable: bool = False
    copied_from: str = ""
    in_forms: bool = False
    excerpt_of: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", sanitize_context(self.title))
        if self.copied_from:
            object.__setattr__(self, "identity", {"parent_id": self.copied_from, **self.identity})
            object.__setattr__(self, "relation", self.relation or "branch")


PROJECT_KIND = "project"
"""`kind` of a record about a project, which becomes a note in MEMORY.md. All others are about the person."""


@dataclass(frozen=True, slots=True)
class ImportedRecord:
    """A memory that another program keeps. It is no word of the person.

    Attributes:
        source: Name of the program.
        title: Name of what the record belongs to, as a project; "" if it has none.
    """

    record: MemoryRecord
    source: str
    title: str = ""


_EXCERPT = "-prompts"


def excerpt_id(session_id: str) -> str:
    """Return the id of the session that holds only the prompts of this one."""
    return session_id + _EXCERPT


def is_excerpt(session_id: str) -> bool:
    """Return True for the id of a session that holds only the prompts of another one."""
    return session_id.endswith(_EXCERPT)


_MOST_AHEAD = 100
"""Number of messages within which the call of a result is looked for."""

StreamedSession = tuple[ImportedSession, Iterable[ImportedTurn]]
"""A session without its turns, and an iterable that reads the turns from the file. If the session is `minted`, the turns
can be iterated more than once."""

StreamedItem = StreamedSession | ImportedRecord
"""A session, or a memory that the program keeps beside its conversations."""


def split_turns(messages: Iterable[ImportedMessage], *, named: bool = False) -> Iterator[ImportedTurn]:
    """Yield the turns of a conversation: a turn ends when the person speaks after an answer.

    Each result of a tool stands behind its call, and has the name of the tool.

    Args:
        named: Give each turn the `ref` of its first message as its id.
    """
    turn: list[ImportedMessage] = []
    for message in with_calls(messages):
        if turn and message.role == "user" and turn[-1].role != "user":
            yield ImportedTurn(tuple(turn), turn[0].ref if named else "")
            turn = []
        turn.append(message)
    if turn:
        yield ImportedTurn(tuple(turn), turn[0].ref if named else "")


def with_calls(messages: Iterable[ImportedMessage]) -> Iterator[ImportedMessage]:
    """Yield the messages of a session, each result of a tool behind its call, and with the name of the tool.

    Some programs write a result before its call, few messages away.
    """
    names: dict[str, str] = {}
    waiting: dict[str, list[ImportedMessage]] = {}
    ahead: deque[ImportedMessage] = deque()
    coming: set[str] = set()
    source = iter(messages)
    while True:
        message = next(source, None)
        if message is not None:
            ahead.append(message)
            coming.update(call_id for call_id, _ in map(_call_of, message.tool_calls))
        while ahead:
            first, call_id = ahead[0], ahead[0].tool_call_id
            if call_id and call_id not in names:
                if call_id in coming:
                    waiting.setdefault(call_id, []).append(ahead.popleft())
                    continue
                if message is not None and len(ahead) <= _MOST_AHEAD:
                    break  # the call may follow
            ahead.popleft()
            is_named = first.role != "tool" or first.tool_name or not names.get(call_id)
            yield first if is_named else replace(first, tool_name=names[call_id])
            for own_id, name in map(_call_of, first.tool_calls):
                names[own_id] = name
                for result in waiting.pop(own_id, ()):
                    yield replace(result, tool_name=result.tool_name or name)
        if message is None:
            return


def _call_of(call: Mapping[str, object]) -> tuple[str, str]:
    """Return the id of a call and the name of its tool."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else call.get("name")
    return str(call.get("id") or call.get("call_id") or ""), str(name or "")


@dataclass(slots=True)
class Skip:
    """A reason for leaving something out, with a count and the first place. A `fault` should have been imported."""

    reason: str
    count: int
    first: str
    fault: bool


class SkipLog:
    """The account of an import: each part that the file holds is stored, or counted with a reason.

    A part is a text, a tool call or a tool result, a picture, anything else in a message. A record that is left out as a
    whole is one part. A `strict` log raises the first fault.

    Attributes:
        read: Number of parts that were read from the file.
        stored: Number of parts in the messages that went into memory, or were there before.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.read = 0
        self.stored = 0
        self._strict = strict
        self._by_reason: dict[str, Skip] = {}

    def open(self, parts: int, records: int = 1) -> None:
        """Count the parts of a record instead of the record itself, which the reader of the file has counted.

        Args:
            parts: Number of the parts; 0 for a record that only holds facts about the session.
            records: Number of records that these are the parts of; 0 if they were not counted before.
        """
        self.read += parts - records

    def note(self, reason: str, where: str, count: int = 1) -> None:
        """Count something that is no part of the conversation, or was rewound."""
        if count:
            self._by_reason.setdefault(reason, Skip(reason, 0, where, fault=False)).count += count

    def note_part(self, reason: str, where: str, count: int = 1) -> None:
        """Count parts of a record that are left out while the others are read."""
        self.read += count
        self.note(reason, where, count)

    def fault(self, exc: ImportFailed) -> None:
        """Count something that can't be read. The message of `exc` begins with the place."""
        if self._strict:
            raise exc
        where, colon, reason = exc.message.partition(": ")
        if not colon:
            where, reason = "", exc.message
        self._by_reason.setdefault(reason, Skip(reason, 0, where, fault=True)).count += 1

    def close(self) -> None:
        """Count the parts that were read, and that the importer neither yielded nor counted."""
        counted = sum(skip.count for skip in self._by_reason.values())
        self.note(
            "parts that the importer of this format does not know",
            "",
            max(0, self.read - self.stored - counted),
        )

    def add(self, other: SkipLog, file: str) -> None:
        """Add the account of another log, which is that of this file."""
        self.read += other.read
        self.stored += other.stored
        for skip in other.all():
            first = f"{file}: {skip.first}" if skip.first else file
            own = self._by_reason.setdefault(skip.reason, Skip(skip.reason, 0, first, skip.fault))
            own.count += skip.count

    def all(self) -> list[Skip]:
        """Return every reason, faults first."""
        return sorted(self._by_reason.values(), key=lambda skip: (not skip.fault, -skip.count))

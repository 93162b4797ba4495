"""Values that importers read from a file: sessions of turns of messages, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from hermes_core.errors import ImportFailed
from hermes_core.safety.fence import sanitize_context
from hermes_core.sessions.records import Relation


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message. `ref` is its id in the file, unique within its session; `timestamp` is in epoch seconds.

    Recall that was injected into the message is removed: only the people's own words are stored.
    """

    role: str
    content: str
    speaker: str = ""
    ref: str = ""
    timestamp: float | None = None
    tool_name: str = ""
    tool_calls: tuple[dict[str, object], ...] = ()

    def __post_init__(self) -> None:
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", sanitize_context(self.title))
        if self.copied_from:
            object.__setattr__(self, "identity", {"parent_id": self.copied_from, **self.identity})
            object.__setattr__(self, "relation", self.relation or "branch")


StreamedSession = tuple[ImportedSession, Iterable[ImportedTurn]]
"""A session without its turns, and an iterable that reads the turns from the file. If the session is `minted`, the turns
can be iterated more than once."""


def split_turns(messages: Iterable[ImportedMessage], *, named: bool = False) -> Iterator[ImportedTurn]:
    """Yield the turns of a conversation: a turn ends when the person speaks after an answer.

    Args:
        named: Give each turn the `ref` of its first message as its id.
    """
    turn: list[ImportedMessage] = []
    for message in messages:
        if turn and message.role == "user" and turn[-1].role != "user":
            yield ImportedTurn(tuple(turn), turn[0].ref if named else "")
            turn = []
        turn.append(message)
    if turn:
        yield ImportedTurn(tuple(turn), turn[0].ref if named else "")


@dataclass(slots=True)
class Skip:
    """A reason for leaving something out, with a count and the first place. A `fault` should have been imported."""

    reason: str
    count: int
    first: str
    fault: bool


class SkipLog:
    """The reasons for what an import leaves out. A `strict` log raises the first fault instead."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._by_reason: dict[str, Skip] = {}

    def note(self, reason: str, where: str) -> None:
        """Count something that is no part of the conversation, or was rewound."""
        self._by_reason.setdefault(reason, Skip(reason, 0, where, fault=False)).count += 1

    def fault(self, exc: ImportFailed) -> None:
        """Count something that can't be read. The message of `exc` begins with the place."""
        if self._strict:
            raise exc
        where, colon, reason = exc.message.partition(": ")
        if not colon:
            where, reason = "", exc.message
        self._by_reason.setdefault(reason, Skip(reason, 0, where, fault=True)).count += 1

    def add(self, other: SkipLog, file: str) -> None:
        """Add the reasons of another log, which are those of this file."""
        for skip in other.all():
            first = f"{file}: {skip.first}" if skip.first else file
            own = self._by_reason.setdefault(skip.reason, Skip(skip.reason, 0, first, skip.fault))
            own.count += skip.count

    def all(self) -> list[Skip]:
        """Return every reason, faults first."""
        return sorted(self._by_reason.values(), key=lambda skip: (not skip.fault, -skip.count))

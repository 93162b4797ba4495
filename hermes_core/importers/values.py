"""What an importer reads out of a file: sessions of turns of messages, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hermes_core.safety.fence import sanitize_context
from hermes_core.sessions.records import Relation


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """One message. `ref` is its own id in the file, unique within its session; `timestamp` is in epoch seconds.

    What memory put into it is not in it: only what was said is remembered.
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
    """One exchange: the user's message or messages, then the assistant's.

    `id` names it within its session; where the file has no such name, the place that the turn stands at does.
    """

    messages: tuple[ImportedMessage, ...]
    id: str = ""


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One conversation. `id` is the same each time the file is read, so that a second import adds nothing.

    Of one that is `minted` the program that writes the file may give another one each time: so it is also known by what
    was said in it. `identity` are fields of the contract's `Session` that the file tells: platform, user_id, parent_id
    and others; `relation` is how it comes from its parent.
    """

    id: str
    source: str
    title: str
    started_at: float | None
    turns: tuple[ImportedTurn, ...] = ()
    identity: Mapping[str, str] = field(default_factory=dict)
    minted: bool = False
    relation: Relation = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", sanitize_context(self.title))


StreamedSession = tuple[ImportedSession, Iterable[ImportedTurn]]
"""A session without its turns, and its turns, which are read while they are asked for; more than once if it is `minted`."""

"""The frozen values that cross the contract.

A field may be added to any of them without breaking a provider; none is ever renamed or given another meaning within
one `CONTRACT_VERSION`. All text is `str`, all times are seconds since the epoch as `float`, all sizes are in the unit
that the field names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict
from urllib.parse import quote

from hermes_core.errors import SessionError

CONTRACT_VERSION = 1
"""Version of hooks and values. A provider with a higher `contract_version` is refused with the reason."""

BUILTIN_NAME = "builtin"
"""Name of the curated memory's own provider; no other provider may use it."""

TOOL_NAME_LETTERS, LONGEST_TOOL_NAME = "a-zA-Z0-9_-", 64
TOOL_NAME = re.compile(f"[{TOOL_NAME_LETTERS}]{{1,{LONGEST_TOOL_NAME}}}")
"""The name of a tool as every model's server takes it; one of another name fails each request that offers it."""

AgentContext = Literal["primary", "subagent", "cron", "review", "flush"]
MemoryAction = Literal["add", "replace", "remove"]
MemoryTarget = Literal["memory", "user"]
SwitchReason = Literal["new", "reset", "resume", "branch", "rewind", "compression"]
EndReason = Literal[
    "new", "reset", "resume", "branch", "compression", "evict", "close", "crash", "import", "cadence"
]


class Message(TypedDict, total=False):
    """One message of a conversation in the OpenAI chat form, as providers see it: text only, recall removed."""

    role: str
    content: str
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    name: str
    speaker: str
    ref: str
    timestamp: float


@dataclass(frozen=True, slots=True)
class Session:
    """Identity of a conversation; nothing in it changes while the session lasts. JSON-serialisable.

    `identity` is the profile's name, `user_id` is unique within `platform`, `home` is the HERMES_HOME as text and the
    only place where a provider keeps files. `agent_context` other than "primary" means that the manager sends no writes.
    Whose memory it is the properties `scope` and `owner` say: a group may have a `chat_id` and no `user_id`.
    """

    id: str
    parent_id: str = ""
    platform: str = "cli"
    agent_context: AgentContext = "primary"
    identity: str = "default"
    workspace: str = "hermes"
    user_id: str = ""
    user_name: str = ""
    chat_id: str = ""
    chat_name: str = ""
    chat_type: str = ""
    thread_id: str = ""
    gateway_session_key: str = ""
    home: str = ""

    def __post_init__(self) -> None:
        """What a chat's SDK gives as a number or an enumeration's member is the same person's as text; None is not given."""
        given: Any = self.id
        if given is None:
            raise SessionError("a session was made without an id", "give it one, as uuid.uuid4().hex")
        for name in self.__slots__:
            value = getattr(self, name)
            if type(value) is not str:
                value = self.__dataclass_fields__[name].default if value is None else value
                object.__setattr__(self, name, str.__str__(value) if isinstance(value, str) else str(value))

    def __hash__(self) -> int:
        return hash(
            self.id
        )  # of all fields, at each write, it would take longer than its JSON from the cache

    @property
    def scope(self) -> str:
        """Whose memory this is: profile, platform-qualified user and chat, as one stable key.

        >>> Session("s1", platform="telegram", user_id="42", chat_id="7").scope
        '["default", "telegram", "42", "7"]'
        """
        return json.dumps([self.identity, self.platform, self.user_id, self.chat_id], ensure_ascii=False)

    @property
    def owner(self) -> str:
        """Whose memory this is, wherever they speak: the platform-qualified user; "" for the person whose home it is.

        A chat of which no user is named, such as a group, stands for a person of its own. Its parts are percent-encoded,
        so that no user, who always has a colon, is spelt the same; so are percent signs and colons of a user's platform.

        >>> Session("s1", platform="telegram", user_id="42", chat_id="7").owner
        'telegram:42'
        >>> Session("s1", platform="matrix", chat_id="!tea:example.org").owner
        'matrix/%21tea%3Aexample.org'
        """
        if self.user_id:
            return f"{self.platform.replace('%', '%25').replace(':', '%3A')}:{self.user_id}"
        parts = (quote(str(part), safe="", errors="surrogatepass") for part in (self.platform, self.chat_id))
        return "/".join(parts) if self.chat_id else ""

    @property
    def primary(self) -> bool:
        """Whether a person is on the other side; only then do writes reach a provider."""
        return self.agent_context == "primary"

    def to_dict(self) -> dict[str, Any]:
        """This session as plain JSON data; `from_dict` reads it back."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Session:
        """Read what `to_dict` wrote, also by a later version: unknown fields are left out."""
        return cls(**{key: value for key, value in data.items() if key in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Query:
    """What the coming turn asks: the person's own words, the tokens that recall may take, the messages just before."""

    text: str
    budget: int = 1500
    recent: tuple[Message, ...] = ()
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class RecallItem:
    """One thing remembered. `score` is higher for better within one `Recall`; what is unknown is left empty."""

    text: str
    score: float | None = None
    id: str = ""
    session_id: str = ""
    message_id: int | None = None
    ref: str = ""
    speaker: str = ""
    when: str = ""


@dataclass(frozen=True, slots=True)
class Recall:
    """What a provider remembers for a query: `items`, best first, or one ready `text`. Empty means nothing relevant."""

    items: tuple[RecallItem, ...] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.items) or bool(self.text.strip())

    def render(self) -> str:
        """The text for the model: `text` if the provider wrote one, else one bullet an item.

        >>> Recall((RecallItem("Likes tea", when="8 May 2023", speaker="Mel"),)).render()
        '- [8 May 2023] Mel: Likes tea'
        """
        if self.text.strip():
            return self.text.strip()
        return "\n".join(_bullet(item) for item in self.items)


def _bullet(item: RecallItem) -> str:
    when = f"[{item.when}] " if item.when else ""
    speaker = f"{item.speaker}: " if item.speaker else ""
    return f"- {when}{speaker}{item.text.strip()}"


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a provider can run here; when not, `reason` says why and `remedy` what to do. True when it can."""

    ok: bool = True
    reason: str = ""
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.ok

    @classmethod
    def no(cls, reason: str, remedy: str = "") -> Availability:
        """Not available, with the reason and the way out."""
        return cls(False, reason, remedy)


@dataclass(frozen=True, slots=True)
class Turn:
    """One completed exchange. `id` is the key that a backend should deduplicate by; `number` is for display only.

    `messages` are the turn's own messages with tool calls and results; `at` is when it happened.
    """

    id: str
    number: int
    user: str
    assistant: str
    messages: tuple[Message, ...] = ()
    author: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryWrite:
    """One accepted change of curated memory.

    `content` is the new text ("" for remove), `old_text` the fragment that the model named, `previous` the whole entry
    that was replaced or removed, known only when `performed`. `performed` is False when `capabilities` kept the local
    write from happening, so that the provider is the only place that holds it.
    """

    id: str
    action: MemoryAction
    target: MemoryTarget
    content: str = ""
    old_text: str = ""
    previous: str = ""
    performed: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's call of one of the provider's tools; `arguments` is always a dict, of whatever the model sent."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Delegation:
    """A task that a subagent finished, told to the parent's provider."""

    id: str
    task: str
    result: str
    child_session_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionSwitch:
    """The conversation goes on under another session id, without the provider being shut down.

    `reset` means that nothing of the old conversation is on the screen any more. `rewound_turns` are ids of turns that
    the person took back and that had already been sent.
    """

    id: str
    old: Session
    new: Session
    reason: SwitchReason
    reset: bool = False
    rewound_turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider declares once. Frozen for its life.

    `tool_names` limits which of its schemas are offered (None: all). `tool_aliases` are names that models of older
    conversations still call, each with the tool that answers now; they are not offered. `suppresses_local_writes` keeps MEMORY.md and
    USER.md as they are while the provider stores the write: True, or a mapping from "memory" and "user" to bool.
    `serial` merges the read and the write worker: never two hooks at once. `scope` says how many instances there are:
    one a process, or one a session for providers that keep session state on `self`.
    """

    tool_names: frozenset[str] | None = None
    tool_aliases: Mapping[str, str] = field(default_factory=dict)
    suppresses_local_writes: bool | Mapping[str, bool] = False
    serial: bool = False
    scope: Literal["process", "session"] = "process"

    def suppresses(self, target: str) -> bool:
        """Whether local writes to this target are left to the provider."""
        if isinstance(self.suppresses_local_writes, Mapping):
            return bool(self.suppresses_local_writes.get(target, False))
        return self.suppresses_local_writes


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a provider's self-test for `hermes-memory doctor`."""

    name: str
    ok: bool
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """What an observer's filter returns to stop a write or to leave out a recall."""

    reason: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for observers: `kind` names it, `data` is JSON-serialisable and redacted."""

    kind: str
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Field:
    """One setting of a provider, declared once: drives setup, status, docs and validation.

    A number out of its range is refused; with `clamp`, for a setting that people bring from where it was clamped, the
    nearest in range is used and a warning says so.
    `env` names the environment variable (and `.env` key) that may carry it; a `secret` lives nowhere else. `identity`
    marks what says whose data it is (url, account, bank): rows recorded under another value are not sent. `when` maps
    other settings to the value they must have for this one to be asked. A `dict` or `list` is JSON, also where a person
    types it, and has no default. Setup does not ask for an `advanced` one, which is left to those who look for it.
    `aliases` are older keys that the file may have instead; "banks.main.id" is looked for in nested objects.
    `extras` maps values to the extra of the provider's distribution that they need; setup installs what it asks for.
    `default_from` is another setting and what its values make of this one's default: setup offers that, and keeps it.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool] | type[dict[str, Any]] | type[list[Any]] = str
    default: str | int | float | bool | None = None
    help: str = ""
    choices: Sequence[str] = ()
    minimum: float | None = None
    maximum: float | None = None
    env: str = ""
    secret: bool = False
    required: bool = False
    identity: bool = False
    url: str = ""
    when: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    advanced: bool = False
    aliases: Sequence[str] = ()
    extras: Mapping[str, str] = field(default_factory=dict)
    default_from: tuple[str, Mapping[str, str | int | float | bool]] | None = None
    clamp: bool = False

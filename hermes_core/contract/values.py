"""The frozen values that hooks take and return.

A later version may add fields; within one `CONTRACT_VERSION` no field is renamed or gets another meaning. Texts are
`str`, times are seconds since the epoch as `float`, and sizes have the unit that the field names. Import them from here,
or from `hermes_core`, which has those that most hosts and providers need.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypedDict
from urllib.parse import quote, unquote

from hermes_core.errors import SessionError

# Version of hooks and values. A provider with a higher `contract_version` is refused with the reason.
CONTRACT_VERSION = 1

# Name of the provider of the notes; no other provider may use it.
BUILTIN_NAME = "builtin"

TOOL_NAME_LETTERS, LONGEST_TOOL_NAME = "a-zA-Z0-9_-", 64
# A tool name that every model's server takes. Another name would fail each request that offers the tool.
TOOL_NAME = re.compile(f"[{TOOL_NAME_LETTERS}]{{1,{LONGEST_TOOL_NAME}}}")

AgentContext = Literal["primary", "subagent", "cron", "review", "flush"]
MemoryAction = Literal["add", "replace", "remove"]
MemoryTarget = Literal["memory", "user", "project"]

Origin = Literal["person", "owner", "assistant", "file", "user", "provider", "import", "tool", "web"]
"""Who or what a text comes from, highest first; the last four are equal. See `docs/explanation/trust.md`."""

SwitchReason = Literal["new", "reset", "resume", "branch", "rewind", "compression"]
EndReason = Literal[
    "new", "reset", "resume", "branch", "compression", "evict", "close", "crash", "import", "cadence"
]


# Names of the origins for people and models.
ORIGIN_NAMES: Mapping[str, str] = {
    "person": "the person",
    "owner": "the person, from another platform",
    "assistant": "the agent",
    "file": "a file of the person",
    "user": "another user",
    "provider": "a memory provider",
    "import": "an import",
    "tool": "a tool's result",
    "web": "a web page",
}

LOCAL_PLATFORMS = frozenset({"cli", "cron", "import", "local", "mcp"})
"""Platforms of the machine itself. A session on another one is not of the person at home."""

# Fields that only somebody outside has. A chat without ids may have some of them.
_OUTSIDE_FIELDS = ("user_id_alt", "user_name", "chat_name", "chat_type", "thread_id")

# Characters that databases or terminals change or hide, so that two ids would look equal: controls, halves of surrogate
# pairs, line separators, and marks without width.
_CHANGED_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


class Message(TypedDict, total=False):
    """One message of a conversation in the OpenAI chat form, as providers see it: text only, recall removed.

    `origin` is there if nobody of the session said the text: "tool", "web", "import", "provider" or another "user".
    """

    role: str
    content: str
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    name: str
    speaker: str
    ref: str
    timestamp: float
    origin: str


class SessionFields(TypedDict, total=False):
    """Fields of a new `Session` beside its id, as keyword arguments; each has the default of `Session`."""

    parent_id: str
    platform: str
    agent_context: AgentContext
    identity: str
    workspace: str
    user_id: str
    user_name: str
    chat_id: str
    chat_name: str
    chat_type: str
    thread_id: str
    gateway_session_key: str
    user_id_alt: str


@dataclass(frozen=True, slots=True)
class Session:
    """Identity of a conversation; nothing in it changes while the session lasts. JSON-serialisable.

    The properties `scope` and `owner` say whose memory it is. Only a session on a platform of the machine itself
    (`LOCAL_PLATFORMS`) without any id or name of somebody outside belongs to the person at home.

    Attributes:
        agent_context: Kind of conversation. The manager sends writes for "primary" only.
        identity: Name of the profile.
        user_id: Unique within `platform`.
        user_id_alt: Another id of the same user, if the platform has two.
        home: The HERMES_HOME as text, the only place where a provider keeps files.
        is_owner: True if `identity.owners` of config.yaml lists the `outside_id`: the person at home writes from outside.
            `Memory` sets it.
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
    user_id_alt: str = ""
    is_owner: bool = False

    def __post_init__(self) -> None:
        """Turn each field into a str. An SDK may give an id as a number or an enum member; None means the default."""
        session_id: Any = self.id
        if session_id is None:
            raise SessionError("a session was made without an id", "give it one, as uuid.uuid4().hex")
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "is_owner":
                object.__setattr__(self, name, value is True)
            # Not isinstance: a str enum's member is a str, and prints as `Platform.TELEGRAM`.
            elif type(value) is not str:
                value = self.__dataclass_fields__[name].default if value is None else value
                # What names nobody must not become a name that all share: False, NaN, an empty list.
                nobody = isinstance(value, bool) or value != value or not (value or value == 0)
                value = "" if nobody else str.__str__(value) if isinstance(value, str) else str(value)
                object.__setattr__(self, name, value)
            if isinstance(value, str) and value.isspace():  # an id that is empty but for blanks names nobody
                object.__setattr__(self, name, "")

    def __hash__(self) -> int:
        # Each write looks a session up in a cache; a hash of all fields would take longer than to write its JSON.
        return hash(self.id)

    @property
    def scope(self) -> str:
        """Stable key of the memory's owner: profile, platform, user and chat. The person at home has one scope.

        >>> Session("s1", platform="telegram", user_id="42", chat_id="7").scope
        '["default", "telegram", "42", "7"]'
        """
        owner = self.owner
        if not owner:
            parts = [self.identity, "cli", "", ""]
        elif self.user_id or self.chat_id:
            parts = [self.identity, self.platform, self.user_id, self.chat_id]
        else:
            parts = [self.identity, owner, "", ""]
        # Half a surrogate pair is escaped, as JSON has it, so that every store keeps the key as it is.
        return json.dumps(parts, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()

    @property
    def owner(self) -> str:
        """Key of the memory's owner in all chats: `outside_id`, or "" for the person whose home it is.

        >>> Session("s1", platform="telegram", user_id="42", chat_id="7").owner
        'telegram:42'
        >>> Session("s1", platform="telegram", user_id="42", is_owner=True).owner
        ''
        """
        return "" if self.is_owner else self.outside_id

    @property
    def outside_id(self) -> str:
        """Id of the user or chat as `identity.owners` lists it; "" for a local session without an outside identity.

        It is PLATFORM:USER_ID if the host names the user, else PLATFORM/CHAT_ID, else PLATFORM/ with whatever else names
        the chat. Ids are compared exactly, and different ids never have the same key. Only a user's key has a
        colon outside of the user's own id: colons and percent signs of the platform, and all special characters behind a
        slash, are percent-encoded. A user's id that databases or terminals would change is encoded too.

        >>> Session("s1", platform="matrix", chat_id="!tea:example.org").outside_id
        'matrix/%21tea%3Aexample.org'
        >>> Session("s1", platform="irc", gateway_session_key="#tea").outside_id
        'irc/gateway_session_key=%23tea'
        >>> Session("s1", platform="irc", user_id="mel\\0").outside_id
        'irc/user_id=mel%00'
        """
        key = self.gateway_session_key
        return _outside_id(
            self.platform,
            self.user_id,
            self.chat_id,
            (("gateway_session_key", key),)
            if key
            else (
                ("user_id_alt", self.user_id_alt),
                ("user_name", self.user_name),
                ("chat_name", self.chat_name),
                ("chat_type", self.chat_type),
                ("thread_id", self.thread_id),
            ),
        )

    @property
    def is_anonymous(self) -> bool:
        """True for a session on another platform than this machine's that names neither a user nor a chat."""
        named = self.user_id or self.chat_id or self.gateway_session_key or self.user_id_alt
        named = named or self.user_name or self.chat_name or self.thread_id
        return not named and self.platform not in LOCAL_PLATFORMS

    @property
    def primary(self) -> bool:
        """True if a person is on the other side. Only then do writes reach a provider."""
        return self.agent_context == "primary"

    def to_dict(self) -> dict[str, Any]:
        """Return this session as plain JSON data, which `from_dict` reads."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Session:
        """Read the data of `to_dict`. Unknown fields, written by a later version, are left out."""
        return cls(**{key: value for key, value in data.items() if key in cls.__slots__})


@lru_cache(maxsize=4096)  # each step of a turn asks whose memory it is
def _outside_id(platform: str, user_id: str, chat_id: str, names: tuple[tuple[str, str], ...]) -> str:
    """Return `Session.outside_id`. `names` are further fields, which name the chat if nothing else does."""
    quoted = _quoted(platform)
    if user_id:
        if _CHANGED_CHARACTERS.search(platform + user_id):
            return f"{quoted}/user_id={_quoted(user_id)}"
        return f"{platform.replace('%', '%25').replace(':', '%3A')}:{user_id}"
    if chat_id:
        return f"{quoted}/{_quoted(chat_id)}"
    known = "&".join(f"{name}={_quoted(value)}" for name, value in names if value)
    return f"{quoted}/{known}" if known or platform not in LOCAL_PLATFORMS else ""


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def parse_outside_id(outside_id: str) -> dict[str, str]:
    """Return the fields of `Session` that make this `outside_id`. Raises `SessionError` if it is none.

    >>> parse_outside_id("telegram:42"), parse_outside_id("telegram/-1007")
    ({'platform': 'telegram', 'user_id': '42'}, {'platform': 'telegram', 'chat_id': '-1007'})
    """
    platform, colon, user = outside_id.partition(":")
    quoted, slash, rest = outside_id.partition("/")
    if colon:
        fields = {"platform": platform, "user_id": user}
    elif "=" in rest:
        fields = {"platform": quoted} | {
            name: value for name, _, value in (p.partition("=") for p in rest.split("&"))
        }
    else:
        fields = {"platform": quoted, **({"chat_id": rest} if rest else {})}
    canonical = ""
    if (user or slash) and fields.keys() <= {
        "platform",
        "user_id",
        "chat_id",
        "gateway_session_key",
        *_OUTSIDE_FIELDS,
    }:
        with contextlib.suppress(UnicodeDecodeError):
            # A user's id stands as it is behind the colon.
            unquoted = {name: unquote(value, errors="surrogatepass") for name, value in fields.items()}
            fields = unquoted | ({"user_id": user} if colon else {})
            canonical = Session("", **fields).outside_id  # type: ignore[arg-type]
    if not canonical:
        raise SessionError(
            f"{outside_id!r} is no id of a user or chat",
            "write PLATFORM:USER_ID, as telegram:123, or PLATFORM/CHAT_ID",
        )
    if canonical != outside_id:
        raise SessionError(f"{outside_id!r} is no exact id", f"write {canonical!r}")
    return fields


@dataclass(frozen=True, slots=True)
class Query:
    """Question of the coming turn.

    Attributes:
        text: The person's own words.
        budget: Tokens that recall may take.
        recent: The messages just before.
        now: The time of the question, in seconds since the epoch; 0 if unknown.
    """

    text: str
    budget: int = 1500
    recent: tuple[Message, ...] = ()
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class RecallItem:
    """One remembered item. `score` is higher for better items of the same `Recall`. Unknown fields stay empty.

    `origin` is who or what a message of a past session comes from, an `Origin`. Providers leave it empty.
    `span` is the place of `text` in the message `message_id`, if the text is a part of a longer message: its first
    character, and the character after its last.
    """

    text: str
    score: float | None = None
    id: str = ""
    session_id: str = ""
    message_id: int | None = None
    ref: str = ""
    speaker: str = ""
    when: str = ""
    origin: str = ""
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """Answer of a provider to a query: `items`, best first, or one ready `text`. Empty means nothing relevant.

    Attributes:
        status: A line for the person about this recall, such as "3 memories". The model does not get it.
    """

    items: tuple[RecallItem, ...] = ()
    text: str = ""
    status: str = ""

    def __bool__(self) -> bool:
        return bool(self.items) or bool(self.text.strip())

    def render(self) -> str:
        """Return the text for the model: `text` if the provider wrote one, else a bullet for each item.

        >>> Recall((RecallItem("Likes tea", when="8 May 2023", speaker="Mel"),)).render()
        '- [8 May 2023] Mel: Likes tea'
        """
        if self.text.strip():
            return self.text.strip()
        return "\n".join(_bullet(item) for item in self.items)


def _bullet(item: RecallItem) -> str:
    when = f"[{item.when}] " if item.when else ""
    lower = item.origin in ("user", "provider", "import", "tool", "web")
    source = f" (from {ORIGIN_NAMES[item.origin]})" if lower else ""
    speaker = f"{item.speaker}{source}: ".lstrip() if item.speaker or source else ""
    return f"- {when}{speaker}{item.text.strip()}"


@dataclass(frozen=True, slots=True)
class Availability:
    """Answer of `is_available`: true if the provider can run here, else `reason` says why and `remedy` what to do."""

    ok: bool = True
    reason: str = ""
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.ok

    @classmethod
    def no(cls, reason: str, remedy: str = "") -> Availability:
        """Return "not available", with the reason and what to do."""
        return cls(False, reason, remedy)


@dataclass(frozen=True, slots=True)
class Turn:
    """One completed turn.

    Attributes:
        id: The key by which a backend recognises a repeated delivery.
        number: For display only.
        messages: The turn's own messages, with tool calls and results.
        author: The person who spoke, in a conversation of several. `bot:NAME` and `plugin:NAME` are programs.
        at: The time of the answer, in seconds since the epoch.
        origin: The lowest origin of its texts. Below "assistant", the turn holds text that nobody said or confirmed: store it
            as data, and build no profile or instruction from it.
        user_at: The time of the person's message, in seconds since the epoch, not later than `at`; 0 if only that is known.
    """

    id: str
    number: int
    user: str
    assistant: str
    messages: tuple[Message, ...] = ()
    author: str = ""
    at: float = 0.0
    origin: Origin = "person"
    user_at: float = 0.0

    @property
    def said(self) -> tuple[tuple[str, str, float], ...]:
        """Role, text and time of the person's message and of the answer, without one that has no text."""
        both = (("user", self.user, self.user_at or self.at), ("assistant", self.assistant, self.at))
        return tuple(one for one in both if one[1].strip())


@dataclass(frozen=True, slots=True)
class MemoryWrite:
    """One accepted change of the notes.

    Attributes:
        content: The new text; "" for "remove".
        old_text: The fragment by which the model named the entry.
        previous: The whole entry that was replaced or removed; known only if `performed`.
        performed: False if `capabilities` suppressed the local write, so that only the provider has it.
        metadata: "origin" is the `Origin` of the text. Observers may add texts of their own.
    """

    id: str
    action: MemoryAction
    target: MemoryTarget
    content: str = ""
    old_text: str = ""
    previous: str = ""
    performed: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)


Detail = str | int | float | bool
"""Value of a further fact of a memory, such as its trust."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One memory on its way out of a provider or into one.

    Attributes:
        text: The memory, word for word.
        id: The id under which the provider has it. Each provider gives ids of its own, so that no two are compared.
        created_at: Seconds since the epoch; 0 if unknown.
        updated_at: Seconds since the epoch; 0 if unknown.
        kind: The provider's word for the kind of memory; "" if it has none.
        details: Further facts by name, such as a trust. Another provider keeps them, and gives them back.
    """

    text: str
    id: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    kind: str = ""
    tags: tuple[str, ...] = ()
    details: Mapping[str, Detail] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The SHA-256 of the text. A provider that has a memory with this key of a user takes no second one."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def digest(self) -> str:
        """The SHA-256 of all fields but `id`, which shows whether another provider kept them all."""
        parts = {**self.to_dict(), "id": ""}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("ascii")).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return this record as plain JSON data, which `from_dict` reads."""
        return {
            "text": self.text,
            "id": self.id,
            "created_at": float(self.created_at),
            "updated_at": float(self.updated_at),
            "kind": self.kind,
            "tags": list(self.tags),
            "details": dict(self.details),
        }

    @classmethod
    def from_dict(cls, data: object) -> MemoryRecord:
        """Read the data of `to_dict`. Unknown fields are left out; a wrong value raises `ValueError`."""
        if not isinstance(data, Mapping) or not isinstance(data.get("text"), str):
            raise ValueError("a record is an object with a text")
        tags, details = data.get("tags", ()), data.get("details", {})
        if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
            raise ValueError("the tags of a record are a list of texts")
        if not isinstance(details, Mapping) or not all(isinstance(v, Detail) for v in details.values()):
            raise ValueError("the details of a record are an object of texts and numbers")
        times = [data.get(name, 0.0) for name in ("created_at", "updated_at")]
        if not all(isinstance(at, int | float) and not isinstance(at, bool) for at in times):
            raise ValueError("the times of a record are numbers")
        return cls(
            data["text"],
            str(data.get("id", "")),
            float(times[0]),
            float(times[1]),
            str(data.get("kind", "")),
            tuple(tags),
            {str(name): value for name, value in details.items()},
        )


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Answer of `export_memories`: some records, and where the next page begins.

    Attributes:
        cursor: Text that the next call gets; "" if this is the last page.
    """

    records: tuple[MemoryRecord, ...] = ()
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class Erasure:
    """Answer of `forget_user`. Each text names its place, for people: "3 documents of the bank 'hermes-ann'".

    Attributes:
        deleted: What was deleted.
        remaining: What could not be deleted, where it still stands, and how a person deletes it.
    """

    deleted: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Call of one of the provider's tools by a model. `arguments` is always a dict; its values are unchecked."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Delegation:
    """Task that a subagent finished, as the provider of the parent's session gets it."""

    id: str
    task: str
    result: str
    child_session_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionSwitch:
    """Change of the session id under which a conversation goes on. The provider is not shut down.

    Attributes:
        reset: Nothing of the old conversation is on the screen any more.
        rewound_turns: Ids of turns that the person rewound after they had been delivered.
    """

    id: str
    old: Session
    new: Session
    reason: SwitchReason
    reset: bool = False
    rewound_turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Declaration of a provider about itself, fixed for its life.

    Attributes:
        tool_names: The tools that are offered (None: all of its schemas).
        tool_aliases: Names that models of older conversations still call -> the tool that answers now. Not offered.
        suppresses_local_writes: Keeps MEMORY.md and USER.md as they are while the provider stores the write: True, or
            a mapping from "memory" and "user" to bool.
        serial: Merges the read and the write worker, so that two hooks never run at once. `concurrent` and
            `slow_prefetch` then have no effect.
        scope: Number of instances: one for the process, or one for each session if the provider keeps the state of a
            session on `self`.
        concurrent: Number of read hooks (recall, tools) of different sessions that may run at once on one instance,
            each on a thread. Of one session there is never more than one. A call that the host no longer waits for
            counts until it returns.
        slow_prefetch: Runs `queue_prefetch` beside the recall and the tools of its own session, because it takes
            seconds. At most `concurrent` preparations run at once, of one session never two.
        checkpoints: True if `on_pre_compress` returns only after all messages are stored durably, and raises otherwise.
            With `agent.checkpoint_required` nothing is compressed without that.
        local: True if the provider keeps files of its own on this machine. On a server that several machines share
            (`storage.url`), one machine uses it: the others would recall nothing of what it stores.
    """

    tool_names: frozenset[str] | None = None
    tool_aliases: Mapping[str, str] = field(default_factory=dict)
    suppresses_local_writes: bool | Mapping[str, bool] = False
    serial: bool = False
    scope: Literal["process", "session"] = "process"
    concurrent: int = 1
    slow_prefetch: bool = False
    checkpoints: bool = False
    local: bool = False

    def suppresses(self, target: str) -> bool:
        """Return whether the provider stores writes to this target instead of the local file."""
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
    """Answer of an observer's filter that stops a write or leaves out a recall."""

    reason: str


@dataclass(frozen=True, slots=True)
class Event:
    """Event for observers. `data` is JSON-serialisable and redacted."""

    kind: str
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Field:
    """One setting of a provider, declared once: setup, status, docs and validation read it.

    Attributes:
        type: A `dict` or `list` is JSON, also if a person types it, and has no default.
        minimum: A number below it is refused, as is one above `maximum`; see `clamp`.
        env: The environment variable (and key of `.env`) that may hold the value.
        secret: The value is kept in `.env` only.
        identity: The value says whose data it is (url, account, bank). Writes recorded under another value are not
            delivered.
        when: Other settings -> the value that they must have; otherwise setup does not ask for this one.
        advanced: Setup does not ask for it.
        aliases: Older keys that the file may have instead; "banks.main.id" means a key of nested objects.
        extras: Values -> the extra of the provider's distribution that they need. Setup installs it.
        default_from: Another setting, and its values -> the default of this one, which setup offers and keeps.
        clamp: Use the nearest value in range instead of refusing, and warn; for settings of hosts that clamp.
        form: The allowed values in words, if type, choices and range don't say it: "a list of addresses".
        check: Raises `ValueError` or an error of ours for a value, or an item of a list, that is not allowed.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool] | type[dict[str, Any]] | type[list[Any]] = str
    default: str | int | float | bool | tuple[Any, ...] | None = None
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
    form: str = ""
    check: Callable[[Any], object] | None = None

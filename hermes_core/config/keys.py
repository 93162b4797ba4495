"""The keys of config.yaml: one class a block, one field a key, with type, default, range and help.

Validation, `hermes_core.config.set_value` and the reference page all read this one table, `KEYS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hermes_core.config.profile import FIELD_FORM, ProfileField
from hermes_core.config.schema import ValueSchema
from hermes_core.contract.values import parse_outside_id
from hermes_core.errors import SessionError
from hermes_core.safety.origin import LOW_ORIGINS

LOAD_PROVIDERS = "HERMES_LOAD_PROVIDERS"
"""Environment variable: a comma list of the only providers that may load; set and empty, none may."""

SEMANTIC = "HERMES_SEMANTIC"
"""Environment variable: what `recall.semantic` is, whatever config.yaml says."""

STORAGE = "HERMES_STORAGE"
"""Environment variable: what `storage.url` is, whatever config.yaml says."""

STORAGE_PASSWORD = "HERMES_STORAGE_PASSWORD"
"""Secret in `.env` or the environment: the password of the role in `storage.url`."""

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable of OpenTelemetry: `true` if spans may hold the text of questions, recall and turns."""

_METADATA = "key"

Value = bool | int | float | str | list[Any] | dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(ValueSchema):
    """One key of config.yaml; a `default` of None means "not set"."""

    name: str = ""
    default: Any
    help: str
    item_form: str = ""
    """Form of the items of a list, in words."""
    check_item: Callable[[Any], object] | None = None
    """Raises `ValueError` or `SessionError` for an item of another form."""

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        if self.item_form:
            return f"a list of {self.item_form}"
        return super(Key, self).expected

    def convert(self, raw: Any, *, strict: bool = False, clamp: bool = False) -> Any:
        """Return `raw` as a value of this key, see `ValueSchema.convert`."""
        value = super(Key, self).convert(raw, strict=strict, clamp=clamp)
        try:
            if self.check_item is not None:
                for item in value:
                    self.check_item(item)
        except SessionError as exc:
            raise ValueError(str(exc)) from exc
        return value

    def fault(self, value: object) -> str:
        """Return what is wrong with `value` for this key as the end of a sentence, "" if nothing is."""
        try:
            if value is not None:
                self.convert(value, strict=True)
        except ValueError:
            return f"must be {self.expected}, is {value!r}"
        return ""


def _key(default: Any, help: str, *, kind: Any = None, **limits: Any) -> Any:  # noqa: A002 (reads as it is)
    """Return a field that is also a key of config.yaml; `_table` fills in its full name."""
    key = Key(kind=kind or type(default), default=default, help=help, **limits)
    return dataclasses.field(default=default, metadata={_METADATA: key})


# The memory's own tools: their results say themselves where their texts come from.
TRUSTED_TOOLS = ("memory", "session_search", "skill_view", "skill_manage", "todo", "delegate_task")

COMPOSITE = "composite"
"""The value of `memory.provider` that selects the providers in `composite.members`."""

TOOLSETS = ("memory", "session_search", "skills", "todo", "delegation")
_TOOLSETS = f"Any of {', '.join(TOOLSETS)}, and the host's own."


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """The `memory:` block: the agent's notes and the one external provider."""

    memory_enabled: bool = _key(True, "Keep the agent's notes, MEMORY.md.")
    user_profile_enabled: bool = _key(True, "Keep the profile of the person, USER.md.")
    memory_char_limit: int = _key(2200, "Size of MEMORY.md in characters, delimiters included.", minimum=1)
    user_char_limit: int = _key(1375, "Size of USER.md in characters, delimiters included.", minimum=1)
    project: Literal["off", "auto"] = _key(
        "off",
        "`auto` keeps PROJECT.md, notes on the Git repository of the working folder; they are the same in every clone of it.",
        choices=("off", "auto"),
    )
    project_char_limit: int = _key(2200, "Size of PROJECT.md in characters, delimiters included.", minimum=1)
    per_user: bool = _key(
        True,
        "Give each user who is not in `identity.owners` notes and skills of their own; if false, all share those of the home.",
    )
    shared_base: str = _key(
        "",
        "Folder with a MEMORY.md and `skills`, or such a file alone, that everybody's prompt begins with and nobody writes; "
        "a relative one lies in the home.",
    )
    trust: Literal["open", "guarded", "strict"] = _key(
        "guarded",
        "Notes that come from a tool, a web page, an import, a provider or another user: `guarded` gives them to the model as "
        "data, `strict` only after you confirmed them, `open` puts them into the system prompt.",
        choices=("open", "guarded", "strict"),
    )
    refresh: Literal["session", "append"] = _key(
        "session",
        "When a running session learns of notes that changed since it began: `session`, not before its prompt is built anew; "
        "`append`, with its next message, beside the frozen prompt.",
        choices=("session", "append"),
    )
    mirror: bool = _key(
        False,
        "With `storage.url`: write a read-only copy of the notes into `memories/` after each change, for people and backups. "
        "It is never read.",
    )
    profile_fields: tuple[Any, ...] = _key(
        (),
        f"Typed fields of the person's profile that the tool `memory` can set, each {FIELD_FORM}.",
        kind=list,
        item_form=f"fields, each {FIELD_FORM}",
        check_item=ProfileField.from_config,
    )
    trusted_tools: tuple[str, ...] = _key(
        TRUSTED_TOOLS,
        "Tools whose results count as the agent's own words. Never list a tool that reads the network, mail or files of others.",
        kind=list[str],
    )
    trusted_clients: tuple[str, ...] = _key(
        (),
        "Names of MCP clients whose notes count as the agent's own words; what other clients write is data.",
        kind=list[str],
    )
    accepted_origins: tuple[str, ...] = _key(
        (),
        "Origins whose notes and skills go into system prompts without your look; `hermes-memory review` sets it. With `web` or "
        "`tool`, any page that the agent reads can write there.",
        kind=list[str],
        choices=LOW_ORIGINS,
    )
    provider: str = _key(
        "",
        "Name of the external provider; empty for the notes alone. `folder:NAME` chooses a plugin folder of a bundled provider's "
        "name, `composite` the providers in `composite.members`.",
    )
    nudge_interval: int = _key(10, "Turns between two reminders to review memory; 0 for none.", minimum=0)
    flush_min_turns: int = _key(
        6, "Turns of the person that a session needs before its memory is flushed; 0 for never.", minimum=0
    )


@dataclass(frozen=True, slots=True)
class CompositeConfig:
    """The `composite:` block: several external providers at once, if `memory.provider` is `composite`.

    Each of the lists of writes names some members; if it is not set, all of them.
    """

    members: tuple[str, ...] = _key(
        (), "Names of one to four providers; the first comes first where only one can.", kind=list[str]
    )
    turns: tuple[str, ...] | None = _key(
        None, "Members that get the turns of conversations; not set, all.", kind=list[str]
    )
    notes: tuple[str, ...] | None = _key(
        None, "Members that get the changes of MEMORY.md and USER.md; not set, all.", kind=list[str]
    )
    facts: tuple[str, ...] | None = _key(
        None,
        "Members whose tools the model gets, to store and find facts; not set, all. Together at most twelve tools.",
        kind=list[str],
    )
    delegation: tuple[str, ...] | None = _key(
        None, "Members that get the results of subagents; not set, all.", kind=list[str]
    )


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """The `identity:` block: who the person at home is on other platforms."""

    owners: tuple[str, ...] = _key(
        (),
        "Ids of the person at home on other platforms, as PLATFORM:USER_ID or PLATFORM/CHAT_ID: they share its notes, skills, "
        "sessions and provider.",
        kind=list[str],
        item_form="ids, each as telegram:123 (PLATFORM:USER_ID) or telegram/-1007 (PLATFORM/CHAT_ID)",
        check_item=parse_outside_id,
    )


@dataclass(frozen=True, slots=True)
class RecallConfig:
    """The `recall:` block: the memory that a turn gets before the model sees it."""

    sessions: Literal["on_request", "auto"] = _key(
        "auto",
        "Past sessions: in every turn in which they seem to answer the message, or only when the model asks for them. In a group, "
        "only when it asks.",
        choices=("on_request", "auto"),
    )
    semantic: Literal["auto", "off"] = _key(
        "auto",
        f"Search past sessions by meaning as well: when the package hermes-memory-semantic is installed, or never. {SEMANTIC} comes first.",
        choices=("auto", "off"),
    )
    embeddings: Literal["minilm", "http"] = _key(
        "minilm",
        "Model of search by meaning: the one of the package hermes-memory-semantic on this machine, or a server with OpenAI's "
        "/embeddings, to which the texts of all past sessions are sent.",
        choices=("minilm", "http"),
    )
    embeddings_url: str = _key("", "Address of the server of embeddings, with its /v1.")
    embeddings_model: str = _key("", "Name of the model of embeddings, as the server knows it.")
    embeddings_key_env: str = _key(
        "EMBEDDINGS_API_KEY",
        "Environment variable, or name in .env, that holds the server's key; may be unset.",
    )
    budget: int = _key(1500, "Tokens that recall may take in one turn.", minimum=0)
    deadline: float = _key(
        5.0,
        "Seconds that a turn waits for an external provider's recall. If it is not set, 8 for a provider written for "
        "Hermes Agent, as there.",
        minimum=0.05,
        maximum=600,
    )

    def unused_setting(self, *, search_enabled: bool = True) -> str:
        """Return a sentence if settings of embeddings have no effect because of another setting; "" if they have.

        Args:
            search_enabled: What `sessions.search_enabled` is.
        """
        if self.embeddings == "http":
            off = "recall.semantic is 'off'" if self.semantic == "off" else "sessions.search_enabled is False"
            if self.semantic == "off" or not search_enabled:
                return (
                    f"recall.embeddings is 'http' without effect, because {off}: no vectors are made, and past sessions are "
                    f"not searched by meaning; set {off.partition(' ')[0]} (or the variable {SEMANTIC}) to use the server, "
                    "or recall.embeddings to minilm"
                )
            return ""
        for name in ("url", "model"):
            if value := getattr(self, f"embeddings_{name}"):
                return (
                    f"recall.embeddings_{name} is {value!r} without effect, because recall.embeddings is "
                    f"{self.embeddings!r}: `hermes-memory config set recall.embeddings http` uses the server, "
                    f"`hermes-memory config unset recall.embeddings_{name}` forgets it"
                )
        return ""


@dataclass(frozen=True, slots=True)
class SessionsConfig:
    """The `sessions:` block: the store of past conversations."""

    search_enabled: bool = _key(True, "Offer the model the tool `session_search`.")
    journal_mode: Literal["auto", "wal", "delete"] = _key(
        "auto",
        "SQLite journal of state.db; `auto` asks the file system whether it carries a write-ahead log.",
        choices=("auto", "wal", "delete"),
    )
    turn_expiry_hours: float = _key(
        24.0, "Hours without a message after which an unfinished turn of a host is deleted.", minimum=0.01
    )
    retention: int | None = _key(
        None,
        "Days after which a conversation without a message is deleted by itself, unless it is pinned; not set, never.",
        kind=int,
        minimum=1,
    )


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """The `storage:` block: where sessions and the outbox are. `storage: URL` sets the address alone."""

    url: str = _key(
        "",
        "Address of a PostgreSQL server that several machines share, such as postgresql://hermes@db1,db2/hermes. Not "
        "set, the sessions are in state.db of the home. The password is HERMES_STORAGE_PASSWORD in .env, or in the file "
        "of PGPASSFILE; it must not stand here.",
    )
    schema: str = _key(
        "hermes",
        "The schema with the tables of this home: each home has one of its own. The default of the profile NAME is "
        "hermes_NAME.",
    )
    pool: int = _key(8, "Largest number of connections of one process.", minimum=1, maximum=200)
    prepare: Literal["auto", "off"] = _key(
        "auto",
        "`off` behind PgBouncer before 1.21 in transaction mode, which can't keep prepared statements.",
        choices=("auto", "off"),
    )
    local_host: str = _key(
        "",
        "Name of the one machine that may use a provider which keeps files of its own, as `hostname` prints it.",
    )


@dataclass(frozen=True, slots=True)
class BackupConfig:
    """The `backup:` block: backups that a program of the home makes by itself when a session begins."""

    every: float | None = _key(
        None,
        "Hours between two backups; not set, none is made by itself.",
        kind=float,
        minimum=0.1,
    )
    keep: int = _key(7, "Backups that stay in the folder; older ones are deleted.", minimum=1)
    folder: str = _key(
        "backups",
        "Folder of the backups; a relative one lies in the home. Name one on another disk.",
    )


@dataclass(frozen=True, slots=True)
class ProvidersConfig:
    """The `providers:` block: which packages may be loaded at all, by provider or distribution name."""

    allow: tuple[str, ...] | None = _key(
        None,
        f"Load these and no others; an empty list loads none. {LOAD_PROVIDERS} (a comma list) comes first.",
        kind=list[str],
    )
    block: tuple[str, ...] = _key((), "Never load these.", kind=list[str])


@dataclass(frozen=True, slots=True)
class ExtensionsConfig:
    """The `extensions:` block: which extensions may be loaded, by extension or distribution name, and their order."""

    allow: tuple[str, ...] | None = _key(
        None, "Load these and no others; an empty list loads none.", kind=list[str]
    )
    block: tuple[str, ...] = _key((), "Never load these.", kind=list[str])
    order: tuple[str, ...] = _key((), "Call these first, in this order; the others by name.", kind=list[str])


@dataclass(frozen=True, slots=True)
class PackagesConfig:
    """The `packages:` block: places that have the packages of this project, which are on no public index."""

    find_links: tuple[str, ...] = _key((), "Folders with wheels, as `make dist` fills one.", kind=list[str])
    index: str = _key("", "Address of a package index of your own that has them.")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The `model:` block: the language model of the agent, behind any OpenAI-compatible server."""

    base_url: str = _key("https://api.openai.com/v1", "Address of the server, with its /v1.")
    name: str = _key("", "Name of the model, as the server knows it.")
    api_key_env: str = _key(
        "OPENAI_API_KEY", "Environment variable, or name in .env, that holds the key; may be unset."
    )
    context_length: int = _key(32768, "Tokens that a request and its answer may have.", minimum=1024)
    timeout: float = _key(120.0, "Seconds without a word from the server.", minimum=0.1, maximum=3600)
    retries: int = _key(4, "Further tries when the server is busy or down.", minimum=0, maximum=20)


@dataclass(frozen=True, slots=True)
class AuxiliaryConfig:
    """The `auxiliary:` block: a model for summaries, reviews and curation. A key that is not set is as in `model:`."""

    base_url: str | None = _key(None, "Address of the server.", kind=str)
    name: str | None = _key(None, "Name of the model; not set, the agent's own does this work.", kind=str)
    api_key_env: str | None = _key(None, "Name of the variable that holds the key.", kind=str)
    context_length: int | None = _key(None, "Tokens of its context.", kind=int, minimum=1024)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The `agent:` block: the course of a turn, and the compression of a long conversation."""

    max_iterations: int = _key(
        40, "Requests to the model in one turn, the last of which is for an answer without tools.", minimum=1
    )
    result_limit: int = _key(
        40_000,
        "Characters of one tool's result; at most as many as `model.context_length` says.",
        minimum=1000,
    )
    compress_at: float = _key(
        0.75, "Share of the context at which the conversation is summarised.", minimum=0.1, maximum=0.95
    )
    checkpoint_required: bool = _key(
        False,
        "Compress only after a provider has stored a checkpoint of the messages; else the conversation stays as it is.",
    )
    protect_first: int = _key(3, "Messages at the start that are never summarised.", minimum=0)
    protect_last: int = _key(6, "Messages at the end that are not, as far as they fit.", minimum=1)
    trust_folder: str = _key(
        "ask",
        "The AGENTS.md or CLAUDE.md of the working folder in the prompt: `ask` asks before the first time in `chat` and leaves "
        "it out elsewhere until it is trusted, `yes` takes it, `no` leaves it out.",
        choices=("ask", "yes", "no"),
    )
    review: bool = _key(True, "Review the conversation every `memory.nudge_interval` turns.")
    flush_seconds: float = _key(
        8.0,
        "Seconds that saving at a session's end may take; where a SIGTERM or the program's end ends it, 8 at most.",
        minimum=0,
    )
    cadence_turns: int = _key(
        20,
        "Turns after which providers get the session end of a chat that never ends; 0 for never.",
        minimum=0,
    )
    cadence_minutes: float = _key(30.0, "Minutes of quiet that must come before that.", minimum=0)
    monitor_minutes: float = _key(
        0.0,
        "Minutes between two lines on this process in the log of `hermes-memory chat`; 0 for none.",
        minimum=0,
        maximum=10_080,
    )


@dataclass(frozen=True, slots=True)
class ToolsetsConfig:
    """The `enabled_toolsets:` block: the toolsets that the model gets on each platform, all if the key is not set.

    A host may name platforms of its own.
    """

    cli: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    telegram: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    discord: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    slack: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    whatsapp: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    signal: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    email: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    api: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    cron: tuple[str, ...] | None = _key(None, _TOOLSETS, kind=list[str])
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def of(self, platform: str) -> tuple[str, ...] | None:
        """Return the toolsets of this platform, None for all."""
        if platform not in PLATFORMS:
            return dict(self.others).get(platform)
        found: tuple[str, ...] | None = getattr(self, platform)
        return found


@dataclass(frozen=True, slots=True)
class SkillsConfig:
    """The `skills:` block: procedures that the agent wrote down."""

    enabled: bool = _key(
        True, "List skills in the prompt and offer the tools `skill_view` and `skill_manage`."
    )
    external_dirs: tuple[str, ...] = _key(
        (), "Further folders of skills, for reading only; a relative one lies in the home.", kind=list[str]
    )


@dataclass(frozen=True, slots=True)
class CuratorConfig:
    """The `curator:` block: curation of MEMORY.md and USER.md."""

    auto: bool = _key(
        False,
        "Curate in the background, and apply what `hermes-memory memory curate` proposes without asking.",
    )
    hours: float = _key(24.0, "Hours between two curations of a file that changed meanwhile.", minimum=0)


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """The `telemetry:` block: spans and metrics for OpenTelemetry, with the package hermes-memory-telemetry."""

    enabled: bool = _key(
        False, "Make spans and metrics of memory. The OpenTelemetry SDK of the program decides where they go."
    )
    content: bool | None = _key(
        None,
        f"Put the text of questions, recall and turns into spans. Not set, as {CAPTURE_CONTENT} says, else false.",
        kind=bool,
    )


@dataclass(frozen=True, slots=True)
class Config:
    """Our part of config.yaml.

    Attributes:
        warnings: A sentence for each thing in the file that has no effect.
        configured: The keys that the file holds, by their dotted names.
    """

    memory: MemoryConfig = MemoryConfig()
    composite: CompositeConfig = CompositeConfig()
    identity: IdentityConfig = IdentityConfig()
    recall: RecallConfig = RecallConfig()
    sessions: SessionsConfig = SessionsConfig()
    storage: StorageConfig = StorageConfig()
    backup: BackupConfig = BackupConfig()
    providers: ProvidersConfig = ProvidersConfig()
    extensions: ExtensionsConfig = ExtensionsConfig()
    packages: PackagesConfig = PackagesConfig()
    model: ModelConfig = ModelConfig()
    auxiliary: AuxiliaryConfig = AuxiliaryConfig()
    agent: AgentConfig = AgentConfig()
    enabled_toolsets: ToolsetsConfig = ToolsetsConfig()
    skills: SkillsConfig = SkillsConfig()
    curator: CuratorConfig = CuratorConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    warnings: tuple[str, ...] = ()
    configured: frozenset[str] = frozenset()

    @property
    def selected_providers(self) -> tuple[str, ...]:
        """The providers that this configuration selects: none, one, or the members of the composite."""
        if self.memory.provider == COMPOSITE:
            return tuple(dict.fromkeys(self.composite.members))
        return (self.memory.provider,) if self.memory.provider else ()


BLOCKS: dict[str, type] = {
    "memory": MemoryConfig,
    "composite": CompositeConfig,
    "identity": IdentityConfig,
    "recall": RecallConfig,
    "sessions": SessionsConfig,
    "storage": StorageConfig,
    "backup": BackupConfig,
    "providers": ProvidersConfig,
    "extensions": ExtensionsConfig,
    "packages": PackagesConfig,
    "model": ModelConfig,
    "auxiliary": AuxiliaryConfig,
    "agent": AgentConfig,
    "enabled_toolsets": ToolsetsConfig,
    "skills": SkillsConfig,
    "curator": CuratorConfig,
    "telemetry": TelemetryConfig,
}
"""Class of every block of ours, by its name in config.yaml."""


def _table() -> dict[str, Key]:
    return {
        f"{block}.{field.name}": dataclasses.replace(field.metadata[_METADATA], name=f"{block}.{field.name}")
        for block, cls in BLOCKS.items()
        for field in dataclasses.fields(cls)
        if _METADATA in field.metadata
    }


KEYS: dict[str, Key] = _table()
"""Every key that config.yaml may hold for us, by its dotted name."""


def key_of_platform(platform: str) -> Key:
    """Return the key for the toolsets of a platform, also of one that only the host knows."""
    return dataclasses.replace(KEYS["enabled_toolsets.cli"], name=f"enabled_toolsets.{platform}")


PLATFORMS = tuple(name.partition(".")[2] for name in KEYS if name.startswith("enabled_toolsets."))
"""Those that the `enabled_toolsets:` block knows."""

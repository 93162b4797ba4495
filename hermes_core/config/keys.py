"""The keys of config.yaml: one class a block, one attribute a key, with type, range, default and help.

Validation, `hermes_core.config.set_value` and the reference page all read `KEYS`, which is made from the annotations
and docstrings of these classes when a key is asked for.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from hermes_core.config.profile import FIELD_FORM, ProfileField
from hermes_core.config.schema import field_of
from hermes_core.contract.values import Field, parse_outside_id
from hermes_core.safety.origin import LOW_ORIGINS

LOAD_PROVIDERS = "HERMES_LOAD_PROVIDERS"
"""Environment variable: a comma list of the only providers that may load; set and empty, none may."""

SEMANTIC = "HERMES_SEMANTIC"
"""Environment variable: what `recall.semantic` is, whatever config.yaml says."""

STORAGE = "HERMES_STORAGE"
"""Environment variable: what `storage.url` is, whatever config.yaml says."""

STORAGE_PASSWORD = "HERMES_STORAGE_PASSWORD"
"""Secret in `.env` or the environment: the password of the role in `storage.url`."""

Value = bool | int | float | str | list[Any] | dict[str, Any] | None

Names = tuple[str, ...]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Duration = Annotated[float, Meta(ge=0)]

# The memory's own tools: their results say themselves where their texts come from.
TRUSTED_TOOLS = ("memory", "session_search", "skill_view", "skill_manage", "todo", "delegate_task")

COMPOSITE = "composite"
"""The value of `memory.provider` that selects the providers in `composite.members`."""

NO_PROVIDER = ("", "none", "default", "builtin", "built-in")
"""The values of `memory.provider` that select none, as in Hermes Agent."""

TOOLSETS = ("memory", "session_search", "skills", "todo", "delegation")
_Toolsets = Annotated[Names | None, f"Any of {', '.join(TOOLSETS)}, and the host's own."]

_OWNERS = {
    "form": "a list of ids, each as telegram:123 (PLATFORM:USER_ID) or telegram/-1007 (PLATFORM/CHAT_ID)",
    "check": parse_outside_id,
}
_PROFILE_FIELDS = {"form": f"a list of fields, each {FIELD_FORM}", "check": ProfileField.from_config}


def provider_name(value: str) -> str:
    """Return the name of the provider that a value of `memory.provider` selects, "" for none.

    >>> provider_name("honcho"), provider_name(" None ")
    ('honcho', '')
    """
    return "" if value.strip().lower() in NO_PROVIDER else value


class Block(Struct, frozen=True):
    """One block of config.yaml."""

    def get(self, name: str) -> Any:
        """Return the value of a key."""
        return getattr(self, name)

    def with_value(self, name: str, value: Any) -> Self:
        """Return the block with another value of one key."""
        return replace(self, **{name: value})


class MemoryConfig(Block, frozen=True):
    """The `memory:` block: the agent's notes and the one external provider.

    Attributes:
        memory_enabled: Keep the agent's notes, MEMORY.md.
        user_profile_enabled: Keep the profile of the person, USER.md.
        memory_char_limit: Size of MEMORY.md in characters, delimiters included.
        user_char_limit: Size of USER.md in characters, delimiters included.
        project: `auto` keeps PROJECT.md, notes on the Git repository of the working folder; they are the same
            in every clone of it.
        project_char_limit: Size of PROJECT.md in characters, delimiters included.
        per_user: Give each user who is not in `identity.owners` notes and skills of their own; if false, all
            share those of the home.
        shared_base: Folder with a MEMORY.md and `skills`, or such a file alone, that everybody's prompt
            begins with and nobody writes; a relative one lies in the home.
        trust: Notes that come from a tool, a web page, an import, a provider or another user: `guarded` gives
            them to the model as data, `strict` only after you confirmed them, `open` puts them into the
            system prompt.
        judge: Ask the agent's model, in a request of its own that holds only your messages and the note, whether
            you said what a note says. A note that you said in other words does not wait then.
        waiting_days: Days after which a note that waits for you is removed, with a word in the chat or in
            `hermes-memory review`; 0 for never. An undo brings it back.
        refresh: When a running session learns of notes that changed since it began: `session`, not before its
            prompt is built anew; `append`, with its next message, beside the frozen prompt.
        mirror: Write the notes as MEMORY.md, USER.md and PROJECT.md into `memories/`, where people read and edit
            them. `false` for a home on a server that wants no files.
        profile_fields: Typed fields of the person's profile that the tool `memory` can set, each {name, type,
            description}, where type is string, integer, number or boolean.
        trusted_tools: Tools whose results count as the agent's own words. Never list a tool that reads the
            network, mail or files of others.
        trusted_clients: Names of MCP clients whose notes count as the agent's own words; what other clients
            write is data.
        accepted_origins: Origins whose notes and skills go into system prompts without your look;
            `hermes-memory review` sets it. With `web` or `tool`, any page that the agent reads can write
            there.
        provider: Name of the external provider; empty, `none`, `default`, `builtin` or `built-in` for the notes
            alone. `folder:NAME` chooses a plugin folder of a bundled provider's name, `composite` the
            providers in `composite.members`.
        nudge_interval: Turns between two reminders to review memory; 0 for none.
        flush_min_turns: Turns of the person that a session needs before its memory is flushed; 0 for never.
    """

    memory_enabled: bool = True
    user_profile_enabled: bool = True
    memory_char_limit: Positive = 2200
    user_char_limit: Positive = 1375
    project: Literal["off", "auto"] = "off"
    project_char_limit: Positive = 2200
    per_user: bool = True
    shared_base: str = ""
    trust: Literal["open", "guarded", "strict"] = "guarded"
    judge: bool = True
    waiting_days: Count = 90
    refresh: Literal["session", "append"] = "session"
    mirror: bool = True
    profile_fields: Annotated[tuple[Any, ...], _PROFILE_FIELDS] = ()
    trusted_tools: Names = TRUSTED_TOOLS
    trusted_clients: Names = ()
    accepted_origins: Annotated[Names, {"choices": LOW_ORIGINS}] = ()
    provider: str = ""
    nudge_interval: Count = 10
    flush_min_turns: Count = 6

    def __post_init__(self) -> None:
        force_setattr(self, "provider", provider_name(self.provider))


class CompositeConfig(Block, frozen=True):
    """The `composite:` block: several external providers at once, if `memory.provider` is `composite`.

    Each of the lists of writes names some members; if it is not set, all of them.

    Attributes:
        members: Names of one to four providers; the first comes first where only one can.
        turns: Members that get the turns of conversations; not set, all.
        notes: Members that get the changes of MEMORY.md and USER.md; not set, all.
        facts: Members whose tools the model gets, to store and find facts; not set, all. Together at most
            twelve tools.
        delegation: Members that get the results of subagents; not set, all.
    """

    members: Names = ()
    turns: Names | None = None
    notes: Names | None = None
    facts: Names | None = None
    delegation: Names | None = None


class IdentityConfig(Block, frozen=True):
    """The `identity:` block: who the person at home is on other platforms.

    Attributes:
        owners: Ids of the person at home on other platforms, as PLATFORM:USER_ID or PLATFORM/CHAT_ID: they
            share its notes, skills, sessions and provider.
    """

    owners: Annotated[Names, _OWNERS] = ()


class RecallConfig(Block, frozen=True):
    """The `recall:` block: the memory that a turn gets before the model sees it.

    Attributes:
        sessions: Past sessions: in every turn in which they seem to answer the message, or only when the
            model asks for them. In a group, only when it asks.
        semantic: Search past sessions by meaning as well: when the package hermes-memory-semantic is
            installed, or never. HERMES_SEMANTIC comes first.
        embeddings: Model of search by meaning: the one of the package hermes-memory-semantic on this machine,
            or a server with OpenAI's /embeddings, to which the texts of all past sessions are sent.
        embeddings_url: Address of the server of embeddings, with its /v1.
        embeddings_model: Name of the model of embeddings, as the server knows it.
        embeddings_key_env: Environment variable, or name in .env, that holds the server's key; may be unset.
        rerank: Order of what a search of past sessions found: its own, or that of a server with a reranking model, to
            which the question and the texts are sent. It needs the package hermes-memory-rerank.
        rerank_form: API of the reranking server.
        rerank_url: Address of the reranking server; its path, if it has one, is what stands before /rerank.
        rerank_model: Name of the reranking model, as the server knows it.
        rerank_key_env: Environment variable, or name in .env, that holds the reranking server's key; may be unset.
        budget: Tokens that recall may take in one turn.
        deadline: Seconds that a turn waits for an external provider's recall. If it is not set, 8 for a
            provider written for Hermes Agent, as there.
    """

    sessions: Literal["on_request", "auto"] = "auto"
    semantic: Literal["auto", "off"] = "auto"
    embeddings: Literal["minilm", "http"] = "minilm"
    embeddings_url: str = ""
    embeddings_model: str = ""
    embeddings_key_env: str = "EMBEDDINGS_API_KEY"
    rerank: Literal["off", "http"] = "off"
    rerank_form: Literal["cohere", "jina", "tei", "llama.cpp"] = "jina"
    rerank_url: str = ""
    rerank_model: str = ""
    rerank_key_env: str = "RERANK_API_KEY"
    budget: Count = 1500
    deadline: Annotated[float, Meta(ge=0.05, le=600)] = 5.0

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


class SessionsConfig(Block, frozen=True):
    """The `sessions:` block: the store of past conversations.

    Attributes:
        search_enabled: Offer the model the tool `session_search`.
        journal_mode: SQLite journal of state.db; `auto` asks the file system whether it carries a write-ahead
            log.
        turn_expiry_hours: Hours without a message after which an unfinished turn of a host is deleted.
        retention: Days after which a conversation without a message is deleted by itself, unless it is
            pinned; not set, never.
    """

    search_enabled: bool = True
    journal_mode: Literal["auto", "wal", "delete"] = "auto"
    turn_expiry_hours: Annotated[float, Meta(ge=0.01)] = 24.0
    retention: Annotated[int | None, Meta(ge=1)] = None


class StorageConfig(Block, frozen=True):
    """The `storage:` block: where sessions and the outbox are. `storage: URL` sets the address alone.

    Attributes:
        url: Address of a PostgreSQL server that several machines share, such as
            postgresql://hermes@db1,db2/hermes. Not set, the sessions are in state.db of the home. The
            password is HERMES_STORAGE_PASSWORD in .env, or in the file of PGPASSFILE; it must not stand here.
        schema: The schema with the tables of this home: each home has one of its own. The default of the
            profile NAME is hermes_NAME.
        pool: Largest number of connections of one process.
        prepare: `off` behind PgBouncer before 1.21 in transaction mode, which can't keep prepared statements.
        local_host: Name of the one machine that may use a provider which keeps files of its own, as
            `hostname` prints it.
    """

    url: str = ""
    schema: str = "hermes"
    pool: Annotated[int, Meta(ge=1, le=200)] = 8
    prepare: Literal["auto", "off"] = "auto"
    local_host: str = ""


class BackupConfig(Block, frozen=True):
    """The `backup:` block: backups that a program of the home makes by itself when a session begins.

    Attributes:
        every: Hours between two backups; not set, none is made by itself.
        keep: Backups that stay in the folder; older ones are deleted.
        folder: Folder of the backups; a relative one lies in the home. Name one on another disk.
    """

    every: Annotated[float | None, Meta(ge=0.1)] = None
    keep: Positive = 7
    folder: str = "backups"


class ProvidersConfig(Block, frozen=True):
    """The `providers:` block: which packages may be loaded at all, by provider or distribution name.

    Attributes:
        allow: Load these and no others; an empty list loads none. HERMES_LOAD_PROVIDERS (a comma list) comes
            first.
        block: Never load these.
    """

    allow: Names | None = None
    block: Names = ()


class ExtensionsConfig(Block, frozen=True):
    """The `extensions:` block: which extensions may be loaded, by extension or distribution name, and their order.

    Attributes:
        allow: Load these and no others; an empty list loads none.
        block: Never load these.
        order: Call these first, in this order; the others by name.
    """

    allow: Names | None = None
    block: Names = ()
    order: Names = ()


class PackagesConfig(Block, frozen=True):
    """The `packages:` block: places that have the packages of this project, which are on no public index.

    Attributes:
        find_links: Folders with wheels, as `make dist` fills one.
        index: Address of a package index of your own that has them.
    """

    find_links: Names = ()
    index: str = ""


class ModelConfig(Block, frozen=True):
    """The `model:` block: the language model of the agent, behind any OpenAI-compatible server.

    Attributes:
        base_url: Address of the server, with its /v1.
        name: Name of the model, as the server knows it.
        api_key_env: Environment variable, or name in .env, that holds the key; may be unset.
        context_length: Tokens that a request and its answer may have.
        timeout: Seconds without a word from the server.
        retries: Further tries when the server is busy or down.
    """

    base_url: str = "https://api.openai.com/v1"
    name: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    context_length: Annotated[int, Meta(ge=1024)] = 32768
    timeout: Annotated[float, Meta(ge=0.1, le=3600)] = 120.0
    retries: Annotated[int, Meta(ge=0, le=20)] = 4


class AuxiliaryConfig(Block, frozen=True):
    """The `auxiliary:` block: a model for summaries, reviews and curation. A key that is not set is as in `model:`.

    Attributes:
        base_url: Address of the server.
        name: Name of the model; not set, the agent's own does this work.
        api_key_env: Name of the variable that holds the key.
        context_length: Tokens of its context.
    """

    base_url: str | None = None
    name: str | None = None
    api_key_env: str | None = None
    context_length: Annotated[int | None, Meta(ge=1024)] = None


class AgentConfig(Block, frozen=True):
    """The `agent:` block: the course of a turn, and the compression of a long conversation.

    Attributes:
        max_iterations: Requests to the model in one turn, the last of which is for an answer without tools.
        result_limit: Characters of one tool's result; at most as many as `model.context_length` says.
        compress_at: Share of the context at which the conversation is summarised.
        checkpoint_required: Compress only after a provider has stored a checkpoint of the messages; else the
            conversation stays as it is.
        protect_first: Messages at the start that are never summarised.
        protect_last: Messages at the end that are not, as far as they fit.
        trust_folder: The AGENTS.md or CLAUDE.md of the working folder in the prompt: `ask` asks before the
            first time in `chat` and leaves it out elsewhere until it is trusted, `yes` takes it, `no` leaves
            it out.
        review: Review the conversation every `memory.nudge_interval` turns.
        flush_seconds: Seconds that saving at a session's end may take; where a SIGTERM or the program's end
            ends it, 8 at most.
        cadence_turns: Turns after which providers get the session end of a chat that never ends; 0 for never.
        cadence_minutes: Minutes of quiet that must come before that.
        monitor_minutes: Minutes between two lines on this process in the log of `hermes-memory chat`; 0 for
            none.
    """

    max_iterations: Positive = 40
    result_limit: Annotated[int, Meta(ge=1000)] = 40_000
    compress_at: Annotated[float, Meta(ge=0.1, le=0.95)] = 0.75
    checkpoint_required: bool = False
    protect_first: Count = 3
    protect_last: Positive = 6
    trust_folder: Literal["ask", "yes", "no"] = "ask"
    review: bool = True
    flush_seconds: Duration = 8.0
    cadence_turns: Count = 20
    cadence_minutes: Duration = 30.0
    monitor_minutes: Annotated[float, Meta(ge=0, le=10_080)] = 0.0


class ToolsetsConfig(Block, frozen=True):
    """The `enabled_toolsets:` block: the toolsets that the model gets on each platform, all if the key is not set.

    A host may name platforms of its own.
    """

    platforms: dict[str, tuple[str, ...]] = {}

    def get(self, name: str) -> tuple[str, ...] | None:
        """Return the toolsets of this platform, None for all."""
        return self.platforms.get(name)

    def with_value(self, name: str, value: Any) -> Self:
        """Return the block with other toolsets for one platform."""
        return replace(self, platforms={**self.platforms, name: value})


class SkillsConfig(Block, frozen=True):
    """The `skills:` block: procedures that the agent wrote down.

    Attributes:
        enabled: List skills in the prompt and offer the tools `skill_view` and `skill_manage`.
        external_dirs: Further folders of skills, for reading only; a relative one lies in the home.
    """

    enabled: bool = True
    external_dirs: Names = ()


class CuratorConfig(Block, frozen=True):
    """The `curator:` block: curation of MEMORY.md and USER.md.

    Attributes:
        auto: Curate in the background, and apply what `hermes-memory memory curate` proposes without asking.
        hours: Hours between two curations of a file that changed meanwhile.
    """

    auto: bool = False
    hours: Duration = 24.0


class TelemetryConfig(Block, frozen=True):
    """The `telemetry:` block: spans and metrics for OpenTelemetry, with the package hermes-memory-telemetry.

    Attributes:
        enabled: Make spans and metrics of memory. The OpenTelemetry SDK of the program decides where they go.
        content: Put the text of questions, recall and turns into spans. Not set, as
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, else false.
    """

    enabled: bool = False
    content: bool | None = None


class Config(Struct, frozen=True):
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


_PARTS = zip(Config.__struct_fields__, Config.__struct_defaults__, strict=True)

BLOCKS: Mapping[str, type[Block]] = {name: type(part) for name, part in _PARTS if isinstance(part, Block)}
"""Class of every block of ours, by its name in config.yaml."""

PLATFORMS = ("cli", "telegram", "discord", "slack", "whatsapp", "signal", "email", "api", "cron")
"""Those that the `enabled_toolsets:` block knows."""


@functools.cache
def _keys_of(block: str) -> Mapping[str, Field]:
    """Return the keys of a block, by their dotted names."""
    if block == "enabled_toolsets":
        return {f"{block}.{platform}": key_of_platform(platform) for platform in PLATFORMS}
    cls = BLOCKS[block]
    listed = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")[2]
    texts = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", listed, re.MULTILINE)
    helps = {name: {"help": " ".join(text.split())} for name, text in texts}
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        f"{block}.{name}": field_of(f"{block}.{name}", hints[name], default, **helps.get(name, {}))
        for name, default in zip(cls.__struct_fields__, cls.__struct_defaults__, strict=True)
    }


class _Keys(Mapping[str, Field]):
    """Keys by their dotted names. A block is read when one of its keys is asked for."""

    def __getitem__(self, name: str) -> Field:
        block = name.partition(".")[0]
        if block not in BLOCKS:
            raise KeyError(name)
        return _keys_of(block)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for block in BLOCKS for name in _keys_of(block))

    def __len__(self) -> int:
        return sum(len(_keys_of(block)) for block in BLOCKS)

    def __repr__(self) -> str:
        return "<the keys of config.yaml>"


KEYS: Mapping[str, Field] = _Keys()
"""Every key that config.yaml may hold for us, by its dotted name."""


def key_of_platform(platform: str) -> Field:
    """Return the key for the toolsets of a platform, also of one that only the host knows."""
    return field_of(f"enabled_toolsets.{platform}", _Toolsets)

"""Our providers inside Hermes Agent: the opposite direction of `adapter`.

`hermes_core.register_in_hermes_agent(ctx, name)` gives Hermes Agent an object in the shape that it knows. Behind the object stands a
`MemoryManager`, so that a provider has there what it has here: durable writes with retries, deadlines, a breaker,
redaction. Hermes Agent's own `state.db` is not touched; the outbox is a file of ours in its home.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from hermes_core import HermesHome, MemoryManager, load_provider
from hermes_core.contract.values import (
    AgentContext,
    Availability,
    Delegation,
    Field,
    MemoryWrite,
    Message,
    Query,
    Session,
    SessionSwitch,
    SwitchReason,
    ToolCall,
    Turn,
)
from hermes_core.errors import HermesError, ProviderUnavailable
from hermes_core.kit import load_settings, redact, save_settings
from hermes_core.loader.entry_points import LoadControl
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.loader.load import LoadedProvider
from hermes_memory_foreign.host_tools import flatten_message_text
from hermes_memory_foreign.turn_authors import author_text

log = logging.getLogger(__name__)

# Hermes Agent waits for shutdown. Writes that are not sent by then stay in the outbox until the next start.
SHUTDOWN_TIMEOUT_S = 8.0

_SWITCH_REASONS: Mapping[str, SwitchReason] = {
    "new_session": "new",
    "resume": "resume",
    "branch": "branch",
    "compression": "compression",
}
_TYPES: Mapping[Any, str] = {str: "text", int: "integer", float: "number", bool: "boolean"}


def host_name(name: str) -> str:
    """Return the name of our provider inside Hermes Agent, whose own providers have the plain names.

    >>> host_name("holographic")
    'core-holographic'
    """
    return f"core-{name}"


def exported_provider(name: str, called: str = "") -> HostedProvider:
    """Return the object for Hermes Agent.

    It subclasses the host's own base class if there is one, whose defaults answer for newer members.
    """
    # Not importable when a test or our own command makes the object.
    try:
        from agent.memory_provider import (  # type: ignore[import-not-found,unused-ignore]
            MemoryProvider as HostBase,
        )
    except ImportError:
        return HostedProvider(name, called or host_name(name))
    kind: type[HostedProvider] = type("HostedProvider", (HostedProvider, HostBase), {})
    return kind(name, called or host_name(name))


class HostedProvider:
    """A provider with the hooks of Hermes Agent outside and a `MemoryManager` with our provider inside."""

    name = ""

    def __init__(self, provider: str, called: str) -> None:
        self.name = called
        self._provider = provider
        self._home = host_home()
        self._loaded: LoadedProvider | None = None
        self._manager: MemoryManager | None = None
        self._manager_lock = threading.Lock()
        self._session = Session(f"{called}-before-start", home=str(self._home.path))
        self._reason = ""
        self._turn = 0
        self._compressed: dict[str, int] = {}

    # ------------------------------------------------------------------ setup

    def is_available(self) -> bool:
        """Return True if it loads and says that it can run here; else `unavailable_reason` says why not."""
        try:
            answer = self._availability()
        except HermesError as exc:
            answer = Availability.no(exc.message, exc.remedy)
        self._reason = redact("; ".join(filter(None, (answer.reason, answer.remedy))))
        if not answer:
            log.warning("memory provider %r can't run: %s", self.name, self._reason)
        return answer.ok

    def unavailable_reason(self) -> str:
        """Return why the last `is_available` returned False, and what to do."""
        return self._reason

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return the settings that a setup asks for, in the host's form."""
        return [_host_field(field) for field in self._load().settings if not field.advanced]

    def save_config(self, values: Mapping[str, Any], hermes_home: str) -> None:
        """Save settings that are no secrets to `$HERMES_HOME/<name>.json`. Raises `ConfigError` for a wrong value."""
        fields = [field for field in self._load().settings if not field.secret]
        known = {field.name for field in fields}
        changed = {key: value for key, value in values.items() if key in known and value not in (None, "")}
        save_settings(fields, Path(hermes_home), self._provider, changed)

    def get_status_config(self, provider_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings in force, secrets masked, in place of the host's own section for it."""
        del provider_config
        return load_settings(self._load().settings, self._home.path, self._provider).as_dict()

    def backup_paths(self) -> list[str]:
        """Return the paths that it keeps outside the home."""
        provider = self._load().factory()
        with self._home.asking():
            paths = call_foreign(lambda: [str(path) for path in getattr(provider, "backup_paths", list)()])
        return [] if isinstance(paths, ForeignError) else paths

    # ------------------------------------------------------------------ start

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return its tools."""
        return self._held().get_all_tool_schemas()

    def initialize(self, session_id: str, **facts: Any) -> None:
        """Start it for this session. A start that takes longer than two seconds goes on in the background."""
        home = str(facts.get("hermes_home") or self._home.path)
        # Hermes Agent switched its profile: the provider of the old home must not see the new one.
        if Path(home) != self._home.path:
            self.shutdown()
            self._home, self._loaded, self._manager = HermesHome(Path(home)), None, None
        self._session = _session(session_id, home, facts)
        self._held().initialize_all(self._session)

    def system_prompt_block(self) -> str:
        """Return its block."""
        return self._held().build_system_prompt(self._session)

    # ------------------------------------------------------------------- turn

    def on_turn_start(self, turn_number: int, message: str, **facts: Any) -> None:
        """Pass on the number, the message and its author."""
        self._turn = turn_number
        author = {key: facts.get(f"author_{key}") for key in ("id", "name", "is_bot")}
        self._held().on_turn_start(turn_number, _words(message), self._session, author=author_text(author))

    def prefetch(self, query: str, *, session_id: str = "", **_: Any) -> str:
        """Return the recall, within the deadline of our `prefetch`. Hermes Agent puts its own fence around it."""
        if not _words(query):
            return ""
        recall = self._held().prefetch_all(Query(_words(query)), self._of(session_id))
        return "\n\n".join(text for _label, text in recall.contexts)

    def queue_prefetch(self, query: str, *, session_id: str = "", **_: Any) -> None:
        """Warm the recall for the next turn."""
        if words := _words(query):
            self._held().queue_prefetch_all(Query(words), self._of(session_id))

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Sequence[Mapping[str, Any]] | None = None,
        turn_author: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Store a turn: it is on disk when this returns, and is sent in the background until it is accepted.

        A turn in which the person said nothing, such as a skill command alone, is not stored.
        """
        words = _words(user_content)
        if not words.strip():
            return
        turn = Turn(
            id=uuid.uuid4().hex,
            number=self._turn,
            user=words,
            assistant=assistant_content,
            messages=_last_turn(messages or ()),
            author=author_text(turn_author),
            at=time.time(),
        )
        self._held().sync_all(turn, self._of(session_id))

    def handle_tool_call(self, tool_name: str, args: Mapping[str, Any], **_: Any) -> str:
        """Run one of its tools and return the text for the model."""
        return self._held().handle_tool_call(ToolCall(tool_name, args), self._session)

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Store a change of MEMORY.md or USER.md durably for the provider."""
        facts = {key: value for key, value in (metadata or {}).items() if isinstance(value, str)}
        write = MemoryWrite(
            id=uuid.uuid4().hex,
            action=action,  # type: ignore[arg-type]
            target=target,  # type: ignore[arg-type]
            content=content or "",
            old_text=facts.pop("old_text", ""),
            previous=facts.pop("previous_content", ""),
            metadata=facts,
        )
        self._held().on_memory_write(write, self._session)

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **_: Any) -> None:
        """Store the work of a subagent durably for the provider."""
        delegation = Delegation(uuid.uuid4().hex, task, result, child_session_id)
        self._held().on_delegation(delegation, self._session)

    # --------------------------------------------------------------- boundary

    def on_pre_compress(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> str:
        """Return the provider's text for the summary."""
        count = self._compressed.get(self._session.id, 0)
        self._compressed[self._session.id] = count + 1
        return self._held().on_pre_compress(_texts(messages), count, self._session)

    def on_session_end(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> None:
        """Store the end of the session durably, after its turns."""
        self._held().on_session_end(self._session, "close", messages=_texts(messages))

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        reason: str = "",
        **_: Any,
    ) -> None:
        """Go on with the conversation under another session id.

        Hermes Agent does not say which turns a rewind removed, so the provider keeps those that it already has.
        """
        old, new = self._session, replace(self._session, id=new_session_id, parent_id=parent_session_id)
        kind: SwitchReason = (
            "rewind" if rewound else _SWITCH_REASONS.get(reason, "reset" if reset else "resume")
        )
        self._session = old if rewound else new
        self._held().on_session_switch(SessionSwitch(uuid.uuid4().hex, old, self._session, kind, reset))

    def shutdown(self) -> None:
        """Close it within `SHUTDOWN_TIMEOUT_S`. Writes that are not sent by then go out at the next start."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.shutdown_all(SHUTDOWN_TIMEOUT_S)

    # ----------------------------------------------------------------- private

    def _load(self) -> LoadedProvider:
        if self._loaded is None:
            # Hermes Agent chose the provider, and its config.yaml has none of our allow and block lists.
            self._loaded = load_provider(self._provider, self._home, LoadControl())
        return self._loaded

    def _held(self) -> MemoryManager:
        """Return the manager that holds the provider. Raises `ProviderUnavailable` if it refuses the provider."""
        with self._manager_lock:  # Hermes Agent calls on several threads, and the manager must be made once
            if self._manager is not None:
                return self._manager
            loaded = self._load()
            settings, name = loaded.settings, loaded.entry.name

            def fingerprint() -> str:
                identifies = any(field.identity for field in settings)
                return load_settings(settings, self._home.path, name).fingerprint if identifies else ""

            manager = MemoryManager(self._home)
            if not manager.add_provider(loaded.factory, name=self._provider, fingerprint=fingerprint):
                reasons = "; ".join(health.reason for health in manager.health())
                manager.shutdown_all(SHUTDOWN_TIMEOUT_S)
                raise ProviderUnavailable(f"memory provider {self.name!r} is not active: {reasons}")
            self._manager = manager
            return manager

    def _availability(self) -> Availability:
        ask: Callable[[], Any] = getattr(self._load().factory(), "is_available", Availability)
        with self._home.asking():
            answer = call_foreign(ask)
        if isinstance(answer, ForeignError):
            return Availability.no(f"is_available() raised {answer}")
        if isinstance(answer, Availability):
            return answer
        return Availability() if answer else Availability.no("it says that it can't run here")

    def _of(self, session_id: str) -> Session:
        """Return the session that a call names, or the session of `initialize` if it names none."""
        return replace(self._session, id=session_id) if session_id else self._session


def host_home() -> HermesHome:
    """Return the home that Hermes Agent uses now, or ours if Hermes Agent is not installed."""
    try:
        from hermes_constants import (  # type: ignore[import-not-found,unused-ignore]
            get_hermes_home,
        )
    except ImportError:
        return HermesHome.resolve()
    home: str | os.PathLike[str] = get_hermes_home()
    return HermesHome(Path(home))


def _session(session_id: str, home: str, facts: Mapping[str, Any]) -> Session:
    """Return the session that the facts of Hermes Agent describe.

    An unknown `agent_context` becomes "subagent", whose writes reach no provider.
    """
    context = str(facts.get("agent_context") or "primary")
    names = {
        "platform": "platform",
        "identity": "agent_identity",
        "workspace": "agent_workspace",
        "parent_id": "parent_session_id",
        **{key: key for key in ("user_id", "user_name", "chat_id", "chat_name", "chat_type", "thread_id")},
        **{key: key for key in ("gateway_session_key", "user_id_alt")},
    }
    identity = {ours: str(facts[theirs]) for ours, theirs in names.items() if facts.get(theirs)}
    known: AgentContext = context if context in get_args(AgentContext) else "subagent"  # type: ignore[assignment]
    return Session(id=session_id, agent_context=known, home=home, **identity)  # type: ignore[arg-type]


def _texts(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Return the host's messages with plain text. Parts that are no text are left out."""
    texts: list[Message] = []
    for message in messages:
        content = message.get("content")
        role, text = str(message.get("role", "")), flatten_message_text(content)
        known = {key: message[key] for key in ("tool_calls", "tool_call_id", "name") if message.get(key)}
        texts.append(Message(role=role, content=_words(text) if role == "user" else text, **known))  # type: ignore[typeddict-item]
    return texts


def _words(text: str) -> str:
    """Return the person's words in their message, without a skill that Hermes Agent put into it."""
    from hermes_core.safety.skill_messages import words_beside_skill

    words = words_beside_skill(text) if isinstance(text, str) else ""
    return text if words is None else words


def _last_turn(messages: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return the messages of the turn itself: Hermes Agent passes the whole conversation."""
    texts = _texts(messages)
    starts = [index for index, message in enumerate(texts) if message["role"] == "user"]
    return tuple(texts[starts[-1] :]) if starts else tuple(texts)


def _host_field(field: Field) -> dict[str, Any]:
    """Return one setting in the form of the host's `get_config_schema`."""
    default = {} if field.default is None else {"default": field.default}
    facts: dict[str, Any] = {
        "key": field.name,
        "description": field.help,
        "type": _TYPES.get(field.type, "text"),
        "secret": field.secret,
        "required": field.required,
        "choices": list(field.choices),
        "minimum": field.minimum,
        "maximum": field.maximum,
        "env_var": field.env
        if field.secret
        else "",  # Hermes Agent reports a variable as missing if it is not set
        "url": field.url,
        "when": dict(field.when),
    }
    empty: tuple[Any, ...] = (None, "", [], {})
    return {key: value for key, value in facts.items() if value not in empty and value is not False} | default

"""Runs a provider written for Hermes Agent behind our hooks, unmodified.

`adapt(...)` wraps one object. The wrapped signatures drifted over the years, so every call is cut to what the method
takes: text goes by position, `session_id` and what else the host offers by keyword, and optional extras only to a
method that names them. Results are accepted as they come: None is nothing, a dict from a tool becomes JSON.

These providers keep their session on `self`, so there is one object for each session (`scope="session"`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes_core.config import Credentials
from hermes_core.contract.hooks import HOOK_NAMES, TranscriptReader
from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import (
    Availability,
    Capabilities,
    Delegation,
    EndReason,
    MemoryWrite,
    Message,
    Query,
    Recall,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.errors import ProviderInvalid, SetupFailed
from hermes_core.home import HermesHome
from hermes_core.loader import hermes_modules
from hermes_core.loader.foreign import Failure, attempt
from hermes_core.loader.hermes_calls import as_text, call_as_taken, defines, shape, tool_schema
from hermes_core.loader.hermes_commands import commands_of_module
from hermes_core.loader.hermes_home import call_in, environment_of, hold_environment, release_environment
from hermes_core.loader.hermes_hooks import HostHooks
from hermes_core.loader.hermes_settings import settings_of
from hermes_core.loader.registration import HostCommand, RegisteredTool, Registrations

logger = logging.getLogger(__name__)

_ALWAYS = frozenset({"is_available", "initialize", "get_tool_schemas", "shutdown"})
_NEVER = frozenset({"check", "register_cli"})
_SWITCH_REASONS: dict[str, str] = {"new": "new_session", "reset": "new_session"}


def adapt(
    wrapped: Any, name: str, home: HermesHome, registrations: Registrations, module: str = ""
) -> HermesAgentProvider:
    """A provider of ours around `wrapped`, called `name`, with only the hooks that it really has.

    What it lacks is None on the adapter's class, and pluggy passes over that. `module` is where it was found; commands
    are looked for beside it.
    """
    claimed = {hook for hook in HOOK_NAMES if hook in _ALWAYS or defines(wrapped, hook)}
    for method in sorted(claimed):
        if inspect.iscoroutinefunction(getattr(wrapped, method, None)):
            raise ProviderInvalid(
                f"provider {name!r} breaks the contract: {method}() is async, and Hermes Agent waits for none",
                "write it as a plain function, or subclass hermes_core.MemoryProvider, whose hooks may be async",
            )
    claimed |= HostHooks(registrations.hooks, home.path).moments
    if registrations.tools:
        claimed.add("handle_tool_call")
    members: dict[str, Any] = dict.fromkeys(HOOK_NAMES - claimed | _NEVER)
    with call_in(home.path):
        members.update(name=name, settings=settings_of(wrapped), __doc__=type(wrapped).__doc__)
    adapter: type[HermesAgentProvider] = type("HermesAgentProvider", (HermesAgentProvider,), members)
    return adapter(wrapped, home, registrations, module)


class HermesAgentProvider(MemoryProvider):
    """Our hooks on the outside, the published ones of Hermes Agent on the inside. Made by `adapt`."""

    capabilities = Capabilities(scope="session")

    def __init__(self, wrapped: Any, home: HermesHome, registrations: Registrations, module: str) -> None:
        self.wrapped = wrapped
        self.registrations = registrations
        self._home = home
        self._module = module
        self._hooks = HostHooks(registrations.hooks, home.path)
        self._active = False

    # ------------------------------------------------------------------ setup

    def is_available(self) -> Availability:
        """Its own answer; the reason is its own too, or the settings that are still empty."""
        with environment_of(self._home.path):
            if self.wrapped.is_available():
                return Availability()
            given = attempt(lambda: as_text(self.wrapped.unavailable_reason()))
        reason = given if isinstance(given, str) and given else "it says that it can't run here"
        return Availability.no(reason, self._what_to_do())

    def _what_to_do(self) -> str:
        """What to do when it can't run: the secrets that are still to set, else the setup that asks for the rest."""
        secrets = Credentials(self._home)
        missing = [field.env for field in self.settings if field.required and field.env]
        unset = [name for name in missing if not secrets.get(name)]
        if unset:
            return f"set {', '.join(unset)}"
        setup = f"hermes-memory memory setup {self.name}, and " if self.settings or self.has_setup else ""
        return f"{setup}see its documentation"

    def backup_paths(self) -> list[str]:
        """Paths outside the home."""
        return [str(path) for path in self._call("backup_paths") or ()]

    def store_settings(self, values: Mapping[str, Any]) -> None:
        """Hand settings that are no secrets to the provider's own store (`save_config`), if it has one.

        Raises `SetupFailed` when it does not take them.
        """
        if not defines(self.wrapped, "save_config"):
            return
        kept = attempt(lambda: self._call("save_config", dict(values), str(self._home.path)))
        if isinstance(kept, Failure):
            raise SetupFailed(
                f"{self.name!r} does not keep these settings: {kept}",
                f"correct the one it speaks of: hermes-memory memory setup {self.name}",
            )

    @property
    def has_setup(self) -> bool:
        """Whether it brings a wizard of its own."""
        return defines(self.wrapped, "post_setup")

    @property
    def own_name(self) -> str:
        """What it calls itself, which may differ from the name that people select it by."""
        given = attempt(lambda: as_text(self.wrapped.name))
        return given if isinstance(given, str) else ""

    def run_setup(self) -> None:
        """Run its wizard (`post_setup`), which asks on the terminal, keeps the answers and selects it. Raises `SetupFailed`."""
        with environment_of(self._home.path):
            words = (str(self._home.path), hermes_modules.load_config())
            done = attempt(lambda: call_as_taken(self.wrapped.post_setup, *words))
        if isinstance(done, Failure):
            raise SetupFailed(
                f"the setup of {self.name} ended with {done}",
                f"what it saved stays; hermes-memory memory setup {self.name} --set NAME=VALUE goes without it",
            )

    def host_commands(self) -> list[HostCommand]:
        """Its own command first, if it has one, then those that it registered under other names."""
        with environment_of(self._home.path):
            own = [*commands_of_module(self._module, self.name)][:1]
            own = own or [*commands_of_module(type(self.wrapped).__module__, self.name)][:1]
        return [*own, *self.registrations.commands]

    # ------------------------------------------------------------------ start

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Its tools and those it registered beside itself, in the form `name, description, parameters`."""
        own = [tool_schema(raw) for raw in self._call("get_tool_schemas") or ()]
        names = {schema["name"] for schema in own}
        beside = [tool_schema(tool.schema) for tool in self._tools().values() if tool.name not in names]
        return [*own, *beside]

    def initialize(self, session: Session) -> None:
        """Start it with what its host would tell; `user_id` is left out on the command line, as there.

        From then until `shutdown` the environment has HERMES_HOME and the secrets of `.env`, which many read there.
        """
        facts = {"hermes_home": str(self._home.path), **dict(_identity(session))}
        first = shape(self.wrapped.initialize).positions
        by_position = (session.id,) if first and "session_id" not in first else ()
        with environment_of(self._home.path):
            call_as_taken(self.wrapped.initialize, *by_position, facts=facts)
            if not self._active:
                self._active = True
                hold_environment(self._home.path, self.name)
            self._hooks.started(session)

    def system_prompt_block(self) -> str:
        """Its block, "" for None."""
        return as_text(self._call("system_prompt_block"))

    # ------------------------------------------------------------------- turn

    def on_turn_start(self, turn_number: int, message: str, session: Session) -> None:
        """The turn's number and message, and who speaks."""
        author = {"author_id": session.user_id, "author_name": session.user_name} if session.user_id else {}
        self._call("on_turn_start", turn_number, message, extras={"platform": session.platform, **author})

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Its text; None and blanks are an empty recall.

        Many of these providers answer only what `queue_prefetch` has warmed. When nothing is warm, this very message
        is queued and asked for once more, so that the first turn of a process has its recall too.
        """
        found = self._recalled(query, session)
        if not found.strip() and defines(self.wrapped, "queue_prefetch"):
            self.queue_prefetch(query, session)
            found = self._recalled(query, session)
        added = self._hooks.asked(query, session)
        return Recall(text="\n\n".join(filter(None, (found, added))) if added else found)

    def _recalled(self, query: Query, session: Session) -> str:
        return as_text(self._call("prefetch", query.text, facts={"session_id": session.id}))

    def queue_prefetch(self, query: Query, session: Session) -> None:
        """Warm it up; what it found comes with its next `prefetch`."""
        self._call("queue_prefetch", query.text, facts={"session_id": session.id})

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run its tool, or one it registered beside itself; the result is text as it comes."""
        arguments = dict(call.arguments)
        beside = self._tools().get(call.name)
        if beside is not None and call.name not in self._own_tools():
            with call_in(self._home.path):
                return as_text(call_as_taken(beside.handler, arguments, extras={"session_id": session.id}))
        return as_text(
            self._call("handle_tool_call", call.name, arguments, extras={"session_id": session.id})
        )

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """The two texts; messages, author and the turn's id to those that take them."""
        extras: dict[str, Any] = {"turn_id": turn.id}
        author = turn.author or session.user_name
        if session.user_id or author:
            extras["turn_author"] = {"id": session.user_id, "name": author, "is_bot": False}
        facts: dict[str, Any] = {"session_id": session.id}
        if turn.messages:
            facts["messages"] = [dict(message) for message in turn.messages]
        self._call("sync_turn", turn.user, turn.assistant, facts=facts, extras=extras)
        self._hooks.answered(turn, session)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """The change, with `old_text` and its origin in the metadata."""
        self._call(
            "on_memory_write",
            write.action,
            write.target,
            write.content,
            facts={"metadata": _write_metadata(write, session)},
        )

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """The task and its result."""
        facts = {"child_session_id": delegation.child_session_id}
        self._call(
            "on_delegation",
            delegation.task,
            delegation.result,
            facts=facts,
            extras={"session_id": session.id},
        )

    # --------------------------------------------------------------- boundary

    def on_pre_compress(self, messages: Sequence[Message]) -> str:
        """Its text for the summary, "" for None."""
        given = [dict(message) for message in messages]
        return as_text(self._call("on_pre_compress", given, extras={"require_checkpoint": False}))

    def on_session_end(self, reader: TranscriptReader, reason: EndReason, session: Session) -> None:
        """All messages of the session."""
        messages = [dict(message) for message in reader.messages()]
        self._call("on_session_end", messages, extras={"session_id": session.id, "reason": reason})
        self._hooks.ended(reason, session)

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """The new id; `rewound` is passed only when turns were taken back."""
        facts: dict[str, Any] = {
            "parent_session_id": _parent_of(switch),
            "reset": switch.reset,
            "reason": _SWITCH_REASONS.get(switch.reason, switch.reason),
        }
        if switch.reason == "rewind":
            facts["rewound"] = True
        self._call("on_session_switch", switch.new.id, facts=facts)
        self._hooks.switched(switch)

    # -------------------------------------------------------------------- end

    def shutdown(self) -> None:
        """Close it; its environment ends with it."""
        try:
            self._call("shutdown")
        finally:
            if self._active:
                self._active = False
                release_environment(self._home.path)

    # ------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        *values: Any,
        facts: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
    ) -> Any:
        """Its method, cut to what it takes; None when it has none and only a hook beside it wanted the moment."""
        function = getattr(self.wrapped, method, None)
        if not callable(function):
            return None
        with call_in(self._home.path):
            return call_as_taken(function, *values, facts=facts, extras=extras)

    def _own_tools(self) -> set[str]:
        return {tool_schema(raw)["name"] for raw in self._call("get_tool_schemas") or ()}

    def _tools(self) -> dict[str, RegisteredTool]:
        """Tools registered beside the provider that are offered now."""
        return {tool.name: tool for tool in self.registrations.tools if tool.check is None or tool.check()}


def _identity(session: Session) -> Iterator[tuple[str, str]]:
    """The keyword arguments of `initialize`; facts that are not known are left out."""
    yield "session_id", session.id
    yield "platform", session.platform
    yield "agent_context", session.agent_context
    optional = {
        "agent_identity": session.identity,
        "agent_workspace": session.workspace,
        "parent_session_id": session.parent_id,
        "chat_id": session.chat_id,
        "chat_name": session.chat_name,
        "chat_type": session.chat_type,
        "thread_id": session.thread_id,
        "gateway_session_key": session.gateway_session_key,
    }
    if session.platform != "cli":
        optional |= {"user_id": session.user_id, "user_name": session.user_name}
    yield from ((key, value) for key, value in optional.items() if value)


def _write_metadata(write: MemoryWrite, session: Session) -> dict[str, Any]:
    origin = "assistant_tool" if session.primary else "background_review"
    facts = {
        "write_origin": origin,
        "execution_context": "foreground" if session.primary else "background_review",
        "session_id": session.id,
        "parent_session_id": session.parent_id,
        "platform": session.platform,
        "tool_name": "memory",
        **write.metadata,
        "old_text": write.old_text,
        "previous_content": write.previous,
    }
    return {key: value for key, value in facts.items() if value}


def _parent_of(switch: SessionSwitch) -> str:
    if switch.reason == "rewind":
        return ""
    return switch.new.parent_id if switch.reason == "resume" else switch.old.id

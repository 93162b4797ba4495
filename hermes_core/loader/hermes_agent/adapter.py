"""Adapter that runs an unmodified provider written for Hermes Agent behind our hooks.

The signatures of these providers drifted over the years, so every call is cut to what the method takes: text goes by
position, `session_id` and other facts by keyword, and optional facts only to a method that names them. Results are
accepted as they come: None is nothing, a dict from a tool becomes JSON.

These providers keep their session on `self`, so each session has an object of its own (`scope="session"`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from functools import partial
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
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.loader.hermes_agent import host_modules
from hermes_core.loader.hermes_agent.calls import (
    bare_schema,
    call_accepted,
    overrides,
    positional_names,
    result_text,
)
from hermes_core.loader.hermes_agent.config_schema import settings_of
from hermes_core.loader.hermes_agent.environment import (
    call_in,
    environment_of,
    hold_environment,
    release_environment,
)
from hermes_core.loader.hermes_agent.registration import (
    HOOKS,
    HostCommand,
    RegisteredTool,
    Registrations,
    module_command,
)

logger = logging.getLogger(__name__)

_ALWAYS = frozenset({"is_available", "initialize", "get_tool_schemas", "shutdown"})
_NEVER = frozenset({"check", "register_cli"})
_SWITCH_REASONS: dict[str, str] = {"new": "new_session", "reset": "new_session"}


def adapt(
    wrapped: Any,
    name: str,
    home: HermesHome,
    registrations: Registrations | None = None,
    module: str = "",
) -> HermesAgentProvider:
    """Return a provider of ours around `wrapped`, called `name`, with only the hooks that it really has.

    A hook that it lacks is None on the adapter's class, and pluggy passes over it.

    Args:
        registrations: What its package registered beside it.
        module: The module in which it was found; its commands are looked for beside it.
    """
    registrations = registrations or Registrations()
    hooks = {hook for hook in HOOK_NAMES if hook in _ALWAYS or overrides(wrapped, hook)}
    for method in sorted(hooks):
        if inspect.iscoroutinefunction(getattr(wrapped, method, None)):
            raise ProviderInvalid(
                f"provider {name!r} breaks the contract: {method}() is async, and Hermes Agent waits for none",
                "write it as a plain function, or subclass hermes_core.MemoryProvider, whose hooks may be async",
            )
    hooks |= {HOOKS[hook] for hook, _ in registrations.hooks}
    if registrations.tools:
        hooks.add("handle_tool_call")
    # A class of its own, because pluggy looks at the class for the hooks that exist.
    members: dict[str, Any] = dict.fromkeys(HOOK_NAMES - hooks | _NEVER)
    with call_in(home.path):
        members.update(name=name, settings=settings_of(wrapped), __doc__=type(wrapped).__doc__)
    adapter: type[HermesAgentProvider] = type("HermesAgentProvider", (HermesAgentProvider,), members)
    return adapter(wrapped, home, registrations, module)


class HermesAgentProvider(MemoryProvider):
    """A provider with our hooks outside and the published hooks of Hermes Agent inside. `adapt` constructs it."""

    capabilities = Capabilities(scope="session")

    def __init__(self, wrapped: Any, home: HermesHome, registrations: Registrations, module: str) -> None:
        self.wrapped = wrapped
        self.registrations = registrations
        self._home = home
        self._module = module
        self._active = False

    # ------------------------------------------------------------------ setup

    def is_available(self) -> Availability:
        """Return its own answer, with its own reason or the settings that are still empty."""
        with environment_of(self._home.path):
            if self.wrapped.is_available():
                return Availability()
            reason = call_foreign(lambda: result_text(self.wrapped.unavailable_reason()))
        if not isinstance(reason, str) or not reason:
            reason = "it says that it can't run here"
        secrets = Credentials(self._home)
        required = [field.env for field in self.settings if field.required and field.env]
        unset = [name for name in required if not secrets.get(name)]
        if unset:
            return Availability.no(reason, f"set {', '.join(unset)}")
        setup = f"hermes-memory memory setup {self.name}, and " if self.settings or self.has_setup else ""
        return Availability.no(reason, f"{setup}see its documentation")

    def backup_paths(self) -> list[str]:
        """Return the paths that it keeps outside the home."""
        return [str(path) for path in self._call("backup_paths") or ()]

    def store_settings(self, values: Mapping[str, Any]) -> None:
        """Pass settings that are no secrets to the provider's own store (`save_config`), if it has one.

        Raises `SetupFailed` if it refuses them.
        """
        if not overrides(self.wrapped, "save_config"):
            return
        answer = call_foreign(lambda: self._call("save_config", dict(values), str(self._home.path)))
        if isinstance(answer, ForeignError):
            raise SetupFailed(
                f"{self.name!r} does not keep these settings: {answer}",
                f"correct the one it speaks of: hermes-memory memory setup {self.name}",
            )

    @property
    def has_setup(self) -> bool:
        """True if it brings a setup wizard of its own."""
        return overrides(self.wrapped, "post_setup")

    @property
    def own_name(self) -> str:
        """Its own name, which may differ from the name that people select it by."""
        name = call_foreign(lambda: result_text(self.wrapped.name))
        return name if isinstance(name, str) else ""

    def run_setup(self) -> None:
        """Run its wizard (`post_setup`), which asks on the terminal, saves the answers and selects the provider.

        Raises `SetupFailed` if the wizard raises.
        """
        with environment_of(self._home.path):
            config = host_modules.read_config()
            done = call_foreign(lambda: call_accepted(self.wrapped.post_setup, str(self._home.path), config))
        if isinstance(done, ForeignError):
            raise SetupFailed(
                f"the setup of {self.name} ended with {done}",
                f"what it saved stays; hermes-memory memory setup {self.name} --set NAME=VALUE goes without it",
            )

    def host_commands(self) -> list[HostCommand]:
        """Return its own command if it has one, then the commands that it registered under other names."""
        with environment_of(self._home.path):
            own = [*module_command(self._module, self.name)]
            own = own or [*module_command(type(self.wrapped).__module__, self.name)]
        return [*own, *self.registrations.commands]

    # ------------------------------------------------------------------ start

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return its tools and the tools registered beside it, in the form `name, description, parameters`."""
        own = [bare_schema(raw) for raw in self._call("get_tool_schemas") or ()]
        names = {schema["name"] for schema in own}
        others = [
            bare_schema(tool.schema) for name, tool in self._registered_tools().items() if name not in names
        ]
        return [*own, *others]

    def initialize(self, session: Session) -> None:
        """Start it with the facts that Hermes Agent tells about a session.

        From then until `shutdown` the process environment has HERMES_HOME and the secrets of `.env`, because many
        providers read them there.
        """
        keywords = {
            "hermes_home": str(self._home.path),
            "session_id": session.id,
            "platform": session.platform,
            "agent_context": session.agent_context,
        }
        known = {
            "agent_identity": session.identity,
            "agent_workspace": session.workspace,
            "parent_session_id": session.parent_id,
            "chat_id": session.chat_id,
            "chat_name": session.chat_name,
            "chat_type": session.chat_type,
            "thread_id": session.thread_id,
            "gateway_session_key": session.gateway_session_key,
        }
        if session.platform != "cli":  # Hermes Agent tells no user on the command line
            known |= {"user_id": session.user_id, "user_name": session.user_name}
        keywords |= {key: value for key, value in known.items() if value}
        first = positional_names(self.wrapped.initialize)
        by_position = (session.id,) if first and "session_id" not in first else ()
        with environment_of(self._home.path):
            call_accepted(self.wrapped.initialize, *by_position, keywords=keywords)
            # A failed start is tried again on the same object; it must hold the environment once.
            if not self._active:
                self._active = True
                hold_environment(self._home.path, self.name)
            self._run_hooks("on_session_start", session_id=session.id, model="", platform=session.platform)

    def system_prompt_block(self) -> str:
        """Return its block, "" for None."""
        return result_text(self._call("system_prompt_block"))

    # ------------------------------------------------------------------- turn

    def on_turn_start(self, turn_number: int, message: str, session: Session) -> None:
        """Pass on the turn's number, the message and its author."""
        author = {"author_id": session.user_id, "author_name": session.user_name} if session.user_id else {}
        self._call("on_turn_start", turn_number, message, optional={"platform": session.platform, **author})

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return its recall, with the context that `pre_llm_call` hooks of its package add.

        Many of these providers return only what `queue_prefetch` has warmed. If nothing is warm, this very query is
        queued and asked for once more, so that the first turn of a process has its recall too.
        """
        keywords = {"session_id": session.id}
        text = result_text(self._call("prefetch", query.text, keywords=keywords))
        if not text.strip() and overrides(self.wrapped, "queue_prefetch"):
            self.queue_prefetch(query, session)
            text = result_text(self._call("prefetch", query.text, keywords=keywords))
        answers = self._run_hooks(
            "pre_llm_call",
            session_id=session.id,
            user_message=query.text,
            conversation_history=[dict(message) for message in query.recent],
            is_first_turn=not query.recent,
            model="",
            platform=session.platform,
            sender_id="" if session.platform == "cli" else session.user_id,
        )
        # A callback returns a text, or a mapping with the key "context".
        contexts = [
            result_text(answer.get("context") if isinstance(answer, Mapping) else answer)
            for answer in answers
        ]
        added = [context.strip() for context in contexts if context.strip()]
        return Recall(text="\n\n".join(filter(None, (text, *added))) if added else text)

    def queue_prefetch(self, query: Query, session: Session) -> None:
        """Let it warm its recall, which its next `prefetch` returns."""
        self._call("queue_prefetch", query.text, keywords={"session_id": session.id})

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run its tool, or a tool registered beside it, and return the result as text."""
        arguments = dict(call.arguments)
        optional = {"session_id": session.id}
        other = self._registered_tools().get(call.name)
        if other is not None:
            own = {bare_schema(raw)["name"] for raw in self._call("get_tool_schemas") or ()}
            if call.name not in own:
                with call_in(self._home.path):
                    return result_text(call_accepted(other.handler, arguments, optional=optional))
        return result_text(self._call("handle_tool_call", call.name, arguments, optional=optional))

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Pass on the two texts; messages, author and the turn's id to methods that take them."""
        optional: dict[str, Any] = {"turn_id": turn.id}
        author = turn.author or session.user_name
        if session.user_id or author:
            optional["turn_author"] = {"id": session.user_id, "name": author, "is_bot": False}
        messages = [dict(message) for message in turn.messages]
        keywords = {"session_id": session.id, **({"messages": messages} if messages else {})}
        self._call("sync_turn", turn.user, turn.assistant, keywords=keywords, optional=optional)
        facts = {"session_id": session.id, "turn_id": turn.id, "model": "", "platform": session.platform}
        self._run_hooks(
            "post_llm_call",
            user_message=turn.user,
            assistant_response=turn.assistant,
            conversation_history=messages,
            **facts,
        )
        # Hermes Agent calls this hook after every turn.
        self._run_hooks("on_session_end", completed=True, interrupted=False, **facts)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Pass on the change, with `old_text` and its origin in the metadata."""
        metadata = {
            "write_origin": "assistant_tool" if session.primary else "background_review",
            "execution_context": "foreground" if session.primary else "background_review",
            "session_id": session.id,
            "parent_session_id": session.parent_id,
            "platform": session.platform,
            "tool_name": "memory",
            **write.metadata,
            "old_text": write.old_text,
            "previous_content": write.previous,
        }
        self._call(
            "on_memory_write",
            write.action,
            write.target,
            write.content,
            keywords={"metadata": {key: value for key, value in metadata.items() if value}},
        )

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Pass on the task and its result."""
        self._call(
            "on_delegation",
            delegation.task,
            delegation.result,
            keywords={"child_session_id": delegation.child_session_id},
            optional={"session_id": session.id},
        )

    # --------------------------------------------------------------- boundary

    def on_pre_compress(self, messages: Sequence[Message]) -> str:
        """Return its text for the summary, "" for None."""
        copies = [dict(message) for message in messages]
        return result_text(self._call("on_pre_compress", copies, optional={"require_checkpoint": False}))

    def on_session_end(self, reader: TranscriptReader, reason: EndReason, session: Session) -> None:
        """Pass on all messages of the session."""
        messages = [dict(message) for message in reader.messages()]
        self._call("on_session_end", messages, optional={"session_id": session.id, "reason": reason})
        self._run_hooks(
            "on_session_finalize", session_id=session.id, platform=session.platform, reason=reason
        )

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Pass on the new id. `rewound` is passed only if turns were rewound."""
        if switch.reason == "rewind":
            parent = ""
        else:
            parent = switch.new.parent_id if switch.reason == "resume" else switch.old.id
        keywords: dict[str, Any] = {
            "parent_session_id": parent,
            "reset": switch.reset,
            "reason": _SWITCH_REASONS.get(switch.reason, switch.reason),
        }
        if switch.reason == "rewind":
            keywords["rewound"] = True
        self._call("on_session_switch", switch.new.id, keywords=keywords)
        if switch.reason in ("new", "reset"):  # nothing of the old conversation goes on
            self._run_hooks(
                "on_session_reset",
                session_id=switch.new.id,
                platform=switch.new.platform,
                reason="new_session",
                old_session_id=switch.old.id,
                new_session_id=switch.new.id,
            )

    # -------------------------------------------------------------------- end

    def shutdown(self) -> None:
        """Close it and give its environment back."""
        # The environment must be restored also if the provider raises.
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
        keywords: Mapping[str, Any] | None = None,
        optional: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call its method with the arguments that it takes. Return None if only a plugin hook needed our hook."""
        function = getattr(self.wrapped, method, None)
        if not callable(function):
            return None
        with call_in(self._home.path):
            return call_accepted(function, *values, keywords=keywords, optional=optional)

    def _run_hooks(self, wanted: str, **keywords: Any) -> list[Any]:
        """Call the plugin hooks of one name and return their answers. A hook that raises is logged and left out."""
        answers = []
        with call_in(self._home.path):
            for name, callback in self.registrations.hooks:
                if name != wanted:
                    continue
                answer = call_foreign(partial(call_accepted, callback, keywords=keywords))
                if isinstance(answer, ForeignError):
                    logger.warning("a %s hook of a provider's package raised: %s", wanted, answer)
                else:
                    answers.append(answer)
        return answers

    def _registered_tools(self) -> dict[str, RegisteredTool]:
        """Return the tools registered beside the provider that are offered now, by name."""
        return {tool.name: tool for tool in self.registrations.tools if tool.check is None or tool.check()}

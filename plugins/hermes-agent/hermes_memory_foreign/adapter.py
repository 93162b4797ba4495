"""Adapter that runs an unmodified provider written for Hermes Agent behind our hooks, with its settings as our fields.

The signatures of these providers drifted over the years, so every call is cut to what the method takes: text goes by
position, `session_id` and other facts by keyword, and optional facts only to a method that names them. None is an empty
result; `results` reads the known forms of the others and refuses the rest.

These providers keep their session on `self`, so each session has an object of its own (`scope="session"`).
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core import HermesHome
from hermes_core.config import Credentials, load_config
from hermes_core.contract.hooks import HOOK_NAMES, TranscriptReader
from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import (
    Availability,
    Capabilities,
    Delegation,
    EndReason,
    Field,
    MemoryWrite,
    Message,
    Query,
    Recall,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.errors import ProviderError, ProviderInvalid, SetupFailed
from hermes_core.home import FOLDER_PREFIX
from hermes_core.loader.extras import ChatCommand, ProviderExtras
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.safety.redact import redact_value
from hermes_memory_foreign import host_modules
from hermes_memory_foreign.companion_files import panel_entries, save_panel, settings_panel
from hermes_memory_foreign.environment import (
    call_in,
    described_session,
    environment_of,
    hold_environment,
    lent_sessions,
    provider_warnings,
    release_environment,
    warn_once,
)
from hermes_memory_foreign.registration import (
    HOOKS,
    TOOL_HOOKS,
    HostCommand,
    RegisteredCommand,
    RegisteredTool,
    Registrations,
    module_command,
    run_host_command,
)
from hermes_memory_foreign.results import (
    context_of_hook,
    recall_of_result,
    text_of_result,
    tool_text,
)
from hermes_memory_foreign.turn_authors import turn_author

logger = logging.getLogger(__name__)

# A fault in the provider is not told as one of this file.
__tracebackhide__ = True

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
    hooks |= {HOOKS[hook] for hook, _ in registrations.hooks if hook in HOOKS}
    if registrations.tools:
        hooks.add("handle_tool_call")
    # A class of its own, because pluggy looks at the class for the hooks that exist.
    members: dict[str, Any] = dict.fromkeys(HOOK_NAMES - hooks | _NEVER)
    with call_in(home.path):
        panel = settings_panel(module) or settings_panel(type(wrapped).__module__)
        members.update(name=name, settings=settings_of(wrapped, panel), __doc__=type(wrapped).__doc__)
        members["panel"] = panel
        members["capabilities"] = Capabilities(scope="session", checkpoints=stores_checkpoints(wrapped))
    adapter: type[HermesAgentProvider] = type("HermesAgentProvider", (HermesAgentProvider,), members)
    return adapter(wrapped, home, registrations, module)


class HermesAgentProvider(MemoryProvider):
    """A provider with our hooks outside and the published hooks of Hermes Agent inside. `adapt` constructs it."""

    capabilities = Capabilities(scope="session")
    panel: Any = None

    def __init__(self, wrapped: Any, home: HermesHome, registrations: Registrations, module: str) -> None:
        self.wrapped = wrapped
        self.registrations = registrations
        self._home = home
        self._module = module
        self._active = False
        # The session that runs on this object, for the views that tell a provider about it.
        self._session: Session | None = None
        self._identity: Any = None

    # ------------------------------------------------------------------ setup

    def is_available(self) -> Availability:
        """Return its own answer, with its own reason or the settings that are still empty."""
        with environment_of(self._home.path):
            if self.wrapped.is_available():
                return Availability()
            reason = call_foreign(
                lambda: text_of_result(self.wrapped.unavailable_reason(), "unavailable_reason")
            )
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
        paths = self._call("backup_paths") or ()
        if isinstance(paths, str) or not all(isinstance(path, str | Path) for path in paths):
            raise ProviderInvalid(f"backup_paths() returned {paths!r}", "return a list of paths")
        return [str(path) for path in paths]

    def store_settings(self, values: Mapping[str, Any]) -> None:
        """Pass settings that are no secrets to the provider's own store (`save_config`), if it has one.

        Raises `SetupFailed` if it refuses them.
        """
        if not overrides(self.wrapped, "save_config"):
            if getattr(self.panel, "storage", "flat_json") == "flat_json" and self.panel is not None:
                save_panel(self.panel, self._home.path, values)
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
        name = call_foreign(lambda: text_of_result(self.wrapped.name, "name"))
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

    @property
    def home_path(self) -> Path:
        """The home that it runs in."""
        return self._home.path

    @property
    def extras(self) -> ProviderExtras:
        """Extras of its package."""
        return HostExtras(self)

    def run_hooks(self, name: str, session: Session, **keywords: Any) -> list[Any]:
        """Call the plugin hooks of one name for a session and return their answers."""
        return self._run_hooks(name, session_id=session.id, **keywords)

    def late_warnings(self) -> tuple[str, ...]:
        """Return what the provider has used so far that has no effect here."""
        return provider_warnings(self._home.path)

    def host_commands(self) -> list[HostCommand]:
        """Return its own command if it has one, then the commands that it registered under other names."""
        with environment_of(self._home.path):
            name = self.name.removeprefix(FOLDER_PREFIX)
            own = [*module_command(self._module, name)]
            own = own or [*module_command(type(self.wrapped).__module__, name)]
        return [*own, *self.registrations.commands]

    def run_command(self, name: str, words: Sequence[str]) -> int:
        """Run `hermes-memory NAME words...` and return the exit code. Raises what `run_host_command` raises."""
        return run_host_command(self, self._home, name, words)

    # ------------------------------------------------------------------ start

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return its tools and the tools registered beside it, in the form `name, description, parameters`."""
        own = [_lenient_schema(raw) for raw in self._call("get_tool_schemas") or ()]
        names = _tool_names(own)
        others = [
            _lenient_schema(tool.schema)
            for name, tool in self._registered_tools().items()
            if name not in names
        ]
        return [*own, *others]

    def initialize(self, session: Session) -> None:
        """Start it with the facts that Hermes Agent tells about a session.

        From then until `shutdown` the process environment has HERMES_HOME and the secrets of `.env`, because many
        providers read them there.
        """
        self._session = session
        session = described_session(session)
        keywords = {
            "hermes_home": str(self._home.path),
            "session_id": session.id,
            "platform": session.platform,
            "agent_context": session.agent_context,
        }
        known: dict[str, Any] = {
            "agent_identity": session.identity,
            "agent_workspace": session.workspace,
            "parent_session_id": session.parent_id,
            "chat_id": session.chat_id,
            "chat_name": session.chat_name,
            "chat_type": session.chat_type,
            "thread_id": session.thread_id,
            "gateway_session_key": session.gateway_session_key,
            "user_id": session.user_id,
            "user_id_alt": session.user_id_alt,
            "user_name": session.user_name,
            **self._facts(session),
        }
        if session.platform == "cli":
            known |= {"status_callback": self._note_status, "warning_callback": self._note_warning}
        keywords |= {key: value for key, value in known.items() if value}
        first = positional_names(self.wrapped.initialize)
        by_position = (session.id,) if first and "session_id" not in first else ()
        with environment_of(self._home.path), call_in(self._home.path, session):
            call_accepted(self.wrapped.initialize, *by_position, keywords=keywords)
            # A failed start is tried again on the same object; it must hold the environment once.
            if not self._active:
                self._active = True
                hold_environment(self._home.path, self.name)
            self._identity = self._identity_signature()
            self._run_hooks("on_session_start", session_id=session.id, model="", platform=session.platform)

    def _facts(self, session: Session) -> dict[str, str]:
        """Return the title and the working folder of a session, as far as they are known."""
        sessions = lent_sessions(self._home.path)
        stored: Any = call_foreign(lambda: sessions.get_session(session.id)) if sessions is not None else None
        if stored is None or isinstance(stored, ForeignError):
            title = folder = ""
        else:
            title, folder = stored.title, stored.cwd
        if not folder and session.platform == "cli":
            folder = str(Path.cwd())
        # Only people give titles here.
        return {"session_title": title, "session_title_source": "user" if title else "", "cwd": folder}

    def _note_status(self, *words: Any) -> None:
        logger.info("%s: %s", self.name, _text(words[-1]) if words else "")

    def _note_warning(self, *words: Any) -> None:
        warn_once(f"{self.name}: {_text(words[-1]) if words else ''}", self._home.path)

    def system_prompt_block(self) -> str:
        """Return its block, "" for None."""
        return text_of_result(self._call("system_prompt_block"), "system_prompt_block")

    # ------------------------------------------------------------------- turn

    def on_turn_start(self, turn_number: int, message: str, session: Session, author: str) -> None:
        """Pass on the turn's number, the message and its author."""
        session = described_session(session)
        nobody = {"id": None, "name": None, "is_bot": False}
        known = turn_author(author, session.user_id, session.user_name) or nobody
        keywords = {f"author_{key}": value for key, value in known.items()}
        self._check_identity()
        optional = {"platform": session.platform}
        self._call("on_turn_start", turn_number, message, keywords=keywords, optional=optional)

    def _check_identity(self) -> None:
        """Warn if the settings that tell users apart have changed since this session began."""
        if self._identity is not None and self._identity_signature() != self._identity:
            self._identity = None
            warn_once(
                f"{self.name}: its settings have changed; they count from the next session on",
                self._home.path,
            )

    def _identity_signature(self) -> Any:
        """Return its `identity_signature()`, None if it has none or the method raises."""
        if not overrides(self.wrapped, "identity_signature"):
            return None
        signature = call_foreign(partial(self._call, "identity_signature"))
        if isinstance(signature, ForeignError):
            warn_once(f"{self.name}: identity_signature() raised {signature}", self._home.path)
            return None
        return signature

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return its recall, with the context that `pre_llm_call` hooks of its package add.

        An empty answer is an answer and is not asked for again: a second question would cost the backend twice the
        work in each turn about which it knows nothing. A provider that returns only what `queue_prefetch` has warmed
        recalls from its second turn on, as in Hermes Agent.
        """
        session = described_session(session)
        result = self._call("prefetch", query.text, keywords={"session_id": session.id})
        text, observations, faults = recall_of_result(result, self.own_name)
        if observations:
            faults.append("observations of prefetch() have no effect here; only its context is used")
        for fault in faults:
            warn_once(f"{self.name}: {fault}", self._home.path)
        answers = self._run_hooks(
            "pre_llm_call",
            session_id=session.id,
            user_message=query.text,
            conversation_history=[dict(message) for message in query.recent],
            is_first_turn=not query.recent,
            model="",
            platform=session.platform,
            sender_id=session.user_id,
        )
        contexts: list[Any] = [call_foreign(partial(context_of_hook, answer)) for answer in answers]
        for context in contexts:
            if isinstance(context, ForeignError):
                warn_once(f"{self.name}: {context.error}", self._home.path)
        added = [text.strip() for text in contexts if isinstance(text, str) and text.strip()]
        joined = "\n\n".join(filter(None, (text, *added))) if added else text
        return Recall(text=joined, status=self._recall_status() if text.strip() else "")

    def _recall_status(self) -> str:
        """Return what it says of its last recall as a line for the person, "" if it says nothing."""
        status = call_foreign(lambda: self._call("recall_status"))
        if isinstance(status, ForeignError):
            logger.warning("recall_status() of provider %r raised %s", self.name, status)
        count = getattr(status, "count", None)
        if not isinstance(count, int):
            return ""
        amount = "memory" if count == 1 else "memories"
        what = f"{count} {amount}" if count > 0 else "relevant memory"
        label = _text(getattr(status, "provider_label", "")) or self.name
        glyph = _text(getattr(status, "glyph", "")) or host_modules.INDICATOR_GLYPH
        return f"{glyph} {label}: recalled {what}"

    def queue_prefetch(self, query: Query, session: Session) -> None:
        """Let it warm its recall, which its next `prefetch` returns."""
        self._call("queue_prefetch", query.text, keywords={"session_id": session.id})

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run its tool, or a tool registered beside it, and return the result as text."""
        arguments = dict(call.arguments)
        optional = {"session_id": session.id}
        other = self._registered_tools().get(call.name)
        if other is not None:
            own = [_lenient_schema(raw) for raw in self._call("get_tool_schemas") or ()]
            if call.name not in _tool_names(own):
                with call_in(self._home.path, session):
                    result = call_accepted(other.handler, arguments, optional=optional)
                return tool_text(result, f"the handler of {call.name!r}")
        return tool_text(
            self._call("handle_tool_call", call.name, arguments, optional=optional), "handle_tool_call"
        )

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Pass on the two texts; messages, author and the turn's id to methods that take them."""
        session = described_session(session)
        optional: dict[str, Any] = {"turn_id": turn.id}
        keywords: dict[str, Any] = {"session_id": session.id}
        if author := turn_author(turn.author, session.user_id, session.user_name):
            keywords["turn_author"] = author
        messages = [dict(message) for message in turn.messages]
        if accepts(getattr(self.wrapped, "sync_turn", None), "messages"):
            keywords["messages"] = self._conversation(turn) or messages
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

    def _conversation(self, turn: Turn) -> list[dict[str, Any]]:
        """Return the conversation up to the end of a turn, [] if it is not stored."""
        sessions = lent_sessions(self._home.path)
        if sessions is None:
            return []
        stored: Any = call_foreign(lambda: sessions.turns.conversation(turn.id))
        if isinstance(stored, ForeignError):
            logger.warning("the conversation for provider %r can't be read: %s", self.name, stored)
            return []
        conversation: Any = redact_value([dict(message) for message in stored])
        return list(conversation)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Pass on the change, with `old_text` and its origin in the metadata."""
        session = described_session(session)
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
        """Return its text for the summary, "" for None.

        A provider that stores checkpoints gets what people and the model said, and no results of tools.
        """
        copies = [dict(message) for message in messages]
        required = False
        if self.capabilities.checkpoints:
            required = load_config(self._home).agent.checkpoint_required
            copies = [
                {"role": message["role"], "content": message["content"]}
                for message in copies
                if message.get("role") in ("user", "assistant") and str(message.get("content") or "").strip()
            ]
        text = self._call("on_pre_compress", copies, optional={"require_checkpoint": required})
        return text_of_result(text, "on_pre_compress")

    def on_session_end(self, reader: TranscriptReader, reason: EndReason, session: Session) -> None:
        """Pass on all messages of the session."""
        messages = [dict(message) for message in reader.messages()]
        self._call("on_session_end", messages, optional={"session_id": session.id, "reason": reason})
        platform = described_session(session).platform
        self._run_hooks("on_session_finalize", session_id=session.id, platform=platform, reason=reason)

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
        self._session = switch.new
        self._call("on_session_switch", switch.new.id, keywords=keywords)
        if switch.reason in ("new", "reset"):  # nothing of the old conversation goes on
            self._run_hooks(
                "on_session_reset",
                session_id=switch.new.id,
                platform=described_session(switch.new).platform,
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
        with call_in(self._home.path, self._session):
            return call_accepted(function, *values, keywords=keywords, optional=optional)

    def _run_hooks(self, wanted: str, **keywords: Any) -> list[Any]:
        """Call the plugin hooks of one name and return their answers. A hook that raises is logged and left out."""
        answers = []
        with call_in(self._home.path, self._session):
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
        offered = {}
        for tool in self.registrations.tools:
            answer: Any = True if tool.check is None else call_foreign(tool.check)
            if isinstance(answer, ForeignError):
                logger.warning("tool %r is not offered, because its check raised: %s", tool.name, answer)
            elif answer:
                offered[tool.name] = tool
        return offered


class HostExtras(ProviderExtras):
    """Extras that a package written for Hermes Agent registered for the agent and the chat."""

    def __init__(self, provider: HermesAgentProvider) -> None:
        self._provider = provider
        registrations = provider.registrations
        self.skill_folders = tuple(skill.folder for skill in registrations.skills)
        self.chat_commands = {
            command.name: ChatCommand(command.description, partial(self._run_command, command))
            for command in registrations.chat_commands
        }
        self.watches_tools = any(name in TOOL_HOOKS for name, _ in registrations.hooks)

    def before_tool(self, name: str, arguments: Mapping[str, Any], session: Session) -> str:
        """Return the reason of the first `pre_tool_call` hook that blocks the tool, "" if none does."""
        answers = self._provider.run_hooks(
            "pre_tool_call", session, tool_name=name, args=dict(arguments), task_id=""
        )
        for answer in answers:
            if isinstance(answer, Mapping) and answer.get("action") in ("block", "approve"):
                # Nobody can be asked here, and what needs an approval must not run without it.
                return (
                    f"{name!r} may not run now: {_text(answer.get('message')) or 'a plugin has blocked it'}"
                )
        return ""

    def after_tool(self, name: str, arguments: Mapping[str, Any], result: str, session: Session) -> str:
        """Tell `post_tool_call` hooks of the result, and return what `transform_tool_result` hooks make of it."""
        facts = {"tool_name": name, "args": dict(arguments), "task_id": ""}
        self._provider.run_hooks("post_tool_call", session, result=result, **facts)
        for answer in self._provider.run_hooks("transform_tool_result", session, result=result, **facts):
            if isinstance(answer, str):
                return answer
            if answer is not None:
                kind = type(answer).__name__
                warn_once(
                    f"a transform_tool_result callback returned a {kind}; return a str",
                    self._provider.home_path,
                )
        return result

    def _run_command(self, command: RegisteredCommand, words: str) -> str:
        """Run a chat command. Raises `ProviderError` if it raises or is async."""
        with call_in(self._provider.home_path):
            answer = call_foreign(partial(call_accepted, command.handler, words))
        if inspect.iscoroutine(answer):
            answer.close()
            raise ProviderError(f"command /{command.name} of a provider is async", "report it to its author")
        if isinstance(answer, ForeignError):
            raise ProviderError(f"command /{command.name} raised {answer}", "the log says where")
        return text_of_result(answer, f"command /{command.name}")


# --------------------------------------------------------------------------------------------------------------- calls


def call_accepted(
    function: Callable[..., Any],
    *values: Any,
    keywords: Mapping[str, Any] | None = None,
    optional: Mapping[str, Any] | None = None,
) -> Any:
    """Call a function with those of the arguments that it takes.

    Args:
        values: Passed by position, as many as there are parameters.
        keywords: Passed by keyword, also into `**kwargs`.
        optional: Passed by keyword to parameters of that name only.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin, or a callable with a broken __signature__, takes anything
        return function(*values, **(keywords or {}))
    names = positional_names(function)
    if names is not None:
        values = values[: len(names)]
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    filled = set(names[: len(values)] if names is not None else ())
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
    accepted = {
        key: value
        for key, value in {**(keywords or {}), **(optional or {})}.items()
        if key not in filled and (key in named or (any_keyword and key in (keywords or {})))
    }
    return function(*values, **accepted)


def stores_checkpoints(wrapped: Any) -> bool:
    """Return True if a provider says that its `on_pre_compress` stores a checkpoint."""
    version = call_foreign(lambda: wrapped.pre_compress_checkpoint_api_version)
    return isinstance(version, int) and version >= host_modules.PRE_COMPRESS_CHECKPOINT_API_VERSION


def accepts(function: Any, keyword: str) -> bool:
    """Return True if a function takes this keyword, by name or in `**kwargs`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return callable(function)
    return any(
        p.kind is p.VAR_KEYWORD or (p.name == keyword and p.kind is not p.POSITIONAL_ONLY) for p in parameters
    )


def positional_names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names of the positional parameters, None if the function takes any number of them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def overrides(provider: Any, method: str) -> bool:
    """Return True if the provider defines this method itself, not only Hermes Agent's empty default."""
    for owner in type(provider).__mro__:
        if method in vars(owner):
            return owner.__module__ != host_modules.HOST_BASE_MODULE and callable(
                getattr(provider, method, None)
            )
    return callable(vars(provider).get(method)) if hasattr(provider, "__dict__") else False


def _text(value: Any) -> str:
    """Return a text of a schema, "" for a value of another type."""
    return value if isinstance(value, str) else ""


def bare_schema(raw: Any) -> dict[str, Any]:
    """Return a tool's schema in the bare form: not wrapped, with `parameters`, which is always an object."""
    if isinstance(raw, Mapping) and isinstance(raw.get("function"), Mapping):
        raw = raw["function"]
    if not isinstance(raw, Mapping) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise ProviderInvalid(f"a tool schema without a name: {raw!r}", "report it to the provider's author")
    parameters = raw.get("parameters") or raw.get("input_schema") or {"type": "object", "properties": {}}
    return {
        "name": raw["name"],
        "description": _text(raw.get("description")),
        "parameters": {"type": "object", **parameters},
    }


def _lenient_schema(raw: Any) -> Any:
    """Return the bare form of a schema. Return a malformed one as it is, so that the manager leaves out this tool alone."""
    schema = call_foreign(partial(bare_schema, raw))
    if not isinstance(schema, ForeignError):
        return schema
    if isinstance(raw, Mapping) and "parameters" not in raw and "input_schema" in raw:
        return {**raw, "parameters": raw["input_schema"]}
    return raw


def _tool_names(schemas: Sequence[Any]) -> set[str]:
    """Return the names in a list of schemas, some of which may be malformed."""
    names = (schema.get("name") for schema in schemas if isinstance(schema, Mapping))
    return {name for name in names if isinstance(name, str)}


# ------------------------------------------------------------------------------------------------------------ settings

# Few entries of a schema name a type, so the type is derived from the choices or the default. A part that contradicts
# another (a default outside the choices, a bound that is no number) is dropped without an error, because the person
# can't correct it.

Type = type[str] | type[int] | type[float] | type[bool]
Value = str | int | float | bool

_TYPES: Mapping[str, Type] = {
    **dict.fromkeys(("integer", "int"), int),
    **dict.fromkeys(("number", "float", "double"), float),
    **dict.fromkeys(("boolean", "bool", "flag", "toggle"), bool),
    **dict.fromkeys(
        ("text", "string", "str", "select", "choice", "enum", "secret", "password", "url", "path"), str
    ),
}
_SECRET = frozenset({"secret", "password"})
_TRUTH: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0", ""), False),
}


def settings_of(wrapped: Any, panel: Any = None) -> tuple[Field, ...]:
    """Return `get_config_schema()` of a provider as our fields, then those that only its settings panel has.

    If it raises, log that and return none of it. Setup asks for fields of the panel only if there are no others.
    """
    listed: Any = []
    if overrides(wrapped, "get_config_schema"):
        listed = call_foreign(lambda: list(wrapped.get_config_schema() or ()))
    if isinstance(listed, ForeignError):
        logger.warning("the settings of %r can't be read: %s", type(wrapped).__name__, listed)
        listed = []
    fields: dict[str, Field] = {}
    for raw in listed:
        if isinstance(raw, Mapping) and raw.get("key"):
            fields.setdefault(str(raw["key"]), field_of(raw))
    asked = bool(fields)
    for raw in panel_entries(panel) if panel is not None else ():
        if raw["key"]:
            fields.setdefault(str(raw["key"]), replace(field_of(raw), advanced=asked))
    return tuple(fields.values())


def field_of(raw: Mapping[str, Any]) -> Field:
    """Return one entry of `get_config_schema` as a typed field."""
    listed = [*_choices(raw.get("choices"))]
    kind = _type(raw, listed)
    # True and false need no list of choices.
    choices = () if kind is bool else tuple(dict.fromkeys(str(_as(kind, choice)) for choice in listed))
    default = _as(kind, raw.get("default"))
    if choices and str(default) not in choices:
        default = None
    numeric = kind in (int, float)
    return Field(
        name=str(raw["key"]),
        type=kind,
        default=default,
        help=_text(raw.get("description")),
        choices=choices,
        minimum=_number(raw.get("minimum")) if numeric else None,
        maximum=_number(raw.get("maximum")) if numeric else None,
        env=_first_text(raw.get("env_var")),
        secret=_truth(raw.get("secret")) or _word(raw.get("type")) in _SECRET,
        required=_truth(raw.get("required")),
        url=_text(raw.get("url")),
        when=_conditions(raw.get("when")),
        default_from=_default_from(raw.get("default_from"), kind, choices),
    )


def _type(raw: Mapping[str, Any], choices: Sequence[Value]) -> Type:
    """Return the named type, else the type of the choices, else of the default, else str."""
    named = _TYPES.get(_word(raw.get("type")))
    if named is not None:
        fits = not choices or named is bool or all(_as(named, choice) is not None for choice in choices)
        return named if fits else str
    kinds = {type(choice) for choice in choices}
    if choices:
        only = kinds.pop() if len(kinds) == 1 else float if kinds == {int, float} else str
        return only if only in (bool, int, float) else str
    default = raw.get("default")
    return type(default) if isinstance(default, bool | int | float) else str


def _word(named: Any) -> str:
    """Return the name of a type that is given as text or as a Python type."""
    return (named.__name__ if isinstance(named, type) else str(named or "")).strip().lower()


def _choices(listed: Any) -> Iterator[Value]:
    """Yield the values to choose from: plain ones, ones with a label, or the keys of a mapping."""
    for choice in listed if isinstance(listed, list | tuple | Mapping) else ():
        value = choice
        if isinstance(choice, Mapping):
            value = choice.get("value", choice.get("id", choice.get("name")))
        elif isinstance(choice, list | tuple) and choice:
            value = choice[0]
        if isinstance(value, Value):
            yield value


def _as(kind: Type, value: Any) -> Value | None:
    """Return `value` in this type, None if it has another."""
    if not isinstance(value, Value) or (value == "" and kind is not str):
        return None
    if kind is bool:
        return _TRUTH.get(str(value).strip().lower())
    if kind is str:
        return str(value).lower() if isinstance(value, bool) else str(value)
    number = _number(value)
    if number is None or (kind is int and not number.is_integer()):
        return None
    return int(number) if kind is int else number


def _number(value: Any) -> float | None:
    """Return a finite number, also if it is written as text, else None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _conditions(when: Any) -> dict[str, Value]:
    if not isinstance(when, Mapping):
        return {}
    return {str(key): value for key, value in when.items() if isinstance(value, Value)}


def _default_from(raw: Any, kind: Type, choices: Sequence[str]) -> tuple[str, dict[str, Value]] | None:
    """Return the other field and its map of value to default, from `{"field": name, "map": {value: default}}`.

    Defaults of another type, or outside the choices, are dropped.
    """
    if not isinstance(raw, Mapping) or not raw.get("field") or not isinstance(raw.get("map"), Mapping):
        return None
    typed = {_text(_as(str, value)): _as(kind, default) for value, default in raw["map"].items()}
    valid = {
        value: default
        for value, default in typed.items()
        if default is not None and (not choices or str(default) in choices)
    }
    return str(raw["field"]), valid


def _truth(value: Any) -> bool:
    return _TRUTH.get(value.strip().lower(), True) if isinstance(value, str) else bool(value)


def _first_text(value: Any) -> str:
    """Return the name of the variable, the first one if several are listed."""
    if isinstance(value, list | tuple):
        value = next(iter(value), "")
    return value if isinstance(value, str) else ""

"""The memory manager: it calls the providers at each moment of a session. A provider can't delay or break a turn."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hermes_core.contract.hooks import OBSERVER_POLICIES, POLICIES
from hermes_core.contract.values import (
    Delegation,
    EndReason,
    Erasure,
    Event,
    MemoryWrite,
    Message,
    Query,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.errors import ConfigError, OutboxError, ProviderError
from hermes_core.home import HermesHome
from hermes_core.kit.text import plain
from hermes_core.manager.call import ABSENT, CallResult
from hermes_core.manager.composite import WriteKind, takes
from hermes_core.manager.observers import Listener, Observers
from hermes_core.manager.plugins import Monitor, wrapping
from hermes_core.manager.prefetch import Prefetch, RecallPart, RecallResult
from hermes_core.manager.prompts import SystemPrompts, joined_texts
from hermes_core.manager.providers import ProviderHandle, ProviderRegistry
from hermes_core.manager.stats import ManagerConfig, ProviderHealth
from hermes_core.manager.worker import PendingCall
from hermes_core.manager.writes import NO_PROVIDERS, Writes
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import Transcripts, encode, encode_end
from hermes_core.outbox.store import Outbox
from hermes_core.safety.fence import clean_result, without_context
from hermes_core.safety.redact import redact_value
from hermes_core.tracing import Tracer, traced

log = logging.getLogger(__name__)

# Seconds that a tool has at least if the start of its provider took all of its deadline.
MIN_TOOL_WAIT_S = 1.0

__all__ = ["MemoryManager", "ProviderHealth", "RecallPart", "RecallResult"]


class MemoryManager:
    """Manager of the providers of one home.

    It lives as long as the process, and threads, agents and sessions may share it.

    Attributes:
        outbox: The outbox of the writes.
        observers: The observers.
        writes: The storage and delivery of writes.
        prefetch: The recall of the providers.
        prompts: The texts of the providers for system prompts.

    Args:
        deadlines: Seconds by hook name. They replace the default deadlines of these hooks.
        start_wait: Seconds that the start of a session waits for a provider's `initialize`.
        clock: Measures the ages of recall and the pauses before retries. Waiting itself uses real time.
        wall: Returns the time of events and rows, in seconds since the epoch.
        outbox: The outbox in the session store of the host; default: an outbox in a separate file of the home.
        selected: The providers of config.yaml with the kinds of writes that they get. While one is not loaded, writes
            are stored for it.
        transcripts: Returns a reader of an ended session, for (session id, last message id). Without this function,
            the outbox stores the messages that are passed to `on_session_end`.
        observers: Filters, listeners, and wrappers of provider hooks (`@hookimpl(wrapper=True)`). The first observer
            is called first and is the outermost wrapper, unless `tryfirst` or `trylast` change the order.
        on_event: Called with each event, on a thread of its own.
        redact: Removes secrets from everything that providers receive.
        tracer: Makes spans of what is stored for the providers; None if telemetry is off.
        refuse_local: The reason why providers with `Capabilities.local` are refused; "" if they are not.

    Raises:
        ProviderInvalid: An object in `observers` is not an observer.
        ConfigError: A deadline names no hook, or is not above 0.
    """

    def __init__(
        self,
        home: HermesHome,
        *,
        deadlines: Mapping[str, float] | None = None,
        start_wait: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        outbox: Outbox | None = None,
        selected: Mapping[str, frozenset[WriteKind]] = NO_PROVIDERS,
        transcripts: Transcripts | None = None,
        observers: Sequence[object] = (),
        on_event: Callable[[Event], None] | None = None,
        redact: Callable[[Any], Any] = redact_value,
        tracer: Tracer | None = None,
        refuse_local: str = "",
    ) -> None:
        self.home, self._tracer = home, tracer
        self._transcripts = transcripts

        def outgoing(value: Any) -> Any:
            # A provider that is told what was recalled stores it again, and recalls it twice the next time.
            return redact(without_context(value))

        self._redact = outgoing
        self._config = ManagerConfig(
            clock,
            wall,
            outgoing,
            _checked_deadlines(deadlines or {}),
            start_wait,
            self._emit,
            wrapping(observers),
            refuse_local,
        )
        listeners = [Listener(on_event)] if on_event else []
        self.observers = Observers([*observers, *listeners], self._config)
        self._registry = ProviderRegistry(self._config)
        self._owns_outbox = outbox is None
        self.outbox = outbox if outbox is not None else open_outbox(home, wall=wall)
        self.writes = Writes(self.outbox, self._registry, self._config, transcripts, selected)
        self.prefetch = Prefetch(self._config, self._registry, self.observers)
        self.prompts = SystemPrompts(self._registry)
        # Lets one caller shut down.
        self._lock = threading.Lock()
        self._shut_down = False
        self._process = os.getpid()

    # --------------------------------------------------------------- providers

    def add_provider(
        self,
        source: object,
        *,
        name: str = "",
        builtin: bool = False,
        fingerprint: Callable[[], str] | None = None,
        deadlines: Mapping[str, float] | None = None,
        kinds: frozenset[WriteKind] | None = None,
        selector: str = "",
    ) -> bool:
        """Add a provider: an instance, a class, or a factory without arguments. Return True if it was accepted.

        A refused provider is logged and listed in `health` with the reason. No exception is raised.

        Args:
            name: The name that the host uses; default: the `name` of the provider.
            builtin: True for the built-in provider of this package, whose hooks run on the caller's thread.
            fingerprint: Returns a fingerprint of the account (url, user, bank) that the settings of the provider
                name. Writes that were stored for another account become dead letters.
            deadlines: Seconds by hook name for this provider. The `deadlines` of the manager come first.
            kinds: The kinds of writes that it gets as a member of a composite. None for the only external provider.
            selector: The name by which `selected` has it; default: `name`.
        """
        with self.home.asking():
            return self._registry.add(
                source,
                name,
                builtin=builtin,
                fingerprint=fingerprint,
                deadlines=_checked_deadlines(deadlines or {}),
                kinds=kinds,
                selector=selector,
            )

    def ask(self, provider: str, hook: str, **arguments: Any) -> CallResult:
        """Call a hook of the named provider that no turn calls, such as `check`, and wait until its deadline."""
        session = arguments.get("session")
        if isinstance(session, Session):
            session = arguments["session"] = self._complete(session)
        for handle in self._registry.handles:
            if handle.name == provider and handle.implements(hook):
                instance = handle.instance(session) if isinstance(session, Session) else handle.first
                with self.home.asking():
                    return instance.call(hook, arguments)
        return ABSENT

    def implements(self, provider: str, hook: str) -> bool:
        """Return True if the named provider has the hook."""
        return any(one.name == provider and one.implements(hook) for one in self._registry.handles)

    def add_hookcall_monitoring(
        self, before: Callable[..., None], after: Callable[..., None]
    ) -> Callable[[], None]:
        """Call `before` and `after` around every hook call of all providers. Return a function that removes both.

        Both run on the worker threads of the providers. They get the arguments of pluggy's function of this name:
        `before(hook_name, hook_impls, kwargs)` and `after(outcome, hook_name, hook_impls, kwargs)`. If one of them
        raises, the error is logged and the hook call is not affected.
        """
        monitor = Monitor(before, after)
        self._config.monitors.append(monitor)
        for handle in self._registry.handles:
            for instance in handle.instances():
                monitor.attach(instance.plugins)

        def undo() -> None:
            if monitor in self._config.monitors:
                self._config.monitors.remove(monitor)
                monitor.detach()

        return undo

    def health(self) -> tuple[ProviderHealth, ...]:
        """Return the health of all providers: the accepted ones in the order of their addition, then the refused ones."""
        return (
            *(self._health_of(handle) for handle in self._registry.handles),
            *self._registry.refused.values(),
        )

    def problems(self) -> list[str]:
        """Return a sentence for each provider that is degraded, failed or unavailable, and for each malformed tool."""
        conditions = list(map(self.writes.health, self._registry.handles))
        sentences = []
        for health in (*conditions, *self._registry.refused.values()):
            if health.state in ("degraded", "failed", "unavailable"):
                sentences.append(f"memory provider {health.name!r} is {health.state}: {health.reason}")
        for handle in self._registry.handles:
            for problem in handle.tool_problems:
                sentences.append(f"memory provider {handle.name!r}: {problem}")
        return sentences

    # ------------------------------------------------------------------- start

    def initialize_all(self, session: Session, wait: float | None = None) -> None:
        """Start the providers that have not started, and wait for their `initialize`.

        A slow one continues in the background.

        Args:
            wait: Seconds to wait at most, counted from the start of each `initialize`; default: `start_wait`.
        """
        session = self._complete(session)
        # All are started before the first is waited for, so that slow ones start at the same time.
        instances = [handle.instance(session) for handle in self._registry.handles]
        for instance in instances:
            instance.start(session)
        for instance in instances:
            instance.wait_started(self._config.start_wait if wait is None else wait)
        self.writes.resume()

    def build_system_prompt(self, session: Session) -> str:
        """Return the blocks of all providers for the system prompt, joined by a blank line.

        The first call for a session freezes the text, and later calls for this session return the same text.
        """
        session = self._complete(session)
        frozen = self.prompts.get(session)
        return self.prompts.build(session, replace=False) if frozen is None else frozen

    def rebuild_system_prompt(self, session: Session) -> str:
        """Ask the providers for new blocks, after a compression for instance. Freeze the new text and return it."""
        return self.prompts.build(self._complete(session), replace=True)

    def get_all_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools of all providers, as `{"name", "description", "parameters"}`."""
        # A copy, because hosts change schemas into the form of their model.
        return copy.deepcopy(self._registry.tools.schemas)

    def get_all_tool_names(self) -> set[str]:
        """Return the names of the tools that `handle_tool_call` can run."""
        return self._registry.tools.names

    # -------------------------------------------------------------------- turn

    def on_turn_start(self, number: int, message: str, session: Session, *, author: str = "") -> None:
        """Notify the providers that turn `number` of `author` began with `message`. Do not wait for them.

        `prefetch_all` does the same if it gets a `turn_number`.
        """
        session = self._complete(session)
        text = self._redact(message)
        arguments = {"turn_number": number, "message": text, "session": session, "author": author}
        for handle in self._registry.implementing("on_turn_start"):
            handle.instance(session).submit("on_turn_start", arguments, background=True)

    def prefetch_all(
        self, query: Query, session: Session, *, turn_number: int | None = None, author: str = ""
    ) -> RecallResult:
        """Return the recall of all providers for this message. Wait at most until the deadline of `prefetch`.

        Args:
            turn_number: If given, also call `on_turn_start` with this number and the text of the query. It runs
                before `prefetch`, and both go to the worker of the provider in one step.
            author: Who wrote the message, for `on_turn_start`.
        """
        session = self._complete(session)
        return self.prefetch.collect(
            self.prefetch.ask(query, session, turn_number=turn_number, author=author)
        )

    def queue_prefetch_all(self, query: Query, session: Session) -> None:
        """Let the providers prepare the recall of the next turn in the background."""
        self.prefetch.warm(query, self._complete(session))

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run a provider's tool and return the text for the model: a JSON object with `error` if it went wrong.

        The text is cleaned as recall is cleaned, because a provider may return what a web page said.
        """
        session = self._complete(session)
        handle, name, own_name = self._registry.tools.find(call.name)
        if handle is None:
            return _error(f"no memory provider handles tool {name!r}")
        if not isinstance(call.arguments, dict):
            return _error(f"arguments of {name!r} must be an object, not {type(call.arguments).__name__}")
        # Nothing is redacted for the built-in provider: it keeps the notes on this machine and warns of secrets itself.
        arguments = call.arguments if handle.builtin else self._redact(plain(call.arguments))
        own = dataclasses.replace(call, name=own_name, arguments=arguments)
        instance, began = handle.instance(session, wait=True), time.monotonic()
        deadline = handle.deadlines["handle_tool_call"]
        # The model asks now, and can't ask again when the provider is ready.
        instance.wait_while_starting(deadline)
        pending = instance.submit("handle_tool_call", {"call": own, "session": session})
        result = pending.wait(max(MIN_TOOL_WAIT_S, began + deadline - time.monotonic()))
        if result.ok:
            return str(clean_result(str(result.value)))
        return _error(f"memory tool {name!r} {result.status}: {result.error or 'it can not be called'}")

    def sync_all(self, turn: Turn, session: Session) -> None:
        """Store a completed turn in the outbox. It is on disk when this returns, and is delivered in the background.

        Raises:
            OutboxFull, DatabaseUnavailable: The turn could not be stored.
        """
        session = self._complete(session)
        if (row := self.writes.turn_row(turn, session)) is not None:
            self.writes.put(session, row)

    @traced
    def on_memory_write(self, write: MemoryWrite, session: Session) -> bool:
        """Store a change of the notes for the provider, as `sync_all` does. Return False if no provider takes it.

        Raises:
            OutboxError: No provider takes a change that only a provider keeps: its `performed` is False, because the
                file was not changed.
        """
        session = self._complete(session)
        if write.target == "project":  # providers know two targets
            write = dataclasses.replace(
                write, target="memory", metadata={**write.metadata, "target": write.target}
            )
        taken = self.writes.put(session, encode("on_memory_write", write, session, self._redact))
        if not (write.performed or taken):
            raise OutboxError(
                f"no memory provider stores what a session of kind {session.agent_context!r} writes",
                "tell the person, or say it in your answer",
            )
        return taken or not session.primary

    @traced
    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Store the task and the result of a subagent in the outbox, for delivery in the background."""
        session = self._complete(session)
        self.writes.put(session, encode("on_delegation", delegation, session, self._redact))

    def suppresses_local_writes(self, target: str) -> bool:
        """Return True if a provider keeps this target ("memory" or "user") in place of the local file."""
        return any(handle.first.capabilities.suppresses(target) for handle in self._registry.external)

    # ---------------------------------------------------------------- boundary

    def on_pre_compress(
        self, messages: Sequence[Message], count: int, session: Session, *, require_checkpoint: bool = False
    ) -> str:
        """Return the text that the providers want the summary of a compression to keep.

        Args:
            messages: The messages that the summary will replace.
            count: Number of earlier compressions of this session.
            require_checkpoint: True if the messages may be compressed only after a provider has stored them.

        Raises:
            ProviderError: `require_checkpoint` is True, and no provider stores checkpoints, or one has failed to.
        """
        session = self._complete(session)
        if not session.primary:
            return ""
        calls = []
        for handle in self._registry.implementing("on_pre_compress"):
            if not takes(handle.kinds, "on_pre_compress"):
                continue
            arguments = {
                "messages": tuple(self._clean(handle, plain(messages))),
                "compression_count": count,
                "session": session,
            }
            calls.append((handle, handle.instance(session).submit("on_pre_compress", arguments)))
        if require_checkpoint:
            _require_checkpoint(calls)
        return joined_texts(calls)

    @traced
    def on_session_end(
        self,
        session: Session,
        reason: EndReason,
        last_message_id: int | None = None,
        messages: Sequence[Message] | None = None,
    ) -> None:
        """Store the end of a session in the outbox, behind the writes of this session.

        Another call for the same session with the same last message stores nothing.
        """
        session = self._complete(session)
        by_reference = self._transcripts is not None and (last_message_id is not None or messages is None)
        event = uuid.uuid4().hex if last_message_id is None else f"{session.id}:{last_message_id}"
        stored = None if by_reference else messages
        self.writes.put(session, encode_end(event, session, reason, last_message_id, stored, self._redact))

    @traced
    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Continue under another session id.

        Recall uses the new id at once; the provider is notified after earlier writes.

        Outbox rows of `switch.rewound_turns` that were not delivered yet are deleted in the same transaction. The
        provider is asked to forget the rewound turns that it may have. Each earlier provider that may have one of
        them is asked too, when it is in use again. Call this in the transaction that changes the sessions.
        """
        switch = dataclasses.replace(switch, old=self._complete(switch.old), new=self._complete(switch.new))
        self.prefetch.forget(switch.old.id)
        self.writes.switch(switch)

    def forget_session(self, session_id: str) -> int:
        """Drop the prepared recall and the pending writes of a deleted session. Return the number of dropped writes.

        A row that asks a provider to forget a user or rewound turns stays. Call this in the transaction that deletes the
        session.
        """
        self.prefetch.forget(session_id)
        self.prompts.forget(session_id)
        return self.outbox.drop_session(session_id)

    @traced
    def forget_user(self, user: str, session: Session, turns: Sequence[str] = ()) -> None:
        """Ask the providers to forget a user, behind the writes of one of the user's sessions, whose turns are `turns`.

        A provider without the hook is asked to forget these turns, as after a rewind.
        """
        session = self._complete(session)
        self.prefetch.forget(session.id)
        self.writes.forget_user(user, session, turns)

    def erasures(self, user: str) -> dict[str, Erasure | None]:
        """Return what each external provider has deleted of a user since this manager began; None for nothing."""
        return {handle.name: handle.erasures.get(user) for handle in self._registry.external}

    # --------------------------------------------------------------------- end

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until the providers have taken all writes. Return False if some stay in the outbox."""
        return self.writes.flush(timeout)

    @property
    def closed(self) -> bool:
        """True after `shutdown_all`."""
        return self._shut_down

    @property
    def forked(self) -> bool:
        """True in a fork of the process that constructed the manager.

        The threads and the providers exist only in the parent.
        """
        return self._process != os.getpid()

    def shutdown_all(self, timeout: float = 15.0) -> None:
        """Shut down all providers within `timeout` seconds, the last added first. Pending writes stay in the outbox.

        Hook calls that hang are abandoned on daemon threads, which don't keep the process from ending. A second call
        of this method, or a call in a fork, does nothing.
        """
        if self.forked:
            return
        with self._lock:
            if self._shut_down:
                return
            self._shut_down = True
        until = time.monotonic() + timeout
        self.outbox.database.shorten_waits()
        try:
            # Undelivered writes are safe on disk; most of the time is left for the providers to shut down.
            self.writes.flush_at_end(timeout / 5)
        except sqlite3.Error as exc:
            log.error("the outbox can't be read at the end: %s", exc)
        finally:  # also when Ctrl-C ends the wait for writes
            self.writes.stop(timeout / 15)
            self._close_all(until)

    # ----------------------------------------------------------------- private

    def _close_all(self, until: float) -> None:
        instances = [instance for handle in reversed(self._registry.handles) for instance in handle.close()]
        for position, instance in enumerate(instances):
            # Each gets an equal share of what is left, so that one that hangs takes no time from the others.
            left = max(0.0, until - time.monotonic())
            if not instance.close(left / (len(instances) - position)):
                log.warning("%s did not end in time and is left behind", instance.label)
        for handle in self._registry.external:
            handle.stats.report()
        self.observers.stop(min(1.0, max(0.0, until - time.monotonic())))
        if self._owns_outbox:
            self.outbox.close()

    def _complete(self, session: Session) -> Session:
        """Return the session with the home of this manager, if the host made it without one.

        Otherwise a provider that sees this session first would keep its files in the current directory.
        """
        return session if session.home else dataclasses.replace(session, home=str(self.home.path))

    def _emit(self, kind: str, data: Mapping[str, Any]) -> None:
        self.observers.emit(kind, data)

    def _clean(self, handle: ProviderHandle, value: Any) -> Any:
        return value if handle.builtin else self._redact(value)

    def _health_of(self, handle: ProviderHandle) -> ProviderHealth:
        health = self.writes.health(handle)
        return dataclasses.replace(
            health,
            breakers={kind: breaker.state for kind, breaker in handle.stats.breakers.items()},
            last_error=handle.stats.last_error,
            warnings=tuple(handle.warnings),
            remedy=handle.stats.remedy_of(health.reason) if health.reason else "",
            **handle.stats.totals(),
        )


def _checked_deadlines(deadlines: Mapping[str, float]) -> Mapping[str, float]:
    for hook, seconds in deadlines.items():
        if hook not in POLICIES and hook not in OBSERVER_POLICIES:
            raise ConfigError(
                f"{hook!r} is no hook, so it can have no deadline", "name a hook of the contract"
            )
        if not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(f"the deadline of {hook!r} is {seconds!r}", "give seconds above 0")
    return dict(deadlines)


def _require_checkpoint(calls: Iterable[tuple[ProviderHandle, PendingCall]]) -> None:
    """Raise `ProviderError` unless all providers that store checkpoints have done so, and at least one does."""
    stores = [(handle, call) for handle, call in calls if handle.first.capabilities.checkpoints]
    for handle, call in stores:
        result = call.wait()
        if not result.ok:
            raise ProviderError(
                f"provider {handle.name!r} has stored no checkpoint: {result.error or result.status}",
                "nothing is compressed until it does, or agent.checkpoint_required is false",
            )
    if not stores:
        raise ProviderError(
            "no provider stores a checkpoint of the conversation",
            "choose one that does, or set agent.checkpoint_required to false",
        )


def _error(message: str) -> str:
    return json.dumps({"error": clean_result(message)}, ensure_ascii=False)

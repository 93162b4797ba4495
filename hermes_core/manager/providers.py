"""The providers of a manager: their instances, their tools, and the registry of the accepted providers."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import CodeType, CoroutineType
from typing import Any, Literal

import pluggy

from hermes_core.contract.hooks import POLICIES, PROJECT
from hermes_core.contract.values import (
    BUILTIN_NAME,
    LONGEST_TOOL_NAME,
    TOOL_NAME,
    Capabilities,
    Erasure,
    Session,
)
from hermes_core.errors import HermesError, ProviderUnavailable
from hermes_core.manager.breaker import Breaker
from hermes_core.manager.call import ABSENT, CallResult, attempt, describe, guarded_call
from hermes_core.manager.composite import (
    ALL_KINDS,
    MAX_MEMBERS,
    MAX_TOOLS,
    WriteKind,
    member_tool_name,
)
from hermes_core.manager.plugins import capabilities_of, implemented_hooks, register_provider, wrappers_of
from hermes_core.manager.stats import (
    NO_DEADLINES,
    OPTIONAL_WORK_HOOKS,
    ManagerConfig,
    ProviderHealth,
    ProviderStats,
    State,
)
from hermes_core.manager.worker import Coroutines, PendingCall, Worker, ignore_result
from hermes_core.safety.fence import clean_result
from hermes_core.safety.redact import redact_value
from hermes_core.stopping import wait_unless_stopped
from hermes_core.storage.files import make_private

log = logging.getLogger(__name__)

Phase = Literal["new", "starting", "ready", "failed", "closed"]

# Instances that a provider of scope `session` has at most, each with up to two threads.
MAX_INSTANCES = 16

# Seconds before an `initialize` that failed is tried again, by the next call that wants the provider.
RETRY_START_S = 60.0

# Seconds that `initialize` has beside the `start_timeout` of its provider, which names its own error within them.
START_MARGIN_S = 5.0

# Calls that need no initialized provider. They say nothing about the backend, so no breaker counts them.
HOOKS_BEFORE_READY = frozenset(
    {
        "construct",
        "is_available",
        "backup_paths",
        "register_cli",
        "get_tool_schemas",
        "initialize",
        "shutdown",
    }
)

CLOCK_STEP_S = 2.0
"""Seconds by which the time of a new file may seem to be before its making: some file systems count in steps of two."""

DURABLE_HOOKS = frozenset(name for name, policy in POLICIES.items() if policy.durable)


class ProviderInstance:
    """A provider object with its plugin manager and its workers. Its phase is new, starting, ready, failed or closed.

    Args:
        handle: The provider, with what its instances share.
        label: Part of the names of the threads.
    """

    def __init__(self, handle: ProviderHandle, label: str) -> None:
        self._handle, self.label = handle, label
        self._config, self.stats = handle.config, handle.stats
        self.provider: object = None
        # Replaced by `_construct`. Until then no hook is in `hooks`, so none is called.
        self.plugins = pluggy.PluginManager(PROJECT)
        self.hooks: frozenset[str] = frozenset()
        self.capabilities = Capabilities()
        self.phase: Phase = "new"
        self.reason = ""
        self.read = Worker(f"hermes-{label}-read", handle.config.clock)
        # A write that hangs may still succeed. A second thread would send the next write before it.
        self.write = Worker(f"hermes-{label}-write", handle.config.clock, replaceable=False)
        # For `queue_prefetch`; a worker of its own if the provider declares that this hook is slow.
        self.warming = self.read
        self._wrapper_names: dict[CodeType, str] = {}
        self._coroutines = Coroutines(f"hermes-{label}")
        # Guards the phase: starts, retries and closing come from several threads.
        self._lock = threading.Lock()
        self._start_ended = threading.Event()
        self._gone = threading.Event()
        self._started_at = 0.0
        self._started_monotonic = 0.0
        self._closing = False
        self._session: Session | None = None
        self._opened: tuple[Path, float] | None = None
        self._start_timeout = 0.0

    # ------------------------------------------------------------------- calls

    def call(self, hook: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call `hook` and wait for it, at most until its deadline."""
        return self.submit(hook, arguments).wait()

    def submit(
        self,
        hook: str,
        arguments: Mapping[str, Any],
        on_late: Callable[[CallResult], None] = ignore_result,
        *,
        background: bool = False,
    ) -> PendingCall:
        """Prepare a call of `hook`, hand it to its worker, and return it. The arguments are those of `prepare`."""
        call = self.prepare(hook, arguments, on_late, background=background)
        self.hand_over(call)
        return call

    def prepare(
        self,
        hook: str,
        arguments: Mapping[str, Any],
        on_late: Callable[[CallResult], None] = ignore_result,
        *,
        background: bool = False,
    ) -> PendingCall:
        """Return a call of `hook` that can be passed to `hand_over`.

        The returned call has already ended if it can't be made (the hook is missing, the provider is not ready, or
        the breaker is open), or if the hooks run on the caller's thread.

        Args:
            on_late: Called on the worker's thread with the result, if the call ends after the caller has stopped
                waiting.
            background: True if no caller waits for the call. Then `on_late` gets its result in any case.
        """
        if hook not in self.hooks:
            return PendingCall.ended(hook, ABSENT)
        if self.phase != "ready" and hook not in HOOKS_BEFORE_READY:
            self.start_again()
            reason = self.condition()[1]
            return PendingCall.ended(
                hook, CallResult("skipped", error=reason, remedy=self.stats.remedy_of(reason))
            )
        caller = partial(getattr(self.plugins.hook, hook), **arguments)
        if self._handle.builtin:
            result = self._run(hook, caller)
            self.stats.record(hook, result, None)
            if background:
                on_late(result)
            return PendingCall.ended(hook, result)
        breaker, session = None, arguments.get("session")
        if hook not in HOOKS_BEFORE_READY:
            breaker = self.stats.breakers["write" if hook in DURABLE_HOOKS else "read"]
            if not breaker.closed and (hook in OPTIONAL_WORK_HOOKS or not breaker.admit()):
                error = f"left alone for {breaker.remaining:.0f} s more"
                return PendingCall.ended(hook, CallResult("open", error=error))
        return PendingCall(
            hook,
            partial(self._run, hook, caller),
            self._handle.deadlines[hook],
            record=partial(self.stats.record, hook, breaker=breaker),
            on_late=partial(self._ended_late, hook, breaker, on_late),
            background=background,
            # Two users may have a session of one id.
            session_key=(session.id, session.owner) if isinstance(session, Session) else None,
        )

    def _ended_late(
        self, hook: str, breaker: Breaker | None, on_late: Callable[[CallResult], None], result: CallResult
    ) -> None:
        self.stats.record_late_end(hook, result, breaker)
        on_late(result)

    def hand_over(self, *calls: PendingCall) -> None:
        """Put prepared calls, which must all be for the same worker, into its queue one behind the other.

        If the worker refuses them, each call ends as "skipped", with the reason.
        """
        waiting = list(calls)
        for call in calls:
            if call.future.done():
                waiting.remove(call)
        if not waiting:
            return
        hook = waiting[0].hook
        worker = self.write if hook in DURABLE_HOOKS else self.read
        if hook == "queue_prefetch":
            worker = self.warming
        if refusal := worker.submit(*waiting):
            for call in waiting:
                call.refuse(refusal)

    def _run(self, hook: str, function: Callable[[], Any]) -> CallResult:
        return guarded_call(hook, function, self._config.clock, self._config.redact, self._wrapper_names)

    def _finish(self, hook: str, coroutine: CoroutineType[Any, Any, Any]) -> Any:
        return self._coroutines.finish(coroutine, self._deadline_of(hook))

    def _deadline_of(self, hook: str) -> float:
        """Return the seconds that one call of a hook may take. A provider may ask for more for its start."""
        deadline = self._handle.deadlines[hook]
        if hook == "initialize" and hook not in self._config.deadlines and self._start_timeout:
            return max(deadline, self._start_timeout + START_MARGIN_S)
        return deadline

    # ------------------------------------------------------------------- start

    def construct(self) -> CallResult:
        """Construct the provider object, validate it, and read its capabilities. Return the result of the construction."""
        if self._handle.builtin:
            return self._run("construct", self._construct)
        call = self._life_call("construct", self._construct)
        self.hand_over(call)
        return call.wait()

    def _life_call(
        self, name: str, function: Callable[[], Any], on_end: Callable[[CallResult], None] | None = None
    ) -> PendingCall:
        """Return a call of `construct`, `initialize` or `shutdown`. No breaker counts its result.

        Args:
            on_end: If given, it gets the result, and no caller waits for the call.
        """
        return PendingCall(
            name,
            partial(self._run, name, function),
            self._deadline_of(name),
            record=partial(self.stats.record, name, breaker=None),
            on_late=on_end or ignore_result,
            background=on_end is not None,
        )

    def _construct(self) -> object:
        provider = self._handle.make()
        observers = self._config.observers
        plugins = register_provider(provider, self._finish, observers)
        capabilities = capabilities_of(provider)
        if capabilities.local and self._config.refuse_local:
            raise ProviderUnavailable(f"{self.label} can't be used here: {self._config.refuse_local}")
        for monitor in self._config.monitors:
            monitor.attach(plugins)
        if capabilities.serial:
            # All hooks share one thread. A second thread in place of a hung one would make two of them overlap.
            self.read.replaceable = False
            self.write = self.read
        elif capabilities.slow_prefetch:
            self.warming = Worker(f"hermes-{self.label}-prefetch", self._config.clock)
        self._apply(capabilities)
        self.provider, self.plugins, self.capabilities = provider, plugins, capabilities
        self._wrapper_names = wrappers_of(plugins, observers)
        self.hooks = implemented_hooks(plugins, provider)
        # A setting, perhaps, which can't be read if another one is wrong: `is_available` or `initialize` says so.
        wanted, _ = attempt(getattr, provider, "start_timeout", 0.0)
        self._start_timeout = float(wanted) if isinstance(wanted, int | float) else 0.0
        return provider

    def _apply(self, capabilities: Capabilities) -> None:
        """Let the workers for reads run as many calls at once as the provider allows."""
        if self.write is not self.read:
            self.read.concurrent = self.warming.concurrent = capabilities.concurrent

    def start(self, session: Session, *, at_once: bool = False) -> None:
        """Begin `initialize` in the background, unless it has begun.

        If it failed at least `RETRY_START_S` seconds ago, or if `at_once` is True, retry it.
        """
        with self._lock:
            again = self.phase == "failed" and (at_once or not self.given_up)
            if self._closing or not (self.phase == "new" or again):
                return
            self.phase = "starting"
            self._session = session
            self._started_at = self._config.clock()
            self._started_monotonic = time.monotonic()
            self._start_ended.clear()
        call = self._life_call("initialize", partial(self._initialize, session), self._started)
        if self._handle.builtin:
            self._started(call.function())
            return
        self.hand_over(call)
        if call.worker is None:  # refused
            self._started(call.future.result())

    @property
    def given_up(self) -> bool:
        """True if `initialize` failed less than `RETRY_START_S` seconds ago, so that it is not retried yet."""
        return self.phase == "failed" and self._config.clock() - self._started_at < RETRY_START_S

    def start_again(self, *, at_once: bool = False) -> None:
        """Retry a failed `initialize` in the background, by default if that was `RETRY_START_S` seconds ago."""
        if self.phase == "failed" and self._session is not None:
            self.start(self._session, at_once=at_once)

    def wait_started(self, timeout: float) -> bool:
        """Wait until `initialize` ends, at most until `timeout` seconds after its start.

        Return True if the instance is ready.

        If `initialize` hangs, only the first callers wait: later calls return at once. None waits longer than the
        deadline of `initialize`.
        """
        timeout = min(timeout, self._deadline_of("initialize"))
        wait_unless_stopped(self._start_ended.wait, self._started_monotonic + timeout - time.monotonic())
        return self.phase == "ready"

    def wait_while_starting(self, timeout: float) -> None:
        """Wait until a running `initialize` ends, at most `timeout` seconds from now."""
        if self.phase == "starting":
            wait_unless_stopped(self._start_ended.wait, timeout)

    def _initialize(self, session: Session) -> None:
        if self.provider is None:
            self._construct()
        self._handle.read_account()
        self._opened = self._opened or (Path(session.home), time.time() - CLOCK_STEP_S)
        try:
            self._handle.run_start(self, partial(self.plugins.hook.initialize, session=session))
        finally:
            self.make_private()

    def _started(self, result: CallResult) -> None:
        """Store the result of `initialize` as the phase and the reason. Runs on the thread of the read worker."""
        capabilities, error = attempt(capabilities_of, self.provider) if result.ok else (None, None)
        if error is not None:
            result = CallResult("failed", error=f"capabilities: {describe(error, self._config.redact)}")
        with self._lock:
            closing = self._closing
            self.phase = "closed" if closing else "ready" if result.ok else "failed"
            self.reason = "" if result.ok else f"initialize: {result.error or result.status}"
            self.capabilities = capabilities or self.capabilities
            self._apply(self.capabilities)
        self._start_ended.set()
        if closing:
            log.info("%s: initialize ended after the shutdown; shutting it down", self.label)
            if "shutdown" in self.hooks:
                self.stats.record("shutdown", self._run("shutdown", self.plugins.hook.shutdown), None)
            self._end()
            return
        self._config.emit(f"provider.{self.phase}", {"provider": self.stats.name, "error": self.reason})
        self._handle.on_start()

    def make_private(self, *, deep: bool = True) -> None:
        """Give what the provider or its SDK has written in the home the modes of the home."""
        if self._opened and not self._handle.builtin:
            make_private(*self._opened, deep=deep)

    # --------------------------------------------------------------------- end

    def close(self, timeout: float) -> bool:
        """Let the running calls end, call `shutdown` once, and end the workers.

        Return True if all ended in `timeout` seconds.

        `shutdown` is called even if `initialize` failed. These calls delay it:

        - An `initialize` that still runs. A coroutine is cancelled. Otherwise this method waits for it, at most as long
          as the start of a session waits, and `shutdown` is called when `initialize` ends.
        - A running write. This method waits for it, and then cancels all coroutines.
        - A call that hangs on the thread of `shutdown`. Then `shutdown` is called when this call returns.
        """
        until = time.monotonic() + timeout
        phase = self._begin_close()
        if phase == "closed":
            return True
        if phase == "starting":
            cancelled = self._coroutines.cancel()
            wait = (
                timeout if cancelled else self._started_monotonic + self._config.start_wait - time.monotonic()
            )
            ended = self._start_ended.wait(min(max(0.0, wait), timeout))
            return ended and self._gone.wait(max(0.0, until - time.monotonic()))
        # A quarter for a write, and another after its coroutine was cancelled; `shutdown` has the rest.
        written = self.write is self.read or self.write.stop(timeout / 4)
        if self._coroutines.cancel() and not written:
            written = self.write.stop(timeout / 4)
        # Nobody will use what is prepared now. A preparation that runs has the time of a write.
        prepared = self.warming is self.read or self.warming.stop(timeout / 4)
        if written and prepared:
            return self._shut_down(phase, until - time.monotonic())
        what = "a preparation" if written else "a write"
        log.warning("%s: %s has not returned; shutdown is called when it does", self.label, what)
        self._when_idle(lambda: self._shut_down(phase, self._handle.deadlines["shutdown"]))
        return False

    def close_idle(self) -> None:
        """Close an instance that no session uses any more: enqueue `shutdown` and do not wait for it."""
        phase = self._begin_close()
        if phase in ("closed", "starting"):
            return
        if self.write is not self.read:
            self.write.stop(0)
        if self.warming is self.read:
            self._enqueue_shutdown(phase)
        else:
            self.warming.stop(0)
            self.warming.when_idle(lambda: self._enqueue_shutdown(phase))

    def _enqueue_shutdown(self, phase: Phase) -> None:
        last = self._last_call() if phase != "new" and "shutdown" in self.hooks else None
        queued = last is not None and not self.read.submit(last)
        if self.read.stop(0, None if queued else last) or last is None:
            self._end()

    def _when_idle(self, function: Callable[[], object]) -> None:
        """Call `function` once neither a write nor a slow preparation runs."""
        if self.warming is self.read:
            self.write.when_idle(function)
        else:
            self.write.when_idle(lambda: self.warming.when_idle(function))

    def _begin_close(self) -> Phase:
        """Refuse further calls and return the phase that the instance had; "closed" if this was called before.

        An `initialize` that runs is not interrupted: `_started` calls `shutdown` when it ends.
        """
        with self._lock:
            if self._closing:
                return "closed"
            self._closing, phase = True, self.phase
            if phase != "starting":
                self.phase = "closed"
        if self.warming is not self.read:
            self.warming.withdraw_all()
        if phase == "starting":
            # The worker takes no more calls. `initialize` runs on, and `_started` shuts the provider down after it.
            self.read.stop(0)
        return phase

    def _shut_down(self, phase: Phase, timeout: float) -> bool:
        """Call `shutdown` unless the instance was never started, and end the read worker.

        Return True if `shutdown` ended within `timeout` seconds.
        """
        in_time, last = True, None
        if phase != "new" and "shutdown" in self.hooks:
            call = self.submit("shutdown", {})
            in_time = call.wait(timeout).status in ("ok", "failed")
            if not in_time and (call.worker is None or call.future.cancelled()):
                last = self._last_call()  # another call hangs on the thread; shutdown runs when it returns
        if self.read.stop(0, last) or last is None:
            self._end()
        return in_time

    def _last_call(self) -> PendingCall:
        """Return a call of `shutdown` that ends the event loop of the instance when it returns."""
        return self._life_call("shutdown", self.plugins.hook.shutdown, lambda _: self._end())

    def _end(self) -> None:
        self._coroutines.stop()
        self.make_private()
        self._gone.set()

    # ------------------------------------------------------------------- state

    def condition(self) -> tuple[State, str]:
        """Return the state of this instance as hosts show it, and the reason; the reason is "" for "active"."""
        if self.phase == "starting":
            return "degraded", f"initialize has run for {self._config.clock() - self._started_at:.0f} s"
        if self.phase == "failed":
            return "failed", self.reason
        if self.phase != "ready":
            return "idle", {"new": "not initialized yet", "closed": "shut down"}[self.phase]
        if overdue := self.read.overdue or self.write.overdue or self.warming.overdue:
            return "degraded", overdue
        for kind, breaker in self.stats.breakers.items():
            if not breaker.closed:
                return "degraded", f"{kind} breaker {breaker.state}, last error: {breaker.last_error}"
        if problem := self.stats.recall_problem:
            return "degraded", problem
        return "active", ""


# Methods that close a connection. An object with one of them is a client.
_CLOSING_METHODS = ("close", "aclose", "disconnect")


def _inner(provider: object) -> object:
    """Return the provider that an adapter wraps, else the provider itself."""
    return getattr(provider, "wrapped", provider)


def _clients(values: Iterable[object]) -> dict[int, object]:
    """Return the clients among some values, by their identity."""
    return {
        id(value): value
        for value in list(values)
        if not isinstance(value, type)
        and any(callable(getattr(type(value), method, None)) for method in _CLOSING_METHODS)
    }


def _module_clients(provider: object) -> dict[int, object]:
    """Return the clients in variables of the module that defines a provider."""
    module = sys.modules.get(type(_inner(provider)).__module__)
    return _clients(vars(module).values()) if module is not None else {}


def _share_client(first: object, second: object) -> bool:
    """Return True if an attribute of both providers is the same client."""
    attributes = [getattr(_inner(provider), "__dict__", {}).values() for provider in (first, second)]
    return bool(_clients(attributes[0]).keys() & _clients(attributes[1]).keys())


class ProviderHandle:
    """A provider with its name and its instances: one for the process, or one for each session.

    Args:
        source: An instance, a class, or a factory without arguments.
        config: Settings of the manager.
        name: The name that the host uses; default: the `name` of the provider.
        account: Returns the fingerprint of the account that the settings name. Called before each `initialize`,
            because the settings may have changed since the last one.
        fingerprint: The value that `account` returns now.
        deadlines: Seconds by hook name in place of the policies, unless the manager's settings name these hooks.
        builtin: True for the built-in provider of this package: its hooks run on the caller's thread, and nothing is
            redacted for it.
        kinds: The kinds of writes that a member of a composite gets; None if the provider is no member.
        selector: The name by which config.yaml selects it; default: `name`.

    Attributes:
        deadlines: Seconds that one call of a hook may take, by its name.
        own_name: The `name` of the provider itself, known after `inspect`.
        member: True if the provider is a member of a composite.
        config: Settings of the manager.
        make: Constructs the provider object. Called on the thread of the read worker of an instance.
        fingerprint: Fingerprint of the account at the last `initialize`.
        account_since: Time of the first `initialize` with this fingerprint, in seconds since the epoch; 0 before the
            first `initialize`.
        schemas: Schemas of the tools that the provider offers, also those whose names another provider has.
        tool_problems: The warnings about tools that can't be offered because their schemas are wrong.
        erasures: What the provider deleted of each user that it forgot.
        busy: Returns True if writes of the session with this id are pending. Its instance is then not closed.
        on_start: Called after each `initialize`.
    """

    def __init__(
        self,
        source: object,
        config: ManagerConfig,
        *,
        name: str = "",
        fingerprint: str = "",
        account: Callable[[], str] | None = None,
        deadlines: Mapping[str, float] = NO_DEADLINES,
        builtin: bool = False,
        kinds: frozenset[WriteKind] | None = None,
        selector: str = "",
    ) -> None:
        self.builtin = builtin
        self.member, self.kinds = kinds is not None, ALL_KINDS if kinds is None else kinds
        self.selector = selector or name
        self.deadlines = config.deadlines_of(deadlines)
        self.fingerprint = fingerprint
        self.account_since = 0.0
        self.schemas: tuple[dict[str, Any], ...] = ()
        self.warnings: list[str] = []
        self.tool_problems: list[str] = []
        self.erasures: dict[str, Erasure] = {}
        self._scanned: set[tuple[str, str]] = set()
        self.busy: Callable[[str], bool] = lambda _session_id: False
        self.on_start: Callable[[], None] = lambda: None
        self._account = account
        self._host_name = name or str(getattr(source, "name", ""))
        self._repeatable = isinstance(source, type) or (callable(source) and not hasattr(source, "name"))
        self.make: Callable[[], object] = source if callable(source) and self._repeatable else lambda: source
        self.config = config
        self._by_session: OrderedDict[str, ProviderInstance] = OrderedDict()
        # Guards `_by_session` and `_closed`.
        self._lock = threading.Lock()
        self._closed = False
        # A provider that keeps one client per process has one instance at a time. This is found out when a second
        # one starts; see `_run_start`.
        self._exclusive = False
        self._room_helps = True
        # Held while an exclusive instance starts: two that start at once would share the client.
        self._start_lock = threading.Lock()
        self.name, self.own_name = self._host_name or "provider", ""
        self.stats = ProviderStats(self.name, config)
        self.first = ProviderInstance(self, self.name)

    @property
    def per_session(self) -> bool:
        """True if each session has a separate instance."""
        return self._repeatable and self.first.capabilities.scope == "session"

    def implements(self, hook: str) -> bool:
        """Return True if the provider implements this hook."""
        return hook in self.first.hooks

    def inspect(self) -> tuple[State, str]:
        """Construct the provider, and ask it whether it can run and which tools it has.

        Return ("idle", "") if it can run, else "failed" or "unavailable" with the reason.
        """
        construction = self.first.construct()
        if not construction.ok:
            return "failed", f"it could not be constructed: {construction.error}"
        self.own_name = str(getattr(self.first.provider, "name", ""))
        self.name = self.stats.name = self._host_name or self.own_name or "provider"
        if self.implements("is_available"):
            answer = self.first.call("is_available", {})
            if not answer.ok:
                return "failed", f"is_available: {answer.error}"
            if not answer.value:
                reason, remedy = answer.value.reason or "it says it can't run here", answer.value.remedy
                return "unavailable", f"{reason}; {remedy}" if remedy else reason
        if self.implements("get_tool_schemas"):
            answer = self.first.call("get_tool_schemas", {})
            if answer.ok:
                wanted = self.first.capabilities.tool_names
                self.schemas = tuple(s for s in answer.value if wanted is None or s["name"] in wanted)
                for fault in answer.value.faults:
                    self.add_tool_problem(self.config.redact(fault))
            else:
                self.add_tool_problem(f"it offers no tools: get_tool_schemas: {answer.error}")
        return "idle", ""

    def add_tool_problem(self, problem: str) -> None:
        """Note a tool that can't be offered, for the health of the provider and the problems of a turn."""
        log.warning("%s: %s", self.name, problem)
        self.warnings.append(problem)
        self.tool_problems.append(problem)

    def note_erasure(self, user: str, erasure: Erasure) -> None:
        """Note what the provider deleted of a user, for `hermes-memory forget` and for the log."""
        known = self.erasures.get(user, Erasure())
        self.erasures[user] = Erasure(
            tuple(dict.fromkeys(known.deleted + erasure.deleted)),
            tuple(dict.fromkeys(known.remaining + erasure.remaining)),
        )
        if erasure.deleted:
            log.info("%s has forgotten %s: %s", self.name, user, "; ".join(erasure.deleted))
        if erasure.remaining:
            log.warning("%s has not forgotten all of %s: %s", self.name, user, "; ".join(erasure.remaining))

    def warn_of_threats(self, place: str, text: str) -> None:
        """Add a warning about what the safety scan finds in a text of the provider, once for each place.

        The text stays: a person installed the provider, and can remove it.
        """
        if (place, text) in self._scanned:
            return
        self._scanned.add((place, text))
        # Imported at its first use: loading the rules takes a tenth of a second, and many programs ask no provider.
        from hermes_core.safety.scan import first_threat

        if (threat := first_threat(text)) is not None:
            lines = enumerate(text.split("\n"), 1)
            line = next((f" in line {at}" for at, line in lines if first_threat(line)), "")
            warning = f"its {place} may give the model orders: {threat.message}{line}; it is used as it is"
            log.warning("%s: %s", self.name, warning)
            self.warnings.append(warning)

    def instance(self, session: Session, *, wait: bool = False) -> ProviderInstance:
        """Return the instance for `session`. If there is none, make one and start it.

        Args:
            wait: True to wait for `initialize`, at most `ManagerConfig.start_wait` seconds.
        """
        if not self._repeatable or self.first.capabilities.scope != "session":
            return self.first
        with self._lock:
            # A session that begins during the shutdown must not start an instance that nobody would close.
            if self._closed:
                return self.first
            instance = self._by_session.get(session.id)
            if instance is None:
                instance = self._by_session[session.id] = self._unused_instance(session)
            self._by_session.move_to_end(session.id)
        instance.start(session)
        self._evict()
        if wait:
            instance.wait_started(self.config.start_wait)
        return instance

    def instances(self) -> list[ProviderInstance]:
        """Return all instances that were not closed, the oldest first."""
        with self._lock:
            return list(dict.fromkeys([self.first, *self._by_session.values()]))

    def given_up(self) -> list[str]:
        """Return the ids of sessions for whose instance `initialize` failed and is not retried yet."""
        with self._lock:
            return [name for name, instance in self._by_session.items() if instance.given_up]

    def retire(self, session_id: str) -> None:
        """Close the instance of a session that continues under another id."""
        with self._lock:
            instance = self._by_session.pop(session_id, None)
        if instance is not None:
            instance.close_idle()

    def close(self) -> list[ProviderInstance]:
        """Make no more instances. Return the existing ones, the newest first, so that the caller can close them."""
        with self._lock:
            self._closed = True
        return self.instances()[::-1]

    def condition(self) -> tuple[State, str]:
        """Return the worst state of all instances and its reason.

        If some instances failed but another is ready, the state is "degraded".
        """
        if not self._by_session:
            return self.first.condition()
        instances = self.instances()
        conditions = [instance.condition() for instance in instances]
        worst_first: dict[State, int] = {"failed": 0, "degraded": 1, "unavailable": 2, "active": 3, "idle": 4}
        state, reason = min(conditions, key=lambda condition: worst_first[condition[0]])
        if state == "failed" and any(instance.phase == "ready" for instance in instances):
            failed = sum(instance.phase == "failed" for instance in instances)
            return "degraded", f"{failed} of {len(instances)} sessions can't be started: {reason}"
        return state, reason

    def run_start(self, instance: ProviderInstance, initialize: Callable[[], None]) -> None:
        """Call `initialize` of an instance. If the provider keeps one client per process, shut the others down first.

        Such a provider shows itself in one of these ways:

        - All its instances are one object.
        - `initialize` fails beside another instance, and succeeds once that one was shut down.
        - `initialize` opens a client in a variable of its module, or on two instances the same one. The shutdown of
          one instance would close the client of the other.
        """
        if not self.per_session:
            initialize()
            return
        others = self._others(instance)
        if not self._exclusive and any(
            _inner(other.provider) is _inner(instance.provider) for other in others
        ):
            self._make_exclusive("its instances are one object")
        if self._exclusive:
            with self._start_lock:
                self._close_others(instance)
                initialize()
            return
        before = _module_clients(instance.provider)
        _, error = attempt(initialize)
        others = self._others(instance)
        if error is None:
            new = _module_clients(instance.provider).keys() - before.keys()
            if not new and not any(_share_client(other.provider, instance.provider) for other in others):
                return
            self._make_exclusive("its client belongs to the process")
            if not others:
                return
        elif isinstance(error, HermesError) or not (others and self._room_helps):
            raise error
        with self._start_lock:
            self._close_others(instance)
            if error is None and "shutdown" in instance.hooks:
                instance.plugins.hook.shutdown()
            # If this fails as well, the others were not the reason: do not close them for it again.
            self._room_helps = False
            initialize()
            self._room_helps = True
            if error is not None:
                self._make_exclusive("it starts only while no other instance is open")

    def _make_exclusive(self, reason: str) -> None:
        log.info("%s: one instance at a time, because %s", self.name, reason)
        self._exclusive = True

    def _others(self, instance: ProviderInstance) -> list[ProviderInstance]:
        """Return the instances of other sessions that have started or are about to."""
        started = ("starting", "ready")
        return [other for other in self.instances() if other is not instance and other.phase in started]

    def _close_others(self, instance: ProviderInstance) -> None:
        """Shut down the instances of other sessions. Their sessions get a new one when they go on."""
        with self._lock:
            names = [name for name, other in self._by_session.items() if other is not instance]
            others = [self._by_session.pop(name) for name in names]
        for other in others:
            other.close(self.deadlines["shutdown"])

    def read_account(self) -> None:
        """Read the fingerprint of the account again, before an `initialize`."""
        if self._account is not None:
            fingerprint = self._account()
            if fingerprint != self.fingerprint or not self.account_since:
                self.fingerprint, self.account_since = fingerprint, self.config.wall()

    def _unused_instance(self, session: Session) -> ProviderInstance:
        """Return the instance that the constructor made if no session uses it yet, else a new instance."""
        if self.first.phase == "new" and self.first not in self._by_session.values():
            return self.first
        return ProviderInstance(self, f"{self.name}-{session.id[:8]}")

    def _evict(self) -> None:
        """Close the least recently used instances above `MAX_INSTANCES`, but none whose session has pending writes."""
        evicted: list[ProviderInstance] = []
        with self._lock:
            surplus = len(self._by_session) - MAX_INSTANCES
            # The last one is left out, because the caller is about to use it.
            for session_id in list(self._by_session)[:-1] if surplus > 0 else ():
                if len(evicted) < surplus and not self.busy(session_id):
                    evicted.append(self._by_session.pop(session_id))
        for instance in evicted:
            log.info("%s: closing the instance of a session that was not used for long", self.name)
            instance.close_idle()


# ------------------------------------------------------------------------------ tools

# Characters of the description of a provider's tool; every request sends them.
MAX_DESCRIPTION_CHARS = 4000

# Names that hosts use for their own tools. A provider's tool of such a name would hide the host's.
RESERVED_TOOL_NAMES = frozenset(
    [
        *("memory", "session_search", "todo", "delegate_task", "skills_list", "skill_view", "skill_manage"),
        *("web_search", "web_extract", "terminal", "process", "read_terminal", "close_terminal", "read_file"),
        *("write_file", "patch", "search_files", "vision_analyze", "image_generate", "text_to_speech"),
        *("clarify", "execute_code", "cronjob", "computer_use"),
        *(f"browser_{what}" for what in ("navigate", "snapshot", "click", "type", "scroll", "back", "press")),
        *(f"browser_{what}" for what in ("get_images", "vision", "console", "cdp", "dialog")),
        *(f"ha_{what}" for what in ("list_entities", "get_state", "list_services", "call_service")),
        *(
            f"kanban_{what}"
            for what in ("show", "list", "complete", "block", "heartbeat", "comment", "create")
        ),
        *(f"kanban_{what}" for what in ("link", "unblock", "attach", "attach_url", "attachments")),
    ]
)


def schema_fault(schema: dict[str, Any]) -> str:
    """Return the reason why a model server would refuse every request with this tool; "" if there is none."""
    if not TOOL_NAME.fullmatch(schema["name"]):
        return f"a model's tools have names of up to {LONGEST_TOOL_NAME} letters, digits, _ and -"
    if not isinstance(schema.get("description", ""), str):
        return f"its description is a {type(schema['description']).__name__}, not a str"
    parameters = schema["parameters"]
    kind = parameters.get("type", "object")
    if kind != "object":
        return f"its parameters are of type {kind!r}, not an object"
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    if not isinstance(properties, Mapping) or not all(
        isinstance(p, Mapping | bool) for p in properties.values()
    ):
        return f"the properties of its parameters are {properties!r:.200}, not an object of schemas"
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) for name in required):
        return f"`required` of its parameters is {required!r:.200}, not a list of names"
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as exc:
        return f"its schema can't be written as JSON ({exc})"
    return ""


def _clean_schema(handle: ProviderHandle, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provider's schema as the model gets it: labelled, without fences and turns, and of a bounded length."""
    clean: dict[str, Any] = clean_result(dict(schema))
    text = clean.get("description", "")
    if len(text) > MAX_DESCRIPTION_CHARS:
        handle.add_tool_problem(
            f"the description of {schema['name']!r} is cut to {MAX_DESCRIPTION_CHARS:,} characters"
        )
    clean["description"] = (
        f"{text[:MAX_DESCRIPTION_CHARS]} (tool of the memory provider {handle.name})".strip()
    )
    return clean


class ToolIndex:
    """Index of tools by name.

    If two providers offer the same name, the first one keeps it and the other gets a warning.
    """

    def __init__(self) -> None:
        self._owners: dict[str, ProviderHandle] = {}
        self._schemas: dict[str, dict[str, Any]] = {}
        self._aliases: dict[str, str] = {}
        # What the providers themselves call their tools, by the name that the model sees.
        self._own_names: dict[str, str] = {}

    def add(self, handle: ProviderHandle) -> None:
        """Add the tools that the provider offers, and the aliases (older names) of these tools.

        The tools of a member of a composite get its name as a prefix. Of all members, at most `MAX_TOOLS` are offered.
        """
        if "facts" not in handle.kinds:
            return
        for own in handle.schemas:
            schema = own
            if handle.member:
                schema = own | {"name": member_tool_name(handle.name, own["name"])}
            name, warning = schema["name"], ""
            if fault := schema_fault(schema):
                handle.add_tool_problem(f"tool {name!r} is left out: {fault}")
            elif self._owners.get(name) is handle:
                handle.add_tool_problem(
                    f"a second tool {name!r} is left out: the provider offers that name already"
                )
            elif name in RESERVED_TOOL_NAMES and not handle.builtin:
                warning = f"tool {name!r} is refused: the host uses that name"
            elif name in self._owners:
                warning = f"tool {name!r} is refused: {self._owners[name].name!r} offers it"
            elif handle.member and sum(owner.member for owner in self._owners.values()) >= MAX_TOOLS:
                handle.add_tool_problem(
                    f"tool {name!r} is left out: a composite has at most {MAX_TOOLS} tools; shorten composite.facts"
                )
            else:
                if handle.member:  # the prompt block of the provider names its tools as the provider does
                    self._own_names[name] = own["name"]
                    self._aliases.setdefault(own["name"], name)
                self._owners[name] = handle
                self._schemas[name] = schema if handle.builtin else _clean_schema(handle, schema)
            if warning:
                log.warning("%s: %s", handle.name, warning)
                handle.warnings.append(warning)
        for alias, own_name in handle.first.capabilities.tool_aliases.items():
            name = member_tool_name(handle.name, own_name) if handle.member else own_name
            free = alias not in RESERVED_TOOL_NAMES and alias not in self._owners
            if free and self._owners.get(name) is handle:
                self._aliases.setdefault(alias, name)

    def find(self, name: Any) -> tuple[ProviderHandle | None, Any, str]:
        """Return the provider of a tool, None if there is none, the current name of the tool, and the provider's own.

        Args:
            name: The name that the model calls: a current name, or an alias.
        """
        if not isinstance(name, str):
            return None, name, ""
        if name not in self._owners:
            name = self._aliases.get(name, name)
        return self._owners.get(name), name, self._own_names.get(name, name)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The schemas of all tools, in the order in which they were added."""
        return list(self._schemas.values())

    @property
    def names(self) -> set[str]:
        """The names of all tools."""
        return set(self._owners)


# --------------------------------------------------------------------------- registry


class ProviderRegistry:
    """The providers of a manager: the built-in one and at most one external provider, or the members of a composite.

    Attributes:
        handles: The accepted providers, in the order in which they were added.
        external: The external providers: none, one, or the members of a composite.
        durable: The external providers with a hook that stores something.
        refused: State and reason of each refused provider, by its name.
    """

    def __init__(self, config: ManagerConfig) -> None:
        self.tools = ToolIndex()
        self._config = config
        self.handles: tuple[ProviderHandle, ...] = ()
        self.external: tuple[ProviderHandle, ...] = ()
        self.durable: tuple[ProviderHandle, ...] = ()
        self.refused: dict[str, ProviderHealth] = {}
        # Two threads that add a provider at once would both find that there is no external provider yet.
        self._lock = threading.Lock()

    def implementing(self, hook: str) -> tuple[ProviderHandle, ...]:
        """Return the providers that implement this hook."""
        return tuple(handle for handle in self.handles if handle.implements(hook))

    def add(
        self,
        source: object,
        name: str,
        *,
        builtin: bool,
        fingerprint: Callable[[], str] | None,
        deadlines: Mapping[str, float] = NO_DEADLINES,
        kinds: frozenset[WriteKind] | None = None,
        selector: str = "",
    ) -> bool:
        """Construct and validate a provider, and ask it whether it can run. Return True if it was accepted.

        A refused provider is put into `refused` with the reason.
        """
        account, error = attempt(fingerprint) if fingerprint else ("", None)
        handle = ProviderHandle(
            source,
            self._config,
            name=name,
            builtin=builtin,
            fingerprint=account or "",
            account=fingerprint,
            deadlines=deadlines,
            kinds=kinds,
            selector=selector,
        )
        if error is not None:
            text = describe(error, self._config.redact)
            return self._refuse(handle, "failed", f"its account can't be told: {text}")
        with self._lock:
            state, reason = self._no_room(handle) or handle.inspect()
            named_builtin = BUILTIN_NAME in (handle.name, handle.own_name)
            if not reason and (handle.name != BUILTIN_NAME if builtin else named_builtin):
                state = "failed"
                reason = f"the name {BUILTIN_NAME!r} belongs to the curated memory; choose another"
            if reason:
                return self._refuse(handle, state, reason)
            self.refused.pop(handle.name, None)
            self.handles = (*self.handles, handle)
            if not builtin:
                self.external = (*self.external, handle)
                if handle.first.hooks & DURABLE_HOOKS:
                    self.durable = (*self.durable, handle)
            self.tools.add(handle)
        return True

    def _no_room(self, handle: ProviderHandle) -> tuple[State, str] | None:
        """Return the state and the reason for refusing a provider before it is constructed; None to accept it."""
        if handle.builtin:
            taken = any(other.builtin for other in self.handles)
            return ("failed", "there is a built-in provider already") if taken else None
        for other in self.external:
            if not (handle.member and other.member):
                return "idle", f"only one external provider at a time, and {other.name!r} is active"
            if other.name.casefold() == handle.name.casefold():
                return "idle", f"{other.name!r} is a member of the composite already"
        if len(self.external) >= MAX_MEMBERS:
            return "idle", f"a composite has at most {MAX_MEMBERS} members"
        return None

    def _refuse(self, handle: ProviderHandle, state: State, reason: str) -> bool:
        reason = self._config.redact(reason)
        log.warning(
            "memory provider %r is not active: %s", handle.name, reason, extra={"event": "provider.refused"}
        )
        warnings = tuple(handle.warnings)
        self.refused[handle.name] = ProviderHealth(handle.name, state, reason, warnings=warnings)
        data: dict[str, Any] = {"provider": handle.name, "state": state, "reason": reason}
        self._config.emit("provider.refused", data)
        handle.first.close_idle()
        return False


def register_commands(make: Callable[[], object], name: str, group: object) -> CallResult:
    """Construct a provider with `make`, and let it add its commands to `group`, a `click.Group`.

    No manager is needed.

    The provider is not initialized, because a person may need these commands to set it up first.
    """

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        """Drop the event, because there are no observers without a manager."""

    config = ManagerConfig(time.monotonic, time.time, redact_value, {}, 0.0, emit)
    instance = ProviderHandle(make, config, name=name).first
    construction = instance.construct()
    try:
        return instance.call("register_cli", {"group": group}) if construction.ok else construction
    finally:
        instance.close_idle()

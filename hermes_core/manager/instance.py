"""One living provider object: its hooks, its two lanes, and how far its life has come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import Capabilities, Session
from hermes_core.manager.attempt import attempt
from hermes_core.manager.breaker import Breaker
from hermes_core.manager.call import CallResult, Hook, describe, guarded
from hermes_core.manager.coroutines import Coroutines
from hermes_core.manager.health import NO_PROBE, ManagerConfig, ProviderStats, State
from hermes_core.manager.lanes import Job, Worker
from hermes_core.manager.registry import Registry, capabilities_of
from hermes_core.stopping import waited

log = logging.getLogger(__name__)

Phase = Literal["new", "starting", "ready", "failed", "closed"]

RETRY_START = 60.0
"""Seconds before an `initialize` that failed is tried again, by the next call that wants the provider."""

BEFORE_READY = frozenset(
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
"""Calls that need no initialized provider. They say nothing about the backend, so no breaker counts them."""

ABSENT = CallResult("skipped")
"""The outcome of a hook that the provider does not implement."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How the calls of one hook go out: the same for all of them, so worked out once. No `breaker` counts a hook of
    `BEFORE_READY`. A `patient` call goes along with the next."""

    hook: str
    run: Callable[[Mapping[str, Any]], CallResult]
    deadline: float
    lane: Worker
    breaker: Breaker | None
    patient: bool = False


class Flight(Job):
    """A call of a hook that was handed to its lane. `wait` gives its outcome and is called once."""

    __slots__ = ("_afterwards", "_arguments", "_posted", "_way", "instance")

    def __init__(
        self,
        instance: ProviderInstance,
        way: _Way,
        arguments: Mapping[str, Any],
        afterwards: Callable[[CallResult], None] | None,
        watched: bool,
        patient: bool,
    ) -> None:
        super().__init__(way.hook, way.deadline, watched, patient)
        self.instance = instance
        self._way = way
        self._arguments = arguments
        self._afterwards = afterwards
        self._posted = not watched

    @property
    def under_way(self) -> bool:
        """Whether the call waits in line or runs."""
        return self.state in ("waiting", "running")

    def wait(self, timeout: float | None = None) -> CallResult:
        """The outcome, at the latest after `timeout` seconds (default: the hook's deadline)."""
        breaker, outcome = self._way.breaker, None
        try:
            outcome = self._way.lane.wait(self, self.deadline if timeout is None else timeout)
        finally:
            if outcome is None and breaker is not None:  # Ctrl-C, or a handler of the host for another signal
                breaker.withdrawn()
        self.instance.vitals.settle(self.hook, outcome, breaker)
        return outcome

    def withdraw(self) -> None:
        """Take the call back if it has not begun; nobody will wait for it."""
        if self.state == "waiting" and self._way.lane.withdraw(self) and self._way.breaker is not None:
            self._way.breaker.withdrawn()

    def run(self) -> CallResult:
        """Make the call."""
        return self._way.run(self._arguments)

    def ended(self, outcome: CallResult) -> None:
        """Note how a call ended that nobody waited for, and pass the outcome on."""
        if self._posted:
            noted = outcome
            if outcome.elapsed > self.deadline and outcome.ok:
                noted = CallResult("late", error=f"took {outcome.elapsed:.1f} s", counts=True)
            self.instance.vitals.settle(self.hook, noted, self._way.breaker)
        if self._afterwards is not None:
            self._afterwards(outcome)


class Landed:
    """A call whose outcome is known from the start: it could not be handed over, or was made at once."""

    __slots__ = ("instance", "outcome")
    watched = True
    under_way = False

    def __init__(self, instance: ProviderInstance, outcome: CallResult) -> None:
        self.instance = instance
        self.outcome = outcome

    def wait(self, timeout: float | None = None) -> CallResult:
        """The outcome."""
        del timeout
        return self.outcome

    def withdraw(self) -> None:
        """There is nothing to take back."""


class ProviderInstance:
    """One provider object and the threads that it runs on.

    `make` constructs it, on the read lane. `inline` runs every hook on the caller's thread, for our own provider.
    `before_start` is called whenever `initialize` begins, `on_start` when it has ended.
    """

    def __init__(
        self,
        label: str,
        make: Callable[[], object],
        registry: Registry,
        terms: ManagerConfig,
        vitals: ProviderStats,
        *,
        inline: bool = False,
        before_start: Callable[[], None] = lambda: None,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.label = label
        self.vitals = vitals
        self.provider: object = None
        self.hooks: dict[str, Hook] = {}
        self.capabilities = Capabilities()
        self.phase: Phase = "new"
        self.reason = ""
        self.read = Worker(f"hermes-{label}-read", terms.clock)
        self.write = Worker(f"hermes-{label}-write", terms.clock, replaceable=False)
        self._ways: dict[str, _Way] = {}
        self._make = make
        self._registry = registry
        self._terms = terms
        self._inline = inline
        self._before_start = before_start
        self._on_start = on_start
        self._coroutines = Coroutines(f"hermes-{label}")
        self._lock = threading.Lock()
        self._start_ended = threading.Event()
        self._left = threading.Event()
        self._started_at = 0.0
        self._began = 0.0
        self._closing = False
        self._session: Session | None = None

    # ------------------------------------------------------------------- calls

    def call(self, hook: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call `hook` and wait for it, at most until its deadline."""
        return self.submit(hook, arguments).wait()

    def submit(
        self,
        hook: str,
        arguments: Mapping[str, Any],
        afterwards: Callable[[CallResult], None] | None = None,
        *,
        watched: bool = True,
        alone: bool = False,
    ) -> Flight | Landed:
        """Hand a call over; one that stands `alone` waits for none to go with. `afterwards` gets the outcome of one that ends
        after its waiter has left; of one that is not `watched`, which nobody waits for, it gets the outcome in any case. It
        is called on the lane's thread.
        """
        way = self._ways.get(hook)
        if way is None:
            return Landed(self, ABSENT)
        if self.phase != "ready" and (problem := self._unready(hook)):
            return Landed(self, CallResult("skipped", error=problem))
        if self._inline:
            return self._at_once(way, arguments, afterwards)
        return self._hand_over(way, arguments, afterwards, watched=watched, alone=alone)

    def _hand_over(
        self,
        way: _Way,
        arguments: Mapping[str, Any],
        afterwards: Callable[[CallResult], None] | None,
        *,
        watched: bool,
        alone: bool = False,
    ) -> Flight | Landed:
        breaker = way.breaker
        if breaker is not None and not breaker.closed and (way.hook in NO_PROBE or not breaker.admit()):
            return Landed(self, CallResult("open", error=f"left alone for {breaker.remaining:.0f} s more"))
        flight = Flight(self, way, arguments, afterwards, watched, way.patient and not (watched or alone))
        if refused := way.lane.submit(flight, self._terms.errands if way.hook == "queue_prefetch" else None):
            if breaker is not None:
                breaker.withdrawn()
            return Landed(self, CallResult("skipped", error=refused))
        return flight

    def _at_once(
        self, way: _Way, arguments: Mapping[str, Any], afterwards: Callable[[CallResult], None] | None
    ) -> Flight | Landed:
        outcome = way.run(arguments)
        self.vitals.settle(way.hook, outcome, None)
        if afterwards is not None:
            afterwards(outcome)
        return Landed(self, outcome)

    def _way(self, hook: Hook) -> _Way:
        durable = hook.name in POLICIES and POLICIES[hook.name].durable
        deadline = self._terms.deadline(hook.name)
        run = partial(guarded, hook, deadline, self._coroutines, self._terms.clock, self._terms.redact)
        return _Way(
            hook.name,
            run,
            deadline,
            self.write if durable else self.read,
            None if hook.name in BEFORE_READY else self.vitals.breakers["write" if durable else "read"],
            patient=hook.name == "on_turn_start" and "prefetch" in self.hooks,
        )

    def _unready(self, name: str) -> str:
        """Why `name` can't be called yet. A start that failed a while ago is tried again, in the background."""
        if name in BEFORE_READY:
            return ""
        self.start_again()
        return self.condition()[1]

    # -------------------------------------------------------------------- life

    def construct(self) -> CallResult:
        """Make the provider, validate it and read its capabilities; wait for that."""
        way = self._way(Hook("construct", self._construct, ()))
        if self._inline:
            return way.run({})
        return self._hand_over(way, {}, None, watched=True).wait()

    def start(self, session: Session) -> None:
        """Begin `initialize` in the background, unless it was; after a failure again, but not at once."""
        with self._lock:
            again = self.phase == "failed" and not self.given_up
            if self._closing or not (self.phase == "new" or again):
                return
            self.phase = "starting"
            self._session = session
            self._started_at = self._terms.clock()
            self._began = time.monotonic()
            self._start_ended.clear()
        way = self._way(Hook("initialize", partial(self._initialize, session), ()))
        if self._inline:
            self._started(way.run({}))
            return
        flight = self._hand_over(way, {}, self._started, watched=False)
        if isinstance(flight, Landed):
            self._started(flight.outcome)

    @property
    def given_up(self) -> bool:
        """Whether `initialize` failed a short while ago, so that it is not tried again yet."""
        return self.phase == "failed" and self._terms.clock() - self._started_at < RETRY_START

    def start_again(self) -> None:
        """After a start that failed a while ago, begin another in the background."""
        if self.phase == "failed" and self._session is not None:
            self.start(self._session)

    def wait_started(self, timeout: float) -> bool:
        """Wait until `initialize` ended, well or not, at most until `timeout` seconds after it began; whether it ended well.

        So one that hangs is waited for once, however often a host asks.
        """
        waited(self._start_ended.wait, self._began + timeout - time.monotonic())
        return self.phase == "ready"

    def close(self, timeout: float) -> bool:
        """Let the lanes end, call `shutdown` once, stop the threads. Whether all ended within `timeout` seconds.

        `shutdown` comes whatever `initialize` did. One that is a coroutine is cancelled; another is waited for as long
        as a start waits, and the provider is shut down when it ends. A write is waited for, then all that is a
        coroutine is cancelled; a call that hangs nonetheless on the thread of `shutdown`, or a write, puts it off until it
        returns.
        """
        until = time.monotonic() + timeout
        phase = self._begin_close()
        if phase == "closed":
            return True
        if phase == "starting":
            cancelled = self._coroutines.cancel()
            patience = timeout if cancelled else self._began + self._terms.start_wait - time.monotonic()
            ended = self._start_ended.wait(min(max(0.0, patience), timeout))
            return ended and self._left.wait(max(0.0, until - time.monotonic()))
        clean = self.write is self.read or self.write.stop(timeout / 4)
        if self._coroutines.cancel() and not clean:
            clean = self.write.stop(timeout / 4)
        if clean:
            return self._end(phase, until - time.monotonic())
        log.warning("%s: a write has not returned; shutdown is called when it does", self.label)
        name = f"hermes-{self.label}-end"
        attempt(threading.Thread(target=self._end_after_write, args=(phase,), name=name, daemon=True).start)
        return False

    def _end_after_write(self, phase: Phase) -> None:
        self.write.stop(threading.TIMEOUT_MAX)
        self._end(phase, self._terms.deadline("shutdown"))

    def _end(self, phase: Phase, timeout: float) -> bool:
        """`shutdown` for what was begun, and the end of the read lane. Whether it ended in time."""
        clean, last = True, None
        if phase != "new" and "shutdown" in self.hooks:
            flight = self.submit("shutdown", {})
            clean = flight.wait(timeout).status in ("ok", "failed")
            if not clean and (isinstance(flight, Landed) or flight.state == "withdrawn"):
                last = self._last()  # a call hangs: it comes when that returns
        if self.read.stop(0, last) or last is None:
            self._leave()
        return clean

    def _last(self) -> Flight:
        """`shutdown` as the last call of its lane, for which nobody waits."""
        way = self._ways["shutdown"]
        return Flight(self, way, {}, lambda _: self._leave(), watched=False, patient=False)

    def close_idle(self) -> None:
        """Close an instance that runs nothing, without waiting for it."""
        phase = self._begin_close()
        if phase in ("closed", "starting"):
            return
        if self.write is not self.read:
            self.write.stop(0)
        last = self._last() if phase != "new" and "shutdown" in self.hooks else None
        in_line = last is not None and not self.read.submit(last)
        if self.read.stop(0, None if in_line else last) or last is None:
            self._leave()

    def _begin_close(self) -> Phase:
        """The phase before; what is starting goes on and is shut down when it ends."""
        with self._lock:
            if self._closing:
                return "closed"
            self._closing, phase = True, self.phase
            if phase != "starting":
                self.phase = "closed"
        if phase == "starting":
            self.read.stop(0)
        return phase

    def condition(self) -> tuple[State, str]:
        """The state in the catalog's words, and the reason when it is not plainly active."""
        if self.phase == "ready":
            return self._working_condition()
        if self.phase == "starting":
            return "degraded", f"initialize has run for {self._terms.clock() - self._started_at:.0f} s"
        reasons = {"new": "not initialized yet", "closed": "shut down"}
        return ("failed", self.reason) if self.phase == "failed" else ("idle", reasons[self.phase])

    def _working_condition(self) -> tuple[State, str]:
        if late := self.read.overdue or self.write.overdue:
            return "degraded", late
        for kind, breaker in self.vitals.breakers.items():
            if not breaker.closed:
                return "degraded", f"{kind} breaker {breaker.state}, last error: {breaker.last_error}"
        if trouble := self.vitals.recall_trouble:
            return "degraded", trouble
        return "active", ""

    def _construct(self) -> object:
        provider = self._make()
        hooks = self._registry.enter_provider(provider)
        capabilities = capabilities_of(provider)
        if capabilities.serial:
            # All its hooks share one thread; a second thread in place of a hung one would make them overlap.
            self.read.replaceable = False
            self.write = self.read
        self.provider, self.hooks, self.capabilities = provider, hooks, capabilities
        self._ways = {name: self._way(hook) for name, hook in hooks.items()}
        return provider

    def _initialize(self, session: Session) -> Any:
        if self.provider is None:
            self._construct()
        self._before_start()
        hook = self.hooks.get("initialize")
        given = {"session": session}
        return None if hook is None else hook.function(*[given[name] for name in hook.argnames])

    def _started(self, outcome: CallResult) -> None:
        """`initialize` ended, on the read lane."""
        capabilities, broken = attempt(lambda: capabilities_of(self.provider)) if outcome.ok else (None, None)
        if broken is not None:
            outcome = CallResult("failed", error=f"capabilities: {describe(broken, self._terms.redact)}")
        with self._lock:
            closing = self._closing
            self.phase = "closed" if closing else "ready" if outcome.ok else "failed"
            self.reason = "" if outcome.ok else f"initialize: {outcome.error or outcome.status}"
            self.capabilities = capabilities or self.capabilities
        self._start_ended.set()
        if closing:
            self._shut_down_late()
            return
        data = {"provider": self.vitals.name, "error": self.reason}
        self._terms.emit(f"provider.{self.phase}", data)
        self._on_start()

    def _shut_down_late(self) -> None:
        log.info("%s: initialize ended after the shutdown; shutting it down", self.label)
        if "shutdown" in self.hooks:
            self.vitals.settle("shutdown", self._ways["shutdown"].run({}), None)
        self._leave()

    def _leave(self) -> None:
        self._coroutines.stop()
        self._registry.leave(self.provider)
        self._left.set()

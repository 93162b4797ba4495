"""Statistics and health of a provider: its counters, its breakers, and the report that hosts show."""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from hermes_core.contract.hooks import OBSERVER_POLICIES, POLICIES
from hermes_core.manager.breaker import Breaker, BreakerState
from hermes_core.manager.call import CallResult
from hermes_core.manager.plugins import Monitor
from hermes_core.safety.terminal import counted

log = logging.getLogger(__name__)

State = Literal["active", "idle", "degraded", "failed", "unavailable"]
WorkerKind = Literal["read", "write"]

# Late recalls in a row after which no turn waits for the provider: a single slow answer is no outage.
MAX_LATE_RECALLS = 2

# Seconds after which a failed recall says nothing about the backend any more.
RECALL_FAILURE_TTL_S = 300.0

# Seconds that a backend takes at least: an empty recall that took less did not ask it (small talk, for
# instance).
MIN_BACKEND_S = 0.0005

# Seconds between two `provider.hooks` events of a process. One more comes at its end. Other processes read
# them.
REPORT_INTERVAL_S = 300.0

# Hooks that may do nothing at all, so that their success says nothing about the backend.
OPTIONAL_WORK_HOOKS = frozenset({"on_turn_start", "system_prompt_block"})

# Hooks of every start and end; they alone are no reason for a `provider.hooks` event.
START_HOOKS = frozenset(
    {"construct", "initialize", "is_available", "get_tool_schemas", "system_prompt_block", "shutdown"}
)

MAX_DURATIONS = 200


NO_DEADLINES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HookHealth:
    """Figures of one hook of a provider.

    Attributes:
        calls: Number of calls.
        last_success: Time of the last successful call, in seconds since the epoch.
        p95_ms: 95th percentile of the durations of the last 200 successful calls, in milliseconds.
    """

    calls: int = 0
    last_success: float | None = None
    p95_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """State and statistics of one provider, as the commands `status` and `doctor` and the result of a turn show them.

    Attributes:
        reason: The reason why the state is not "active"; "" if there is none.
        breakers: State of the breaker by worker ("read" and "write").
        depth: Number of outbox rows that wait for delivery.
        oldest_age: Age in seconds of the oldest row that waits; None if none waits.
        dead_letters: Number of dead letters of the provider.
        last_success: Time of the last successful call, in seconds since the epoch.
        warnings: Faults that don't stop the provider, such as a tool with a reserved name.
        remedy: What the person can do about `reason`; "" if the cause is not known.
    """

    name: str
    state: State
    reason: str = ""
    breakers: Mapping[str, BreakerState] = field(default_factory=dict)
    depth: int = 0
    oldest_age: float | None = None
    dead_letters: int = 0
    last_error: str = ""
    last_success: float | None = None
    calls: int = 0
    late: int = 0
    failed: int = 0
    warnings: tuple[str, ...] = ()
    hooks: Mapping[str, HookHealth] = field(default_factory=dict)
    remedy: str = ""

    @property
    def only_dead_letters(self) -> bool:
        """True if `reason` reports dead letters and nothing else."""
        return self.dead_letters > 0 and self.reason == dead_letter_reason(self.dead_letters)


def dead_letter_reason(count: int) -> str:
    """Return a sentence that reports `count` dead letters and names the commands for them; "" for 0."""
    way_out = "`hermes-memory outbox list` says why, then `hermes-memory outbox retry` or `drop`"
    return (
        f"{counted(count, 'write is a dead letter', 'writes are dead letters')}: {way_out}" if count else ""
    )


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """Settings that all parts of a manager share.

    Attributes:
        clock: Measures the ages of recall and the pauses before retries. Waiting itself uses real time.
        wall: Returns the time of events and rows, in seconds since the epoch.
        redact: Removes secrets from data for a provider, an event or the log.
        deadlines: Seconds by hook name. They replace the default deadlines of these hooks.
        start_wait: Seconds that the start of a session waits for a provider's `initialize`.
        emit: Sends an event (kind, data) to the observers, and returns at once.
        observers: Observers whose hook wrappers surround the calls of every provider.
        refuse_local: The reason why providers with `Capabilities.local` are refused; "" if they are not.
        monitors: Monitors of every hook call of all providers. The list changes while the manager runs.
    """

    clock: Callable[[], float]
    wall: Callable[[], float]
    redact: Callable[[Any], Any]
    deadlines: Mapping[str, float]
    start_wait: float
    emit: Callable[[str, Mapping[str, Any]], None]
    observers: Sequence[object] = ()
    refuse_local: str = ""
    monitors: list[Monitor] = field(default_factory=list)

    def deadlines_of(self, of_provider: Mapping[str, float] = NO_DEADLINES) -> dict[str, float]:
        """Return the seconds that one call of each hook may take. "construct" has the deadline of `initialize`.

        Args:
            of_provider: Seconds by hook name that take the place of the policies of these hooks for one provider.
        """
        policies = {name: policy.deadline for name, policy in (POLICIES | OBSERVER_POLICIES).items()}
        deadlines = policies | {**of_provider, **self.deadlines}
        return deadlines | {"construct": deadlines["initialize"]}


class _Counter:
    """Counter of the calls of one hook."""

    __slots__ = ("calls", "durations", "failed", "last_success", "late")

    def __init__(self) -> None:
        self.calls = self.late = self.failed = 0
        self.last_success: float | None = None
        self.durations: deque[float] = deque(maxlen=MAX_DURATIONS)

    def health(self) -> HookHealth:
        """Return the counts as a `HookHealth`. The percentile uses the nearest-rank method."""
        durations = sorted(self.durations)
        p95 = round(durations[math.ceil(0.95 * len(durations)) - 1] * 1000, 1) if durations else None
        return HookHealth(self.calls, self.last_success, p95)


class ProviderStats:
    """Counters and breakers of one provider. Its instances share them, because they talk to the same backend."""

    def __init__(self, name: str, config: ManagerConfig) -> None:
        self.name = name
        self.breakers: dict[WorkerKind, Breaker] = {
            "read": Breaker(config.clock),
            "write": Breaker(config.clock),
        }
        self.last_error = ""
        # Error and remedy of the last failure of each hook.
        self._remedies: dict[str, tuple[str, str]] = {}
        self._config = config
        # Every worker of every instance records here.
        self._lock = threading.Lock()
        self._counters: defaultdict[str, _Counter] = defaultdict(_Counter)
        self._recall_failed_at: float | None = None
        self._recall_refused = False
        self._recall_error = ""
        # Recalls since the last one in time whose answer came after the deadline, or not yet.
        self._late_recalls = 0
        self._reported_calls = 0
        self._reported_at = config.clock()

    def totals(self) -> dict[str, Any]:
        """Return the statistics as fields of `ProviderHealth`: sums over all hooks, and the health of each hook."""
        with self._lock:
            counters = [*self._counters.values()]
            successes = [one.last_success for one in counters if one.last_success is not None]
            return {
                "calls": sum(one.calls for one in counters),
                "late": sum(one.late for one in counters),
                "failed": sum(one.failed for one in counters),
                "last_success": max(successes, default=None),
                "hooks": {name: counter.health() for name, counter in self._counters.items()},
            }

    def remedy_of(self, reason: str) -> str:
        """Return the remedy of the newest failure that `reason` reports, "" if it has none."""
        with self._lock:
            failures = [*self._remedies.values()][::-1]
        return next((remedy for error, remedy in failures if error in reason and remedy), "")

    @property
    def recall_failing(self) -> bool:
        """True if the last recall failed in the last `RECALL_FAILURE_TTL_S` seconds, so that no turn should wait."""
        failed_at = self._recall_failed_at
        return (
            failed_at is not None
            and not self._recall_refused
            and self._config.clock() - failed_at < RECALL_FAILURE_TTL_S
        )

    @property
    def recall_late(self) -> bool:
        """True if `recall_failing` has no other reason than a single recall whose answer is late."""
        return 0 < self._late_recalls < MAX_LATE_RECALLS and self.recall_failing

    @property
    def recall_problem(self) -> str:
        """A sentence about the last recall if it failed in the last `RECALL_FAILURE_TTL_S` seconds; else ""."""
        failed_at = self._recall_failed_at
        if failed_at is None or self._config.clock() - failed_at >= RECALL_FAILURE_TTL_S:
            return ""
        if self._recall_refused:  # the backend is there: a wrong address, a wrong type
            return f"its last recall failed: {self._recall_error}"
        if self.recall_late:
            return f"its last recall was late, and the next turn asks again: {self._recall_error}"
        return f"no turn waits for its recall, because the last one failed: {self._recall_error}"

    def report(self) -> None:
        """Emit `provider.hooks` if a hook other than `START_HOOKS` was called since the last report."""
        with self._lock:
            calls = sum(one.calls for name, one in self._counters.items() if name not in START_HOOKS)
            due, self._reported_calls = calls != self._reported_calls, calls
            self._reported_at = self._config.clock()
        if due:
            hooks = {name: dataclasses.asdict(health) for name, health in self.totals()["hooks"].items()}
            self._config.emit("provider.hooks", {"provider": self.name, "hooks": hooks})

    def record(self, hook: str, result: CallResult, breaker: Breaker | None) -> None:
        """Record the result of one call in the counters and the breaker. Log a failure and emit it as an event."""
        if result.ok:
            with self._lock:
                counter = self._counters[hook]
                counter.calls += 1
                counter.last_success = self._config.wall()
                counter.durations.append(result.elapsed)
        elif result.status in ("late", "failed"):
            self._record_failure(hook, result)
        # Nearly every call succeeds while nothing is wrong; it skips the rest.
        if (
            not result.ok
            or self._recall_failed_at is not None
            or self._late_recalls
            or (breaker is not None and not breaker.at_rest)
        ):
            answered = result.ok and _proves_backend(hook, result)
            if hook == "prefetch":
                self._judge_recall(result, answered)
            if breaker is not None:
                self._tell_breaker(hook, result, breaker, answered)
        if self._config.clock() - self._reported_at >= REPORT_INTERVAL_S:
            self.report()

    def record_late_end(self, hook: str, result: CallResult, breaker: Breaker | None) -> None:
        """Note the result of a call for which no caller waited any more.

        If the backend answered after all, it was slow and not down: the failure that `record` counted for the late
        call is taken back. Repeated late recalls still keep turns from waiting, until one is in time.
        """
        if not (result.ok and _proves_backend(hook, result)):
            return
        if hook == "prefetch" and self._late_recalls < MAX_LATE_RECALLS:
            self._recall_failed_at = None
        if breaker is not None and not breaker.at_rest:
            self._tell_breaker(hook, result, breaker, answered=True)

    def _record_failure(self, hook: str, result: CallResult) -> None:
        with self._lock:
            counter = self._counters[hook]
            counter.calls += 1
            counter.late += result.status == "late"
            counter.failed += result.status == "failed"
            self.last_error = f"{hook}: {result.error}"
            self._remedies.pop(hook, None)
            self._remedies[hook] = result.error, result.remedy
        log.warning(
            "%s: %s %s: %s", self.name, hook, result.status, result.error, extra={"event": "provider.call"}
        )
        if result.trace:
            log.debug("%s: %s\n%s", self.name, hook, result.trace)
        data = {"provider": self.name, "hook": hook, "status": result.status, "error": result.error}
        self._config.emit("provider.call", data)

    def _judge_recall(self, result: CallResult, answered: bool) -> None:
        if result.counts or result.status == "failed":
            self._recall_error = f"prefetch: {result.error}"
            self._recall_failed_at, self._recall_refused = self._config.clock(), not result.counts
            if result.status == "late":
                self._late_recalls += 1
            elif result.status == "failed":
                self._late_recalls = 0
        elif answered:
            self._recall_failed_at = None
            self._late_recalls = 0

    def _tell_breaker(self, hook: str, result: CallResult, breaker: Breaker, answered: bool) -> None:
        before = breaker.state
        if answered:
            breaker.success()
            if before == "closed":
                return
        elif result.ok:
            if hook not in OPTIONAL_WORK_HOOKS:
                breaker.withdrawn()
        elif result.counts:
            breaker.last_error = f"{hook}: {result.error}"
            breaker.failure()
        elif result.status == "skipped":
            breaker.withdrawn()
        else:
            breaker.answered()
        after = breaker.state
        if after != before:
            log.warning(
                "%s: breaker %s, was %s", self.name, after, before, extra={"event": "provider.breaker"}
            )
            self._config.emit("provider.breaker", {"provider": self.name, "state": after, "was": before})


def _proves_backend(hook: str, result: CallResult) -> bool:
    """Return True if this successful call shows that the backend is reachable."""
    if hook in ("prefetch", "queue_prefetch"):
        return bool(result.value) or result.elapsed >= MIN_BACKEND_S
    if hook == "handle_tool_call":
        return not str(result.value).startswith('{"error"')
    return hook not in OPTIONAL_WORK_HOOKS

"""How a provider has been doing: the counters and breakers of one provider, and the report that hosts show."""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes_core.contract.hooks import OBSERVER_POLICIES, POLICIES
from hermes_core.manager.breaker import Breaker, BreakerState
from hermes_core.manager.call import CallResult
from hermes_core.manager.line import Errands

log = logging.getLogger(__name__)

State = Literal["active", "idle", "degraded", "failed", "unavailable"]
Kind = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class HookHealth:
    """One hook of a provider: how often it was called, when it last went well (seconds since the epoch), and how long
    19 of 20 good calls take at most. `p95_ms` is of the last 200."""

    calls: int = 0
    last_success: float | None = None
    p95_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """One provider as it stands, for status, doctor, and the turn's result.

    `reason` says why it is not plainly active. `depth` counts the rows of the outbox that wait, `oldest_age` is the age
    of the first of them in seconds, `parked` counts those that need a person. `last_success` is in seconds since the
    epoch. `warnings` are faults that do not stop it, as a tool of a reserved name.
    """

    name: str
    state: State
    reason: str = ""
    breakers: Mapping[str, BreakerState] = field(default_factory=dict)
    depth: int = 0
    oldest_age: float | None = None
    parked: int = 0
    last_error: str = ""
    last_success: float | None = None
    calls: int = 0
    late: int = 0
    failed: int = 0
    warnings: tuple[str, ...] = ()
    hooks: Mapping[str, HookHealth] = field(default_factory=dict)

    @property
    def well_but_parked(self) -> bool:
        """Whether nothing else is to be told than that parked writes need a person."""
        return self.parked > 0 and self.reason == parked_reason(self.parked)


def parked_reason(count: int) -> str:
    """What is told of parked writes; "" of none."""
    way_out = "`hermes-memory outbox list` says why, then `hermes-memory outbox retry` or `drop`"
    return f"{count} write(s) are parked: {way_out}" if count else ""


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """What all calls have in common: clocks, deadlines in seconds by hook, redaction, and where events go.

    `start_wait` is in seconds. `clock` measures ages and cooldowns, `wall` dates; waiting itself is in real time. `emit(kind, data)` returns at once.
    """

    clock: Callable[[], float]
    wall: Callable[[], float]
    redact: Callable[[Any], Any]
    deadlines: Mapping[str, float]
    start_wait: float
    emit: Callable[[str, Mapping[str, Any]], None]
    errands: Errands = field(default_factory=Errands)

    def deadline(self, hook: str) -> float:
        """Seconds that one try of `hook` may take: the host's, else the policy's. To construct counts as to start."""
        name = "initialize" if hook == "construct" else hook
        if name in self.deadlines:
            return self.deadlines[name]
        return (POLICIES.get(name) or OBSERVER_POLICIES[name]).deadline


LONG_WAIT = 0.5
"""Seconds of a turn that a recall may cost in vain once; then the backend is left alone until it may be probed."""


STALE = 300.0
"""Seconds after which a recall that failed says nothing any more about how the backend is now."""

NO_PROBE = frozenset({"on_turn_start", "system_prompt_block"})
"""Hooks that may do nothing at all: their success says nothing about the backend."""

AT_ONCE = 0.0005
"""Seconds in which no backend answers: an empty recall that took less was not asked for, as with small talk."""

REPORT_EVERY = 300.0
"""Seconds between two `provider.hooks` events of a process; one more comes at its end. Other processes read them."""

START_HOOKS = frozenset(
    {"construct", "initialize", "is_available", "get_tool_schemas", "system_prompt_block", "shutdown"}
)
"""Hooks of every start and end, which are no reason for an event."""

_MEASURED = 200


class _Tally:
    """The calls of one hook."""

    __slots__ = ("calls", "failed", "last_success", "late", "took")

    def __init__(self) -> None:
        self.calls = self.late = self.failed = 0
        self.last_success: float | None = None
        self.took: deque[float] = deque(maxlen=_MEASURED)

    def health(self) -> HookHealth:
        """The counts with the 95th percentile, by nearest rank."""
        took = sorted(self.took)
        p95 = round(took[math.ceil(0.95 * len(took)) - 1] * 1000, 1) if took else None
        return HookHealth(self.calls, self.last_success, p95)


class ProviderStats:
    """Counters and breakers of one provider, shared by its instances: they talk to the same backend."""

    def __init__(self, name: str, terms: ManagerConfig) -> None:
        self.name = name
        self.breakers: dict[Kind, Breaker] = {"read": Breaker(terms.clock), "write": Breaker(terms.clock)}
        self.last_error = ""
        self._recall_failed_at: float | None = None
        self._recall_refused = False
        self._recall_error = ""
        self._terms = terms
        self._lock = threading.Lock()
        self._tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._told = 0
        self._reported = terms.clock()

    def totals(self) -> dict[str, Any]:
        """`calls`, `late`, `failed` and `last_success` of all hooks together, as `ProviderHealth` has them."""
        with self._lock:
            tallies = [*self._tallies.values()]
            return {
                "calls": sum(tally.calls for tally in tallies),
                "late": sum(tally.late for tally in tallies),
                "failed": sum(tally.failed for tally in tallies),
                "last_success": max(
                    (t.last_success for t in tallies if t.last_success is not None), default=None
                ),
            }

    @property
    def hooks(self) -> dict[str, HookHealth]:
        """How each hook that was called has been doing."""
        with self._lock:
            return {name: tally.health() for name, tally in self._tallies.items()}

    @property
    def suspect(self) -> bool:
        """Whether the last recall failed a short while ago, so that no turn should wait for the next."""
        return self._recall_failed_at is not None and not self._recall_refused and self._failed_lately()

    @property
    def recall_trouble(self) -> str:
        """What the last recall says against the provider, while that says anything; "" else."""
        if self._recall_failed_at is None or not self._failed_lately():
            return ""
        if self._recall_refused:  # the backend is there: a wrong address, a wrong type
            return f"its last recall failed: {self._recall_error}"
        return f"no turn waits for its recall, because the last one failed: {self._recall_error}"

    def _failed_lately(self) -> bool:
        failed_at = self._recall_failed_at
        return failed_at is not None and self._terms.clock() - failed_at < STALE

    def report(self) -> None:
        """Tell the listeners how the hooks have been doing, if any but those of a start was called since the last time."""
        with self._lock:
            calls = sum(tally.calls for name, tally in self._tallies.items() if name not in START_HOOKS)
            due, self._told = calls != self._told, calls
            self._reported = self._terms.clock()
        if due:
            hooks = {name: dataclasses.asdict(one) for name, one in self.hooks.items()}
            self._terms.emit("provider.hooks", {"provider": self.name, "hooks": hooks})

    def settle(self, hook: str, outcome: CallResult, breaker: Breaker | None) -> None:
        """Take note of how a call ended: counters, breaker, log and events. Once a call."""
        ok = outcome.status == "ok"
        if ok:
            with self._lock:
                tally = self._tallies[hook]
                tally.calls += 1
                tally.last_success = self._terms.wall()
                tally.took.append(outcome.elapsed)
        elif outcome.status in ("late", "failed"):
            self._complain(hook, outcome)
        if not ok or self._recall_failed_at is not None or (breaker is not None and not breaker.at_rest):
            well = ok and _tells(hook, outcome)
            if hook == "prefetch":
                self._suspect(outcome, well)
            if breaker is not None:
                self._judge(hook, outcome, breaker, well)
        if self._terms.clock() - self._reported >= REPORT_EVERY:
            self.report()

    def _complain(self, hook: str, outcome: CallResult) -> None:
        with self._lock:
            tally = self._tallies[hook]
            tally.calls += 1
            tally.late += outcome.status == "late"
            tally.failed += outcome.status == "failed"
            self.last_error = f"{hook}: {outcome.error}"
        log.warning(
            "%s: %s %s: %s", self.name, hook, outcome.status, outcome.error, extra={"event": "provider.call"}
        )
        if outcome.trace:
            log.debug("%s: %s\n%s", self.name, hook, outcome.trace)
        data = {"provider": self.name, "hook": hook, "status": outcome.status, "error": outcome.error}
        self._terms.emit("provider.call", data)

    def _suspect(self, outcome: CallResult, well: bool) -> None:
        if outcome.counts or outcome.status == "failed":
            self._recall_error = f"prefetch: {outcome.error}"
            self._recall_failed_at, self._recall_refused = self._terms.clock(), not outcome.counts
        elif well:
            self._recall_failed_at = None

    def _judge(self, hook: str, outcome: CallResult, breaker: Breaker, well: bool) -> None:
        before = breaker.state
        if well:
            breaker.success()
            if before == "closed":
                return
        elif outcome.ok:
            if hook not in NO_PROBE:
                breaker.withdrawn()
        elif outcome.counts:
            breaker.last_error = f"{hook}: {outcome.error}"
            breaker.failure(at_once=hook == "prefetch" and outcome.elapsed >= LONG_WAIT)
        elif outcome.status == "skipped":
            breaker.withdrawn()
        else:
            breaker.answered()
        after = breaker.state
        if after != before:
            log.warning(
                "%s: breaker %s, was %s", self.name, after, before, extra={"event": "provider.breaker"}
            )
            self._terms.emit("provider.breaker", {"provider": self.name, "state": after, "was": before})


def _tells(hook: str, outcome: CallResult) -> bool:
    """Whether a call that worked says that the backend is well."""
    if hook in ("prefetch", "queue_prefetch"):
        return bool(outcome.value) or outcome.elapsed >= AT_ONCE
    if hook == "handle_tool_call":
        return not str(outcome.value).startswith('{"error"')
    return hook not in NO_PROBE

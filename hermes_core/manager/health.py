"""How a provider has been doing: the counters and breakers of one provider, and the report that hosts show."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes_core.contract.hooks import OBSERVER_POLICIES, POLICIES
from hermes_core.manager.breaker import Breaker, BreakerState
from hermes_core.manager.call import Outcome

log = logging.getLogger(__name__)

State = Literal["active", "idle", "degraded", "failed", "unavailable"]
Kind = Literal["read", "write"]


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


@dataclass(frozen=True, slots=True)
class Terms:
    """What all calls have in common: clocks, deadlines in seconds by hook, redaction, and where events go.

    `start_wait` is in seconds. `clock` measures ages and cooldowns, `wall` dates; waiting itself is in real time. `emit(kind, data)` returns at once.
    """

    clock: Callable[[], float]
    wall: Callable[[], float]
    redact: Callable[[Any], Any]
    deadlines: Mapping[str, float]
    start_wait: float
    emit: Callable[[str, Mapping[str, Any]], None]

    def deadline(self, hook: str) -> float:
        """Seconds that one try of `hook` may take: the host's, else the policy's. To construct counts as to start."""
        name = "initialize" if hook == "construct" else hook
        if name in self.deadlines:
            return self.deadlines[name]
        return (POLICIES.get(name) or OBSERVER_POLICIES[name]).deadline


LONG_WAIT = 0.5
"""Seconds of a turn that a recall may cost in vain once; then the backend is left alone until it may be probed."""


class Vitals:
    """Counters and breakers of one provider, shared by its instances: they talk to the same backend."""

    def __init__(self, name: str, terms: Terms) -> None:
        self.name = name
        self.breakers: dict[Kind, Breaker] = {"read": Breaker(terms.clock), "write": Breaker(terms.clock)}
        self.calls = self.late = self.failed = 0
        self.last_error = ""
        self.last_success: float | None = None
        self._terms = terms
        self._lock = threading.Lock()

    def settle(self, hook: str, outcome: Outcome, breaker: Breaker | None) -> None:
        """Take note of how a call ended: counters, breaker, log and events. Once a call."""
        self._count(hook, outcome)
        if breaker is not None:
            self._judge(hook, outcome, breaker)
        if outcome.status in ("late", "failed"):
            log.warning(
                "%s: %s %s: %s",
                self.name,
                hook,
                outcome.status,
                outcome.error,
                extra={"event": "provider.call"},
            )
            if outcome.trace:
                log.debug("%s: %s\n%s", self.name, hook, outcome.trace)
            data = {"provider": self.name, "hook": hook, "status": outcome.status, "error": outcome.error}
            self._terms.emit("provider.call", data)

    def _count(self, hook: str, outcome: Outcome) -> None:
        with self._lock:
            if outcome.ok:
                self.calls += 1
                self.last_success = self._terms.wall()
            elif outcome.status in ("late", "failed"):
                self.calls += 1
                self.late += outcome.status == "late"
                self.failed += outcome.status == "failed"
                self.last_error = f"{hook}: {outcome.error}"

    def _judge(self, hook: str, outcome: Outcome, breaker: Breaker) -> None:
        before = breaker.state
        if outcome.ok:
            breaker.success()
        elif outcome.counts:
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

"""How the hooks of a provider have been doing, in this process and in those before it, which tell it in the log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermes_core.contract.hooks import POLICIES
from hermes_core.health.finding import Finding, failed
from hermes_core.health.provider import LOG_LINES, age, health_of, last_error
from hermes_core.home import HermesHome
from hermes_core.logs import LogFile
from hermes_core.manager.stats import START_HOOKS, HookHealth
from hermes_core.memory import Memory


@dataclass(frozen=True, slots=True)
class HookRecord:
    """One hook: its last success in seconds since the epoch, and the 95th percentile of the process that had it last."""

    hook: str
    calls: int
    last_success: float | None
    p95_ms: float | None

    @property
    def p95(self) -> str:
        """For people.

        >>> HookRecord("prefetch", 12, 1.0, 1530.0).p95
        'p95 1,530 ms of 12 calls'
        """
        calls = f"{self.calls} call{'' if self.calls == 1 else 's'}"
        return (
            f"none of {calls} went well" if self.p95_ms is None else f"p95 {self.p95_ms:,.0f} ms of {calls}"
        )


def hook_records(
    home: HermesHome, provider: str, now: Mapping[str, HookHealth] | None = None
) -> tuple[HookRecord, ...]:
    """Every hook that was called, by name, but for those of every start.

    `now` is what this process has seen itself; the log knows the others. Raises `StorageError`.
    """
    found: dict[str, HookRecord] = {}
    for line in LogFile(home).read(limit=LOG_LINES):
        hooks = line.get("hooks")
        if line["kind"] == "provider.hooks" and line.get("provider") == provider and isinstance(hooks, dict):
            for name, told in hooks.items():
                _take(found, str(name), told if isinstance(told, dict) else {})
    for name, one in (now or {}).items():
        _take(found, name, {"calls": one.calls, "last_success": one.last_success, "p95_ms": one.p95_ms})
    return tuple(found[name] for name in sorted(found.keys() - START_HOOKS))


def examine_hooks(memory: Memory) -> Iterator[Finding]:
    """A line for each hook of the selected provider."""
    health = health_of(memory)
    if health is None or health.name == "builtin":
        return
    for one in hook_records(memory.home, health.name, health.hooks):
        ago = age(max(0.0, time.time() - one.last_success)) if one.last_success else ""
        when = f"last success {ago} ago, " if ago else ""
        yield Finding(f"hook {one.hook}", "ok" if ago else "note", f"{when}{one.p95}")


def examine_last_call(home: HermesHome, provider: str) -> Iterator[Finding]:
    """Whether a hook failed when it was called last, as far as no self-test went well since: what status must not hide."""
    last = last_error(home, provider)
    records = {one.hook: one for one in hook_records(home, provider)}
    policy = POLICIES.get(last.hook) if last else None
    if last is None or last.hook not in records or policy is None or policy.durable:
        return  # a write that failed is tried again, and the outbox tells of it
    good = [records[name].last_success or 0.0 for name in (last.hook, "check") if name in records]
    if max(good) < _seconds(last.at):
        yield failed(
            f"provider {provider}",
            f"its last {last.hook} failed: {last.error}",
            "hermes-memory doctor tries it again",
        )


def _seconds(at: str) -> float:
    """A time of the log in seconds since the epoch; 0 for what is none, as after an edit by hand."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def _take(found: dict[str, HookRecord], name: str, told: Mapping[str, Any]) -> None:
    """What a later process tells replaces what an earlier one told; but a success is not forgotten for failures."""
    calls, at, p95 = told.get("calls"), told.get("last_success"), told.get("p95_ms")
    at = at if isinstance(at, int | float) else None
    before = found.get(name)
    if before and (at or 0) < (before.last_success or 0):
        at, p95 = before.last_success, before.p95_ms
    p95 = p95 if isinstance(p95, int | float) else None
    found[name] = HookRecord(name, calls if isinstance(calls, int) else 0, at, p95)

"""One provider by its name: how its instances are made and kept, and what it offers before any of them is started."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import BUILTIN_NAME, Session
from hermes_core.manager.health import ManagerConfig, ProviderStats, State
from hermes_core.manager.instance import ProviderInstance
from hermes_core.manager.registry import Registry

log = logging.getLogger(__name__)

MAX_INSTANCES = 16
"""Instances that a provider of scope `session` has at most, each with up to two threads."""

DURABLE_HOOKS = frozenset(name for name, policy in POLICIES.items() if policy.durable)


class ProviderHandle:
    """A provider and its instances. `source` is an instance, a class, or a factory without arguments.

    `schemas` are the tools that it offers, before names are compared. `busy(session_id)` says whether writes of that
    session still wait; such an instance is not closed. `on_start` is told when an `initialize` has ended. `account` is
    asked for the `fingerprint` again whenever one begins, because it reads the settings as they are then; it has been
    this one since `account_since`.
    """

    def __init__(
        self,
        source: object,
        registry: Registry,
        terms: ManagerConfig,
        *,
        name: str = "",
        fingerprint: str = "",
        account: Callable[[], str] | None = None,
        builtin: bool = False,
    ) -> None:
        self.builtin = builtin
        self.fingerprint = fingerprint
        self.account_since = 0.0
        self._account = account
        self.schemas: tuple[dict[str, Any], ...] = ()
        self.warnings: list[str] = []
        self.busy: Callable[[str], bool] = lambda _session_id: False
        self.on_start: Callable[[], None] = lambda: None
        self._given_name = name or str(getattr(source, "name", ""))
        self._repeatable = isinstance(source, type) or (callable(source) and not hasattr(source, "name"))
        self._make: Callable[[], object] = source if callable(source) and self._repeatable else lambda: source
        self._registry = registry
        self._terms = terms
        self._by_session: OrderedDict[str, ProviderInstance] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self.name = self._given_name or "provider"
        """The name that the host gave it, else its own, once that is known."""
        self.vitals = ProviderStats(self.name, terms)
        self.first = self._new(self.name)

    @property
    def impersonates(self) -> bool:
        """Whether a stranger uses the name of the curated memory's own provider."""
        return not self.builtin and BUILTIN_NAME in {self.name, self._own_name()}

    @property
    def per_session(self) -> bool:
        """Whether each session has an instance of its own."""
        return self._repeatable and self.first.capabilities.scope == "session"

    @property
    def durable(self) -> bool:
        """Whether it takes writes at all."""
        return not self.builtin and bool(self.first.hooks.keys() & DURABLE_HOOKS)

    @property
    def suspect(self) -> bool:
        """Whether its last recall failed a short while ago, so that no turn should wait for the next."""
        return self.vitals.suspect

    def implements(self, hook: str) -> bool:
        """Whether its instances have this hook; a call of one that they have not costs nothing."""
        return hook in self.first.hooks

    def inspect(self) -> tuple[State, str]:
        """Construct and ask whether it can run here and which tools it has. ("idle", "") when it may be held."""
        made = self.first.construct()
        if not made.ok:
            return "failed", f"it could not be constructed: {made.error}"
        self.name = self.vitals.name = self._given_name or self._own_name() or "provider"
        if self.implements("is_available"):
            answer = self.first.call("is_available", {})
            if not answer.ok:
                return "failed", f"is_available: {answer.error}"
            if not answer.value:
                reason, remedy = answer.value.reason or "it says it can't run here", answer.value.remedy
                return "unavailable", f"{reason}; {remedy}" if remedy else reason
        self._read_schemas()
        return "idle", ""

    def _read_schemas(self) -> None:
        if not self.implements("get_tool_schemas"):
            return
        answer = self.first.call("get_tool_schemas", {})
        if not answer.ok:
            self.warnings.append(f"it offers no tools: get_tool_schemas: {answer.error}")
            return
        wanted = self.first.capabilities.tool_names
        self.schemas = tuple(s for s in answer.value if wanted is None or s["name"] in wanted)

    def instance(self, session: Session) -> ProviderInstance:
        """The instance for this session; one that is made now is started."""
        if not self.per_session:
            return self.first
        with self._lock:
            if self._closed:
                return self.first
            found = self._by_session.get(session.id)
            if found is None:
                found = self._by_session[session.id] = self._fresh(session)
            self._by_session.move_to_end(session.id)
        found.start(session)
        self._evict()
        return found

    def awaited(self, session: Session) -> ProviderInstance:
        """The instance for this session; one that is made now is waited for as a start is."""
        if self._closed or not self.per_session:
            return self.first
        found = self.instance(session)
        found.wait_started(self._terms.start_wait)
        return found

    def close(self) -> list[ProviderInstance]:
        """Make no more instances; those that live, the newest first, for the caller to close."""
        with self._lock:
            self._closed = True
        return self.instances()[::-1]

    def instances(self) -> list[ProviderInstance]:
        """All that live, in the order in which they were made."""
        with self._lock:
            return list(dict.fromkeys([self.first, *self._by_session.values()]))

    def given_up(self) -> list[str]:
        """The ids of sessions whose instance could not be started, and is not tried again yet."""
        with self._lock:
            return [name for name, instance in self._by_session.items() if instance.given_up]

    def retire(self, session_id: str) -> None:
        """Close the instance of a session that went on under another id."""
        with self._lock:
            found = self._by_session.pop(session_id, None)
        if found is not None:
            found.close_idle()

    def _own_name(self) -> str:
        return str(getattr(self.first.provider, "name", ""))

    def condition(self) -> tuple[State, str]:
        """The state of the provider: that of its most troubled instance, but not failed while any session is started."""
        order: dict[State, int] = {"failed": 0, "degraded": 1, "unavailable": 2, "active": 3, "idle": 4}
        instances = self.instances()
        state, reason = min((one.condition() for one in instances), key=lambda found: order[found[0]])
        if state == "failed" and any(one.phase == "ready" for one in instances):
            failed = sum(one.phase == "failed" for one in instances)
            return "degraded", f"{failed} of {len(instances)} sessions can't be started: {reason}"
        return state, reason

    def _new(self, label: str) -> ProviderInstance:
        return ProviderInstance(
            label,
            self._make,
            self._registry,
            self._terms,
            self.vitals,
            inline=self.builtin,
            before_start=self._tell_account,
            on_start=self._on_start,
        )

    def _tell_account(self) -> None:
        if self._account is not None:
            found = self._account()
            if found != self.fingerprint or not self.account_since:
                self.fingerprint, self.account_since = found, self._terms.wall()

    def _on_start(self) -> None:
        self.on_start()

    def _fresh(self, session: Session) -> ProviderInstance:
        """The first instance until it is taken, then new ones."""
        if self.first.phase == "new" and self.first not in self._by_session.values():
            return self.first
        return self._new(f"{self.name}-{session.id[:8]}")

    def _evict(self) -> None:
        """Close the least recently used instances above the bound, of sessions that have nothing to write."""
        with self._lock:
            surplus = len(self._by_session) - MAX_INSTANCES
            idle = (
                (name for name in list(self._by_session)[:-1] if not self.busy(name)) if surplus > 0 else ()
            )
            gone = [self._by_session.pop(name) for name, _ in zip(idle, range(surplus), strict=False)]
        for instance in gone:
            log.info("%s: closing the instance of a session that was not used for long", self.name)
            instance.close_idle()

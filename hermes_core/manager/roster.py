"""Who is held: the one-external rule, refusals with their reasons, and the tools that the accepted ones offer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from hermes_core.contract.values import BUILTIN_NAME
from hermes_core.manager.attempt import attempt
from hermes_core.manager.call import describe
from hermes_core.manager.health import ManagerConfig, ProviderHealth, State
from hermes_core.manager.held import ProviderHandle
from hermes_core.manager.registry import Registry
from hermes_core.manager.tools import ToolIndex

log = logging.getLogger(__name__)


class Roster:
    """The providers of one manager, in the order in which they were accepted."""

    def __init__(self, registry: Registry, terms: ManagerConfig) -> None:
        self.tools = ToolIndex()
        self._registry = registry
        self._terms = terms
        self._held: tuple[ProviderHandle, ...] = ()
        self._by_hook: dict[str, tuple[ProviderHandle, ...]] = {}
        self._takers: dict[str, tuple[ProviderHandle, ...]] = {}
        self._inactive: dict[str, ProviderHealth] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[ProviderHandle]:
        return iter(self._held)

    @property
    def external(self) -> list[ProviderHandle]:
        """Those that are not our own: at most one."""
        return [held for held in self._held if not held.builtin]

    @property
    def inactive(self) -> list[ProviderHealth]:
        """Those that were refused, each with its reason."""
        return list(self._inactive.values())

    def implementing(self, hook: str) -> tuple[ProviderHandle, ...]:
        """Those that have this hook."""
        known = self._by_hook  # taken first: whoever is added meanwhile begins another
        found = known.get(hook)
        if found is None:
            found = known[hook] = tuple(held for held in self._held if held.implements(hook))
        return found

    def takers(self, hook: str) -> tuple[ProviderHandle, ...]:
        """The external ones that have this hook: those that writes are for."""
        known = self._takers
        found = known.get(hook)
        if found is None:
            found = known[hook] = tuple(held for held in self.implementing(hook) if not held.builtin)
        return found

    def add(self, source: object, name: str, *, builtin: bool, fingerprint: Callable[[], str] | None) -> bool:
        """Construct, validate and ask whether it can run; then hold it, or keep the reason why not."""
        account, error = attempt(fingerprint) if fingerprint else ("", None)
        held = ProviderHandle(
            source,
            self._registry,
            self._terms,
            name=name,
            builtin=builtin,
            fingerprint=account or "",
            account=fingerprint,
        )
        if error is not None:
            told = describe(error, self._terms.redact)
            return self._refuse(held, "failed", f"its account can't be told: {told}")
        with self._lock:
            state, reason = self._no_room(held) or held.inspect()
            if state == "idle" and not reason:
                state, reason = self._misnamed(held) or (state, reason)
            if reason:
                return self._refuse(held, state, reason)
            self._inactive.pop(held.name, None)
            self._held = (*self._held, held)
            self._by_hook, self._takers = {}, {}
            self.tools.add(held)
        return True

    def _no_room(self, held: ProviderHandle) -> tuple[State, str] | None:
        """Why there is no place for it, known before it is constructed."""
        if held.builtin:
            taken = any(other.builtin for other in self._held)
            return ("failed", "there is a built-in provider already") if taken else None
        for other in self.external:
            return "idle", f"only one external provider at a time, and {other.name!r} is active"
        return None

    def _misnamed(self, held: ProviderHandle) -> tuple[State, str] | None:
        if held.impersonates or (held.builtin and held.name != BUILTIN_NAME):
            return "failed", f"the name {BUILTIN_NAME!r} belongs to the curated memory; choose another"
        return None

    def _refuse(self, held: ProviderHandle, state: State, reason: str) -> bool:
        reason = self._terms.redact(reason)
        log.warning(
            "memory provider %r is not active: %s", held.name, reason, extra={"event": "provider.refused"}
        )
        self._inactive[held.name] = ProviderHealth(held.name, state, reason, warnings=tuple(held.warnings))
        data: dict[str, Any] = {"provider": held.name, "state": state, "reason": reason}
        self._terms.emit("provider.refused", data)
        held.first.close_idle()
        return False

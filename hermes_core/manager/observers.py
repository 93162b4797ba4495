"""Observers: filters that may change or refuse a write or a recall, and listeners that are told what happens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hermes_core.contract.hooks import hookimpl
from hermes_core.contract.values import Event, MemoryWrite, Recall, Refused, Session
from hermes_core.manager.call import CallResult, Hook, guarded
from hermes_core.manager.coroutines import Coroutines
from hermes_core.manager.health import ManagerConfig
from hermes_core.manager.lanes import Task, Worker
from hermes_core.manager.registry import Registry

log = logging.getLogger(__name__)

MAX_EVENTS = 1000
"""Events that wait for one observer; more are left out, and the log tells how many."""


class Listener:
    """Makes an observer of a plain function that takes an `Event`."""

    def __init__(self, function: Callable[[Event], None]) -> None:
        self._function = function

    @hookimpl
    def on_event(self, event: Event) -> None:
        """Pass the event on."""
        self._function(event)


class _Observer:
    def __init__(self, plugin: object, hooks: dict[str, Hook], terms: ManagerConfig) -> None:
        self.name = type(plugin).__name__
        self.hooks = hooks
        self._missed = 0
        self._waiting = 0
        self._terms = terms
        self._filters = Worker(f"hermes-{self.name}-filters", terms.clock)
        self._events = Worker(f"hermes-{self.name}-events", terms.clock)
        self._coroutines = Coroutines(f"hermes-{self.name}")

    def ask(self, hook: str, arguments: Mapping[str, Any]) -> CallResult:
        """The filter's answer, at the latest after its deadline."""
        job = self._job(hook, arguments)
        refused = self._filters.submit(job)
        return CallResult("skipped", error=refused) if refused else self._filters.wait(job, job.deadline)

    def tell(self, event: Event) -> None:
        """Put the event in line for `on_event`, unless too many wait, or it hangs."""
        refused = f"{MAX_EVENTS} of them wait"
        if self._waiting < MAX_EVENTS:
            refused = self._events.submit(self._job("on_event", {"event": event}, self._told))
        if not refused:
            self._waiting += 1
            return
        if not self._missed:
            log.warning("observer %s misses events: %s", self.name, refused)
        self._missed += 1

    def stop(self, timeout: float) -> None:
        if self._missed:
            log.warning("observer %s has missed %d events", self.name, self._missed)
        self._filters.stop(0)
        self._events.stop(timeout)
        self._coroutines.stop()

    def _told(self, outcome: CallResult) -> None:
        self._waiting -= 1
        if not outcome.ok:
            log.warning("observer %s: on_event %s: %s", self.name, outcome.status, outcome.error)

    def _job(
        self, name: str, arguments: Mapping[str, Any], afterwards: Callable[[CallResult], None] | None = None
    ) -> Task:
        terms, deadline = self._terms, self._terms.deadline(name)
        run = partial(
            guarded, self.hooks[name], deadline, self._coroutines, terms.clock, terms.redact, arguments
        )
        return Task(name, run, deadline, afterwards, watched=afterwards is None)


class Observers:
    """All observers of a manager, asked in the order in which they were given. Raises `ProviderInvalid` for a bad one."""

    def __init__(self, plugins: Sequence[object], registry: Registry, terms: ManagerConfig) -> None:
        self._terms = terms
        self._all = [_Observer(plugin, registry.enter_observer(plugin), terms) for plugin in plugins]
        self._listeners = [observer for observer in self._all if "on_event" in observer.hooks]
        self._filters = {hook for observer in self._all for hook in observer.hooks}

    def filter(self, hook: str) -> bool:
        """Whether any of them has this filter."""
        return hook in self._filters

    def filter_write(self, write: MemoryWrite, session: Session) -> MemoryWrite | Refused:
        """What the observers make of a write of curated memory."""
        answer: MemoryWrite | Refused = self._filter("filter_write", "write", write, session)
        return answer

    def filter_recall(self, recall: Recall, session: Session) -> Recall | Refused:
        """What the observers make of recalled text."""
        answer: Recall | Refused = self._filter("filter_recall", "recall", recall, session)
        return answer

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """Tell the listeners, without waiting for them."""
        if self._listeners:
            event = Event(kind, self._terms.wall(), self._terms.redact(dict(data)))
            for observer in self._listeners:
                observer.tell(event)

    def stop(self, timeout: float) -> None:
        """Let events that wait be told, for at most `timeout` seconds each."""
        self._listeners = []
        for observer in self._all:
            observer.stop(timeout)

    def _filter(self, hook: str, argument: str, value: Any, session: Session) -> Any:
        for observer in self._all:
            if hook not in observer.hooks:
                continue
            outcome = observer.ask(hook, {argument: value, "session": session})
            refused = outcome.value if outcome.ok else Refused(f"{hook} {outcome.status}: {outcome.error}")
            if isinstance(refused, Refused):
                log.warning(
                    "observer %s refused a %s: %s",
                    observer.name,
                    argument,
                    refused.reason,
                    extra={"event": f"{argument}.refused"},
                )
                data = {"observer": observer.name, "reason": refused.reason, "session": session.id}
                self.emit(f"{argument}.refused", data)
                return Refused(f"{observer.name}: {refused.reason}")
            value = outcome.value
        return value

"""Observers: filters that change or refuse a write or a recall, listeners for events, and wrappers of provider hooks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import CodeType, CoroutineType
from typing import Any

from hermes_core.contract.hooks import OBSERVER_HOOK_NAMES, hookimpl
from hermes_core.contract.values import Event, MemoryWrite, Recall, Refused, Session
from hermes_core.manager.call import CallResult, check_result, guarded_call
from hermes_core.manager.plugins import register_observers, wrappers_of
from hermes_core.manager.stats import ManagerConfig
from hermes_core.manager.worker import Coroutines, PendingCall, Worker, ignore_result

log = logging.getLogger(__name__)

# Events that wait for one observer; more are dropped, and the log says how many.
MAX_EVENTS = 1000

# The event loop of the observer whose hook runs on this thread. It runs a coroutine that the hook returned.
_running = threading.local()


class Listener:
    """Observer made of a plain function that takes an `Event`."""

    def __init__(self, function: Callable[[Event], None]) -> None:
        self._function = function

    @hookimpl
    def on_event(self, event: Event) -> None:
        """Call the function with the event."""
        self._function(event)


class _Observer:
    """An observer with its two workers: one for filters, for which callers wait, and one for events."""

    def __init__(self, name: str, config: ManagerConfig) -> None:
        self.name = name
        self.callers: dict[str, Callable[..., Any]] = {}
        self.wrapper_names: Mapping[CodeType, str] = {}
        self._config, self._deadlines = config, config.deadlines_of()
        self._dropped = 0
        self._waiting = 0
        # Two workers, so that a slow `on_event` does not hold up the filters, for which a turn waits.
        self._filters = Worker(f"hermes-{name}-filters", config.clock)
        self._events = Worker(f"hermes-{name}-events", config.clock)
        self._coroutines = Coroutines(f"hermes-{name}")

    def filter(self, hook: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call a filter and wait for it, at most until its deadline."""
        call = self._call(hook, arguments)
        if refusal := self._filters.submit(call):
            return CallResult("skipped", error=refusal)
        return call.wait()

    def notify(self, event: Event) -> None:
        """Enqueue the event for `on_event`. Drop it if too many events are pending or if the observer hangs."""
        refusal = f"{MAX_EVENTS} of them wait"
        if self._waiting < MAX_EVENTS:
            refusal = self._events.submit(self._call("on_event", {"event": event}, self._notified))
        if not refusal:
            self._waiting += 1
            return
        if not self._dropped:
            log.warning("observer %s misses events: %s", self.name, refusal)
        self._dropped += 1

    def stop(self, timeout: float) -> None:
        """Deliver the pending events, taking at most `timeout` seconds, and end both workers."""
        if self._dropped:
            log.warning("observer %s has missed %d events", self.name, self._dropped)
        self._filters.stop(0)
        self._events.stop(timeout)
        self._coroutines.stop()

    def _notified(self, result: CallResult) -> None:
        self._waiting -= 1
        if not result.ok:
            log.warning("observer %s: on_event %s: %s", self.name, result.status, result.error)

    def _call(
        self, hook: str, arguments: Mapping[str, Any], on_end: Callable[[CallResult], None] | None = None
    ) -> PendingCall:
        return PendingCall(
            hook,
            partial(self._run, hook, arguments),
            self._deadlines[hook],
            on_late=on_end or ignore_result,
            background=on_end is not None,
        )

    def _run(self, hook: str, arguments: Mapping[str, Any]) -> CallResult:
        _running.coroutines = self._coroutines

        def call() -> Any:
            return check_result(hook, self.callers[hook](**arguments))

        return guarded_call(hook, call, self._config.clock, self._config.redact, self.wrapper_names)


class Observers:
    """All observers of a manager.

    Observers are called in the order of the constructor's argument, unless `tryfirst` or `trylast` change it.

    Attributes:
        filter_recalls: True if an observer filters recalled text.

    Raises:
        ProviderInvalid: An object is not an observer.
    """

    def __init__(self, observers: Sequence[object], config: ManagerConfig) -> None:
        self._config, self._deadlines = config, config.deadlines_of()
        plugins = register_observers(observers, self._finish)
        self._by_hook: dict[str, list[_Observer]] = {hook: [] for hook in OBSERVER_HOOK_NAMES}
        self._all = {id(one): _Observer(type(one).__name__, config) for one in observers}
        for hook, answering in self._by_hook.items():
            # pluggy keeps implementations in the reverse of the order in which it calls them.
            impls = reversed(getattr(plugins.hook, hook).get_hookimpls())
            objects = [impl.plugin for impl in impls if not (impl.wrapper or impl.hookwrapper)]
            for one in objects:
                observer = self._all[id(one)]
                # A call reaches one observer, so that each has a deadline of its own; wrappers stay around it.
                others = [other for other in objects if other is not one]
                observer.callers[hook] = plugins.subset_hook_caller(hook, others)
                observer.wrapper_names = wrappers_of(plugins, observers)
                answering.append(observer)
        self.filter_recalls = bool(self._by_hook["filter_recall"])

    def _finish(self, hook: str, coroutine: CoroutineType[Any, Any, Any]) -> Any:
        coroutines: Coroutines = _running.coroutines
        return coroutines.finish(coroutine, self._deadlines[hook])

    def filter_write(self, write: MemoryWrite, session: Session) -> MemoryWrite | Refused:
        """Pass a change of the notes through all filters.

        Return the change, which a filter may alter, or the refusal.
        """
        answer: MemoryWrite | Refused = self._filter("filter_write", "write", write, session)
        return answer

    def filter_recall(self, recall: Recall, session: Session) -> Recall | Refused:
        """Pass recalled text through all filters. Return the recall, which a filter may alter, or the refusal."""
        answer: Recall | Refused = self._filter("filter_recall", "recall", recall, session)
        return answer

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """Send an event to the listeners, without waiting for them."""
        if self._by_hook["on_event"]:
            event = Event(kind, self._config.wall(), self._config.redact(dict(data)))
            for observer in self._by_hook["on_event"]:
                observer.notify(event)

    def stop(self, timeout: float) -> None:
        """Deliver the pending events, taking at most `timeout` seconds per observer.

        Events of a later `emit` are dropped.
        """
        self._by_hook["on_event"] = []
        for observer in self._all.values():
            observer.stop(timeout)

    def _filter(self, hook: str, argument: str, value: Any, session: Session) -> Any:
        for observer in self._by_hook[hook]:
            result = observer.filter(hook, {argument: value, "session": session})
            refused = result.value if result.ok else Refused(f"{hook} {result.status}: {result.error}")
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
            value = result.value
        return value

"""Stopping work from another thread: at once for the one who waits, as soon as it can for the work itself."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from hermes_core.errors import HermesError
from hermes_core.manager.call import attempt

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


LOOK_UP = 0.5
"""Seconds after which a thread that waits looks up, so that the main one runs the handler of a signal which the system gave
to another, as it may where the process was stopped when it came."""


class Cancelled(Exception):
    """The person stopped what was going on. Never leaves the agent."""


class Cancel:
    """A switch that any thread may throw, also the handler of a signal, once and for one piece of work. `calling` adds what
    should happen at that moment.
    """

    def __init__(self) -> None:
        self._thrown = False
        # A handler runs in the midst of what its thread does: a lock that is not reentrant, as an Event's, would stop it.
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Stop what is going on."""
        with self._lock:
            self._thrown = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether it was thrown."""
        return self._thrown

    def wait(self, seconds: float) -> None:
        """Sleep; raises `Cancelled` as soon as the switch is thrown."""
        until, told = time.monotonic() + seconds, SimpleQueue[None]()
        with self.calling(lambda: told.put(None)):
            while not self._thrown and (left := until - time.monotonic()) > 0:
                with contextlib.suppress(Empty):
                    told.get(timeout=min(left, LOOK_UP))
        if self._thrown:
            raise Cancelled

    @contextlib.contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within the block, have `callback` run when the switch is thrown; it must be quick and must not raise."""
        with self._lock:
            self._callbacks.append(callback)
        if self._thrown:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


def taken(queue: SimpleQueue[Item]) -> Item:
    """The next item, however long it takes."""
    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=LOOK_UP)


def begin(thread: threading.Thread) -> None:
    """Start a thread. Raises `HermesError` where the system has none left, or the interpreter is ending."""
    try:
        thread.start()
    except RuntimeError as exc:
        raise HermesError(
            f"{thread.name!r} can't begin: {exc}", "let this program have more threads"
        ) from exc


def relay(
    produce: Callable[[Callable[[Item], None]], Result],
    hear: Callable[[Item], None],
    cancel: Cancel,
    name: str,
) -> Result:
    """Run `produce(emit)` on a daemon thread; call `hear` on this one with each item that it emits, and return its result.

    Raises `HermesError` where no thread is left, what `produce` or `hear` raises, and `Cancelled` as soon as `cancel` is
    thrown, however long the work still hangs; its next `emit` then raises `Cancelled` over there. The work sees the
    caller's contextvars.
    """
    events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    abandoned = threading.Event()

    def emit(item: Item) -> None:
        if abandoned.is_set():
            raise Cancelled
        events.put(("item", item))

    def work() -> None:
        result, failure = attempt(produce, emit)
        events.put(("result", result) if failure is None else ("error", failure))
        if failure is not None and abandoned.is_set() and not isinstance(failure, Cancelled):
            log.debug("work that was stopped ended with an error", exc_info=failure)

    if cancel.is_set():
        raise Cancelled
    run = partial(contextvars.copy_context().run, work)
    with cancel.calling(lambda: events.put(("cancelled", None))):
        begin(threading.Thread(target=run, name=name, daemon=True))
        try:
            while True:
                kind, value = taken(events)
                if kind == "cancelled" or cancel.is_set():
                    raise Cancelled
                if kind == "result":
                    result: Result = value
                    return result
                if kind == "error":
                    raise value
                hear(value)
        finally:
            abandoned.set()


def interruptible(work: Callable[[], Result], cancel: Cancel, name: str) -> Result:
    """Run `work` on a daemon thread and return its result; raises `Cancelled` as soon as `cancel` is thrown."""
    return relay(lambda _: work(), lambda _: None, cancel, name)

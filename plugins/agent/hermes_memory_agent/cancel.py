"""Cancellation of blocking work, and the threads that such work runs on.

When the work is cancelled, its caller continues at once, and the work itself ends as soon as it can.
"""

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


# Longest wait of a thread without running Python code.
# Python runs signal handlers on the main thread only, and a blocking wait there is not woken by a signal
# that the system gave to another thread, as it may after the process was stopped and continued.
SIGNAL_CHECK_S = 0.5


class Cancelled(Exception):
    """Exception that ends a turn or other work after an interrupt. The agent catches it, so a host never gets it."""


class Cancel:
    """A switch that cancels one piece of work. Any thread and any signal handler may set it; it stays set."""

    def __init__(self) -> None:
        self._is_set = False
        # A signal handler runs in the middle of its thread's code: a lock that is not reentrant would deadlock there.
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Cancel the work."""
        with self._lock:
            self._is_set = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Return True if the work was cancelled."""
        return self._is_set

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`. Raise `Cancelled` as soon as the switch is set."""
        deadline, wake = time.monotonic() + seconds, SimpleQueue[None]()
        with self.callback(lambda: wake.put(None)):
            while not self._is_set and (left := deadline - time.monotonic()) > 0:
                with contextlib.suppress(Empty):
                    wake.get(timeout=min(left, SIGNAL_CHECK_S))
        if self._is_set:
            raise Cancelled

    @contextlib.contextmanager
    def callback(self, action: Callable[[], None]) -> Iterator[None]:
        """Within the block, run `action` when the switch is set, at once if it is set already.

        `action` runs on the thread that sets the switch, so it must be quick and must not raise.
        """
        with self._lock:
            self._callbacks.append(action)
        if self._is_set:  # `set` may have run before the action was registered
            action()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(action)


def ignore(*_: object) -> None:
    """Do nothing: the default of callbacks."""


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread. Raise `HermesError` if the system has no thread left or the interpreter is ending."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as exc:
        raise HermesError(f"{name!r} can't begin: {exc}", "let this program have more threads") from exc
    return thread


def call_later(seconds: float, action: Callable[[], object]) -> Callable[[], None]:
    """Run `action` on a separate thread after `seconds`; return a function that calls the action off."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer.cancel


def next_item(queue: SimpleQueue[Item]) -> Item:
    """Wait for the next item of the queue and return it; let signal handlers run during the wait."""
    while True:
        with contextlib.suppress(Empty):
            return queue.get(timeout=SIGNAL_CHECK_S)


def relay(
    produce: Callable[[Callable[[Item], None]], Result],
    consume: Callable[[Item], None],
    cancel: Cancel,
    name: str,
) -> Result:
    """Run `produce(emit)` on a daemon thread, pass each emitted item to `consume` on this thread, return the result.

    `produce` sees the caller's contextvars. After a cancellation, its next call of `emit` raises `Cancelled`.

    Args:
        produce: Function that calls `emit` with each item and returns the result.
        consume: Function that gets each item.
        cancel: Switch that ends the wait for `produce`.
        name: Name of the thread.

    Raises:
        HermesError: no thread can be started.
        Cancelled: `cancel` was set. This function then returns at once, even if `produce` still hangs.
        BaseException: whatever `produce` or `consume` raised.
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
    with cancel.callback(lambda: events.put(("cancelled", None))):
        start_thread(partial(contextvars.copy_context().run, work), name)
        try:
            while True:
                kind, value = next_item(events)
                # Items that wait in the queue are not consumed after a cancellation.
                if kind == "cancelled" or cancel.is_set():
                    raise Cancelled
                if kind == "result":
                    result: Result = value
                    return result
                if kind == "error":
                    raise value
                consume(value)
        finally:
            abandoned.set()


def interruptible(work: Callable[[], Result], cancel: Cancel, name: str) -> Result:
    """Run `work` on a daemon thread and return its result. Raise `Cancelled` as soon as `cancel` is set."""
    return relay(lambda _: work(), ignore, cancel, name)

"""Stopping work from another thread: at once for the one who waits, as soon as it can for the work itself."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from queue import Empty, SimpleQueue
from typing import TypeVar

from hermes_core.errors import HermesError

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
    produce: Callable[[Callable[[Item], None]], Result], cancel: Cancel, name: str
) -> Generator[Item, None, Result]:
    """Run `produce(emit)` on a daemon thread; yield on this thread what it emits and return what it returns.

    Raises `HermesError` where no thread is left, what `produce` raises, and `Cancelled` as soon as `cancel` is thrown,
    however long the work still hangs; its next `emit` then raises `Cancelled` over there. The work sees the caller's
    contextvars.
    """
    events: SimpleQueue[tuple[str, object]] = SimpleQueue()

    def emit(item: Item) -> None:
        if abandoned.is_set():
            raise Cancelled
        events.put(("item", item))

    def work() -> None:
        with _HandedOver(events, abandoned):
            events.put(("result", produce(emit)))

    if cancel.is_set():
        raise Cancelled
    abandoned = threading.Event()
    context = contextvars.copy_context()
    with cancel.calling(lambda: events.put(("cancelled", None))):
        begin(threading.Thread(target=context.run, args=(work,), name=name, daemon=True))
        try:
            while True:
                kind, value = taken(events)
                if kind == "cancelled" or cancel.is_set():
                    raise Cancelled
                if kind == "result":
                    return value  # type: ignore[return-value]
                if kind == "error":
                    raise value  # type: ignore[misc]
                yield value  # type: ignore[misc]
        finally:
            abandoned.set()


class _HandedOver:
    """Gives an exception to the thread that waits, which raises it there; one that nobody waits for is logged."""

    def __init__(self, events: SimpleQueue[tuple[str, object]], abandoned: threading.Event) -> None:
        self._events = events
        self._abandoned = abandoned

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None:
            self._events.put(("error", error))
            if self._abandoned.is_set() and not isinstance(error, Cancelled):
                log.debug("work that was stopped ended with an error", exc_info=error)
        return True


def interruptible(work: Callable[[], Result], cancel: Cancel, name: str) -> Result:
    """Run `work` on a daemon thread and return its result; raises `Cancelled` as soon as `cancel` is thrown."""
    waiting: Generator[None, None, Result] = relay(lambda _: work(), cancel, name)
    while True:
        try:
            next(waiting)
        except StopIteration as done:
            result: Result = done.value
            return result

"""Hooks written as `async def`: all coroutines of one instance run on one event loop, in a thread of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from hermes_core.manager.attempt import attempt

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


TO_TIDY_UP = 1.0
"""Seconds that cancelled coroutines have at the end."""


class CoroutineLate(Exception):
    """A coroutine passed its deadline and was cancelled."""


class CoroutineStopped(Exception):
    """A coroutine was cancelled, because the provider is to be shut down."""


class Coroutines:
    """The event loop of one instance; made by the first coroutine, so that others pay nothing, not even the import."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: set[Future[Any]] = set()
        self._ending = self._stopped = False

    def finish(self, coroutine: Coroutine[Any, Any, Any], within: float) -> Any:
        """Run `coroutine` to its end and return its value; cancel it after `within` seconds and raise `CoroutineLate`.

        Raises `CoroutineStopped` when `cancel` came meanwhile, or `stop` before, and `RuntimeError` or `OSError` where no
        thread or descriptor is left. It sees the contextvars of the calling thread.
        """
        import asyncio
        from concurrent.futures import CancelledError

        with self._lock:  # `cancel` must not miss one that has just begun
            try:
                loop = self._running_loop()
            except (CoroutineStopped, RuntimeError, OSError):
                coroutine.close()
                raise
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            self._under_way.add(future)
        try:
            return future.result(within)
        except TimeoutError:
            if not future.cancel():  # it has ended: it is the provider's own, or it came back just then
                return future.result()
            raise CoroutineLate from None
        except CancelledError:
            if not self._ending:  # the provider's own
                raise
            raise CoroutineStopped from None
        finally:
            self._under_way.discard(future)

    def cancel(self) -> bool:
        """Cancel what runs now, for the end; whether there was anything."""
        with self._lock:
            self._ending = True
            under_way = list(self._under_way)
        cancelled = [future.cancel() for future in under_way]
        return any(cancelled)

    def stop(self) -> None:
        """End the loop after what runs now; its thread closes it. No other is made."""
        with self._lock:
            self._stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._stopped:
            raise CoroutineStopped
        if self._loop is None:
            loop = _new_loop()
            name = f"{self._name}-coroutines"
            try:
                threading.Thread(target=_run, args=(loop,), name=name, daemon=True).start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Until the loop is stopped; what still runs then is cancelled, and dropped if it does not end of that."""
    import asyncio

    loop.run_forever()
    if left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=TO_TIDY_UP))
    loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose blocking helpers (name lookup, `to_thread`) run in daemon threads.

    asyncio's default executor joins its threads at exit: one hung name lookup would hold the process.
    """
    import asyncio

    loop = asyncio.new_event_loop()

    def run_in_executor(executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        if executor is not None:
            return type(loop).run_in_executor(loop, executor, function, *arguments)
        future = loop.create_future()
        context = contextvars.copy_context()

        def settle(value: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        def work() -> None:
            value, error = attempt(lambda: context.run(function, *arguments))
            attempt(lambda: loop.call_soon_threadsafe(settle, value, error))  # the loop may be closed by now

        threading.Thread(target=work, daemon=True).start()
        return future

    loop.run_in_executor = run_in_executor  # type: ignore[method-assign,assignment]
    return loop

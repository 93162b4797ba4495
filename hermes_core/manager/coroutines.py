"""Hooks written as `async def`: all coroutines of one instance run on one event loop, in a thread of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from hermes_core.manager.call import CoroutineLate, CoroutineStopped, attempt

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

# Seconds that cancelled coroutines have to clean up when the loop ends.
CANCEL_TIMEOUT_S = 1.0


class Coroutines:
    """Event loop of one provider instance, on a thread of its own.

    The first coroutine starts the loop, so that a provider without coroutines does not even import asyncio.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[Future[Any]] = set()
        self._cancelling = self._stopped = False

    def finish(self, coroutine: Coroutine[Any, Any, Any], deadline: float) -> Any:
        """Run `coroutine` to its end with the contextvars of the calling thread, and return its value.

        Raises:
            CoroutineLate: The coroutine took longer than `deadline` seconds and was cancelled.
            CoroutineStopped: `cancel` was called while the coroutine ran, or `stop` before it began.
            RuntimeError, OSError: The system has no thread or file descriptor left.
        """
        import asyncio
        from concurrent.futures import CancelledError

        with self._lock:  # or `cancel` could miss a coroutine that has just begun
            try:
                loop = self._running_loop()
            except (CoroutineStopped, RuntimeError, OSError):
                coroutine.close()
                raise
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            self._running.add(future)
        try:
            return future.result(deadline)
        except TimeoutError:
            # A future that can't be cancelled has ended: the provider raised TimeoutError, or returned just now.
            if not future.cancel():
                return future.result()
            raise CoroutineLate(deadline) from None
        except CancelledError:
            if not self._cancelling:  # the provider cancelled it
                raise
            raise CoroutineStopped from None
        finally:
            self._running.discard(future)

    def cancel(self) -> bool:
        """Cancel all running coroutines, because the provider is about to be shut down.

        Return True if any was running.
        """
        with self._lock:
            self._cancelling = True
            running = list(self._running)
        cancelled = [future.cancel() for future in running]
        return any(cancelled)

    def stop(self) -> None:
        """Stop the event loop after the callbacks that run now.

        Its thread then closes it, and no new loop is started.
        """
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
            thread = threading.Thread(
                target=_run_loop, args=(loop,), name=f"{self._name}-coroutines", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop
        return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Run `loop` until `stop` is called, then cancel the tasks that still run.

    Drop a task that ignores the cancellation.
    """
    import asyncio

    loop.run_forever()
    if left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=CANCEL_TIMEOUT_S))
    loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose blocking helpers (name lookup, `asyncio.to_thread`) run in daemon threads.

    asyncio's default executor joins its threads at exit, so one hung name lookup would keep the process from ending.
    """
    import asyncio
    from concurrent.futures import Future

    loop = asyncio.new_event_loop()

    def run_in_executor(executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        if executor is not None:
            return type(loop).run_in_executor(loop, executor, function, *arguments)
        future: Future[Any] = Future()
        context = contextvars.copy_context()

        def work() -> None:
            value, error = attempt(context.run, function, *arguments)
            if error is not None:
                attempt(future.set_exception, error)
            else:
                attempt(future.set_result, value)

        threading.Thread(target=work, daemon=True).start()
        return asyncio.wrap_future(future, loop=loop)

    loop.run_in_executor = run_in_executor  # type: ignore[method-assign,assignment]
    return loop

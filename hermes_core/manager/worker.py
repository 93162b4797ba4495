"""Threads of a provider instance: workers for plain hooks, and an event loop for hooks written as `async def`.

A worker is a daemon thread with a queue. It runs calls one at a time and in order. All coroutines of an instance run on
one event loop, in a thread of its own.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_core.manager.call import CallResult, CoroutineLate, CoroutineStopped, attempt
from hermes_core.stopping import stopped, wait_unless_stopped

if TYPE_CHECKING:
    import asyncio


log = logging.getLogger(__name__)

# Share of a wait for which a call must have run to count as late.
MIN_RUN_SHARE = 0.8


def ignore_result(result: CallResult) -> None:
    """Do nothing with the result. This is the default of `on_late`."""


@dataclass(eq=False)
class PendingCall:
    """A hook call that waits in the queue of a worker, runs, or has ended.

    Attributes:
        hook: The name of the hook, for messages.
        function: Calls the hook and returns the result; it never raises. It runs with the contextvars of the
            thread that created the `PendingCall`.
        deadline: Seconds that the call may run.
        record: Called once, with the result for the statistics. If the call passes its deadline, this result is
            "late".
        on_late: Called on the worker's thread with the result of a call for which no caller waits any more.
        background: True if no caller waits for the call, from the start or since the caller stopped waiting. Its
            result goes to `on_late`.
        recorded: True if `record` has been called or is about to be called. The worker's lock guards this
            attribute.
    """

    hook: str
    function: Callable[[], CallResult]
    deadline: float
    record: Callable[[CallResult], None] = ignore_result
    on_late: Callable[[CallResult], None] = ignore_result
    background: bool = False
    recorded: bool = False
    worker: Worker | None = None
    started_at: float = 0.0
    started_monotonic: float = 0.0
    future: Future[CallResult] = field(default_factory=Future)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    @classmethod
    def ended(cls, hook: str, result: CallResult) -> PendingCall:
        """Return a call that already has `result` and needs no worker."""
        call = cls(hook, lambda: result, 0.0)
        call.future.set_result(result)
        return call

    def wait(self, timeout: float | None = None) -> CallResult:
        """Wait for the result and return it. Wait at most `timeout` seconds, or until the current turn is stopped.

        If the call has not begun by then, it is withdrawn and never runs. If it still runs, it is abandoned: the
        returned result says so, and its final result goes to `on_late`.

        Args:
            timeout: Seconds; default: the deadline of the call.
        """
        if self.worker is None:
            return self.future.result()
        seconds = self.deadline if timeout is None else timeout
        ended, result = False, None
        try:
            ended = wait_unless_stopped(self._ended_within, seconds)
        finally:
            # Also when Ctrl-C or a signal handler of the host cut the wait short: if this call is the probe of a
            # breaker, another may go.
            if not ended:
                result = self.worker.give_up(self, seconds)
        return self.future.result() if result is None else result

    def _ended_within(self, seconds: float) -> bool:
        try:
            self.future.result(seconds)
        except TimeoutError as exc:
            # An alarm handler of the host may raise TimeoutError during the wait. Future raises its own in `result`,
            # the second frame; an error of the handler comes from a frame further in.
            if len(list(traceback.walk_tb(exc.__traceback__))) > 2:
                raise
            return False
        return True

    def withdraw(self) -> bool:
        """Take the call out of the queue. Return False if it has already begun."""
        withdrawn = self.future.cancel()
        if withdrawn:
            self.record(CallResult("skipped", error="withdrawn"))
        return withdrawn

    def refuse(self, reason: str) -> None:
        """End the call as "skipped" with `reason`, because its worker refuses calls."""
        result = CallResult("skipped", error=reason)
        self.record(result)
        self.future.set_result(result)

    def finish(self, result: CallResult, *, recorded: bool) -> None:
        """Pass the result of a call that ran to the statistics, and then to the waiting thread or to `on_late`.

        Args:
            recorded: True if the statistics already have a result of this call.
        """
        if not recorded:
            late = self.background and result.ok and result.elapsed > self.deadline
            error = f"took {result.elapsed:.1f} s"
            self.record(CallResult("late", None, error, result.elapsed, counts=True) if late else result)
        if self.background:
            self.on_late(result)
        self.future.set_result(result)


@dataclass(eq=False)
class _Thread:
    """A thread of a worker, and the call that this thread runs now."""

    call: PendingCall | None = None
    thread: threading.Thread | None = None


class Worker:
    """A daemon thread that runs calls one at a time; it starts with the first call.

    Threads of a `concurrent.futures` executor would not do: the interpreter joins them at exit, so a hung provider
    would keep the process from ending.

    If a call hangs past its deadline, it is abandoned on its thread, and one new thread takes over the queue, if the
    worker is `replaceable`. If the new thread hangs too, `submit` refuses calls until one of these two threads
    returns.
    """

    def __init__(self, name: str, clock: Callable[[], float], *, replaceable: bool = True) -> None:
        self.name = name
        self.replaceable = replaceable
        self._clock = clock
        self._queue: queue.SimpleQueue[PendingCall | None] = queue.SimpleQueue()
        # Guards the state below. A call may end at the moment at which its caller stops waiting: only one of these
        # two events may decide which result is recorded.
        self._lock = threading.Lock()
        self._current: _Thread | None = None
        self._abandoned = 0
        self._stopped = False

    @property
    def abandoned(self) -> int:
        """Number of abandoned calls that have not returned yet: 0 or 1."""
        with self._lock:
            return self._abandoned

    @property
    def overdue(self) -> str:
        """A sentence about a call that passed its deadline and has not returned; "" if there is none."""
        current = self._current
        # Without the lock: every turn asks this, and an idle worker has nothing to compare.
        if not self._abandoned and (current is None or current.call is None):
            return ""
        with self._lock:
            return self._hung() or ("an abandoned call has not returned" if self._abandoned else "")

    def submit(self, *calls: PendingCall) -> str:
        """Put `calls` into the queue, one behind the other. Return "", or the reason why the worker refuses them."""
        with self._lock:
            current = self._current
            if current is None or current.call is not None or self._stopped:
                refusal = self._refusal()
                if refusal:
                    return refusal
            for call in calls:
                call.worker = self
                self._queue.put(call)
        return ""

    def give_up(self, call: PendingCall, timeout: float) -> CallResult | None:
        """Withdraw a call if it has not begun, or abandon it if it runs, because its caller stops waiting.

        Args:
            timeout: Seconds that the caller has waited.

        Returns:
            The result for the caller; None if the call has just ended and has its own result.
        """
        turn_stopped = stopped()
        with self._lock:
            if call.recorded:
                return None
            call.recorded = True
            ran = time.monotonic() - call.started_monotonic
            running = not call.future.cancel()
            if running:
                call.background = True
            ahead = self._current.call.hook if self._current and self._current.call else "another call"
            hung = bool(self._hung())
        if turn_stopped:
            result = CallResult("skipped", error="the turn was stopped", elapsed=timeout, in_doubt=running)
        elif not running:
            error = f"waited {timeout:.3g} s in line behind {ahead}"
            result = CallResult("skipped", error=error, elapsed=timeout, counts=hung)
        elif ran < timeout * MIN_RUN_SHARE:
            # It spent its time in the queue behind others. That says nothing about how fast the backend is.
            error = f"waited in line, and {ran:.1f} s were left of {timeout:.3g}; it still runs"
            result = CallResult("skipped", error=error, elapsed=timeout, in_doubt=True)
        else:
            error = f"no answer within {timeout:.3g} s"
            result = CallResult("late", error=error, elapsed=timeout, counts=True, in_doubt=True)
        call.record(result)
        return result

    def stop(self, timeout: float, last: PendingCall | None = None) -> bool:
        """Refuse further calls and end the thread after the calls in the queue.

        Return True if it ended in `timeout` seconds.

        Args:
            last: A last call, behind those in the queue. It is accepted even if `submit` would refuse it because of
                a hung call.
        """
        with self._lock:
            if not self._stopped:
                self._stopped = True
                if last is not None:
                    last.worker = self
                    self._queue.put(last)
                self._queue.put(None)
            thread = self._current.thread if self._current else None
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(0.0, timeout))
        return not thread.is_alive()

    def when_idle(self, function: Callable[[], object]) -> None:
        """Call `function` on the worker's thread when the running call has returned.

        If none runs, call it at once.
        """
        with self._lock:
            running = self._current.call if self._current else None
        if running is None:
            function()
        else:
            running.future.add_done_callback(lambda _: function())

    def _refusal(self) -> str:
        """Start a thread for further calls if there is none. Return the reason if calls must be refused, else ""."""
        if self._stopped:
            return "the provider was shut down"
        hung = self._hung()
        if hung and (self._abandoned or not self.replaceable):
            return hung
        if hung or self._current is None:
            try:
                self._start()
            except RuntimeError as exc:  # the system has no thread left, or the interpreter is ending
                return f"no thread can be started ({exc})"
        if hung:
            self._abandoned += 1
            log.warning("%s: %s; a new thread takes its place", self.name, hung)
        return ""

    def _hung(self) -> str:
        call = self._current.call if self._current is not None else None
        if call is None or self._clock() - call.started_at <= call.deadline:
            return ""
        ran = self._clock() - call.started_at
        return f"{call.hook} has not returned for {ran:.1f} s (deadline {call.deadline:g} s)"

    def _start(self) -> None:
        current = _Thread()
        current.thread = threading.Thread(target=self._work, args=(current,), name=self.name, daemon=True)
        current.thread.start()
        self._current = current

    def _work(self, me: _Thread) -> None:
        while (call := self._queue.get()) is not None:
            # The lock makes `set_running` and the start time one step: `give_up` reads the time of a running call.
            with self._lock:
                if not call.future.set_running_or_notify_cancel():
                    continue  # withdrawn
                call.started_at, call.started_monotonic = self._clock(), time.monotonic()
                me.call = call
            result = call.context.run(call.function)
            with self._lock:
                me.call = None
                recorded, call.recorded = call.recorded, True
                replaced = self._current is not me
                if replaced:
                    self._abandoned -= 1
            # Outside the lock, because callbacks take locks of their own and may submit to this worker.
            call.finish(result, recorded=recorded)
            if replaced:
                return


# ---------------------------------------------------------------------------------------------------------- coroutines

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

"""Threads of a provider instance: workers for plain hooks, and an event loop for hooks written as `async def`.

A worker is a queue of calls with a daemon thread, which runs them one at a time and in order. A provider may declare
that a worker runs several calls of different sessions at once, each on a thread. All coroutines of an instance run on
one event loop, in a thread of its own.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
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
        session_key: Identifies the session of the call; None for a call of no session. A worker that runs several
            calls at once never runs two with the same key.
        recorded: True if `record` has been called or is about to be called. The worker's lock guards this
            attribute.
    """

    hook: str
    function: Callable[[], CallResult]
    deadline: float
    record: Callable[[CallResult], None] = ignore_result
    on_late: Callable[[CallResult], None] = ignore_result
    background: bool = False
    session_key: Hashable = None
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
            ended = wait_unless_stopped(self.ends_within, seconds)
        finally:
            # Also when Ctrl-C or a signal handler of the host cut the wait short: if this call is the probe of a
            # breaker, another may go.
            if not ended:
                result = self.worker.give_up(self, seconds)
        return self.future.result() if result is None else result

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end of the call. Return True if it has ended."""
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
    """A thread of a worker.

    Attributes:
        call: The call that the thread runs now.
        abandoned: True if the call hangs and another thread has taken over the queue. This thread then ends when the
            call returns.
    """

    call: PendingCall | None = None
    abandoned: bool = False
    thread: threading.Thread | None = None


class Worker:
    """A queue of calls and the daemon threads that run them; the first thread starts with the first call.

    Threads of a `concurrent.futures` executor would not do: the interpreter joins them at exit, so a hung provider
    would keep the process from ending.

    By default there is one thread, which runs the calls one at a time. If a call hangs past its deadline, it is
    abandoned on its thread, and one new thread takes over the queue, if the worker is `replaceable`. If the new
    thread hangs too, `submit` refuses calls until one of these two threads returns.

    A worker with a higher `concurrent` runs that many calls at once, abandoned ones included, and no thread is
    replaced. The calls of one session, which have the same `PendingCall.session_key`, still run one at a time and in
    order: while one hangs, `submit` refuses the calls of that session. A call without a key runs alone, after the
    calls in front of it and before those behind it.

    Attributes:
        concurrent: Number of calls of different sessions that may run at once. It may be raised at any time.
    """

    def __init__(
        self, name: str, clock: Callable[[], float], *, replaceable: bool = True, concurrent: int = 1
    ) -> None:
        self.name = name
        self.replaceable = replaceable
        self.concurrent = concurrent
        self._clock = clock
        self._queue: deque[PendingCall] = deque()
        self._threads: list[_Thread] = []
        # The calls that run on threads which were not replaced.
        self._running: list[PendingCall] = []
        self._abandoned = 0
        self._stopped = False
        # Guards the state above. A call may end at the moment at which its caller stops waiting: only one of these
        # two events may decide which result is recorded.
        self._lock = threading.Lock()
        # Threads wait here for calls. It is notified if a call is added or has ended, and by `stop`.
        self._changed = threading.Condition(self._lock)

    @property
    def abandoned(self) -> int:
        """Number of abandoned calls that have not returned yet."""
        return self._abandoned

    @property
    def overdue(self) -> str:
        """A sentence about a call that passed its deadline and has not returned; "" if there is none."""
        if not (self._running or self._abandoned):  # hosts ask in each turn
            return ""
        with self._lock:
            overdue = next(filter(self._overdue, self._running), None)
            if overdue is not None:
                return self._overdue_text(overdue)
            return "an abandoned call has not returned" if self._abandoned else ""

    def submit(self, *calls: PendingCall) -> str:
        """Put `calls`, which must all be of one session, into the queue, one behind the other.

        Return "", or the reason why the worker refuses them.
        """
        with self._lock:
            refusal = self._refusal(calls[0].session_key)
            if refusal:
                return refusal
            for call in calls:
                call.worker = self
            self._queue.extend(calls)
            try:
                self._start_threads()
            except RuntimeError as exc:  # the system has no thread left, or the interpreter is ending
                if not any(not thread.abandoned for thread in self._threads):
                    for call in calls:
                        call.worker = None
                        self._queue.remove(call)
                    return f"no thread can be started ({exc})"
            self._changed.notify_all()
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
            blockers = [other for other in self._running if other.session_key == call.session_key]
            blockers = blockers or self._running
            ahead = blockers[0].hook if blockers else "another call"
            hung = bool(blockers) and all(map(self._overdue, blockers))
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
        """Refuse further calls and end the threads after the calls in the queue.

        Return True if they ended in `timeout` seconds. A thread with an abandoned call does not count.

        Args:
            last: A last call, behind those in the queue. It is accepted even if `submit` would refuse it because of
                a hung call.
        """
        until = time.monotonic() + timeout
        with self._lock:
            if not self._stopped:
                self._stopped = True
                if last is not None:
                    last.worker = self
                    self._queue.append(last)
                self._changed.notify_all()
            threads = [each.thread for each in self._threads if not each.abandoned and each.thread]
        if threading.current_thread() in threads:
            return True
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def withdraw_all(self) -> None:
        """Take all calls that have not begun out of the queue."""
        with self._lock:
            waiting = list(self._queue)
        for call in waiting:
            call.withdraw()

    def when_idle(self, function: Callable[[], object]) -> None:
        """Call `function` once no call runs any more: at once, or on the worker's thread when the last one returns."""
        with self._lock:
            running = list(self._running)
        if running:
            running[0].future.add_done_callback(lambda _: self.when_idle(function))
        else:
            function()

    # ------------------------------------------------------------------- private, called with the lock

    def _overdue(self, call: PendingCall) -> bool:
        ran = self._clock() - call.started_at
        # A caller counts its wait from the moment before the call began. Without the share, the next call would stand
        # in line behind one that was given up a moment ago.
        return ran > call.deadline or (call.recorded and ran >= call.deadline * MIN_RUN_SHARE)

    def _overdue_text(self, call: PendingCall) -> str:
        ran = self._clock() - call.started_at
        return f"{call.hook} has not returned for {ran:.1f} s (deadline {call.deadline:g} s)"

    def _refusal(self, session_key: Hashable) -> str:
        """Return the reason why a call of this session is refused, else "". Abandon a hung call that is replaced."""
        if self._stopped:
            return "the provider was shut down"
        if not self._running or not (overdue := list(filter(self._overdue, self._running))):
            return ""
        if self.concurrent > 1:
            of_session = [
                call for call in overdue if session_key is not None and call.session_key == session_key
            ]
            full = len(overdue) >= self.concurrent
            return self._overdue_text((of_session or overdue)[0]) if of_session or full else ""
        if not self.replaceable or len(self._threads) > 1:
            return self._overdue_text(overdue[0])
        hung = self._threads[0]
        log.warning("%s: %s; a new thread takes its place", self.name, self._overdue_text(overdue[0]))
        hung.abandoned = True
        self._abandoned += 1
        self._running.clear()
        return ""

    def _startable(self) -> list[PendingCall]:
        """Return the waiting calls that may run now beside the running ones, in the order of the queue."""
        while self._queue and self._queue[0].future.cancelled():
            self._queue.popleft()
        running = self._running
        if self.concurrent == 1:
            return [] if running or not self._queue else [self._queue[0]]
        punctual = [call for call in running if not self._overdue(call)]
        if any(call.session_key is None for call in punctual):
            return []
        busy = {call.session_key for call in running}
        calls: list[PendingCall] = []
        for call in self._queue:
            if call.future.cancelled():
                continue
            if call.session_key is None:
                # It waits until the calls before it have ended, and those behind it wait for it. A hung call delays
                # neither: it has no thread in common with them.
                if not calls and not punctual:
                    calls.append(call)
                break
            if call.session_key not in busy:
                calls.append(call)
            busy.add(call.session_key)
        return calls[: self.concurrent - len(running)]

    def _start_threads(self) -> None:
        """Start threads for the calls that may run now and for which no thread waits."""
        idle = len(self._threads) - len(self._running) - self._abandoned
        for _ in range(len(self._startable()) - idle):
            added = _Thread()
            added.thread = threading.Thread(target=self._work, args=(added,), name=self.name, daemon=True)
            self._threads.append(added)
            try:
                added.thread.start()
            except RuntimeError:
                self._threads.remove(added)
                raise

    def _next(self, me: _Thread) -> PendingCall | None:
        """Wait for a call that may run now, and mark it as running. Return None if the thread has to end."""
        while True:
            for call in self._startable():
                self._queue.remove(call)
                # One step with the start time, under the lock: `give_up` reads the time of a running call.
                if call.future.set_running_or_notify_cancel():
                    call.started_at, call.started_monotonic = self._clock(), time.monotonic()
                    me.call = call
                    self._running.append(call)
                    return call
                break  # withdrawn; the call behind it may run now
            else:
                if self._stopped and not self._queue:
                    return None
                self._changed.wait()

    def _work(self, me: _Thread) -> None:
        while True:
            with self._lock:
                call = self._next(me)
                if call is None:
                    self._threads.remove(me)
                    return
            result = call.context.run(call.function)
            with self._lock:
                me.call = None
                recorded, call.recorded = call.recorded, True
                if me.abandoned:
                    self._threads.remove(me)
                    self._abandoned -= 1
                else:
                    self._running.remove(call)
                self._changed.notify_all()
            # Outside the lock, because callbacks take locks of their own and may submit to this worker.
            call.finish(result, recorded=recorded)
            if me.abandoned:
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

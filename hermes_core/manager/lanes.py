"""A lane: one daemon thread that runs the hooks of one instance, one at a time and in order.

The threads are ours and daemons. Those of concurrent.futures and of asyncio's default executor are joined when the
interpreter exits, so a hung provider would hold the process.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

from hermes_core.manager.call import CallResult
from hermes_core.manager.line import Errands, Line
from hermes_core.stopping import stopped, waited

log = logging.getLogger(__name__)

JobState = Literal["waiting", "running", "done", "withdrawn"]


IN_TIME = 0.8
"""The part of a wait that a call must have run for to be late: less was left to one that stood in line behind others,
and that is no fault of the backend."""


class Job:
    """One call on its way through a lane: `run` makes it, on the lane's thread. A `patient` one is handed over together with
    the next, so that two calls cost one change of threads. A `watched` one is waited for; if it ends past its deadline it
    is watched no more.
    """

    __slots__ = (
        "began",
        "context",
        "deadline",
        "done",
        "hook",
        "outcome",
        "patient",
        "started",
        "state",
        "watched",
    )

    def __init__(self, hook: str, deadline: float, watched: bool, patient: bool = False) -> None:
        self.hook = hook
        self.deadline = deadline
        self.watched = watched
        self.patient = patient
        self.context = contextvars.copy_context()
        self.state: JobState = "waiting"
        self.started = self.began = 0.0  # by the lane's clock, and in real time as it is waited for
        self.outcome: CallResult | None = None
        self.done: threading.Lock | None = None
        if watched:
            self.done = threading.Lock()
            self.done.acquire()

    def run(self) -> CallResult:
        """Make the call."""
        raise NotImplementedError

    def ended(self, outcome: CallResult) -> None:
        """Called on the lane's thread when nobody waits any more."""


class Task(Job):
    """A job made of functions. `afterwards` gets the outcome when nobody waits for it."""

    __slots__ = ("_afterwards", "_run")

    def __init__(
        self,
        hook: str,
        run: Callable[[], CallResult],
        deadline: float,
        afterwards: Callable[[CallResult], None] | None = None,
        *,
        watched: bool = True,
        patient: bool = False,
    ) -> None:
        super().__init__(hook, deadline, watched, patient)
        self._run = run
        self._afterwards = afterwards

    def run(self) -> CallResult:
        """Make the call."""
        return self._run()

    def ended(self, outcome: CallResult) -> None:
        """Pass the outcome on."""
        if self._afterwards is not None:
            self._afterwards(outcome)


class _Worker:
    """The lane's present thread and what it runs."""

    __slots__ = ("job", "thread")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.thread: threading.Thread | None = None


class Worker:
    """Runs jobs one at a time on a thread that starts with the first of them.

    A job that hangs past its deadline is left behind on its thread, and one new thread takes its place
    (`replaceable`); if that hangs too, `submit` says why nothing more goes out until one of the two comes back.
    """

    def __init__(self, name: str, clock: Callable[[], float], *, replaceable: bool = True) -> None:
        self.name = name
        self.replaceable = replaceable
        self._clock = clock
        self._line: Line[Job | None] = Line()
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._abandoned = 0
        self._stopped = False
        self._patient: Job | None = None

    @property
    def abandoned(self) -> int:
        """How many hung calls were left behind and have not come back: 0 or 1."""
        with self._lock:
            return self._abandoned

    @property
    def overdue(self) -> str:
        """Which call has not returned in its time, also while a new thread may take its place; "" when none."""
        worker = self._worker
        if not self._abandoned and (worker is None or worker.job is None):
            return ""
        with self._lock:
            return self._hung() or ("a call that was left behind has not returned" if self._abandoned else "")

    def submit(self, job: Job, errands: Errands | None = None) -> str:
        """Put `job` in line. Returns "" or the reason why it can't be. `errands` wake the thread for who has no time."""
        with self._lock:
            worker = self._worker
            if (worker is None or worker.job is not None or self._stopped) and (refused := self._refused()):
                return refused
            # A patient one now waits itself, and goes before the next.
            waited, self._patient = self._patient, job if job.patient else None
            if waited is not None:
                self._line.put(waited)
            if not job.patient:
                self._line.put(job)
        if errands is not None:
            errands.add(self._line.ring)
        elif waited is not None or not job.patient:
            self._line.ring()
        return ""

    def wait(self, job: Job, timeout: float) -> CallResult:
        """Wait for `job` at most `timeout` seconds, or until that is stopped. One that has not begun by then never will."""
        assert job.done is not None, "only a watched job is waited for"
        if waited(partial(job.done.acquire, True), timeout):
            assert job.outcome is not None
            return job.outcome
        with self._lock:
            if job.outcome is not None:
                return job.outcome
            job.watched = False
            given_up = stopped()
            if job.state == "running" and given_up:
                return CallResult("skipped", error="the turn was stopped")
            if job.state == "running" and (left := time.monotonic() - job.began) < timeout * IN_TIME:
                error = f"waited in line, and {left:.1f} s were left of {timeout:.3g}; it still runs"
                return CallResult("skipped", error=error, elapsed=timeout)
            if job.state == "running":
                return CallResult(
                    "late", error=f"no answer within {timeout:.3g} s", elapsed=timeout, counts=True
                )
            job.state = "withdrawn"
            ahead = self._worker.job.hook if self._worker and self._worker.job else "another call"
            hung = bool(self._hung()) and not given_up
        error = "the turn was stopped" if given_up else f"waited {timeout:.3g} s in line behind {ahead}"
        return CallResult("skipped", error=error, elapsed=timeout, counts=hung)

    def withdraw(self, job: Job) -> bool:
        """Take a job that has not begun out of the line; whether that was still possible."""
        with self._lock:
            if job.state != "waiting":
                return False
            job.state = "withdrawn"
            return True

    def stop(self, timeout: float, last: Job | None = None) -> bool:
        """Take nothing more, let what is in line end, `last` behind it also where a call hangs, and wait for that. Whether the
        thread ended in time.
        """
        with self._lock:
            if not self._stopped:
                self._stopped = True
                if self._patient is not None:
                    self._line.put(self._patient)
                if last is not None:
                    self._line.put(last)
                self._line.put(None)
            thread = self._worker.thread if self._worker else None
        self._line.ring()
        if thread is None:
            self._line.close()
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(0.0, timeout))
        return not thread.is_alive()

    def _refused(self) -> str:
        """Why nothing goes in line; "" once there is a thread that takes it."""
        if self._stopped:
            return "the provider was shut down"
        hung = self._hung()
        if hung and (self._abandoned or not self.replaceable):
            return hung
        if hung or self._worker is None:
            try:
                self._start()
            except (RuntimeError, OSError) as exc:  # no thread, no descriptor, or the interpreter ends
                return f"no thread can be started ({exc})"
        if hung:
            self._abandoned += 1
            log.warning("%s: %s; a new thread takes its place", self.name, hung)
        return ""

    def _hung(self) -> str:
        worker = self._worker
        job = worker.job if worker is not None else None
        if job is None or self._clock() - job.started <= job.deadline:
            return ""
        return f"{job.hook} has not returned for {self._clock() - job.started:.1f} s (deadline {job.deadline:g} s)"

    def _start(self) -> None:
        self._line.open()
        worker = _Worker()
        worker.thread = threading.Thread(target=self._work, args=(worker,), name=self.name, daemon=True)
        worker.thread.start()
        self._worker = worker

    def _work(self, me: _Worker) -> None:
        while (job := self._line.get()) is not None:
            with self._lock:
                if job.state == "withdrawn":
                    continue
                job.state, job.started, job.began, me.job = "running", self._clock(), time.monotonic(), job
            outcome = job.context.run(job.run)
            with self._lock:
                me.job = None
                job.outcome, job.state = outcome, "done"
                watched = job.watched
                replaced = self._worker is not me
                if replaced:
                    self._abandoned -= 1
            if job.done is not None:
                job.done.release()
            if not watched:
                job.ended(outcome)
            if replaced:
                return
        self._line.close()

"""Jobs in line for one thread, and how that thread is woken."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Job = TypeVar("Job")


class Bell:
    """Wakes the one thread that waits for it; an `Event` does so for any number of them and takes five times as long."""

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Let the thread that waits go on, or the next that would wait."""
        if self._silent.locked():
            try:
                self._silent.release()
            except RuntimeError:  # another rang it just now
                pass

    def quiet(self) -> None:
        """Forget that it was rung."""
        self._silent.acquire(blocking=False)

    def wait(self, timeout: float) -> bool:
        """Wait until it rings, at most `timeout` seconds; whether it did."""
        return self._silent.acquire(timeout=timeout)


class Line(Generic[Job]):
    """A queue whose thread waits at a pipe, once it is open.

    A write to a pipe gives the interpreter away, so the thread that it wakes can run at once. One that is woken by a lock,
    as that of a `queue.Queue`, wakes a second time when its waker waits for it, and beside a thread that computes that is
    another 5 ms (`sys.getswitchinterval`) in every turn.
    """

    __slots__ = ("_ends", "_jobs", "_lock")

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._ends: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Make the pipe, if there is none. Raises `OSError` when the process has no descriptor left."""
        if self._ends is None:
            self._ends = os.pipe()
            if hasattr(os, "set_blocking"):  # on Windows from Python 3.12 on
                os.set_blocking(self._ends[1], False)

    def put(self, job: Job) -> None:
        """Add a job; its thread sees it at the next `ring`."""
        self._jobs.append(job)

    def ring(self) -> None:
        """Wake the thread. The lock keeps the pipe from being closed, and its number from being another file's, meanwhile."""
        with self._lock:
            if self._ends is not None:
                try:
                    os.write(self._ends[1], b"!")
                except BlockingIOError:  # it was rung more often than a pipe holds
                    pass

    def get(self) -> Job:
        """The next job, waited for. Only one thread calls this."""
        assert self._ends is not None
        while not self._jobs:
            os.read(self._ends[0], 4096)
        return self._jobs.popleft()

    def close(self) -> None:
        """Close the pipe; no thread waits at it any more."""
        with self._lock:
            ends, self._ends = self._ends, None
        for end in ends or ():
            os.close(end)


class Errands:
    """Wakes threads for callers that don't wait for them: all errands of a turn cost it one wake, of the thread here.

    A lock wakes that one, so the caller goes on at once. The thread starts with the first errand. One that is due already
    is not due twice: a fork, which has no such thread, keeps one for each thread that it would wake.
    """

    def __init__(self) -> None:
        self._due: set[Callable[[], None]] = set()
        self._bell = Bell()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, ring: Callable[[], None]) -> None:
        """Call `ring` soon; at once where no thread can be had for it."""
        self._due.add(ring)
        if self._thread is None or self._stopped:
            self._start()
        self._bell.ring()

    def stop(self, timeout: float) -> None:
        """Do what is due, and end."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._bell.ring()
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, timeout))

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped:
                thread = threading.Thread(target=self._work, name="hermes-errands", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread left, or the interpreter is ending
                    self._run()
                else:
                    self._thread = thread
            elif self._stopped:
                self._run()

    def _work(self) -> None:
        while not self._stopped:
            self._bell.wait(threading.TIMEOUT_MAX)
            self._run()

    def _run(self) -> None:
        while True:
            try:
                ring = self._due.pop()
            except KeyError:
                return
            ring()

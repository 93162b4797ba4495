"""Waits for foreign code no longer than a deadline."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Something that has not ended, `seconds` after it began."""

    seconds: float


class _Run(Generic[Result]):
    """One action on a daemon thread of its own, in the caller's context."""

    def __init__(self, label: str, action: Callable[[], Result]) -> None:
        self._began = time.monotonic()
        self._action = action
        self._results: list[Result] = []
        self._interrupt: KeyboardInterrupt | None = None
        self._ended = threading.Event()
        context = contextvars.copy_context()
        name = f"hermes-load-{label}"
        self.thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)

    def _run(self) -> None:
        try:
            self._results.append(self._action())
        except KeyboardInterrupt as exc:
            self._interrupt = exc
        finally:
            self._ended.set()

    def wait(self, seconds: float) -> Result | Unfinished:
        """Its result; the thread is joined, so that nothing of it is left."""
        if not self._ended.wait(seconds):
            return self.unfinished
        self.thread.join()
        if self._interrupt is not None:
            raise self._interrupt
        return self._results[0]

    @property
    def unfinished(self) -> Unfinished:
        """How long it has been running."""
        return Unfinished(time.monotonic() - self._began)


_left_behind: dict[str, _Run[Any]] = {}
_lock = threading.Lock()


def within(seconds: float, label: str, action: Callable[[], Result]) -> Result | Unfinished:
    """The result of `action`, which must not raise, or `Unfinished` after so many seconds.

    What is not finished goes on; until it ends, the same `label` is not begun a second time.
    """
    with _lock:
        earlier = _left_behind.get(label)
        if earlier is not None and earlier.thread.is_alive():
            return earlier.unfinished
        run = _Run(label, action)
        _left_behind[label] = run
    run.thread.start()
    result = run.wait(seconds)
    if not isinstance(result, Unfinished):
        with _lock:
            _left_behind.pop(label, None)
    return result

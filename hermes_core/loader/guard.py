"""The border to foreign code: what it raises becomes a value, and what hangs is abandoned after a timeout."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, ParamSpec, TypeVar

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


# NamedTuples, not dataclasses: every command imports this module, and a dataclass takes six times as long to make.
class ForeignError(NamedTuple):
    """An exception that foreign code raised; its text is one line."""

    error: BaseException

    def __str__(self) -> str:
        text = str(self.error).strip().splitlines()
        return f"{type(self.error).__name__}: {text[0]}" if text else type(self.error).__name__


class StillRunning(NamedTuple):
    """The result of a call that has not returned `seconds` after it began."""

    seconds: float


def call_foreign(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result | ForeignError:
    """Call foreign code and return its result, or its exception as a `ForeignError`.

    SystemExit is caught too: a plugin must not end the program. Only KeyboardInterrupt passes.
    """
    try:
        return function(*args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        logger.debug("a provider's code raised", exc_info=True)
        return ForeignError(exc)


# Plugins are loaded one at a time: providers written for Hermes Agent read the process environment, and a thread must not
# take the import that another one waits for as one that hangs.
_lock = threading.Lock()
# A plugin may load another one while it is loaded: the inner load must not wait for the outer one.
_loading: contextvars.ContextVar[bool] = contextvars.ContextVar("loading_a_plugin", default=False)

# The threads that still run, by label, with their start times: a plugin whose import hangs must not be imported a
# second time beside it.
_threads: dict[str, tuple[threading.Thread, float]] = {}


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Wait until no other thread loads a plugin, and let none begin meanwhile."""
    if _loading.get():
        yield
        return
    with _lock:
        token = _loading.set(True)
        try:
            yield
        finally:
            _loading.reset(token)


def call_with_timeout(
    label: str, function: Callable[[], Result], timeout: float
) -> Result | ForeignError | StillRunning:
    """Load a plugin on a thread of its own, in the caller's context, and wait at most `timeout` seconds.

    Python can't stop a thread from outside. A call that hangs keeps its daemon thread, which does not hold the
    process at its end. While it runs, a second call with the same `label` returns `StillRunning` at once.
    """
    future: Future[Result | ForeignError] = Future()

    def run() -> None:
        try:
            future.set_result(call_foreign(function))
        except KeyboardInterrupt as exc:
            future.set_exception(exc)

    with loading():
        began, context = time.monotonic(), contextvars.copy_context()
        running = _threads.get(label)
        if running is not None and running[0].is_alive():
            return StillRunning(began - running[1])
        thread = threading.Thread(target=context.run, args=(run,), name=f"hermes-load-{label}", daemon=True)
        _threads[label] = thread, began
        thread.start()
        try:
            result = future.result(timeout)
        except TimeoutError:
            return StillRunning(time.monotonic() - began)
        # The function has returned, so the thread ends at once; nothing of it stays.
        thread.join()
        _threads.pop(label, None)
        return result

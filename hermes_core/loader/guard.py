"""The border to foreign code: what it raises becomes a value, and what hangs is abandoned after a timeout."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from opcode import opmap
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from hermes_core.errors import HermesError

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


# NamedTuples, not dataclasses: every command imports this module, and a dataclass takes six times as long to make.
class ForeignError(NamedTuple):
    """An exception that foreign code raised; its text is one line, with file and line for a fault in the code."""

    error: BaseException

    def __str__(self) -> str:
        text = str(self.error).strip().splitlines()
        line = f"{type(self.error).__name__}: {text[0]}" if text else type(self.error).__name__
        place = fault_place(self.error)
        return f"{line}, in {place}" if place else line


class StillRunning(NamedTuple):
    """The result of a call that has not returned `seconds` after it began."""

    seconds: float


# A backend that is down raises none of these.
_CODE_FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, NameError, SyntaxError, TypeError),
    *(NotImplementedError, RecursionError),
)
# Frames in these folders call foreign code.
_CALLERS = (
    f"{os.sep}pluggy{os.sep}",
    *(f"{os.sep}hermes_core{os.sep}{part}{os.sep}" for part in ("loader", "manager")),
)


def fault_place(error: BaseException) -> str:
    """Return the file and line of a fault in foreign code; "" for any other error, such as one of a backend.

    A wrapper of foreign code that has the global `__tracebackhide__` is passed over, as in pytest.
    """
    if not (isinstance(error, _CODE_FAULTS) or _is_of_builtin(error)) or isinstance(error, HermesError):
        return ""
    frames = [*traceback.walk_tb(error.__traceback__)]
    # What called the foreign code comes before its first frame, and it may call this package again.
    calls = [at for at, (frame, _) in enumerate(frames) if _is_caller(frame.f_code.co_filename)]
    inner = [
        (frame.f_code.co_filename, line)
        for frame, line in frames[calls[-1] + 1 if calls else len(frames) :]
        if not (frame.f_globals.get("__tracebackhide__") or frame.f_code.co_filename.startswith("<"))
    ]
    if not inner:
        return ""
    first = inner[0][0]
    folder = str(Path(first).parent)
    # A library that it calls is not its code. A module directly in a folder of libraries has that folder for itself.
    own = f"{folder}{os.sep}" if folder not in sys.path else first
    file, line = [place for place in inner if place == inner[0] or place[0].startswith(own)][-1]
    return f"{file} line {line}"


def _is_of_builtin(error: BaseException) -> bool:
    """Return True for a ValueError that no `raise` wrote, as `int("pond")` has it: others are words of the provider."""
    place = error.__traceback__
    if type(error) is not ValueError or place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_code.co_code[place.tb_lasti] != opmap["RAISE_VARARGS"]


def _is_caller(file: str) -> bool:
    return any(caller in file for caller in _CALLERS)


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

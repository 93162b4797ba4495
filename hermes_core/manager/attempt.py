"""The only place of the manager that catches what it does not know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")


def attempt(function: Callable[..., Value], *arguments: Any) -> tuple[Value | None, BaseException | None]:
    """Run foreign code: its value, or what it raised, also SystemExit. Ctrl-C of the person passes through."""
    try:
        return function(*arguments), None
    except BaseException as exc:
        # Only the main thread receives the person's Ctrl-C; elsewhere the provider itself raised it.
        if isinstance(exc, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return None, exc


def ends_program(failure: BaseException | None) -> bool:
    """Whether it is a SIGTERM's: where signals arrive, a SystemExit is."""
    return isinstance(failure, SystemExit) and threading.current_thread() is threading.main_thread()

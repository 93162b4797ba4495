"""Waiting for a backend that does its work after it has answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def polled(
    ask: Callable[[], Answer],
    seconds: float,
    pause: float = 0.5,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """What `ask` answers, asked again every `pause` seconds until that is true or `seconds` are over.

    For a self-test, and for a tool that was told to wait; never for a write, which the manager tries again.
    """
    until = clock() + seconds
    while not (answer := ask()) and clock() < until:
        sleep(pause)
    return answer

"""A periodic log line on the resources of this process, for gateways that run for weeks. Off by default."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from hermes_memory_agent.cancel import start_thread

log = logging.getLogger(__name__)

_PAGE = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096
_STATM = Path("/proc/self/statm")


class ProcessMonitor:
    """A monitor that logs resident memory, garbage collection, threads and uptime of this process.

    Used with `with`, it logs at the beginning of the block, during the block, and at its end.

    Args:
        minutes: Minutes between two log lines; 0 logs nothing.
        report: Function that gets the figures. None writes them to Python's log.
    """

    def __init__(
        self, minutes: float, *, report: Callable[[Mapping[str, str]], object] | None = None
    ) -> None:
        self._seconds = minutes * 60
        self._report = report or _log
        self._started_at = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._seconds > 0:
            self._report(self.figures())
            self._thread = start_thread(self._run, "agent-monitor")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1.0)
            self._report(self.figures())

    def figures(self) -> dict[str, str]:
        """Return the current figures as text, by name.

        >>> list(ProcessMonitor(0).figures())
        ['rss', 'gc', 'threads', 'uptime']
        """
        resident = resident_bytes()
        uptime = time.monotonic() - self._started_at
        return {
            "rss": f"{resident / 2**20:.0f}MB" if resident is not None else "unknown",
            "gc": "/".join(map(str, gc.get_count())),
            "threads": str(threading.active_count()),
            "uptime": f"{uptime:.0f}s",
        }

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._report(self.figures())


def _log(figures: Mapping[str, str]) -> None:
    log.info("process: %s", " ".join(f"{name}={value}" for name, value in figures.items()))


def resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes; None if the system does not report it.

    Without /proc, as on macOS, return the peak so far.
    """
    if _STATM.exists():
        with contextlib.suppress(
            OSError
        ):  # too many files may be open, and the other figures are still useful
            return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE
        return None
    try:
        import resource  # POSIX only
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

"""One log line every few minutes on how much this process takes, for gateways that run for weeks. Off by default."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

_PAGE = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096
_STATM = Path("/proc/self/statm")


class ProcessMonitor:
    """Logs resident memory, garbage collection and threads at the start, every `minutes`, and at the end of the block.

    With `minutes` of 0 it does nothing.
    """

    def __init__(self, minutes: float, *, report: Callable[[str], None] | None = None) -> None:
        self._seconds = minutes * 60
        self._report = report or log.info
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-monitor", daemon=True)

    def __enter__(self) -> Self:
        if self._seconds > 0:
            self._report(self.line())
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._seconds > 0:
            self._thread.join(1.0)
            self._report(self.line())

    def line(self) -> str:
        """How it stands now.

        >>> "threads=" in ProcessMonitor(0).line()
        True
        """
        resident = resident_bytes()
        rss = f"{resident / 2**20:.0f}MB" if resident is not None else "unknown"
        uptime = time.monotonic() - self._began
        return (
            f"process: rss={rss} gc={gc.get_count()} threads={threading.active_count()} uptime={uptime:.0f}s"
        )

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._report(self.line())


def resident_bytes() -> int | None:
    """Resident memory of this process now (on macOS its highest so far), None where the system does not tell."""
    if _STATM.exists():
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE
    try:
        import resource  # POSIX only
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

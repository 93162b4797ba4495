"""The fault layer: kills and broken disks at the n-th file system call below one folder.

A library in C stands between this process and the C library (`faults.c`). A layer in Python would not see the calls of
SQLite, and a mounted test file system would need root. The library needs a C compiler: these tests are skipped without one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")


class Action(IntEnum):
    """What the layer does. `FULL` counts bytes and `SLOW` microseconds; the others count calls.

    `JUMP` changes the time of day after every so many calls, by hours and by years, back and forward. `SHORT` lets one call
    write half of its bytes and say so, as a signal or a nearly full disk does.
    """

    OFF = 0
    KILL_BEFORE = 1
    KILL_AFTER = 2  # after half of it, if the call is a write
    FAIL_ONCE = 3
    FAIL_FROM = 4
    FULL = 5
    SLOW = 6
    JUMP = 7
    SHORT = 8


class Call(IntFlag):
    """Kinds of calls that a fault can hit."""

    WRITE = 1
    SYNC = 2
    RENAME = 4
    CREATE = 8
    REMOVE = 16
    READ = 32
    CHANGE = WRITE | SYNC | RENAME | CREATE | REMOVE
    ALL = CHANGE | READ


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        at: Number of the call that the fault hits, from 1; bytes for `FULL`, microseconds for `SLOW`.
        error: The `errno` of the calls that fail.
    """

    action: Action
    at: int = 0
    error: int = 0
    calls: Call = Call.CHANGE

    def arm(self, folder: Path, report: int = -1) -> None:
        """Let calls of this process below `folder` meet the fault; a line for each goes to the descriptor `report`."""
        arguments = (self.action, self.at, self.error, self.calls, report)
        _library().faults_arm(os.fsencode(folder), *map(int, arguments))

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment of a program that meets the fault from its start."""
        words = [*map(str, (int(self.action), self.at, self.error, int(self.calls))), str(folder)]
        return {**environment(), "FAULTS": " ".join(words)}


COUNT = Fault(Action.FAIL_ONCE, 0)
"""Nothing fails; the calls are counted."""


def calm() -> None:
    """End the fault of this process."""
    Fault(Action.OFF).arm(Path("/"))


def count() -> int:
    """Return the number of calls since `arm`."""
    return int(_library().faults_count())


def obstacle() -> str:
    """Return why the layer can't be used on this machine; "" if it can."""
    if not sys.platform.startswith("linux"):
        return "the fault layer is made for Linux"
    if _compiler() is None:
        return "the fault layer needs a C compiler: install gcc or clang, or set CC"
    return ""


@cache
def compiled(source: Path) -> Path:
    """Compile a library once a process, and return its path."""
    compiler = _compiler()
    assert compiler is not None
    target = Path(tempfile.mkdtemp(prefix="hermes-faults-")) / f"{source.stem}.so"
    command = [compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(target), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return target


def environment() -> dict[str, str]:
    """Return an environment in which programs load the layer."""
    return {**os.environ, "LD_PRELOAD": str(compiled(SOURCE))}


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang"))), None)


@cache
def _library() -> ctypes.CDLL:
    layer = ctypes.CDLL(None)
    layer.faults_count.restype = ctypes.c_long
    layer.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, *[ctypes.c_int] * 3]
    return layer

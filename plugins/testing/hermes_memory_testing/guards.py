"""Guards that see what a provider does to the process: network and child processes, and what it leaves behind."""

from __future__ import annotations

import contextlib
import gc
import locale
import logging
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTSIDE = frozenset(
    {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "subprocess.Popen"}
    | {"os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty"}
)
"""Audit events of a process that talks to others."""

_FOLDER_OF_FILES = Path("/proc/self/fd")
_pause = threading.Event()


class NetworkClosed(OSError):
    """The provider reached out where the contract lets it look at itself only."""


class _Watch:
    """An audit hook can't be taken off again, so there is one a process and it can be switched."""

    def __init__(self) -> None:
        self.installed = False
        self.seen: list[str] | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.seen is not None and event in OUTSIDE:
            self.seen.append(f"{event}{_shown(arguments)}")
            raise NetworkClosed(f"{event} is closed here: no network and no child process")


_watch = _Watch()


@contextlib.contextmanager
def closed_network() -> Iterator[list[str]]:
    """Refuse connections, look-ups and child processes of this process; gives the list of those that were tried."""
    if not _watch.installed:
        sys.addaudithook(_watch)
        _watch.installed = True
    seen: list[str] = []
    _watch.seen = seen
    try:
        yield seen
    finally:
        _watch.seen = None


def _shown(arguments: tuple[Any, ...]) -> str:
    plain = [repr(a) for a in arguments if isinstance(a, str | int | tuple | list)]
    return f"({', '.join(plain)[:120]})"


@dataclass(frozen=True, slots=True)
class Left:
    """Threads, files, sockets and changes of the process that were not there before, by names for people."""

    threads: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    process: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Before:
    """The process as it was. `folders` are those whose open files count as the provider's."""

    folders: tuple[Path, ...]
    threads: frozenset[int] = field(
        default_factory=lambda: frozenset(id(thread) for thread in threading.enumerate())
    )
    descriptors: frozenset[tuple[str, int]] = field(default_factory=lambda: frozenset(_descriptors()))
    state: dict[str, str] = field(default_factory=lambda: shared_state())

    def left(self, within: float = 2.0) -> Left:
        """Return all that is new, after waiting up to `within` seconds for it to go away."""
        # A thread or a file of an object in a reference cycle stays until the collector runs.
        gc.collect()
        until = time.monotonic() + within
        while (left := self._look()) != Left() and time.monotonic() < until:
            # Threads end and sockets close in the background, without an event that could be waited for.
            _pause.wait(0.02)
        return left

    def _look(self) -> Left:
        threads = [t.name for t in threading.enumerate() if id(t) not in self.threads and t.is_alive()]
        fresh = [name for name, number in _descriptors() if (name, number) not in self.descriptors]
        files = [name for name in fresh if any(Path(name).is_relative_to(f) for f in self.folders)]
        sockets = [name for name in fresh if name.startswith("socket:")]
        return Left(tuple(threads), tuple(files), tuple(sockets), tuple(self._changes()))

    def _changes(self) -> Iterator[str]:
        now = shared_state()
        for key in sorted(self.state.keys() | now.keys()):
            if self.state.get(key) != now.get(key):
                # Values of the environment are often secrets, and sys.path is long.
                yield key if key.startswith(("environment ", "sys.path")) else f"{key}, now {now.get(key)}"


def sees_descriptors() -> bool:
    """Return True if this system shows a process its own open files."""
    return _FOLDER_OF_FILES.is_dir()


def _descriptors() -> list[tuple[str, int]]:
    """Open files and sockets of this process by name and number; nothing where the system does not tell."""
    if not sees_descriptors():
        return []
    found = []
    for entry in _FOLDER_OF_FILES.iterdir():
        with contextlib.suppress(OSError):
            kind = entry.stat().st_mode
            if stat.S_ISREG(kind) or stat.S_ISSOCK(kind):
                found.append((str(entry.readlink()), int(entry.name)))
    return found


def shared_state() -> dict[str, str]:
    """Return the state that all parts of a process share, by name.

    These are the environment, the working folder, the locale, logging, the timeout of sockets, the path of modules, and the
    hooks for uncaught exceptions.
    """
    hidden = {"PYTEST_CURRENT_TEST"}
    state = {f"environment {key}": value for key, value in os.environ.items() if key not in hidden}
    state["working folder"] = str(Path.cwd())
    state["locale"] = locale.setlocale(locale.LC_ALL)
    os.umask(mask := os.umask(0o077))
    state["umask"] = f"{mask:03o}"
    state["handlers of the root logger"] = str([type(handler).__name__ for handler in logging.root.handlers])
    state["level of the root logger"] = str(logging.root.level)
    state["level below which nothing is logged"] = str(logging.root.manager.disable)
    state["timeout of new sockets"] = str(socket.getdefaulttimeout())
    state["sys.path"] = str(sys.path)
    for module in (sys, threading):  # by name: pytest before 8.4 makes a new one for each part of a test
        hook: object = module.excepthook
        state[f"{module.__name__}.excepthook"] = getattr(hook, "__qualname__", str(hook))
    return state


def untouched_since(first: Mapping[str, str]) -> dict[str, str]:
    """The shared state as it would be had nobody changed it since then, but for the values that each test sets itself."""
    now = shared_state()
    of_a_test = ("environment ", "working folder")
    return {key: now[key] if key.startswith(of_a_test) else was for key, was in first.items() if key in now}


def with_changes_since(last: Mapping[str, str], first: Mapping[str, str]) -> dict[str, str]:
    """Return the state `first` with the changes that were made to the shared state since `last`."""
    now = shared_state()
    return {
        key: first[key] if last.get(key) == value else value
        for key, value in now.items()
        if key in first or last.get(key) != value
    }


def files_below(*folders: Path) -> set[str]:
    """Return the paths of all files below these folders."""
    return {str(path) for folder in folders for path in folder.rglob("*") if not path.is_dir()}

"""The log of a home: `logs/hermes.log`, one JSON object a line, private, rotated, and without secrets.

Events of the manager come through `LogFile.on_event`; what Python's `logging` carries comes through `logging_to`, which
only a program may use, because it takes the root logger. A line has `at`, `level`, `kind`, `pid` and what the event says.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from hermes_core.contract.values import Event
from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.safety.redact import redact_value
from hermes_core.safety.terminal import json_line
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder, locked

Level = Literal["info", "warning", "error"]

LEVELS: tuple[Level, ...] = ("info", "warning", "error")

MAX_BYTES = 2 * 1024 * 1024
KEPT = 3
"""Older files beside the present one: hermes.log.1 is the youngest of them."""

LONGEST_TEXT = 2000

_ERRORS = frozenset({"provider.failed", "outbox.parked", "outbox.refused"})
_GOOD = frozenset({"provider.ready", "provider.hooks"})
_OURS = ("hermes_", "_hermes_")
_OWN_FIELDS = ("at", "level", "kind", "pid")


class LogFile:
    """The log of one home. Any number of processes write to it; a line that can't be written is dropped, nothing raises.

    `clock` gives seconds since the epoch.
    """

    def __init__(
        self, home: HermesHome, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = home.log_file
        self._max_bytes = max_bytes
        self._clock = clock

    def write(self, level: Level, kind: str, data: Mapping[str, Any], at: float | None = None) -> bool:
        """Append one line with the secrets taken out. Whether it is in the file."""
        moment = datetime.fromtimestamp(self._clock() if at is None else at, UTC)
        clean = redact_value({str(key): value for key, value in data.items()})
        assert isinstance(clean, dict)
        clean = {key: _shortened(value) for key, value in clean.items()}  # half a key does not look like one
        head = {
            "at": moment.isoformat(timespec="milliseconds"),
            "level": level,
            "kind": kind,
            "pid": os.getpid(),
        }
        line = json_line(json.dumps({**clean, **head}, ensure_ascii=False, default=str))
        try:
            self._append(f"{line}\n".encode(errors="replace"))
        except (OSError, StorageError):
            return False
        return True

    def on_event(self, event: Event) -> None:
        """Write an event of the manager."""
        level: Level = "error" if event.kind in _ERRORS else "info" if event.kind in _GOOD else "warning"
        self.write(level, event.kind, event.data, event.at)

    def read(self, *, limit: int = 50, level: Level = "info") -> list[dict[str, Any]]:
        """The last `limit` lines of this level and above, the oldest first, rotated files included.

        A line that is no JSON object, as after a full disk, is given with the kind "unreadable".
        Raises `StorageError` for a file that can't be read.
        """
        wanted = LEVELS[LEVELS.index(level) :]
        newest_first = (
            one
            for path in (self.path, *self._older())
            for line in reversed(_lines(path))
            if (one := _parsed(line))["level"] in wanted
        )
        return list(islice(newest_first, max(limit, 0)))[::-1]

    def _append(self, line: bytes) -> None:
        ensure_folder(self.path.parent)
        with contextlib.suppress(OSError, StorageError):  # it grows beyond the bound rather than lose a line
            if self.path.stat().st_size + len(line) > self._max_bytes:
                self._rotate(len(line))
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)

    def _rotate(self, more: int) -> None:
        """Move each file one number up. A process that still has the old one open writes its line there; none is lost."""
        with locked(self.path, timeout=1.0):
            if not self.path.exists() or self.path.stat().st_size + more <= self._max_bytes:
                return  # another process was first
            names = [self.path, *self._older()]
            for older, newer in list(zip(names[1:], names[:-1], strict=True))[::-1]:
                if newer.exists():
                    newer.replace(older)

    def _older(self) -> list[Path]:
        return [self.path.with_name(f"{self.path.name}.{number}") for number in range(1, KEPT + 1)]


def concerns_memory(record: logging.LogRecord) -> bool:
    """Whether a record is ours, a provider's of a package `hermes_NAME` or of a folder, or of anybody who warns.

    What else an SDK does, such as each request, is no news of memory.
    """
    return record.levelno >= logging.WARNING or record.name.startswith(_OURS)


class LogHandler(logging.Handler):
    """Writes records of Python's `logging` into a log file; those that are also events come as events."""

    def __init__(self, file: LogFile) -> None:
        super().__init__(logging.INFO)
        self.addFilter(concerns_memory)
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a faulty one is written as it stands."""
        if hasattr(record, "event"):
            return
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = str(record.msg)
        level: Level = "info"
        if record.levelno >= logging.WARNING:
            level = "error" if record.levelno >= logging.ERROR else "warning"
        self._file.write(level, "log", {"logger": record.name, "message": message}, record.created)


@contextlib.contextmanager
def logging_to(file: LogFile) -> Iterator[None]:
    """Send what this program logs to the file, and nothing of it to standard error, while the block runs.

    Of ours and of providers that is what they did, of others what they warn of.
    """
    root = logging.getLogger()
    handler = LogHandler(file)
    before = root.level
    root.addHandler(handler)
    root.setLevel(min(before, logging.INFO))
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:LONGEST_TEXT]}..."
    return value


def _lines(path: Path) -> list[str]:
    try:
        if not path.is_file():
            return []  # of a link to /dev/stdout there is nothing to read, though one would wait for it
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise StorageError(
            f"can't read {str(path)!r}: {exc.strerror or exc}", "check its owner and mode"
        ) from exc
    return [line.decode(errors="replace") for line in data.split(b"\n") if line.strip()]


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        found = None
    if isinstance(found, dict) and all(name in found for name in _OWN_FIELDS):
        return found
    return {"at": "", "level": "error", "kind": "unreadable", "pid": 0, "message": line[:LONGEST_TEXT]}

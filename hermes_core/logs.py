"""Log of a home: `logs/hermes.log`, one JSON object a line, private, rotated, with secrets redacted.

`LogFile.on_event` writes events of the manager. `logging_to` writes records of Python's `logging`; only a program may
use it, since it takes the root logger. A line has `at`, `level`, `kind`, `pid` and the data of the event.
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
from hermes_core.safety.redact import redact, redact_value
from hermes_core.safety.terminal import json_line
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder, locked

Level = Literal["info", "warning", "error"]

LEVELS: tuple[Level, ...] = ("info", "warning", "error")

MAX_BYTES = 2 * 1024 * 1024
MAX_OLD_FILES = 3
"""Older files beside the current one: hermes.log.1 is the youngest of them."""

MAX_TEXT_CHARS = 2000

_ERRORS = frozenset({"provider.failed", "outbox.dead_letter", "outbox.refused"})
_GOOD = frozenset({"provider.ready", "provider.hooks"})
_OURS = ("hermes_", "_hermes_")
_OWN_FIELDS = ("at", "level", "kind", "pid")


class LogFile:
    """Log of one home. Any number of processes may write to it. A line that can't be written is dropped.

    Args:
        max_bytes: Size at which the file is rotated.
        clock: Returns seconds since the epoch.
    """

    def __init__(
        self, home: HermesHome, *, max_bytes: int = MAX_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = home.log_file
        self._max_bytes = max_bytes
        self._clock = clock

    def write(self, level: Level, kind: str, data: Mapping[str, Any], at: float | None = None) -> bool:
        """Append one line with its secrets redacted. Returns False if it was not written."""
        moment = datetime.fromtimestamp(self._clock() if at is None else at, UTC)
        clean = redact_value({str(key): value for key, value in data.items()})
        assert isinstance(clean, dict)
        clean = {
            key: _shortened(value) for key, value in clean.items()
        }  # after redaction, since half a key is not recognized
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
        """Return the last `limit` lines of this level and above, oldest first, also from rotated files.

        A line that is no JSON object, as after a full disk, gets the kind "unreadable".
        Raises `StorageError` if a file can't be read.
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
        # If the file can't be rotated, it grows beyond the limit: a larger file is better than a lost line.
        with contextlib.suppress(OSError, StorageError):
            if self.path.stat().st_size + len(line) > self._max_bytes:
                self._rotate(len(line))
        # One write to a file opened with O_APPEND: lines of several processes never mix, and no lock is needed.
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)

    def _rotate(self, more: int) -> None:
        """Move each file one number up. A process that has the old file open still writes its line there."""
        # Two processes may find the file full at once: the lock and the second look at its size let one of them rotate.
        with locked(self.path, timeout=1.0):
            if not self.path.exists() or self.path.stat().st_size + more <= self._max_bytes:
                return
            names = [self.path, *self._older()]
            for older, newer in list(zip(names[1:], names[:-1], strict=True))[::-1]:
                if newer.exists():
                    newer.replace(older)

    def _older(self) -> list[Path]:
        return [self.path.with_name(f"{self.path.name}.{number}") for number in range(1, MAX_OLD_FILES + 1)]


def concerns_memory(record: logging.LogRecord) -> bool:
    """Return True for records of this package and of providers, and for warnings of any library.

    An SDK logs every request at INFO, which says nothing about memory.
    """
    return record.levelno >= logging.WARNING or record.name.startswith(_OURS)


class LogHandler(logging.Handler):
    """Handler that writes records of Python's `logging` to a log file, except those that are written as events."""

    def __init__(self, file: LogFile) -> None:
        super().__init__(logging.INFO)
        self.addFilter(concerns_memory)
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; if its arguments don't fit its message, the message alone."""
        if hasattr(record, "event"):  # `LogFile.on_event` writes it, with its data
            return
        message = _message(record)
        level: Level = "info"
        if record.levelno >= logging.WARNING:
            level = "error" if record.levelno >= logging.ERROR else "warning"
        data = {"logger": record.name, "message": message}
        if record.exc_info and record.exc_info[0] is not None:
            # The end of it says where and what.
            data["traceback"] = logging.Formatter().formatException(record.exc_info)[-MAX_TEXT_CHARS:]
        self._file.write(level, "log", data, record.created)


@contextlib.contextmanager
def logging_to(file: LogFile) -> Iterator[None]:
    """Send the records of this program to the file instead of standard error while the block runs.

    Log INFO and above for this package and providers, WARNING and above for other libraries.
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


class RedactingFilter(logging.Filter):
    """Filter that redacts the message and the traceback of records, for log handlers of a host.

    `hermes.log` and `--debug` are redacted without it. A provider's SDK may quote a key or an address with a password in
    an error, and a host's own handlers get that error as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place and let it pass."""
        record.msg, record.args = redact(_message(record)), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return True


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return str(record.msg)


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return f"{value[:MAX_TEXT_CHARS]}..."
    return value


def _lines(path: Path) -> list[str]:
    try:
        if not path.is_file():  # reading a link to /dev/stdout would wait for ever
            return []
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
    return {"at": "", "level": "error", "kind": "unreadable", "pid": 0, "message": line[:MAX_TEXT_CHARS]}

"""A finding: one line of a report with its subject, its state and a remedy."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from hermes_core.errors import HermesError
from hermes_core.kit.causes import foreign_remedy
from hermes_core.safety.redact import redact

FindingState = Literal["ok", "note", "warning", "failed", "fixed"]


class Finding(Struct, frozen=True):
    """The state of `what`.

    ok       it works
    note     good to know, nothing to do
    warning  it works and should not stay as it is
    failed   something that is configured does not work
    fixed    it was repaired; `detail` says what was done

    `repair` does what is safe without a question and returns what it did. Detail and remedy are redacted, because the
    self-test of a provider may name an address with a key in it.
    """

    what: str
    state: FindingState
    detail: str = ""
    remedy: str = ""
    repair: Callable[[], str] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "detail", redact(self.detail))
        force_setattr(self, "remedy", redact(self.remedy))

    @property
    def failed(self) -> bool:
        """True if something that is configured does not work."""
        return self.state == "failed"

    @property
    def safe_to_fix(self) -> bool:
        """True if `repaired` can repair it."""
        return self.repair is not None

    def repaired(self) -> Finding:
        """Repair it, and return the finding after the repair, or a failed one with the reason."""
        assert self.repair is not None
        try:
            return replace(self, state="fixed", detail=self.repair(), remedy="", repair=None)
        except EXPECTED_ERRORS as exc:
            return failed(self.what, f"{self.detail}; the repair failed: {_message(exc)}", _remedy(exc))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "what": self.what,
            "state": self.state,
            "detail": self.detail,
            "remedy": self.remedy,
            "safe_to_fix": self.safe_to_fix,
        }


_DISK_ERRORS = frozenset({errno.EACCES, errno.EIO, errno.ENOSPC, errno.EPERM, errno.EROFS})

# Errors of files and databases are findings. Any other exception is a bug and must show its traceback.
EXPECTED_ERRORS = (HermesError, OSError, sqlite3.Error)


def failed(what: str, detail: str, remedy: str = "") -> Finding:
    """Return a finding about something that is configured and does not work."""
    return Finding(what, "failed", detail, remedy)


def backend_remedy(name: str) -> str:
    """Return the remedy for a provider that has all its settings and does not work."""
    backend = (
        f"start the backend if it is down, or correct key and address: hermes-memory memory setup {name}"
    )
    return f"{backend}; a fault in its code: hermes-memory --debug doctor shows where"


def without_remedy(reason: str, remedy: str) -> str:
    """Return a reason without the remedy at its end, which a finding has apart."""
    return reason.removesuffix(f"; {remedy}") if remedy else reason


def run_check(what: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check. If it raises an expected error, the error is a finding too."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except EXPECTED_ERRORS as exc:
        found.append(error_finding(what, exc))
    return found


Subject = TypeVar("Subject")


class HealthCheck(NamedTuple, Generic[Subject]):
    """A row of an examination.

    Attributes:
        what: The subject of the finding about an error of the query.
        query: Return the findings about a subject, a home or an open memory.
    """

    what: str
    query: Callable[[Subject], Iterable[Finding]]


def run_checks(checks: Iterable[HealthCheck[Subject]], subject: Subject) -> list[Finding]:
    """Return the findings of all checks, in order. A check that fails hides no other."""
    return [finding for row in checks for finding in run_check(row.what, partial(row.query, subject))]


def error_finding(what: str, exc: BaseException) -> Finding:
    """Return an error as a finding, with its own remedy."""
    return failed(what, _message(exc), _remedy(exc))


def _message(exc: BaseException) -> str:
    if isinstance(exc, HermesError):
        return exc.message
    if isinstance(exc, OSError):
        return f"{exc.strerror or exc}: {exc.filename}" if exc.filename else str(exc)
    return f"{type(exc).__name__}: {exc}"


def _remedy(exc: BaseException) -> str:
    if isinstance(exc, HermesError):
        return exc.remedy
    # Errors of HTTP clients are of this class too; those of the disk name a file.
    on_disk = isinstance(exc, OSError) and (exc.filename or exc.errno in _DISK_ERRORS)
    return "check the disk, the owner of the home and its mode" if on_disk else foreign_remedy(exc)

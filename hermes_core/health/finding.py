"""One line of a report: what was looked at, how it is, and the way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hermes_core.errors import HermesError
from hermes_core.safety.redact import redact

State = Literal["ok", "note", "warning", "failed", "fixed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """How `what` is.

    ok       it works
    note     good to know, nothing to do
    warning  it works and should not stay as it is
    failed   something that is configured does not work
    fixed    it was repaired; `detail` says what was done

    `repair` does what is safe to do without asking and returns what it did. Secrets are taken out of what is told: a
    provider's own test likes to name the address that it asked.
    """

    what: str
    state: State
    detail: str = ""
    remedy: str = ""
    repair: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", redact(self.detail))
        object.__setattr__(self, "remedy", redact(self.remedy))

    @property
    def failed(self) -> bool:
        """Whether something that is configured does not work."""
        return self.state == "failed"

    @property
    def safe_to_fix(self) -> bool:
        """Whether `repaired` can do something."""
        return self.repair is not None

    def repaired(self) -> Finding:
        """This finding after its repair, or failed with the reason."""
        assert self.repair is not None
        try:
            return replace(self, state="fixed", detail=self.repair(), remedy="", repair=None)
        except TROUBLE as exc:
            return failed(self.what, f"{self.detail}; the repair failed: {_message(exc)}", _remedy(exc))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "what": self.what,
            "state": self.state,
            "detail": self.detail,
            "remedy": self.remedy,
            "safe_to_fix": self.safe_to_fix,
        }


TROUBLE = (HermesError, OSError, sqlite3.Error)
"""What can go wrong with files and databases without being a bug of ours."""


def failed(what: str, detail: str, remedy: str = "") -> Finding:
    """Something that is configured and does not work."""
    return Finding(what, "failed", detail, remedy)


def backend_cure(name: str) -> str:
    """What to do about a provider that was told all it asks for and does not work."""
    backend = (
        f"start the backend if it is down, or correct key and address: hermes-memory memory setup {name}"
    )
    return f"{backend}; a fault in its code: hermes-memory --debug doctor shows where"


def guarded(what: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What `look` finds; when it can't be looked at, that is the finding."""
    found: list[Finding] = []
    try:
        found.extend(look())
    except TROUBLE as exc:
        found.append(told(what, exc))
    return found


def told(what: str, exc: BaseException) -> Finding:
    """An error as a finding, with its own way out."""
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
    return "check the disk, the owner of the home and its mode" if isinstance(exc, OSError) else ""

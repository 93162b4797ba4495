"""What a file holds that does not come in, and why."""

from __future__ import annotations

from dataclasses import dataclass

from hermes_core.errors import ImportFailed


@dataclass(slots=True)
class Skip:
    """One reason, how often it was met, and where first. A `fault` is something that should have come in."""

    reason: str
    count: int
    first: str
    fault: bool


class Skipped:
    """Collects what is left out. A `strict` one raises the first fault instead."""

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._by_reason: dict[str, Skip] = {}

    def note(self, reason: str, where: str) -> None:
        """Count something that is no part of the conversation, or was taken back."""
        self._count(reason, where, fault=False)

    def fault(self, exc: ImportFailed) -> None:
        """Count something that can't be read; its message begins with the place."""
        if self._strict:
            raise exc
        where, colon, reason = exc.message.partition(": ")
        if not colon:
            where, reason = "", exc.message
        self._count(reason, where, fault=True)

    def all(self) -> list[Skip]:
        """Every reason, those that are faults first."""
        return sorted(self._by_reason.values(), key=lambda skip: (not skip.fault, -skip.count))

    def _count(self, reason: str, where: str, *, fault: bool) -> None:
        found = self._by_reason.setdefault(reason, Skip(reason, 0, where, fault))
        found.count += 1

"""What the system prompt shows of curated memory: frozen text, without what the scan or the limits keep out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import ENTRY_DELIMITER, entry_fault, measure, render_block
from hermes_core.curated.edits import handle

PROMPT_STORES = 2
"""A file that a hand edit overfilled is shown up to this many times its limit; the rest stays on disk, and is named."""


class Threat(Protocol):
    """What the scan finds in a text: the pattern's id and what it means."""

    @property
    def id(self) -> str: ...

    @property
    def message(self) -> str: ...


Scan = Callable[[str], Threat | None]


@dataclass(frozen=True, slots=True)
class Flagged:
    """An entry that stays on disk and out of prompts and results. `handle` names it in `old_text`."""

    target: MemoryTarget
    entry: str
    id: str
    reason: str

    @property
    def handle(self) -> str:
        """The name by which `remove` and `replace` find it."""
        return handle(self.entry)

    @property
    def problem(self) -> str:
        """What a person is told of it."""
        return (
            f"an entry of {self.target} is kept from the model: {self.reason}; "
            f"hermes-memory memory remove --target {self.target} {self.handle}"
        )

    @property
    def withheld(self) -> str:
        """What a model reads in its place."""
        return f"[withheld {self.handle}: {self.id}. Use this handle as old_text to remove or replace it.]"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The blocks of the system prompt by target, as they were at one moment; targets without a block are absent."""

    blocks: Mapping[MemoryTarget, str] = field(default_factory=dict)

    def render(self) -> str:
        """All blocks, a blank line between them."""
        return "\n\n".join(self.blocks.values())


def flag(target: MemoryTarget, entry: str, limit: int, scan: Scan) -> Flagged | None:
    """Why an entry may not be shown to a model, if so. Every entry is scanned, whatever it begins with."""
    if len(entry) > limit:
        return Flagged(
            target, entry, "too_large", f"its {len(entry):,} characters are more than the store's {limit:,}"
        )
    if fault := entry_fault(entry):
        return Flagged(target, entry, "forged_frame", fault)
    threat = scan(entry)
    return Flagged(target, entry, threat.id, threat.message) if threat else None


def block(target: MemoryTarget, entries: Sequence[str], limit: int, scan: Scan) -> str:
    """One block of the system prompt, "" when there is nothing to show."""
    shown: list[str] = []
    room = limit * PROMPT_STORES
    for index, entry in enumerate(entries):
        if flag(target, entry, limit, scan):
            continue
        room -= len(entry) + len(ENTRY_DELIMITER)
        if room < 0:
            left = len(entries) - index
            shown.append(
                f"[{left} more entries are on disk and not shown: the store is over its limit. Remove some.]"
            )
            break
        shown.append(entry)
    return render_block(target, shown, used=measure(entries), limit=limit)

"""Which entries of notes are added, which are known, for which there is no room, and which the scan refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import entry_fault, measure
from hermes_core.importers.openclaw.markdown import parse_notes
from hermes_core.importers.openclaw.values import (
    AddEntries,
    Here,
    Item,
    KeepOverflow,
    SourceFile,
    Status,
    Step,
    entry_key,
)
from hermes_core.safety.scan import Scan

ArchiveStep = Callable[[str, bytes], tuple[Step, ...]]


class NotesPlanner:
    """Fills the stores, file after file: each plan stands on what those before it added."""

    def __init__(self, here: Here, scan: Scan, archive: ArchiveStep) -> None:
        self._here = here
        self._scan = scan
        self._archive = archive
        self._entries = {target: list(store.entries) for target, store in here.stores.items()}
        self._keys = {
            entry_key(target, entry) for target, store in here.stores.items() for entry in store.entries
        }
        self._kept = set(here.overflow)

    def plan(self, kind: str, target: MemoryTarget, file: SourceFile, name: str = "") -> Item:
        """The item of one file of notes; its original is archived too, for what no entry can hold."""
        text = file.text
        file_name = f"memories/{'MEMORY' if target == 'memory' else 'USER'}.md"
        if text is None:
            return Item(kind, file.path, file_name, "error", file.fault or "it is no UTF-8 text")
        notes = parse_notes(text, name or file.path.rsplit("/", 1)[-1])
        counts: Counter[str] = Counter(found=len(notes.entries), left_out=notes.left_out)
        added: list[str] = []
        kept: list[str] = []
        refused: list[str] = []
        for entry in notes.entries:
            outcome, reason = self._judge(target, entry)
            counts[outcome] += 1
            refused += [reason] if outcome == "refused" else []
            added += [entry] if outcome == "added" else []
            kept += [entry] if outcome == "overflow" and self._is_new_overflow(target, entry) else []
        steps: tuple[Step, ...] = (AddEntries(target, tuple(added)),) if added else ()
        steps += (KeepOverflow(target, tuple(kept)),) if kept else ()
        steps += self._archive(file.path, file.data)
        status: Status = "migrated" if added else "archived" if steps else "skipped"
        details = {
            name: counts[name] for name in ("found", "added", "known", "overflow", "refused", "left_out")
        }
        reason = self._reason(target, counts, refused)
        return Item(kind, file.path, file_name, status, reason, details, steps=steps)

    def _judge(self, target: MemoryTarget, entry: str) -> tuple[str, str]:
        """What becomes of one entry: added, known, overflow or refused, and why it is refused."""
        key, store = entry_key(target, entry), self._here.stores[target]
        if key in self._keys:
            return "known", ""
        if fault := entry_fault(entry):
            return "refused", fault
        if threat := self._scan(entry):
            return "refused", threat.message
        if store.closed or measure([*self._entries[target], entry]) > store.limit:
            return "overflow", ""
        self._entries[target].append(entry)
        self._keys.add(key)
        return "added", ""

    def _is_new_overflow(self, target: MemoryTarget, entry: str) -> bool:
        key = entry_key(target, entry)
        fresh = key not in self._kept
        self._kept.add(key)
        return fresh

    def _reason(self, target: MemoryTarget, counts: Counter[str], refused: list[str]) -> str:
        parts = []
        if counts["refused"]:
            parts.append(f"{counts['refused']} refused: {refused[0]}")
        if counts["overflow"]:
            why = self._here.stores[target].closed or "the store has no room for them"
            parts.append(f"{counts['overflow']} kept in the overflow file: {why}")
        if counts["found"] and counts["known"] == counts["found"]:
            parts.append("all of it is here already")
        return "; ".join(parts)

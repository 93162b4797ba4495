"""A plan, done: step by step, each item for itself, and then the report."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from hermes_core.config import Credentials
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import join_entries
from hermes_core.curated.edits import Operation
from hermes_core.curated.store import TARGETS
from hermes_core.errors import HermesError, StorageError
from hermes_core.importers.openclaw.backup import back_up_home
from hermes_core.importers.openclaw.here import OVERFLOW, migrations
from hermes_core.importers.openclaw.report import Report, write_report
from hermes_core.importers.openclaw.values import (
    AddEntries,
    Archive,
    Item,
    KeepOverflow,
    Plan,
    SetSecret,
    Step,
    WriteFile,
    WriteFolder,
)
from hermes_core.memory import Memory
from hermes_core.skills.store import PARTIAL
from hermes_core.storage.files import ensure_folder, locked, write_atomic

log = logging.getLogger(__name__)

BACKUP = "home.zip"


def apply_plan(plan: Plan, memory: Memory, now: datetime, *, backup: bool = True) -> Report:
    """Do what the plan says and write the report. An item that fails is an error in the report; the others go on.

    Raises `StorageError` before anything is changed when the migration's folder or the backup can't be written.
    """
    with locked(migrations(memory.home) / "run"):
        folder = _new_folder(migrations(memory.home), now)
        if backup:
            back_up_home(memory.home, folder / BACKUP)
        _keep_overflow(plan, folder / "overflow")
        memory.manager.initialize_all(memory.local_session)
        migration = _Migration(memory, folder)
        items = tuple(migration.run(item) for item in plan.items)
        report = Report(replace(plan, items=items), folder, now, executed=True)
        write_report(report)
    return report


def _new_folder(root: Path, now: datetime) -> Path:
    """A folder of this migration's own."""
    ensure_folder(root)
    stamp = now.strftime("%Y%m%dT%H%M%S")
    for number in range(1, 1000):
        folder = root / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as exc:
            raise StorageError(f"can't make folder {str(folder)!r}: {exc.strerror or exc}") from exc
        return folder
    raise StorageError(f"can't make a new folder in {str(root)!r}", "remove old migrations")


def _keep_overflow(plan: Plan, folder: Path) -> None:
    """Write the entries without room, a file for each store."""
    for target in TARGETS:
        steps = [step for item in plan.items for step in item.steps if isinstance(step, KeepOverflow)]
        entries = [entry for step in steps if step.target == target for entry in step.entries]
        if entries:
            write_atomic(folder / OVERFLOW.format(target=target), f"{join_entries(entries)}\n".encode())


class _Migration:
    def __init__(self, memory: Memory, folder: Path) -> None:
        self._memory = memory
        self._folder = folder

    def run(self, item: Item) -> Item:
        """Do one item; what it became."""
        details = dict(item.details)
        try:
            for step in item.steps:
                refused = self._step(step)
                if refused:
                    details["added"] -= len(refused)
                    details["refused"] += len(refused)
                    item = replace(item, reason="; ".join(filter(None, (item.reason, refused[0]))))
        except (HermesError, OSError) as exc:
            log.warning("%s of %s failed: %s", item.kind, item.source, exc)
            return replace(item, status="error", reason=str(exc), details=details)
        if item.status == "migrated" and details.get("added") == 0:
            return replace(item, status="error", details=details)
        return replace(item, details=details)

    def _step(self, step: Step) -> list[str]:
        """Do one step; the reasons for entries that were refused after all."""
        match step:
            case AddEntries(target, entries):
                return self._add(target, entries)
            case KeepOverflow():
                pass  # all of it was written before the first item
            case WriteFile(path, data, mode):
                self._back_up(path)
                write_atomic(path, data, mode)
            case WriteFolder(path, files):
                self._write_folder(path, files)
            case Archive(path, data):
                write_atomic(self._folder / "archive" / path, data)
            case SetSecret(name, value):
                Credentials(self._memory.home).set(name, value)
        return []

    def _add(self, target: MemoryTarget, entries: Sequence[str]) -> list[str]:
        """All entries as one change, which one undo takes back; one by one where an observer refuses some."""
        store, session = self._memory.curated, self._memory.local_session
        store.start_turn(session)
        done = store.apply_batch(target, [Operation("add", entry) for entry in entries], session=session)
        if done.get("success"):
            return []
        refused = []
        for entry in entries:
            store.start_turn(session)
            result = store.add(target, entry, session=session)
            if not result.get("success"):
                refused.append(str(result.get("error")))
        return refused

    def _back_up(self, path: Path) -> None:
        """A copy of what is about to be replaced."""
        target = self._folder / "backups" / path.name
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True)
        elif path.exists():
            ensure_folder(target.parent)
            shutil.copy2(path, target)

    def _write_folder(self, path: Path, files: Sequence[tuple[str, bytes, int]]) -> None:
        """The folder appears whole: it is written beside its place and then renamed."""
        self._back_up(path)
        partial = path.with_name(f".{path.name}{PARTIAL}")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            for name, data, mode in files:
                write_atomic(partial / name, data, mode)
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)
            partial.rename(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

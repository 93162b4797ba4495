"""The home that a migration writes to: what it holds already, its backup, and the execution of a plan in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import sqlite3
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath

from hermes_core import HermesHome, Memory
from hermes_core.config import Credentials
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.answers import Result
from hermes_core.curated.document import join_entries, split_entries
from hermes_core.curated.edits import Operation
from hermes_core.curated.store import TARGETS
from hermes_core.errors import HermesError, ImportFailed, StorageError
from hermes_core.kit import Database, redact, storable, write_atomic
from hermes_core.safety.origin import Reading
from hermes_core.storage.files import PRIVATE_FILE, delete_path, ensure_folder, locked
from hermes_memory_openclaw.migration import (
    AddEntries,
    ArchiveFile,
    MigrationItem,
    MigrationOptions,
    MigrationPlan,
    MigrationReport,
    MigrationStep,
    SetSecret,
    TargetHome,
    TargetStore,
    WriteFile,
    WriteFolder,
    WriteOverflow,
    digest,
    entry_key,
    folder_digest,
    write_report,
)
from hermes_memory_openclaw.plan import SKILL_CATEGORY
from hermes_memory_openclaw.source import ALLOWED_SECRETS, MAX_FILE

PARTIAL = ".partial"
"""Suffix of a folder that is still being written, which no list of skills has."""

SOURCE = "openclaw"
"""The source of the sessions that hold entries without room."""

OVERFLOW = "{target}_overflow.txt"
"""The name of the file for entries without room."""


def migrations_folder(home: HermesHome) -> Path:
    """Return the folder that holds a folder for each migration from OpenClaw."""
    return home.path / "migration" / "openclaw"


def read_home(memory: Memory, options: MigrationOptions) -> TargetHome:
    """Read the home of `memory`."""
    home = memory.home
    documents = [home.soul_md]
    if options.workspace_target:
        documents.append(options.workspace_target / "AGENTS.md")
    earlier = sorted(migrations_folder(home).glob("*"))
    credentials = Credentials(home, environ={})
    return TargetHome(
        home=home.path,
        stores={target: _store(memory, target) for target in TARGETS},
        files={path: digest(data) for path in documents if (data := _read(path)) is not None},
        skills=dict(_skills(home.skills / SKILL_CATEGORY)),
        secrets={name: value for name in ALLOWED_SECRETS if (value := credentials.get(name))},
        overflow=frozenset(_overflow(earlier)),
        archived=frozenset(_archived(earlier)),
        check_skill=partial(_check_skill, memory),
    )


def _check_skill(memory: Memory, name: str, text: str) -> None:
    """Raise `HermesError` if the text can't be a skill, or no extension has skills."""
    store = memory.internals.parts.stores.get("skills")
    if store is None:
        raise ImportFailed("no active extension has skills: see hermes-memory extensions", "install it")
    store.check_text(name, text)


def _store(memory: Memory, target: MemoryTarget) -> TargetStore:
    """Read one store of notes. It is closed if a write would not end in the file."""
    if target not in memory.curated.enabled_targets:
        return TargetStore((), 0, f"the {target} store is switched off")
    if conflict := memory.curated.read().problems.get(target):
        return TargetStore((), 0, conflict.message)
    entries, limit = memory.curated.entries(target), memory.curated.read().usage(target).limit
    if memory.manager.suppresses_local_writes(target):
        return TargetStore(
            entries, limit, f"the memory provider {memory.internals.selection.name!r} keeps this store"
        )
    return TargetStore(entries, limit)


def _read(path: Path) -> bytes | None:
    """Return the bytes of a document, None if there is none. A huge one is cut: only its digest counts."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return b""


def _skills(folder: Path) -> Iterator[tuple[str, str]]:
    for place in sorted(folder.glob("*")):
        files = {storable(path.relative_to(place).as_posix()): _read(path) or b"" for path in _files(place)}
        yield place.name, folder_digest(files)


def _overflow(runs: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for run in runs:
        for target in TARGETS:
            kept = run / "overflow" / OVERFLOW.format(target=target)
            if kept.is_file():
                for entry in split_entries(kept.read_text(encoding="utf-8", errors="replace")):
                    yield entry_key(target, entry)


def _archived(runs: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for run in runs:
        root = run / "archive"
        for path in _files(root):
            yield path.relative_to(root).as_posix(), digest(_read(path) or b"")


def _files(folder: Path) -> list[Path]:
    """Return the regular files below `folder`, without links."""
    return sorted(path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode))


log = logging.getLogger(__name__)

BACKUP = "home.zip"


def apply_plan(
    plan: MigrationPlan, memory: Memory, now: datetime, *, backup: bool = True, confirmed: bool = False
) -> MigrationReport:
    """Execute the plan and write the report. An item that fails is an error in the report; the others go on.

    Args:
        backup: Zip the home first.
        confirmed: True if a person saw the entries of `new_entries` and agreed. Otherwise they wait for
            `hermes-memory review`.

    Raises `StorageError` before anything is changed if the migration's folder or the backup can't be written.
    """
    # Two migrations at once would take each other's results for files of the person.
    with locked(migrations_folder(memory.home) / "run"):
        folder = _new_folder(migrations_folder(memory.home), now)
        if backup:
            back_up_home(memory.home, folder / BACKUP)
        # Before the first item, so that a kill loses no entry. The next run takes what the files hold for imported, so
        # the sessions come first.
        _store_overflow(plan, memory, now)
        _keep_overflow(plan, folder / "overflow")
        memory.manager.initialize_all(memory.local_session)
        migration = _Migration(memory, folder, confirmed=confirmed)
        items = tuple(migration.run(item) for item in plan.items)
        report = MigrationReport(replace(plan, items=items), folder, now, executed=True)
        write_report(report)
    return report


def new_entries(plan: MigrationPlan) -> list[tuple[MemoryTarget, str]]:
    """Return the entries that the plan adds to the notes, each with its target."""
    steps = [step for item in plan.items for step in item.steps if isinstance(step, AddEntries)]
    return [(step.target, entry) for step in steps for entry in step.entries]


def _new_folder(root: Path, now: datetime) -> Path:
    """Create a folder for this migration."""
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


def _keep_overflow(plan: MigrationPlan, folder: Path) -> None:
    """Write the entries without room, one file for each store."""
    for target in TARGETS:
        steps = [step for item in plan.items for step in item.steps if isinstance(step, WriteOverflow)]
        entries = [entry for step in steps if step.target == target for entry in step.entries]
        if entries:
            write_atomic(folder / OVERFLOW.format(target=target), f"{join_entries(entries)}\n".encode())


def _store_overflow(plan: MigrationPlan, memory: Memory, now: datetime) -> None:
    """Store the entries without room as sessions, one for each file of notes, so that a search finds them."""
    user = memory.local_session.owner
    for item in plan.items:
        steps = [step for step in item.steps if isinstance(step, WriteOverflow)]
        entries = [entry for step in steps for entry in step.entries]
        if not entries:
            continue
        at = _day_of(item.source, now)
        session_id = f"{SOURCE}-{_digest(item.source)}"
        memory.sessions.create_session(
            session_id, SOURCE, user=user, title=f"OpenClaw: {item.source}", started_at=at.timestamp()
        )
        messages = [
            {"role": "user", "content": entry, "speaker": f"OpenClaw, {item.source}", "origin": "import"}
            for entry in entries
        ]
        turn_id = f"{session_id}-{_digest(entries)}"
        memory.sessions.append_turn(session_id, messages, turn_id, at=at.timestamp())
        memory.sessions.end_session(session_id, "import")


def _day_of(path: str, now: datetime) -> datetime:
    """Return the day that the name of a file of notes says, else `now`."""
    try:
        return datetime.fromisoformat(f"{PurePosixPath(path).name[:10]}T12:00:00+00:00")
    except ValueError:
        return now


class _Migration:
    """The execution of items into one memory."""

    def __init__(self, memory: Memory, folder: Path, *, confirmed: bool) -> None:
        self._memory = memory
        self._folder = folder
        self._confirmed = confirmed

    def run(self, item: MigrationItem) -> MigrationItem:
        """Execute an item and return it with its outcome."""
        details = dict(item.details)
        try:
            for step in item.steps:
                refused = self._step(step)
                if refused:
                    details["added"] -= len(refused)
                    details["refused"] += len(refused)
                    item = replace(item, reason="; ".join(filter(None, (item.reason, refused[0]))))
        # One item that fails must not stop the others.
        except (HermesError, OSError) as exc:
            log.warning("%s of %s failed: %s", item.kind, item.source, exc)
            return replace(item, status="error", reason=redact(str(exc)), details=details)
        if item.status == "migrated" and details.get("added") == 0:
            return replace(item, status="error", details=details)
        return replace(item, details=details)

    def _step(self, step: MigrationStep) -> list[str]:
        """Execute a step and return the reasons for entries that were refused."""
        match step:
            case AddEntries(target, entries):
                return self._add(target, entries)
            case WriteOverflow():
                pass  # stored and written before the first item
            case WriteFile(path, data, mode):
                self._back_up(path)
                write_atomic(path, data, mode)
            case WriteFolder(path, files):
                self._write_folder(path, files)
            case ArchiveFile(path, data):
                write_atomic(self._folder / "archive" / path, data)
            case SetSecret(name, value):
                Credentials(self._memory.home).set(name, value)
        return []

    def _add(self, target: MemoryTarget, entries: Sequence[str]) -> list[str]:
        """Add the entries as one change, which one undo reverts. If an observer refuses some, add them one by one."""
        refused = [] if self._write(target, entries).get("success") else self._add_each(target, entries)
        if self._confirmed:
            # By their texts: what an observer changed on the way is another text, which waits for a person. So does an
            # entry with a secret, which was not shown as it is.
            stored = self._memory.curated.entries(target)
            shown = [entry for entry in entries if entry in stored and redact(entry) == entry]
            self._memory.curated.confirm(shown)
        return refused

    def _add_each(self, target: MemoryTarget, entries: Sequence[str]) -> list[str]:
        results = [self._write(target, [entry]) for entry in entries]
        return [str(result.get("error")) for result in results if not result.get("success")]

    def _write(self, target: MemoryTarget, entries: Sequence[str]) -> Result:
        store, session = self._memory.curated, self._memory.local_session
        store.start_turn(session)
        operations = [Operation("add", entry) for entry in entries]
        return store.write(target, operations, session, batch=len(entries) > 1, reading=Reading("import"))

    def _back_up(self, path: Path) -> None:
        """Copy a file or folder that is about to be replaced."""
        target = self._folder / "backups" / path.name
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True)
        elif path.exists():
            ensure_folder(target.parent)
            shutil.copy2(path, target)

    def _write_folder(self, path: Path, files: Sequence[tuple[str, bytes, int]]) -> None:
        """Write a folder beside its place and rename it, so that it appears whole."""
        self._back_up(path)
        partial = path.with_name(f".{path.name}{PARTIAL}")
        with contextlib.suppress(OSError):
            delete_path(partial)
        try:
            for name, data, mode in files:
                write_atomic(partial / name, data, mode)
            if os.path.lexists(path):
                delete_path(path)
            partial.rename(path)
        finally:
            with contextlib.suppress(OSError):
                delete_path(partial)


# -------------------------------------------------------------------------------------------------------------- backup

_EXCLUDED = frozenset({"migration", "logs", "profiles"})
_TRANSIENT = (".lock", "-wal", "-shm", "-journal", ".tmp", ".partial")
_SQLITE_MAGIC = b"SQLite format 3\0"


def back_up_home(home: HermesHome, target: Path) -> None:
    """Write a private zip of the home, without other profiles, logs and earlier migrations.

    Raises `StorageError`, or `DatabaseCorrupt` for a database that can't be copied. Then there is no zip.
    """
    ensure_folder(target.parent)
    try:
        handle = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE_FILE
        )
        with (
            os.fdopen(handle, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
            tempfile.TemporaryDirectory(dir=target.parent) as scratch,
        ):
            for path in _home_files(home.path):
                name = os.fsencode(path.relative_to(home.path).as_posix())
                archive.write(_copy(path, Path(scratch)), name.decode(errors="backslashreplace"))
    except (OSError, sqlite3.Error, StorageError) as exc:
        target.unlink(missing_ok=True)
        remedy = "see to it, or go on without a backup: --no-backup"
        raise StorageError(f"the backup of {str(home.path)!r} failed: {exc}", remedy) from exc


def _home_files(root: Path) -> Iterator[Path]:
    """Yield the regular files of the home, without links."""
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name not in _EXCLUDED]
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink() and not name.endswith(_TRANSIENT):
                yield path


def _copy(path: Path, scratch: Path) -> Path:
    """Return the file itself, for a database a consistent copy, which other processes may write to meanwhile."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
            return path
    copy = scratch / "database"
    database = Database(path, read_only=True)
    try:
        database.backup(copy)
    finally:
        database.close()
    return copy


def _digest(value: object) -> str:
    """Return sixteen hex digits that identify a JSON value, the same on every machine."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]

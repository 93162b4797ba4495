"""Reading of the target home: its notes, files, skills and secrets, and the results of earlier migrations."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hermes_core.config import Credentials
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import split_entries
from hermes_core.curated.store import TARGETS
from hermes_core.home import HermesHome
from hermes_core.importers.openclaw.migration import (
    MigrationOptions,
    TargetHome,
    TargetStore,
    digest,
    entry_key,
    folder_digest,
)
from hermes_core.importers.openclaw.plan import SKILL_CATEGORY
from hermes_core.importers.openclaw.source import ALLOWED_SECRETS, MAX_FILE
from hermes_core.kit.text import storable
from hermes_core.memory import Memory

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
    )


def _store(memory: Memory, target: MemoryTarget) -> TargetStore:
    """Read one store of notes. It is closed if a write would not end in the file."""
    if target not in memory.curated.enabled_targets:
        return TargetStore((), 0, f"the {target} store is switched off")
    if conflict := memory.curated.problems().get(target):
        return TargetStore((), 0, conflict.message)
    entries, limit = memory.curated.entries(target), memory.curated.usage(target).limit
    if memory.manager.suppresses_local_writes(target):
        return TargetStore(entries, limit, f"the memory provider {memory.selected!r} keeps this store")
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

"""What is read from an OpenClaw folder, what is at home already, and what a migration would do: values, no files."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hermes_core.contract.values import MemoryTarget

Status = Literal["migrated", "archived", "skipped", "conflict", "error"]
STATUSES: tuple[Status, ...] = ("migrated", "archived", "skipped", "conflict", "error")
Preset = Literal["full", "user-data"]
SkillConflict = Literal["skip", "overwrite", "rename"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the source. `path` is what people are shown; `fault` says why `data` was not read."""

    path: str
    data: bytes = b""
    fault: str = ""
    executable: bool = False

    @property
    def text(self) -> str | None:
        """The text, without a byte order mark; None for bytes that are no UTF-8 text."""
        if self.fault or b"\0" in self.data:
            return None
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files of one agent: `documents` at its top by name, `daily` notes by name, `skills` by folder and path."""

    name: str
    documents: Mapping[str, SourceFile] = field(default_factory=dict)
    daily: Mapping[str, SourceFile] = field(default_factory=dict)
    skills: Mapping[str, Mapping[str, SourceFile]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Left:
    """Something of the source that stays there, and why."""

    path: str
    reason: str
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """All that was read. `workspaces` in the order in which they are asked; `secrets` by name, with where they stood;
    `conversations` are counted by folder and not read."""

    root: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    config_name: str = "openclaw.json"
    workspaces: tuple[Workspace, ...] = ()
    shared_skills: Mapping[str, Mapping[str, SourceFile]] = field(default_factory=dict)
    cron: tuple[SourceFile, ...] = ()
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    conversations: Mapping[str, int] = field(default_factory=dict)
    left: tuple[Left, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """One curated store as it is: its entries, its limit in characters, and why nothing may be added ("" if it may)."""

    entries: tuple[str, ...]
    limit: int
    closed: str = ""


@dataclass(frozen=True, slots=True)
class Here:
    """What the home holds already. `files` and `skills` are digests by path and by folder name.

    `overflow` are the keys of entries that earlier migrations kept beside the store, `archived` (path, digest) of what
    they archived.
    """

    home: Path
    stores: Mapping[MemoryTarget, Store]
    files: Mapping[Path, str] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    overflow: frozenset[tuple[str, str]] = frozenset()
    archived: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Options:
    """What the person asked for."""

    preset: Preset = "full"
    overwrite: bool = False
    migrate_secrets: bool = False
    workspace_target: Path | None = None
    skill_conflict: SkillConflict = "skip"


@dataclass(frozen=True, slots=True)
class AddEntries:
    """Add these entries to a curated store."""

    target: MemoryTarget
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeepOverflow:
    """Keep entries for which the store has no room in a file beside it."""

    target: MemoryTarget
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file of the home or of the workspace target; what is there is backed up first."""

    path: Path
    data: bytes
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class WriteFolder:
    """Put a whole folder in place; one that is there is backed up first. `files` are (path, data, mode)."""

    path: Path
    files: tuple[tuple[str, bytes, int], ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """Keep a copy under `archive/` of the migration's folder."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SetSecret:
    """Write one secret to `.env`."""

    name: str
    value: str = field(repr=False)


Step = AddEntries | KeepOverflow | WriteFile | WriteFolder | Archive | SetSecret


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of the source and what becomes of it; without `steps` nothing is written for it."""

    kind: str
    source: str
    destination: str = ""
    status: Status = "skipped"
    reason: str = ""
    details: Mapping[str, int] = field(default_factory=dict)
    sensitive: bool = False
    steps: tuple[Step, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that would happen, in order."""

    source: Path
    home: Path
    options: Options
    items: tuple[Item, ...]
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether applying it would write anything."""
        return any(item.steps for item in self.items)

    @property
    def summary(self) -> dict[str, int]:
        """How many items have each status."""
        counts = Counter(item.status for item in self.items)
        return {status: counts[status] for status in STATUSES}


def digest(data: bytes) -> str:
    """A name for these bytes."""
    return hashlib.sha256(data).hexdigest()


def folder_digest(files: Mapping[str, bytes]) -> str:
    """A name for a folder with these files."""
    return digest("\n".join(f"{digest(files[path])} {path}" for path in sorted(files)).encode())


def entry_key(target: str, entry: str) -> tuple[str, str]:
    """What makes two entries the same: their words, whatever the case and white space."""
    return target, " ".join(entry.casefold().split())

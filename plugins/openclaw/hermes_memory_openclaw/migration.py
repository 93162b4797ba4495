"""Values of a migration: the source, the target home, the plan and the report. Only `write_report` touches files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from hermes_core.contract.values import MemoryTarget
from hermes_core.kit import redact, write_atomic
from hermes_core.safety.redact import redact_value

Status = Literal["migrated", "archived", "skipped", "conflict", "error"]
STATUSES: tuple[Status, ...] = ("migrated", "archived", "skipped", "conflict", "error")
Preset = Literal["full", "user-data"]
SkillConflict = Literal["skip", "overwrite", "rename"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the source. `path` is shown to people; `fault` says why `data` was not read."""

    path: str
    data: bytes = b""
    fault: str = ""
    executable: bool = False

    @property
    def text(self) -> str | None:
        """The text without a byte order mark, None for bytes that are no UTF-8 text."""
        if self.fault or b"\0" in self.data:
            return None
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files of one agent: `documents` at the top by name, `daily` notes by path below `memory`, `skills` by folder and
    path.
    """

    name: str
    documents: Mapping[str, SourceFile] = field(default_factory=dict)
    daily: Mapping[str, SourceFile] = field(default_factory=dict)
    skills: Mapping[str, Mapping[str, SourceFile]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemainingFile:
    """A file or folder that stays in the source, and the reason."""

    path: str
    reason: str
    sensitive: bool = False


@dataclass(frozen=True, slots=True)
class SourceTree:
    """Everything that was read from the source.

    Attributes:
        workspaces: In order of precedence.
        secrets: Value and place of each secret, by name.
        conversations: The number of conversations in each folder. They are not read.
    """

    root: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    config_name: str = "openclaw.json"
    workspaces: tuple[Workspace, ...] = ()
    shared_skills: Mapping[str, Mapping[str, SourceFile]] = field(default_factory=dict)
    cron: tuple[SourceFile, ...] = ()
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    conversations: Mapping[str, int] = field(default_factory=dict)
    left: tuple[RemainingFile, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetStore:
    """A store of notes: its entries, its limit in characters, and why nothing may be added ("" if it may)."""

    entries: tuple[str, ...]
    limit: int
    closed: str = ""


@dataclass(frozen=True, slots=True)
class TargetHome:
    """The content of the target home before the migration.

    Attributes:
        files: Digests by path.
        skills: Digests by folder name.
        overflow: Keys of the entries in overflow files of earlier migrations.
        archived: Path and digest of the files that earlier migrations archived.
        check_skill: Raises `HermesError` if a text can't be a skill; it gets the name and the text.
    """

    home: Path
    stores: Mapping[MemoryTarget, TargetStore]
    files: Mapping[Path, str] = field(default_factory=dict)
    skills: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    overflow: frozenset[tuple[str, str]] = frozenset()
    archived: frozenset[tuple[str, str]] = frozenset()
    check_skill: Callable[[str, str], object] = field(
        default=lambda _name, _text: None, repr=False, compare=False
    )


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """The options of the person."""

    preset: Preset = "full"
    overwrite: bool = False
    migrate_secrets: bool = False
    workspace_target: Path | None = None
    skill_conflict: SkillConflict = "skip"


@dataclass(frozen=True, slots=True)
class AddEntries:
    """Add entries to a store of notes."""

    target: MemoryTarget
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteOverflow:
    """Write entries for which the store has no room into an overflow file."""

    target: MemoryTarget
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a file of the home or of the workspace target. An existing file is backed up first."""

    path: Path
    data: bytes
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class WriteFolder:
    """Put a whole folder in place. An existing folder is backed up first. `files` are (path, data, mode)."""

    path: Path
    files: tuple[tuple[str, bytes, int], ...]


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """Write a copy under `archive/` of the migration's folder."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SetSecret:
    """Write one secret to `.env`."""

    name: str
    value: str = field(repr=False)


MigrationStep = AddEntries | WriteOverflow | WriteFile | WriteFolder | ArchiveFile | SetSecret


@dataclass(frozen=True, slots=True)
class MigrationItem:
    """A part of the source and its outcome. Without `steps` nothing is written for it."""

    kind: str
    source: str
    destination: str = ""
    status: Status = "skipped"
    reason: str = ""
    details: Mapping[str, int] = field(default_factory=dict)
    sensitive: bool = False
    steps: tuple[MigrationStep, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """All items of a migration, in order."""

    source: Path
    home: Path
    options: MigrationOptions
    items: tuple[MigrationItem, ...]
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """True if applying the plan would write anything."""
        return any(item.steps for item in self.items)

    @property
    def summary(self) -> dict[str, int]:
        """The number of items of each status."""
        counts = Counter(item.status for item in self.items)
        return {status: counts[status] for status in STATUSES}


def digest(data: bytes) -> str:
    """Return the SHA-256 digest of the bytes."""
    return hashlib.sha256(data).hexdigest()


def folder_digest(files: Mapping[str, bytes]) -> str:
    """Return a digest of a folder with these files."""
    return digest("\n".join(f"{digest(files[path])} {path}" for path in sorted(files)).encode())


def entry_key(target: str, entry: str) -> tuple[str, str]:
    """Return the key of an entry. Entries that differ only in case and white space have the same key."""
    return target, " ".join(entry.casefold().split())


# ------------------------------------------------------------------------------------------------------------- report

HEADINGS = {
    "migrated": "Migrated",
    "conflict": "Conflicts",
    "error": "Errors",
    "archived": "Archived",
    "skipped": "Skipped",
}


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """A plan with its time, and the folder of the migration if it was executed."""

    plan: MigrationPlan
    folder: Path | None
    at: datetime
    executed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data, redacted."""
        plan, options = self.plan, self.plan.options
        data = {
            "timestamp": self.at.isoformat(timespec="seconds"),
            "mode": "execute" if self.executed else "preview",
            "source_root": str(plan.source),
            "target_root": str(plan.home),
            "workspace_target": str(options.workspace_target) if options.workspace_target else None,
            "output_dir": str(self.folder) if self.folder else None,
            "preset": options.preset,
            "overwrite": options.overwrite,
            "migrate_secrets": options.migrate_secrets,
            "skill_conflict_mode": options.skill_conflict,
            "summary": plan.summary,
            "entries": self.entries(),
            "items": [_item_data(item) for item in plan.items],
            "warnings": list(plan.warnings),
            "next_steps": self.next_steps(),
        }
        redacted: dict[str, Any] = dict(redact_value(data))  # type: ignore[arg-type]  # a dict stays one
        return redacted

    def entries(self) -> dict[str, int]:
        """Return the number of entries of all notes by their outcome."""
        counts: dict[str, int] = {}
        for item in self.plan.items:
            for name, count in item.details.items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def next_steps(self) -> list[str]:
        """Return what the person may want to do next, a sentence each."""
        done = {item.status for item in self.plan.items}
        steps = (
            ["Imported memory stands in the prompt of new sessions: begin one."] if "migrated" in done else []
        )
        if self.entries().get("overflow"):
            steps.append(
                "Entries without room are found by session_search as sessions of openclaw, and are in overflow/: for "
                "the prompt, shorten memory or raise memory.memory_char_limit."
            )
        if "conflict" in done:
            steps.append("Run it again with --overwrite or --skill-conflict where OpenClaw's should win.")
        if "archived" in done:
            steps.append("Look through archive/ for what you want to take over by hand.")
        if any(item.kind == "conversations" for item in self.plan.items):
            steps.append(
                "Past conversations stay in OpenClaw's folder, also after cleanup: keep it if you want them."
            )
        return [*steps, "When all is well: hermes-memory claw cleanup moves OpenClaw's folder aside."]

    def to_markdown(self) -> str:
        """Return the report for people, redacted."""
        plan = self.plan
        lines = [
            "# Migration from OpenClaw",
            "",
            f"From `{plan.source}` to `{plan.home}`, {self.at.isoformat(timespec='seconds')}.",
            "",
            ", ".join(f"{plan.summary[status]} {status}" for status in STATUSES),
        ]
        for status, heading in HEADINGS.items():
            items = [item for item in plan.items if item.status == status]
            lines += ["", f"## {heading}", "", *map(_line, items)] if items else []
        lines += (
            ["", "## Warnings", "", *(f"- {one_line(text)}" for text in plan.warnings)]
            if plan.warnings
            else []
        )
        lines += ["", "## Next", "", *(f"- {step}" for step in self.next_steps())]
        return redact("\n".join(lines)) + "\n"


def write_report(report: MigrationReport) -> None:
    """Write `report.json` and `summary.md` into the migration's folder."""
    if report.folder is None:
        return
    data = json.dumps(report.to_dict(), ensure_ascii=False, indent=2)
    write_atomic(report.folder / "report.json", data.encode("utf-8", "replace"))
    write_atomic(report.folder / "summary.md", report.to_markdown().encode("utf-8", "replace"))


def counts_of(item: MigrationItem) -> str:
    """Return the counts of an item's entries as people read them, "" if it has none.

    >>> counts_of(MigrationItem("memory", "a", details={"found": 2, "added": 2, "known": 0}))
    '2 found, 2 added'
    """
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in item.details.items() if count)


def _item_data(item: MigrationItem) -> dict[str, Any]:
    data = asdict(item)
    del data["steps"]
    return data


def _line(item: MigrationItem) -> str:
    parts = [f"- {item.kind}: `{one_line(item.source)}`"]
    parts += [f"to `{one_line(item.destination)}`"] if item.destination else []
    parts += [f"({counts})"] if (counts := counts_of(item)) else []
    return " ".join(parts) + (f": {one_line(item.reason)}" if item.reason else "")


def one_line(text: str) -> str:
    """Return a text of the source as one line without markup. A file name may hold anything."""
    return " ".join(text.replace("`", "'").split())

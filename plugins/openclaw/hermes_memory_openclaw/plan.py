"""The plan of a migration: a function of the source, the target home and the options."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from hermes_core.errors import HermesError
from hermes_core.safety.redact import redact_value
from hermes_core.safety.scan import Scan, first_threat
from hermes_memory_openclaw.migration import (
    ArchiveFile,
    MigrationItem,
    MigrationOptions,
    MigrationPlan,
    MigrationStep,
    SetSecret,
    SourceFile,
    SourceTree,
    Status,
    TargetHome,
    Workspace,
    WriteFile,
    WriteFolder,
    digest,
    folder_digest,
)
from hermes_memory_openclaw.notes import NotesPlanner

SKILL_CATEGORY = "openclaw-imports"

CONFIG_KINDS = {
    "agent": "agent-config",
    "agents": "agent-config",
    "approvals": "approvals-config",
    "bindings": "agent-config",
    "browser": "browser-config",
    "channels": "messaging-settings",
    "cron": "cron-jobs",
    "gateway": "gateway-config",
    "hooks": "hooks-config",
    "logging": "logging-config",
    "mcp": "mcp-servers",
    "memory": "memory-backend",
    "messages": "messaging-settings",
    "models": "model-config",
    "plugins": "plugins-config",
    "session": "session-config",
    "skills": "skills-config",
    "talk": "tts-config",
    "tools": "tools-config",
    "ui": "ui-identity",
}
"""The subject of each block of OpenClaw's settings. None of them becomes a setting here."""

_DOCUMENTS = frozenset({"memory.md", "user.md", "soul.md", "agents.md"})
_SECRET_KEY = re.compile(
    r"(?i)token|secret|passw|passphrase|api_?key|credential|authorization|cookie|private_?key"
)
_SECRET_MAPS = frozenset({"env", "headers", "vars"})
_FOR_REVIEW = "kept for you to look at"


def make_plan(
    tree: SourceTree, here: TargetHome, options: MigrationOptions, scan: Scan = first_threat
) -> MigrationPlan:
    """Return the plan for this source. Nothing is read or written; equal arguments give an equal plan."""
    items = tuple(_Planner(tree, here, options, scan).items())
    return MigrationPlan(tree.root, here.home, options, items, (*tree.warnings, *_other_agents(tree)))


class _Planner:
    def __init__(self, tree: SourceTree, here: TargetHome, options: MigrationOptions, scan: Scan) -> None:
        self._tree = tree
        self._here = here
        self._options = options
        self._scan = scan
        self._taken = dict(here.skills)
        # Folders of skills of this source: a second skill of the source must not replace the first.
        self._settled: set[str] = set()
        self._archive_paths: dict[str, str] = {}

    def items(self) -> Iterator[MigrationItem]:
        """Yield every item, notes first."""
        notes = NotesPlanner(self._here, self._scan, self._archive)
        if memory := self._document("memory.md"):
            yield notes.plan("memory", "memory", memory)
        # Room is scarce, and the newest notes are worth the most.
        daily = self._daily()
        for path in sorted(daily, key=lambda path: (PurePosixPath(path).name, path), reverse=True):
            yield notes.plan("daily-memory", "memory", daily[path], PurePosixPath(path).name)
        if user := self._document("user.md"):
            yield notes.plan("user-profile", "user", user)
        if soul := self._document("soul.md"):
            yield self._file("soul", soul, self._here.home / "SOUL.md")
        if agents := self._document("agents.md"):
            yield self._instructions(agents)
        yield from self._skills()
        yield from self._rest_of_documents()
        yield from self._config()
        yield from (self._archived("cron-jobs", file) for file in self._tree.cron)
        yield from self._secrets()
        for folder, count in self._tree.conversations.items():
            stay = f"{count} past conversation{'' if count == 1 else 's'} stay there: they are not migrated, and nothing deletes them"
            yield MigrationItem("conversations", folder, reason=stay)
        for left in self._tree.left:
            yield MigrationItem("archive", left.path, reason=left.reason, sensitive=left.sensitive)

    # ------------------------------------------------------------- what is read

    def _document(self, name: str) -> SourceFile | None:
        """Return the document of the first workspace that has it."""
        return next((file for space in self._tree.workspaces if (file := _named(space, name))), None)

    def _daily(self) -> Mapping[str, SourceFile]:
        """Return the daily notes of the first workspace that has any."""
        return next((space.daily for space in self._tree.workspaces if space.daily), {})

    def _rest_of_documents(self) -> Iterator[MigrationItem]:
        """Yield the other documents of the first workspace, and all documents of other agents."""
        used = {file.path for name in _DOCUMENTS if (file := self._document(name))}
        used |= {file.path for file in self._daily().values()}
        for space in self._tree.workspaces:
            for file in (*space.documents.values(), *space.daily.values()):
                if file.path not in used:
                    yield self._archived("archive", file)

    # ------------------------------------------------------------------ files

    def _archive(self, path: str, data: bytes) -> tuple[MigrationStep, ...]:
        """Return the step that archives a copy, () if an earlier migration did."""
        inner = self._archive_path(path, data)
        return () if (inner, digest(data)) in self._here.archived else (ArchiveFile(inner, data),)

    def _archive_path(self, path: str, data: bytes) -> str:
        """Return the path of these bytes in the archive: their own path without parts that lead out of it.

        If two paths become one, also on a disk that ignores case, the digest distinguishes the later one.
        """
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        inner, own = PurePosixPath(re.sub(r"[\\:]", "_", "/".join(parts))), digest(data)
        if self._archive_paths.setdefault(str(inner).casefold(), own) != own:
            inner = inner.with_name(f"{inner.stem}-{own[:16]}{inner.suffix}")
        return str(inner)

    def _shown(self, target: Path) -> str:
        """Return a destination as people see it, relative to the home if it is inside."""
        home = self._here.home
        return target.relative_to(home).as_posix() if target.is_relative_to(home) else str(target)

    def _archived(self, kind: str, file: SourceFile, reason: str = _FOR_REVIEW) -> MigrationItem:
        if file.fault:
            return MigrationItem(kind, file.path, reason=file.fault)
        steps = self._archive(file.path, file.data)
        status: Status = "archived" if steps else "skipped"
        where = f"archive/{self._archive_path(file.path, file.data)}"
        return MigrationItem(
            kind, file.path, where, status, reason if steps else f"{reason}; archived before", steps=steps
        )

    def _file(self, kind: str, file: SourceFile, target: Path, mode: int = 0o600) -> MigrationItem:
        """Return the item of a document that is copied as a whole."""
        text = file.text
        if text is None:
            return MigrationItem(
                kind, file.path, self._shown(target), "error", file.fault or "it is no UTF-8 text"
            )
        # Scanned before it is compared: a text in a prompt is trusted from then on.
        if threat := self._scan(text):
            return self._archived(kind, file, threat.message)
        present = self._here.files.get(target)
        if present == digest(file.data):
            return MigrationItem(kind, file.path, self._shown(target), reason="it is here already")
        if present is not None and not self._options.overwrite:
            steps = self._archive(file.path, file.data)
            reason = "another one is here: --overwrite replaces it"
            return MigrationItem(kind, file.path, self._shown(target), "conflict", reason, steps=steps)
        return MigrationItem(
            kind, file.path, self._shown(target), "migrated", steps=(WriteFile(target, file.data, mode),)
        )

    def _instructions(self, file: SourceFile) -> MigrationItem:
        if self._options.workspace_target is None:
            return self._archived("workspace-agents", file, "--workspace-target says where to put it")
        return self._file("workspace-agents", file, self._options.workspace_target / "AGENTS.md", 0o644)

    # ----------------------------------------------------------------- skills

    def _skills(self) -> Iterator[MigrationItem]:
        seen: set[str] = set()
        for space in self._tree.workspaces:
            for name, files in space.skills.items():
                seen.add(name)
                yield self._skill("skills", f"{space.name}/skills/{name}", name, files)
        for name, files in self._tree.shared_skills.items():
            yield self._skill("shared-skills", f"skills/{name}", name, files)

    def _skill(self, kind: str, source: str, name: str, files: Mapping[str, SourceFile]) -> MigrationItem:
        data = {path: file.data for path, file in files.items()}
        if fault := self._skill_fault(name, files):
            readable = [file for file in files.values() if not file.fault]
            steps = tuple(step for file in readable for step in self._archive(file.path, file.data))
            return MigrationItem(kind, source, "", "archived" if steps else "skipped", fault, steps=steps)
        folder, reason, data = self._place(_slug(name), data)
        target = self._here.home / "skills" / SKILL_CATEGORY / folder
        if reason == "conflict":
            steps = tuple(step for file in files.values() for step in self._archive(file.path, file.data))
            text = "another skill of this name is here: --skill-conflict says what to do"
            if folder in self._settled:
                text = "another skill of the source has this name: --skill-conflict rename keeps both"
            return MigrationItem(kind, source, self._shown(target), "conflict", text, steps=steps)
        self._taken[folder] = folder_digest(data)
        self._settled.add(folder)
        if reason == "same":
            return MigrationItem(kind, source, self._shown(target), reason="it is here already")
        written = tuple(
            (path, data[path], 0o700 if file.executable else 0o600) for path, file in sorted(files.items())
        )
        return MigrationItem(
            kind, source, self._shown(target), "migrated", reason, steps=(WriteFolder(target, written),)
        )

    def _skill_fault(self, name: str, files: Mapping[str, SourceFile]) -> str:
        """Return why the skill must not be installed, "" if it may. A model reads or runs every file of a skill."""
        for path, file in files.items():
            text = file.text
            if text is None:
                return f"{path} can't be scanned: {file.fault or 'it is no text'}"
            if threat := self._scan(text):
                return f"{path}: {threat.message}"
        text = files["SKILL.md"].text if "SKILL.md" in files else None
        if text is None:
            return "it has no SKILL.md of its own"
        try:
            self._here.check_skill(name, text)
        except HermesError as exc:
            return f"it can't be used as it is: {exc.message}"
        return ""

    def _place(self, name: str, data: dict[str, bytes]) -> tuple[str, str, dict[str, bytes]]:
        """Return the folder for a skill, then "same", "conflict" or a remark, then its files for that folder."""
        own = folder_digest(data)
        present = self._taken.get(name)
        if present in (None, own):
            return name, "" if present is None else "same", data
        if self._options.skill_conflict == "overwrite":
            return name, "conflict" if name in self._settled else "", data
        if self._options.skill_conflict == "skip":
            return name, "conflict", data
        for number in itertools.count(2):
            other = f"{name}-{number}"
            renamed = data | {"SKILL.md": _renamed_skill(data["SKILL.md"], other)}
            if other not in self._taken:
                return other, f"renamed, since {name!r} is taken", renamed
            if self._taken[other] in (own, folder_digest(renamed)):
                break
        return other, "same", renamed

    # ------------------------------------------------------ settings and secrets

    def _config(self) -> Iterator[MigrationItem]:
        for key in sorted(map(str, self._tree.config)):
            kind = CONFIG_KINDS.get(key, "archive")
            value = _without_secrets(key, self._tree.config[key])
            text = json.dumps({key: redact_value(value)}, ensure_ascii=False, indent=2)
            file = SourceFile(f"config/{_slug(key)}.json", text.encode("utf-8", "replace"))
            item = self._archived(kind, file, "a setting of OpenClaw, kept without its secrets")
            yield replace(item, source=f"{self._tree.config_name}: {key}")

    def _secrets(self) -> Iterator[MigrationItem]:
        wanted = self._options.migrate_secrets and self._options.preset == "full"
        for name, (value, place) in sorted(self._tree.secrets.items()):
            kind = "secret-settings" if name.startswith("TELEGRAM") else "provider-keys"
            present = self._here.secrets.get(name)
            item = MigrationItem(kind, place, f".env: {name}", sensitive=True)
            if present == value:
                yield replace(item, reason="it is here already")
            elif not wanted:
                yield replace(item, reason="secrets are left out unless --migrate-secrets is given")
            elif present is not None and not self._options.overwrite:
                yield replace(
                    item, status="conflict", reason="another value is here: --overwrite replaces it"
                )
            else:
                yield replace(item, status="migrated", steps=(SetSecret(name, value),))


def _other_agents(tree: SourceTree) -> list[str]:
    """Return a sentence for each further agent: its memory stays separate."""
    rest = [space.name for space in tree.workspaces[1:] if _named(space, "memory.md") or space.daily]
    return [
        f"{name!r} is another agent's memory and goes to the archive: migrate it into a profile of its own "
        f"with hermes-memory --profile NAME claw migrate --source {tree.root / name}"
        for name in rest
        if _named(tree.workspaces[0], "memory.md") or tree.workspaces[0].daily
    ]


def _named(space: Workspace, name: str) -> SourceFile | None:
    """Return the document of this name in any case, the usual spelling first."""
    found = sorted(key for key in space.documents if key.lower() == name)
    return space.documents[found[0]] if found else None


def _renamed_skill(skill: bytes, name: str) -> bytes:
    """Return SKILL.md with another name: of two skills with one name, one would be hidden."""
    return re.sub(rb"(?m)^name[ \t]*:[^\r\n]*", b"name: " + name.encode(), skill, count=1)


def _slug(name: str) -> str:
    """Return a name that is safe as a folder.

    >>> _slug("My Skill!")
    'my-skill'
    """
    plain = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")
    return plain[:60] or "unnamed"


def _without_secrets(key: str, value: Any) -> Any:
    """Return a copy of a setting in which everything that is named like a secret has no value."""
    if isinstance(value, dict):
        hidden = key in _SECRET_MAPS
        return {
            str(name): "[redacted]"
            if hidden and isinstance(inner, str)
            else _without_secrets(str(name), inner)
            for name, inner in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_secrets(key, inner) for inner in value]
    return "[redacted]" if isinstance(value, str) and value and _SECRET_KEY.search(key) else value

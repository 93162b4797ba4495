"""What a migration would do: a function of what was read, what is at home, and what the person asked for."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from hermes_core.errors import SkillError
from hermes_core.importers.openclaw.notes import NotesPlanner
from hermes_core.importers.openclaw.values import (
    Archive,
    Here,
    Item,
    Options,
    Plan,
    SetSecret,
    SourceFile,
    Status,
    Step,
    Tree,
    Workspace,
    WriteFile,
    WriteFolder,
    digest,
    folder_digest,
)
from hermes_core.safety.redact import redact_value
from hermes_core.safety.scan import Scan, first_threat
from hermes_core.skills.document import parse as parse_skill

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
"""What a block of OpenClaw's settings is about; none of them becomes a setting here by itself."""

_DOCUMENTS = frozenset({"memory.md", "user.md", "soul.md", "agents.md"})
_SECRET_KEY = re.compile(
    r"(?i)token|secret|passw|passphrase|api_?key|credential|authorization|cookie|private_?key"
)
_SECRET_MAPS = frozenset({"env", "headers", "vars"})
_FOR_REVIEW = "kept for you to look at"


def make_plan(tree: Tree, here: Here, options: Options, scan: Scan = first_threat) -> Plan:
    """The plan for this tree. Nothing is read or written; equal arguments give an equal plan."""
    items = tuple(_Planner(tree, here, options, scan).items())
    return Plan(tree.root, here.home, options, items, (*tree.warnings, *_other_agents(tree)))


class _Planner:
    def __init__(self, tree: Tree, here: Here, options: Options, scan: Scan) -> None:
        self._tree = tree
        self._here = here
        self._options = options
        self._scan = scan
        self._taken = dict(here.skills)
        self._settled: set[str] = (
            set()
        )  # folders that a skill of this source has: no other one may replace it
        self._kept: dict[str, str] = {}

    def items(self) -> Iterator[Item]:
        """Every item, memory first."""
        notes = NotesPlanner(self._here, self._scan, self._archive)
        if memory := self._document("memory.md"):
            yield notes.plan("memory", "memory", memory)
        # Room is scarce and the newest notes are worth the most of it.
        for name in sorted(daily := self._daily(), reverse=True):
            yield notes.plan("daily-memory", "memory", daily[name], name)
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
            yield Item("conversations", folder, reason=stay)
        for left in self._tree.left:
            yield Item("archive", left.path, reason=left.reason, sensitive=left.sensitive)

    # ------------------------------------------------------------- what is read

    def _document(self, name: str) -> SourceFile | None:
        """The document of the first workspace that has it."""
        return next((file for space in self._tree.workspaces if (file := _named(space, name))), None)

    def _daily(self) -> Mapping[str, SourceFile]:
        """The daily notes of the first workspace that has any."""
        return next((space.daily for space in self._tree.workspaces if space.daily), {})

    def _rest_of_documents(self) -> Iterator[Item]:
        """What the first workspace has besides, and everything of other agents."""
        used = {file.path for name in _DOCUMENTS if (file := self._document(name))}
        used |= {file.path for file in self._daily().values()}
        for space in self._tree.workspaces:
            for file in (*space.documents.values(), *space.daily.values()):
                if file.path not in used:
                    yield self._archived("archive", file)

    # ------------------------------------------------------------------ files

    def _archive(self, path: str, data: bytes) -> tuple[Step, ...]:
        """The step that keeps a copy, unless an earlier migration did."""
        inner = self._archive_path(path, data)
        return () if (inner, digest(data)) in self._here.archived else (Archive(inner, data),)

    def _archive_path(self, path: str, data: bytes) -> str:
        """Where these bytes lie in the archive: their path without what could lead out of it.

        Where that makes two names one, or a disk may that knows no case, the digest tells the later apart.
        """
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        inner, own = PurePosixPath(re.sub(r"[\\:]", "_", "/".join(parts))), digest(data)
        if self._kept.setdefault(str(inner).casefold(), own) != own:
            inner = inner.with_name(f"{inner.stem}-{own[:16]}{inner.suffix}")
        return str(inner)

    def _shown(self, target: Path) -> str:
        """A destination as people see it: below the home where it lies there."""
        home = self._here.home
        return target.relative_to(home).as_posix() if target.is_relative_to(home) else str(target)

    def _archived(self, kind: str, file: SourceFile, reason: str = _FOR_REVIEW) -> Item:
        if file.fault:
            return Item(kind, file.path, reason=file.fault)
        steps = self._archive(file.path, file.data)
        status: Status = "archived" if steps else "skipped"
        where = f"archive/{self._archive_path(file.path, file.data)}"
        return Item(
            kind, file.path, where, status, reason if steps else f"{reason}; archived before", steps=steps
        )

    def _file(self, kind: str, file: SourceFile, target: Path, mode: int = 0o600) -> Item:
        """A document that goes into place as a whole."""
        text = file.text
        if text is None:
            return Item(kind, file.path, self._shown(target), "error", file.fault or "it is no UTF-8 text")
        if threat := self._scan(text):
            return self._archived(kind, file, threat.message)
        present = self._here.files.get(target)
        if present == digest(file.data):
            return Item(kind, file.path, self._shown(target), reason="it is here already")
        if present is not None and not self._options.overwrite:
            steps = self._archive(file.path, file.data)
            reason = "another one is here: --overwrite replaces it"
            return Item(kind, file.path, self._shown(target), "conflict", reason, steps=steps)
        return Item(
            kind, file.path, self._shown(target), "migrated", steps=(WriteFile(target, file.data, mode),)
        )

    def _instructions(self, file: SourceFile) -> Item:
        if self._options.workspace_target is None:
            return self._archived("workspace-agents", file, "--workspace-target says where to put it")
        return self._file("workspace-agents", file, self._options.workspace_target / "AGENTS.md", 0o644)

    # ----------------------------------------------------------------- skills

    def _skills(self) -> Iterator[Item]:
        seen: set[str] = set()
        for space in self._tree.workspaces:
            for name, files in space.skills.items():
                seen.add(name)
                yield self._skill("skills", f"{space.name}/skills/{name}", name, files)
        for name, files in self._tree.shared_skills.items():
            yield self._skill("shared-skills", f"skills/{name}", name, files)

    def _skill(self, kind: str, source: str, name: str, files: Mapping[str, SourceFile]) -> Item:
        data = {path: file.data for path, file in files.items()}
        if fault := self._skill_fault(files):
            readable = [file for file in files.values() if not file.fault]
            steps = tuple(step for file in readable for step in self._archive(file.path, file.data))
            return Item(kind, source, "", "archived" if steps else "skipped", fault, steps=steps)
        folder, reason, data = self._place(_slug(name), data)
        target = self._here.home / "skills" / SKILL_CATEGORY / folder
        if reason == "conflict":
            steps = tuple(step for file in files.values() for step in self._archive(file.path, file.data))
            text = "another skill of this name is here: --skill-conflict says what to do"
            if folder in self._settled:
                text = "another skill of the source has this name: --skill-conflict rename keeps both"
            return Item(kind, source, self._shown(target), "conflict", text, steps=steps)
        self._taken[folder] = folder_digest(data)
        self._settled.add(folder)
        if reason == "same":
            return Item(kind, source, self._shown(target), reason="it is here already")
        written = tuple(
            (path, data[path], 0o700 if file.executable else 0o600) for path, file in sorted(files.items())
        )
        return Item(
            kind, source, self._shown(target), "migrated", reason, steps=(WriteFolder(target, written),)
        )

    def _skill_fault(self, files: Mapping[str, SourceFile]) -> str:
        """Why the skill must not be installed; every file of one is read by a model or run for it."""
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
            parse_skill(text)
        except SkillError as exc:
            return f"it can't be used as it is: {exc.message}"
        return ""

    def _place(self, name: str, data: dict[str, bytes]) -> tuple[str, str, dict[str, bytes]]:
        """The folder for a skill, "same", "conflict" or what is said of it, and its files as they are there."""
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
            renamed = data | {"SKILL.md": _named_anew(data["SKILL.md"], other)}
            if other not in self._taken:
                return other, f"renamed, since {name!r} is taken", renamed
            if self._taken[other] in (own, folder_digest(renamed)):
                break
        return other, "same", renamed

    # ------------------------------------------------------ settings and secrets

    def _config(self) -> Iterator[Item]:
        for key in sorted(map(str, self._tree.config)):
            kind = CONFIG_KINDS.get(key, "archive")
            value = _without_secrets(key, self._tree.config[key])
            text = json.dumps({key: redact_value(value)}, ensure_ascii=False, indent=2)
            file = SourceFile(f"config/{_slug(key)}.json", text.encode("utf-8", "replace"))
            item = self._archived(kind, file, "a setting of OpenClaw, kept without its secrets")
            yield replace(item, source=f"{self._tree.config_name}: {key}")

    def _secrets(self) -> Iterator[Item]:
        wanted = self._options.migrate_secrets and self._options.preset == "full"
        for name, (value, place) in sorted(self._tree.secrets.items()):
            kind = "secret-settings" if name.startswith("TELEGRAM") else "provider-keys"
            present = self._here.secrets.get(name)
            item = Item(kind, place, f".env: {name}", sensitive=True)
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


def _other_agents(tree: Tree) -> list[str]:
    """What to do with the memory of further agents, which is another's and stays apart."""
    rest = [space.name for space in tree.workspaces[1:] if _named(space, "memory.md") or space.daily]
    return [
        f"{name!r} is another agent's memory and goes to the archive: migrate it into a profile of its own "
        f"with hermes-memory --profile NAME claw migrate --source {tree.root / name}"
        for name in rest
        if _named(tree.workspaces[0], "memory.md") or tree.workspaces[0].daily
    ]


def _named(space: Workspace, name: str) -> SourceFile | None:
    """The document of this name in any case, the usual spelling first."""
    found = sorted(key for key in space.documents if key.lower() == name)
    return space.documents[found[0]] if found else None


def _named_anew(skill: bytes, name: str) -> bytes:
    """A SKILL.md under another name: by its name it is found, and one of two alike would be hidden."""
    return re.sub(rb"(?m)^name[ \t]*:[^\r\n]*", b"name: " + name.encode(), skill, count=1)


def _slug(name: str) -> str:
    """A name that is safe as a folder.

    >>> _slug("My Skill!")
    'my-skill'
    """
    plain = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")
    return plain[:60] or "unnamed"


def _without_secrets(key: str, value: Any) -> Any:
    """A copy of a setting in which nothing that is named like a secret has a value."""
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

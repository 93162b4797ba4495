"""An OpenClaw folder on disk: found, and read without trusting it. Nothing here writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_core.home import expanded
from hermes_core.importers.openclaw.relaxed_json import parse_relaxed_json
from hermes_core.importers.openclaw.secrets import literal_secrets
from hermes_core.importers.openclaw.values import Left, SourceFile, Tree, Workspace
from hermes_core.kit.text import storable

FOLDERS = (".openclaw", ".clawdbot", ".moltbot")
"""Where OpenClaw keeps its state, and kept it under its earlier names; the first that exists is taken."""

CONFIGS = ("openclaw.json", "clawdbot.json", "moltbot.json")
WORKSPACES = ("workspace", "workspace.default", "workspace-main", "workspace-assistant")
MARKS = frozenset({"memory.md", "user.md", "soul.md", "agents.md", "identity.md"})
"""A folder with one of these is a workspace."""

MAX_FILE = 1024 * 1024
"""Bytes of one file. Notes and skills are a few kilobytes; what is larger is something else."""

MAX_TOTAL = 64 * 1024 * 1024
"""Bytes of all files together."""

MAX_NAMES = 5000
"""Names read of one folder."""

MAX_SKILL_DEPTH = 6

_SENSITIVE = frozenset(
    {"credentials", "identity", "devices", "nodes", "oauth", "exec-approvals.json", ".env"}
)
_STAYS = {
    "agents": "settings and logins of its agents are not memory",
    "memory": "its search index is made from the notes, which are migrated",
    "sessions": "its list of conversations is not memory",
}


def find_source(home: Path) -> Path | None:
    """OpenClaw's folder in the person's home folder, under its name of today or an earlier one."""
    return next((home / name for name in FOLDERS if (home / name).is_dir()), None)


def read_tree(source: Path) -> Tree:
    """Read everything that a plan may need. Raises `ImportFailed` when `source` is no OpenClaw folder."""
    root = expanded(source).resolve()
    if not root.is_dir():
        raise ImportFailed(f"there is no folder {str(source)!r}", "name OpenClaw's folder with --source")
    reader = _Reader(root)
    config_name, config = _config(reader)
    folders = _workspace_folders(reader, config)
    workspaces = tuple(reader.workspace(folder) for folder in folders)
    agents = _named(reader, root / "agents", "agent/auth-profiles.json")
    if not workspaces and not config and not agents:
        raise ImportFailed(f"{str(source)!r} does not look like OpenClaw's", f"it has no {WORKSPACES[0]!r}")
    return Tree(
        root=root,
        config=config,
        config_name=config_name,
        workspaces=workspaces,
        shared_skills={} if root in folders else reader.skills(root / "skills"),
        cron=tuple(_named(reader, root, "cron/jobs.json")) or tuple(_named(reader, root / "cron", "")),
        secrets=literal_secrets(config, config_name, reader.optional(root / ".env"), agents),
        conversations=_conversations(reader),
        left=(*reader.left, *_rest(root, {config_name, "skills", "cron"}, folders)),
        warnings=tuple(reader.warnings),
    )


class _Reader:
    """Reads regular files only, and notes what it did not read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left: list[Left] = []
        self.warnings: list[str] = []
        self._room = MAX_TOTAL

    def shown(self, path: Path) -> str:
        """The path as people see it: below the source where it lies there."""
        inner = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        return _named_apart(inner.as_posix())

    def names(self, folder: Path) -> list[os.DirEntry[str]]:
        """What lies in a folder, by name, links left out; empty when it is none."""
        if folder.is_symlink():
            return []
        try:
            with os.scandir(folder) as found:
                entries = [entry for entry, _ in zip(found, range(MAX_NAMES), strict=False)]
        except OSError:
            return []
        kept = []
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_symlink():
                self.left.append(
                    Left(self.shown(Path(entry.path)), "a symbolic link; links are not followed")
                )
            else:
                kept.append(entry)
        return kept

    def file(self, path: Path) -> SourceFile:
        """One file, or why it was not read. A pipe, a device, a link and a huge file do no harm."""
        shown = self.shown(path)
        if path.resolve() != path:
            return SourceFile(shown, fault="a link leads to it; links are not followed")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            handle = os.open(path, flags | getattr(os, "O_BINARY", 0))
        except OSError as exc:
            return SourceFile(shown, fault=f"it can't be read: {exc.strerror or exc}")
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return SourceFile(shown, fault="it is no regular file")
            try:
                data = file.read(MAX_FILE + 1)
            except OSError as exc:
                return SourceFile(shown, fault=f"it can't be read: {exc.strerror or exc}")
        if len(data) > MAX_FILE:
            return SourceFile(shown, fault=f"it is larger than {MAX_FILE // 1024} KiB")
        self._room -= len(data)
        if self._room < 0:
            return SourceFile(shown, fault=f"the files before it had {MAX_TOTAL // 1024**2} MiB already")
        return SourceFile(shown, data, executable=bool(status.st_mode & stat.S_IXUSR))

    def optional(self, path: Path) -> SourceFile | None:
        """The file, None when there is none."""
        return self.file(path) if path.exists() and not path.is_symlink() else None

    def workspace(self, folder: Path) -> Workspace:
        """The notes, documents and skills of one workspace."""
        documents = {
            entry.name: self.file(Path(entry.path))
            for entry in self.names(folder)
            if entry.name.lower().endswith(".md") and not entry.is_dir()
        }
        daily = {
            entry.name: self.file(Path(entry.path))
            for entry in self.names(folder / "memory")
            if entry.name.lower().endswith(".md") and not entry.is_dir()
        }
        return Workspace(self.shown(folder), documents, daily, self.skills(folder / "skills"))

    def skills(self, folder: Path) -> dict[str, dict[str, SourceFile]]:
        """The folders below `folder` that hold a SKILL.md, each with all its files by path."""
        found = {}
        for entry in self.names(folder):
            if entry.is_dir() and (Path(entry.path) / "SKILL.md").exists():
                top = Path(entry.path)
                files = {
                    _named_apart(path.relative_to(top).as_posix()): self.file(path)
                    for path in self._below(top, 0)
                }
                found[_named_apart(entry.name)] = files
        return found

    def _below(self, folder: Path, depth: int) -> Iterator[Path]:
        for entry in self.names(folder):
            if not entry.is_dir():
                yield Path(entry.path)
            elif depth < MAX_SKILL_DEPTH and entry.name not in (".git", "node_modules", "__pycache__"):
                yield from self._below(Path(entry.path), depth + 1)


def _config(reader: _Reader) -> tuple[str, Mapping[str, Any]]:
    """OpenClaw's settings; one that can't be read is a warning, for memory does not depend on it."""
    for name in CONFIGS:
        file = reader.optional(reader.root / name)
        if file is None:
            continue
        text = file.text
        try:
            if text is None:
                raise ImportFailed(file.fault or "it is no text")
            config = parse_relaxed_json(text)
        except ImportFailed as exc:
            reader.warnings.append(f"{name} is left aside: {exc.message}")
            return name, {}
        return name, config if isinstance(config, dict) else {}
    return CONFIGS[0], {}


def _workspace_folders(reader: _Reader, config: Mapping[str, Any]) -> list[Path]:
    """The workspaces that exist, those of the main agent first, other agents' after them."""
    root = reader.root
    named = [path for text in _configured(config) if (path := _inside(reader, text)) is not None]
    others = [
        Path(entry.path)
        for entry in reader.names(root)
        if entry.name.startswith(("workspace-", "workspace.")) and entry.is_dir()
    ]
    wanted = [*named, *(root / name for name in WORKSPACES), *others]
    found = [folder for folder in dict.fromkeys(wanted) if folder.is_dir() and not folder.is_symlink()]
    if not found and any(entry.name.lower() in MARKS for entry in reader.names(root)):
        return [root]
    return found


def _configured(config: Mapping[str, Any]) -> list[str]:
    """Workspaces that the settings name: the agents' default, then the default agent's own."""
    agents = _mapping(config.get("agents"))
    listed = agents.get("list")
    own = [agent for agent in listed if isinstance(agent, dict)] if isinstance(listed, list) else []
    own.sort(key=lambda agent: agent.get("default") is not True)
    found = [
        _mapping(agents.get("defaults")).get("workspace"),
        _mapping(config.get("agent")).get("workspace"),
    ]
    found += [agent.get("workspace") for agent in own]
    return [text for text in found if isinstance(text, str) and text and "\0" not in text]


def _inside(reader: _Reader, text: str) -> Path | None:
    """A workspace that the settings name. One that lies outside the folder that holds the source is not read."""
    holder = reader.root.parent
    path = holder / text[2:] if text.startswith("~/") else reader.root / text
    try:
        real = path.resolve()
    except (OSError, RuntimeError):
        return None
    if real.is_relative_to(reader.root):
        return real
    # `~/clawd` was the place of the first versions; a settings file must not lead anywhere else.
    if holder != Path(holder.anchor) and real.is_relative_to(holder) and real != holder:
        return real
    reader.warnings.append(
        f"the settings name the workspace {text!r}, outside {str(holder)!r}; it is not read: "
        "give that folder itself as --source"
    )
    return None


def _named(reader: _Reader, folder: Path, inner: str) -> list[SourceFile]:
    """The file `inner` of `folder` itself, or of each folder in it; without `inner` its JSON files."""
    if not inner:
        return [
            reader.file(Path(entry.path)) for entry in reader.names(folder) if entry.name.endswith(".json")
        ]
    places = [Path(entry.path) for entry in reader.names(folder) if entry.is_dir()]
    found = [reader.optional(place / inner) for place in (folder, *places)]
    return [file for file in found if file is not None]


def _conversations(reader: _Reader) -> dict[str, int]:
    """How many past conversations lie in each folder of them: a JSON Lines file each, which is not opened."""
    agents = [Path(entry.path) for entry in reader.names(reader.root / "agents") if entry.is_dir()]
    folders = [reader.root / "sessions", *(agent / "sessions" for agent in agents)]
    counts = {
        reader.shown(folder): sum(entry.name.endswith(".jsonl") for entry in reader.names(folder))
        for folder in folders
    }
    return {folder: count for folder, count in counts.items() if count}


def _rest(root: Path, known: set[str], workspaces: Sequence[Path]) -> Iterator[Left]:
    """Names at the top of the source of which nothing is taken."""
    if root in workspaces:
        return
    taken = {folder.name for folder in workspaces} | known
    with os.scandir(root) as found:
        names = sorted(
            storable(entry.name)
            for entry, _ in zip(found, range(MAX_NAMES), strict=False)
            if not entry.is_symlink()
        )
    for name in names:
        if name in taken:
            continue
        if name in _SENSITIVE:
            yield Left(name, "it holds secrets", sensitive=True)
        else:
            yield Left(name, _STAYS.get(name, "it is no memory"))


def _named_apart(name: str) -> str:
    """A name of the disk as text, in which bytes that are no UTF-8 still tell it from others."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

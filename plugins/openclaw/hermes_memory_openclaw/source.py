"""OpenClaw's folders: reading them, renaming them after a migration, and the programs that still use them.

Nothing in a folder is trusted: links are not followed, sizes are bounded.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from hermes_core.errors import ImportFailed, StorageError
from hermes_core.home import expanded
from hermes_core.kit import storable
from hermes_memory_openclaw.migration import RemainingFile, SourceFile, SourceTree, Workspace

# OpenClaw was renamed twice; the folder of a person who upgraded may have an earlier name.
FOLDERS = (".openclaw", ".clawdbot", ".moltbot")

CONFIGS = ("openclaw.json", "clawdbot.json", "moltbot.json")
WORKSPACES = ("workspace", "workspace.default", "workspace-main", "workspace-assistant")
MARKS = frozenset({"memory.md", "user.md", "soul.md", "agents.md", "identity.md"})
"""Files that make a folder a workspace."""

# Notes and skills have a few kilobytes. A larger file is something else, and a hostile one must not fill
# the memory.
MAX_FILE = 1024 * 1024

# A bound on all files together, since everything is read before the plan is shown.
MAX_TOTAL = 64 * 1024 * 1024

# A folder with more names than this is no workspace, and listing it would take long.
MAX_NAMES = 5000

MAX_DEPTH = 6
MAX_JSON_DEPTH = 200

_SENSITIVE = frozenset(
    {"credentials", "identity", "devices", "nodes", "oauth", "exec-approvals.json", ".env"}
)
_STAYS = {
    "agents": "settings and logins of its agents are not memory",
    "memory": "its search index is made from the notes, which are migrated",
    "sessions": "its list of conversations is not memory",
}


def find_source(home: Path) -> Path | None:
    """Return OpenClaw's folder in the person's home folder, None if there is none."""
    return next((home / name for name in FOLDERS if (home / name).is_dir()), None)


def read_tree(source: Path) -> SourceTree:
    """Read everything that a plan may need. Raises `ImportFailed` if `source` is no OpenClaw folder."""
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
    return SourceTree(
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
    """A reader of regular files only, which lists what it did not read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left: list[RemainingFile] = []
        self.warnings: list[str] = []
        self._room = MAX_TOTAL

    def shown(self, path: Path) -> str:
        """Return the path as people see it, relative to the source if it is inside."""
        inner = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        return _printable_name(inner.as_posix())

    def names(self, folder: Path) -> list[os.DirEntry[str]]:
        """Return the entries of a folder, sorted, without links. A path that is no folder has none."""
        if folder.is_symlink():
            return []
        try:
            # scandir with a bound: a hostile folder may hold millions of names.
            with os.scandir(folder) as found:
                entries = [entry for entry, _ in zip(found, range(MAX_NAMES), strict=False)]
        except OSError:
            return []
        entries_without_links = []
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_symlink():
                self.left.append(
                    RemainingFile(self.shown(Path(entry.path)), "a symbolic link; links are not followed")
                )
            else:
                entries_without_links.append(entry)
        return entries_without_links

    def file(self, path: Path) -> SourceFile:
        """Read a file, or say why not. A pipe, a device, a link and a huge file do no harm."""
        shown = self.shown(path)
        # A link could lead to any file of the person, such as a key.
        if path.resolve() != path:
            return SourceFile(shown, fault="a link leads to it; links are not followed")
        # A pipe must not block the open, and a link that appears meanwhile must not be followed.
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
        """Read a file, None if there is none."""
        return self.file(path) if path.exists() and not path.is_symlink() else None

    def workspace(self, folder: Path) -> Workspace:
        """Read the notes, documents and skills of a workspace."""
        documents = {
            entry.name: self.file(Path(entry.path))
            for entry in self.names(folder)
            if entry.name.lower().endswith(".md") and not entry.is_dir()
        }
        notes = folder / "memory"
        daily = {}
        for path in self._below(notes, 0):
            if path.name.lower().endswith(".md"):
                daily[_printable_name(path.relative_to(notes).as_posix())] = self.file(path)
            else:
                self.left.append(RemainingFile(self.shown(path), "it is no Markdown"))
        for entry in self.names(folder):
            if entry.is_dir() and entry.name not in ("memory", "skills") and folder != self.root:
                self.left.append(RemainingFile(self.shown(Path(entry.path)), "it is no folder of notes"))
        return Workspace(self.shown(folder), documents, daily, self.skills(folder / "skills"))

    def skills(self, folder: Path) -> dict[str, dict[str, SourceFile]]:
        """Read the folders below `folder` that hold a SKILL.md, each with all its files by path."""
        found = {}
        for entry in self.names(folder):
            if entry.is_dir() and (Path(entry.path) / "SKILL.md").exists():
                top = Path(entry.path)
                files = {
                    _printable_name(path.relative_to(top).as_posix()): self.file(path)
                    for path in self._below(top, 0)
                }
                found[_printable_name(entry.name)] = files
        return found

    def _below(self, folder: Path, depth: int) -> Iterator[Path]:
        for entry in self.names(folder):
            if not entry.is_dir():
                yield Path(entry.path)
            elif entry.name in (".git", "node_modules", "__pycache__"):
                continue
            elif depth < MAX_DEPTH:
                yield from self._below(Path(entry.path), depth + 1)
            else:
                self.left.append(RemainingFile(self.shown(Path(entry.path)), "it lies too deep"))


def _config(reader: _Reader) -> tuple[str, Mapping[str, Any]]:
    """Return the name and content of OpenClaw's settings. A damaged file is a warning: the notes don't depend on it."""
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
    """Return the workspaces that exist, those of the main agent before those of other agents."""
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
    """Return the workspaces that the settings name: the agents' default, then the default agent's own."""
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
    """Return the path of a workspace that the settings name, None if it is outside the parent of the source."""
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
    """Read the file `inner` of `folder` and of each folder in it. Without `inner`, read its JSON files."""
    if not inner:
        return [
            reader.file(Path(entry.path)) for entry in reader.names(folder) if entry.name.endswith(".json")
        ]
    places = [Path(entry.path) for entry in reader.names(folder) if entry.is_dir()]
    found = [reader.optional(place / inner) for place in (folder, *places)]
    return [file for file in found if file is not None]


def _conversations(reader: _Reader) -> dict[str, int]:
    """Return the number of past conversations in each folder. The files are not opened."""
    agents = [Path(entry.path) for entry in reader.names(reader.root / "agents") if entry.is_dir()]
    folders = [reader.root / "sessions", *(agent / "sessions" for agent in agents)]
    counts = {
        reader.shown(folder): sum(entry.name.endswith(".jsonl") for entry in reader.names(folder))
        for folder in folders
    }
    return {folder: count for folder, count in counts.items() if count}


def _rest(root: Path, known: set[str], workspaces: Sequence[Path]) -> Iterator[RemainingFile]:
    """Yield the names at the top of the source from which nothing is read."""
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
            yield RemainingFile(name, "it holds secrets", sensitive=True)
        else:
            yield RemainingFile(name, _STAYS.get(name, "it is no memory"))


def _printable_name(name: str) -> str:
    """Return a file name as text. Bytes that are no UTF-8 are escaped, so that two names stay different."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def parse_relaxed_json(text: str) -> Any:
    """Parse JSON5, as people write openclaw.json. Raises `ImportFailed` with the place of the fault.

    >>> parse_relaxed_json("{agents: {list: ['a',],}, /* old */ n: 1} // end")
    {'agents': {'list': ['a']}, 'n': 1}
    """
    import pyjson5

    try:
        return pyjson5.decode(text, maxdepth=MAX_JSON_DEPTH)
    except pyjson5.Json5DecoderException as exc:
        reason = str(exc.args[0]) if exc.args else "it is not JSON"
        near = re.search(r"near (\d+)", reason)
        line = text.count("\n", 0, int(near[1]) if near else 0) + 1
        raise ImportFailed(f"line {line} can't be read as JSON: {reason}", "correct the file") from exc


# ------------------------------------------------------------------------------------------------------------ secrets

# A migration writes no other secrets: a key that is copied without need is one more place to leak from.
ALLOWED_SECRETS = frozenset(
    {
        "TELEGRAM_BOT_TOKEN",
        "OPENROUTER_API_KEY",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "ELEVENLABS_API_KEY",
        "VOICE_TOOLS_OPENAI_KEY",
    }
)

_KEY_OF_SERVICE = {
    "openrouter": "OPENROUTER_API_KEY",
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "elevenlabs": "ELEVENLABS_API_KEY",
}


def literal_secrets(
    config: Mapping[str, Any], config_name: str, env_file: SourceFile | None, profiles: Sequence[SourceFile]
) -> dict[str, tuple[str, str]]:
    """Return the allowed secrets by name, each with its value and place. References to other places are left out."""
    found: dict[str, tuple[str, str]] = {}
    places = (*_of_env(env_file), *_of_config(config, config_name), *_of_profiles(profiles))
    for name, value, place in places:
        if name in ALLOWED_SECRETS and isinstance(value, str) and _is_literal(value):
            found.setdefault(name, (value.strip(), place))
    return found


def _is_literal(value: str) -> bool:
    plain = value.strip()
    return bool(plain) and not plain.startswith("$") and plain.isprintable()


def _of_env(file: SourceFile | None) -> Iterator[tuple[str, Any, str]]:
    text = file.text if file else None
    if file and text:
        for name, value in dotenv_values(stream=io.StringIO(text), interpolate=False).items():
            yield name, value, file.path


def _of_config(config: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any, str]]:
    env = _below(config, "env")
    for name, value in {**env, **_below(env, "vars")}.items():
        yield name, value, place
    yield "TELEGRAM_BOT_TOKEN", _below(config, "channels", "telegram").get("botToken"), place
    for service, settings in _below(config, "models", "providers").items():
        if isinstance(settings, dict):
            yield _KEY_OF_SERVICE.get(service, ""), settings.get("apiKey"), place
    for path in (
        ("messages", "tts", "elevenlabs"),
        ("messages", "tts", "providers", "elevenlabs"),
        ("talk",),
    ):
        yield "ELEVENLABS_API_KEY", _below(config, *path).get("apiKey"), place
    yield "VOICE_TOOLS_OPENAI_KEY", _below(config, "messages", "tts", "openai").get("apiKey"), place


def _of_profiles(files: Sequence[SourceFile]) -> Iterator[tuple[str, Any, str]]:
    """Yield the keys with which OpenClaw's agents log in."""
    for file in files:
        try:
            data = json.loads(file.text or "{}")
        except (ValueError, RecursionError):
            continue
        for profile in _below(data, "profiles").values() if isinstance(data, dict) else ():
            if isinstance(profile, dict) and profile.get("type") == "api_key":
                yield _KEY_OF_SERVICE.get(str(profile.get("provider")), ""), profile.get("key"), file.path


def _below(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the mapping under these keys, {} if there is none."""
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


# ------------------------------------------------------------------------------------------------------------- cleanup

SUFFIX = ".pre-migration"


@dataclass(frozen=True, slots=True)
class FolderRename:
    """A folder and its new path."""

    source: Path
    target: Path


def plan_cleanup(home: Path, source: Path | None, today: date) -> list[FolderRename]:
    """Return the folders to rename: `source` alone, else all of OpenClaw's names in the person's home folder.

    Raises `ImportFailed` for a `source` that is no folder of OpenClaw's.
    """
    # A last link is kept unresolved: the link itself is renamed.
    named = Path(os.path.normpath(expanded(source).absolute())) if source is not None else None
    if named is not None and not _is_openclaw(named):
        raise ImportFailed(f"{str(source)!r} does not look like OpenClaw's", "name its folder with --source")
    folders = [named] if named else [home / name for name in FOLDERS]
    return [FolderRename(folder, _free_name(folder, today)) for folder in folders if folder.is_dir()]


def clean_up(moves: list[FolderRename]) -> None:
    """Rename the folders. Nothing in them is changed. Raises `StorageError`."""
    for move in moves:
        try:
            move.source.rename(move.target)
        except OSError as exc:
            raise StorageError(
                f"can't rename {str(move.source)!r}: {exc.strerror or exc}",
                "stop OpenClaw, and run this in another folder",
            ) from exc


def _is_openclaw(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    marks = {*CONFIGS, *WORKSPACES}
    return bool(names & marks or {name.lower() for name in names} & MARKS) or folder.name in FOLDERS


def _free_name(folder: Path, today: date) -> Path:
    """Return the first free of `NAME.pre-migration`, that with the day, and that with a number."""
    plain = folder.with_name(f"{folder.name}{SUFFIX}")
    dated = folder.with_name(f"{plain.name}-{today:%Y%m%d}")
    names = [plain, dated, *(folder.with_name(f"{dated.name}-{number}") for number in range(2, 1000))]
    return next(name for name in names if not os.path.lexists(name))


# ------------------------------------------------------------------------------------------------------------ processes

Probe = Callable[[], Iterable[str]]
"""A function that returns the command line of every process."""

_OPENCLAW = ("openclaw", "clawdbot", "moltbot")
_INTERPRETERS = ("node", "bun", "deno", "npx", "python")


def command_lines() -> list[str]:
    """Return the command lines of other processes of this machine, [] if they can't be read."""
    own = {os.getpid(), os.getppid()}
    proc = Path("/proc")
    # /proc gives whole command lines; ps cuts them on some systems.
    if (proc / "self" / "cmdline").exists():
        pids = [entry.name for entry in proc.iterdir() if entry.name.isdigit() and int(entry.name) not in own]
        return [line for pid in pids if (line := _of_proc(proc / pid / "cmdline"))]
    listing = ["tasklist", "/FO", "CSV", "/NH"] if os.name == "nt" else ["ps", "-axww", "-o", "command="]
    try:
        done = subprocess.run(
            listing, capture_output=True, text=True, errors="replace", timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def running_warnings(probe: Probe = command_lines) -> list[str]:
    """Return a sentence for each program that should be stopped before a migration or a cleanup.

    Two programs with one bot token disturb each other.
    """
    lines = list(probe())
    found = []
    if any(_runs_openclaw(line) for line in lines):
        found.append(
            "OpenClaw seems to be running: stop it first, since messaging platforms refuse two programs with one "
            "bot token, and it may still write to its folder"
        )
    if any(_runs_gateway(line) for line in lines):
        found.append(
            "the Hermes gateway seems to be running: restart it afterwards, so that it sees what came"
        )
    return found


def _of_proc(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _runs_openclaw(line: str) -> bool:
    """Return True if the program is OpenClaw, or an interpreter that runs it: `node /opt/openclaw/dist/index.js`."""
    words = [Path(word.strip('"')) for word in line.replace("\\", "/").lower().split()[:2]]
    runs = words[1:] if words and words[0].stem.startswith(_INTERPRETERS) else words[:1]
    return any(path.stem.startswith(_OPENCLAW) or set(_OPENCLAW) & set(path.parts) for path in runs)


def _runs_gateway(line: str) -> bool:
    words = [Path(word).stem for word in line.replace("\\", "/").lower().split()[:4]]
    return "gateway" in words and bool({"hermes", "hermes-memory"} & set(words))

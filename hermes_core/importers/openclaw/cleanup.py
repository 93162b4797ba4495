"""Renaming of OpenClaw's folders after a migration, and the warning about programs that still run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hermes_core.errors import ImportFailed, StorageError
from hermes_core.home import expanded
from hermes_core.importers.openclaw.source import CONFIGS, FOLDERS, MARKS, WORKSPACES

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
                f"can't rename {str(move.source)!r}: {exc.strerror or exc}", "stop OpenClaw first"
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

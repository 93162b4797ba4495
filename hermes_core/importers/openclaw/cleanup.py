"""Move OpenClaw's folders aside once all is well, so that nobody edits the wrong memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hermes_core.errors import ImportFailed, StorageError
from hermes_core.home import expanded
from hermes_core.importers.openclaw.source import CONFIGS, FOLDERS, MARKS, WORKSPACES

SUFFIX = ".pre-migration"


@dataclass(frozen=True, slots=True)
class Move:
    """One folder and the name it gets."""

    source: Path
    target: Path


def plan_cleanup(home: Path, source: Path | None, today: date) -> list[Move]:
    """The folders to move: `source` alone, else all of OpenClaw's names in the person's home folder.

    Raises `ImportFailed` for a `source` that is no folder of OpenClaw's.
    """
    # Normal, but with its last link as it is: that is what gets the other name.
    named = Path(os.path.normpath(expanded(source).absolute())) if source is not None else None
    if named is not None and not _is_openclaw(named):
        raise ImportFailed(f"{str(source)!r} does not look like OpenClaw's", "name its folder with --source")
    folders = [named] if named else [home / name for name in FOLDERS]
    return [Move(folder, _free_name(folder, today)) for folder in folders if folder.is_dir()]


def clean_up(moves: list[Move]) -> None:
    """Rename the folders; nothing in them is changed. Raises `StorageError`."""
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
    """`NAME.pre-migration`, then with the day, then with a number."""
    plain = folder.with_name(f"{folder.name}{SUFFIX}")
    dated = folder.with_name(f"{plain.name}-{today:%Y%m%d}")
    names = [plain, dated, *(folder.with_name(f"{dated.name}-{number}") for number in range(2, 1000))]
    return next(name for name in names if not os.path.lexists(name))

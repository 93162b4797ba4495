"""Source files of providers, found and read without running them."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_SKIPPED_FOLDERS = frozenset({"tests", "test", "__pycache__", "node_modules", "site-packages"})


def read_source(path: Path) -> str:
    """Return the text of a source file, "" if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as exc:
        logger.warning("can't read %s: %s", path, exc)
        return ""


def module_path(module: str) -> Path | None:
    """Return the folder or file of a module's top package. Finding the top package runs none of its code."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or ())
    return Path(locations[0]) if locations else Path(spec.origin or module)


def python_files(path: Path) -> Iterator[Path]:
    """Yield the Python files of a package or module, without tests and environments."""
    if not path.is_dir():
        if path.suffix == ".py":
            yield path
        return
    for folder, names, files in os.walk(path):
        names[:] = sorted(n for n in names if n not in _SKIPPED_FOLDERS and not n.startswith("."))
        yield from (Path(folder, file) for file in sorted(files) if file.endswith(".py"))

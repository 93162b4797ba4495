"""A user's knowledge tree, and its notes that mirror MEMORY.md and USER.md: plain files, no model."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

from hermes_core import Session
from hermes_core.kit import (
    clip,
    epoch_time,
    fold_space,
    key_of,
    person_name,
    storable,
    utc_time,
    write_atomic,
)

PROJECT_VERSION = "0.0.1"
"""Version that brv writes into the config.json of a project."""

DOMAIN = "hermes"

_KEY = 24
_OURS = re.compile(f"[0-9a-f]{{{_KEY}}}")


_CREATED = re.compile(r"^createdAt: *['\"]?([^'\"\n]+)", re.MULTILINE)


def folder_of(session: Session, home: Path, setting: str) -> Path:
    """Return the project of a user: the profile's old place, or a folder of a gateway's user.

    The folders are side by side, because brv takes a folder below a project for a part of it.
    """
    if setting:
        return home / Path(setting).expanduser()
    person = person_name(session)
    return home / "byterover-users" / person if person else home / "byterover"


class Tree:
    """The project in `folder`, made if need be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / ".brv" / "context-tree"
        config = folder / ".brv" / "config.json"
        if not config.exists():
            # Without it brv would take a project that it finds further up, in the person's home for instance.
            made = {"createdAt": utc_time(time.time()), "cwd": str(folder), "version": PROJECT_VERSION}
            write_atomic(config, json.dumps(made, indent=2).encode())

    def add(self, target: str, text: str, at: float = 0.0) -> Path:
        """Keep an entry as a note; one that is there already stays as it is. Returns its path in the tree.

        `at` is the time at which it was made, if that is not now.
        """
        path = self._path(target, text)
        if not path.exists():
            title = json.dumps(clip(fold_space(storable(text)), 80), ensure_ascii=False)
            made = utc_time(at or time.time())
            head = f"title: {title}\ntags: []\nrelated: []\nkeywords: []\ncreatedAt: '{made}'"
            write_atomic(path, f"---\n{head}\n---\n\n{storable(text).strip()}\n".encode())
        return path.relative_to(self.root)

    def texts(self) -> list[tuple[str, str, float]]:
        """Return path, text and time of every note in the tree, also of what brv curated, without what it derived from
        notes. The time is 0 if the note names none.
        """
        notes = (path for path in sorted(self.root.rglob("*.md")) if "." not in path.stem)
        found = ((path.relative_to(self.root).as_posix(), path.read_text("utf-8")) for path in notes)
        return [(path, body_of(text), _made_at(text)) for path, text in found if body_of(text)]

    def remove(self, target: str, text: str) -> None:
        """Drop the note of an entry, with what brv derived from it. None is as well."""
        self._drop(self._path(target, text))

    def remove_containing(self, target: str, fragment: str) -> None:
        """Drop the note that holds this text, if exactly one does."""
        found = [path for path in self._notes(target) if fragment in body_of(path.read_text("utf-8"))]
        if len(found) == 1:
            self._drop(found[0])

    def holds(self, path: str) -> bool:
        """Return whether a file in brv's index is still there: the index is some seconds behind."""
        return (self.root / path).is_file()

    def _drop(self, note: Path) -> None:
        for path in note.parent.glob(f"{note.stem}*.md"):
            path.unlink(missing_ok=True)

    def _notes(self, target: str) -> Iterator[Path]:
        for path in (self.root / DOMAIN / target).glob("*.md"):
            # Derived files have a second suffix, and what brv curates here a name in words.
            if _OURS.fullmatch(path.stem):
                yield path

    def _path(self, target: str, text: str) -> Path:
        return self.root / DOMAIN / target / f"{key_of(text.strip(), length=_KEY)}.md"


def _made_at(text: str) -> float:
    """Return the time in a note's front matter, 0 if there is none."""
    found = _CREATED.search(text.partition("\n---\n")[0]) if text.startswith("---\n") else None
    return epoch_time(found[1]) if found else 0.0


def body_of(text: str) -> str:
    """Return a note, or an excerpt of one, without its front matter."""
    if text.startswith("---\n") and "\n---\n" in text[4:]:
        return text[4:].partition("\n---\n")[2].strip()
    return text.strip()

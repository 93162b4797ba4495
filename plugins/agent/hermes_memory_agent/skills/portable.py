"""The skills of a home as JSON data, out of one home and into another."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from hermes_core import HermesHome
from hermes_core.curated.origins import PERSON, entry_hash
from hermes_core.curated.rows import place_of
from hermes_core.errors import ImportFailed
from hermes_core.home import folder_fault
from hermes_core.safety.origin import RANKS, as_origin
from hermes_core.storage.engine import Engine
from hermes_memory_agent.skills.document import normalize_lines
from hermes_memory_agent.skills.history import SkillHistory
from hermes_memory_agent.skills.store import (
    FILE,
    MAX_DEPTH,
    MAX_FILE_BYTES,
    PARTIAL,
    SkillStore,
    key_of_folder,
    skills_folder,
)

MAX_FILES = 500
"""Files of one skill."""

_MAX_PATH_BYTES = 255
"""Bytes of a path in a skill, so that no file system refuses a name of it."""

_PART = re.compile(r"[\w][\w .()+,@=~-]{0,99}")
_FOLDER = re.compile(r"[\w.%~-]{0,120}", re.ASCII)


def export_skills(
    home: HermesHome,
    database: Engine,
    folders: Callable[[str], bool],
    left_out: Callable[[str], object],
) -> Iterator[dict[str, Any]]:
    """Yield a record for each skill of the home and of its users, with all files beside its SKILL.md.

    Args:
        folders: Returns True for the name of a user's folder, "" for the home, that is wanted.
        left_out: Gets a sentence for each thing that no record can hold, such as the history.
    """
    users = home.memories / "users"
    names = sorted(path.parent.name for path in users.glob("*/skills")) if users.is_dir() else []
    has_history = False
    for folder in filter(folders, ["", *names]):
        root = _root(home, folder)
        history = SkillHistory(database, key_of_folder(home, root))
        has_history = has_history or bool(history.changes(1))
        if not root.is_dir():
            continue
        for path in sorted(_skill_folders(root)):
            place = path.relative_to(root).as_posix()
            if not _is_place(place):
                left_out(f"the skill {place!r}: its folder has an unusual name")
                continue
            files = dict(_files(path, place, left_out))
            text = files.get(FILE)
            if not isinstance(text, str):
                left_out(f"the skill {place!r}: its {FILE} is no text")
                continue
            text = normalize_lines(text)
            origin = history.origins([text]).get(entry_hash(text), PERSON).origin
            yield {"folder": folder, "path": place, "files": files, "origin": origin}
    if has_history:
        left_out("the history of skills")


def check_skill(record: Mapping[str, Any]) -> None:
    """Raise `ImportFailed` if a record is none that `export_skills` wrote, or would leave its folder."""
    folder, path, files = record.get("folder"), record.get("path"), record.get("files")
    if not isinstance(folder, str) or not _FOLDER.fullmatch(folder) or (folder and not folder.strip(".")):
        raise ImportFailed(f"{folder!r} is no folder of a user", "export again")
    if not _is_place(path):
        raise ImportFailed(f"{path!r} is no place of a skill", "export again")
    if not isinstance(files, dict) or not isinstance(files.get(FILE), str) or len(files) > MAX_FILES:
        raise ImportFailed(f"the files of the skill {path!r} can't be read", "export again")
    for name, content in files.items():
        data = _bytes(content)
        if not _is_beside(name) or data is None or len(data) > MAX_FILE_BYTES:
            raise ImportFailed(f"the file {name!r} of the skill {path!r} can't be used", "export again")
        if any(folder.as_posix() in files for folder in PurePosixPath(name).parents):
            raise ImportFailed(f"the file {name!r} of the skill {path!r} lies below a file", "export again")
    if record.get("origin") not in RANKS:
        raise ImportFailed(f"the skill {path!r} has no origin", "export again")


def import_skill(
    home: HermesHome, database: Engine, record: Mapping[str, Any], *, keep_origins: bool
) -> Literal["imported", "present", "different"]:
    """Write a skill that is not there yet. A skill that is there stays as it is: "present" if it is the same.

    Args:
        keep_origins: True if a person says that the record is their own. Else the skill waits for `hermes-memory review`.

    Raises:
        SkillError: The skill or a file of it can't be used, is refused by the threat scan, or would change what is here.
            Nothing was written.
    """
    root = _root(home, record["folder"])
    path = root / record["path"]
    if (path / FILE).exists():
        here = dict(_files(path, record["path"], lambda _: None))
        return "present" if here == record["files"] else "different"
    name = PurePosixPath(record["path"]).name
    place = place_of(home, shared=database.shared)
    store = SkillStore(root, database, key=key_of_folder(home, root), place=place)
    if any(skill.name == name for skill in store.skills()):
        return "different"
    origin = as_origin(record["origin"]) if keep_origins else "import"
    files = {file: _bytes(content) or b"" for file, content in record["files"].items() if file != FILE}
    text = record["files"][FILE]
    store.import_skill_files(record["path"], text, files, origin, scanned=not keep_origins)
    return "imported"


def _root(home: HermesHome, folder: str) -> Path:
    return home.memories / "users" / folder / "skills" if folder else skills_folder(home)


def _skill_folders(root: Path) -> Iterator[Path]:
    for path in root.rglob(FILE):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") or part.endswith(PARTIAL) for part in parts)
        if len(parts) <= MAX_DEPTH and not hidden and path.is_file() and not path.is_symlink():
            yield path.parent


def _files(
    folder: Path, place: str, left_out: Callable[[str], object]
) -> Iterator[tuple[str, str | dict[str, str]]]:
    """Yield each file of a skill: text as it is, other bytes in base 64. A skill below it is one of its own."""
    count = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or (path.name == FILE and path.parent != folder):
            continue
        inner = [one for one in path.parents if one != folder and folder in one.parents]
        if any((one / FILE).is_file() for one in inner):
            continue
        count += 1
        if (
            path.is_symlink()
            or not _is_beside(name)
            or path.stat().st_size > MAX_FILE_BYTES
            or count > MAX_FILES
        ):
            left_out(
                f"the file {name!r} of the skill {place!r}: it is a link, too large, or has an unusual name"
            )
            continue
        data = path.read_bytes()
        try:
            yield name, data.decode("utf-8")
        except UnicodeDecodeError:
            yield name, {"base64": base64.b64encode(data).decode("ascii")}


def _is_place(path: object) -> bool:
    """Return True for a folder in which a store of skills looks for a skill."""
    return (
        isinstance(path, str)
        and _is_inside(path)
        and path.count("/") + 1 < MAX_DEPTH
        and not any(part.endswith(PARTIAL) or _is_skill_text(part) for part in path.split("/"))
    )


def _is_beside(name: str) -> bool:
    """Return True for the SKILL.md at the top, or a file beside or below it that is no SKILL.md."""
    return name == FILE or (_is_inside(name) and not any(map(_is_skill_text, name.split("/"))))


def _is_skill_text(part: str) -> bool:
    """Return True for a name that some file system takes for SKILL.md."""
    return part.rstrip(" .").casefold() == FILE.casefold()


def _is_inside(name: str) -> bool:
    """Return True for a relative path of plain names, none of which begins with a dot."""
    plain = all(_PART.fullmatch(part) and not folder_fault(part) for part in name.split("/"))
    return plain and len(name.encode()) <= _MAX_PATH_BYTES


def _bytes(content: object) -> bytes | None:
    """Return the bytes of a file in a record; None if the record does not say them."""
    try:
        if isinstance(content, str):
            return content.encode("utf-8")
        if isinstance(content, Mapping):
            return base64.b64decode(content["base64"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        pass
    return None

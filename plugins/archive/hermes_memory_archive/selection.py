"""The choice of files for a backup: all of a folder but copies, what is made again, links and files with keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from hermes_core.kit import redact
from hermes_core.loader.parts import recorded_parts
from hermes_core.safety.redact import redact_value

DATABASES = (".db", ".sqlite", ".sqlite3")

KEPT_FOLDERS = frozenset({"profiles", "backups", "logs"})
"""Folders at the top of a home that no backup holds and that stay in place when it is restored."""

ASIDE, STAGING = "before-restore-", ".restoring-"
"""Beginnings of the names of folders of a restore, which are in the home if nothing can be moved out of it."""

_DATABASE_PART = re.compile(r"(.+)-(?:wal|shm|journal)")
_DAMAGED_COPY = re.compile(r".+\.(?:db|sqlite3?)(?:-\w+)?\.(?:damaged|lost-|repairing).*")

# Names of copies, such as ".env~", "hermes.env.bak", "#auth.json#" and "server.key (copy)", hold what the file holds.
_COPY = r"(?:$|[~#\s(-]|\.(?:bak|backup|old|orig|save|saved|copy|tmp|swp|swo|dist|\d).*)"
_SECRET_FILE = re.compile(
    r"\.env(?:rc)?(?![a-z0-9])"
    rf"|^(?:\.?env|[#.]*(?:credentials?|secrets?)(?:\.[\w.-]+)?|[#.]*id_(?:rsa|dsa|ed25519|ecdsa)){_COPY}"
    rf"|\.(?:pem|key|p12|pfx|jks|keystore|kdbx|netrc|pgpass|npmrc|pypirc){_COPY}"
    r"|^[#.]*(?:auth|oauth|token)s?[\w.-]*\.json(?![a-z0-9])",
    re.IGNORECASE,
)
_SETTINGS_FILE = re.compile(r"\.(?:json5?|ya?ml|toml|ini|cfg|conf|properties)(?![a-z0-9])", re.IGNORECASE)
MAX_SETTINGS_BYTES = 4 * 1024 * 1024
"""Largest size of a file that is read as settings; a larger one is data."""


def store_folders(home: Path) -> tuple[str, ...]:
    """Return the folders at the top of a home that may be links to folders elsewhere: the notes and the parts."""
    parts = recorded_parts(home).values()
    return ("memories", *(pattern for part in parts for pattern in part.patterns if "/" not in pattern))


def may_hold_keys(name: str) -> bool:
    """Return True if a file of this name, or the file that it is a copy of, holds keys as a rule.

    >>> [may_hold_keys(name) for name in (".env", "hermes.env", ".env~", "env.bak", "id_rsa", "environment.md")]
    [True, True, True, True, True, False]
    """
    return _SECRET_FILE.search(name) is not None


def may_be_settings(name: str) -> bool:
    """Return True if a file of this name, or the file that it is a copy of, is in a format of settings.

    >>> may_be_settings("mem0.json"), may_be_settings("cfg.yaml.bak"), may_be_settings("history.jsonl")
    (True, True, False)
    """
    return _SETTINGS_FILE.search(name) is not None


def stays_in_place(name: str) -> bool:
    """Return True if a restore leaves a folder at the top of a home alone, and no backup holds it.

    >>> [stays_in_place(name) for name in ("logs", "before-restore-20260101T000000Z", "memories")]
    [True, True, False]
    """
    return name in KEPT_FOLDERS or name.startswith((ASIDE, STAGING))


def files_below(
    root: Path,
    leave_out: Callable[[str], object],
    *,
    is_home: bool = False,
    excluded: Collection[Path] = (),
) -> Iterator[Path]:
    """Yield the files of a folder, and links to files.

    Args:
        leave_out: Called with a sentence for each file and folder that is not yielded. Nothing is said of lock files,
            of the parts of a database, and of `KEPT_FOLDERS` at the top of a home.
        is_home: True if `root` is a home, whose `KEPT_FOLDERS` are skipped.
        excluded: Files and folders to skip.
    """
    stores = store_folders(root) if is_home else ()
    for folder, folders, names in os.walk(root, onerror=_raise):
        top = is_home and Path(folder) == root
        for name in sorted(folders):
            path = Path(folder, name)
            if top and name in stores:
                continue  # read by who copies them, also if they are links
            reason = _folder_reason(path)
            if top and name.startswith((ASIDE, STAGING)):
                reason = "what was there before a restore; delete it when nothing is missing"
            if path in excluded or (top and name in KEPT_FOLDERS and not path.is_symlink()):
                folders.remove(name)
            elif reason or (top and name.casefold() in KEPT_FOLDERS):
                folders.remove(name)
                reason = reason or "the name of a folder that no backup holds"
                leave_out(f"the folder {path.relative_to(root).as_posix()!r}: {reason}")
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path in excluded or _is_passing(path):
                continue
            reason = _file_reason(path)
            if not reason and top and name.casefold() in KEPT_FOLDERS:
                reason = "the name of a folder that no backup holds"
            if reason:
                leave_out(f"{path.relative_to(root).as_posix()!r}: {reason}")
            else:
                yield path


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # a program deleted it meanwhile
        raise error


def _is_passing(path: Path) -> bool:
    """Return True for lock files and for the parts of a database, which SQLite copies with it."""
    if path.name.endswith(".lock"):
        return not path.is_symlink() and path.is_file() and not path.stat().st_size
    part = _DATABASE_PART.fullmatch(path.name)
    return part is not None and part[1].endswith(DATABASES) and path.with_name(part[1]).is_file()


def _folder_reason(path: Path) -> str:
    """Return why a folder is left out, "" if it is not."""
    if not _is_utf8(path.name):
        return "its name is no UTF-8; rename it"
    if path.is_symlink():
        return "a link, which is not followed"
    if path.name == "__pycache__" or (path / "pyvenv.cfg").is_file():
        return "it is made again"
    if path.name == "node_modules" and (path.parent / "package.json").is_file():
        return "it is installed again"
    if path.name == ".git" and (path / "HEAD").is_file():
        return "a repository has copies elsewhere"
    if path.name.startswith(".hermes-backup-"):
        return "the rest of a backup that was stopped; delete it"
    return ""


def _file_reason(path: Path) -> str:
    """Return why a file is left out, "" if it is not."""
    if not _is_utf8(path.name):
        return "its name is no UTF-8; rename it"
    if _DAMAGED_COPY.fullmatch(path.name):
        return "a copy of a damaged or lost database"
    part = _DATABASE_PART.fullmatch(path.name)
    if part is not None and part[1].endswith(DATABASES):
        return "a part of a database that is gone"
    return ""


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def without_secrets(path: Path, data: bytes) -> bytes:
    """Return a settings file without values that look like keys. Keys of a JSON file go whole."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    if ".json" not in path.name.lower():
        return redact(text).encode() if redact(text) != text else data
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return redact(text).encode() if redact(text) != text else data
    clean = _pruned(value, redact_value(value))
    return data if clean == value else (json.dumps(clean, indent=1, ensure_ascii=False) + "\n").encode()


def with_secrets(path: Path, data: bytes, old: bytes) -> bytes:
    """Return a settings file that `without_secrets` made, with the secrets of an older state of the file.

    Of a JSON file each key comes back that only the secret file has. Any other file comes back if nothing else differs.
    """
    clean = without_secrets(path, old)
    if clean in (old, data):
        return old if clean == data else data
    try:
        values = [json.loads(one) for one in (data, old, clean)]
    except (ValueError, RecursionError):
        return data
    whole = _with_secrets(*values)
    return data if whole == values[0] else (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode()


def _with_secrets(value: Any, old: Any, clean: Any) -> Any:
    if value == clean:
        return old
    if not all(isinstance(one, dict) for one in (value, old, clean)):
        return value
    secret = {key: old[key] for key in old if key not in value and key not in clean}
    return secret | {
        key: _with_secrets(value[key], old[key], clean[key]) if key in old and key in clean else value[key]
        for key in value
    }


def _pruned(value: Any, redacted: Any) -> Any:
    """Return a value without the parts that redaction changed."""
    if isinstance(value, dict) and isinstance(redacted, dict):
        return {
            key: _pruned(value[key], redacted[key])
            for key in value
            if key in redacted and (isinstance(value[key], dict | list) or value[key] == redacted[key])
        }
    return value if value == redacted else redacted

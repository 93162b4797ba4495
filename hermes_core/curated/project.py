"""The repository of a working folder, for which PROJECT.md keeps notes."""

from __future__ import annotations

import configparser
import hashlib
import json
import logging
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hermes_core.errors import StorageError
from hermes_core.storage.files import locked, write_atomic

log = logging.getLogger(__name__)

# Folders above the working folder that are searched for the top of a repository.
MAX_DEPTH = 64

KEYS = "keys.json"
"""File in the folder of the notes with the key of each identity and folder."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,39}-[0-9a-f]{12}")
_SCP_FORM = re.compile(r"(?:[^@/]+@)?([^:/]+):(?!//)(.+)")


@dataclass(frozen=True, slots=True)
class Repository:
    """A Git repository.

    Attributes:
        name: Name of its folder or of its address, for people.
        identity: Address of its remote `origin`, the same for all clones, else the path of its folder.
        top: Its folder, or that of a worktree.
        git: Device and number of its folder `.git`, which stay when the folder is moved.
        earlier_key: Key under which its notes are kept since it had another identity; "" if its identity gives the key.
    """

    name: str
    identity: str
    top: str = field(default="", compare=False)
    git: str = field(default="", compare=False)
    earlier_key: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """Name of a folder for the notes: the repository's name in plain letters, and a hash of its identity."""
        if self.earlier_key:
            return self.earlier_key
        digest = hashlib.sha256(self.identity.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return f"{re.sub(r'[^A-Za-z0-9.-]+', '-', self.name).strip('.-')[:40] or 'repository'}-{digest}"


def repository_of(folder: Path) -> Repository | None:
    """Return the repository that contains a folder; None if there is none. No program is run."""
    try:
        folder = folder.resolve()
        for top in [folder, *folder.parents][:MAX_DEPTH]:
            if (config := _config_of(top / ".git")) is not None:
                # A worktree is the same repository as the folder that it was made from.
                shared = config.parent.parent if config.parent.name == ".git" else top
                identity = _normal_address(_origin(config), top) or str(shared)
                return Repository(identity.rsplit("/", 1)[-1], identity, str(top), _file_id(config.parent))
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # a folder that is gone or may not be read, or a damaged `.git`
        return None
    return None


def with_notes_key(repository: Repository, projects: Path, *, in_files: bool = True) -> Repository:
    """Return a repository with the key under which its notes are, also if its identity has changed since.

    `git remote add`, a new address and a moved folder change the identity. So a file in the folder of the notes says which
    key each identity and each folder had. Notes under the key of the present identity come first.

    Args:
        projects: The folder of the notes on repositories.
        in_files: False if the notes are on a server, so that no file shows whether a repository has any.
    """
    record = _read_keys(projects)
    known = replace(repository, earlier_key=_known_key(repository, record, projects, in_files=in_files))
    if (projects / known.key / "PROJECT.md").is_file():
        remember_key(known, projects)
    return known


def remember_key(repository: Repository, projects: Path) -> None:
    """Store under which key the notes on a repository are, so that they are there when its identity has changed."""
    entry = {"key": repository.key, "git": repository.git}

    def is_known(record: dict[str, dict[str, Any]]) -> bool:
        same = record["identities"].get(repository.identity) == repository.key
        return same and record["folders"].get(repository.top) == entry

    if is_known(_read_keys(projects)):
        return
    try:
        with locked(projects / KEYS):
            record = _read_keys(projects)
            record["folders"][repository.top] = entry
            record["identities"][repository.identity] = repository.key
            write_atomic(projects / KEYS, json.dumps(record, indent=1, sort_keys=True).encode())
    except (OSError, StorageError) as exc:  # a home that is only read
        log.warning("the key of the notes on %r was not stored: %s", repository.name, exc)


def _known_key(
    repository: Repository, record: dict[str, dict[str, Any]], projects: Path, *, in_files: bool
) -> str:
    """Return the key of the notes on a repository; "" if its identity gives it."""

    def is_file(key: str) -> bool:
        return (projects / key / "PROJECT.md").is_file()

    def has_notes(key: object) -> bool:
        # A key is stored when its notes are written.
        return isinstance(key, str) and bool(_KEY.fullmatch(key)) and (is_file(key) or not in_files)

    if has_notes(key := record["identities"].get(repository.identity)):
        return str(key)
    if is_file(repository.key):
        return ""
    folders = record["folders"]
    for top, entry in folders.items():
        # A copy of a folder has another number. A folder that is still there was not moved.
        stays = top == repository.top or _file_id(Path(top) / ".git") != repository.git
        if stays and entry["git"] == repository.git and has_notes(entry["key"]):
            return str(entry["key"])
    # Before this folder had a remote, its path was its identity. An entry of another `.git` is of a folder that was deleted.
    by_path = Repository(repository.top.rsplit("/", 1)[-1], repository.top).key
    return by_path if repository.top not in folders and is_file(by_path) else ""


def _read_keys(projects: Path) -> dict[str, dict[str, Any]]:
    """Return the stored keys by identity and by folder; none if the file can't be read."""
    try:
        record = json.loads((projects / KEYS).read_text("utf-8"))
        identities, folders = dict(record["identities"]), dict(record["folders"])
        return {
            "identities": identities,
            "folders": {
                top: {"key": str(one["key"]), "git": str(one["git"])} for top, one in folders.items()
            },
        }
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {"identities": {}, "folders": {}}


def _file_id(path: Path) -> str:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def _config_of(git: Path) -> Path | None:
    """Return the file of settings that belongs to a `.git` of a clone, a worktree or a submodule; None if it is none."""
    if git.is_file():
        line = git.read_text("utf-8", "replace")[:4096].partition("\n")[0]
        if not line.startswith("gitdir: "):
            return None
        git = (git.parent / line.removeprefix("gitdir: ").strip()).resolve()
        common = git / "commondir"
        if common.is_file():
            git = (git / common.read_text("utf-8", "replace").strip()).resolve()
    return git / "config" if (git / "HEAD").is_file() else None


def _origin(config: Path) -> str:
    """Return the address of the remote `origin`; "" if there is none."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        parser.read_string(
            "\n".join(line.strip() for line in config.read_text("utf-8", "replace").splitlines())
        )
        return parser.get('remote "origin"', "url", fallback="") or ""
    except (OSError, configparser.Error):
        return ""


def _normal_address(address: str, top: Path) -> str:
    """Return an address of a remote without scheme, user, password and ".git", so that all its forms are equal.

    The port of ssh is left out, since the other forms of the same address have none. A path is taken from `top`.

    >>> _normal_address("git@github.com:ann/Pond.git", Path("/")), _normal_address("https://ann:key@GitHub.com/ann/Pond", Path("/"))
    ('github.com/ann/Pond', 'github.com/ann/Pond')
    """
    if "://" in address:
        try:
            parts = urlsplit(address)
            host, path = parts.hostname or "", parts.path
            if parts.port and parts.scheme != "ssh":
                host = f"{host}:{parts.port}"
        except ValueError:
            return ""
    elif match := _SCP_FORM.fullmatch(address):
        host, path = match[1].lower(), match[2]
    else:
        host, path = "", address
    if not host:
        return str((top / path).resolve()) if path else ""
    return f"{host}/{path.rstrip('/').removesuffix('.git').strip('/')}"

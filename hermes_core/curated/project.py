"""The repository of a working folder, for which PROJECT.md keeps notes."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

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


class FolderKey(Struct, frozen=True):
    """The key of the notes on a repository, as it was stored for a folder.

    Attributes:
        key: Key of the notes.
        git: `Repository.git` of the folder.
        earlier: Other keys that the repository had.
    """

    key: str
    git: str
    earlier: tuple[str, ...] = ()


class KnownKeys(Struct, frozen=True):
    """The stored keys.

    Attributes:
        identities: Keys by `Repository.identity`.
        folders: Keys by folder of this machine.
        has_notes: Function that returns True if there are notes under a key.
    """

    identities: Mapping[str, str]
    folders: Mapping[str, FolderKey]
    has_notes: Callable[[str], bool]


class ProjectKeys(Protocol):
    """The stored keys of the notes on repositories.

    Attributes:
        is_shared: True if several machines share the notes. A key is then stored before there are notes, since another
            machine may write the first one.
    """

    is_shared: bool

    def read(self, repository: Repository) -> KnownKeys:
        """Return the stored keys, at least those of this repository. Raises `StorageError`."""

    def store(self, repository: Repository, entry_of: Callable[[KnownKeys], FolderKey]) -> None:
        """Store the key of a repository for its identity and its folder.

        Args:
            entry_of: Function that returns the entry of the folder from the keys that are stored now.

        Raises:
            StorageError: The key can't be stored.
        """


class KeyFile:
    """The file with the keys, in the folder of the notes on repositories."""

    is_shared = False

    def __init__(self, projects: Path) -> None:
        self._projects = projects

    def read(self, repository: Repository | None = None) -> KnownKeys:  # noqa: ARG002  the protocol's
        """Return the stored keys; none if the file can't be read."""
        identities: dict[str, str] = {}
        folders: dict[str, FolderKey] = {}
        try:
            record = json.loads((self._projects / KEYS).read_text("utf-8"))
            identities = {str(name): str(key) for name, key in record["identities"].items()}
            folders = {
                str(top): FolderKey(
                    str(entry["key"]), str(entry["git"]), tuple(map(str, entry.get("earlier", ())))
                )
                for top, entry in record["folders"].items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            identities, folders = {}, {}
        return KnownKeys(identities, folders, self._has_notes)

    def store(self, repository: Repository, entry_of: Callable[[KnownKeys], FolderKey]) -> None:
        """Store the key of a repository for its identity and its folder."""
        try:
            with locked(self._projects / KEYS):
                known = self.read()
                self.write(
                    {**known.identities, repository.identity: repository.key},
                    {**known.folders, repository.top: entry_of(known)},
                )
        except OSError as exc:
            raise StorageError(f"{KEYS} can't be written: {exc}", "check the folder of the notes") from exc

    def write(self, identities: Mapping[str, str], folders: Mapping[str, FolderKey]) -> None:
        """Replace the whole file."""
        record = {
            "identities": dict(identities),
            "folders": {
                top: {"key": entry.key, "git": entry.git, "earlier": list(entry.earlier)}
                for top, entry in folders.items()
            },
        }
        write_atomic(self._projects / KEYS, json.dumps(record, indent=1, sort_keys=True).encode())

    def _has_notes(self, key: str) -> bool:
        return (self._projects / key / "PROJECT.md").is_file()


def with_notes_key(repository: Repository, keys: ProjectKeys) -> Repository:
    """Return a repository with the key under which its notes are, also if its identity has changed since.

    `git remote add`, a new address and a moved folder change the identity. So it is stored which key each identity and
    each folder had. Notes under the key of the present identity come first.
    """
    try:
        known = keys.read(repository)
    except StorageError as exc:  # a server that is down; before a write the key is looked up again
        log.warning("the key of the notes on %r can't be read: %s", repository.name, exc)
        return repository
    plain = replace(repository, earlier_key="")
    resolved = replace(plain, earlier_key=_known_key(plain, known, is_shared=keys.is_shared))
    if keys.is_shared or known.has_notes(resolved.key):
        remember_key(resolved, keys, known)
    return resolved


def remember_key(repository: Repository, keys: ProjectKeys, known: KnownKeys | None = None) -> None:
    """Store under which key the notes on a repository are, so that they are there when its identity has changed."""

    def entry_of(known: KnownKeys) -> FolderKey:
        return FolderKey(repository.key, repository.git, tuple(earlier_keys(repository, known)))

    try:
        known = keys.read(repository) if known is None else known
        same = known.identities.get(repository.identity) == repository.key
        if not (same and known.folders.get(repository.top) == entry_of(known)):
            keys.store(repository, entry_of)
    except StorageError as exc:  # a home that is only read
        log.warning("the key of the notes on %r was not stored: %s", repository.name, exc)


def earlier_keys(repository: Repository, known: KnownKeys) -> list[str]:
    """Return the other keys that a repository had, by the number of its `.git`."""
    entries = [entry for entry in known.folders.values() if repository.git and entry.git == repository.git]
    keys = {key for entry in entries for key in (entry.key, *entry.earlier) if _KEY.fullmatch(key)}
    return sorted(keys - {repository.key})


def _known_key(repository: Repository, known: KnownKeys, *, is_shared: bool) -> str:
    """Return the key of the notes on a repository; "" if its identity gives it."""

    def has_notes(key: str) -> bool:
        return bool(_KEY.fullmatch(key)) and known.has_notes(key)

    if has_notes(key := known.identities.get(repository.identity, "")):
        return key
    if known.has_notes(repository.key):
        return ""
    folders = known.folders
    for top, entry in folders.items():
        # A copy of a folder has another number. A folder that is still there was not moved.
        stays = top == repository.top or _file_id(Path(top) / ".git") != repository.git
        if stays and entry.git == repository.git:
            # A shared key is stored before there are notes: another machine may have written under an earlier one.
            for key in (entry.key, *(entry.earlier if is_shared else ())):
                if has_notes(key):
                    return key
    # Before this folder had a remote, its path was its identity. An entry of another `.git` is of a folder that was
    # deleted. On another machine, the same path may be that of another repository.
    by_path = Repository(repository.top.rsplit("/", 1)[-1], repository.top).key
    return by_path if not is_shared and repository.top not in folders and has_notes(by_path) else ""


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
    import configparser  # few homes have a repository

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

"""The repository of a working folder, for which PROJECT.md keeps notes."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from hermes_core.errors import StorageError
from hermes_core.storage.engine import Engine

log = logging.getLogger(__name__)

# Folders above the working folder that are searched for the top of a repository.
MAX_DEPTH = 64

# Name of the machine in a database that no other one uses.
_HERE = "here"

_UPSERT_KEY = """
    INSERT INTO project_keys (machine, place, key, git, earlier) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (machine, place) DO UPDATE SET key = excluded.key, git = excluded.git, earlier = excluded.earlier
"""

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
        key: Key of the identity of the repository; "" if it has none yet.
        folders: Keys by folder of this machine.
        has_notes: Function that returns True if there are notes under a key.
    """

    key: str
    folders: Mapping[str, FolderKey]
    has_notes: Callable[[str], bool]


class ProjectKeys:
    """The keys of the notes on repositories, in the table `project_keys`.

    A repository has the same identity on each machine. Its folders, and the numbers of their `.git`, are of one machine.

    Args:
        projects: The folder with the views of these notes, which another program may have put there.
        place: Name of the machine; "" if no other one uses the database.
    """

    def __init__(self, database: Engine, projects: Path, place: str = "") -> None:
        self._database, self._projects, self._place = database, projects, place or _HERE

    def read(self, repository: Repository) -> KnownKeys:
        """Return the stored keys of this machine's folders, and that of the identity of a repository.

        Raises:
            StorageError: The database can't be read.
        """
        if not self._database.exists:
            return KnownKeys("", {}, self._has_view)
        keys, folders, notes = self._database.read(
            [
                (
                    "SELECT key FROM project_keys WHERE machine = '' AND place = ?",
                    (_storable(repository.identity),),
                ),
                ("SELECT place, key, git, earlier FROM project_keys WHERE machine = ?", (self._place,)),
                ("SELECT file FROM notes WHERE owner = '' AND target = 'project'", ()),
            ]
        )
        files = {row["file"] for row in notes}
        return KnownKeys(
            keys[0]["key"] if keys else "",
            {
                row["place"]: FolderKey(row["key"], row["git"], tuple(row["earlier"].split()))
                for row in folders
            },
            lambda key: f"projects/{key}/PROJECT.md" in files or self._has_view(key),
        )

    def store(self, repository: Repository, entry: FolderKey) -> None:
        """Store the key of a repository for its identity and its folder.

        Raises:
            StorageError: The database can't be written.
        """
        rows = [
            ("", _storable(repository.identity), repository.key, "", ""),
            (self._place, _storable(repository.top), entry.key, entry.git, " ".join(entry.earlier)),
        ]
        # In one order, so that two machines do not wait for one another.
        self._database.batch([(_UPSERT_KEY, row) for row in sorted(rows)])

    def _has_view(self, key: str) -> bool:
        return (self._projects / key / "PROJECT.md").is_file()


def _storable(place: str) -> str:
    """Return a path or an address as text that a database takes: without NUL, and with odd bytes of a path escaped."""
    return place.replace("\0", "").encode("utf-8", "backslashreplace").decode("utf-8")


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
    resolved = replace(plain, earlier_key=_known_key(plain, known))
    # Before there are notes: another machine may write the first one.
    remember_key(resolved, keys, known)
    return resolved


def remember_key(repository: Repository, keys: ProjectKeys, known: KnownKeys) -> None:
    """Store under which key the notes on a repository are, so that they are there when its identity has changed."""
    entry = FolderKey(repository.key, repository.git, tuple(earlier_keys(repository, known)))
    if known.key == repository.key and known.folders.get(repository.top) == entry:
        return
    try:
        keys.store(repository, entry)
    except StorageError as exc:  # a home that is only read
        log.warning("the key of the notes on %r was not stored: %s", repository.name, exc)


def earlier_keys(repository: Repository, known: KnownKeys) -> list[str]:
    """Return the other keys that a repository had, by the number of its `.git`."""
    entries = [entry for entry in known.folders.values() if repository.git and entry.git == repository.git]
    keys = {key for entry in entries for key in (entry.key, *entry.earlier) if _KEY.fullmatch(key)}
    return sorted(keys - {repository.key})


def _known_key(repository: Repository, known: KnownKeys) -> str:
    """Return the key of the notes on a repository; "" if its identity gives it."""

    def has_notes(key: str) -> bool:
        return bool(_KEY.fullmatch(key)) and known.has_notes(key)

    if has_notes(known.key):
        return known.key
    if known.has_notes(repository.key):
        return ""
    for top, entry in known.folders.items():
        # A copy of a folder has another number. A folder that is still there was not moved.
        stays = top == repository.top or _file_id(Path(top) / ".git") != repository.git
        if stays and entry.git == repository.git:
            # Another machine may have written under an earlier key.
            for key in (entry.key, *entry.earlier):
                if has_notes(key):
                    return key
    return ""


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

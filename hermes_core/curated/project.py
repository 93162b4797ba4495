"""The repository of a working folder, for which PROJECT.md keeps notes."""

from __future__ import annotations

import configparser
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

# Folders above the working folder that are searched for the top of a repository.
MAX_DEPTH = 64

_SCP_FORM = re.compile(r"(?:[^@/]+@)?([^:/]+):(?!//)(.+)")


@dataclass(frozen=True, slots=True)
class Repository:
    """A Git repository.

    Attributes:
        name: Name of its folder or of its address, for people.
        identity: Address of its remote `origin`, the same for all clones, else the path of its folder.
    """

    name: str
    identity: str

    @property
    def key(self) -> str:
        """Name of a folder for this repository: its name in plain letters, and a hash of its identity."""
        digest = hashlib.sha256(self.identity.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return f"{re.sub(r'[^A-Za-z0-9.-]+', '-', self.name).strip('.-')[:40] or 'repository'}-{digest}"


def repository_of(folder: Path) -> Repository | None:
    """Return the repository that contains a folder; None if there is none. No program is run."""
    try:
        folder = folder.resolve()
        for top in [folder, *folder.parents][:MAX_DEPTH]:
            if (config := _config_of(top / ".git")) is not None:
                address = _normal_address(_origin(config), top)
                return Repository((address or str(top)).rsplit("/", 1)[-1], address or str(top))
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # a folder that is gone or may not be read, or a damaged `.git`
        return None
    return None


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

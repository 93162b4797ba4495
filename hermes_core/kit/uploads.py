"""Reading of a local file that a tool of a provider sends away.

A model chooses the path, and what it read before may have chosen it for the model. So a file leaves the machine only if
it is below the working folder or a folder that the person named, and `key_files` finds no key or memory in it. The file is opened once,
and what was opened is what is checked and read: a path that changes between check and read sends nothing else.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from msgspec import Struct

from hermes_core.contract.values import Field, Session
from hermes_core.errors import ConfigError, ToolInputInvalid
from hermes_core.home import HermesHome
from hermes_core.kit.key_files import KEY_FOLDERS, names_keys, private_reason

FILE_FOLDERS = Field(
    "file_folders",
    list,
    help="Folders whose files the agent may send, besides the working folder.",
    advanced=True,
)
"""The setting of a provider with a tool that sends files. `read_file_to_send` takes its value as `folders`."""

# Folders in which the system shows its state and its secrets as files: /proc/self/environ has every key of the process.
_SYSTEM_FOLDERS = (
    "/proc",
    "/sys",
    "/dev",
    "/run/credentials",
    "/run/secrets",
    "/run/user",
    "/var/run/secrets",
)


class LocalFile(Struct, frozen=True):
    """A file of this machine that may be sent.

    Attributes:
        path: Its path, with links followed.
        content: Its content.
    """

    path: Path
    content: bytes

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name


def read_file_to_send(path: str, session: Session, max_bytes: int, folders: Sequence[str] = ()) -> LocalFile:
    """Read a file that a tool sends to a server.

    A file may be sent if it is below the working folder or one of `folders`, with links followed. Refused are: files for
    a user of a gateway, because the files belong to the gateway's owner; hidden files and folders; the agent's homes;
    what the system shows as files (`/proc`, `/sys`, `/dev`); names of keys (`*.pem`, `id_rsa`, `credentials`); under any
    name, databases, keys, and backups and exports of a memory, also within archives; a file with several hard links,
    because its other name may be outside; all that is no regular file.

    Args:
        path: The path or `file://` address that the model sent. It may begin with "~", and a relative path starts in the
            working folder.
        session: The session of the call.
        max_bytes: Size of the largest file.
        folders: Further folders whose files may be sent: the value of the setting `FILE_FOLDERS`.

    Raises:
        ToolInputInvalid: The file may not be sent. The message says why, for the model and the person.
    """
    shown = repr(path[:100])
    if session.owner:
        raise ToolInputInvalid(f"{shown} is a file of somebody else", "files are for the one at the terminal")
    missing = ToolInputInvalid(
        f"{shown} is no file of up to {max_bytes // 2**20} MiB", "send the path of one"
    )
    try:
        real = Path(os.path.realpath(_local_path(path, shown)))
    except (OSError, RuntimeError, ValueError) as exc:
        raise missing from exc
    roots = [*_named_roots(folders or ()), *_working_root()]
    root = next((root for root in roots if root.path in real.parents), None)
    try:
        own = _own_homes(session)
        if any(_is_any_of(parent.stat(), own) for parent in real.parents):
            raise _of_home(shown)
        _check_names(real, root, shown)
        if root is None:
            raise _outside(shown, roots)
        descriptor = _open_below(root.path, real, own, shown)
    except OSError as exc:
        raise missing from exc
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > max_bytes:
            raise missing
        _check_opened(facts, shown)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)  # a file may grow meanwhile
    finally:
        os.close(descriptor)
    if len(content) > max_bytes:
        raise missing
    if reason := private_reason(content):
        raise ToolInputInvalid(f"{shown} {reason}", "send a file without keys and memories")
    return LocalFile(real, content)


class _Root(Struct, frozen=True):
    """A folder whose files may be sent; `named` is True if the person named it, also if it is hidden."""

    path: Path
    named: bool


def _local_path(path: str, shown: str) -> Path:
    """Return the path that the model means. Raises `ToolInputInvalid` for an address of another machine."""
    text = path.strip()
    if text[:5].lower() == "file:":
        address = urlsplit(text)
        if address.netloc.lower() not in ("", "localhost"):
            raise ToolInputInvalid(f"{shown} is a file of another machine", "send a path of this one")
        text = url2pathname(address.path) if os.name == "nt" else unquote(address.path)
    if not text:
        raise ToolInputInvalid(f"{shown} names no file", "send the path of one")
    return Path(text).expanduser()


def _outside(shown: str, roots: Sequence[_Root]) -> ToolInputInvalid:
    allowed = " or ".join(repr(str(root.path)) for root in roots) or "any folder that may be sent"
    return ToolInputInvalid(
        f"{shown} is not below {allowed}",
        f"ask the person to copy it there, or to name its folder in the setting {FILE_FOLDERS.name!r}",
    )


def _of_home(shown: str) -> ToolInputInvalid:
    return ToolInputInvalid(f"{shown} is of the agent's own home", "such files hold keys; send another")


def _named_roots(folders: Sequence[str]) -> Iterator[_Root]:
    for folder in folders:
        # A folder that does not exist, or begins with the home of an unknown person, allows nothing.
        with suppress(OSError, RuntimeError, ValueError):
            if name := str(folder).strip():
                yield _Root(Path(os.path.realpath(Path(name).expanduser(), strict=True)), True)


def _working_root() -> Iterator[_Root]:
    with suppress(OSError):  # the folder may be gone
        path = Path(os.path.realpath(Path.cwd()))
        if path != Path(path.anchor):  # a service runs in /, and that is no place of work
            yield _Root(path, False)


def _check_names(real: Path, root: _Root | None, shown: str) -> None:
    """Raise `ToolInputInvalid` for a file that its path says is hidden, of the system, or a key."""
    if any(real.is_relative_to(folder) for folder in _SYSTEM_FOLDERS):
        raise ToolInputInvalid(f"{shown} is no file but a part of the system", "send another")
    parts = real.parts[1:]
    below = real.relative_to(root.path).parts if root else parts
    hidden = any(part.startswith(".") for part in (below if root and root.named else parts))
    if hidden or any(part.casefold() in KEY_FOLDERS for part in real.parts[:-1]):
        raise ToolInputInvalid(f"{shown} is hidden, or among keys", "such files hold keys; send another")
    if any(names_keys(part) for part in below):
        raise ToolInputInvalid(f"{shown} is named like a file of keys", "send a file without keys")


def _own_homes(session: Session) -> list[os.stat_result]:
    """Return the agent's home and the homes around it.

    They are told by what they are and not by their paths, because a file system may know a folder by several names.
    """
    paths = {session.home} - {""}
    with suppress(ConfigError):
        paths.add(str(HermesHome.resolve().path))
    homes = []
    for path in paths:
        home = Path(os.path.realpath(path))
        # A profile's home is inside the main one: both, and the other profiles, hold keys.
        with suppress(FileNotFoundError):
            homes.append((home.parent.parent if home.parent.name == "profiles" else home).stat())
    return homes


def _is_any_of(facts: os.stat_result, folders: Sequence[os.stat_result]) -> bool:
    return any(os.path.samestat(facts, folder) for folder in folders)


def _check_opened(facts: os.stat_result, shown: str) -> None:
    """Raise `ToolInputInvalid` for an open file of the system, or one that has another name."""
    for folder in ("/proc", "/sys"):  # they may be mounted elsewhere too, as for a container
        with suppress(OSError):
            device = Path(folder).stat().st_dev
            if device == facts.st_dev != Path("/").stat().st_dev:
                raise ToolInputInvalid(f"{shown} is no file but a part of the system", "send another")
    if facts.st_nlink > 1:
        raise ToolInputInvalid(
            f"{shown} has {facts.st_nlink} names (hard links), and one may be of a file elsewhere",
            "send a copy of it",
        )


def _open_below(root: Path, real: Path, own: Sequence[os.stat_result], shown: str) -> int:
    """Open a file below a folder and return its descriptor. A link on the way is an error, and so is a home of `own`.

    The path was resolved before, so there is no link in it, unless somebody put one there since. `O_NONBLOCK` keeps a
    named pipe from blocking.
    """
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    )
    if sys.platform == "win32" or os.open not in os.supports_dir_fd:
        return _open_unchanged(real, flags)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        *folders, name = real.relative_to(root).parts
        for part in folders:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
            if _is_any_of(os.fstat(folder), own):
                raise _of_home(shown)
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def _open_unchanged(real: Path, flags: int) -> int:
    """Open a file where folders can't be opened, and make sure that the path still leads to it without a link."""
    descriptor = os.open(real, flags)
    unchanged = False
    try:
        facts = os.fstat(descriptor)
        unchanged = os.path.realpath(real) == str(real) and os.path.samestat(real.stat(), facts)
    finally:
        if not unchanged:
            os.close(descriptor)
    if not unchanged:
        raise OSError(f"{str(real)!r} changed while it was opened")
    return descriptor

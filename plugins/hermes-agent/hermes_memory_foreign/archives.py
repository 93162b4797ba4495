"""Safe unpacking of plugins: from an archive or a folder into an empty folder, bounded, and never outside of it.

Only regular files and folders are written. A link that stays inside becomes a copy of its target, so nothing that is
written later can pass through a link; a link that leads out refuses the whole plugin.
"""

from __future__ import annotations

import bz2
import gzip
import os
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import IO, Any, Literal

from hermes_core.errors import SetupFailed

# A plugin is source code and a little data. An archive of a few kilobytes may unpack to terabytes.
MAX_UNPACKED_BYTES = 256 * 1024 * 1024
MAX_MEMBERS = 20_000

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")

_SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".venv",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".DS_Store",
    }
)
_BLOCK = 1 << 20
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One file, folder or link of a plugin. `link` is the target as seen from the top of the plugin."""

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int = 0o600
    open: Callable[[], IO[bytes] | None] = lambda: None
    link: str = ""


def unpack_archive(archive: Path, target: Path, label: str) -> str:
    """Unpack a tar or zip file into the empty folder `target`. Return the commit that the archive names, "" if none.

    Args:
        label: Name of the archive in errors.

    Raises `SetupFailed` for an archive that is damaged, too large, or would write outside of the folder.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                _write(_members_of_zip(opened), target, label)
                return opened.comment.decode("ascii", "replace")
        plain = _decompressed(archive, target.with_name("plain.tar"), label)
        with tarfile.open(plain, "r:") as opened_tar:
            _write(_members_of_tar(opened_tar), target, label)
            return str(opened_tar.pax_headers.get("comment", ""))
    except _DAMAGE as exc:
        raise SetupFailed(
            f"{label!r} can't be unpacked: {exc}",
            f"give a whole archive: {', '.join(ARCHIVE_SUFFIXES)}",
        ) from exc


def copy_folder(source: Path, target: Path) -> None:
    """Copy a plugin's folder into the empty folder `target`, without caches and history.

    Raises `SetupFailed` for a folder that is too large, or has a link that leads out of it.
    """
    _write(_members_of_folder(source), target, str(source))


def _decompressed(archive: Path, plain: Path, label: str) -> Path:
    """Return the tar file in `archive`, decompressed to `plain`: seeking in a compressed one unpacks without a bound."""
    with archive.open("rb") as file:
        head = file.read(3)
    if not head.startswith((b"\x1f\x8b", b"BZh")):
        return archive
    opener: Callable[[Path], Any] = gzip.open if head.startswith(b"\x1f\x8b") else bz2.open
    written = 0
    with opener(archive) as packed, plain.open("wb") as out:
        while block := packed.read(_BLOCK):
            written += len(block)
            if written > MAX_UNPACKED_BYTES + MAX_MEMBERS * 1024:
                raise _too_large(label)
            out.write(block)
    return plain


# ------------------------------------------------------------------------------------------------------------- members


def _members_of_tar(archive: tarfile.TarFile) -> Iterator[Member]:
    for one in archive:
        if one.isdir():
            yield Member(one.name, "folder")
        elif one.isreg():
            yield Member(one.name, "file", one.mode, lambda one=one: archive.extractfile(one))  # type: ignore[misc]
        elif one.issym():
            yield Member(one.name, "link", link=_from_top(one.name, one.linkname))
        elif one.islnk():
            yield Member(one.name, "link", link=one.linkname)
        else:
            raise SetupFailed(
                f"{one.name!r} is a device or a pipe, and no part of a plugin", "ask its author"
            )


def _members_of_zip(archive: zipfile.ZipFile) -> Iterator[Member]:
    for one in archive.infolist():
        mode = one.external_attr >> 16
        if one.is_dir():
            yield Member(one.filename.rstrip("/"), "folder")
        elif stat.S_ISLNK(mode):
            if one.file_size > 4096:
                raise SetupFailed(f"the link {one.filename!r} has no sound target", "ask its author")
            link = archive.read(one).decode("utf-8", "replace")
            yield Member(one.filename, "link", link=_from_top(one.filename, link))
        else:
            yield Member(one.filename, "file", mode or 0o600, lambda one=one: archive.open(one))  # type: ignore[misc]


def _members_of_folder(folder: Path) -> Iterator[Member]:
    for parent, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        for name in [*names, *sorted(files)]:
            path = Path(parent, name)
            member = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                # An absolute link may lead to a place inside as well.
                inside = os.path.relpath(path.resolve(), folder.resolve())
                yield Member(member, "link", link=Path(inside).as_posix())
            elif stat.S_ISDIR(mode):
                yield Member(member, "folder")
            elif stat.S_ISREG(mode):
                if name not in _SKIPPED and not name.endswith(".pyc"):
                    yield Member(member, "file", mode, lambda path=path: path.open("rb"))  # type: ignore[misc]
            else:
                raise SetupFailed(
                    f"{str(path)!r} is a device or a pipe, and no part of a plugin", "remove it"
                )


def _from_top(member: str, target: str) -> str:
    """Return a link's target as seen from the top; an absolute one stays absolute."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(member), target))


# ------------------------------------------------------------------------------------------------------------- writing


def _write(members: Iterator[Member], target: Path, label: str) -> None:
    links: list[Member] = []
    left = MAX_UNPACKED_BYTES
    for number, member in enumerate(members):
        if number >= MAX_MEMBERS:
            raise _too_large(label)
        path = _place(target, member.path)
        if member.kind == "link":
            _place(target, member.link)
            links.append(member)
            continue
        try:
            if member.kind == "folder":
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            source = member.open()
            if source is None:
                continue
            with source, path.open("xb") as out:
                left -= _copy(source, out, left, label)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as exc:
            raise SetupFailed(
                f"{label!r} has {member.path!r} twice", "ask its author for a sound archive"
            ) from exc
        path.chmod(0o700 if member.mode & 0o100 else 0o600)
    _copy_links(links, target, left, label)


def _copy_links(links: list[Member], target: Path, left: int, label: str) -> None:
    """Write the links as copies of what they lead to. A link that leads nowhere is left out."""
    # A link may lead to another one, which must be a copy already.
    for _ in range(3):
        for member in links:
            source, path = _place(target, member.link), _place(target, member.path)
            if path.exists() or not source.exists() or path.is_relative_to(source):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            files = [source] if source.is_file() else [file for file in source.rglob("*") if file.is_file()]
            left -= sum(file.stat().st_size for file in files)
            if left < 0 or len(files) > MAX_MEMBERS:
                raise _too_large(label)
            if source.is_file():
                shutil.copy(source, path)
            else:
                shutil.copytree(source, path)


def _copy(source: IO[bytes], out: IO[bytes], left: int, label: str) -> int:
    """Copy at most `left` bytes and return their number. The sizes that an archive states may be wrong."""
    copied = 0
    while block := source.read(_BLOCK):
        copied += len(block)
        if copied > left:
            raise _too_large(label)
        out.write(block)
    return copied


def _place(target: Path, name: str) -> Path:
    """Return the path of a member below `target`. Raises `SetupFailed` for a name that leads elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    windows = PureWindowsPath(name)
    unsafe = name.startswith("/") or ".." in parts or "\\" in name or windows.drive or not name.isprintable()
    if unsafe:
        raise SetupFailed(
            f"{name!r} leads out of the plugin's folder", "nothing was installed; ask its author"
        )
    return target.joinpath(*parts)


def _too_large(label: str) -> SetupFailed:
    return SetupFailed(
        f"{label!r} unpacks to more than {MAX_UNPACKED_BYTES >> 20} MB or {MAX_MEMBERS:,} files",
        "a plugin is source code; ask its author",
    )

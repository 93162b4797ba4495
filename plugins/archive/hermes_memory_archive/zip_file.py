"""ZIP files with a manifest, for backups and exports: written whole or not at all, and read with suspicion.

An archive comes from anywhere. So each format says which members it may have and how much they may unpack to, and its
manifest has a limit. Nothing here unpacks a member into a folder.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hermes_core.safety.json_size import parse_json
from hermes_core.storage.files import sync_folder
from hermes_core.storage.output_file import open_partial

CHUNK_BYTES = 1024 * 1024

ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Exceptions of zipfile for a file that is no ZIP file, or a damaged one."""

MANIFEST_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""Exceptions for a manifest that is no JSON, or has other values than it should."""


class MemberError(Exception):
    """A member that no archive of the format has."""


class ForeignFormat(Exception):
    """A manifest of another format. Its value is the argument."""


class NewerVersion(Exception):
    """A manifest of a version that this program does not read. The version is the argument."""


@dataclass(frozen=True, slots=True)
class ArchiveFormat:
    """A format of archives.

    Attributes:
        name: The value of `format` in the manifest.
        version: The highest version that this program reads.
        manifest: Name of the member that is the manifest.
        max_ratio: Times the size of the file that the content may have. Text packs to a tenth; a bomb, to a thousandth.
        free_bytes: Bytes that the content may have in addition.
        max_manifest_bytes: Bytes of a manifest of an archive without other members.
        manifest_bytes_per_member: Bytes that the manifest may have in addition for each member.
    """

    name: str
    version: int
    manifest: str
    max_ratio: int
    free_bytes: int
    max_manifest_bytes: int
    manifest_bytes_per_member: int = 0

    def header(self) -> dict[str, Any]:
        """Return the first keys of a manifest."""
        return {"format": self.name, "version": self.version}

    def read_manifest(self, archive: zipfile.ZipFile) -> Any:
        """Return the manifest as JSON data. The archive has it.

        Raises:
            ForeignFormat: It is of another format.
            NewerVersion: It is of a newer version, or the version is no number.
            ValueError: It is no JSON, or larger than a manifest is. See `MANIFEST_ERRORS` for the others.
        """
        limit = self.max_manifest_bytes + len(archive.namelist()) * self.manifest_bytes_per_member
        with archive.open(self.manifest) as member:
            data = member.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"it is longer than {limit:,} bytes")
        value: Any = parse_json(data)
        if value["format"] != self.name:
            raise ForeignFormat(value["format"])
        if not isinstance(value["version"], int) or value["version"] > self.version:
            raise NewerVersion(value["version"])
        return value

    def check_members(self, archive: zipfile.ZipFile, may_have: Callable[[str], bool]) -> None:
        """Raise `MemberError` for a member that is there twice, of a wrong name, encrypted, or packed in another way."""
        names = set[str]()
        for info in archive.infolist():
            if not (info.filename == self.manifest or may_have(info.filename)) or info.filename in names:
                raise MemberError(
                    f"it holds {info.filename!r}, which no archive of this kind has, or has twice"
                )
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise MemberError(f"{info.filename!r} is packed in a way that no archive of this kind is")
            names.add(info.filename)

    def unpacked_bytes(self, archive: zipfile.ZipFile, path: Path) -> tuple[int, bool]:
        """Return the bytes that an archive says it unpacks to, and False if that is more than its size can hold."""
        whole = sum(info.file_size for info in archive.infolist())
        return whole, whole <= self.max_ratio * path.stat().st_size + self.free_bytes


class NewFile:
    """A private file that gets its name when it is whole. Without `put_in_place`, nothing remains of it.

    Attributes:
        partial: The path until then, beside `path`.
        file: The open file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.partial, self.file = open_partial(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def discard(self) -> None:
        """Close and delete the file, unless it is in place."""
        self.file.close()
        self.partial.unlink(missing_ok=True)

    def put_in_place(self) -> None:
        """Write the file to the disk, and give it its name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()  # Windows renames no open file
        self.partial.replace(self._path)
        sync_folder(self._path.parent)

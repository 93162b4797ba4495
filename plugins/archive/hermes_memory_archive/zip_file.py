"""ZIP files with a manifest, for backups and exports: written whole or not at all, and read with suspicion.

An archive comes from anywhere. So each format says which members it may have and how much they may unpack to, and its
manifest has a limit. Nothing here unpacks a member into a folder.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from hermes_core.errors import HermesError, StorageError
from hermes_core.safety.json_size import parse_json
from hermes_core.storage.files import remedy_for, sync_folder
from hermes_core.storage.output_file import open_partial

CHUNK_BYTES = 1024 * 1024

Content = TypeVar("Content")

_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
_MANIFEST_ERRORS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class ArchiveFormat:
    """A format of archives.

    Attributes:
        name: The value of `format` in the manifest.
        version: The highest version that this program reads.
        manifest: Name of the member that is the manifest.
        noun: What such an archive is, for people.
        error: Type of the errors of a file that is none.
        foreign: What a person can do with a file of another format.
        again: What a person can do about a damaged file.
        max_ratio: Times the size of the file that the content may have. Text packs to a tenth; a bomb, to a thousandth.
        free_bytes: Bytes that the content may have in addition.
        max_manifest_bytes: Bytes of a manifest of an archive without other members.
        manifest_bytes_per_member: Bytes that the manifest may have in addition for each member.
    """

    name: str
    version: int
    manifest: str
    noun: str
    error: type[HermesError]
    foreign: str
    again: str
    max_ratio: int
    free_bytes: int
    max_manifest_bytes: int
    manifest_bytes_per_member: int = 0

    def header(self) -> dict[str, Any]:
        """Return the first keys of a manifest."""
        return {"format": self.name, "version": self.version}

    def open(
        self, path: Path, parse: Callable[[Any], Content], members: Callable[[Content], Collection[str]]
    ) -> tuple[zipfile.ZipFile, Content]:
        """Open an archive. Return it with what `parse` makes of its manifest.

        Args:
            members: Returns the names of the members that an archive with this manifest may have.

        Raises:
            HermesError: Of the type `error`. The file is of another format or a newer version, is damaged, would unpack to
                more than its size can hold, or has a member that is there twice, of a wrong name, encrypted, or packed
                in another way.
        """
        with ExitStack() as opened, self.faults(path):
            archive = opened.enter_context(zipfile.ZipFile(path))
            value = self._read_manifest(archive) if self.manifest in archive.namelist() else {"format": ""}
            try:
                if value["format"] != self.name:
                    raise self.error(f"{str(path)!r} is no {self.noun} of this program", self.foreign)
                if not isinstance(value["version"], int) or value["version"] > self.version:
                    raise self.error(
                        f"{str(path)!r} has version {value['version']!r}, and this program reads {self.version}",
                        "use it with a newer version of this program",
                    )
                content = parse(value)
            except _MANIFEST_ERRORS as exc:
                raise self.fault(path, f"its {self.manifest} can't be read ({type(exc).__name__})") from exc
            whole, packed = sum(info.file_size for info in archive.infolist()), path.stat().st_size
            if whole > self.max_ratio * packed + self.free_bytes:
                raise self.fault(path, f"its {packed:,} bytes would become {whole:,}")
            names = {self.manifest, *members(content)}
            for info in archive.infolist():
                if info.filename not in names:
                    raise self.fault(
                        path, f"it holds {info.filename!r}, which its manifest lacks, or holds it twice"
                    )
                if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise self.fault(path, f"{info.filename!r} is packed in a way that no {self.noun} is")
                names.remove(info.filename)
            opened.pop_all()
        return archive, content

    def fault(self, path: Path, fact: str) -> HermesError:
        """Return the error of a file that is none of this format, or damaged."""
        return self.error(f"{str(path)!r} is no whole {self.noun}: {fact}", self.again)

    @contextmanager
    def faults(self, path: Path) -> Iterator[None]:
        """Turn what zipfile raises for a damaged file into an error of one line."""
        try:
            yield
        except _ZIP_ERRORS as exc:
            # `zipfile` calls a file that was cut off, and so has no directory at its end, no ZIP file.
            cut_off = not zipfile.is_zipfile(path) and "it is cut off, or no ZIP file: it has no directory"
            raise self.fault(path, cut_off or str(exc) or type(exc).__name__) from exc

    def _read_manifest(self, archive: zipfile.ZipFile) -> Any:
        limit = self.max_manifest_bytes + len(archive.namelist()) * self.manifest_bytes_per_member
        with archive.open(self.manifest) as member:
            data = member.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"its {self.manifest} is longer than {limit:,} bytes")
        return parse_json(data)


@contextmanager
def disk_errors(action: str, path: Path, remedy: str) -> Iterator[None]:
    """Raise `StorageError` for an error of the disk, with what a person can do: `remedy`, if it says nothing better."""
    try:
        yield
    except OSError as exc:
        raise StorageError(
            f"can't {action} {str(path)!r}: {exc.strerror or exc}", remedy_for(exc, remedy)
        ) from exc


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

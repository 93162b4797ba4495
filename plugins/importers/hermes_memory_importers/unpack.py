"""Files to import: those that a folder or a pattern names, and the content of packed files."""

from __future__ import annotations

import glob
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import TORN
from hermes_memory_importers.stream import first_bytes, open_file
from hermes_memory_importers.values import SkipLog

SUFFIXES = (".jsonl", ".json", ".ndjson")
"""Names of files of conversations, also with one of `PACKED_SUFFIXES`."""

PACKED_SUFFIXES = (".gz", ".zst")

MAX_RATIO = 200
"""Times the size of a packed file that its content may have, beside `FREE_BYTES`. Logs pack to a twentieth."""

FREE_BYTES = 256 * 2**20

# Few bytes may become very many, which are in memory at once.
_CHUNK_BYTES = 4096

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = b"PK\x03\x04"

_CUT_OFF = "the packed file is cut off"


def find_files(pattern: Path, names: Iterable[str] = ()) -> list[Path]:
    """Return the files that a path or a pattern (`*`, `?`, `[...]`, `**`) names, in order, each once.

    Of a folder, also of one that a pattern names, these are the files below it whose name shows that they may hold
    conversations. Links to folders are not followed.

    Args:
        names: Patterns of file names, beside `SUFFIXES`, that may hold conversations.
    """
    path = pattern.expanduser()
    places = [path] if os.path.lexists(path) else map(Path, glob.iglob(str(path), recursive=True))  # noqa: PTH207
    patterns = tuple(names)
    files = [
        file for place in places for file in (_files_below(place, patterns) if place.is_dir() else [place])
    ]
    return sorted(dict.fromkeys(files))


def _files_below(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            plain = name.lower()
            for suffix in PACKED_SUFFIXES:
                plain = plain.removesuffix(suffix)
            if plain.endswith(SUFFIXES) or any(fnmatchcase(plain, pattern) for pattern in patterns):
                yield Path(parent, name)


@contextmanager
def unpack(path: Path, skips: SkipLog) -> Iterator[Path]:
    """Yield the file itself, or a copy of its content if it is packed with gzip or Zstandard.

    The copy is removed at the end. A file is read more than once, so its content can't come from a stream. Of a packed file
    that is cut off, the copy holds what can be unpacked, and `skips` gets a fault that names its last line.
    """
    first = first_bytes(path)
    if first.startswith(_ZIP):
        raise ImportFailed("it is a ZIP archive", "unpack it, and import a file that it holds")
    if not first.startswith((_GZIP, _ZSTD)):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="hermes-import-") as folder:
        # Some formats take the id of a conversation from the name of its file.
        copy = Path(folder, path.stem or path.name)
        name, pieces = ("gzip", _gzip_pieces) if first.startswith(_GZIP) else ("Zstandard", _zstd_pieces)
        with open_file(path) as packed, copy.open("wb") as plain:
            try:
                is_whole = _copy(pieces(packed), plain, packed)
            except (OSError, zlib.error) as exc:
                raise ImportFailed(
                    f"it is packed with {name}", f"unpack it, since it can't be read here: {exc}"
                ) from exc
        try:
            yield copy
        except ImportFailed as exc:
            raise exc if is_whole else ImportFailed(f"{exc.message}; {_CUT_OFF}", exc.remedy) from exc
        if not is_whole and all(skip.reason != TORN for skip in skips.all()):
            with copy.open("rb") as content:
                last = sum(1 for _ in content)
            skips.fault(ImportFailed(f"line {last}: {_CUT_OFF} behind it", "pack it anew"))


def _copy(pieces: Iterable[bytes], plain: BinaryIO, packed: BinaryIO) -> bool:
    """Write the pieces of the content. Return False if an `EOFError` ends them behind the first.

    Raises `ImportFailed` if the content is far larger than the packed file.
    """
    size = os.fstat(packed.fileno()).st_size
    limit = MAX_RATIO * size + FREE_BYTES
    try:
        for piece in pieces:
            plain.write(piece)
            if plain.tell() > limit:
                raise ImportFailed(
                    f"its {size:,} bytes would become more than {limit:,}, as those of no conversations do",
                    "unpack it by hand, if you know where it comes from",
                )
    except EOFError as exc:
        if not plain.tell():
            raise OSError(_CUT_OFF) from exc
        return False
    return True


def _gzip_pieces(packed: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file that is packed with gzip. Raises `EOFError` at the end of one that is cut off."""
    with gzip.open(packed) as source:
        # At a cut, `read` would lose what it has unpacked for its last piece.
        yield from iter(lambda: source.read1(_CHUNK_BYTES), b"")


def _zstd_pieces(packed: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file that is packed with Zstandard. Raises `EOFError` at the end of one that is cut off."""
    # Only these files need it.
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        while chunk := packed.read(_CHUNK_BYTES):
            while chunk:
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(chunk)
                chunk = frame.unused_data
    except zstandard.ZstdError as exc:
        raise OSError(str(exc)) from exc
    if not frame.eof:
        raise EOFError(_CUT_OFF)

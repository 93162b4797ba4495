"""The archive of an export: a ZIP file of JSON Lines with a manifest, written whole or not at all, and read with suspicion.

An archive comes from anywhere. So its members have fixed names and nothing is ever unpacked into a folder, each line has a
limit, sizes are compared with those of the file, and all of it is read and checked before the first line counts.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from hermes_core.contract.extensions import PART_NAME
from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import JsonTooLarge, parse_json
from hermes_core.storage.files import ensure_folder
from hermes_memory_archive.zip_file import ArchiveFormat, NewFile, disk_errors

MANIFEST = "manifest.json"
FORMAT = ArchiveFormat(
    "hermes-memory-export",
    1,
    MANIFEST,
    noun="export",
    error=ImportFailed,
    foreign="unpack it, and import a file that it holds",
    again="nothing was changed; export again, or copy the file again",
    max_ratio=200,
    free_bytes=64 * 1024 * 1024,
    max_manifest_bytes=1024 * 1024,
)
KINDS = ("sessions", "notes", "memories")
"""Kinds of records that each archive has. Each kind has a member `KIND.jsonl`."""

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of one record. A conversation of that size has tens of millions of words."""

# What a person or a store decides anew, so that it is no part of the content.
_NOT_HASHED = {"origin", "origins", "gone", "system_prompt", "memory_prompt", "provider", "number", "undoes"}


def kinds_with(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of an archive in their order. The parts of the home, such as skills, come before the memories."""
    return (*KINDS[:-1], *sorted(set(parts) - set(KINDS)), KINDS[-1])


class ContentHash:
    """Hash over records in any order: equal hashes mean equal content.

    Origins are left out, because an import may lower them. So are numbers that each store gives by itself.
    """

    def __init__(self) -> None:
        self._digests: list[bytes] = []

    def add(self, kind: str, record: Mapping[str, Any]) -> None:
        """Add a record."""
        text = json.dumps([kind, _content(kind, record)], sort_keys=True)
        self._digests.append(hashlib.sha256(text.encode("ascii")).digest())

    def hexdigest(self) -> str:
        """Return the hash of all records."""
        return hashlib.sha256(b"".join(sorted(self._digests))).hexdigest()


def _content(kind: str, record: Mapping[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in record.items() if name not in _NOT_HASHED}
    if kind == "sessions":
        for name in ("session", "messages"):
            rows = content[name] if name == "messages" else [content[name]]
            content[name] = [{k: v for k, v in row.items() if k not in _NOT_HASHED} for row in rows]
    if kind == "notes":
        content["changes"] = [
            {k: v for k, v in row.items() if k not in _NOT_HASHED} for row in content["changes"]
        ]
    if kind == "memories":
        content["record"] = {**content["record"], "id": ""}
    return content


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description of an archive, which stands in it.

    Attributes:
        counts: Number of records by kind.
        hash: Content hash of all records.
        left_out: A sentence for each thing of the home that the archive does not hold.
        created_at: Seconds since the epoch.
        program: Version of the program that wrote it.
    """

    counts: Mapping[str, int]
    hash: str
    left_out: tuple[str, ...] = ()
    created_at: float = 0.0
    program: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)


class ArchiveWriter:
    """Writer of an archive. `add` the records of one kind after the other; `finish` puts the file in place."""

    def __init__(self, path: Path, kinds: Iterable[str] = KINDS) -> None:
        self.path = path
        self.counts = dict.fromkeys(kinds, 0)
        self.content = ContentHash()
        self._digests: dict[str, str] = {}
        self._member: IO[bytes] | None = None
        self._kind = ""
        self._sha = hashlib.sha256()

    def __enter__(self) -> Self:
        ensure_folder(self.path.parent)
        with self._disk_errors():
            self._new = NewFile(self.path)
        self._zip = zipfile.ZipFile(self._new.file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._new.file.closed:  # not finished
            if self._member is not None:
                self._member.close()
            self._zip.close()
        self._new.discard()

    def add(self, kind: str, record: Mapping[str, Any]) -> bool:
        """Write a record. Return False if it is too large for an archive, which then does not hold it."""
        line = json.dumps(record).encode("ascii") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            return False
        with self._disk_errors():
            if kind != self._kind:
                self._begin(kind)
            if self._member is not None:
                self._member.write(line)
        self._sha.update(line)
        self.counts[kind] += 1
        self.content.add(kind, record)
        return True

    def finish(self, left_out: tuple[str, ...], now: float, program: str) -> Manifest:
        """Write the manifest, and put the file in place."""
        manifest = Manifest(self.counts, self.content.hexdigest(), left_out, now, program)
        with self._disk_errors():
            self._end_member()
            document = {
                **FORMAT.header(),
                "program": program,
                "created_at": now,
                "hash": manifest.hash,
                "members": {
                    kind: {"records": self.counts[kind], "sha256": self._digests.get(kind, "")}
                    for kind in self.counts
                },
                "left_out": list(left_out),
            }
            self._zip.writestr(MANIFEST, json.dumps(document, indent=1))
            self._zip.close()
            self._new.put_in_place()
        return manifest

    def _disk_errors(self) -> AbstractContextManager[None]:
        return disk_errors("write", self.path, "check its folder and mode")

    def _begin(self, kind: str) -> None:
        self._end_member()
        self._kind, self._sha = kind, hashlib.sha256()
        self._member = self._zip.open(f"{kind}.jsonl", "w", force_zip64=True)

    def _end_member(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None
            self._digests[self._kind] = self._sha.hexdigest()


class Archive:
    """An archive that is read. `check` it before a record counts.

    Raises:
        ImportFailed: The file is no archive, damaged, of a newer version, or made to do harm.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._read_errors():
            self._zip, self.manifest = FORMAT.open(
                path, _manifest_of, lambda manifest: [f"{kind}.jsonl" for kind in manifest.counts]
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def records(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the records of a kind. Raises `ImportFailed` at a damaged one, and if the member was changed or cut."""
        name, sha, number = f"{kind}.jsonl", hashlib.sha256(), 0
        if name in self._zip.namelist():
            with self._read_errors(), FORMAT.faults(self.path), self._zip.open(name) as member:
                while line := member.readline(MAX_LINE_BYTES + 1):
                    if len(line) > MAX_LINE_BYTES:
                        raise FORMAT.fault(
                            self.path, f"line {number + 1} of {name} is longer than {MAX_LINE_BYTES:,} bytes"
                        )
                    number += 1
                    sha.update(line)
                    yield self._parsed(name, number, line)
        if number != self.manifest.counts[kind] or (
            number and sha.hexdigest() != self.manifest.digests[kind]
        ):
            raise FORMAT.fault(self.path, f"{name} is not what the manifest says: it was cut or changed")

    def _read_errors(self) -> AbstractContextManager[None]:
        return disk_errors("read", self.path, "check its owner and mode")

    def _parsed(self, name: str, number: int, line: bytes) -> dict[str, Any]:
        try:
            record = parse_json(line)
        except JsonTooLarge as exc:
            raise FORMAT.fault(self.path, f"line {number} of {name}: {exc}") from exc
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise FORMAT.fault(self.path, f"line {number} of {name} is no JSON object")
        return record


def _manifest_of(value: Any) -> Manifest:
    members = value["members"]
    kinds = kinds_with(members)
    if not all(map(PART_NAME.fullmatch, kinds)):
        raise ValueError("it names kinds that no export has")
    return Manifest(
        {kind: int(members[kind]["records"]) for kind in kinds},
        str(value["hash"]),
        tuple(map(str, value["left_out"])),
        float(value["created_at"]),
        str(value["program"]),
        {kind: str(members[kind]["sha256"]) for kind in kinds},
    )

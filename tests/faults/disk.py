"""A disk on which only what was synced is sure to be there after a power cut.

`recorder.c` records what a program writes, syncs, renames and deletes below one folder. `Disk` takes the lines of the record
one by one. At any of them, `image` gives a folder as a disk may hold it when the power fails there:

* Bytes that were synced are there. Of those that were written since, each sector holds any of its states, and the file has
  any of its lengths.
* A name is there or not, as it was when its folder was synced last or at any later moment. The names of one folder keep
  their order: a later change is there only with the earlier ones. A rename within a folder is one change.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath

from tests.chaos import faults

SOURCE = Path(__file__).with_name("recorder.c")

_LINE = struct.Struct("<cIIIQq")


class Loss(Enum):
    """What a power cut takes of that which was not synced."""

    ALL = "all"
    SOME = "some"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the record.

    Attributes:
        kind: A mark (A), or a call that wrote bytes (W), set a length (T), synced (S), made a file (C) or a folder (M), or
            a link (Y) or a second name (L), renamed (R) or removed (U).
        path: The name that is made, changed or removed, below the folder.
        other: The earlier name of `path`, or what a link points to.
        data: The bytes of a write, or the text of a mark.
        file: Number of the open file.
        offset: Place of the bytes, or the new length.
    """

    kind: str
    path: str
    other: str
    data: bytes = field(repr=False)
    file: int
    offset: int


def environment() -> dict[str, str]:
    """Return an environment in which programs load the recorder."""
    return {**os.environ, "LD_PRELOAD": str(faults.compiled(SOURCE))}


class Recorder:
    """The recorder of this process, which has to be started with `environment`."""

    def __init__(self, folder: Path, record: Path) -> None:
        self._library = ctypes.CDLL(None)
        handle = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._library.recorder_start(os.fsencode(folder), handle)

    def mark(self, text: str) -> None:
        """Write a mark into the record: what was done before it stands before it."""
        self._library.recorder_mark(text.encode())


def lines_of(record: Path) -> Iterator[Line]:
    """Yield the lines of a record."""
    data, at = record.read_bytes(), 0
    while at < len(data):
        kind, *sizes, file, offset = _LINE.unpack_from(data, at)
        at += _LINE.size
        parts = []
        for size in sizes:
            parts.append(data[at : at + size])
            at += size
        yield Line(kind.decode(), os.fsdecode(parts[0]), os.fsdecode(parts[1]), parts[2], file, offset)


class File:
    """The bytes of a file now, those that were synced last, and the changes since then."""

    def __init__(self, data: bytes = b"") -> None:
        self._now = bytearray(data)
        self._synced = data
        self._changes: list[tuple[int, bytes | None]] = []

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes at a place."""
        self._changes.append((offset, data))
        _change(self._now, offset, data)

    def set_length(self, length: int) -> None:
        """Cut the file, or fill it up with zeros."""
        self._changes.append((length, None))
        _change(self._now, length, None)

    def sync(self) -> None:
        """Make the bytes of now durable."""
        self._synced = bytes(self._now)
        self._changes = []

    def image(self, loss: Loss, chance: random.Random) -> bytes:
        """Return bytes that the disk may hold after a power cut."""
        if loss is Loss.NOTHING or not self._changes:
            return bytes(self._now)
        if loss is Loss.ALL:
            return self._synced
        size = chance.choice((512, 4096))
        data, lengths = bytearray(self._synced), [len(self._synced)]
        sectors: dict[int, list[bytes]] = {}
        for offset, new in self._changes:
            end = offset + len(new) if new is not None else max(offset, len(data))
            touched = range(offset // size, -(-end // size))
            for number in touched:
                sectors.setdefault(number, [bytes(data[number * size : (number + 1) * size])])
            _change(data, offset, new)
            for number in touched:
                sectors[number].append(bytes(data[number * size : (number + 1) * size]))
            lengths.append(len(data))
        result = bytearray(self._synced)
        _change(result, max(lengths), None)
        for number, states in sectors.items():
            state = chance.choice(states).ljust(size, b"\0")
            result[number * size : (number + 1) * size] = state
        _change(result, chance.choice(lengths), None)
        return bytes(result)


def _change(data: bytearray, offset: int, new: bytes | None) -> None:
    """Write `new` into bytes, or give them the length `offset`."""
    end = offset if new is None else offset + len(new)
    if len(data) < end:
        data.extend(bytes(end - len(data)))
    if new is None:
        del data[offset:]
    else:
        data[offset:end] = new


@dataclass
class Folder:
    """The names of a folder now, those that were synced last, and the changes since then, each of one or two names."""

    now: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    changes: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, names: dict[str, Node | None]) -> None:
        """Give these names to files, or take them away (None), in one step."""
        self.changes.append(names)
        _rename(self.now, names)

    def sync(self) -> None:
        """Make the names of now durable."""
        self.synced, self.changes = dict(self.now), []

    def image(self, loss: Loss, chance: random.Random) -> dict[str, Node]:
        """Return names that the disk may hold after a power cut."""
        kept = {
            Loss.ALL: 0,
            Loss.SOME: chance.randint(0, len(self.changes)),
            Loss.NOTHING: len(self.changes),
        }[loss]
        names = dict(self.synced)
        for change in self.changes[:kept]:
            _rename(names, change)
        return names


Node = File | Folder | str
"""A file, a folder, or the target of a symbolic link."""


def _rename(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """A folder on a disk. What is in it at the start is durable.

    Attributes:
        marks: The marks so far.
    """

    def __init__(self, folder: Path) -> None:
        self.marks: list[str] = []
        self._files: dict[int, File] = {}
        self._root = self._load(folder)

    def _load(self, path: Path) -> Folder:
        names: dict[str, Node] = {}
        for entry in path.iterdir():
            if entry.is_symlink():
                names[entry.name] = str(entry.readlink())
            elif entry.is_dir():
                names[entry.name] = self._load(entry)
            else:
                names[entry.name] = self._files[entry.stat().st_ino] = File(entry.read_bytes())
        return Folder(names, dict(names))

    def take(self, line: Line) -> None:
        """Do what a line of the record says."""
        match line.kind:
            case "A":
                self.marks.append(line.data.decode())
            case "W":
                self._files[line.file].write(line.offset, line.data)
            case "T":
                self._files[line.file].set_length(line.offset)
            case "S" if line.file in self._files:
                self._files[line.file].sync()
            case "S":
                folder = self._node(line.path)
                assert isinstance(folder, Folder), line
                folder.sync()
            case "C":
                self._files[line.file] = File()
                self._change(line.path, self._files[line.file])
            case "M":
                self._change(line.path, Folder())
            case "Y":
                self._change(line.path, line.other)
            case "L":
                self._change(line.path, self._node(line.other))
            case "U":
                self._change(line.path, None)
            case "R":
                self._move(line.other, line.path)
            case kind:
                raise AssertionError(f"a line of kind {kind!r}")

    def image(self, target: Path, loss: Loss, chance: random.Random) -> None:
        """Write the folder as the disk may hold it after a power cut."""
        self._write(self._root, target, loss, chance)

    def _write(self, folder: Folder, target: Path, loss: Loss, chance: random.Random) -> None:
        target.mkdir(mode=0o700)
        for name, node in folder.image(loss, chance).items():
            if isinstance(node, Folder):
                self._write(node, target / name, loss, chance)
            elif isinstance(node, File):
                (target / name).touch(0o600)
                (target / name).write_bytes(node.image(loss, chance))
            else:
                (target / name).symlink_to(node)

    def _node(self, path: str) -> Node:
        node: Node = self._root
        for name in PurePosixPath(path).parts[1:]:
            assert isinstance(node, Folder), path
            node = node.now[name]
        return node

    def _change(self, path: str, node: Node | None) -> None:
        place = PurePosixPath(path)
        folder = self._node(str(place.parent))
        assert isinstance(folder, Folder), path
        folder.change({place.name: node})

    def _move(self, old: str, new: str) -> None:
        node, source, target = self._node(old), PurePosixPath(old), PurePosixPath(new)
        if source.parent == target.parent:
            folder = self._node(str(source.parent))
            assert isinstance(folder, Folder), old
            folder.change({source.name: None, target.name: node})
        else:
            self._change(new, node)
            self._change(old, None)

"""Files of JSON read a piece at a time: one line, or one element of the list that the file is."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from hermes_core.errors import ImportFailed
from hermes_core.importers.skipped import Skipped

MOST = 256 * 2**20
"""Bytes of one line, or characters of one conversation of a list. Only pictures within the text make more."""

_BOM = codecs.BOM_UTF8
_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that holds JSON. `offset` is where it begins, in bytes; `number` counts from one."""

    number: int
    offset: int
    value: Any


def read_lines(path: Path, skipped: Skipped) -> Iterator[Line]:
    """Every line but the blank ones; one that is no JSON is a fault."""
    with open_file(path) as file:
        number, offset = 0, 0
        while raw := file.readline(MOST + 1):
            number += 1
            begun, offset = offset, offset + len(raw)
            if len(raw) > MOST:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MOST)
                    offset += len(raw)
                skipped.fault(ImportFailed(f"line {number}: longer than {MOST >> 20} MB", "cut it"))
            elif raw.strip():
                try:
                    yield Line(number, begun, _loads(raw, number, begun))
                except ImportFailed as exc:
                    skipped.fault(exc)


def lines_at(path: Path, places: Iterable[tuple[int, int]]) -> Iterator[Line]:
    """The lines at these (number, offset), which were read before; what can't be read any more is left out."""
    with open_file(path) as file:
        for number, offset in places:
            file.seek(offset)
            try:
                yield Line(number, offset, _loads(file.readline(MOST), number, offset))
            except ImportFailed:
                continue


def read_values(path: Path) -> Iterator[Any]:
    """The elements of the list that the file holds, one after the other; or the one value that it is."""
    with open_file(path) as file:
        text = _Text(file)
        if not text.at("["):
            yield text.value()
        else:
            text.take("[")
            while not text.at("]"):
                yield text.value()
                if not text.at("]"):
                    text.take(",")
            text.take("]")
        text.end()


def first_sign(path: Path) -> bytes:
    """The first bytes that are not blank, as many as tell one kind of file from another; b"" of an empty file."""
    with open_file(path) as file:
        while head := file.read(4096):
            if found := head.removeprefix(_BOM).lstrip():
                return found[:16]
    return b""


def open_file(path: Path) -> BinaryIO:
    """Raises `ImportFailed` where it can't."""
    try:
        return path.open("rb")
    except OSError as exc:
        raise ImportFailed(f"can't be read: {exc.strerror or exc}", "check the path") from exc


def _loads(raw: bytes, number: int, offset: int) -> Any:
    try:
        return json.loads(raw.removeprefix(_BOM).decode())
    except UnicodeDecodeError as exc:
        raise _no_text(offset + exc.start) from exc
    except json.JSONDecodeError as exc:
        raise _no_json(number, exc.msg) from exc
    except ValueError as exc:
        raise _unreadable(number, exc) from exc
    except RecursionError:
        raise ImportFailed(f"line {number}: nested too deeply", "no conversation looks like that") from None


class _Text:
    """The text of a file of which only the piece at hand is held."""

    CHUNK = 2**18

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._decode = json.JSONDecoder().raw_decode
        self._held, self._at, self._read, self._line = "", 0, 0, 1
        self._ended = False

    def at(self, sign: str) -> bool:
        """Whether this sign comes next."""
        return self._next() == sign

    def take(self, sign: str) -> None:
        if self._next() != sign:
            raise _no_json(self._line, f"expecting '{sign}' delimiter")
        self._at += 1

    def end(self) -> None:
        if self._next():
            raise _no_json(self._line, "extra data")

    def value(self) -> Any:
        """The value that comes next."""
        self._next()
        wanted = self.CHUNK
        while True:
            self._fill(wanted)
            try:
                found, end = self._decode(self._held, self._at)
                # A number may go on in what was not read yet.
                if end < len(self._held) or self._ended:
                    self._line += self._held.count("\n", self._at, end)
                    self._at = end
                    return found
            except json.JSONDecodeError as exc:
                # Cut in the middle, a value is wrong at its last signs, or is a string that does not end.
                cut = exc.pos > len(self._held) - 100 or exc.msg.startswith("Unterminated")
                if self._ended or not cut:
                    line = self._line + self._held.count("\n", self._at, exc.pos)
                    raise _no_json(line, exc.msg) from exc
            except ValueError as exc:
                raise _unreadable(self._line, exc) from exc
            if wanted > MOST:
                raise ImportFailed(
                    f"line {self._line}: a conversation of more than {MOST >> 20} MB", "split the file"
                )
            wanted *= 2  # each try begins anew: so all together take no more than twice the last

    def _next(self) -> str:
        """The sign that comes next, "" at the end."""
        while True:
            while self._at < len(self._held):
                sign = self._held[self._at]
                if sign not in _BLANK:
                    return sign
                self._line += sign == "\n"
                self._at += 1
            if not self._fill(self.CHUNK):
                return ""

    def _fill(self, wanted: int) -> bool:
        """Hold so many characters of what comes next, as far as there are; whether there are any."""
        if len(self._held) - self._at < wanted and not self._ended:
            pieces, held = [self._held[self._at :]], len(self._held) - self._at
            while held < wanted and not self._ended:
                raw = self._file.read(self.CHUNK)
                self._read += len(raw)
                self._ended = not raw
                try:
                    pieces.append(self._decoder.decode(raw, final=not raw))
                except UnicodeDecodeError as exc:
                    raise _no_text(self._read - len(exc.object) + exc.start) from exc
                held += len(pieces[-1])
            self._held, self._at = "".join(pieces), 0
        return self._at < len(self._held)


def _no_text(at: int) -> ImportFailed:
    return ImportFailed(f"byte {at} is not UTF-8 text", "save the file as UTF-8")


def _no_json(line: int, message: str) -> ImportFailed:
    return ImportFailed(
        f"line {line}: it is no JSON, {message.lower()}", "correct the line, or make the file anew"
    )


def _unreadable(line: int, exc: ValueError) -> ImportFailed:
    return ImportFailed(
        f"line {line}: it can't be read as JSON, {exc}", "correct the line, or make the file anew"
    )

"""Reading of large JSON files in pieces, and checked reading of the fields of a message.

A file is read a line at a time, or an element of its list at a time. Errors name the place and what was expected there.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from hermes_core.errors import ImportFailed
from hermes_core.safety.json_size import (
    MAX_VALUES,
    JsonTooLarge,
    check_json_size,
    ends_within_value,
    parse_json,
    torn_line,
)
from hermes_core.sessions.records import epoch_seconds
from hermes_memory_importers.values import SkipLog

# A limit for one line or one element of a list, since each is held in memory. Only pictures within the text
# make more.
MAX_BYTES = 256 * 2**20

CHUNK_BYTES = 2**16

# The longest piece of JSON text, but for strings and numbers, that a parser must see whole: "-Infinity", "\\ud83d\\ude00".
_TOKEN_CHARS = 16

_NUMBER_END = re.compile(r"[0-9+\-.eE]*")
_BLANKS = re.compile(r"[ \t\r\n]+")
_DECODER = json.JSONDecoder()


Place = TypeVar("Place")
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class JsonLine:
    """A line that holds JSON. `offset` is its first byte; `number` counts from 1."""

    number: int
    offset: int
    value: Any


def read_lines(path: Path, skips: SkipLog, *, strict: bool = False) -> Iterator[JsonLine]:
    """Yield every line but the blank ones. A line that is no JSON is logged as a fault.

    Args:
        strict: True to raise a fault, except that of a torn last line: a program that still writes, or that was killed,
            leaves whole lines before it.
    """
    faults = SkipLog(strict=True) if strict else skips
    with open_file(path) as file:
        number, end = 0, 0
        while raw := file.readline(MAX_BYTES + 1):
            number += 1
            offset, end = end, end + len(raw)
            skips.read += bool(raw.strip())
            if len(raw) > MAX_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_BYTES)
                    end += len(raw)
                faults.fault(ImportFailed(f"line {number}: longer than {MAX_BYTES >> 20} MB", "cut it"))
            elif raw.strip():
                try:
                    value = _parse(raw, number, offset)
                except ImportFailed as exc:
                    torn = not raw.endswith(b"\n") and ends_within_value(exc.__cause__)
                    (skips if torn else faults).fault(torn_line(number) if torn else exc)
                else:
                    yield JsonLine(number, offset, value)


def in_time(places: Iterable[Place], times: Iterable[float]) -> Sequence[Place]:
    """Return the places of messages in the order of their times, unless one of them has no time (NaN)."""
    ordered, moments = list(places), list(times)
    if any(moment != moment for moment in moments):
        return ordered
    return [place for _, place in sorted(zip(moments, ordered, strict=True), key=lambda pair: pair[0])]


def lines_at(path: Path, places: Iterable[tuple[int, int]]) -> Iterator[JsonLine]:
    """Yield the lines at these (number, offset), which were read before. A line that changed since is left out."""
    with open_file(path) as file:
        for number, offset in places:
            file.seek(offset)
            try:
                yield JsonLine(number, offset, _parse(file.readline(MAX_BYTES), number, offset))
            except ImportFailed:
                continue


def read_values(path: Path) -> Generator[Any, None, None]:
    """Yield the elements of the list that the file holds, one after the other, or the one value that it holds.

    Elements before a fault are yielded before `ImportFailed` is raised, with the line of the fault.
    """
    with open_file(path) as file:
        text = _Text(file)
        text.skip_blanks()
        in_list = text.peek() == "["
        if in_list:
            text.take()
            text.skip_blanks()
        if in_list and text.peek() == "]":
            text.take()
        elif in_list:
            while True:
                yield text.read_value()
                text.skip_blanks()
                if (mark := text.peek()) == "]":
                    text.take()
                    break
                if mark != ",":
                    raise text.fault_here("expecting ',' delimiter")
                text.take()
                text.skip_blanks()
        else:
            yield text.read_value()
        text.skip_blanks()
        if text.peek():
            raise text.fault_here("extra data")


class _Text:
    """The text of a file that is read on as a JSON value needs it. A value is parsed when the text holds all of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        # Elements are taken by position: to cut the text for each would copy it each time.
        self._at = 0
        self._line = 1
        self._bytes = 0
        self._ended = False
        self._undecodable: ImportFailed | None = None

    def peek(self) -> str:
        """Return the next character, "" at the end of the file. Raises `ImportFailed` if the next byte is no UTF-8."""
        while self._at == len(self._text) and self._read_on(CHUNK_BYTES):
            pass
        if self._at == len(self._text) and self._undecodable is not None:
            raise self._undecodable
        return self._text[self._at : self._at + 1]

    def go_to(self, end: int) -> None:
        """Go on at a later position of the text."""
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def take(self) -> None:
        """Go on after the next character."""
        self.go_to(self._at + 1)

    def skip_blanks(self) -> None:
        """Go on to the next character that is not blank."""
        while self.peek() and (match := _BLANKS.match(self._text, self._at)):
            self.go_to(match.end())

    def read_value(self) -> Any:
        """Return the next value, and go on after it."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as exc:
                # Text that ends within a value looks like a fault at its end, or at the beginning of its last string.
                if exc.pos < len(self._text) - _TOKEN_CHARS and not exc.msg.startswith("Unterminated"):
                    raise self.fault(exc.pos, exc.msg) from exc
                if not self._read_on(max(CHUNK_BYTES, len(self._text) - self._at)):
                    raise self._undecodable or self.fault(exc.pos, exc.msg) from exc
            except ValueError as exc:
                raise _unreadable(self._line, "a number in it is too long") from exc
            else:
                # A number may go on: "1" is a value, and so is "1.5e3".
                cut = isinstance(value, int | float) and _NUMBER_END.fullmatch(self._text, end)
                if not cut or not self._read_on(CHUNK_BYTES):
                    self.go_to(end)
                    return value
            self._check_size()

    def fault(self, position: int, message: str) -> ImportFailed:
        """Return the error about the text at `position`."""
        return _not_json(self._line + self._text.count("\n", self._at, position), message)

    def fault_here(self, message: str) -> ImportFailed:
        """Return the error about the next character."""
        return self.fault(self._at, message)

    def _check_size(self) -> None:
        """Raise `ImportFailed` if the next value, of which the text holds a part, would take too much memory."""
        size = len(self._text) - self._at
        if size > MAX_BYTES:
            raise ImportFailed(
                f"line {self._line}: a conversation of more than {MAX_BYTES >> 20} MB", "split the file"
            )
        if size > MAX_VALUES:
            try:
                check_json_size(self._text[self._at :].encode("utf-8", "surrogatepass"))
            except JsonTooLarge as exc:
                raise ImportFailed(
                    f"line {self._line}: a conversation of more than {MAX_VALUES:,} values", "split the file"
                ) from exc

    def _read_on(self, size: int) -> bool:
        """Read about `size` bytes more. Return False at the end of the file, or of what can be decoded."""
        if self._ended:
            return False
        raw = self._file.read(size)
        self._ended = not raw
        self._bytes += len(raw)
        try:
            more = self._decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as exc:
            self._ended = True
            self._undecodable = _not_utf8(self._bytes - len(exc.object) + exc.start)
            more = exc.object[: exc.start].decode()
        self._text, self._at = self._text[self._at :] + more, 0
        return True


def read_records(path: Path, skips: SkipLog, *, strict: bool = False) -> Iterator[Any]:
    """Yield the JSON values of a file: a value a line, or the elements of its list, or its one value.

    Args:
        strict: See `read_lines`.
    """
    if first_lines(path, 1):
        return (line.value for line in read_lines(path, skips, strict=strict))
    return _counted(read_values(path), skips)


def _counted(values: Iterable[Any], skips: SkipLog) -> Iterator[Any]:
    for value in values:
        skips.read += 1
        yield value


def first_lines(path: Path, count: int) -> list[JsonLine]:
    """Return the first lines of a file that has one JSON object a line, [] for any other file."""
    if not first_bytes(path).startswith(b"{"):
        return []
    lines = list(islice(read_lines(path, SkipLog()), count))
    return lines if lines and lines[0].number == 1 and isinstance(lines[0].value, dict) else []


def first_bytes(path: Path) -> bytes:
    """Return the first 16 bytes that are not blank, by which kinds of files differ; b"" for an empty file."""
    with open_file(path) as file:
        while head := file.read(4096):
            if found := head.removeprefix(codecs.BOM_UTF8).lstrip():
                return found[:16]
    return b""


def open_file(path: Path) -> BinaryIO:
    """Open a file. Raises `ImportFailed` if it can't be read."""
    try:
        return path.open("rb")
    except OSError as exc:
        raise ImportFailed(f"can't be read: {exc.strerror or exc}", "check the path") from exc


def _parse(raw: bytes, number: int, offset: int) -> Any:
    try:
        return parse_json(raw.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as exc:
        raise _not_utf8(offset + exc.start) from exc
    except json.JSONDecodeError as exc:
        raise _not_json(number, exc.msg) from exc
    except ValueError as exc:
        raise _unreadable(number, str(exc)) from exc
    except RecursionError:
        raise ImportFailed(f"line {number}: nested too deeply", "no conversation looks like that") from None


def _not_utf8(position: int) -> ImportFailed:
    return ImportFailed(f"byte {position} is not UTF-8 text", "save the file as UTF-8")


def _not_json(number: int, message: str) -> ImportFailed:
    return ImportFailed(
        f"line {number}: it is no JSON, {message.lower()}", "correct the line, or make the file anew"
    )


def _unreadable(number: int, reason: str) -> ImportFailed:
    return ImportFailed(
        f"line {number}: it can't be read as JSON, {reason}", "correct the line, or make the file anew"
    )


# -------------------------------------------------------------------------------------------------------------- fields

_ROLES = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    # Instructions to a model are no part of the conversation.
    "system": "",
    "developer": "",
}


def expected(where: str, what: str, found: object) -> ImportFailed:
    """Return the error for a wrong value at `where`."""
    shown = repr(found)
    return ImportFailed(
        f"{where}: expected {what}, found {shown if len(shown) <= 60 else shown[:57] + '...'}",
        "correct the file, or name its format",
    )


def read_object(value: object, where: str, what: str = "an object") -> Mapping[str, Any]:
    """Return the value if it is a JSON object. Raises `ImportFailed`."""
    if not isinstance(value, dict):
        raise expected(where, what, value)
    return value


def read_list(value: object, where: str, what: str = "a list") -> Sequence[Any]:
    """Return the value if it is a JSON list. Raises `ImportFailed`."""
    if not isinstance(value, list):
        raise expected(where, what, value)
    return value


def read_role(value: object, where: str) -> str:
    """Return user, assistant or tool, "" for instructions, which are not imported."""
    if not isinstance(value, str) or value not in _ROLES:
        raise expected(where, f"a role ({', '.join(_ROLES)})", value)
    return _ROLES[value]


def read_text(value: object, where: str) -> str:
    """Return an optional short text, "" for null. A number becomes text."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise expected(where, "text", value)
    return whole_text(str(value))


def read_time(value: object, where: str) -> float | None:
    """Return seconds since the epoch, None if there is no time.

    The value is an ISO 8601 text (UTC if it names no zone), or a number of seconds or of milliseconds.
    """
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            # A time after the year 5000 would be taken for milliseconds when it is stored.
            if epoch_seconds(at) in (None, at):
                return at
    except (ValueError, OverflowError):
        pass
    if (seconds := epoch_seconds(value)) is not None:
        return seconds
    raise expected(where, "seconds since the epoch or an ISO 8601 time", value)


def read_moment(value: object) -> float:
    """Return a time in epoch seconds for the order of messages, NaN if there is none or it can't be read."""
    try:
        at = read_time(value, "")
    except ImportFailed:
        at = None
    return nan if at is None else at


def read_fact(read: Callable[[object, str], Fact], value: object, where: str, skips: SkipLog) -> Fact | None:
    """Return a fact about a session, such as its title, as `read_text` or `read_time` reads it.

    A fact that can't be read is logged as a fault, and None is returned: it must not cost the session.
    """
    try:
        return read(value, where)
    except ImportFailed as exc:
        skips.open(1, records=0)
        skips.fault(exc)
        return None


def whole_text(text: str) -> str:
    """Replace lone surrogates, which JSON can spell and no encoding can store."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def json_digest(value: object) -> str:
    """Return sixteen hex digits that identify this JSON value, the same on every machine."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]

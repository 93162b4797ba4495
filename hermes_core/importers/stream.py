"""Reading of large JSON files in pieces, and checked reading of the fields of a message.

A file is read a line at a time, or an element of its list at a time. Errors name the place and what was expected there.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from hermes_core.errors import ImportFailed
from hermes_core.importers.values import SkipLog
from hermes_core.safety.json_size import MAX_VALUES, parse_json
from hermes_core.sessions.records import epoch_seconds

# A limit for one line or one element of a list, since each is held in memory. Only pictures within the text
# make more.
MAX_BYTES = 256 * 2**20

# Python's own JSON functions, which later steps use, fail at a depth of about 1,000.
MAX_DEPTH = 500

CHUNK_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class JsonLine:
    """A line that holds JSON. `offset` is its first byte; `number` counts from 1."""

    number: int
    offset: int
    value: Any


def read_lines(path: Path, skips: SkipLog) -> Iterator[JsonLine]:
    """Yield every line but the blank ones. A line that is no JSON is logged as a fault."""
    with open_file(path) as file:
        number, end = 0, 0
        while raw := file.readline(MAX_BYTES + 1):
            number += 1
            offset, end = end, end + len(raw)
            if len(raw) > MAX_BYTES:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_BYTES)
                    end += len(raw)
                skips.fault(ImportFailed(f"line {number}: longer than {MAX_BYTES >> 20} MB", "cut it"))
            elif raw.strip():
                try:
                    yield JsonLine(number, offset, _parse(raw, number, offset))
                except ImportFailed as exc:
                    skips.fault(exc)


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
    import ijson

    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events)
    decoder = codecs.getincrementaldecoder("utf-8")()
    builder, depth, in_list, size, values = ijson.ObjectBuilder(), 0, False, 0, 0
    number, position, fault = 1, 0, None
    with open_file(path) as file:
        while fault is None:
            # Fed line by line, since the parser does not say where a fault is. A long line comes in chunks.
            raw = file.readline(CHUNK_BYTES)
            if position == 0:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                # The parser names no place for bytes that are no UTF-8, so they are decoded here too.
                decoder.decode(raw, final=not raw)
                if raw:
                    parser.send(raw)
                else:
                    parser.close()
            except UnicodeDecodeError as exc:
                fault = _not_utf8(position + exc.start - len(exc.object) + len(raw))
            except ijson.JSONError as exc:
                text = str(exc).partition("\n")[0].partition("\\n")[0]
                fault = _not_json(number, text.rpartition("error: ")[2])
            except (SystemError, ValueError) as exc:
                # A number of more digits than Python converts; the last event is unusable then.
                raise _unreadable(number, "a number in it is too long") from exc
            for event, value in events:
                opens = event in ("start_array", "start_map")
                if depth == 0 and not in_list and event == "start_array":
                    in_list = True
                    continue
                if depth == 0 and event == "end_array":
                    continue
                values += 1
                if values > MAX_VALUES:
                    raise ImportFailed(
                        f"line {number}: a conversation of more than {MAX_VALUES:,} values", "split the file"
                    )
                builder.event(event, float(value) if isinstance(value, Decimal) else value)
                depth += 1 if opens else -1 if event in ("end_array", "end_map") else 0
                # ijson itself has no limit, and a hostile file of brackets would fill the memory.
                if depth > MAX_DEPTH:
                    raise ImportFailed(f"line {number}: nested too deeply", "no conversation looks like that")
                if depth == 0:
                    yield builder.value
                    builder, size, values = ijson.ObjectBuilder(), 0, 0
            events.clear()
            if not raw:
                break
            position, size = position + len(raw), size + len(raw)
            number += raw.count(b"\n")
            if size > MAX_BYTES:
                raise ImportFailed(
                    f"line {number}: a conversation of more than {MAX_BYTES >> 20} MB", "split the file"
                )
    if fault is not None:
        raise fault


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


def read_content(value: object, where: str) -> str:
    """Return the text of a message: a string, null, or a list of parts. Parts without text are left out."""
    if value is None:
        return ""
    if isinstance(value, str):
        return whole_text(value)
    texts = []
    for part in read_list(value, where, "text or a list of parts"):
        text = part if isinstance(part, str) else read_object(part, where, "text or an object").get("text")
        if isinstance(text, str) and text.strip():
            texts.append(whole_text(text))
    return "\n".join(texts)


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
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    if (seconds := epoch_seconds(value)) is not None:
        return seconds
    raise expected(where, "seconds since the epoch or an ISO 8601 time", value)


def whole_text(text: str) -> str:
    """Replace lone surrogates, which JSON can spell and no encoding can store."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def json_digest(value: object) -> str:
    """Return sixteen hex digits that identify this JSON value, the same on every machine."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def tool_call(call_id: str, name: str, arguments: object) -> dict[str, object]:
    """Return a tool call in the form of chat APIs. Arguments that are no text become JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}

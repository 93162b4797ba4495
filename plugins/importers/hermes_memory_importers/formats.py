"""The formats of files with conversations: our own, and those of extensions."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from hermes_core.config import Config
from hermes_core.contract.extensions import ImporterEntry
from hermes_core.errors import ImportFailed
from hermes_core.loader.extensions import (
    Extensions,
    extension_remedy,
    import_target,
    load_extensions,
)
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_memory_importers.stream import first_bytes, first_lines, read_values
from hermes_memory_importers.unpack import unpack
from hermes_memory_importers.values import (
    ImportedRecord,
    ImportedSession,
    ImportedTurn,
    SkipLog,
    StreamedItem,
)

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

JSONL = ImporterEntry(
    "jsonl",
    "JSON Lines with session, role and content",
    "hermes_memory_importers.jsonl:read_jsonl",
    "hermes_memory_importers.jsonl:score_jsonl",
    lines_only=True,
)
"""Our own format."""

SQLITE_MAGIC = b"SQLite format 3\0"

# The first line is not enough to detect a format: tools begin their files with records of their own.
_INSPECTED_LINES = 20

# Each is a whole conversation.
_INSPECTED_ELEMENTS = 3


def known_formats(extensions: Extensions) -> list[str]:
    """Return the values of `format` in `read_file`."""
    return ["auto", *sorted({JSONL.name, *extensions.importers})]


def read_file(
    path: Path | str,
    format: str = "auto",  # noqa: A002 (the option's name)
    extensions: Extensions | None = None,
) -> list[ImportedSession]:
    """Return every conversation of a file, in its order.

    Raises `ImportFailed` with the file, the place in it and what was expected there. Nothing is read in part.
    """
    items = stream_file(path, format, SkipLog(strict=True), extensions)
    sessions = (replace(item[0], turns=tuple(item[1])) for item in items if isinstance(item, tuple))
    # A file may hold the same conversation twice; its later state counts.
    return list({session.id: session for session in sessions if session.turns}.values())


def stream_file(
    path: Path | str,
    format: str = "auto",  # noqa: A002 (the option's name)
    skips: SkipLog | None = None,
    extensions: Extensions | None = None,
) -> Iterator[StreamedItem]:
    """Yield every conversation and every saved memory of a file, with at most one conversation of a list, or one turn, in memory.

    Args:
        format: Name of the format; default "auto", which detects it.
        skips: Log of what is left out; default: a new one.
        extensions: The extensions that register formats; default: all that are installed.

    Raises:
        ImportFailed: Nothing can be read, or there is a fault in a format that people write themselves (jsonl, locomo);
            then nothing is yielded.
    """
    file = Path(path)
    loaded = load_extensions(Config()) if extensions is None else extensions
    entry = None if format == "auto" else _named(format, loaded)
    log = SkipLog() if skips is None else skips
    try:
        with unpack(file, log) as plain:
            head = first_bytes(plain)
            if not head:
                raise ImportFailed("the file is empty", _known_shapes(loaded))
            entry = entry or _detect(plain, head, loaded)
            if entry.lines_only and not first_lines(plain, 1):
                # A fault in the file is the better reason.
                next(read_values(plain), None)
                raise ImportFailed(f"the format {entry.name!r} has one object a line", "name another format")
            for item in _guarded(partial(_reader(entry, loaded), plain, log), entry):
                if isinstance(item, ImportedRecord):
                    log.stored += 1
                    yield item
                else:
                    session, turns = item
                    yield session, _CountedTurns(turns, log, entry)
    except ImportFailed as exc:
        raise ImportFailed(f"{str(file)!r}: {exc.message}", exc.remedy) from exc
    except RecursionError:
        raise ImportFailed(f"{str(file)!r}: nested too deeply", "no conversation looks like that") from None


def is_known(path: Path, extensions: Extensions) -> bool:
    """Return False for an empty file, and for one that `stream_file` refuses because it knows no such format.

    Raises `ImportFailed` for a file that can't be read.
    """
    with unpack(path, SkipLog()) as file:
        head = first_bytes(file)
        try:
            return bool(head) and _recognise(file, head, extensions)[0] is not None
        except (_RefusedFile, RecursionError):
            return False


class _CountedTurns:
    """The turns of a session, which the account gets as stored."""

    def __init__(self, turns: Iterable[ImportedTurn], skips: SkipLog, entry: ImporterEntry) -> None:
        self._turns, self._skips, self._entry = turns, skips, entry
        self._counted = 0

    def __iter__(self) -> Iterator[ImportedTurn]:
        for number, turn in enumerate(_guarded(partial(iter, self._turns), self._entry), 1):
            # The turns of a session may be iterated several times.
            if number > self._counted:
                self._counted = number
                self._skips.stored += sum(message.parts for message in turn.messages)
            yield turn


def _guarded(start: Callable[[], Iterable[Item]], entry: ImporterEntry) -> Iterator[Item]:
    """Yield what an importer yields. Raises `ImportFailed` for any fault of its code: no file must end the program."""
    items = call_foreign(lambda: iter(start()))
    end = object()
    while not isinstance(items, ForeignError):
        item = call_foreign(next, items, end)
        if isinstance(item, ForeignError):
            items = item
        elif item is end:
            return
        else:
            yield cast(Item, item)
    if isinstance(items.error, ImportFailed | RecursionError):
        raise items.error
    raise _fault_of(entry, items) from items.error


class _RefusedFile(ImportFailed):
    """Reason of an importer why no format can read a file."""


def _named(name: str, extensions: Extensions) -> ImporterEntry:
    """Return the importer of a format. Raises `ImportFailed` if there is none."""
    entry = JSONL if name == JSONL.name else extensions.importers.get(name)
    if entry is not None:
        return entry
    raise ImportFailed(f"{name!r} is no format", f"use one of {', '.join(known_formats(extensions))}")


def _detect(file: Path, head: bytes, extensions: Extensions) -> ImporterEntry:
    """Return the importer of a file. Raises `ImportFailed` if none knows it."""
    entry, values = _recognise(file, head, extensions)
    if entry is not None:
        return entry
    if head == SQLITE_MAGIC:
        raise ImportFailed("no known format: it is a database of SQLite", _known_shapes(extensions))
    first: Any = next((value for value in values if value is not None), [])
    begins = sorted(first)[:8] if isinstance(first, dict) else type(first).__name__
    raise ImportFailed(f"no known format: it begins with {begins!r}", _known_shapes(extensions))


def _recognise(file: Path, head: bytes, extensions: Extensions) -> tuple[ImporterEntry | None, list[Any]]:
    """Return the importer of a file, and the first values. Raises `ImportFailed` for a fault in what nobody knows."""
    try:
        values = _first_values(file, head)
    except ImportFailed:
        if entry := _find(file, head, [None], extensions):
            return entry, [None]
        raise
    return _find(file, head, values, extensions), values


def _first_values(file: Path, head: bytes) -> list[Any]:
    """Return the first JSON values of a file, [None] for a database, which is no text."""
    if head == SQLITE_MAGIC:
        return [None]
    if lines := first_lines(file, _INSPECTED_LINES):
        return [line.value for line in lines]
    values = read_values(file)
    try:
        found = [next(values, None)]
        # A fault further on is met when the file is read.
        with contextlib.suppress(ImportFailed):
            found += islice(values, _INSPECTED_ELEMENTS - 1)
        return found
    finally:
        # Else the file stays open for as long as anybody keeps an exception.
        values.close()


def _find(file: Path, head: bytes, values: list[Any], extensions: Extensions) -> ImporterEntry | None:
    """Return the importer with the highest score for any of the values; of several, the first."""
    refusal: ImportFailed | None = None
    best: tuple[int, ImporterEntry | None] = (0, None)
    entries = [JSONL, *extensions.importers.values()]
    for value in values:
        for entry in list(entries):
            score = call_foreign(partial(_score, entry, file, head, value))
            if isinstance(score, ForeignError):
                refusal = _refusal(entry, score)
                entries.remove(entry)
            elif score > best[0]:
                best = score, entry
    if best[1] is not None:
        return best[1]
    if refusal is not None:
        raise refusal
    return None


def _score(entry: ImporterEntry, file: Path, head: bytes, value: Any) -> int:
    return int(import_target(entry.looks_like)(file, head, value))


def _refusal(entry: ImporterEntry, failed: ForeignError) -> ImportFailed:
    if isinstance(failed.error, ImportFailed):
        return _RefusedFile(failed.error.message, failed.error.remedy)
    logger.warning("the importer %r of the extension %r raised: %s", entry.name, entry.extension, failed)
    return _fault_of(entry, failed)


def _fault_of(entry: ImporterEntry, failed: ForeignError) -> ImportFailed:
    return ImportFailed(
        f"the importer {entry.name!r} raised {failed}", f"report it to the author of {entry.extension!r}"
    )


def _reader(entry: ImporterEntry, extensions: Extensions) -> Any:
    """Return the function that reads a format. Raises `ImportFailed` if its module can't be imported."""
    reader = call_foreign(lambda: import_target(entry.target))
    if isinstance(reader, ForeignError):
        remedy = extension_remedy(extensions, entry.extension)
        raise ImportFailed(
            f"the importer {entry.name!r} can't be imported: {reader}", remedy
        ) from reader.error
    return reader


def _known_shapes(extensions: Extensions) -> str:
    entries: Mapping[str, ImporterEntry] = {**extensions.importers, JSONL.name: JSONL}
    return f"known are {', '.join(entries[name].about for name in sorted(entries))}"

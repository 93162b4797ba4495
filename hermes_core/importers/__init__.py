"""Importers of conversations of other tools.

`read_file` and `stream_file` detect the format of a file. Ids are derived from the content of the file, so that a second
import of the same file, or of a later export that continues the same sessions, is recognised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, get_args

from hermes_core.errors import ImportFailed
from hermes_core.importers.claude_ai import MESSAGES as CLAUDE_AI_MESSAGES
from hermes_core.importers.claude_ai import stream_claude_ai
from hermes_core.importers.claude_code import is_claude_code, read_claude_code
from hermes_core.importers.codex import is_codex, read_codex
from hermes_core.importers.hermes_agent import (
    SQLITE_MAGIC,
    is_hermes_agent,
    is_hermes_export,
    read_hermes_agent,
    stream_hermes_export,
)
from hermes_core.importers.jsonl import read_jsonl
from hermes_core.importers.locomo import is_sample, read_locomo
from hermes_core.importers.openai import is_openai, stream_openai
from hermes_core.importers.stream import JsonLine, first_bytes, read_lines, read_values
from hermes_core.importers.unpack import find_files, unpack
from hermes_core.importers.values import (
    ImportedMessage,
    ImportedSession,
    ImportedTurn,
    Skip,
    SkipLog,
    StreamedSession,
)

__all__ = [
    "FORMATS",
    "ImportedMessage",
    "ImportedSession",
    "ImportedTurn",
    "Skip",
    "SkipLog",
    "find_files",
    "is_known",
    "read_file",
    "stream_file",
]

Format = Literal["auto", "claude-ai", "claude-code", "codex", "hermes-agent", "jsonl", "locomo", "openai"]

FORMATS: tuple[Format, ...] = get_args(Format)
"""The values of `format` in `read_file`."""

_KNOWN_SHAPES = (
    "known are session files of Claude Code and Codex, conversations.json of claude.ai and of ChatGPT, state.db and "
    "exports of Hermes Agent, OpenAI (messages), LoCoMo (sessions with dia_id) and JSON Lines with session, role and content"
)

_WHOLE_CONVERSATIONS = {
    "claude-ai": stream_claude_ai,
    "hermes-agent": stream_hermes_export,
    "openai": stream_openai,
}
"""Formats in which a value is a whole conversation; the file is one document, or has one value a line."""

# The first line is not enough to detect a format: tools begin their files with records of their own.
_INSPECTED_LINES = 20


def read_file(path: Path | str, format: Format = "auto") -> list[ImportedSession]:  # noqa: A002 (the option's name)
    """Return every conversation of a file, in its order.

    Raises `ImportFailed` with the file, the place in it and what was expected there. Nothing is read in part.
    """
    sessions = (
        replace(session, turns=tuple(turns))
        for session, turns in stream_file(path, format, SkipLog(strict=True))
    )
    # A file may hold the same conversation twice; its later state counts.
    return list({session.id: session for session in sessions if session.turns}.values())


def stream_file(
    path: Path | str,
    format: Format = "auto",  # noqa: A002 (the option's name)
    skips: SkipLog | None = None,
) -> Iterator[StreamedSession]:
    """Yield every conversation of a file, with at most one conversation of a list, or one turn, in memory.

    Args:
        format: The format, "auto" to detect it.
        skips: Collects what is left out.

    Raises:
        ImportFailed: Nothing can be read, or there is a fault in a format that people write themselves (jsonl, locomo);
            then nothing is yielded.
    """
    file = Path(path)
    if format not in FORMATS:
        raise ImportFailed(f"{format!r} is no format", f"use one of {', '.join(FORMATS)}")
    try:
        with unpack(file) as plain:
            yield from _read(plain, format, SkipLog() if skips is None else skips)
    except ImportFailed as exc:
        raise ImportFailed(f"{str(file)!r}: {exc.message}", exc.remedy) from exc
    except RecursionError:
        raise ImportFailed(f"{str(file)!r}: nested too deeply", "no conversation looks like that") from None


def is_known(path: Path) -> bool:
    """Return False for an empty file, and for one that `stream_file` refuses because it knows no such format.

    Raises `ImportFailed` for a file that can't be read.
    """
    with unpack(path) as file:
        first = first_bytes(file)
        if not first or first == SQLITE_MAGIC:
            return bool(first) and is_hermes_agent(file)
        try:
            lines = _first_lines(file, first)
            values = [line.value for line in lines] or [next(read_values(file), None)]
        except RecursionError:
            return False
        return any(isinstance(value, Mapping) and _format_of(value) for value in values)


def _read(file: Path, wanted: Format, skips: SkipLog) -> Iterator[StreamedSession]:
    first = first_bytes(file)
    if not first:
        raise ImportFailed("the file is empty", _KNOWN_SHAPES)
    # A database is no text: no other reader may see it.
    if first == SQLITE_MAGIC or (wanted == "hermes-agent" and not first.startswith((b"{", b"["))):
        return read_hermes_agent(file, skips)
    lines = _first_lines(file, first)
    if not lines:
        return _read_document(file, wanted, skips)
    found = _detect([line.value for line in lines]) if wanted == "auto" else wanted
    if found == "claude-code":
        return read_claude_code(file, skips)
    if found == "codex":
        return read_codex(file, skips)
    if stream := _WHOLE_CONVERSATIONS.get(found):
        return stream((line.value for line in read_lines(file, skips)), skips)
    if found == "locomo":
        return _read_locomo([line.value for line in read_lines(file, SkipLog(strict=True))])
    return read_jsonl(file, skips)


def _first_lines(file: Path, first: bytes) -> list[JsonLine]:
    """Return the first lines of a file that has one JSON object a line, [] for any other file."""
    lines = list(islice(read_lines(file, SkipLog()), _INSPECTED_LINES)) if first.startswith(b"{") else []
    return lines if lines and lines[0].number == 1 and isinstance(lines[0].value, dict) else []


def _read_document(file: Path, wanted: Format, skips: SkipLog) -> Iterator[StreamedSession]:
    """Read a file that is one JSON value over many lines, or a list."""
    values = read_values(file)
    with contextlib.ExitStack() as refused:
        # Else the file stays open for as long as anybody keeps the exception.
        refused.callback(values.close)
        first = next(values, None)
        found = _detect([first]) if wanted == "auto" else wanted
        whole = chain([first] if first is not None else [], values)
        if found == "locomo":
            return _read_locomo(list(whole))
        if stream := _WHOLE_CONVERSATIONS.get(found):
            refused.pop_all()
            return stream(whole, skips)
        raise ImportFailed(f"the format {found!r} has one object a line", "name another format")


def _read_locomo(samples: list[Any]) -> Iterator[StreamedSession]:
    return ((replace(session, turns=()), session.turns) for session in read_locomo(samples))


def _detect(values: Iterable[Any]) -> Format:
    """Return the format of the first value that shows one. Raises `ImportFailed` if none does."""
    values = list(values)
    for value in values:
        if isinstance(value, Mapping) and (found := _format_of(value)) is not None:
            return found
    first: Any = next((value for value in values if value is not None), [])
    begins = sorted(first)[:8] if isinstance(first, dict) else type(first).__name__
    raise ImportFailed(f"no known format: it begins with {begins!r}", _KNOWN_SHAPES)


def _format_of(value: Mapping[str, Any]) -> Format | None:
    """Return the format that several facts about a value show together; None if one of them is missing.

    Other programs have keys of the same names, and a wrong guess would import something else than was said.
    """
    if is_sample(value):
        return "locomo"
    if isinstance(value.get(CLAUDE_AI_MESSAGES), list):
        return "claude-ai"
    if "session" in value and "role" in value:
        return "jsonl"
    # Its sessions have the shape of a chat too, and facts that a chat lacks: the user, the parent, the source.
    if is_hermes_export(value):
        return "hermes-agent"
    if is_openai(value):
        return "openai"
    if is_codex(value):
        return "codex"
    return "claude-code" if is_claude_code(value) else None

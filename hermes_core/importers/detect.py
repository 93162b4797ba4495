"""Which format a file has, found in what it holds; and the functions that read a file, whole or a turn at a time."""

from __future__ import annotations

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
from hermes_core.importers.hermes_agent import SQLITE, read_hermes_agent
from hermes_core.importers.jsonl import read_jsonl
from hermes_core.importers.openai import stream_openai
from hermes_core.importers.skipped import Skipped
from hermes_core.importers.stream import Line, first_sign, read_lines, read_values
from hermes_core.importers.values import ImportedSession, StreamedSession

Format = Literal["auto", "claude-ai", "claude-code", "codex", "hermes-agent", "jsonl", "locomo", "openai"]

FORMATS: tuple[Format, ...] = get_args(Format)
"""What `read_file` takes as `format`."""

_SHAPES = (
    "known are session files of Claude Code and Codex, conversations.json of claude.ai and of ChatGPT, state.db of "
    "Hermes Agent, OpenAI (messages), LoCoMo (sessions with dia_id) and JSON Lines with session, role and content"
)

_PACKED = {b"PK\x03\x04": "a ZIP archive", b"\x1f\x8b": "packed with gzip"}
"""How the exports of ChatGPT and others begin, as they come, and what people keep them in."""

_STREAMS = {"claude-ai": stream_claude_ai, "openai": stream_openai}
"""Formats of whole conversations, in one document or one a line."""

_LOOKED_AT = 20
"""Lines among which one must tell the format: tools begin their files with notes of their own."""


def read_file(path: Path | str, format: Format = "auto") -> list[ImportedSession]:  # noqa: A002 (the option's name)
    """Read every conversation of a file, in its order.

    Raises `ImportFailed` with the file, the place in it and what was expected there; nothing is half read.
    """
    sessions = (
        replace(session, turns=tuple(turns))
        for session, turns in stream_file(path, format, Skipped(strict=True))
    )
    # The same conversation twice in one file is one conversation; the later state of it counts.
    return list({session.id: session for session in sessions if session.turns}.values())


def stream_file(
    path: Path | str,
    format: Format = "auto",  # noqa: A002 (the option's name)
    skipped: Skipped | None = None,
) -> Iterator[StreamedSession]:
    """The same, with no more in memory than one conversation of a list, or one turn of a tool's own file.

    What `skipped` collects is left out and the rest is read. Raises `ImportFailed` where nothing can be read at all,
    and for a fault of the formats that people write themselves (jsonl, locomo), before anything is handed out.
    """
    file = Path(path)
    if format not in FORMATS:
        raise ImportFailed(f"{format!r} is no format", f"use one of {', '.join(FORMATS)}")
    try:
        yield from _read(file, format, Skipped() if skipped is None else skipped)
    except ImportFailed as exc:
        raise ImportFailed(f"{str(file)!r}: {exc.message}", exc.remedy) from exc
    except RecursionError:
        raise ImportFailed(f"{str(file)!r}: nested too deeply", "no conversation looks like that") from None


def _read(file: Path, wanted: Format, skipped: Skipped) -> Iterator[StreamedSession]:
    begins = first_sign(file)
    if not begins:
        raise ImportFailed("the file is empty", _SHAPES)
    for sign, packed in _PACKED.items():
        if begins.startswith(sign):
            raise ImportFailed(f"it is {packed}", "unpack it, and import a file that it holds")
    if wanted == "hermes-agent" or begins == SQLITE:
        return read_hermes_agent(file, skipped)
    lines = _first_lines(file) if begins.startswith(b"{") else []
    if not lines:
        return _document(file, wanted, skipped)
    found = _guess([line.value for line in lines]) if wanted == "auto" else wanted
    if found == "claude-code":
        return read_claude_code(file, skipped)
    if found == "codex":
        return read_codex(file, skipped)
    if stream := _STREAMS.get(found):
        return stream((line.value for line in read_lines(file, skipped)), skipped)
    if found == "locomo":
        return _locomo([line.value for line in read_lines(file, Skipped(strict=True))])
    return read_jsonl(file)


def _first_lines(file: Path) -> list[Line]:
    """The lines that a file begins with, none when it is one document that goes over many lines."""
    found = list(islice(read_lines(file, Skipped()), _LOOKED_AT))
    return found if found and found[0].number == 1 and isinstance(found[0].value, dict) else []


def _document(file: Path, wanted: Format, skipped: Skipped) -> Iterator[StreamedSession]:
    values = read_values(file)
    first = next(values, None)
    found = _guess([first]) if wanted == "auto" else wanted
    whole = chain([first] if first is not None else [], values)
    if found == "locomo":
        return _locomo(list(whole))
    if stream := _STREAMS.get(found):
        return stream(whole, skipped)
    raise ImportFailed(f"the format {found!r} has one object a line", "name another format")


def _locomo(samples: list[Any]) -> Iterator[StreamedSession]:
    from hermes_core.importers.locomo import read_locomo

    return ((replace(session, turns=()), session.turns) for session in read_locomo(samples))


def _guess(values: Iterable[Any]) -> Format:
    first = None
    for value in values:
        if (found := _format_of(value)) is not None:
            return found
        first = value if first is None else first
    begins = sorted(first)[:8] if isinstance(first, dict) else type([] if first is None else first).__name__
    raise ImportFailed(f"no known format: it begins with {begins!r}", _SHAPES)


def _format_of(value: Any) -> Format | None:
    if not isinstance(value, Mapping):
        return None
    if "conversation" in value:
        return "locomo"
    if CLAUDE_AI_MESSAGES in value:
        return "claude-ai"
    if "session" in value and "role" in value:
        return "jsonl"
    if {"messages", "mapping", "role"} & value.keys():
        return "openai"
    if is_codex(value):
        return "codex"
    return "claude-code" if is_claude_code(value) else None

"""Which format a file has, found in what it holds; and the one function that reads a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from hermes_core.errors import ImportFailed
from hermes_core.importers.jsonl import read_jsonl
from hermes_core.importers.openai import read_openai
from hermes_core.importers.values import ImportedSession

Format = Literal["auto", "locomo", "openai", "jsonl"]

FORMATS: tuple[Format, ...] = ("auto", "locomo", "openai", "jsonl")
"""What `read_file` takes as `format`."""

_SHAPES = (
    "known are LoCoMo (sessions with dia_id), OpenAI (messages, or ChatGPT's conversations.json) "
    "and JSON Lines with session, role and content"
)


def read_file(path: Path | str, format: Format = "auto") -> list[ImportedSession]:  # noqa: A002 (the option's name)
    """Read every conversation of a file, in its order.

    Raises `ImportFailed` with the file, the place in it and what was expected there; nothing is half read.
    """
    file = Path(path)
    if format not in FORMATS:
        raise ImportFailed(f"{format!r} is no format", f"use one of {', '.join(FORMATS)}")
    try:
        return _read(_text(file), format)
    except ImportFailed as exc:
        raise ImportFailed(f"{str(file)!r}: {exc.message}", exc.remedy) from exc
    except RecursionError:
        raise ImportFailed(f"{str(file)!r}: nested too deeply", "no conversation looks like that") from None


def _read(text: str, wanted: Format) -> list[ImportedSession]:
    if not text.strip():
        raise ImportFailed("the file is empty", _SHAPES)
    data, lines = _parse(text)
    found = _guess(data, lines) if wanted == "auto" else wanted
    if found == "jsonl":
        return read_jsonl(lines if lines else [(1, data)])
    if found == "openai":
        return read_openai([line for _, line in lines] if lines else data)
    from hermes_core.importers.locomo import read_locomo

    sessions: list[ImportedSession] = read_locomo(data)
    return sessions


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ImportFailed(f"byte {exc.start} is not UTF-8 text", "save the file as UTF-8") from exc
    except OSError as exc:
        raise ImportFailed(f"can't be read: {exc.strerror or exc}", "check the path") from exc


def _parse(text: str) -> tuple[Any, list[tuple[int, Any]]]:
    """The whole file as JSON, or as numbered lines of JSON; the one that it is not, is empty."""
    try:
        return _json(text, 1), []
    except ImportFailed:
        first = text.lstrip().partition("\n")[0]
        if not (first.startswith("{") and first.rstrip().endswith("}")):
            raise
    return None, [(n, _json(line, n)) for n, line in enumerate(text.split("\n"), 1) if line.strip()]


def _json(text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise ImportFailed(f"line {line + exc.lineno - 1} is no JSON: {exc.msg.lower()}", _SHAPES) from exc
    except ValueError as exc:
        raise ImportFailed(f"line {line} can't be read as JSON: {exc}", _SHAPES) from exc


def _guess(data: Any, lines: list[tuple[int, Any]]) -> Format:
    first = lines[0][1] if lines else data
    if isinstance(first, list):
        first = first[0] if first else None
    if isinstance(first, dict):
        if "conversation" in first:
            return "locomo"
        if "session" in first and "role" in first:
            return "jsonl"
        if {"messages", "mapping", "role"} & first.keys():
            return "openai"
    found = sorted(first)[:8] if isinstance(first, dict) else type(data).__name__
    raise ImportFailed(f"no known format: it begins with {found!r}", _SHAPES)

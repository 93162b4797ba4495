"""JSON from files of anybody: refused if its values would take far more memory than its text, and told apart if it is torn."""

from __future__ import annotations

import json
import re
from typing import Any

from hermes_core.errors import ImportFailed

MAX_VALUES = 2_000_000
"""Values of one JSON text, names of fields included. Each takes up to about 100 bytes of memory.

A session of 50,000 messages has fewer. Two bytes of text are enough for a value, and three for an empty list of 56 bytes: a
packed file of 60 kB held one that took 1.5 GB.
"""

TORN = "it is no JSON, it is torn: the file ends within it"
"""Fact about a last line of which a program has written only the beginning."""

# The longest piece of JSON text, but for strings and numbers, that a parser must see whole: "-Infinity", "\\ud83d\\ude00".
_TOKEN_CHARS = 16

# A text that ends within a string or an escape matches too, so that no byte is looked at twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_MARKS = (b",", b":", b"[", b"{")


class JsonTooLarge(ValueError):
    """A JSON text with more than `MAX_VALUES` values."""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        JsonTooLarge: It has more than `MAX_VALUES` values.
        ValueError: It is no JSON.
        RecursionError: It is nested too deeply.
    """
    check_json_size(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return json.loads(text)


def check_json_size(data: bytes) -> None:
    """Raise `JsonTooLarge` if a JSON text has more than `MAX_VALUES` values. Nothing is parsed.

    >>> check_json_size(b"[1, 2, 3]")
    """
    # Each value has a mark before it, in text that is not within a string.
    if len(data) <= MAX_VALUES or sum(map(data.count, _MARKS)) <= MAX_VALUES:
        return
    bare = _STRING.sub(b"", data)
    if (values := sum(map(bare.count, _MARKS))) > MAX_VALUES:
        raise JsonTooLarge(f"it has {values:,} values, more than {MAX_VALUES:,}")


def torn_line(number: int) -> ImportFailed:
    """Return the error about a last line that has no end and is no JSON."""
    return ImportFailed(f"line {number}: {TORN}", "make the file anew")


def ends_within_value(cause: BaseException | None) -> bool:
    """Return True if a text was no JSON only because it ends too early."""
    if isinstance(cause, UnicodeDecodeError):
        return cause.reason == "unexpected end of data"
    if not isinstance(cause, json.JSONDecodeError):
        return False
    text = cause.doc.rstrip()
    # The error of a literal or a number that is cut off names its beginning.
    is_cut_word = cause.pos >= len(text) - _TOKEN_CHARS and text[cause.pos :].isalnum()
    return (
        cause.pos >= len(text) or cause.msg.startswith("Unterminated") or (text[:1] in "{[" and is_cut_word)
    )

"""JSON from files of anybody: refused if its values would take far more memory than its text."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_VALUES = 2_000_000
"""Values of one JSON text, names of fields included. Each takes up to about 100 bytes of memory.

A session of 50,000 messages has fewer. Two bytes of text are enough for a value, and three for an empty list of 56 bytes: a
packed file of 60 kB held one that took 1.5 GB.
"""

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

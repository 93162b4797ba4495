"""Formats of the keys of known services, as data in `data/key_formats.txt`, and their search in a text.

Most texts hold no key, and each text of a turn comes here. So one search for the marks of all formats decides if any
format is tried, and nothing is read or compiled before the first text with a long word.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from hermes_core.safety.assignments import compiled
from hermes_core.safety.data_file import data_lines

SHORT_WORDS = r"(?s:(?:.{0,14} )*+.{0,14}\Z)"
"""Matches text whose words are all shorter than the shortest key, private keys aside.

It jumps from a space to the last space of the next fifteen characters, in a third of the time of a match for each word.
"""

LONG_WORD = r"\S{15,}"
# Only private keys hold white space, so all other marks are searched in the long words alone.

_PRIVATE_KEY = "PRIVATE KEY"

_RANDOM_RUN = r"(?a)(?<![\w-])(?=[A-Za-z_-]{0,40}\d)[\w-]{20}"
"""Matches where a key without a mark of its own may stand: twenty characters of one word, with a digit."""

_SHAPELESS_KEY = r"(?<![\w./@#+-])[A-Za-z0-9][\w-]{19,}={0,2}(?![\w/:@-]|\.\w)"
_SERVICE = (
    r"(?i)(?<![^\W_])(?P<service>[a-z0-9]{3,20})[\"'`*]{0,2}(?:[ _-](?:api|auth|access|admin|app|client|master|openai|search|speech|secret|private|key|token|pat|account)){0,3}"
    r"[\"'`*]{0,2}(?:\s?[:=]|\sis|,)?\s{0,2}[\"'`]{0,2}\Z"
)
START = (
    r"(?:\b|(?<=\\[abefnrtv0])|(?<=\\x[0-9a-fA-F]{2})|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2})"
    r"|(?<=[\[;]\dm)|(?<=[\[;]\d\dm))"
)
"""Beginning of a word, also behind an escape of JSON, of a URL or of a terminal: `\\nsk-...`, `%20sk-...`."""

_BEFORE = 80
"""Characters before a key in which the name of its service is searched."""


class KeyFormat(NamedTuple):
    """Format of a service's keys. `pattern` is tried only on text that holds one of `marks`, if there are any."""

    kind: str
    marks: tuple[str, ...]
    pattern: str


@cache
def key_formats() -> tuple[KeyFormat, ...]:
    """Return all formats, in the order in which they are tried."""
    rows = (line.split("\t") for line in data_lines("key_formats.txt"))
    return tuple(
        KeyFormat(kind, () if marks == "-" else tuple(marks.split(",")), _located(pattern))
        for kind, marks, pattern in rows
    )


def _located(pattern: str) -> str:
    """Return a pattern of the data with its beginning of a word spelt out, and letters outside of ASCII as no letters.

    Texts without spaces between words, such as Chinese, write a key directly behind a word.
    """
    return "(?a)" + (START + pattern[2:] if pattern.startswith(r"\b") else pattern)


@cache
def services() -> frozenset[str]:
    """Return the names of services whose keys have no shape of their own, in lower case."""
    return frozenset(data_lines("services.txt"))


def without_keys(text: str) -> str:
    """Return `text` with the keys of known formats replaced by `[redacted:KIND]`."""
    if _PRIVATE_KEY not in text and compiled(SHORT_WORDS).match(text.replace("\n", " ")):
        return text
    words = compiled(LONG_WORD).findall(text)
    pattern, formats = _marks()
    # Few words hold a mark or look random. The patterns are searched in these alone, which takes a fifth of the time.
    marked = " ".join([*filter(pattern.search, words), *([_PRIVATE_KEY] if _PRIVATE_KEY in text else [])])
    random = " ".join(filter(compiled(_RANDOM_RUN).search, words))
    if not marked and not random:
        return text
    numbers = {number for mark in pattern.findall(marked) for number in formats[mark]}
    for number, form in enumerate(key_formats()):
        part = (marked if number in numbers else "") if form.marks else random
        if part and (form.kind == "private_key" or compiled(form.pattern).search(part)):
            text = compiled(form.pattern).sub(f"[redacted:{form.kind}]", text)
    if random and compiled(_SHAPELESS_KEY).search(random):
        text = _without_shapeless_keys(text)
    return text


@cache
def _marks() -> tuple[re.Pattern[str], dict[str, set[int]]]:
    """Return the pattern that matches each mark, and the numbers of the formats that have a mark beginning with it."""
    formats: dict[str, set[int]] = {}
    for number, form in enumerate(key_formats()):
        for mark in form.marks:
            formats.setdefault(mark, set()).add(number)
    shortest = {mark for mark in formats if not any(mark[:end] in formats for end in range(1, len(mark)))}
    begins = {
        begin: {n for mark in formats if mark.startswith(begin) for n in formats[mark]} for begin in shortest
    }
    # A look ahead, since marks overlap.
    return re.compile(f"(?=({_alternatives(shortest)}))"), begins


def _alternatives(words: set[str]) -> str:
    """Return a pattern for any of the words, as a tree of their letters, which is searched ten times as fast as a list."""
    if "" in words:
        return ""
    branches = [
        re.escape(first) + _alternatives({word[1:] for word in words if word[0] == first})
        for first in sorted({word[0] for word in words})
    ]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _without_shapeless_keys(text: str) -> str:
    """Redact long words directly after the name of a service, such as `datadog 0123...`: 32 digits alone may be a hash."""

    def clean(match: re.Match[str]) -> str:
        before = text[max(0, match.start() - _BEFORE) : match.start()]
        service = compiled(_SERVICE).search(before) if _looks_random(match[0]) else None
        return "[redacted:key]" if service and service["service"].lower() in services() else match[0]

    return compiled(_SHAPELESS_KEY).sub(clean, text)


def _looks_random(word: str) -> bool:
    """Return True if a word has two digits or more and a letter, so that no name or number is taken for a key."""
    address = word.startswith("0x") and len(word) < 66  # of a wallet, which is public
    return not address and sum(map(str.isdigit, word)) > 1 and any(map(str.isalpha, word))

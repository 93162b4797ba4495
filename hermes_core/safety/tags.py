"""Grammar of the fence's tags and of a system note in any disguise, as an automaton that reads one symbol at a time.

A tag is `<memory-context ...>` or `</memory-context ...>`, a note begins with `[System note`. Both are read as a person
or a model reads them: in any letter case, with look-alike letters, with characters that show nothing, with signs and
white space between the letters, and with each symbol possibly escaped, also several times (`&amp;lt;`, `&#&#54;0;`).
`<memory_context>` and `<memorycontext>` are near tags: a model may take them for the tag, but they also stand in code.
A longer name (`<memory-contexts>`) is another tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from hermes_core.safety.escapes import ESCAPE_SIGNS, read_escape
from hermes_core.safety.lookalikes import WIDE_LOOKALIKES

TAG_NAME = "memory-context"

Form = Literal["", "tag", "note"]
Kind = Literal["", "tag", "near", "note"]
Place = Literal["name", "after", "space", "attributes", "end", "ended"]

_OPENERS: dict[str, Form] = {"<": "tag", "[": "note", "(": "note", "{": "note"}
_WORDS: dict[Form, str] = {"tag": TAG_NAME.replace("-", ""), "note": "systemnote"}
# Signs that don't stand in a word. A backtick quotes a name: the scrubber shows a mention in backticks.
_SEPARATORS = "<>[]`"
_DASH = TAG_NAME.index("-")

# An escape may hold escapes (`&#&#54;0;`), which may hold more.
_MAX_NESTED_ESCAPES = 6


class TagReading(NamedTuple):
    """The beginning of a tag or note that was read.

    Attributes:
        form: What it is; "" while its bracket is still escaped.
        place: "name" in the word, "after" right behind it, then "space" and "attributes". A complete tag is at "end",
            or "ended" if it was complete without the last symbol.
        letters: Letters of the word that were read.
        closing: True if a slash stands before the first letter.
        dashed: True if the word is written with its dash.
        sure: True if the text so far is written in no other way: with a slash, with the dash, or with the word right
            behind the bracket. "tokens < memory context" is no tag.
        assigned: True if the attributes have a "=".
        escapes: Beginnings of escapes, each inside the escape before it.
    """

    form: Form = ""
    place: Place = "name"
    letters: int = 0
    closing: bool = False
    dashed: bool = False
    sure: bool = False
    assigned: bool = False
    escapes: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """The kind of the text if it is complete."""
        return "near" if self.form == "tag" and not self.dashed else self.form

    @property
    def named(self) -> bool:
        """True if this is a tag or note although it may have no end: its name was read."""
        return self.place != "name" and (self.sure or self.form == "note")


IDLE = TagReading()

OTHER_WORD = TagReading(letters=-1)
"""Result of a symbol that makes the word longer, and so another word."""


@lru_cache(maxsize=16384)
def step(reading: TagReading, symbol: str) -> tuple[TagReading, ...]:
    """Read one visible symbol. Returns all ways to read it, none if it can't follow."""
    return tuple(way for way in dict.fromkeys(_ways(reading, symbol)) if way != IDLE)


def _ways(reading: TagReading, symbol: str) -> Iterator[TagReading]:
    if not reading.escapes:
        if symbol in ESCAPE_SIGNS:
            yield reading._replace(escapes=(symbol,))
        else:
            yield from _plain(reading, symbol)
        return
    *outer, escape = reading.escapes
    rest, decoded, taken = read_escape(escape, symbol)
    if rest:
        yield reading._replace(escapes=(*outer, rest))
    if symbol in ESCAPE_SIGNS and len(reading.escapes) < _MAX_NESTED_ESCAPES:
        yield reading._replace(escapes=(*reading.escapes, symbol))
    if decoded is None:
        return
    before = reading._replace(escapes=tuple(outer))
    for way in _ways(before, decoded) if decoded else (before,):
        if taken:
            yield way
        elif ways := () if way.place == "end" else tuple(_ways(way, symbol)):
            yield from ways
        elif way.named:
            yield way._replace(place="ended")


def _plain(reading: TagReading, symbol: str) -> Iterator[TagReading]:
    """Read one symbol that is not escaped, or was decoded."""
    if not reading.form:
        if symbol in _OPENERS:
            yield TagReading(_OPENERS[symbol], sure=True)
    elif reading.place == "name":
        yield from _in_word(reading, symbol)
    elif reading.place == "after" and (symbol.isalnum() or (symbol == "_" and reading.form == "note")):
        yield OTHER_WORD
    elif reading.form == "note":
        return
    elif symbol == ">":
        if reading.place != "attributes" or reading.sure or reading.assigned:
            yield reading._replace(place="end")
    elif reading.place == "after" and symbol in "-_.:":
        yield reading
    elif reading.place != "attributes" and symbol in " /":
        yield reading._replace(place="space")
    elif symbol != "<":
        yield reading._replace(place="attributes", assigned=reading.assigned or symbol == "=")


def _in_word(reading: TagReading, symbol: str) -> Iterator[TagReading]:
    word, letters = _WORDS[reading.form], reading.letters
    if symbol == word[letters]:
        place: Place = "after" if letters + 1 == len(word) else "name"
        yield reading._replace(letters=letters + 1, place=place)
    elif symbol == "/" and not letters:
        yield reading._replace(closing=True, sure=True)
    elif not symbol.isalnum() and symbol not in _SEPARATORS:
        dashed = reading.dashed or (symbol == "-" and letters == _DASH)
        yield reading._replace(
            dashed=dashed, sure=dashed or reading.closing or (letters > 0 and reading.sure)
        )


# ------------------------------------------------------------ skipping of text

_SIGNS = set(_OPENERS) | set(ESCAPE_SIGNS)
STARTERS = _SIGNS | {form for form, sign in WIDE_LOOKALIKES.items() if sign in _SIGNS} | set("＆﹠％﹪＼﹨")
"""Characters that a tag, a note or an escape of their characters can begin with."""


def _candidate(starter: str, fillers: str, goes_on: str) -> str:
    """Return a pattern for `starter` and any of `fillers`, not followed by an ASCII character outside `goes_on`."""
    # A negated class of ASCII characters is one table lookup in `re`; a class of all that may follow is a search.
    shown = map(chr, [*range(ord("\t"), ord("\r") + 1), *range(0x1C, 0x7F)])
    rules_out = "".join(re.escape(char) for char in shown if char not in goes_on + fillers)
    run = f"[{re.escape(fillers)}]*+" if fillers else ""
    return rf"{re.escape(starter)}{run}(?:\Z()|[^{rules_out}])"


_PUNCTUATION = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f !\"#$'()*+,-./:;=?@^_`{|}~"
_ESCAPE_CANDIDATES = (
    _candidate("&", "", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ#<&\\%"),
    _candidate("\\", "", "uUxX01234567<&%\\"),
    _candidate("%", "", "0123456789abcdefABCDEFuU<&\\%"),
)


def _candidates(form: Form) -> re.Pattern[str]:
    patterns = [_candidate("<", _PUNCTUATION, "mM<&\\%"), *_ESCAPE_CANDIDATES]
    if form == "note":
        patterns += [_candidate(bracket, _PUNCTUATION, "sS<&\\%") for bracket in "[({"]
    # These are reason enough, whatever follows.
    rare = {char for char in STARTERS - _SIGNS if form == "note" or WIDE_LOOKALIKES.get(char) != "["}
    return re.compile("|".join([*patterns, *sorted(rare)]))


TAG_CANDIDATE, NOTE_CANDIDATE = _candidates("tag"), _candidates("note")
"""Characters that may begin a tag, or a tag or a note, judged by the next character: `a < b && c` holds none.

If the match has a group, the text ended before the next character.
"""

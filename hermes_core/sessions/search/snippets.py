"""Snippets: the part of a message that matched, with the matches marked as >>>this<<<."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from hermes_core.recall.rank import MAX_EXCERPT_CHARS
from hermes_core.recall.tokens import dense_runs, index_spans, term_pattern
from hermes_core.sessions.search.match import Match, phrases_of

# Length of a snippet in words; a short message is shown whole.
SNIPPET_TOKENS = 40

# Characters of a snippet before its first match, and in all.
_CHARS_BEFORE, _SNIPPET_CHARS = 40, 240

# Largest number of places of all words in a message; more would only cost time.
_MAX_PLACES = 2_000

_POSSESSIVE = re.compile(r"['’]s\b", re.IGNORECASE)

# Start and end of a part of a text, and the number of the condition that it fulfils.
_Place = tuple[int, int, int]


def snippet(content: str, matches: Sequence[Match]) -> str:
    """Return the part of a message that fulfils conditions, with the matches marked as >>>this<<<.

    If only the neighbours of the message match, return the beginning of the message.
    """
    content = unicodedata.normalize("NFC", content)
    spans: list[tuple[int, int]] = []
    for start, end, _ in sorted(islice(_places(content, matches), _MAX_PLACES)):
        if possessive := _POSSESSIVE.match(content, end):
            end = possessive.end()
        if spans and start <= spans[-1][1]:  # grams overlap
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return _window(content, spans) if spans else _head(content)


def best_part(
    content: str, matches: Sequence[Match], close: tuple[int, int] | None = None
) -> tuple[int, int] | None:
    """Return start and end of the part of a long text that answers best; None for a text of `MAX_EXCERPT_CHARS`.

    It is the part with the largest number of different words of the question.

    Args:
        content: The text.
        matches: The conditions that a message has a term of the question.
        close: Start and end of the piece that is closest to the question in meaning, which counts like a word.
    """
    if len(content) <= MAX_EXCERPT_CHARS:
        return None
    places: list[tuple[int, int]] = [((close[0] + close[1]) // 2, -1)] if close else []
    places += ((start, number) for start, _, number in islice(_places(content, matches), _MAX_PLACES))
    places.sort()
    best, start, first = 0, 0, 0
    inside: dict[int, int] = {}
    for at, number in places:  # a window that slides over the places and counts the different words in it
        inside[number] = inside.get(number, 0) + 1
        while at - places[first][0] > MAX_EXCERPT_CHARS - 2 * _CHARS_BEFORE:
            gone = places[first][1]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            first += 1
        if len(inside) > best:
            best, start = len(inside), (places[first][0] + at - MAX_EXCERPT_CHARS) // 2
    start = max(min(start, len(content) - MAX_EXCERPT_CHARS), 0)
    return _whole_words(content, start, start + MAX_EXCERPT_CHARS)


def held(text: str, matches: Sequence[Match]) -> set[int]:
    """Return the numbers of the conditions of which a text has a word or gram."""
    return {number for _, _, number in _places(text, matches)}


def _places(text: str, matches: Sequence[Match]) -> Iterator[_Place]:
    """Yield the places of a text that fulfil a phrase of a condition: first those of grams, then those of words."""
    phrases: dict[str, list[tuple[list[str], int]]] = {}
    for number, match in enumerate(matches):
        for phrase in phrases_of(match):
            first, *others = phrase.text.split() or [""]
            if dense_runs(first):
                run = re.escape(first + "".join(gram[-1] for gram in others))
                yield from ((found.start(), found.end(), number) for found in re.finditer(run, text))
            elif first:
                phrases.setdefault(first, []).append((others, number))
    for at in _word_starts(text, frozenset(term[:2] for term in phrases)) if phrases else ():
        term, start, end = next(index_spans(text, at))
        for others, number in phrases.get(term, ()):
            found = list(islice(index_spans(text, end), len(others)))
            if [other for other, _, _ in found] == others:
                yield start, found[-1][2] if found else end, number


def _word_starts(text: str, beginnings: frozenset[str]) -> Iterator[int]:
    """Yield the start of each word of a text whose term may begin so.

    To find the term of each word would take fifty times as long.
    """
    if text.isascii():
        for match in _beginning(beginnings).finditer(text.lower()):
            if not (match.start() and text[match.start() - 1].isalnum()):
                yield match.start()
        return
    for match in term_pattern().finditer(text):
        # A word with a letter beyond ASCII may be written in another way than its term.
        if not match[0].isascii() or match[0].lower().startswith(tuple(beginnings)):
            yield match.start()


@lru_cache(maxsize=64)
def _beginning(beginnings: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(beginnings))))


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end of a part, moved inwards to the ends of lines or words near them."""
    if start:
        line, word = (text.find(mark, start, start + _CHARS_BEFORE) for mark in "\n ")
        start = (line if line >= 0 else word if word >= 0 else start - 1) + 1
    if end < len(text):
        line, word = (text.rfind(mark, end - _CHARS_BEFORE, end) for mark in "\n ")
        end = line if line >= 0 else word if word >= 0 else end
    return start, end


def _window(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the part of a text with the largest number of `spans` (start and end of matches), and mark them."""
    start, end = 0, len(text)
    if end > _SNIPPET_CHARS:
        starts, near = [at for at, _ in spans], _SNIPPET_CHARS - _CHARS_BEFORE
        first = max(starts, key=lambda at: bisect_left(starts, at + near) - bisect_left(starts, at))
        start = max(first - _CHARS_BEFORE, 0)
        start = text.find(" ", start, first) + 1 or start if start else 0
        end = min(start + _SNIPPET_CHARS, len(text))
    parts, at = ["..." if start else ""], start
    for begin, stop in spans:
        if at <= begin and stop <= end:
            parts += [text[at:begin], ">>>", text[begin:stop], "<<<"]
            at = stop
    return "".join([*parts, text[at:end], "..." if end < len(text) else ""])


def _head(text: str) -> str:
    head = " ".join(text[: 10 * SNIPPET_TOKENS].split()[:SNIPPET_TOKENS])
    return head + "..." if len(head) < len(text.strip()) else head

"""Snippets: the part of a message that matched, with the matches marked as >>>this<<<."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from hermes_core.recall.letters import unaccented
from hermes_core.recall.porter import index_word_spans, index_words
from hermes_core.recall.rank import MAX_EXCERPT_CHARS
from hermes_core.recall.tokens import DENSE, MARKS, dense_runs, index_text
from hermes_core.sessions.search.match import Match, phrases_of

# Length of a snippet in words; a short message is shown whole.
SNIPPET_TOKENS = 40

# Characters of a snippet before its first match, and in all.
_CHARS_BEFORE, _SNIPPET_CHARS = 40, 240

# Largest number of places of one word in a message; more would only cost time.
_MAX_PLACES = 500

# Only words in this many characters of a message are compared by their stems, because each word has to be stemmed.
_MAX_STEMMED_CHARS = 20_000

# Characters of a message whose words are cut as in the index: 30 ms.
_MAX_INDEXED_CHARS = 100_000

_LETTER = rf"(?:(?![{DENSE}])(?:[^\W_]|[{MARKS}]))"
_FORMS = """
    's s es ed ing e d r er ers y ies ied ier ly ment ments ation ations ion ions ate ates ated ating ator al ive able
"""
# Endings by which two forms of a word may differ. They are less exact than the stems of the index, but cost less; the
# stems are compared if no word of a text looks like a match.
_ENDINGS = {"", *_FORMS.split()}


def snippet(content: str, matches: Sequence[Match]) -> str:
    """Return the part of a message that fulfils conditions, with the matches marked as >>>this<<<.

    If only the neighbours of the message match, return the beginning of the message.
    """
    content = unicodedata.normalize("NFC", content)
    lowered = content.lower().replace("’", "'")
    for_words = list(filter(_is_of_words, matches))
    possible = [m for m in for_words if _may_match(m, lowered)] if not dense_runs(content) else []
    spans = sorted(
        {span for word in _words_of(possible) for span in islice(_places(lowered, word), _MAX_PLACES)}
    )
    if len(lowered) != len(content):  # lower case changed lengths, so that the places don't fit
        spans = []
    if not spans and not possible and (marked := _mark_first(content, lowered, matches)):
        return marked
    if not content.isascii():
        spans = sorted({*spans, *islice(_places_of_stems(content, _words_of(for_words)), _MAX_PLACES)})
    if not spans and possible:
        spans = list(islice(_places_in_index(content, _words_of(possible)), _MAX_PLACES))
    if spans:
        return _window(content, spans)
    return _mark_first(content, lowered, matches) or _head(content)


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
    lowered = content.lower().replace("’", "'")
    places: list[tuple[int, int]] = [((close[0] + close[1]) // 2, -1)] if close else []
    if len(lowered) == len(content):
        places += (
            (start, number) for number, match in enumerate(matches) for start in _starts(lowered, match)
        )
    if not places and not content.isascii():
        stems = _words_of(filter(_is_of_words, matches))
        places += ((start, start) for start, _ in islice(_places_of_stems(content, stems), _MAX_PLACES))
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


def holds(text: str, match: Match) -> bool:
    """Return True if a text has a word or gram of a condition."""
    if next(_starts(text.lower().replace("’", "'"), match), None) is not None:
        return True
    stems = _words_of([match]) if _is_of_words(match) and not text.isascii() else ()
    return next(_places_of_stems(text, stems), None) is not None


def _starts(lowered: str, match: Match) -> Iterator[int]:
    """Yield the places of a condition's words or gram in a text in lower case."""
    if _is_of_words(match):
        for word in _words_of([match]):
            yield from (start for start, _ in islice(_places(lowered, word), _MAX_PLACES))
        return
    gram = next(phrases_of(match)).text
    at = lowered.find(gram)
    while at >= 0:
        yield at
        at = lowered.find(gram, at + 1)


def _is_of_words(match: Match) -> bool:
    return next(phrases_of(match)).kind == "word"


def _whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end of a part, moved inwards to the ends of lines or words near them."""
    if start:
        line, word = (text.find(mark, start, start + _CHARS_BEFORE) for mark in "\n ")
        start = (line if line >= 0 else word if word >= 0 else start - 1) + 1
    if end < len(text):
        line, word = (text.rfind(mark, end - _CHARS_BEFORE, end) for mark in "\n ")
        end = line if line >= 0 else word if word >= 0 else end
    return start, end


def _words_of(matches: Iterable[Match]) -> set[str]:
    """Return all words of conditions."""
    phrases = (phrase for match in matches for phrase in phrases_of(match))
    return {word for phrase in phrases for word in _word_pattern().findall(phrase.text)}


def _may_match(match: Match, lowered: str) -> bool:
    """Return False if no word of a condition can be in the text, so that it need not be sought."""
    return any(not phrase.text.isascii() or phrase.text[:3] in lowered for phrase in phrases_of(match))


def _places_in_index(content: str, asked: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each word of a text that the index treats like a word in `asked`."""
    stems = {stem for word in asked for stem in index_words(word)}
    for stem, start, end in index_word_spans(content[:_MAX_INDEXED_CHARS]):
        if stem in stems:
            yield start, end


def _places(lowered: str, word: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each form of `word` in the text `lowered`; both are in lower case."""
    at = lowered.find(word[:3])
    while at >= 0:
        match = _word_pattern().match(lowered, at)
        end = match.end() if match else at + 1
        if not (at and _word_pattern().match(lowered, at - 1)) and _same_word(lowered[at:end], word):
            yield at, end
        at = lowered.find(word[:3], end)


def _places_of_stems(content: str, asked: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each non-ASCII word of a text that the index treats like a word in `asked`.

    Such a word has another spelling or another ending.
    """

    @cache
    def matches(word: str) -> bool:
        form = index_text(word)
        if form in asked:
            return True
        letters = unaccented(form)  # the index holds Latin letters without accents
        return letters.isascii() and any(_same_word(letters, other) for other in asked)

    for match in _word_pattern().finditer(content, 0, _MAX_STEMMED_CHARS):
        if not match[0].isascii():
            pieces = (match, *(_piece_pattern().finditer(content, *match.span()) if "'" in match[0] else ()))
            yield from islice((piece.span() for piece in pieces if matches(piece[0])), 1)


def _same_word(one: str, other: str) -> bool:
    """Return True if two words look like forms of one word: plan and planned, but not plan and plane."""
    if one == other:
        return True
    pairs = enumerate(zip(one, other, strict=False))
    shared = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    if shared < 3:
        return False
    doubled = one[shared - 1]
    rests = {rest[rest[:1] == doubled :] for rest in (one[shared:], other[shared:])}
    return rests <= _ENDINGS and (rests - {"", "s"} != {"e"})


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


def _mark_first(text: str, lowered: str, matches: Sequence[Match]) -> str:
    """Return the part of a text around the first exact occurrence of a word or gram of the conditions.

    Return "" if the text has none. `lowered` is the text in lower case.
    """
    for match in matches:
        asked = next(phrases_of(match)).text
        start = lowered.find(asked) if len(lowered) == len(text) else -1
        if start >= 0:
            end = start + len(asked)
            before, after = text[max(start - 60, 0) : start], text[end : end + 100]
            marked = f"{before}>>>{text[start:end]}<<<{after}"
            return ("..." if start > 60 else "") + marked + ("..." if end + 100 < len(text) else "")
    return ""


def _head(text: str) -> str:
    head = " ".join(text[: 10 * SNIPPET_TOKENS].split()[:SNIPPET_TOKENS])
    return head + "..." if len(head) < len(text.strip()) else head


# Compiled when they are first used, because most programs never search.


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(rf"{_LETTER}+(?:'{_LETTER}+)*")


@cache
def _piece_pattern() -> re.Pattern[str]:
    return re.compile(f"{_LETTER}+")

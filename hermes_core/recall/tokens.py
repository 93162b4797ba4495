"""Rules for cutting text into terms, the same for stored texts and for questions, and on every engine.

Words are separated by spaces and punctuation. The index has their stems. A *dense run* is a run of characters in a
script without spaces between words (Chinese, Japanese, Thai and similar), in Korean, whose endings are part of the
word, or of emoji. The index has the single characters of a dense run, and each pair of neighbouring characters; both
are called *grams*.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from hermes_core.recall.letters import english_stem, one_spelling, stem_words, unaccented

# Version of the rules in this module. A store whose index was made with another version rebuilds the index.
CUT_VERSION = "5"

# Longest term in characters. What is longer is encoded data, of which the beginning tells as much as the whole.
MAX_TERM_CHARS = 64

# Number of words whose terms are remembered: 8 MB.
MAX_KNOWN_WORDS = 50_000

# Characters of dense runs, as a class of a pattern.
DENSE = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Korean
    "\u1780-\u17ff"  # Khmer
    "\u2600-\u27bf\U0001f000-\U0001faff"  # symbols and emoji
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    "\uff66-\uffdc"  # half-width Japanese and Korean
    "\U00020000-\U0003134f"
)

# Characters that belong to a word but are no letters, as a class of a pattern.
MARKS = (
    "\u00ad\u200c"  # the soft hyphen and the sign within Persian words, which are dropped
    "\u0300-\u036f\u0483-\u0487"  # accents that make no letter of their own with the one before
    "\u0591-\u05bd\u05c1\u05c2\u05c7\u0610-\u061a\u064b-\u065f\u0670"  # vowels of Hebrew and Arabic
    "\u0900-\u0963\u0966-\u0dff"  # vowels of Hindi, Bengali, Tamil and other scripts of India
)
_LETTER = rf"(?:(?![{DENSE}_])[\w{MARKS}])"

_STOP_WORDS = """
    a about above after again against all also am an and any are aren't as at be because been before being below
    between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few
    for from further get gets getting got had hadn't has hasn't have haven't having he he'd he'll he's her here here's
    hers herself him himself his how how's i i'd i'll i'm i've if in into is isn't it it's its itself just let's
    may me might more most must my myself no nor not of off on once only or other ought our ours ourselves out over
    own same shall she she'd she'll she's should shouldn't so some such than that that's the their theirs them
    themselves then there there's these they they'd they'll they're they've this those through to too under until up
    us very was wasn't we we'd we'll we're we've were weren't what what's when when's where where's which while who
    who's whom whose why why's will with won't would wouldn't you you'd you'll you're you've your yours yourself
    yourselves
"""
# English words without meaning for a search. Leaving them out raises recall@10 by five points on LoCoMo.
STOP_WORDS = frozenset(_STOP_WORDS.split())


def fold(text: str) -> str:
    """Return a text in the form in which texts are compared.

    It is in Unicode's composed form (NFC), in lower case, and has one spelling of letters that are written in two ways.

    >>> fold("ΑΘΗΝΑ’s Straße")
    "αθηνα's strasse"
    """
    if text.isascii():
        return text.lower()
    return one_spelling(unicodedata.normalize("NFC", text).lower())


def words(text: str) -> list[str]:
    """Return the words of `text` in order, as `fold` changes them, without dense runs.

    >>> words("Don't delete path/to/file!")
    ["don't", 'delete', 'path', 'to', 'file']
    """
    folded = fold(text)
    # Without a class of a thousand letters, which takes three times as long.
    return (_ASCII_WORD if folded.isascii() else _word_pattern()).findall(folded)


def dense_runs(text: str) -> list[str]:
    """Return the dense runs of `text` (such as Chinese, Japanese, Thai, Korean, emoji), in order.

    >>> dense_runs("docker 部署失败 again")
    ['部署失败']
    """
    return [] if text.isascii() else _run_pattern().findall(unicodedata.normalize("NFKC", text))


def index_text(text: str) -> str:
    """Return the terms of the words of a text, as an index holds them, with spaces between them.

    >>> index_text("Two CACHES, docker部署 Документы")
    'two cach docker документ'
    """
    if text.isascii():
        return " ".join(map(_terms.__getitem__, text.translate(_ASCII).split()))
    # NFC comes first, because a mark of a dense run may stand between a letter and its accent.
    composed = unicodedata.normalize("NFC", text)
    return " ".join(filter(None, map(_terms.__getitem__, term_pattern().findall(composed))))


def index_spans(text: str, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Yield the terms of each word of a text from `start` on, with start and end of the word.

    >>> list(index_spans("two caches"))
    [('two', 0, 3), ('cach', 4, 10)]
    """
    for match in term_pattern().finditer(text, start):
        yield _terms[match[0]], match.start(), match.end()


def grams(text: str) -> tuple[list[str], list[str]]:
    """Return the single characters and the neighbouring pairs of the dense runs of `text`.

    >>> grams("部署吗")
    (['部', '署', '吗'], ['部署', '署吗'])
    """
    ones: list[str] = []
    pairs: list[str] = []
    for run in dense_runs(text):
        ones.extend(run)
        pairs.extend(run[i : i + 2] for i in range(len(run) - 1))
    return ones, pairs


def is_stop_word(word: str) -> bool:
    """Return True if `word`, a result of `fold`, is a stop word, with or without a possessive ending."""
    return word in STOP_WORDS or strip_possessive(word) in STOP_WORDS


def strip_possessive(word: str) -> str:
    """Return `word` without the ending "'s" or "'" of an English possessive.

    >>> strip_possessive("caroline's")
    'caroline'
    """
    return word.removesuffix("'s").removesuffix("'")


def count_tokens(text: str) -> int:
    """Return an estimate of a text's tokens: one for each character of a dense run, and one for four others."""
    dense = sum(map(len, dense_runs(text)))
    return dense + math.ceil((len(text) - dense) / 4)


class _Terms(dict[str, str]):
    """Terms by word. A word that was seen before costs 0.06 us, another one up to 20 us, and texts repeat their words."""

    def __missing__(self, word: str) -> str:
        term = _term(word)
        if len(word) <= MAX_TERM_CHARS:  # encoded data comes once
            if len(self) >= MAX_KNOWN_WORDS:
                self.clear()
            self[word] = term
        return term


_terms = _Terms()


def _term(word: str) -> str:
    """Return the term of a word; several if letters of it stand for several words."""
    if word.isascii():
        return english_stem(word.lower())[:MAX_TERM_CHARS]
    letters = unaccented(stem_words(fold(word)))
    if letters.isascii():
        return " ".join(map(_term, letters.translate(_ASCII).split()))
    return " ".join(part[:MAX_TERM_CHARS] for part in term_pattern().findall(letters))


# Lower case of ASCII letters and digits; a space for each other character.
_ASCII = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}

_ASCII_WORD = re.compile("[0-9a-z]+(?:'[0-9a-z]+)*")

# Compiled when they are first used: these character classes take 15 ms, and most programs never search.


@cache
def _run_pattern() -> re.Pattern[str]:
    return re.compile(f"[{DENSE}]+")


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(rf"(?!\W){_LETTER}+(?:['’]{_LETTER}+)*")


@cache
def term_pattern() -> re.Pattern[str]:
    """Return the pattern of a word of which `index_text` makes a term."""
    # The apostrophe of Ukrainian counts as a letter, but ' in its place separates words.
    return re.compile(rf"(?:[^\W_ʼ{DENSE}]+|[{MARKS}]+)+")

"""Rules for cutting text into words and dense runs, the same for stored texts and for questions.

Words are separated by spaces and punctuation; SQLite's tokenizer `unicode61` finds the words and `porter` stems them. A
*dense run* is a run of characters in a script without spaces between words (Chinese, Japanese, Thai and similar), in
Korean, whose endings are part of the word, or of emoji, which no word tokenizer keeps. The index has the single
characters of a dense run, and each pair of neighbouring characters; both are called *grams*.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import cache

from hermes_core.recall.letters import one_spelling, stem_words

# Version of the rules in this module. A store whose index was made with another version rebuilds the index.
CUT_VERSION = "4"

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

# Characters that belong to a word but are no letters, as a class of a pattern. `unicode61` drops some of them and cuts
# the word at others, so a word with such characters is looked up as a phrase of its pieces.
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
    return one_spelling(unicodedata.normalize("NFC", text).lower())


def words(text: str) -> list[str]:
    """Return the words of `text` in order, as `fold` changes them, without dense runs.

    >>> words("Don't delete path/to/file!")
    ["don't", 'delete', 'path', 'to', 'file']
    """
    return _word_pattern().findall(fold(text))


def dense_runs(text: str) -> list[str]:
    """Return the dense runs of `text` (such as Chinese, Japanese, Thai, Korean, emoji), in order.

    >>> dense_runs("docker 部署失败 again")
    ['部署失败']
    """
    return _run_pattern().findall(unicodedata.normalize("NFKC", text))


def index_text(text: str) -> str:
    """Return a text in the form in which the word index gets it: folded, stemmed, and without dense runs.

    Look up words in the index in this form too. Dense runs are removed because SQLite's tokenizer `unicode61` would
    join them with the word beside them.

    >>> index_text("docker部署 Документы")
    'docker  документ'
    """
    if text.isascii():
        return text
    # NFC comes first, because a mark of a dense run may stand between a letter and its accent.
    return stem_words(fold(_run_pattern().sub(" ", unicodedata.normalize("NFC", text))))


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


# Compiled when they are first used: these character classes take 15 ms, and most programs never search.


@cache
def _run_pattern() -> re.Pattern[str]:
    return re.compile(f"[{DENSE}]+")


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(rf"(?!\W){_LETTER}+(?:['’]{_LETTER}+)*")

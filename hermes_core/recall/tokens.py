"""Words and runs: how text is cut, the same for what is stored and for what is asked.

Two kinds of text are told apart. Words stand between spaces and punctuation; SQLite's `unicode61` finds them and
`porter` stems them. A *dense run* is text whose script writes no spaces between words (Chinese, Japanese, Thai and
their like), Korean, whose endings cling to the word, and emoji, which no word tokenizer keeps: it is indexed by its
single characters and its pairs of neighbours, so that words of one and two characters are found by index.
"""

from __future__ import annotations

import re
import unicodedata

from hermes_core.recall.letters import one_spelling, stemmed

CUT_VERSION = "4"
"""Changes whenever text is cut differently here; a store whose index was cut by another version rebuilds it."""

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
"""As a class of a pattern: what dense runs are made of."""

_RUN = re.compile(f"[{DENSE}]+")
MARKS = (
    "\u00ad\u200c"  # the soft hyphen and the sign within Persian words, which are dropped
    "\u0300-\u036f\u0483-\u0487"  # accents that make no letter of their own with the one before
    "\u0591-\u05bd\u05c1\u05c2\u05c7\u0610-\u061a\u064b-\u065f\u0670"  # vowels of Hebrew and Arabic
    "\u0900-\u0963\u0966-\u0dff"  # vowels of Hindi, Bengali, Tamil and other scripts of India
)
"""As a class of a pattern: what belongs to a word and is no letter. `unicode61` drops some and cuts at others: so a word
with them is sought as the phrase of its pieces.
"""
_LETTER = rf"(?:(?![{DENSE}_])[\w{MARKS}])"
_WORD = re.compile(rf"(?!\W){_LETTER}+(?:['’]{_LETTER}+)*")

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
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English words that tell nothing of what is sought. Leaving them out lifts recall@10 by five points on LoCoMo."""


def fold(text: str) -> str:
    """Text as it is compared: accents composed, letters in lower case and in one spelling, one kind of apostrophe.

    >>> fold("ΑΘΗΝΑ’s Straße")
    "αθηνα's strasse"
    """
    return one_spelling(unicodedata.normalize("NFC", text).lower())


def words(text: str) -> list[str]:
    """The words of `text` outside dense runs, folded, in order.

    >>> words("Don't delete path/to/file!")
    ["don't", 'delete', 'path', 'to', 'file']
    """
    return _WORD.findall(fold(text))


def dense_runs(text: str) -> list[str]:
    """The dense runs of `text`, in order.

    >>> dense_runs("docker 部署失败 again")
    ['部署失败']
    """
    return _RUN.findall(unicodedata.normalize("NFKC", text))


def for_words(text: str) -> str:
    """The text for a word index, and for a look-up in it: folded, stemmed, without dense runs, which `unicode61` would take
    for part of the word beside them.

    >>> for_words("docker部署 Документы")
    'docker  документ'
    """
    if text.isascii():
        return text
    # Composed before: an accent may stand behind a mark of a dense run that follows its letter.
    return stemmed(fold(_RUN.sub(" ", unicodedata.normalize("NFC", text))))


def grams(text: str) -> tuple[list[str], list[str]]:
    """Single characters and neighbouring pairs of the dense runs of `text`.

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
    """Whether the folded `word` says nothing of what is sought; "Caroline's" is judged without its ending."""
    return word in STOP_WORDS or bare(word) in STOP_WORDS


def bare(word: str) -> str:
    """The word without an English possessive.

    >>> bare("caroline's")
    'caroline'
    """
    return word.removesuffix("'s").removesuffix("'")

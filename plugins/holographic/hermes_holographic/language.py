"""The entities in a text, and the words that describe its subject, found by rules.

The rules read English. Names in any script are found if they are quoted, capitalised, or known already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hermes_core.kit import fold_space, storable
from hermes_core.recall import fold, grams, is_stop_word, strip_possessive, words

_SENTENCE = re.compile(r"[^.!?\n。！？]+(?:\.(?=\S)[^.!?\n。！？]+)*[.!?。！？]*")
_TITLE = re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St)\.(?= )")
_TOKEN = re.compile(r"[^\W_]+(?:[-'’&.][^\W_]+)*[+#]*")
_QUOTED = re.compile(
    r'"([^"\n]{2,60})"|“([^”\n]{2,60})”|«([^»\n]{2,60})»|「([^」\n]{1,60})」|『([^』\n]{1,60})』'
    r"|(?<![^\s(\[])'([^'\n]{2,60})'(?![^\s.,;:!?)\]])"
)
_AKA = re.compile(r"\W*\b(?:aka|a\.k\.a\.?|also known as)\W*", re.IGNORECASE)
_JOINERS = frozenset({"of", "de", "da", "di", "del", "la", "van", "von", "der", "den"})
_MAX_NAME_WORDS = 5
_MAX_QUOTE_WORDS = 6

_NO_NAME_WORDS = """
january february march april may june july august september october november december monday tuesday wednesday
thursday friday saturday sunday today yesterday tomorrow tonight now then also however maybe perhaps please thanks
aka currently recently sometimes often never always note yes no ok okay hello hi dear every everyone someone nobody user
"""
_NO_NAME = frozenset(_NO_NAME_WORDS.split())

# What may follow a single capitalised word at the start of a sentence when it is a name and not just the first word:
# a verb of the third person or of the past, an adverb, another name.
_VERBS = """
is was has had are were does did will can could would should says and or aka also never always usually often really
just still isn't wasn't doesn't didn't hasn't won't can't met went got made bought told took left came saw wrote said
ran built won lost kept felt found gave knew thought sent spent sold read put set began became brought chose drove ate
fell flew grew held led paid rode sang slept spoke stood swam taught threw wore
"""
_AFTER_NAME = re.compile(rf"(?:{'|'.join(_VERBS.split())}|\w{{2,}}(?:s|ed))$")


@dataclass(frozen=True, slots=True)
class Named:
    """Entities of a text as written, in order, and pairs (name, other name) of what is the same."""

    names: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...]


def name_key(name: str) -> str:
    """Return the key of an entity: its name folded, without an article, a possessive or marks around it.

    >>> name_key("The Bob's  "), name_key("“O'Neill”")
    ('bob', "o'neill")
    """
    text = fold_space(storable(fold(name).casefold())).strip(" .,;:!?\"'“”‘«»「」『』()[]")
    return strip_possessive(text.removeprefix("the ")) or text


def content_key(text: str) -> str:
    """Return the key that two equal facts share: letters folded, without differences of white space and closing
    marks.
    """
    return fold_space(storable(fold(text))).rstrip(" .!;,")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line. "Dr. Lee" ends none."""
    text = _TITLE.sub(r"\1", text)
    return [line for match in _SENTENCE.finditer(text) if (line := fold_space(match.group()))]


def index_words(text: str) -> list[str]:
    """Return the words that describe a text's subject, with plurals folded, and pairs of characters of dense scripts."""
    _, pairs = grams(text)
    return [*(singular(strip_possessive(w)) for w in words(text) if not is_stop_word(w)), *pairs]


def named_entities(text: str) -> Named:
    """Return the names in a text: quoted, capitalised (also one word), or of mixed case. "X aka Y" is one entity."""
    spans = sorted({*_quoted(text), *_capitalised(text)})
    kept: list[tuple[int, int, str]] = []
    for start, end, name in spans:
        if not kept or start >= kept[-1][1]:
            kept.append((start, end, name))
    aliases = [
        (left[2], right[2]) for left, right in pairwise(kept) if _AKA.fullmatch(text[left[1] : right[0]])
    ]
    return Named(tuple(dict.fromkeys(name for _, _, name in kept)), tuple(aliases))


def _quoted(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _QUOTED.finditer(text):
        name = next(group for group in match.groups() if group)
        if len(name.split()) <= _MAX_QUOTE_WORDS and name_key(name):
            yield match.start(), match.end(), name.strip()


def _capitalised(text: str) -> Iterator[tuple[int, int, str]]:
    for sentence in _SENTENCE.finditer(text):
        tokens = list(_TOKEN.finditer(text, sentence.start(), sentence.end()))
        shouted = sum(token.group().isupper() for token in tokens) > len(tokens) / 2 and len(tokens) > 2
        if not shouted:
            yield from _runs(text, tokens)


def _runs(text: str, tokens: list[re.Match[str]]) -> Iterator[tuple[int, int, str]]:
    """Yield runs of capitalised words, joined over "of" and similar words, and ended by a possessive or any mark."""
    position = 0
    while position < len(tokens):
        first = position
        while position < len(tokens) and _continues(text, tokens, first, position):
            position += 1
        run = tokens[first:position]
        while run and run[-1].group().lower() in _JOINERS:
            run.pop()
        if run and len(run) <= _MAX_NAME_WORDS and (first > 0 or _opens_with_name(run, tokens)):
            end = run[0].start() + len(
                strip_possessive(plain_apostrophe(text[run[0].start() : run[-1].end()]))
            )
            yield run[0].start(), end, text[run[0].start() : end]
        position = max(position, first + 1)


def plain_apostrophe(text: str) -> str:
    """Return the text with a plain apostrophe, at the same length."""
    return text.replace("’", "'")


def _continues(text: str, tokens: list[re.Match[str]], first: int, position: int) -> bool:
    word = tokens[position].group()
    if position == first:
        return _name_like(word)
    before = tokens[position - 1]
    if text[before.end() : tokens[position].start()] != " " or plain_apostrophe(before.group()).endswith(
        "'s"
    ):
        return False
    if word.lower() in _JOINERS:
        return position + 1 < len(tokens) and _name_like(tokens[position + 1].group())
    return _name_like(word) or (word.isdigit() and len(word) <= 4)


def _name_like(word: str) -> bool:
    folded = fold(word)
    if is_stop_word(folded) or folded in _NO_NAME:
        return False
    return word[0].isupper() or any(letter.isupper() for letter in word[1:])


def _opens_with_name(run: list[re.Match[str]], tokens: list[re.Match[str]]) -> bool:
    """Return whether a run at the start of a sentence is a name; any word there has a capital letter."""
    first = run[0].group()
    if (
        len(run) > 1
        or plain_apostrophe(first).endswith("'s")
        or any(c.isupper() or c.isdigit() for c in first[1:])
    ):
        return True
    return len(tokens) == 1 or _AFTER_NAME.match(plain_apostrophe(tokens[1].group())) is not None


def singular(word: str) -> str:
    """Return an English plural in the singular, by the three rules of Harman (1991), "How effective is suffixing?"."""
    if len(word) > 4 and word.endswith("ies") and word[-4] not in "ae":
        return f"{word[:-3]}y"
    if len(word) > 3 and word.endswith("es") and word[-3] not in "aeo":
        return word[:-1]
    if len(word) > 3 and word.endswith("s") and word[-2] not in "us":
        return word[:-1]
    return word

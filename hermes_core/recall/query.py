"""Reading of a question: its words to look up, conditions, dates, names and kind.

No text is an error. AND, OR and NOT in capitals are operators, a pair of quotes is a phrase, and a word with `*` at its
end is a prefix; all other punctuation separates words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hermes_core.recall.dates import When, asks_for_anything, read_times
from hermes_core.recall.forms import irregular_forms, similar_words
from hermes_core.recall.letters import hebrew_forms, persian_forms, stem_words, unaccented
from hermes_core.recall.tokens import MARKS, dense_runs, fold, grams, is_stop_word, strip_possessive, words

# Number of characters of a text that are read: half from its beginning and half from its end, because the question
# stands before or after a pasted document.
MAX_QUERY = 2_000

# Longest text, in characters, of which the form as a name is remembered: no message is.
LONGEST_NAME = 40

# Largest number of words of a question that are looked up, and of pairs of characters, of which two replace a word.
MAX_TERMS = 32
MAX_GRAMS = 64

# Largest number of further words of a long text whose frequency decides whether they are looked up.
MAX_OTHERS = 128

# Largest number of words of a quoted phrase that each result must contain. A longer quotation cites a text, and messages
# beside that text may answer as well.
MAX_PHRASE_TERMS = 12

# A text with more words than this (two pairs of characters count as a word) is more than a question, and is searched by
# its question sentence. With 80 words of other talk before a question, recall@10 is 8 if all words count alike; 82 so.
MAX_QUESTION_TERMS = 24

# Lowest number of terms of a question sentence; if it has fewer ("What does she eat?"), the sentence before it is read
# as well.
MIN_QUESTION_TERMS = 3

# Weight of all words beside the question sentence together, in words of the question: of the words in other sentences
# with a question mark, or without such sentences of all words. They only decide what the question leaves open.
MAX_BESIDE_WEIGHT = 2

Shape = Literal["when", "who", "where", "how many", "other"]
Operator = Literal["AND", "OR", "NOT"]

_QUOTED = r'"[^"]+"|“[^”]+”|„[^“”"]+[“”"]|«[^»]+»|»[^«]+«|「[^」]+」|『[^』]+』'
_QUOTES = '"“”„«»「」『』'
_CONDITION_SIGN = re.compile(rf"[*{_QUOTES}]|AND|OR|NOT")
_PIECE = re.compile(rf"({_QUOTED})|([()])|([^\s{_QUOTES}()]+)")
_NEGATED = re.compile(rf"(?:^|\s)NOT\s+(?:{_QUOTED}|\S+)|\b(?:AND|OR)\b")
_HEBREW_ABBREVIATION = re.compile('(?<=[\u05d0-\u05ea])["”](?=[\u05d0-\u05ea])')
_SIGN = re.compile(rf"[^\w\s'’{MARKS}]")
# A mark before a closing quotation mark ends no sentence if the sentence goes on after the quotation.
_SENTENCE = re.compile(r""".+?(?:[.!?]+["'”’)\]]*(?=\s|$)|[。！？]+(?!["”」』])|\n+|$)""", re.DOTALL)
_ENDS_ASKING = re.compile(r"""[?？]["'”’」』)\]\s]*$""")

_SHAPES: tuple[tuple[Shape, re.Pattern[str]], ...] = (
    (
        "when",
        re.compile(
            r"\b(when|what (date|day|month|year|time)|which (date|day|month|year)|how long)\b|什么时候|何时|いつ"
        ),
    ),
    ("how many", re.compile(r"\bhow (many|much|often|old)\b|多少|几个|いくつ")),
    ("who", re.compile(r"\b(who|whom|whose)\b|谁|誰")),
    ("where", re.compile(r"\bwhere\b|哪里|哪儿|どこ")),
)


class Term(Struct, frozen=True):
    """A word, or a gram (one or two characters of a script without spaces between words), to look up in an index.

    Attributes:
        text: The word or gram.
        kind: The index in which to look it up: "word" or "gram".
        forms: Other forms and spellings of the same word.
        similar: Other words that people may use instead; they count less.
        weight: Weight of the term, at most 1; lower for a term beside the question sentence.
    """

    text: str
    kind: Literal["word", "gram"] = "word"
    forms: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()
    weight: float = 1.0


class Leaf(Struct, frozen=True):
    """A word of a condition; a phrase if `phrase` is True; the beginning of a word if `prefix` is True."""

    text: str
    phrase: bool = False
    prefix: bool = False


class Node(Struct, frozen=True):
    """A part of a condition that joins its operands by AND or OR, or negates its single operand by NOT."""

    operator: Operator
    operands: tuple[Expression, ...]


Expression = Leaf | Node


class Analysis(Struct, frozen=True):
    """A question after reading, as `analyse` returns it.

    Attributes:
        text: The question; of a long text only the question sentence.
        terms: The words and grams to look up.
        others: More words and grams of a long text. If there are any, a store should look up the `MAX_TERMS` terms of
            the highest weight among `terms` and `others`, and among equal weights the rarest terms.
        condition: The condition that every answer must fulfil; None without operators, quotes and prefixes.
        names: The people whom the question names.
        dates: The times that the question names.
        time_only: True if it asks for anything of these times, as in "What did I do last week?".
        shape: The kind of the question, for example "when".
        exact: Parts, in lower case, in which punctuation has a meaning, such as c#, path/to/file, --verbose.
    """

    text: str
    terms: tuple[Term, ...] = ()
    others: tuple[Term, ...] = ()
    condition: Expression | None = None
    names: frozenset[str] = frozenset()
    dates: tuple[When, ...] = ()
    time_only: bool = False
    shape: Shape = "other"
    exact: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms or self.condition or self.dates)


def analyse(
    text: str, *, now: float | None = None, names: Collection[str] = (), zone: tzinfo = UTC
) -> Analysis:
    """Read a question: find its words, conditions, dates, names and kind.

    Args:
        text: The question.
        now: The current time in epoch seconds, from which "last week" is computed. None ignores relative times.
        names: Names of people whom the question may name.
        zone: Time zone of relative times.
    """
    if len(text) > MAX_QUERY:
        text = f"{text[: MAX_QUERY // 2]}\n{text[-MAX_QUERY // 2 :]}"
    question = _question_in(text)
    dates, undated, rest = read_times(question, now, zone)
    asked = fold(question)
    # Parts between spaces that contain punctuation inside, without that of the sentence around them.
    pieces = [p.strip(f"{_QUOTES}()[]{{}}<>,;:!?*").rstrip(".'").lstrip("'") for p in asked.split()]
    exact = tuple([piece for piece in pieces if _SIGN.search(piece) and words(piece)])
    named = named_in(question, names)
    terms = _terms(undated, named) or _terms(question) or _terms(question, every=True)
    limit = round(MAX_TERMS * len(terms) / max(_count(terms), 1))
    others: list[Term] = []
    if question != text:
        terms = terms[:limit]
        known = {term.text for term in terms}
        for beside in ("".join(filter(_ENDS_ASKING.search, _sentences(text))), text):
            others = others or [t for t in _terms(beside, named_in(text, names)) if t.text not in known]
        weight = min(1.0, MAX_BESIDE_WEIGHT / max(_count(others), 1))
        others = [replace(term, weight=weight) for term in _ends(others, MAX_OTHERS)]
    elif len(terms) > limit:
        outer = _ends(terms, limit)
        others = _ends([term for term in terms if term not in outer], MAX_OTHERS)
        terms = outer
    shape: Shape = next((shape for shape, sign in _SHAPES if sign.search(asked)), "other")
    return Analysis(
        text=question,
        terms=tuple(terms),
        others=tuple(others),
        condition=parse_condition(question),
        names=named,
        dates=dates,
        time_only=bool(dates) and shape == "other" and asks_for_anything(rest),
        shape=shape,
        exact=exact,
    )


def _question_in(text: str) -> str:
    """Return the sentences of a long text that ask; the text itself if it is short or if no sentence asks.

    This is the last sentence if it has a question mark, or the first one, which may stand before a pasted document.
    Otherwise it is the last sentence with a question mark, and the last sentence, which may ask without this mark.
    """
    if _count(_terms(text)) <= MAX_QUESTION_TERMS:
        return text
    sentences = _sentences(text)
    asking = [number for number, sentence in enumerate(sentences) if _ENDS_ASKING.search(sentence)]
    if not asking:
        return text
    first, end = asking[-1], asking[-1] + 1
    if end < len(sentences) and asking[0] == 0 and _count(_terms(sentences[0])) >= MIN_QUESTION_TERMS:
        return sentences[0].strip()
    while first and _count(_terms("".join(sentences[first:end]))) < MIN_QUESTION_TERMS:
        first -= 1
    return "".join([*sentences[first:end], *sentences[max(end, len(sentences) - 1) :]]).strip()


def _sentences(text: str) -> list[str]:
    return [match[0] for match in _SENTENCE.finditer(text) if match[0].strip()]


def _count(terms: Sequence[Term]) -> float:
    """Return the number of terms in words: two pairs of characters count as a word."""
    return sum(1.0 if term.kind == "word" else MAX_TERMS / MAX_GRAMS for term in terms)


def _ends(terms: Sequence[Term], limit: int) -> list[Term]:
    """Return at most `limit` terms: the first and the last ones, which tell more of a long text than the middle."""
    return list(terms) if len(terms) <= limit else [*terms[: limit // 2], *terms[-(limit - limit // 2) :]]


def named_in(text: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names in `names` that a question contains, as the whole name or as the first word of the name.

    >>> sorted(named_in("What did Caroline's sister say?", ["Caroline Smith", "Carol"]))
    ['Caroline Smith']
    """
    names = list(names)
    if not names:
        return frozenset()
    question = _as_name(text)
    question_words = {_as_name(strip_possessive(word)) for word in words(text)}
    named = set()
    for name in names:
        compared = _as_name(name).strip()
        first = compared.split(" ", 1)[0]
        if dense_runs(first):  # written without spaces around it
            found = first in question
        else:
            found = bool(first) and (first in question_words or (" " in compared and compared in question))
        if found:
            named.add(name)
    return frozenset(named)


def _as_name(text: str) -> str:
    """Return a text in the form in which names are compared: in lower case, stemmed and without accents.

    People may write José as jose, and Анна in another case as Анне.
    """
    return _short_as_name(text) if len(text) <= LONGEST_NAME else unaccented(stem_words(fold(text)))


@lru_cache(maxsize=2048)  # each turn compares the same names, with the words of its question
def _short_as_name(text: str) -> str:
    return unaccented(stem_words(fold(text)))


def _terms(text: str, named: frozenset[str] = frozenset(), every: bool = False) -> list[Term]:
    """Return the terms of a question in order: words and grams, each once.

    Stop words and words of the names in `named` are left out, unless `every` is True.
    """
    people = {_as_name(word) for name in named for word in words(name)}
    terms: dict[str, Term] = {}
    persian = {} if text.isascii() else {fold(word): other for word, other in persian_forms(text).items()}
    for word in words(_NEGATED.sub(" ", text)):
        stem = strip_possessive(word)
        if every or not (is_stop_word(word) or (people and _as_name(stem) in people)):
            forms = irregular_forms(stem)
            if not stem.isascii():
                forms = (*forms, *hebrew_forms(stem), *filter(None, [persian.get(word)]))
            terms.setdefault(stem, Term(stem, "word", forms, similar_words(stem)))
    for run in dense_runs(text):
        ones, pairs = grams(run)
        for gram in pairs or ones:
            terms.setdefault(gram, Term(gram, "gram"))
    return list(terms.values())


# ---------------------------------------------------------------------- operators


def parse_condition(text: str) -> Expression | None:
    """Return the condition in a question: its operators, quoted phrases and `prefix*`; None if it has none of them.

    If the question has AND, OR or NOT, words without an operator between them are joined by AND. Otherwise only prefixes
    and phrases of at most `MAX_PHRASE_TERMS` words are conditions. Operators without operands, and brackets without a partner, are ignored.
    """
    if not _CONDITION_SIGN.search(text):
        return None
    pieces = _pieces(text)
    if any(piece in ("AND", "OR", "NOT") for piece in pieces):
        return _ConditionParser(pieces).parse()
    required = tuple(
        piece
        for piece in pieces
        if isinstance(piece, Leaf)
        and (piece.prefix or (piece.phrase and _count(_terms(piece.text)) <= MAX_PHRASE_TERMS))
    )
    return _joined("AND", required)


def _pieces(text: str) -> list[Leaf | str]:
    pieces: list[Leaf | str] = []
    for match in _PIECE.finditer(
        _HEBREW_ABBREVIATION.sub("״", text)
    ):  # a quotation mark within a Hebrew word
        phrase, bracket, word = match.groups()
        if phrase:
            pieces.append(Leaf(phrase[1:-1], phrase=True))
        elif bracket:
            pieces.append(bracket)
        elif word in ("AND", "OR", "NOT"):
            pieces.append(word)
        else:
            pieces.append(_leaf(word))
    return [
        piece for piece in pieces if isinstance(piece, str) or words(piece.text) or dense_runs(piece.text)
    ]


def _leaf(word: str) -> Leaf:
    stem = word.rstrip("*?!.,;:")
    starred = "*" in word[len(stem) :] and len(words(stem)) == 1 and not dense_runs(stem)
    return Leaf(stem, prefix=starred)


def _joined(operator: Operator, operands: tuple[Expression, ...]) -> Expression | None:
    if len(operands) < 2:
        return operands[0] if operands else None
    return Node(operator, operands)


class _ConditionParser:
    """A parser of conditions such as `a OR b AND NOT c`, which accepts any text.

    NOT binds tightest, then AND, then OR. Between operands without an operator, AND is assumed.
    """

    MAX_DEPTH = 6
    """Deepest nesting of brackets; deeper brackets are ignored. With 10, SQLite refuses some queries as too deep."""

    def __init__(self, pieces: list[Leaf | str]) -> None:
        self._pieces = pieces
        self._at = 0

    def parse(self) -> Expression | None:
        operands = []
        while self._at < len(self._pieces):
            operand = self._parse_or(0)
            if operand is not None:
                operands.append(operand)
            self._at += 1  # past a stray closing bracket
        return _joined("AND", tuple(operands))

    def _peek(self) -> Leaf | str | None:
        return self._pieces[self._at] if self._at < len(self._pieces) else None

    def _parse_or(self, depth: int) -> Expression | None:
        operands = [self._parse_and(depth)]
        while self._peek() == "OR":
            self._at += 1
            operands.append(self._parse_and(depth))
        return _joined("OR", tuple(operand for operand in operands if operand is not None))

    def _parse_and(self, depth: int) -> Expression | None:
        operands = []
        while (piece := self._peek()) not in (None, "OR", ")"):
            if piece == "AND":
                self._at += 1
                continue
            operand = self._parse_operand(depth)
            if operand is not None:
                operands.append(operand)
        return _joined("AND", tuple(operands))

    def _parse_operand(self, depth: int) -> Expression | None:
        piece = self._peek()
        self._at += 1
        if isinstance(piece, Leaf):
            return piece
        if piece == "NOT":
            while self._peek() == "NOT":  # a repeated NOT counts once
                self._at += 1
            negated = self._parse_operand(depth) if self._peek() not in (None, "OR", "AND", ")") else None
            return Node("NOT", (negated,)) if negated is not None else None
        if piece == "(" and depth < self.MAX_DEPTH:
            inner = self._parse_or(depth + 1)
            if self._peek() == ")":
                self._at += 1
            return inner
        return None

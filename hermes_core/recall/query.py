"""What is asked: a question as a person types it, read into terms, operators, dates and its shape.

No text is ever an error. AND, OR and NOT count in capitals only, quotes when they come in pairs, `*` at the end of a
word; all other punctuation separates words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Literal

from hermes_core.recall.dates import When, find_dates
from hermes_core.recall.forms import near_words, plain_forms
from hermes_core.recall.letters import hebrew_forms, persian_forms, stemmed, unaccented
from hermes_core.recall.tokens import MARKS, bare, dense_runs, fold, grams, is_stop_word, words

MAX_QUERY = 2_000
"""Characters of a question that are read; more is a pasted document, not a question."""

MAX_TERMS = 32
"""Terms that are looked up; the words of a long question beyond these change no ranking that we measured."""

Shape = Literal["when", "who", "where", "how many", "other"]
Operator = Literal["AND", "OR", "NOT"]

_QUOTED = r'"[^"]+"|“[^”]+”|„[^“”"]+[“”"]|«[^»]+»|»[^«]+«|「[^」]+」|『[^』]+』'
_QUOTES = '"“”„«»「」『』'
_PIECE = re.compile(rf"({_QUOTED})|([()])|([^\s{_QUOTES}()]+)")
_NEGATED = re.compile(rf"(?:^|\s)NOT\s+(?:{_QUOTED}|\S+)|\b(?:AND|OR)\b")
_HEBREW_ABBREVIATION = re.compile('(?<=[\u05d0-\u05ea])["”](?=[\u05d0-\u05ea])')
_SIGN = re.compile(rf"[^\w\s'’{MARKS}]")

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


@dataclass(frozen=True, slots=True)
class Term:
    """One thing to look for. `forms` are other spellings of the same word, `near` words that may stand for it.

    `kind` says where it is looked up: "word" among words, "gram" among characters and pairs of dense runs.
    """

    text: str
    kind: Literal["word", "gram"] = "word"
    forms: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word, a phrase, or a prefix that a message must hold (or must not)."""

    text: str
    phrase: bool = False
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """Operands joined by AND or OR; NOT has one operand."""

    operator: Operator
    operands: tuple[Expression, ...]


Expression = Leaf | Node


@dataclass(frozen=True, slots=True)
class Analysis:
    """A question, read. `condition` is what every answer must fulfil, None when nothing was demanded; `exact` are its
    pieces whose signs carry meaning (C#, path/to/file, --verbose), folded.
    """

    text: str
    terms: tuple[Term, ...] = ()
    condition: Expression | None = None
    names: frozenset[str] = frozenset()
    dates: tuple[When, ...] = ()
    shape: Shape = "other"
    exact: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms or self.condition or self.dates)


def analyse(
    text: str, *, now: float | None = None, names: Collection[str] = (), zone: tzinfo = UTC
) -> Analysis:
    """Read a question. `now` (epoch seconds) resolves "last week", `names` are people who may be named in it."""
    text = text[:MAX_QUERY]
    condition = parse_condition(text)
    dates, undated = find_dates(text, now, zone)
    asked = fold(text)
    named = named_in(text, names)
    return Analysis(
        text=text,
        terms=tuple(
            _terms(undated, named) or _terms(text, frozenset()) or _terms(text, frozenset(), every=True)
        ),
        condition=condition,
        names=named,
        dates=dates,
        shape=next((shape for shape, sign in _SHAPES if sign.search(asked)), "other"),
        exact=tuple(_exact(asked)),
    )


def _exact(folded: str) -> Iterator[str]:
    """Pieces between spaces that hold signs as well as words, without the signs of a sentence around them."""
    for piece in folded.split():
        bared = piece.strip(f"{_QUOTES}()[]{{}}<>,;:!?*").rstrip(".'").lstrip("'")
        if _SIGN.search(bared) and words(bared):
            yield bared


def named_in(text: str, names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that a question names, by the whole name or its first word.

    >>> sorted(named_in("What did Caroline's sister say?", ["Caroline Smith", "Carol"]))
    ['Caroline Smith']
    """
    asked = _as_name(text)
    said = {_as_name(bare(word)) for word in words(text)}
    return frozenset(name for name in names if _is_named(_as_name(name).strip(), asked, said))


def _as_name(text: str) -> str:
    """Text as names are compared: José is asked for as jose, Анна as Анне."""
    return unaccented(stemmed(fold(text)))


def _is_named(name: str, asked: str, said: Collection[str]) -> bool:
    first = name.split(" ", 1)[0]
    if dense_runs(first):
        return first in asked
    return bool(first) and (first in said or (" " in name and name in asked))


def _terms(text: str, named: frozenset[str], every: bool = False) -> list[Term]:
    """Content words (or `every` word) and grams, each once, in order."""
    people = {_as_name(word) for name in named for word in words(name)}
    terms: dict[str, Term] = {}
    written_else = {fold(word): other for word, other in persian_forms(text).items()}
    for word in words(_without_operators(text)):
        stem = bare(word)
        if every or not (is_stop_word(word) or _as_name(stem) in people):
            forms = (*plain_forms(stem), *hebrew_forms(stem), *filter(None, [written_else.get(word)]))
            terms.setdefault(stem, Term(stem, "word", forms, near_words(stem)))
    for run in dense_runs(text):
        ones, pairs = grams(run)
        for gram in pairs or ones:
            terms.setdefault(gram, Term(gram, "gram"))
    return list(terms.values())[:MAX_TERMS]


def _without_operators(text: str) -> str:
    return _NEGATED.sub(" ", text)


# ---------------------------------------------------------------------- operators


def parse_condition(text: str) -> Expression | None:
    """What the question demands by operators, quotes and `prefix*`; None when it demands nothing.

    A query with AND, OR or NOT is a boolean one: words side by side are then joined by AND. Without an operator only
    quoted phrases and prefixes are demanded, all other words merely asked. Stray operators and brackets are dropped.
    """
    pieces = _pieces(text)
    if any(piece in ("AND", "OR", "NOT") for piece in pieces):
        return _Reader(pieces).read()
    demanded = tuple(piece for piece in pieces if isinstance(piece, Leaf) and (piece.phrase or piece.prefix))
    return _joined("AND", demanded)


def _pieces(text: str) -> list[Leaf | str]:
    pieces: list[Leaf | str] = []
    for match in _PIECE.finditer(_HEBREW_ABBREVIATION.sub("״", text)):  # its sign is no quote
        phrase, bracket, word = match.groups()
        if phrase:
            pieces.append(Leaf(phrase[1:-1], phrase=True))
        elif bracket:
            pieces.append(bracket)
        elif word in ("AND", "OR", "NOT"):
            pieces.append(word)
        else:
            pieces.append(_leaf(word))
    return [piece for piece in pieces if isinstance(piece, str) or _says_something(piece)]


def _leaf(word: str) -> Leaf:
    stem = word.rstrip("*?!.,;:")
    starred = "*" in word[len(stem) :] and len(words(stem)) == 1 and not dense_runs(stem)
    return Leaf(stem, prefix=starred)


def _says_something(leaf: Leaf) -> bool:
    return bool(words(leaf.text) or dense_runs(leaf.text))


def _joined(operator: Operator, operands: tuple[Expression, ...]) -> Expression | None:
    if len(operands) < 2:
        return operands[0] if operands else None
    return Node(operator, operands)


class _Reader:
    """Reads `a OR b AND NOT c`: NOT binds tightest, then AND (also unwritten), then OR. Never fails."""

    MAX_DEPTH = 6
    """Brackets within brackets that are obeyed; with ten, SQLite finds some queries too deep."""

    def __init__(self, pieces: list[Leaf | str]) -> None:
        self._pieces = pieces
        self._at = 0

    def read(self) -> Expression | None:
        operands = []
        while self._at < len(self._pieces):
            operand = self._either(0)
            if operand is not None:
                operands.append(operand)
            self._at += 1  # past a stray closing bracket
        return _joined("AND", tuple(operands))

    def _peek(self) -> Leaf | str | None:
        return self._pieces[self._at] if self._at < len(self._pieces) else None

    def _either(self, depth: int) -> Expression | None:
        operands = [self._all(depth)]
        while self._peek() == "OR":
            self._at += 1
            operands.append(self._all(depth))
        return _joined("OR", tuple(operand for operand in operands if operand is not None))

    def _all(self, depth: int) -> Expression | None:
        operands = []
        while (piece := self._peek()) not in (None, "OR", ")"):
            if piece == "AND":
                self._at += 1
                continue
            operand = self._one(depth)
            if operand is not None:
                operands.append(operand)
        return _joined("AND", tuple(operands))

    def _one(self, depth: int) -> Expression | None:
        piece = self._peek()
        self._at += 1
        if isinstance(piece, Leaf):
            return piece
        if piece == "NOT":
            while self._peek() == "NOT":  # said twice, meant once
                self._at += 1
            negated = self._one(depth) if self._peek() not in (None, "OR", "AND", ")") else None
            return Node("NOT", (negated,)) if negated is not None else None
        if piece == "(" and depth < self.MAX_DEPTH:
            inner = self._either(depth + 1)
            if self._peek() == ")":
                self._at += 1
            return inner
        return None

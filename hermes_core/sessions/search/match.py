"""Conditions on the words and grams of a message, which each engine translates into the language of its own index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from hermes_core.recall.letters import hebrew_forms
from hermes_core.recall.query import Expression, Leaf, Operator, Term
from hermes_core.recall.tokens import dense_runs, grams, index_text, strip_possessive, words

Kind = Literal["word", "gram"]


class Phrase(Struct, frozen=True):
    """Words that stand side by side in a message; or grams, which are characters or pairs of them (`recall.tokens`).

    Attributes:
        kind: The index that holds them.
        text: The words as `index_text` returns them; or grams of one length, with spaces between them.
        prefix: True if the last word is only the beginning of a word.
    """

    kind: Kind
    text: str
    prefix: bool = False


class Combination(Struct, frozen=True):
    """A condition that joins others by AND or OR, or negates its single operand by NOT."""

    operator: Operator
    operands: tuple[Match, ...]


Match = Phrase | Combination


def match_of(term: Term) -> Match:
    """Return the condition that a message has a term or one of its other forms."""
    if term.kind == "gram":
        return Phrase("gram", term.text)
    return any_word((term.text, *term.forms))


def any_word(forms: Iterable[str]) -> Match:
    """Return the condition that a message has one of these words or phrases."""
    return joined("OR", tuple(Phrase("word", index_text(form)) for form in forms))


def joined(operator: Operator, operands: tuple[Match, ...]) -> Match:
    """Return the condition that joins others by AND or OR."""
    return operands[0] if len(operands) == 1 else Combination(operator, operands)


def match_of_condition(condition: Expression) -> Match:
    """Return the condition of a question as a condition on the words and grams of a message.

    The words of a leaf are one phrase. Each run of text in a script without spaces between words is a phrase of pairs
    of characters, or a single character.
    """
    if not isinstance(condition, Leaf):
        return Combination(condition.operator, tuple(map(match_of_condition, condition.operands)))
    parts: list[Match] = []
    if leaf_words := words(condition.text):
        if forms := _forms(condition):
            parts.append(any_word((*leaf_words, *forms)))
        else:
            parts.append(Phrase("word", index_text(" ".join(leaf_words)), condition.prefix))
    for run in dense_runs(condition.text):
        ones, pairs = grams(run)
        parts.append(Phrase("gram", " ".join(pairs or ones)))
    return joined("AND", tuple(parts))


def phrases_of(match: Match) -> Iterator[Phrase]:
    """Yield all phrases of a condition, in order."""
    if isinstance(match, Phrase):
        yield match
    else:
        for operand in match.operands:
            yield from phrases_of(operand)


def kind_of(match: Match) -> Kind | None:
    """Return the index that can answer the whole condition; None if it needs both."""
    kinds = {phrase.kind for phrase in phrases_of(match)}
    return kinds.pop() if len(kinds) == 1 else None


def negates(match: Match) -> bool:
    """Return True if a condition is a NOT."""
    return isinstance(match, Combination) and match.operator == "NOT"


def is_bounded(match: Match) -> bool:
    """Return True if each NOT of a condition stands beside another operand of an AND, so that an index can answer it."""
    if isinstance(match, Phrase):
        return True
    positive = [operand for operand in match.operands if not negates(operand)]
    negative = [
        operand.operands[0]
        for operand in match.operands
        if isinstance(operand, Combination) and negates(operand)
    ]
    if match.operator == "NOT" or not positive or (negative and match.operator == "OR"):
        return False
    return all(map(is_bounded, (*positive, *negative)))


def required_words(condition: Expression) -> set[str]:
    """Return the words and grams that a message must have to fulfil the condition of a question."""
    if isinstance(condition, Leaf):
        exact = [] if condition.prefix or _forms(condition) else words(condition.text)
        return {strip_possessive(word) for word in exact} | {
            gram for run in dense_runs(condition.text) for gram in (grams(run)[1] or grams(run)[0])
        }
    if condition.operator != "AND":
        return set()
    return set().union(*map(required_words, condition.operands))


def _forms(leaf: Leaf) -> tuple[str, ...]:
    """Return the other (Hebrew) forms of a leaf that is a single word; no forms for a phrase or a prefix."""
    leaf_words = words(leaf.text)
    return hebrew_forms(leaf_words[0]) if len(leaf_words) == 1 and not (leaf.phrase or leaf.prefix) else ()

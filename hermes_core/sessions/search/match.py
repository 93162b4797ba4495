"""Conditions on the terms of a message, and their text in the language of a search index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from hermes_core.recall.letters import hebrew_forms
from hermes_core.recall.query import Expression, Leaf, Operator, Term
from hermes_core.recall.tokens import dense_runs, grams, index_text, strip_possessive, words

# Largest number of words and phrases of a query with operators; the rest is ignored, so that a pasted text does not
# become a huge SQL query.
MAX_LEAVES = 64


class Phrase(Struct, frozen=True):
    """Terms that stand side by side in a message.

    Attributes:
        text: The terms of words as `index_text` returns them, or grams of one length, with spaces between them.
        prefix: True if the last term is only the beginning of a term.
    """

    text: str
    prefix: bool = False


class Combination(Struct, frozen=True):
    """A condition that joins others by AND or OR, or negates its single operand by NOT."""

    operator: Operator
    operands: tuple[Match, ...]


Match = Phrase | Combination


class Syntax(Struct, frozen=True):
    """The language of a search index for conditions.

    Attributes:
        phrase: Function that returns a phrase, which has at least one term, in this language.
        both: Operator between two conditions that must both be fulfilled.
        either: Operator between two conditions of which one must be fulfilled.
        without: Operator before a condition that must not be fulfilled, after one that must.
        condition: SQL condition on messages `m` with the text of a condition as its parameter.
    """

    phrase: Callable[[Phrase], str]
    both: str
    either: str
    without: str
    condition: str


def match_of(term: Term) -> Match:
    """Return the condition that a message has a term or one of its other forms."""
    if term.kind == "gram":
        return Phrase(term.text)
    return any_word((term.text, *term.forms))


def any_word(forms: Iterable[str]) -> Match:
    """Return the condition that a message has one of these words or phrases."""
    return joined("OR", tuple(Phrase(index_text(form)) for form in forms))


def joined(operator: Operator, operands: tuple[Match, ...]) -> Match:
    """Return the condition that joins others by AND or OR."""
    return operands[0] if len(operands) == 1 else Combination(operator, operands)


def match_of_condition(condition: Expression) -> Match:
    """Return the condition of a question as a condition on the terms of a message.

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
            parts.append(Phrase(index_text(" ".join(leaf_words)), condition.prefix))
    for run in dense_runs(condition.text):
        ones, pairs = grams(run)
        parts.append(Phrase(" ".join(pairs or ones)))
    return joined("AND", tuple(parts))


def phrases_of(match: Match) -> Iterator[Phrase]:
    """Yield all phrases of a condition, in order."""
    if isinstance(match, Phrase):
        yield match
    else:
        for operand in match.operands:
            yield from phrases_of(operand)


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


def expression_of(match: Match, syntax: Syntax) -> str | None:
    """Return a bounded condition in the language of an index; None if no message can fulfil it.

    A phrase without a term fulfils nothing.
    """
    if isinstance(match, Phrase):
        return syntax.phrase(match) if match.text else None
    required = [expression_of(part, syntax) for part in match.operands if not negates(part)]
    excluded = [
        expression_of(part.operands[0], syntax)
        for part in match.operands
        if isinstance(part, Combination) and negates(part)
    ]
    possible = [f"({part})" for part in required if part is not None]
    if not possible or (match.operator == "AND" and len(possible) < len(required)):
        return None
    expression = (syntax.both if match.operator == "AND" else syntax.either).join(possible)
    absent = syntax.either.join(f"({part})" for part in excluded if part is not None)
    return f"({expression}){syntax.without}({absent})" if absent else expression


def native_expression(match: Match, syntax: Syntax) -> str | None:
    """Return the text of a condition that an index can answer alone; None if SQL has to join its parts."""
    if not is_bounded(match) or sum(1 for _ in phrases_of(match)) > MAX_LEAVES:
        return None
    return expression_of(match, syntax)


def condition_sql(match: Match, syntax: Syntax) -> tuple[str, list[str]]:
    """Return a condition as an SQL condition on messages `m`, and its parameters.

    Parts that an index can answer alone are one condition of it; SQL joins the parts.
    """
    parameters: list[str] = []

    def build(part: Match) -> str:
        if len(parameters) >= MAX_LEAVES:
            return "1 = 1"
        if (native := native_expression(part, syntax)) is not None:
            parameters.append(native)
            return syntax.condition
        if isinstance(part, Phrase):
            return "1 = 0"
        inner = [build(operand) for operand in part.operands]
        if part.operator == "NOT":
            return f"NOT coalesce({inner[0]}, 1 = 0)"  # a message in no index has NULL for its terms
        return f"({f' {part.operator} '.join(inner) or '1 = 1'})"

    return build(match), parameters


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

"""Which messages a search may show, and what a boolean query demands, as SQL conditions with bound values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hermes_core.recall.letters import hebrew_forms
from hermes_core.recall.query import Expression, Leaf, Node, Term
from hermes_core.recall.tokens import bare, dense_runs, for_words, grams, words

Order = Literal["newest", "oldest"]

MAX_LEAVES = 64
"""Words and phrases of a boolean query that are obeyed."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which messages may be shown. Empty tuples and None ask for nothing."""

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    exclude_sources: tuple[str, ...] = ()
    exclude_sessions: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    user: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        """Conditions on messages `m` and sessions `s`, and their parameters."""
        conditions = ["m.state < 2"]
        parameters: list[Any] = []
        for column, operator, values in (
            ("m.role", "IN", self.roles),
            ("s.source", "IN", self.sources),
            ("s.id", "IN", self.sessions),
            ("s.source", "NOT IN", self.exclude_sources),
            ("s.id", "NOT IN", self.exclude_sessions),
        ):
            if values:
                conditions.append(f"{column} {operator} (SELECT value FROM json_each(?))")
                parameters.append(json.dumps(values))
        for column, operator, value in (
            ("m.timestamp", ">=", self.since),
            ("m.timestamp", "<", self.until),
            ("s.user", "=", self.user),
        ):
            if value is not None:
                conditions.append(f"{column} {operator} ?")
                parameters.append(value)
        return " AND ".join(conditions), parameters

    @property
    def ask_sessions(self) -> bool:
        """Whether the conditions look at sessions as well."""
        named = (self.sources, self.sessions, self.exclude_sources, self.exclude_sessions)
        return any(named) or self.user is not None

    def scope(self) -> Filters:
        """The part that holds for a message's neighbours as well: whose, and in which sessions."""
        return Filters(sessions=self.sessions, user=self.user)


def quoted(text: str) -> str:
    """`text` as one FTS5 string: its tokens side by side, whatever signs it holds."""
    return '"' + text.replace('"', '""') + '"'


def table_of(kind: str) -> str:
    """The index in which terms of this kind are looked up."""
    return "messages_grams" if kind == "gram" else "messages_fts"


def match_of(term: Term) -> str:
    """The FTS5 expression for a term and its other forms."""
    if term.kind == "gram":
        return f"{'pairs' if len(term.text) == 2 else 'ones'} : {quoted(term.text)}"
    return _any_of((term.text, *term.forms))


def _any_of(forms: Iterable[str]) -> str:
    return " OR ".join(quoted(for_words(form)) for form in forms)


def condition_sql(condition: Expression) -> tuple[str, list[str]]:
    """A condition on `m.id`. What one index can answer alone goes to it as one expression; the rest SQL joins."""
    parameters: list[str] = []

    def build(part: Expression) -> str:
        if len(parameters) >= MAX_LEAVES:
            return "1"
        if (native := native_match(part)) is not None:
            table, expression = native
            parameters.append(expression)
            return f"m.id IN (SELECT rowid FROM {table} WHERE {table} MATCH ?)"
        if isinstance(part, Leaf):
            return f"({' AND '.join(map(looked_up, _look_ups(part))) or '1'})"
        inner = [build(operand) for operand in part.operands]
        return f"NOT ({inner[0]})" if part.operator == "NOT" else f"({f' {part.operator} '.join(inner)})"

    def looked_up(one: tuple[str, str]) -> str:
        parameters.append(one[1])
        return f"m.id IN (SELECT rowid FROM {one[0]} WHERE {one[0]} MATCH ?)"

    return build(condition), parameters


def native_match(condition: Expression) -> tuple[str, str] | None:
    """The index that can answer a condition alone, and the FTS5 expression for it; None when none can."""
    if isinstance(condition, Leaf):
        found = _look_ups(condition)
        return found[0] if len(found) == 1 else None
    if condition.operator == "NOT" or len(list(leaves(condition))) > MAX_LEAVES:
        return None
    wanted = [part for part in condition.operands if not _negates(part)]
    unwanted = [part.operands[0] for part in condition.operands if isinstance(part, Node) and _negates(part)]
    if not wanted or (unwanted and condition.operator == "OR"):
        return None
    parts = [native_match(part) for part in (*wanted, *unwanted)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({table for table, _ in known}) > 1:
        return None
    texts = [f"({text})" for _, text in known]
    expression = f" {condition.operator} ".join(texts[: len(wanted)])
    if unwanted:
        expression = f"({expression}) NOT ({' OR '.join(texts[len(wanted) :])})"
    return known[0][0], expression


def leaves(condition: Expression) -> Iterator[Leaf]:
    """All words and phrases of a condition."""
    if isinstance(condition, Leaf):
        yield condition
        return
    for operand in condition.operands:
        yield from leaves(operand)


def required_words(condition: Expression) -> set[str]:
    """Words and grams that every message holds which fulfils the condition."""
    if isinstance(condition, Leaf):
        said = [] if condition.prefix or _forms(condition) else words(condition.text)
        return {bare(word) for word in said} | {
            gram for run in dense_runs(condition.text) for gram in (grams(run)[1] or grams(run)[0])
        }
    if condition.operator != "AND":
        return set()
    return set().union(*map(required_words, condition.operands))


def _negates(part: Expression) -> bool:
    return isinstance(part, Node) and part.operator == "NOT"


def _forms(leaf: Leaf) -> tuple[str, ...]:
    """What stands for a single word as well, where it was asked neither as a phrase nor as a beginning."""
    said = words(leaf.text)
    return hebrew_forms(said[0]) if len(said) == 1 and not (leaf.phrase or leaf.prefix) else ()


def _look_ups(leaf: Leaf) -> list[tuple[str, str]]:
    """A leaf's words as a phrase among words, its dense runs as phrases of pairs (or single characters)."""
    looked_up = []
    if said := words(leaf.text):
        phrase = quoted(for_words(" ".join(said))) + ("*" if leaf.prefix else "")
        looked_up.append(("messages_fts", _any_of((*said, *forms)) if (forms := _forms(leaf)) else phrase))
    for run in dense_runs(leaf.text):
        ones, pairs = grams(run)
        column, run_grams = ("pairs", pairs) if pairs else ("ones", ones)
        looked_up.append(("messages_grams", f"{column} : {quoted(' '.join(run_grams))}"))
    return looked_up

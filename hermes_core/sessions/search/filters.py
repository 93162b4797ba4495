"""Filters of a search and conditions of a boolean query, as SQL with bound values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hermes_core.recall.letters import hebrew_forms
from hermes_core.recall.query import Expression, Leaf, Node, Term
from hermes_core.recall.tokens import dense_runs, grams, index_text, strip_possessive, words

# Words and phrases of a boolean query that are applied; further ones are ignored.
MAX_LEAVES = 64


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of messages. Empty tuples and None filter nothing."""

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    exclude_sources: tuple[str, ...] = ()
    exclude_sessions: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    user: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        """Return conditions on messages `m` and sessions `s`, and their parameters."""
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
    def needs_sessions(self) -> bool:
        """Whether the conditions read columns of sessions."""
        named = (self.sources, self.sessions, self.exclude_sources, self.exclude_sessions)
        return any(named) or self.user is not None

    def scope(self) -> Filters:
        """Return the filters that apply to a message's neighbours as well: its user and its sessions."""
        return Filters(sessions=self.sessions, user=self.user)


def quoted(text: str) -> str:
    """Return `text` as one FTS5 string, which matches its tokens side by side; no syntax of FTS5 is left in it."""
    return '"' + text.replace('"', '""') + '"'


def table_of(kind: str) -> str:
    """Return the index in which terms of this kind are looked up."""
    return "messages_grams" if kind == "gram" else "messages_fts"


def match_of(term: Term) -> str:
    """Return the FTS5 expression for a term and its other forms."""
    if term.kind == "gram":
        return f"{'pairs' if len(term.text) == 2 else 'ones'} : {quoted(term.text)}"
    return _any_of((term.text, *term.forms))


def _any_of(forms: Iterable[str]) -> str:
    return " OR ".join(quoted(index_text(form)) for form in forms)


def condition_sql(condition: Expression) -> tuple[str, list[str]]:
    """Return a condition on `m.id` and its parameters. SQL joins what no single index can answer alone."""
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

    def looked_up(look_up: tuple[str, str]) -> str:
        table, expression = look_up
        parameters.append(expression)
        return f"m.id IN (SELECT rowid FROM {table} WHERE {table} MATCH ?)"

    return build(condition), parameters


def native_match(condition: Expression) -> tuple[str, str] | None:
    """Return the index that can answer a condition alone, and the FTS5 expression for it; None if none can."""
    if isinstance(condition, Leaf):
        look_ups = _look_ups(condition)
        return look_ups[0] if len(look_ups) == 1 else None
    if condition.operator == "NOT" or _count_leaves(condition) > MAX_LEAVES:
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


def _count_leaves(condition: Expression) -> int:
    if isinstance(condition, Leaf):
        return 1
    return sum(map(_count_leaves, condition.operands))


def required_words(condition: Expression) -> set[str]:
    """Return words and grams that every message has that fulfils the condition."""
    if isinstance(condition, Leaf):
        exact = [] if condition.prefix or _forms(condition) else words(condition.text)
        return {strip_possessive(word) for word in exact} | {
            gram for run in dense_runs(condition.text) for gram in (grams(run)[1] or grams(run)[0])
        }
    if condition.operator != "AND":
        return set()
    return set().union(*map(required_words, condition.operands))


def _negates(part: Expression) -> bool:
    return isinstance(part, Node) and part.operator == "NOT"


def _forms(leaf: Leaf) -> tuple[str, ...]:
    """Return other forms of a single word that is neither a phrase nor a prefix."""
    leaf_words = words(leaf.text)
    return hebrew_forms(leaf_words[0]) if len(leaf_words) == 1 and not (leaf.phrase or leaf.prefix) else ()


def _look_ups(leaf: Leaf) -> list[tuple[str, str]]:
    """Return look-ups of a leaf: its words as a phrase, its dense runs as phrases of pairs or single characters."""
    look_ups = []
    if leaf_words := words(leaf.text):
        phrase = quoted(index_text(" ".join(leaf_words))) + ("*" if leaf.prefix else "")
        look_ups.append(
            ("messages_fts", _any_of((*leaf_words, *forms)) if (forms := _forms(leaf)) else phrase)
        )
    for run in dense_runs(leaf.text):
        ones, pairs = grams(run)
        column, run_grams = ("pairs", pairs) if pairs else ("ones", ones)
        look_ups.append(("messages_grams", f"{column} : {quoted(' '.join(run_grams))}"))
    return look_ups

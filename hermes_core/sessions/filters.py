"""Which messages a search may show, and what a boolean query demands, as SQL conditions with bound values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from hermes_core.recall.query import Expression, Leaf, Term
from hermes_core.recall.tokens import dense_runs, grams, words

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
        conditions = ["m.position IS NOT NULL"]
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
    return " OR ".join(map(quoted, (term.text, *term.forms)))


def condition_sql(condition: Expression) -> tuple[str, list[str]]:
    """A condition on `m.id`, each word and phrase an indexed look-up of its own."""
    parameters: list[str] = []

    def build(part: Expression) -> str:
        if isinstance(part, Leaf):
            return _leaf_sql(part, parameters) if len(parameters) < MAX_LEAVES else "1"
        inner = [build(operand) for operand in part.operands]
        return f"NOT ({inner[0]})" if part.operator == "NOT" else f"({f' {part.operator} '.join(inner)})"

    return build(condition), parameters


def _leaf_sql(leaf: Leaf, parameters: list[str]) -> str:
    """A leaf's words as a phrase among words, its dense runs as phrases of pairs (or single characters)."""
    looked_up = []
    if said := words(leaf.text):
        looked_up.append(("messages_fts", quoted(" ".join(said)) + ("*" if leaf.prefix else "")))
    for run in dense_runs(leaf.text):
        ones, pairs = grams(run)
        column, run_grams = ("pairs", pairs) if pairs else ("ones", ones)
        looked_up.append(("messages_grams", f"{column} : {quoted(' '.join(run_grams))}"))
    parameters.extend(expression for _, expression in looked_up)
    parts = [f"m.id IN (SELECT rowid FROM {table} WHERE {table} MATCH ?)" for table, _ in looked_up]
    return f"({' AND '.join(parts)})" if parts else "1"

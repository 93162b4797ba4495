"""Look-up of a question's terms in the index, scores of the places where they stand, and filters as SQL.

Rare terms bring the places. Common terms, which would bring a large part of the store, only weigh the best of them. So
the cost of a question hardly grows with the store.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from hermes_core.recall.letters import hebrew_forms
from hermes_core.recall.query import Analysis, Expression, Leaf, Node, Term
from hermes_core.recall.rank import (
    CONTEXT_AFTER,
    CONTEXT_BEFORE,
    MIN_TERM_SHARE,
    SIMILAR_WORD_WEIGHT,
    Place,
    TermHits,
    rarity,
    score_places,
)
from hermes_core.recall.tokens import dense_runs, grams, index_text, strip_possessive, words
from hermes_core.sessions.records import Order
from hermes_core.storage.sqlite import Database

# A term in no more messages than this is rare, and all its places are looked up.
MAX_RARE_MESSAGES = 400

# With fewer hits of rare terms, the rarest common term brings its newest `MAX_COMMON_HITS` places as well.
MIN_RARE_HITS = 200

MAX_COMMON_HITS = 400

# Best places by rare terms for which common terms are looked up; somewhat more than are ranked in the end.
MAX_WEIGHED_PLACES = 160

# The rarest common terms of which any two together bring the newest `MIN_RARE_HITS` messages with both. In
# 100,000 messages these are few, and recall@10 rises from 48.5 to 60.2 (`bench/recall.py --turns 100000`) for
# 3 ms.
PAIRED_TERMS = 3

# A term is sought in each span of messages alone if it has more hits than this for each span. Reading past a
# hit takes 70 ns, seeking a span in a long list 22 us (SQLite 3.40).
SEEK_FREQUENCY = 300

# With no more sessions than this in scope, each one's span is sought, 30 us each; with more, whole lists are
# read.
MAX_SPAN_SESSIONS = 100

# Lengths of a question that is also tried as a phrase, as if someone pasted a piece of a message.
PHRASE_WORDS = range(2, 13)

# The first and the last id of messages that stand side by side.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _TermPlaces:
    """A looked-up term: its places, whether these are complete, and roughly how many messages hold it."""

    kind: str
    expression: str
    places: dict[Place, float]
    whole: bool
    frequency: int

    @property
    def hits(self) -> TermHits:
        return TermHits(self.frequency, self.places)


class Lookup:
    """A look-up of one question's terms among the sessions in scope.

    Of a common term's messages the newest are read, or the oldest if the answer begins with them.

    Attributes:
        holding: After `scores`, the places that hold a term themselves, with their message's id.
        expressions: After `scores`, the FTS5 expressions that were matched.
        spans: Where the messages in scope lie.
    """

    def __init__(self, database: Database, filters: Filters, order: Order | None = None) -> None:
        self._database = database
        condition, self._parameters = filters.scope().sql()
        scoped = bool(filters.sessions) or filters.user is not None
        self._scope = f"JOIN sessions s ON s.key = m.session_key WHERE {condition} AND" if scoped else "WHERE"
        if not scoped:
            self._parameters = []
        self._sizes: dict[Place, int] = {}
        self._direction = "ASC" if order == "oldest" else "DESC"
        self.holding: dict[Place, int] = {}
        self._newest = int(database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
        self.spans = scope_spans(database, filters, self._newest, order)
        self.expressions: list[str] = []

    def scores(self, analysis: Analysis, also: Collection[Place] = ()) -> dict[Place, float]:
        """Return scores of the best places, and of those in `also`, by their words and their neighbours'."""
        found = [term for term in map(self._find, analysis.terms) if term.places or not term.whole]
        self.expressions = [term.expression for term in found]
        bringing = [term for term in found if term.whole] + self._verbatim(analysis)
        weighing = sorted((term for term in found if not term.whole), key=lambda term: term.frequency)
        more = self._paired(weighing[:PAIRED_TERMS])
        few = sum(len(term.places) for term in bringing) < MIN_RARE_HITS
        if weighing and few:
            more.append(self._widened(weighing[0]))
        scores = self._scored(bringing + more)
        if len(weighing) <= few:
            return scores
        best = {*heapq.nlargest(MAX_WEIGHED_PLACES, scores, key=scores.__getitem__), *also}
        around = self._around(best)
        near = {place for places in around.values() for place in places.values()}
        terms = [replace(t, places={p: w for p, w in t.places.items() if p in near}) for t in bringing]
        terms += [self._among(term, around) for term in weighing]
        weighed = self._scored(terms)
        return {place: weighed.get(place, 0.0) for place in best}

    @property
    def min_proactive_score(self) -> float:
        """Least score of proactive recall by words."""
        return MIN_TERM_SHARE * rarity(1, self._newest)

    def scores_among(
        self,
        analysis: Analysis,
        ids: Mapping[int, Place],
        sizes: Mapping[Place, int],
        required: Collection[str],
    ) -> dict[Place, float]:
        """Return scores of these messages by their own words; each of them holds the `required` words."""
        self.expressions = [match_of(term) for term in analysis.terms]
        span = {(min(ids), max(ids)): ids} if ids else {}
        self._sizes.update(sizes)
        terms = []
        for term in analysis.terms:
            found = _TermPlaces(term.kind, match_of(term), dict.fromkeys(ids.values(), 1.0), True, len(ids))
            terms.append(found if term.text in required else self._among(found, span))
        scores = self._scored([term for term in terms if term.places])
        return {place: scores.get(place, 0.0) for place in ids.values()}

    def _scored(self, terms: Sequence[_TermPlaces]) -> dict[Place, float]:
        return score_places([term.hits for term in terms], self._newest, self._sizes)

    def _find(self, term: Term) -> _TermPlaces:
        """Look up a term with its other forms; words that may stand for it count at a lower weight."""
        similar = " OR ".join(map(quoted, term.similar))
        weak = {}
        if similar:
            weak = dict.fromkeys(self._places("word", similar, MAX_RARE_MESSAGES), SIMILAR_WORD_WEIGHT)
        expression = match_of(term)
        count, last = self._count(term.kind, expression)
        if count <= MAX_RARE_MESSAGES:
            strong = self._places(term.kind, expression, MAX_RARE_MESSAGES) if count else []
            places = weak | dict.fromkeys(strong, 1.0)
            return _TermPlaces(term.kind, expression, places, True, len(places))
        # Estimated from how densely the counted hits lie: counting all would mean reading them all.
        span = last if self._direction == "ASC" else self._newest - last + 1
        frequency = count * self._newest // max(span, 1)
        return _TermPlaces(term.kind, expression, weak, False, max(frequency, count))

    def _widened(self, term: _TermPlaces) -> _TermPlaces:
        """Return the term with its newest places."""
        places = self._places(term.kind, term.expression, MAX_COMMON_HITS)
        return _TermPlaces(
            term.kind, term.expression, term.places | dict.fromkeys(places, 1.0), True, term.frequency
        )

    def _paired(self, terms: Sequence[_TermPlaces]) -> list[_TermPlaces]:
        """Return each two of these terms that stand in one message as one rarer term."""
        pairs = []
        for a, b in combinations(terms, 2):
            if a.kind == b.kind:
                expression = f"({a.expression}) AND ({b.expression})"
                places = self._places(a.kind, expression, MIN_RARE_HITS)
                pairs.append(_TermPlaces(a.kind, expression, dict.fromkeys(places, 1.0), True, len(places)))
        return [pair for pair in pairs if pair.places]

    def _verbatim(self, analysis: Analysis) -> list[_TermPlaces]:
        """Return the whole question as one phrase if it may be a piece of a message."""
        question = words(analysis.text)
        if len(question) not in PHRASE_WORDS:
            return []
        expression = quoted(" ".join(question))
        places = self._places("word", expression, MAX_RARE_MESSAGES)
        return (
            [_TermPlaces("word", expression, dict.fromkeys(places, 1.0), True, len(places))] if places else []
        )

    def _count(self, kind: str, expression: str) -> tuple[int, int]:
        """Return how many messages match, at most `MAX_RARE_MESSAGES` + 1, and the last id counted.

        This reads the index alone. Reading the places takes three times as long, and most of a common term's are not needed.
        """
        table, count, last = table_of(kind), 0, 0
        scope = f"JOIN messages m ON m.id = f.rowid {self._scope}" if self._parameters else "WHERE"
        sql = f"""SELECT f.rowid FROM {table} f {scope} {table} MATCH ? AND f.rowid BETWEEN ? AND ?
            ORDER BY f.rowid {self._direction} LIMIT ?"""
        for first, end in self.spans:
            asked = (*self._parameters, expression, first, end, MAX_RARE_MESSAGES + 1 - count)
            rows = self._database.execute(sql, asked).fetchall()
            if rows:
                count, last = count + len(rows), rows[-1][0]
            if count > MAX_RARE_MESSAGES:
                break
        return count, last

    def _places(self, kind: str, expression: str, limit: int) -> list[Place]:
        """Return the newest places where an expression matches, or the oldest."""
        table = table_of(kind)
        sql = f"""SELECT m.session_key, m.position, m.size, m.id FROM {table} f JOIN messages m ON m.id = f.rowid
            {self._scope} {table} MATCH ? AND f.rowid BETWEEN ? AND ? ORDER BY f.rowid {self._direction} LIMIT ?"""
        places: list[Place] = []
        for first, last in self.spans:
            asked = (*self._parameters, expression, first, last, limit - len(places))
            for key, position, size, message_id in self._database.execute(sql, asked).fetchall():
                place = (key, position)
                places.append(place)
                self._sizes[place] = size
                self.holding[place] = message_id
            if len(places) >= limit:
                break
        return places

    def _among(self, term: _TermPlaces, around: Mapping[Span, Mapping[int, Place]]) -> _TermPlaces:
        """Return the term with its hits in these spans of messages only."""
        if not around:
            return replace(term, places={})
        table = table_of(term.kind)
        spanned = term.frequency * sum(last - first + 1 for first, last in around) // max(self._newest, 1)
        if term.frequency > SEEK_FREQUENCY * len(around) + spanned:
            source = "json_each(?) w CROSS JOIN"
            within = "f.rowid BETWEEN json_extract(w.value, '$[0]') AND json_extract(w.value, '$[1]')"
            asked: tuple[object, ...] = (json.dumps(list(around)), term.expression)
        else:
            # The plus keeps SQLite from asking FTS5 once for each id: reading the list once is cheaper here.
            source, within = "", "f.rowid BETWEEN ? AND ? AND +f.rowid IN (SELECT value FROM json_each(?))"
            first, last = min(start for start, _ in around), max(end for _, end in around)
            asked = (term.expression, first, last, json.dumps([i for ids in around.values() for i in ids]))
        rows = self._database.execute(
            f"""SELECT m.id, m.session_key, m.position, m.size FROM {source} {table} f
                JOIN messages m ON m.id = f.rowid WHERE {table} MATCH ? AND {within}""",
            asked,
        ).fetchall()
        ids = {message_id for span in around.values() for message_id in span}
        rows = [row for row in rows if row[0] in ids]  # other sessions' messages lie between those of a span
        self._sizes.update(((key, position), size) for _, key, position, size in rows)
        self.holding.update(((key, position), message_id) for message_id, key, position, _ in rows)
        places = {(key, position): 1.0 for _, key, position, _ in rows}
        return replace(term, places=places, whole=True, frequency=term.frequency or len(places))

    def _around(self, places: Iterable[Place]) -> dict[Span, dict[int, Place]]:
        """Return all messages whose words count for these places, by the span that holds them."""
        windows = _windows(places)
        rows = self._database.execute(
            """SELECT w.key, m.id, m.session_key, m.position FROM json_each(?) w
               CROSS JOIN messages m ON m.session_key = json_extract(w.value, '$[0]')
                   AND m.position BETWEEN json_extract(w.value, '$[1]') AND json_extract(w.value, '$[2]')""",
            (json.dumps(windows),),
        )
        by_window: dict[int, dict[int, Place]] = {}
        for window, message_id, key, position in rows:
            by_window.setdefault(window, {})[message_id] = (key, position)
        return {(min(ids), max(ids)): ids for ids in by_window.values()}


def scope_spans(database: Database, filters: Filters, newest: int, order: Order | None) -> list[Span]:
    """Return where the messages of the sessions in scope lie, the newest first (or the oldest).

    It is one span of the whole store if the filters name no sessions, or too many. So a search for one user reads little
    of what belongs to others.
    """
    everywhere = [(0, newest)]
    conditions, parameters = ["s.message_count > 0"], []
    if filters.user is not None:
        conditions.append("s.user = ?")
        parameters.append(filters.user)
    if filters.sessions:
        conditions.append("s.id IN (SELECT value FROM json_each(?))")
        parameters.append(json.dumps(filters.sessions))
    if not parameters:
        return everywhere
    # A session's ids grow with its positions.
    end = "(SELECT id FROM messages WHERE session_key = s.key AND position IS NOT NULL ORDER BY position {} LIMIT 1)"
    rows = database.execute(
        f"""SELECT {end.format("ASC")}, {end.format("DESC")} FROM sessions s
            WHERE {" AND ".join(conditions)} LIMIT {MAX_SPAN_SESSIONS + 1}""",
        parameters,
    ).fetchall()
    if len(rows) > MAX_SPAN_SESSIONS:
        return everywhere
    joined: list[Span] = []
    for first, last in sorted((first, last) for first, last in rows if first is not None):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined if order == "oldest" else joined[::-1]


def _windows(places: Iterable[Place]) -> list[tuple[int, int, int]]:
    """Return joined windows of these places and their context: session, first and last position."""
    windows: list[tuple[int, int, int]] = []
    for group, position in sorted(places):
        start, end = position - len(CONTEXT_BEFORE), position + len(CONTEXT_AFTER)
        if windows and windows[-1][0] == group and start <= windows[-1][2] + 1:
            windows[-1] = (group, windows[-1][1], end)
        else:
            windows.append((group, start, end))
    return windows


# ---------------------------------------------------------------------- filters and conditions as SQL

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
        """True if the conditions read columns of sessions."""
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

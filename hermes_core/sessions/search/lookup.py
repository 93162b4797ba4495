"""Look-up of a question's terms in the search indexes, scores of their places, and filters as SQL.

A place is the position of a message in its session. The messages with rare terms of the question are candidates. Common
terms, which are in a large part of the store, only add to the scores of the best candidates. So the cost of a question
hardly grows with the store.
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
from hermes_core.sessions.records import MEMORY_TOOLS, SYSTEM_ROLES, Order
from hermes_core.storage.sqlite import Database

# A term in at most this many messages is rare, and all its places are looked up.
MAX_RARE_MESSAGES = 400

# If rare terms have fewer hits than this, the newest `MAX_COMMON_HITS` places of the rarest common term are added,
# so that there is something to rank.
MIN_RARE_HITS = 200

MAX_COMMON_HITS = 400

# Number of best places by rare terms for which common terms are looked up; a little more than are ranked in the end.
MAX_WEIGHED_PLACES = 160

# Number of the rarest common terms that are looked up in pairs: the newest `MIN_RARE_HITS` messages with both terms
# of a pair become candidates. In 100,000 messages this raises recall@10 from 48.5 to 60.2 (`bench/recall.py --turns
# 100000`) for 3 ms.
PAIRED_TERMS = 3

# A term is sought in each span of messages alone if it has more hits than this for each span. Reading past a
# hit takes 70 ns, seeking a span in a long list 22 us (SQLite 3.40).
SEEK_FREQUENCY = 300

# If at most this many sessions are in scope, the span of each is sought, at 30 us each; with more sessions, reading
# whole lists is cheaper.
MAX_SPAN_SESSIONS = 100

# A question with so many words is also looked up as one phrase, because the person may have pasted a part of a message.
PHRASE_WORDS = range(2, 13)

# A range of message ids: the first and the last.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _TermPlaces:
    """The places of a term in the index.

    Attributes:
        kind: Kind of the term: "word" or "gram".
        expression: The FTS5 expression for the term.
        places: Strength, from 0 to 1, by place.
        whole: True if `places` holds all places of the term.
        frequency: Approximate number of messages with the term.
    """

    kind: str
    expression: str
    places: dict[Place, float]
    whole: bool
    frequency: int

    @property
    def hits(self) -> TermHits:
        return TermHits(self.frequency, self.places)


class Lookup:
    """A look-up of one question's terms among the messages in the sessions of the filters.

    Of the messages with a common term only the newest are read, or the oldest if `order` is "oldest".

    Attributes:
        holding: Message ids by place, for the places with a term of the question. Filled by `scores`.
        expressions: The FTS5 expressions for the terms. Filled by `scores`.
        spans: The ranges of message ids that are searched.
    """

    def __init__(self, database: Database, filters: Filters, order: Order | None = None) -> None:
        self._database = database
        scope = filters.scope()
        condition, self._parameters = scope.session_sql()
        self._scope = "WHERE"
        if scope.needs_sessions:
            self._scope = f"JOIN sessions s ON s.key = m.session_key WHERE {condition} AND"
        self._sizes: dict[Place, int] = {}
        self._direction = "ASC" if order == "oldest" else "DESC"
        self.holding: dict[Place, int] = {}
        self._newest = int(database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])
        self._counter = ScopeCounter(database, filters, self._newest)
        self._total = self._counter.total
        self.spans = self._counter.spans(order)
        self.expressions: list[str] = []

    def scores(self, analysis: Analysis, also: Collection[Place] = ()) -> dict[Place, float]:
        """Return the scores of the best places for a question, and of the places in `also`.

        The words of a message count, and at lower weights the words of its neighbours.
        """
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
        """Lowest score by words that a message needs in proactive recall."""
        return MIN_TERM_SHARE * rarity(1, self._total)

    def scores_among(
        self,
        analysis: Analysis,
        ids: Mapping[int, Place],
        sizes: Mapping[Place, int],
        required: Collection[str],
    ) -> dict[Place, float]:
        """Return the scores of given messages by their own words, without the words of their neighbours.

        Args:
            analysis: The question.
            ids: The messages: places by message id.
            sizes: Characters of the messages, by place.
            required: Words that each of the messages is known to have, so that they need no look-up.
        """
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
        return score_places([term.hits for term in terms], self._total, self._sizes)

    def _find(self, term: Term) -> _TermPlaces:
        """Look up a term with its other forms, and with similar words at a lower weight.

        If the term is common, estimate its frequency and leave its places out.
        """
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
        # Estimated from the messages among which the counted hits lie, because counting all hits would mean reading
        # them all. Messages of others between them don't count: a word is as rare for its owner in a shared store.
        passed = self._counter.messages_from(last)
        passed = self._total - passed + 1 if self._direction == "ASC" else passed
        frequency = count * self._total // max(passed, count)
        return _TermPlaces(term.kind, expression, weak, False, max(frequency, count))

    def _widened(self, term: _TermPlaces) -> _TermPlaces:
        """Return a common term with its newest (or oldest) `MAX_COMMON_HITS` places."""
        places = self._places(term.kind, term.expression, MAX_COMMON_HITS)
        return _TermPlaces(
            term.kind, term.expression, term.places | dict.fromkeys(places, 1.0), True, term.frequency
        )

    def _paired(self, terms: Sequence[_TermPlaces]) -> list[_TermPlaces]:
        """Return each pair of these terms that occurs in one message as one term, which is rarer than both."""
        pairs = []
        for a, b in combinations(terms, 2):
            if a.kind == b.kind:
                expression = f"({a.expression}) AND ({b.expression})"
                places = self._places(a.kind, expression, MIN_RARE_HITS)
                pairs.append(_TermPlaces(a.kind, expression, dict.fromkeys(places, 1.0), True, len(places)))
        return [pair for pair in pairs if pair.places]

    def _verbatim(self, analysis: Analysis) -> list[_TermPlaces]:
        """Return the whole question as one term, a phrase, if a message contains it; else an empty list."""
        question = words(analysis.text)
        if len(question) not in PHRASE_WORDS:
            return []
        expression = quoted(" ".join(question))
        places = self._places("word", expression, MAX_RARE_MESSAGES)
        return (
            [_TermPlaces("word", expression, dict.fromkeys(places, 1.0), True, len(places))] if places else []
        )

    def _count(self, kind: str, expression: str) -> tuple[int, int]:
        """Return how many messages match an FTS5 expression, and the id at which counting stopped.

        Counting stops after `MAX_RARE_MESSAGES` + 1 messages. It reads the index alone. Reading the places too would
        take three times as long, and most places of a common term are not needed.
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
        """Return the newest `limit` places where an FTS5 expression matches, or the oldest."""
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
        """Return the term with only those of its places that are in `around`, as the method `_around` returns it."""
        if not around:
            return replace(term, places={})
        table = table_of(term.kind)
        listed = term.frequency * self._newest // max(self._total, 1)  # hits of everybody in the index
        spanned = listed * sum(last - first + 1 for first, last in around) // max(self._newest, 1)
        if listed > SEEK_FREQUENCY * len(around) + spanned:
            source = "json_each(?) w CROSS JOIN"
            within = "f.rowid BETWEEN json_extract(w.value, '$[0]') AND json_extract(w.value, '$[1]')"
            asked: tuple[object, ...] = (json.dumps(list(around)), term.expression)
        else:
            # The plus keeps SQLite from asking FTS5 once for each id, because reading the whole list is cheaper here.
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
        """Return the messages whose words count for these places: places by message id, grouped by range of ids.

        These are the messages at the places and their neighbours.
        """
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


class ScopeCounter:
    """A counter of the messages in the sessions of the filters, so that other owners' messages change no ranking.

    Attributes:
        total: Number of messages in the scope of the filters.
    """

    def __init__(self, database: Database, filters: Filters, newest: int) -> None:
        self._database = database
        self._scope = filters.scope()
        self._newest = newest
        scope = self._scope
        self._named = bool(scope.sources or scope.sessions or scope.user is not None)
        self.total = self._sum("s.message_count") if self._named else newest
        # Ranges of message ids of the sessions with the number of their messages; None if there are too many sessions.
        self._sessions = self._few_sessions() if self._named else None
        # A search for one user then reads few messages of others.
        self._narrow = scope.sessions or scope.user is not None

    def spans(self, order: Order | None) -> list[Span]:
        """Return the ranges of message ids to search, newest first, or oldest first if `order` is "oldest".

        If the filters name a user or sessions, these are the ranges of their sessions. If they name neither, or too
        many sessions, it is the range of all messages.
        """
        if self._sessions is None or not self._narrow:
            return [(0, self._newest)]
        joined: list[Span] = []
        for (first, last), _ in self._sessions:
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return joined if order == "oldest" else joined[::-1]

    def messages_from(self, message_id: int) -> int:
        """Return about how many messages of the scope have this id or a higher id.

        The messages of a session are taken to lie evenly between its first and its last. With too many sessions for
        that, those that began after the session of the message count whole, since ids of sessions grow with time too.
        """
        if not self._named:
            return self._newest - message_id + 1
        if self._sessions is not None:
            return round(sum(count * _share_from(span, message_id) for span, count in self._sessions))
        (key, position) = self._database.execute(
            "SELECT session_key, coalesce(position, 0) FROM messages WHERE id = ?", (message_id,)
        ).fetchone() or (0, 0)
        return self._sum(
            "CASE WHEN s.key > ? THEN s.message_count WHEN s.key = ? THEN s.message_count - ? ELSE 0 END",
            (key, key, position),
        )

    def _sum(self, expression: str, parameters: tuple[int, ...] = ()) -> int:
        condition, of_sessions = self._scope.session_sql()
        sql = f"SELECT coalesce(sum({expression}), 0) FROM sessions s WHERE {condition}"
        return int(self._database.execute(sql, (*parameters, *of_sessions)).fetchone()[0])

    def _few_sessions(self) -> list[tuple[Span, int]] | None:
        condition, parameters = self._scope.session_sql()
        # In a session, message ids grow with positions, so the first and last position give its range of ids.
        end = "(SELECT id FROM messages WHERE session_key = s.key AND position IS NOT NULL ORDER BY position {} LIMIT 1)"
        rows = self._database.execute(
            f"""SELECT {end.format("ASC")}, {end.format("DESC")}, s.message_count FROM sessions s
                WHERE {condition} LIMIT {MAX_SPAN_SESSIONS + 1}""",
            parameters,
        ).fetchall()
        if len(rows) > MAX_SPAN_SESSIONS:
            return None
        return sorted(((first, last), count) for first, last, count in rows if first is not None)


def _share_from(span: Span, message_id: int) -> float:
    """Return which share of a range of ids begins with `message_id`."""
    first, last = span
    return min(max((last - message_id + 1) / (last - first + 1), 0.0), 1.0)


def _windows(places: Iterable[Place]) -> list[tuple[int, int, int]]:
    """Return windows around these places, as session, first and last position. Overlapping windows are joined.

    A window holds a place and the neighbours whose words count for it.
    """
    windows: list[tuple[int, int, int]] = []
    for group, position in sorted(places):
        start, end = position - len(CONTEXT_BEFORE), position + len(CONTEXT_AFTER)
        if windows and windows[-1][0] == group and start <= windows[-1][2] + 1:
            windows[-1] = (group, windows[-1][1], end)
        else:
            windows.append((group, start, end))
    return windows


# ---------------------------------------------------------------------- filters and conditions as SQL

# Largest number of words and phrases of a query with operators; the rest is ignored, so that a pasted text does not
# become a huge SQL query.
MAX_LEAVES = 64

_ONE_OF = "(SELECT value FROM json_each(?))"
_NO_SYSTEM_ROLE = f"m.role NOT IN {tuple(sorted(SYSTEM_ROLES))}"
# Only messages without text are read for their calls: they stand behind the text, perhaps on other pages.
_NO_MEMORY_TOOL = f"""
    NOT (m.role = 'tool' AND m.tool_name IN {MEMORY_TOOLS})
    AND NOT (m.content = '' AND m.tool_calls <> '' AND json_valid(m.tool_calls) AND NOT EXISTS (
        SELECT 1 FROM json_each(m.tool_calls) c
        WHERE coalesce(json_extract(c.value, '$.function.name'), json_extract(c.value, '$.name'), '') NOT IN {MEMORY_TOOLS}))
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of messages. An empty tuple and None filter nothing.

    Attributes:
        roles: Roles of the messages.
        sources: Sources of their sessions.
        sessions: Ids of their sessions.
        exclude_sources: Sources of sessions to leave out.
        exclude_sessions: Ids of sessions to leave out.
        since: First time in epoch seconds.
        until: Time in epoch seconds before which the messages are.
        user: Owner of the sessions.
    """

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    exclude_sources: tuple[str, ...] = ()
    exclude_sessions: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    user: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        """Return the filters as an SQL condition on messages `m` and sessions `s`, and its parameters.

        Instructions of a host, and the calls and results of the tools of memory, pass only if a role is asked for.
        """
        conditions: list[str] = ["m.state < 2"]
        parameters: list[Any] = []
        if not self.roles:
            conditions.append(_NO_SYSTEM_ROLE)
        if "tool" not in self.roles:
            conditions.append(_NO_MEMORY_TOOL)
        if self.roles:
            conditions.append(f"m.role IN {_ONE_OF}")
            parameters.append(json.dumps(self.roles))
        for operator, moment in ((">=", self.since), ("<", self.until)):
            if moment is not None:
                conditions.append(f"m.timestamp {operator} ?")
                parameters.append(moment)
        if self.needs_sessions:
            condition, of_sessions = self.session_sql()
            conditions.append(condition)
            parameters += of_sessions
        return " AND ".join(conditions), parameters

    def session_sql(self) -> tuple[str, list[Any]]:
        """Return the filters of sessions as an SQL condition on sessions `s`, and its parameters."""
        conditions: list[str] = ["s.message_count > 0"]
        parameters: list[Any] = []
        for column, operator, values in (
            ("s.source", "IN", self.sources),
            ("s.id", "IN", self.sessions),
            ("s.source", "NOT IN", self.exclude_sources),
            ("s.id", "NOT IN", self.exclude_sessions),
        ):
            if values:
                conditions.append(f"{column} {operator} {_ONE_OF}")
                parameters.append(json.dumps(values))
        if self.user is not None:
            conditions.append("s.user = ?")
            parameters.append(self.user)
        return " AND ".join(conditions), parameters

    @property
    def needs_sessions(self) -> bool:
        """True if the conditions read columns of sessions."""
        named = (self.sources, self.sessions, self.exclude_sources, self.exclude_sessions)
        return any(named) or self.user is not None

    def without_sources(self, sources: Sequence[str]) -> Filters:
        """Return these filters with further sources to leave out."""
        return replace(self, exclude_sources=(*self.exclude_sources, *sources))

    def scope(self) -> Filters:
        """Return only the filters of sessions, which also apply to the neighbours of a message.

        Left out are excluded sessions: they are those of the current conversation, a small part of the store.
        """
        return Filters(
            sources=self.sources,
            sessions=self.sessions,
            exclude_sources=self.exclude_sources,
            user=self.user,
        )


def quoted(text: str) -> str:
    """Return `text` as one FTS5 string, without syntax of FTS5. It matches the words of `text` side by side."""
    return '"' + text.replace('"', '""') + '"'


def table_of(kind: str) -> str:
    """Return the name of the index for terms of this kind, "word" or "gram"."""
    return "messages_grams" if kind == "gram" else "messages_fts"


def match_of(term: Term) -> str:
    """Return the FTS5 expression for a term and its other forms."""
    if term.kind == "gram":
        return f"{'pairs' if len(term.text) == 2 else 'ones'} : {quoted(term.text)}"
    return _any_of((term.text, *term.forms))


def _any_of(forms: Iterable[str]) -> str:
    return " OR ".join(quoted(index_text(form)) for form in forms)


def condition_sql(condition: Expression) -> tuple[str, list[str]]:
    """Return the condition of a question as an SQL condition on `m.id`, and its parameters.

    Parts that one index can answer become one FTS5 query; SQL joins the parts.
    """
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
    """Return the name of the one index that can answer the whole condition, and the FTS5 expression to ask it.

    Return None if the condition needs both indexes or SQL.
    """
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
    """Return the words and grams that a message must have to fulfil the condition."""
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
    """Return the other (Hebrew) forms of a leaf that is a single word; no forms for a phrase or a prefix."""
    leaf_words = words(leaf.text)
    return hebrew_forms(leaf_words[0]) if len(leaf_words) == 1 and not (leaf.phrase or leaf.prefix) else ()


def _look_ups(leaf: Leaf) -> list[tuple[str, str]]:
    """Return the index and the FTS5 expression for each part of a leaf.

    Its words are one phrase in the word index. Each run of text in a script without spaces between words is a phrase of
    pairs of characters, or a single character, in the gram index.
    """
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

"""Where the terms of a question stand, and what each place is worth for it.

Rare terms bring the places; common ones, which would bring a good part of the store, only weigh the best of them.
So the cost of a question hardly grows with the store.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hermes_core.recall.query import Analysis, Term
from hermes_core.recall.rank import (
    CONTEXT_AFTER,
    CONTEXT_BEFORE,
    NEAR_WORD_WEIGHT,
    RELEVANT,
    Place,
    TermHits,
    rarity,
    score_places,
)
from hermes_core.recall.tokens import words
from hermes_core.sessions.search.filters import Filters, Order, match_of, quoted, table_of
from hermes_core.storage.sqlite import Database

RARE = 400
"""A term that stands in no more messages than this is looked up whole."""

ENOUGH = 200
"""With fewer hits than this of rare terms, the rarest of the common ones brings places too: its newest `MOST`."""

MOST = 400
WEIGHED = 160
"""Best places by rare terms that common ones are weighed for; somewhat more than what is ranked in the end."""

TOGETHER = 3
"""Of so many common terms, the rarest, any two bring the newest `ENOUGH` messages that hold both: in 100,000 messages
that are few, and recall@10 rises from 48.5 to 60.2 (`bench/recall.py --turns 100000`) for 3 ms.
"""

WALKED = 300
"""A term is sought in each stretch of messages alone when it stands in more than this many messages for each of them.
Walking through a hit of a term's list takes 70 ns, seeking a stretch in a long list 22 us (SQLite 3.40).
"""

FEW_SESSIONS = 100
"""Of no more sessions than this the stretches are sought one by one, 30 us each; of more the lists are walked whole."""

PHRASE_WORDS = range(2, 13)
"""Lengths of a question that is also tried as the very words of one message, as when someone pastes a piece of it."""


Stretch = tuple[int, int]
"""The first and the last id of messages that stand side by side."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A term's look-up: its places, whether these are all, and in how many messages it stands, roughly."""

    kind: str
    expression: str
    places: dict[Place, float]
    whole: bool
    frequency: int

    @property
    def hits(self) -> TermHits:
        return TermHits(self.frequency, self.places)


class Lookup:
    """Looks up the terms of one question in one store, among the sessions in scope.

    Of a term's many messages the newest are looked at, or the oldest when the answer is to begin with them.
    Afterwards `holding` are the places found to hold a term themselves, with their message's id, and `asked` the
    expressions that were matched.
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
        self.stretches = stretches_of(database, filters, self._newest, order)
        self.asked: list[str] = []

    def scores(self, analysis: Analysis, also: Collection[Place] = ()) -> dict[Place, float]:
        """What the best places are worth by their words and their neighbours', and those of `also`."""
        found = [term for term in map(self._find, analysis.terms) if term.places or not term.whole]
        self.asked = [term.expression for term in found]
        bringing = [term for term in found if term.whole] + self._verbatim(analysis)
        weighing = sorted((term for term in found if not term.whole), key=lambda term: term.frequency)
        more = self._together(weighing[:TOGETHER])
        few = sum(len(term.places) for term in bringing) < ENOUGH
        if weighing and few:
            more.append(self._widened(weighing[0]))
        scores = self._scored(bringing + more)
        if len(weighing) <= few:
            return scores
        best = {*heapq.nlargest(WEIGHED, scores, key=scores.__getitem__), *also}
        around = self._around(best)
        near = {place for places in around.values() for place in places.values()}
        terms = [replace(t, places={p: w for p, w in t.places.items() if p in near}) for t in bringing]
        terms += [self._among(term, around) for term in weighing]
        weighed = self._scored(terms)
        return {place: weighed.get(place, 0.0) for place in best}

    @property
    def least(self) -> float:
        """What a message is worth that holds just enough of a question to be recalled unasked."""
        return RELEVANT * rarity(1, self._newest)

    def scores_among(
        self,
        analysis: Analysis,
        ids: Mapping[int, Place],
        sizes: Mapping[Place, int],
        required: Collection[str],
    ) -> dict[Place, float]:
        """What these messages are worth by their own words; each holds the `required` ones."""
        self.asked = [match_of(term) for term in analysis.terms]
        stretch = {(min(ids), max(ids)): ids} if ids else {}
        self._sizes.update(sizes)
        terms = []
        for term in analysis.terms:
            found = _Found(term.kind, match_of(term), dict.fromkeys(ids.values(), 1.0), True, len(ids))
            terms.append(found if term.text in required else self._among(found, stretch))
        scores = self._scored([term for term in terms if term.places])
        return {place: scores.get(place, 0.0) for place in ids.values()}

    def _scored(self, terms: Sequence[_Found]) -> dict[Place, float]:
        return score_places([term.hits for term in terms], self._newest, self._sizes)

    def _find(self, term: Term) -> _Found:
        """A term with its other forms; words that may stand for it join at less strength."""
        near = " OR ".join(map(quoted, term.near))
        weak = dict.fromkeys(self._places("word", near, RARE), NEAR_WORD_WEIGHT) if near else {}
        expression = match_of(term)
        count, last = self._thick(term.kind, expression)
        if count <= RARE:
            strong = self._places(term.kind, expression, RARE) if count else []
            places = weak | dict.fromkeys(strong, 1.0)
            return _Found(term.kind, expression, places, True, len(places))
        # These hits tell how thick they lie: counting all would mean to read them all.
        span = last if self._direction == "ASC" else self._newest - last + 1
        frequency = count * self._newest // max(span, 1)
        return _Found(term.kind, expression, weak, False, max(frequency, count))

    def _widened(self, term: _Found) -> _Found:
        places = self._places(term.kind, term.expression, MOST)
        return _Found(
            term.kind, term.expression, term.places | dict.fromkeys(places, 1.0), True, term.frequency
        )

    def _together(self, terms: Sequence[_Found]) -> list[_Found]:
        """Any two of these terms as one, which is about as rare as both are worth; none where they stand apart."""
        found = []
        for a, b in combinations(terms, 2):
            if a.kind == b.kind:
                expression = f"({a.expression}) AND ({b.expression})"
                places = self._places(a.kind, expression, ENOUGH)
                found.append(_Found(a.kind, expression, dict.fromkeys(places, 1.0), True, len(places)))
        return [one for one in found if one.places]

    def _verbatim(self, analysis: Analysis) -> list[_Found]:
        """The whole question as one phrase, when it may be a piece of a message."""
        said = words(analysis.text)
        if len(said) not in PHRASE_WORDS:
            return []
        expression = quoted(" ".join(said))
        places = self._places("word", expression, RARE)
        return [_Found("word", expression, dict.fromkeys(places, 1.0), True, len(places))] if places else []

    def _thick(self, kind: str, expression: str) -> tuple[int, int]:
        """In how many messages an expression matches, one more than `RARE` at most, and the last one counted.

        Of an index alone: to look up where they stand takes thrice as long, and most of a common word's are not asked for.
        """
        table, count, last = table_of(kind), 0, 0
        scope = f"JOIN messages m ON m.id = f.rowid {self._scope}" if self._parameters else "WHERE"
        sql = f"""SELECT f.rowid FROM {table} f {scope} {table} MATCH ? AND f.rowid BETWEEN ? AND ?
            ORDER BY f.rowid {self._direction} LIMIT ?"""
        for first, end in self.stretches:
            asked = (*self._parameters, expression, first, end, RARE + 1 - count)
            rows = self._database.execute(sql, asked).fetchall()
            if rows:
                count, last = count + len(rows), rows[-1][0]
            if count > RARE:
                break
        return count, last

    def _places(self, kind: str, expression: str, limit: int) -> list[Place]:
        """The newest places where an expression matches, or the oldest."""
        table = table_of(kind)
        sql = f"""SELECT m.session_key, m.position, m.size, m.id FROM {table} f JOIN messages m ON m.id = f.rowid
            {self._scope} {table} MATCH ? AND f.rowid BETWEEN ? AND ? ORDER BY f.rowid {self._direction} LIMIT ?"""
        places: list[Place] = []
        for first, last in self.stretches:
            asked = (*self._parameters, expression, first, last, limit - len(places))
            for key, position, size, message_id in self._database.execute(sql, asked).fetchall():
                place = (key, position)
                places.append(place)
                self._sizes[place] = size
                self.holding[place] = message_id
            if len(places) >= limit:
                break
        return places

    def _among(self, term: _Found, around: Mapping[Stretch, Mapping[int, Place]]) -> _Found:
        """A term's hits in these stretches of messages only."""
        if not around:
            return replace(term, places={})
        table = table_of(term.kind)
        spanned = term.frequency * sum(last - first + 1 for first, last in around) // max(self._newest, 1)
        if term.frequency > WALKED * len(around) + spanned:
            source = "json_each(?) w CROSS JOIN"
            within = "f.rowid BETWEEN json_extract(w.value, '$[0]') AND json_extract(w.value, '$[1]')"
            asked: tuple[object, ...] = (json.dumps(list(around)), term.expression)
        else:
            # The plus keeps SQLite from asking FTS5 once for each id: here one walk through the list is cheaper.
            source, within = "", "f.rowid BETWEEN ? AND ? AND +f.rowid IN (SELECT value FROM json_each(?))"
            first, last = min(start for start, _ in around), max(end for _, end in around)
            asked = (term.expression, first, last, json.dumps([i for ids in around.values() for i in ids]))
        rows = self._database.execute(
            f"""SELECT m.id, m.session_key, m.position, m.size FROM {source} {table} f
                JOIN messages m ON m.id = f.rowid WHERE {table} MATCH ? AND {within}""",
            asked,
        ).fetchall()
        ids = {message_id for stretch in around.values() for message_id in stretch}
        rows = [row for row in rows if row[0] in ids]  # others stand between those of a stretch
        self._sizes.update(((key, position), size) for _, key, position, size in rows)
        self.holding.update(((key, position), message_id) for message_id, key, position, _ in rows)
        places = {(key, position): 1.0 for _, key, position, _ in rows}
        return replace(term, places=places, whole=True, frequency=term.frequency or len(places))

    def _around(self, places: Iterable[Place]) -> dict[Stretch, dict[int, Place]]:
        """All messages whose words count for these places, by the first and last id of each stretch of them."""
        windows = _windows(places)
        rows = self._database.execute(
            """SELECT w.key, m.id, m.session_key, m.position FROM json_each(?) w
               CROSS JOIN messages m ON m.session_key = json_extract(w.value, '$[0]')
                   AND m.position BETWEEN json_extract(w.value, '$[1]') AND json_extract(w.value, '$[2]')""",
            (json.dumps(windows),),
        )
        found: dict[int, dict[int, Place]] = {}
        for window, message_id, key, position in rows:
            found.setdefault(window, {})[message_id] = (key, position)
        return {(min(ids), max(ids)): ids for ids in found.values()}


def stretches_of(database: Database, filters: Filters, newest: int, order: Order | None) -> list[Stretch]:
    """Where the messages of the sessions in scope lie, the newest first (or the oldest); all of the store when that is
    no less work. So a search for one user reads little of what is others'.
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
            WHERE {" AND ".join(conditions)} LIMIT {FEW_SESSIONS + 1}""",
        parameters,
    ).fetchall()
    if len(rows) > FEW_SESSIONS:
        return everywhere
    joined: list[Stretch] = []
    for first, last in sorted((first, last) for first, last in rows if first is not None):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined if order == "oldest" else joined[::-1]


def _windows(places: Iterable[Place]) -> list[tuple[int, int, int]]:
    """A group with its first and last position for each stretch of places and what counts for them, joined."""
    windows: list[tuple[int, int, int]] = []
    for group, position in sorted(places):
        start, end = position - len(CONTEXT_BEFORE), position + len(CONTEXT_AFTER)
        if windows and windows[-1][0] == group and start <= windows[-1][2] + 1:
            windows[-1] = (group, windows[-1][1], end)
        else:
            windows.append((group, start, end))
    return windows

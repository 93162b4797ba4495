"""Where the terms of a question stand, and what each place is worth for it.

Rare terms bring the places; common ones, which would bring a good part of the store, only weigh the best of them.
So the cost of a question hardly grows with the store.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hermes_core.recall.query import Analysis, Term
from hermes_core.recall.rank import (
    CONTEXT_AFTER,
    CONTEXT_BEFORE,
    NEAR_WORD_WEIGHT,
    Place,
    TermHits,
    score_places,
)
from hermes_core.recall.tokens import words
from hermes_core.sessions.filters import Filters, Order, match_of, quoted, table_of
from hermes_core.storage.sqlite import Database

RARE = 400
"""A term that stands in no more messages than this is looked up whole."""

ENOUGH = 200
"""With fewer hits than this of rare terms, the rarest of the common ones brings places too: its newest `MOST`."""

MOST = 1_500
WEIGHED = 300
"""Best places by rare terms that common ones are weighed for; three times what is ranked in the end."""

PHRASE_WORDS = range(2, 13)
"""Lengths of a question that is also tried as the very words of one message, as when someone pastes a piece of it."""


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
        self.asked: list[str] = []

    def scores(self, analysis: Analysis) -> dict[Place, float]:
        """What each place is worth by its words and its neighbours'."""
        found = [term for term in map(self._find, analysis.terms) if term.places]
        self.asked = [term.expression for term in found]
        bringing = [term for term in found if term.whole] + self._verbatim(analysis)
        weighing = sorted((term for term in found if not term.whole), key=lambda term: term.frequency)
        if weighing and sum(len(term.places) for term in bringing) < ENOUGH:
            bringing.append(self._widened(weighing.pop(0)))
        scores = self._scored(bringing)
        if not weighing:
            return scores
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:WEIGHED]
        among = self._ids(_with_surroundings(best))
        return self._scored([*bringing, *(self._among(term, among) for term in weighing)], best)

    def scores_among(self, analysis: Analysis, ids: dict[int, Place]) -> dict[Place, float]:
        """What these messages are worth by their own words."""
        terms = [self._among(_Found(term.kind, match_of(term), {}, True, 0), ids) for term in analysis.terms]
        self.asked = [match_of(term) for term in analysis.terms]
        return self._scored([term for term in terms if term.places], ids.values())

    def _scored(self, terms: Sequence[_Found], places: Iterable[Place] | None = None) -> dict[Place, float]:
        scores = score_places([term.hits for term in terms], self._newest, self._sizes)
        return scores if places is None else {place: scores.get(place, 0.0) for place in places}

    def _find(self, term: Term) -> _Found:
        """A term with its other forms; words that may stand for it join at less strength."""
        near = " OR ".join(map(quoted, term.near))
        weak = dict.fromkeys(self._places("word", near, RARE)[0], NEAR_WORD_WEIGHT) if near else {}
        expression = match_of(term)
        strong, last = self._places(term.kind, expression, RARE + 1)
        places = weak | dict.fromkeys(strong, 1.0)
        if len(strong) <= RARE:
            return _Found(term.kind, expression, places, True, len(places))
        # These hits tell how thick they lie: counting all would mean to read them all.
        span = last if self._direction == "ASC" else self._newest - last + 1
        frequency = len(strong) * self._newest // max(span, 1)
        return _Found(term.kind, expression, places, False, max(frequency, len(places)))

    def _widened(self, term: _Found) -> _Found:
        places, _ = self._places(term.kind, term.expression, MOST)
        return _Found(
            term.kind, term.expression, term.places | dict.fromkeys(places, 1.0), True, term.frequency
        )

    def _verbatim(self, analysis: Analysis) -> list[_Found]:
        """The whole question as one phrase, when it may be a piece of a message."""
        said = words(analysis.text)
        if len(said) not in PHRASE_WORDS:
            return []
        expression = quoted(" ".join(said))
        places, _ = self._places("word", expression, RARE)
        return [_Found("word", expression, dict.fromkeys(places, 1.0), True, len(places))] if places else []

    def _places(self, kind: str, expression: str, limit: int) -> tuple[list[Place], int]:
        """The newest places where an expression matches (or the oldest), and the id of the last of them."""
        table = table_of(kind)
        rows = self._database.execute(
            f"""SELECT m.session_key, m.position, m.size, m.id FROM {table} f JOIN messages m ON m.id = f.rowid
                {self._scope} {table} MATCH ? ORDER BY f.rowid {self._direction} LIMIT ?""",
            (*self._parameters, expression, limit),
        ).fetchall()
        self._sizes.update(((key, position), size) for key, position, size, _ in rows)
        places = [(row[0], row[1]) for row in rows]
        self.holding.update(((key, position), message_id) for key, position, _, message_id in rows)
        return places, rows[-1][3] if rows else 0

    def _among(self, term: _Found, ids: dict[int, Place]) -> _Found:
        """A term's hits among these messages only."""
        if not ids:
            return term
        table = table_of(term.kind)
        # The plus keeps SQLite from asking FTS5 once for each id; one walk through the term's list is far cheaper.
        rows = self._database.execute(
            f"""SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ?
                AND +rowid IN (SELECT value FROM json_each(?))""",
            (term.expression, min(ids), max(ids), json.dumps(list(ids))),
        )
        found = [row[0] for row in rows]
        places = {ids[message_id]: 1.0 for message_id in found}
        self.holding.update((ids[message_id], message_id) for message_id in found)
        return _Found(term.kind, term.expression, places, True, term.frequency or len(places))

    def _ids(self, places: Collection[Place]) -> dict[int, Place]:
        """The messages at these places, and their sizes on the way."""
        rows = self._database.execute(
            """SELECT m.id, m.session_key, m.position, m.size FROM json_each(?) w
               CROSS JOIN messages m ON m.session_key = json_extract(w.value, '$[0]')
                   AND m.position = json_extract(w.value, '$[1]')""",
            (json.dumps(list(places)),),
        ).fetchall()
        self._sizes.update(((key, position), size) for _, key, position, size in rows)
        return {message_id: (key, position) for message_id, key, position, _ in rows}


def _with_surroundings(places: Iterable[Place]) -> set[Place]:
    """These places and all whose words count for them."""
    return {
        (group, position + step)
        for group, position in places
        for step in range(-len(CONTEXT_BEFORE), len(CONTEXT_AFTER) + 1)
        if position + step >= 0
    }

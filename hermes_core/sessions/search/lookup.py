"""Look-up of a question's terms in a search index, and scores of their places.

A place is the position of a message in its session. The messages with rare terms of the question are candidates. Common
terms, which are in a large part of the store, only add to the scores of the best candidates. So the cost of a question
hardly grows with the store.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace

from hermes_core.recall.query import MAX_TERMS, Analysis, Term
from hermes_core.recall.rank import (
    SIMILAR_WORD_WEIGHT,
    STEPS,
    Overlap,
    Place,
    TermHits,
    score_places,
    surprise,
    word_trust,
)
from hermes_core.recall.tokens import index_text, strip_possessive, words
from hermes_core.sessions.search.match import Combination, Match, Phrase, any_word, match_of
from hermes_core.sessions.search.reader import (
    ClosestMessages,
    CommonMatch,
    IndexReader,
    IndexRequest,
    IndexRow,
    Postings,
)
from hermes_core.sessions.search.snippets import held

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

# A question with so many words is also looked up as one phrase, because the person may have pasted a part of a message.
PHRASE_WORDS = range(2, 13)


class _TermPlaces(TermHits, frozen=True, kw_only=True):
    """The places of a term in the index.

    Attributes:
        match: The condition that a message has the term.
        whole: True if `places` holds all places of the term.
    """

    match: Match
    whole: bool


class Lookup:
    """A look-up of one question's terms among the messages in the sessions of the filters.

    Of the messages with a common term only the newest are read, or the oldest if the search begins with them.

    Attributes:
        holding: Message ids by place, for the places with a term of the question. Filled by `scores`.
        matches: The conditions that a message has a term. Filled by `scores`.
        others: The messages of `scores` by their time or meaning.
    """

    def __init__(self, reader: IndexReader, analysis: Analysis, *, counts_all_words: bool = False) -> None:
        """Look up with `reader`; if `overlap` will be asked for, count also the words that are no terms, in one read."""
        self._reader, self._analysis = reader, analysis
        self._all_terms = _all_terms(analysis) if counts_all_words else []
        self._sizes: dict[Place, int] = {}
        self.holding: dict[Place, int] = {}
        self.matches: list[Match] = []
        self.others: list[IndexRow] = []
        self._weighed: dict[Term, _TermPlaces] = {}
        self._frequencies: dict[Term, int] = {}

    def scores(
        self, spans: Sequence[tuple[float, float]] = (), closest: ClosestMessages | None = None
    ) -> dict[Place, float]:
        """Return the scores of the best places for the question, and of the messages in `spans` and `closest`.

        The words of a message count, and at lower weights the words of its neighbours.

        Args:
            spans: Spans of time that the question names, in epoch seconds.
            closest: Messages that are candidates because of their meaning.
        """
        verbatim = self._find(spans, closest)
        found = [term for term in self._weighed.values() if term.places or not term.whole]
        self.matches = [term.match for term in found]
        bringing = [term for term in found if term.whole] + verbatim
        weighing = sorted(
            [term for term in found if not term.whole], key=lambda term: (-term.weight, term.frequency)
        )
        more = self._paired(weighing[:PAIRED_TERMS])
        few = sum(len(term.places) for term in bringing if term.weight == 1) < MIN_RARE_HITS
        if weighing and few:  # the newest (or oldest) places of the rarest common term
            rarest = weighing[0]
            newest = self._places(self._reader.newest(rarest.match, MAX_COMMON_HITS))
            more.append(replace(rarest, places={**rarest.places, **dict.fromkeys(newest, 1.0)}, whole=True))
            self._weighed |= {term: more[-1] for term, places in self._weighed.items() if places is rarest}
        total = self._reader.total
        brought = score_places(bringing, total, self._sizes)
        scores = score_places(more, total, self._sizes, brought)
        if len(weighing) <= few:
            return scores
        also = [(key, position) for key, position, _, _ in self.others]
        best = {*heapq.nlargest(MAX_WEIGHED_PLACES, scores, key=scores.__getitem__), *also}
        rows = self._reader.around(best, [CommonMatch(term.match, term.frequency) for term in weighing])
        among = {t.match: self._with_rows(t, hits) for t, hits in zip(weighing, rows, strict=True)}
        self._weighed |= {t: among[p.match] for t, p in self._weighed.items() if p.match in among}
        weighed = score_places([*among.values()], total, self._sizes, brought)
        return {place: weighed.get(place, 0.0) for place in best}

    def overlap(self, place: Place, part: str) -> Overlap:
        """Return the words of the question that a part of a message has, or a message beside it.

        Call it after `scores` or `scores_among`.

        Args:
            place: The place of the message.
            part: The part of its text that would be shown.
        """
        matches = [match_of(term) for term in self._all_terms]
        own_words: list[str] = []
        near_words: list[str] = []
        unknown = [at for at, term in enumerate(self._all_terms) if term not in self._frequencies]
        if unknown:
            postings, _ = self._reader.find([IndexRequest(matches[at], MAX_RARE_MESSAGES) for at in unknown])
            for at, found in zip(unknown, postings, strict=True):
                self._frequencies[self._all_terms[at]] = found.frequency
        key, position = place
        total, question, own, near = self._reader.total, 0.0, 0.0, 0.0
        matched = held(part, matches)
        for number, term in enumerate(self._all_terms):
            worth = surprise(term.text, term.kind, self._frequencies[term], total)
            question += worth
            places = self._weighed[term].places if term in self._weighed else {}
            if number in matched:
                own += worth
                own_words.append(term.text)
            elif places.get((key, position - 1)) or places.get((key, position + 1)):
                near += worth
                near_words.append(term.text)
        return Overlap(question, own, near, total, tuple(own_words), tuple(near_words))

    def word_trust(self, scores: Mapping[Place, float]) -> float:
        """Return how much the words of the question tell; `scores` are what the method of this name returned."""
        return word_trust([*self._weighed.values()], self._reader.total, max(scores.values(), default=0.0))

    def words_at(self, place: Place) -> tuple[list[str], list[str], list[str]]:
        """Return the terms that gave a place its score: its own, similar words in it, and those of its neighbours.

        Call it after `scores` or `scores_among`.
        """
        key, position = place
        own, similar, near = list[str](), list[str](), list[str]()
        for term, found in self._weighed.items():
            if strength := found.places.get(place):
                (similar if strength < 1 else own).append(term.text)
            elif any(found.places.get((key, position - step)) for step, _ in STEPS):
                near.append(term.text)
        return own, similar, near

    def scores_among(self, rows: Sequence[IndexRow], required: Collection[str]) -> dict[Place, float]:
        """Return the scores of given messages by their own words, without the words of their neighbours.

        Args:
            rows: The messages.
            required: Words that each of the messages is known to have, so that they need no look-up.
        """
        asked = self._analysis.terms
        self.matches = [match_of(term) for term in asked]
        places: dict[Place, float] = {(key, position): 1.0 for key, position, _, _ in rows}
        self._sizes.update(((key, position), size) for key, position, size, _ in rows)
        terms = [
            _TermPlaces(len(rows), places, kind=term.kind, match=match, whole=True)
            for term, match in zip(asked, self.matches, strict=True)
        ]
        unknown = [at for at, term in enumerate(asked) if term.text not in required and places]
        common = [CommonMatch(terms[at].match, terms[at].frequency) for at in unknown]
        for at, hits in zip(unknown, self._reader.among(rows, common) if common else (), strict=True):
            terms[at] = self._with_rows(terms[at], hits)
        self._weighed |= zip(asked, terms, strict=True)
        scores = score_places([term for term in terms if term.places], self._reader.total, self._sizes)
        return {place: scores.get(place, 0.0) for place in places}

    def _find(
        self, spans: Sequence[tuple[float, float]], closest: ClosestMessages | None
    ) -> list[_TermPlaces]:
        """Look up each term with its other forms, and with similar words at a lower weight.

        If a term is common, its places are left out. Return the whole question as one term, a phrase, if a message contains
        it.
        """
        asked = [*self._analysis.terms, *self._analysis.others]
        similar = [term for term in asked if term.similar]
        question = words(self._analysis.text)
        phrases = [Phrase(index_text(" ".join(question)))] if len(question) in PHRASE_WORDS else []
        counted = [term for term in self._all_terms if term not in asked]
        partial = [*(any_word(term.similar) for term in similar), *phrases]
        requests = [
            *(IndexRequest(match_of(term), MAX_RARE_MESSAGES) for term in asked),
            *(IndexRequest(match, MAX_RARE_MESSAGES, partial=True) for match in partial),
            *(IndexRequest(match_of(term), MAX_RARE_MESSAGES) for term in counted),
        ]
        postings, self.others = self._reader.find(requests, spans, closest)
        answers = iter(zip(requests, postings, strict=True))
        of_terms = dict(zip(asked, answers, strict=False))
        of_similar = dict(zip(similar, answers, strict=False))
        verbatim = [
            self._term_places(request.match, found)
            for _, (request, found) in zip(phrases, answers, strict=False)
        ]
        of_counted = dict(zip(counted, answers, strict=True))
        self._frequencies = {term: found.frequency for term, (_, found) in (of_terms | of_counted).items()}
        for term in _chosen(self._analysis, {term: found for term, (_, found) in of_terms.items()}):
            rows = of_similar[term][1].rows if term.similar else ()
            weak = dict.fromkeys(self._places(rows), SIMILAR_WORD_WEIGHT)
            request, found = of_terms[term]
            self._weighed[term] = self._term_places(request.match, found, weak, term.weight, term.kind)
        return [term for term in verbatim if term.places]

    def _term_places(
        self,
        match: Match,
        found: Postings,
        weak: Mapping[Place, float] = MappingProxyType({}),
        weight: float = 1.0,
        kind: Literal["word", "gram"] = "word",
    ) -> _TermPlaces:
        """Return the places of a term from its postings, and at a lower strength from `weak`."""
        if not found.whole:
            return _TermPlaces(found.frequency, weak, weight, kind, match=match, whole=False)
        places = {**weak, **dict.fromkeys(self._places(found.rows), 1.0)}
        return _TermPlaces(len(places), places, weight, kind, match=match, whole=True)

    def _places(self, rows: Iterable[IndexRow]) -> list[Place]:
        """Return the places of messages, and remember their sizes and ids."""
        places = []
        for key, position, size, message_id in rows:
            place = (key, position)
            places.append(place)
            self._sizes[place] = size
            self.holding[place] = message_id
        return places

    def _with_rows(self, term: _TermPlaces, rows: Iterable[IndexRow]) -> _TermPlaces:
        """Return a term with only those of its places at which these messages stand."""
        places = dict.fromkeys(self._places(rows), 1.0)
        return replace(term, places=places, whole=True, frequency=term.frequency or len(places))

    def _paired(self, terms: Sequence[_TermPlaces]) -> list[_TermPlaces]:
        """Return each pair of these terms that occurs in one message as one term, which is rarer than both."""
        pairs = [(a, b) for a, b in combinations(terms, 2) if a.kind == b.kind]
        if not pairs:
            return []
        matches = [Combination("AND", (a.match, b.match)) for a, b in pairs]
        postings, _ = self._reader.find([IndexRequest(m, MIN_RARE_HITS, partial=True) for m in matches])
        found = [
            self._term_places(match, of_pair, kind=a.kind)
            for match, of_pair, (a, _) in zip(matches, postings, pairs, strict=True)
        ]
        return [pair for pair in found if pair.places]


def _all_terms(analysis: Analysis) -> list[Term]:
    """Return all words and grams of a question, also those that are too common to be looked up."""
    known = {term.text: term for term in analysis.terms}
    stems = dict.fromkeys(map(strip_possessive, words(analysis.text)))
    grams = (term for term in analysis.terms if term.kind == "gram")
    return [*(known.get(stem) or Term(stem) for stem in stems), *grams]


def _chosen(analysis: Analysis, postings: Mapping[Term, Postings]) -> Sequence[Term]:
    """Return the terms to rank by: of a long text, the terms with the highest weight, and of these the rarest."""
    if not analysis.others:
        return analysis.terms
    frequency = {
        term: found.frequency if found.whole else MAX_RARE_MESSAGES + 1 for term, found in postings.items()
    }
    present = sorted(filter(frequency.get, postings), key=lambda term: (-term.weight, frequency[term]))
    return present[: max(MAX_TERMS, len(analysis.terms))]

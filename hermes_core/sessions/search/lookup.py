"""Look-up of a question's terms in a search index, and scores of their places.

A place is the position of a message in its session. The messages with rare terms of the question are candidates. Common
terms, which are in a large part of the store, only add to the scores of the best candidates. So the cost of a question
hardly grows with the store.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hermes_core.recall.query import MAX_TERMS, Analysis, Term
from hermes_core.recall.rank import (
    SIMILAR_WORD_WEIGHT,
    Overlap,
    Place,
    TermHits,
    score_places,
    surprise,
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

Kind = Literal["word", "gram"]


class _TermPlaces(Struct, frozen=True):
    """The places of a term in the index.

    Attributes:
        match: The condition that a message has the term.
        places: Strength, from 0 to 1, by place.
        whole: True if `places` holds all places of the term.
        frequency: Approximate number of messages with the term.
        weight: Weight of the term, see `Term.weight`.
        kind: Kind of the term, see `Term.kind`.
    """

    match: Match
    places: dict[Place, float]
    whole: bool
    frequency: int
    weight: float = 1.0
    kind: Kind = "word"

    @property
    def hits(self) -> TermHits:
        return TermHits(self.frequency, self.places, self.weight, self.kind)


class Lookup:
    """A look-up of one question's terms among the messages in the sessions of the filters.

    Of the messages with a common term only the newest are read, or the oldest if the search begins with them.

    Attributes:
        holding: Message ids by place, for the places with a term of the question. Filled by `scores`.
        matches: The conditions that a message has a term. Filled by `scores`.
        others: The messages of `scores` by their time or meaning.
    """

    def __init__(self, reader: IndexReader, *, counts_all_words: bool = False) -> None:
        """Look up with `reader`; if `overlap` will be asked for, count also the words that are no terms, in one read."""
        self._reader = reader
        self._counts_all_words = counts_all_words
        self._sizes: dict[Place, int] = {}
        self.holding: dict[Place, int] = {}
        self.matches: list[Match] = []
        self.others: list[IndexRow] = []
        self._weighed: dict[Term, TermHits] = {}
        self._frequencies: dict[Term, int] = {}

    def scores(
        self,
        analysis: Analysis,
        spans: Sequence[tuple[float, float]] = (),
        closest: ClosestMessages | None = None,
    ) -> dict[Place, float]:
        """Return the scores of the best places for a question, and of the messages in `spans` and `closest`.

        The words of a message count, and at lower weights the words of its neighbours.

        Args:
            analysis: The question.
            spans: Spans of time that the question names, in epoch seconds.
            closest: Messages that are candidates because of their meaning.
        """
        looked_up, verbatim = self._find(analysis, spans, closest)
        self._weighed = {term: places.hits for term, places in looked_up}
        found = [places for _, places in looked_up if places.places or not places.whole]
        self.matches = [term.match for term in found]
        bringing = [term for term in found if term.whole] + verbatim
        weighing = sorted(
            (term for term in found if not term.whole), key=lambda term: (-term.weight, term.frequency)
        )
        more = self._paired(weighing[:PAIRED_TERMS])
        few = sum(len(term.places) for term in bringing if term.weight == 1) < MIN_RARE_HITS
        if weighing and few:
            more.append(self._widened(weighing[0]))
            self._weighed |= {t: more[-1].hits for t, places in looked_up if places is weighing[0]}
        scores = self._scored(bringing + more)
        if len(weighing) <= few:
            return scores
        also = [(key, position) for key, position, _, _ in self.others]
        best = {*heapq.nlargest(MAX_WEIGHED_PLACES, scores, key=scores.__getitem__), *also}
        near, rows = self._reader.around(best, [CommonMatch(term.match, term.frequency) for term in weighing])
        terms = [replace(t, places={p: w for p, w in t.places.items() if p in near}) for t in bringing]
        among = {t.match: self._with_rows(t, hits) for t, hits in zip(weighing, rows, strict=True)}
        terms += among.values()
        self._weighed |= {t: among[p.match].hits for t, p in looked_up if p.match in among}
        weighed = self._scored(terms)
        return {place: weighed.get(place, 0.0) for place in best}

    def overlap(self, analysis: Analysis, place: Place, part: str) -> Overlap:
        """Return the words of a question that a part of a message has, or a message beside it.

        Call it after `scores` or `scores_among`.

        Args:
            analysis: The question.
            place: The place of the message.
            part: The part of its text that would be shown.
        """
        terms = _all_terms(analysis)
        if unknown := [term for term in terms if term not in self._frequencies]:
            self._count(unknown)
        key, position = place
        total, question, own, near = self._reader.total, 0.0, 0.0, 0.0
        matched = held(part, [match_of(term) for term in terms])
        for number, term in enumerate(terms):
            worth = surprise(term.text, term.kind, self._frequencies[term], total)
            question += worth
            places = self._weighed[term].places if term in self._weighed else {}
            if number in matched:
                own += worth
            elif any(places.get((key, position + step)) for step in (-1, 1)):
                near += worth
        return Overlap(question, own, near, total)

    def _count(self, terms: Sequence[Term]) -> None:
        """Look up how many messages have each of these terms."""
        postings, _ = self._reader.find([IndexRequest(match_of(term), MAX_RARE_MESSAGES) for term in terms])
        self._frequencies |= {t: found.frequency for t, found in zip(terms, postings, strict=True)}

    def scores_among(
        self, analysis: Analysis, rows: Sequence[IndexRow], required: Collection[str]
    ) -> dict[Place, float]:
        """Return the scores of given messages by their own words, without the words of their neighbours.

        Args:
            analysis: The question.
            rows: The messages.
            required: Words that each of the messages is known to have, so that they need no look-up.
        """
        self.matches = [match_of(term) for term in analysis.terms]
        places: dict[Place, float] = {(key, position): 1.0 for key, position, _, _ in rows}
        self._sizes.update(((key, position), size) for key, position, size, _ in rows)
        terms = [
            _TermPlaces(match, places, True, len(rows), kind=term.kind)
            for term, match in zip(analysis.terms, self.matches, strict=True)
        ]
        unknown = [at for at, term in enumerate(analysis.terms) if term.text not in required and places]
        asked = [CommonMatch(terms[at].match, terms[at].frequency) for at in unknown]
        for at, hits in zip(unknown, self._reader.among(rows, asked) if asked else (), strict=True):
            terms[at] = self._with_rows(terms[at], hits)
        self._weighed |= {term: found.hits for term, found in zip(analysis.terms, terms, strict=True)}
        scores = self._scored([term for term in terms if term.places])
        return {place: scores.get(place, 0.0) for place in places}

    def _scored(self, terms: Sequence[_TermPlaces]) -> dict[Place, float]:
        return score_places([term.hits for term in terms], self._reader.total, self._sizes)

    def _find(
        self,
        analysis: Analysis,
        spans: Sequence[tuple[float, float]],
        closest: ClosestMessages | None,
    ) -> tuple[list[tuple[Term, _TermPlaces]], list[_TermPlaces]]:
        """Look up each term with its other forms, and with similar words at a lower weight.

        If a term is common, its places are left out. Also return the whole question as one term, a phrase, if a message
        contains it.
        """
        asked = [*analysis.terms, *analysis.others]
        requests = [IndexRequest(match_of(term), MAX_RARE_MESSAGES) for term in asked]
        similar = [term for term in asked if term.similar]
        requests += [
            IndexRequest(any_word(term.similar), MAX_RARE_MESSAGES, partial=True) for term in similar
        ]
        question = words(analysis.text)
        if len(question) in PHRASE_WORDS:
            phrase = Phrase(index_text(" ".join(question)))
            requests.append(IndexRequest(phrase, MAX_RARE_MESSAGES, partial=True))
        counted = (
            [term for term in _all_terms(analysis) if term not in asked] if self._counts_all_words else []
        )
        count_requests = [IndexRequest(match_of(term), MAX_RARE_MESSAGES) for term in counted]
        postings, self.others = self._reader.find([*requests, *count_requests], spans, closest)
        of_terms = dict(zip(asked, postings, strict=False))
        of_counted = zip(counted, postings[len(requests) :], strict=True)
        self._frequencies = {term: found.frequency for term, found in (*of_terms.items(), *of_counted)}
        of_similar = dict(zip(similar, postings[len(asked) :], strict=False))
        terms = []
        for term in _chosen(analysis, of_terms):
            rows = of_similar[term].rows if term.similar else ()
            weak = dict.fromkeys(self._places(rows), SIMILAR_WORD_WEIGHT)
            terms.append(
                (term, self._term_places(match_of(term), of_terms[term], weak, term.kind, term.weight))
            )
        verbatim = [
            self._term_places(request.match, found, {}, "word")
            for request, found in list(zip(requests, postings, strict=False))[len(asked) + len(similar) :]
        ]
        return terms, [term for term in verbatim if term.places]

    def _term_places(
        self, match: Match, found: Postings, weak: dict[Place, float], kind: Kind, weight: float = 1.0
    ) -> _TermPlaces:
        if not found.whole:
            return _TermPlaces(match, weak, False, found.frequency, weight, kind)
        places = weak | dict.fromkeys(self._places(found.rows), 1.0)
        return _TermPlaces(match, places, True, len(places), weight, kind)

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

    def _widened(self, term: _TermPlaces) -> _TermPlaces:
        """Return a common term with its newest (or oldest) `MAX_COMMON_HITS` places."""
        places = self._places(self._reader.newest(term.match, MAX_COMMON_HITS))
        return replace(term, places=term.places | dict.fromkeys(places, 1.0), whole=True)

    def _paired(self, terms: Sequence[_TermPlaces]) -> list[_TermPlaces]:
        """Return each pair of these terms that occurs in one message as one term, which is rarer than both."""
        pairs = [(a, b) for a, b in combinations(terms, 2) if a.kind == b.kind]
        matches = [Combination("AND", (a.match, b.match)) for a, b in pairs]
        if not matches:
            return []
        postings, _ = self._reader.find([IndexRequest(m, MIN_RARE_HITS, partial=True) for m in matches])
        found = [
            self._term_places(match, of_pair, {}, a.kind)
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

"""What answers: scores candidates for a question. Pure functions of values; every constant carries its measurement.

Two steps, because they need different things. `score_places` knows only where words stand and works on thousands of
places; `rank` reads the few best candidates themselves. Figures are recall@10 on five LoCoMo conversations
(categories 1-4, `bench/recall.py`): what it falls to when the ingredient is left out.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from statistics import fmean, pstdev

from hermes_core.recall.query import Analysis, named_in
from hermes_core.recall.tokens import dense_runs, fold

Place = tuple[int, int]
"""Where a message stands: its conversation, and its position there. Neighbours are one apart."""

CONTEXT_BEFORE = (0.6, 0.5, 0.3, 0.2)
CONTEXT_AFTER = (0.4, 0.3, 0.1)
"""What a word counts that stands in one of the four messages before, or of the three after."""

NEAR_WORD_WEIGHT = 0.5
"""What a word counts that merely may stand for the one asked (film for movie)."""

TERM_SATURATION = 1.2
"""k1 of BM25: how soon a word said again adds nothing."""

LENGTH_WEIGHT = 0.3
TYPICAL_SIZE = 130
"""b of BM25 and the length, in characters, that is neither long nor short: the mean message of LoCoMo. Lengths are
compared by their square root, since long answers of an agent are long for other reasons than repeating themselves.
"""

SPEAKER_WEIGHT = 1.0
DATE_WEIGHT = 2.0
TIME_WORD_WEIGHT = 0.6
QUESTION_WEIGHT = 0.6
SIZE_WEIGHT = 0.2
EXACT_WEIGHT = 2.0
"""In standard deviations of the candidates' scores: said by the one person whom the question names, near a date that
it names, a word of time when it asks for one; against a message that only asks; for one that says more;
for one that holds a piece of the question with its signs (C#, --verbose).
"""

LEAST_DEVIATION = 0.1
"""Of the best score: candidates whose scores lie closer together than this count as nearly equal."""

NEIGHBOUR_WEIGHT = 0.25
"""Taken from the messages beside each one chosen, which owe part of their score to it. In standard deviations."""


@dataclass(frozen=True, slots=True)
class TermHits:
    """Where one term of the question stands. `frequency` is in how many messages; a hit's strength is 0 to 1."""

    frequency: int
    places: Mapping[Place, float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may answer. `score` is the store's own, higher is better, on any scale."""

    id: int
    text: str
    score: float
    speaker: str = ""
    timestamp: float | None = None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its final score, in standard deviations of the candidates' own scores."""

    candidate: Candidate
    score: float


def score_places(
    terms: Sequence[TermHits], total: int, sizes: Mapping[Place, int] | None = None
) -> dict[Place, float]:
    """BM25 over each place's own words and, weighted down, those of its neighbours.

    A question often quotes the exchange while the answer is the message beside it. `total` is the number of messages
    in the store, roughly; `sizes` are the characters of each place.
    """
    scores: dict[Place, float] = defaultdict(float)
    for term in terms:
        rarity = math.log1p((max(total - term.frequency, 0) + 0.5) / (term.frequency + 0.5))
        for place, weight in _with_neighbours(term.places, sizes or {}).items():
            scores[place] += rarity * weight * (TERM_SATURATION + 1) / (weight + TERM_SATURATION)
    return dict(scores)


def _with_neighbours(hits: Mapping[Place, float], sizes: Mapping[Place, int]) -> dict[Place, float]:
    """The weighted count of one term at each place that holds it or stands near one that does."""
    weights: dict[Place, float] = defaultdict(float)
    for place, strength in hits.items():
        group, position = place
        length = math.sqrt(sizes.get(place, TYPICAL_SIZE) / TYPICAL_SIZE)
        own = strength / (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length)
        weights[place] += own
        for distance, share in enumerate(CONTEXT_BEFORE, 1):
            weights[group, position + distance] += share * own
        for distance, share in enumerate(CONTEXT_AFTER, 1):
            weights[group, position - distance] += share * own
    return weights


_TIME_WORD = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|(?:last|next|this|past) (?:\w+ )?(?:night|week|weekend|month|year|summer|"
    r"winter|spring|fall|autumn|friday|monday|tuesday|wednesday|thursday|saturday|sunday)|week|weekend|month|years?|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october|"
    r"november|december|recently|since|just|soon|(?:19|20)\d\d)\b|昨|今天|明天|年|月"
)


def rank(
    analysis: Analysis,
    candidates: Sequence[Candidate],
    *,
    limit: int,
    budget: int | None = None,
    zone: tzinfo = UTC,
) -> list[Ranked]:
    """The best `limit` candidates, best first, and no more than `budget` tokens of them."""
    if not candidates:
        return []
    scores = [candidate.score for candidate in candidates]
    mean, deviation = fmean(scores), max(pstdev(scores), LEAST_DEVIATION * max(map(abs, scores))) or 1.0
    named = named_in(analysis.text, {c.speaker for c in candidates if c.speaker})
    ranked = [Ranked(c, (c.score - mean) / deviation + _signs(analysis, c, named, zone)) for c in candidates]
    ranked.sort(key=lambda r: (-r.score, -(r.candidate.timestamp or 0.0), r.candidate.id))
    return _within(_apart(ranked, limit), budget)


def _apart(ranked: list[Ranked], limit: int) -> list[Ranked]:
    """The best `limit`, each neighbour of a chosen one put back a little."""
    taken: dict[Place, float] = defaultdict(float)
    left = list(ranked)
    chosen: list[Ranked] = []
    while left and len(chosen) < limit:
        best = max(left, key=lambda r: r.score - (taken[r.candidate.place] if r.candidate.place else 0.0))
        left.remove(best)
        place = best.candidate.place
        chosen.append(replace(best, score=best.score - (taken[place] if place else 0.0)))
        if place is not None:
            group, position = place
            taken[group, position - 1] += NEIGHBOUR_WEIGHT
            taken[group, position + 1] += NEIGHBOUR_WEIGHT
    return chosen


def _signs(analysis: Analysis, candidate: Candidate, named: frozenset[str], zone: tzinfo) -> float:
    """What speaks for a candidate besides its words."""
    text = candidate.text
    score = SIZE_WEIGHT * min(math.log1p(len(text)) / math.log(200), 1.2)
    if len(named) == 1 and candidate.speaker in named:
        score += SPEAKER_WEIGHT
    if text.rstrip().endswith("?"):
        score -= QUESTION_WEIGHT
    if analysis.exact:
        folded = fold(text)
        score += EXACT_WEIGHT * fmean(piece in folded for piece in analysis.exact)
    if analysis.shape == "when" and _TIME_WORD.search(text.casefold()):
        score += TIME_WORD_WEIGHT
    if analysis.dates and candidate.timestamp is not None:
        moment = datetime.fromtimestamp(candidate.timestamp, zone)
        score += DATE_WEIGHT * max(when.closeness(moment) for when in analysis.dates)
    return score


def _within(ranked: list[Ranked], budget: int | None) -> list[Ranked]:
    """As many, best first, as fit into `budget` tokens; one that is too long is passed over for a shorter one."""
    if budget is None:
        return ranked
    kept = []
    for one in ranked:
        cost = count_tokens(one.candidate.text)
        if cost <= budget:
            kept.append(one)
            budget -= cost
    return kept


def count_tokens(text: str) -> int:
    """The estimate of tokens used everywhere: one for four characters, one for each character of a dense script."""
    dense = sum(map(len, dense_runs(text)))
    return dense + math.ceil((len(text) - dense) / 4)

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
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from statistics import fmean, pstdev

from hermes_core.recall.query import Analysis, names_person
from hermes_core.recall.tokens import dense_runs, fold

Place = tuple[int, int]
"""Where a message stands: its conversation, and its position there. Neighbours are one apart."""

CONTEXT_BEFORE = (0.6, 0.5, 0.3, 0.2)
CONTEXT_AFTER = (0.4, 0.3, 0.1)

NEAR_WORD_WEIGHT = 0.5

TERM_SATURATION = 1.2
LENGTH_WEIGHT = 0.3

SPEAKER_WEIGHT = 1.0
DATE_WEIGHT = 1.0
TIME_WORD_WEIGHT = 0.4
QUESTION_WEIGHT = 0.4
SIZE_WEIGHT = 0.2


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
    in the store, `sizes` the characters of each place; both may be approximate.
    """
    scores: dict[Place, float] = defaultdict(float)
    mean = fmean(sizes.values()) if sizes else 1.0
    for term in terms:
        rarity = math.log1p((max(total - term.frequency, 0) + 0.5) / (term.frequency + 0.5))
        for place, weight in _with_neighbours(term.places, sizes or {}, mean).items():
            scores[place] += rarity * weight * (TERM_SATURATION + 1) / (weight + TERM_SATURATION)
    return dict(scores)


def _with_neighbours(
    hits: Mapping[Place, float], sizes: Mapping[Place, int], mean: float
) -> dict[Place, float]:
    """The weighted count of one term at each place that holds it or stands near one that does."""
    weights: dict[Place, float] = defaultdict(float)
    for place, strength in hits.items():
        group, position = place
        own = strength / (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * sizes.get(place, mean) / mean)
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
    mean, deviation = fmean(scores), pstdev(scores) or 1.0
    named = {c.speaker for c in candidates if c.speaker and names_person(fold(analysis.text), c.speaker)}
    ranked = [Ranked(c, (c.score - mean) / deviation + _signs(analysis, c, named, zone)) for c in candidates]
    ranked.sort(key=lambda r: (-r.score, -(r.candidate.timestamp or 0.0), r.candidate.id))
    return _within(ranked[:limit], budget)


def _signs(analysis: Analysis, candidate: Candidate, named: set[str], zone: tzinfo) -> float:
    """What speaks for a candidate besides its words."""
    text = candidate.text
    score = SIZE_WEIGHT * min(math.log1p(len(text)) / math.log(200), 1.2)
    if len(named) == 1 and candidate.speaker in named:
        score += SPEAKER_WEIGHT
    if text.rstrip().endswith("?"):
        score -= QUESTION_WEIGHT
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

"""What answers: scores candidates for a question. Pure functions of values; every constant carries its measurement.

Two steps, because they need different things. `score_places` knows only where words stand and works on thousands of
places; `rank` reads the few best candidates themselves.

Each constant carries what recall@10 falls to without it, in per cent, on the five development conversations of LoCoMo
(759 questions of categories 1 to 4; `bench/recall.py --ablate`), where all together reach 80.8 +- 1.4, and 81.2 when
each conversation is scored with weights fitted on the other four.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from statistics import fmean

from hermes_core.recall.query import Analysis, named_in
from hermes_core.recall.tokens import dense_runs, fold

Place = tuple[int, int]
"""Where a message stands: its conversation, and its position there. Neighbours are one apart."""

CONTEXT_BEFORE = (0.6, 0.5, 0.3, 0.2)
CONTEXT_AFTER = (0.4, 0.3, 0.1)
"""What a word counts that stands in one of the four messages before (73.5), or of the three after (78.2). Weighed when the question is asked; nothing of it is stored.
"""

_STEPS = ((0, 1.0), *enumerate(CONTEXT_BEFORE, 1), *((-n, share) for n, share in enumerate(CONTEXT_AFTER, 1)))

NEAR_WORD_WEIGHT = 0.5
"""What a word counts that merely may stand for the one asked, film for movie. Irregular forms, ran for run, count
in full.
"""

TERM_SATURATION = 1.2
"""k1 of BM25: how soon a word said again adds nothing. From 0.6 to 3 recall changes by one point."""

LENGTH_WEIGHT = 0.3
TYPICAL_SIZE = 130
"""b of BM25 (80.4), and the length in characters that is neither long nor short: the mean message of LoCoMo. Lengths
are compared by their square root, since an agent's answer is long for other reasons than repeating itself.
"""

# The following are in standard deviations of the candidates' scores. They were fitted together, by the likelihood of the
# evidence among all messages, with the questions that name the wrong person at a third of the weight of the others.

SPEAKER_WEIGHT = 0.7
"""For a message of the one person whom the question names (80.2)."""

SELF_WEIGHT = 1.0
"""For a message in which that person says "I" or "my" (79.7)."""

DATE_WEIGHT = 3.8
"""For a message of a time that the question names (79.1)."""

TIME_WORD_WEIGHT = 2.0
"""For a word of time when the question asks for one (80.9, but recall@1 falls from 49.0 to 47.8)."""

NUMBER_WEIGHT = 0.8
"""For a number when the question asks how many (80.5)."""

QUESTION_WEIGHT = 0.5
"""Against a message that ends with a question mark (80.4)."""

REPLY_WEIGHT = 0.55
"""For a message just behind one that ends so: what was asked then may be what is asked now (80.1)."""

EXACT_WEIGHT = 2.0
"""For a piece of the question with its signs, as C# or --verbose; LoCoMo has none."""

RELEVANT = 0.8
"""What a message must hold of a question at the least, for anything to be recalled unasked: so much of what a single word
is worth that was said once. Small talk then brings half the tokens of always ten messages, at half a point of recall@10
(`bench/recall.py --unasked`); questions that name the wrong person bring as much as others, since their words were said.
"""

MEASURED = 150
"""The best candidates by their words, whose mean and deviation all are measured by."""

LEAST_DEVIATION = 0.1
"""The deviation is at least this share of the best score, so that two nearly equal candidates stay so."""


@dataclass(frozen=True, slots=True)
class TermHits:
    """Where one term of the question stands. `frequency` is in how many messages; a hit's strength is 0 to 1."""

    frequency: int
    places: Mapping[Place, float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may answer. `score` is the store's own, higher is better, on any scale. `reply` says that it follows
    a question, `likeness` how close it is in meaning: in deviations, and weighted already.
    """

    id: int
    text: str
    score: float
    speaker: str = ""
    timestamp: float | None = None
    reply: bool = False
    likeness: float = 0.0


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
    scores: dict[Place, float] = {}
    for term in terms:
        worth = rarity(term.frequency, total) * (TERM_SATURATION + 1)
        for place, weight in _with_neighbours(term.places, sizes or {}).items():
            scores[place] = scores.get(place, 0.0) + worth * weight / (weight + TERM_SATURATION)
    return scores


def rarity(frequency: int, total: int) -> float:
    """What a word is worth that stands in `frequency` of `total` messages."""
    return math.log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5))


def _with_neighbours(hits: Mapping[Place, float], sizes: Mapping[Place, int]) -> dict[Place, float]:
    """The weighted count of one term at each place that holds it or stands near one that does."""
    # Thousands of places for each question: the dullest form is the quickest.
    weights: dict[Place, float] = {}
    known = weights.get
    for place, strength in hits.items():
        group, position = place
        length = math.sqrt(sizes.get(place, TYPICAL_SIZE) / TYPICAL_SIZE)
        own = strength / (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * length)
        for step, share in _STEPS:
            near = (group, position + step)
            weights[near] = known(near, 0.0) + share * own
    return weights


_TIME_WORD = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|(?:last|next|this|past) (?:\w+ )?(?:night|week|weekend|month|year|summer|"
    r"winter|spring|fall|autumn|friday|monday|tuesday|wednesday|thursday|saturday|sunday)|week|weekend|month|years?|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august|september|october|"
    r"november|december|recently|since|just|soon|(?:19|20)\d\d)\b|昨|今天|明天|年|月"
)


_FIRST_PERSON = re.compile(r"\b(i|i'm|i've|me|my|mine|we|our)\b|我|私")
_NUMBER = re.compile(
    r"\b(\d+|one|two|three|four|five|six|seven|eight|nine|ten|dozen|once|twice|several|few)\b|[一二三四五六七八九十百两几]"
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
    scores = heapq.nlargest(MEASURED, (candidate.score for candidate in candidates))
    scores += [0.0] * (MEASURED - len(scores))
    mean = math.fsum(scores) / MEASURED
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / MEASURED)
    deviation = max(deviation, LEAST_DEVIATION * max(map(abs, scores))) or 1.0
    named = named_in(analysis.text, {c.speaker for c in candidates if c.speaker})
    ranked = [Ranked(c, (c.score - mean) / deviation + _signs(analysis, c, named, zone)) for c in candidates]
    ranked.sort(key=lambda r: (-r.score, -(r.candidate.timestamp or 0.0), r.candidate.id))
    return _within(ranked[:limit], budget)


def _signs(analysis: Analysis, candidate: Candidate, named: frozenset[str], zone: tzinfo) -> float:
    """What speaks for a candidate besides its words."""
    text = candidate.text
    score = candidate.likeness
    lowered = text.lower()
    if len(named) == 1 and candidate.speaker in named:
        score += SPEAKER_WEIGHT + SELF_WEIGHT * bool(_FIRST_PERSON.search(lowered))
    if text.rstrip().endswith(("?", "？")):
        score -= QUESTION_WEIGHT
    if candidate.reply:
        score += REPLY_WEIGHT
    if analysis.exact:
        folded = fold(text)
        score += EXACT_WEIGHT * fmean(piece in folded for piece in analysis.exact)
    if analysis.shape == "when" and _TIME_WORD.search(lowered):
        score += TIME_WORD_WEIGHT
    if analysis.shape == "how many" and _NUMBER.search(lowered):
        score += NUMBER_WEIGHT
    if analysis.dates and candidate.timestamp is not None:
        # One that no calendar holds is near no date.
        with contextlib.suppress(OverflowError, OSError, ValueError):
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

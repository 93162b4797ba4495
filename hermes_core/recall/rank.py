"""What answers: scores candidates for a question. Pure functions of values; every constant carries its measurement.

Two steps, because they need different things. `score_places` knows only where words stand and works on thousands of
places; `rank` reads the few best candidates themselves.

Constants of the scores by words carry what recall@10 falls to without them, in per cent, on the five development
conversations of LoCoMo (759 questions of categories 1 to 4; `bench/recall.py`), where all together reach 80.4 +- 1.4 by
words and 84.5 with vectors; 80.5 and 84.7 when each conversation is scored with weights fitted on the other four.
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
"""What a word counts that stands in one of the four messages before (72.6), or of the three after (78.3). Weighed when the question is asked; nothing of it is stored.
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
"""b of BM25 (80.0), and the length in characters that is neither long nor short: the mean message of LoCoMo. Lengths
are compared by their square root, since an agent's answer is long for other reasons than repeating itself.
"""

# The following make a score the logarithm of the odds that a message answers. They were fitted together, by the likelihood
# of the evidence among all candidates, with the questions that name the wrong person at a third of the weight of the
# others, once with vectors and once without; those that both share lie between the two.

LEXICAL_WEIGHT = 1.25
LEXICAL_BESIDE_MEANING = 0.5
"""For each standard deviation of the score by words; less where vectors tell much of the same."""

SPEAKER_WEIGHT = 0.6
"""For a message of the one person whom the question names (79.8, with vectors 84.3)."""

SELF_WEIGHT = 1.0
"""For a message in which that person says "I" or "my" (79.3, 83.6)."""

DATE_WEIGHT = 4.3
"""For a message of a time that the question names (78.9, 82.7)."""

TIME_WORD_WEIGHT = 2.0
"""For a word of time when the question asks for one (80.3, 84.3; recall@1 falls from 49 to 48)."""

NUMBER_WEIGHT = 0.7
"""For a number when the question asks how many (80.2, 84.7)."""

QUESTION_WEIGHT = 0.75
"""Against a message that ends with a question mark (79.8, 84.4)."""

REPLY_WEIGHT = 0.57
"""For a message just behind one that ends so: what was asked then may be what is asked now (79.9, 84.9)."""

EXACT_WEIGHT = 2.5
"""For a piece of the question with its signs, as C# or --verbose; LoCoMo has none."""

# What is recalled unasked. Beside always ten messages, questions that name the wrong person then bring 45 % of the tokens
# (48 with vectors) and small talk 40 (33), while 0.6 points (0.8) less is found (`bench/recall.py --proactive`). Without what is
# said of the others, OTHER_WEIGHT and LEAD_WEIGHT, the former can't be told from other questions: two thirds at that loss.

RELEVANT = 0.5
"""What a message must hold of a question at the least where only words tell: so much of what a single word is worth that was
said once. A word that most messages hold would else bring them all, where there are few.
"""

LEAST_GAIN = 0.87
"""How likely a message must be to answer, in thousandths for each of its tokens, to be told to one who did not ask."""

OTHER_WEIGHT = 1.5
"""Against a message of anybody but the one person whom the question names, there."""

LEAD_WEIGHT = 0.7
"""For all messages, by how far the best of that person is before the best of the others; against them, by how far behind:
then the question may name the wrong person, and nothing answers.
"""

MOST_TOLD = 15
"""Messages told at most. With ten a point less is found, since the many short ones come late."""

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
    a question, `likeness` how close it is in meaning, weighted already; 0 for all where there are no vectors.
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
    """A candidate with its final score: the logarithm of its odds to answer, but for what is the same for all."""

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
    lexical = (LEXICAL_BESIDE_MEANING if any(c.likeness for c in candidates) else LEXICAL_WEIGHT) / deviation
    ranked = [Ranked(c, lexical * (c.score - mean) + _signs(analysis, c, named, zone)) for c in candidates]
    ranked.sort(key=lambda r: (-r.score, -(r.candidate.timestamp or 0.0), r.candidate.id))
    return _within(ranked[:limit], budget)


def worth_telling(analysis: Analysis, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Those of all candidates, best first, that are likely enough to answer for the tokens they cost one who did not ask."""
    named = named_in(analysis.text, {one.candidate.speaker for one in ranked if one.candidate.speaker})
    theirs = [one.score for one in ranked if len(named) == 1 and one.candidate.speaker in named]
    others = [one.score for one in ranked if one.candidate.speaker not in named]
    lead = LEAD_WEIGHT * (max(theirs) - max(others)) if theirs and others else 0.0
    top = max((one.score for one in ranked), default=0.0)
    odds = sum(math.exp(one.score - top) for one in ranked)
    told = []
    for one in ranked:
        against = OTHER_WEIGHT if theirs and one.candidate.speaker not in named else 0.0
        gain = math.exp(one.score - top + lead - against) / odds
        if 1000 * gain >= LEAST_GAIN * (count_tokens(one.candidate.text) + 1):
            told.append(one)
    return told[:MOST_TOLD]


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

"""Scores of facts by the words of a question: their own words, and the words of facts beside them in a conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hermes_core.recall import (
    CONTEXT_AFTER,
    CONTEXT_BEFORE,
    SIMILAR_WORD_WEIGHT,
    Analysis,
    Place,
    RankCandidate,
    TermHits,
    analyse,
    says_unknown,
    score_places,
)
from hermes_holographic.language import index_words
from hermes_holographic.store import FactStore, Row

MAX_SEEDS = 200
"""Facts with words of the question, the best by BM25. They and their neighbours are scored."""

_SPEAKER = re.compile(r"([^\W\d_][\w.'’ -]{0,40}): ")


@dataclass(frozen=True, slots=True)
class FactScores:
    """Scores of facts by words.

    Attributes:
        analysis: The question, with the speakers that it names.
        by_fact: Score by fact id, of the facts with words of the question in them or near them.
        before: The text of the fact before each of these in its conversation, if there is one.
    """

    analysis: Analysis
    by_fact: Mapping[int, float]
    before: Mapping[int, str]


def score_facts(
    store: FactStore, question: str, min_trust: float = 0.0, category: str | None = None
) -> FactScores:
    """Return the scores of facts by the words of a question.

    A message of a conversation, written as "Mel: I paint", is scored with its neighbours and may be found by their
    words alone, because it often answers the message before. Any other fact stands alone.

    Args:
        store: The facts.
        question: The question, in one line.
        min_trust: Lowest trust of a fact whose neighbours are scored.
        category: Category of the facts whose neighbours are scored; None for all.
    """
    now = store.clock()
    asked = [form for forms, similar in _words(analyse(question, now=now)) for form in (*forms, *similar)]
    seeds = store.match(asked, MAX_SEEDS, min_trust, category)
    around = store.around(seeds, len(CONTEXT_BEFORE), len(CONTEXT_AFTER))
    # The speaker of a message counts in the ranking, so their name is no word to look up.
    speakers = {_spoken(fact["content"])[0] for fact in around.values()} - {""}
    analysis = analyse(question, now=now, names=speakers)
    places, ids = _places(around), json.dumps(list(around))
    terms = []
    for forms, similar in _words(analysis):
        (count, exact), (other_count, others) = store.holding(forms, ids), store.holding(similar, ids)
        weak = dict.fromkeys((places[i] for i in others), SIMILAR_WORD_WEIGHT)
        hits = weak | dict.fromkeys((places[i] for i in exact), 1.0)
        terms.append(TermHits(count + other_count, hits))
    texts = {places[i]: fact["content"] for i, fact in around.items()}
    scores = score_places(terms, store.count(), {place: len(text) for place, text in texts.items()})
    return FactScores(
        analysis,
        {i: scores[place] for i, place in places.items() if scores.get(place)},
        {i: texts[before] for i, (group, at) in places.items() if (before := (group, at - 1)) in texts},
    )


def _words(analysis: Analysis) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield each word of a question as its forms, which count in full, and similar words, which count less."""
    for term in analysis.terms:
        yield (term.text, *term.forms), term.similar
    if analysis.dates:  # `analyse` takes a date for the time of a message; a fact may also say it in words
        known = {word for term in analysis.terms for word in (term.text, *index_words(term.text))}
        yield from (((word,), ()) for word in dict.fromkeys(index_words(analysis.text)) if word not in known)


def _places(facts: Mapping[int, Row]) -> dict[int, Place]:
    """Return the places of facts by id. A fact that is no message of a conversation has a place without neighbours."""
    groups: dict[str, int] = {}
    places: dict[int, Place] = {}
    for fact_id, fact in facts.items():
        name, position = fact["conversation"], fact["position"]
        is_message = name and _spoken(fact["content"])[0]
        places[fact_id] = (groups.setdefault(name, len(groups)), position) if is_message else (-fact_id, 0)
    return places


def as_candidate(fact: Row, score: float, before: str) -> RankCandidate:
    """Return a fact as `rank_candidates` takes it. `before` is the text of the fact before it, or ""."""
    speaker, text = _spoken(fact["content"])
    return RankCandidate(
        fact["fact_id"],
        text,
        score,
        speaker=speaker,
        timestamp=fact["confirmed_at"],
        reply=before.rstrip().endswith(("?", "？")),
        unanswered=says_unknown(text),
    )


def _spoken(content: str) -> tuple[str, str]:
    """Return the speaker and the text of a fact that is written as "Mel: I paint"; "" and the content of others."""
    named = _SPEAKER.match(content)
    return (named[1], content[named.end() :]) if named else ("", content)

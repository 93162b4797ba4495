"""The questions that facts answer: search, probe, related, reason, contradict, and the recall of a turn.

Names are looked up first in the entity index, exactly or with one slip. Vectors are asked beside it: they measure
how sure a match is, and with atoms of exact names they find nothing that the index does not.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np

from hermes_core.kit import ToolInputInvalid, query_text
from hermes_core.recall import (
    Analysis,
    RankCandidate,
    Statement,
    asks_formerly,
    find_outdated,
    grams,
    rank_candidates,
)
from hermes_holographic import hrr
from hermes_holographic.entities import in_parts
from hermes_holographic.language import index_words, name_key
from hermes_holographic.lookup import as_candidate, score_facts
from hermes_holographic.store import FactStore, Row, idf, says_one_thing
from hermes_holographic.values import exclude

MAX_CANDIDATES = 150
"""Facts with the best scores by words that are ranked for one question."""

MAX_NAMED = 60
"""Facts about each name in a question that are ranked too, the newest."""

MAX_TERMS = 40
RELEVANT = 0.15
"""Share of a question's weight that a fact must hold to be recalled unasked, when it names none of its entities."""

MIN_SHARE_OF_BEST = 0.5
"""Share of the best score below which a fact is not recalled unasked: it stands beside an answer, and is none."""

OUTDATED = 0.5
"""Of its score is left to a fact that a later one supersedes. It is history: found when asked for, behind what holds."""

ENTITY_WEIGHT = 0.05
"""Of the names of a question that a fact is about, beside 1 for the best score by words. 0.2 costs half a point of
recall@10 on the development conversations of LoCoMo, because people name each other in many messages.
"""

MAX_COMPARED = 50
"""Facts of one answer, the first ones, that are compared with each other, because a later one may change an earlier one
without a slot that both have: "it is in the safe now". All pairs of 50 take 20 ms.
"""

MAX_ABOUT = 500
"""Facts about one entity that compete for an answer: the newest that the index has, and the nearest by vectors."""

MAX_READINGS = 9
"""Ways to read several names of which some may stand for up to three; beyond, the question is not asked."""

_NEIGHBOURS = 8
_SAME_WORD = 4
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact that may answer, with its features from 0 to 1 (`decay` too)."""

    fact_id: int
    trust: float
    text: float = 0.0
    coverage: float = 0.0
    entity: float = 0.0
    vector: float = 0.0
    decay: float = 1.0

    @property
    def relevant(self) -> bool:
        """True if the fact is worth showing to a person who did not ask for it."""
        return self.entity > 0 or self.coverage >= RELEVANT


def rank(candidates: Iterable[Candidate], hrr_weight: float) -> list[tuple[int, float]]:
    """Return candidates as (fact id, relevance), best first.

    Relevance by words, names and vectors is scaled by decay and by trust, which at 0.5 changes nothing.
    """
    scored = []
    for candidate in candidates:
        words = candidate.text + ENTITY_WEIGHT * candidate.entity
        relevance = (1 - hrr_weight) * words + hrr_weight * candidate.vector
        scored.append((candidate.fact_id, relevance * (0.5 + candidate.trust) * candidate.decay))
    return sorted(scored, key=lambda pair: (-pair[1], -pair[0]))


def rank_for(
    analysis: Analysis,
    relevance: Iterable[tuple[int, float]],
    facts: Mapping[int, Row],
    before: Mapping[int, str],
) -> list[tuple[int, float]]:
    """Return facts as (fact id, score), best first, by relevance and by the kind of the question.

    `rank_candidates` adds the speaker and the date that the question names, and whether it asks when or how many. The
    score is a share of the best.

    Args:
        analysis: The question.
        relevance: Fact ids with their relevance.
        facts: The facts by id.
        before: Texts of the facts before them in their conversation, by fact id.
    """
    # A fact without any sign has this score: the zero from which shares of the best are measured.
    nothing = RankCandidate(0, "", 0.0)
    texts = [as_candidate(facts[i], share, before.get(i, "")) for i, share in relevance]
    ranked = rank_candidates(analysis, [*texts, nothing], limit=len(texts) + 1)
    zero = next(entry.score for entry in ranked if entry.candidate is nothing)
    best = max(ranked[0].score - zero, 1e-9)
    return [
        (entry.candidate.id, max(entry.score - zero, 0.0) / best)
        for entry in ranked
        if entry.candidate is not nothing
    ]


class FactMemory:
    """A store and the matrix of its entity vectors. Each question first reads the writes of all processes."""

    def __init__(self, store: FactStore, *, hrr_weight: float, half_life_days: float) -> None:
        self.store = store
        self.hrr_weight = hrr_weight
        self.half_life = half_life_days * _DAY
        self.matrix = hrr.PhaseMatrix(store.dim)
        self._seen = 0

    def refresh(self) -> None:
        """Read vectors that any process has written since the last time, and rebuild some outdated ones."""
        self.store.encode_stale()
        for rev, fact_id, phases in self.store.vectors_since(self._seen):
            self._seen = rev
            if phases is None:
                self.matrix.drop(fact_id)
            else:
                self.matrix.put(fact_id, phases)

    # ---------------------------------------------------------- questions

    def search(
        self,
        query: str,
        *,
        limit: int,
        min_trust: float = 0.0,
        category: str | None = None,
        proactive: bool = False,
    ) -> list[Row]:
        """Return facts that answer a question in words, best first; with `proactive`, only those worth an
        interruption.
        """
        query = query_text(query)
        asked = index_words(query) or grams(query)[0]  # one character, as in 猫?, makes no pair
        terms = list(dict.fromkeys(asked))[:MAX_TERMS]
        scores = score_facts(self.store, query, min_trust, category)
        best = heapq.nlargest(max(MAX_CANDIDATES, limit), scores.by_fact, key=scores.by_fact.__getitem__)
        shared = self._named_in(query)
        facts = self._known({**dict.fromkeys(best), **shared}, min_trust, category)
        formerly = asks_formerly(query)
        if proactive and not formerly:
            facts = {i: fact for i, fact in facts.items() if "superseded_by" not in fact}
        candidates = self._candidates(
            facts, terms, scores.by_fact, shared, proactive=proactive, formerly=formerly
        )
        relevance = rank(candidates.values(), self.hrr_weight)
        ranked = rank_for(scores.analysis, relevance, facts, scores.before)
        if proactive:
            ranked = [(i, s) for i, s in ranked if candidates[i].relevant and s >= MIN_SHARE_OF_BEST]
        return [{**facts[i], "score": round(score, 4)} for i, score in ranked[:limit]]

    def probe(
        self, entity: str, *, limit: int, min_trust: float = 0.0, category: str | None = None
    ) -> list[Row]:
        """Return facts about one entity, or facts with its name in their text if the entity is unknown."""
        return self.reason([entity], limit=limit, min_trust=min_trust, category=category)

    def reason(
        self, entities: Sequence[str], *, limit: int, min_trust: float = 0.0, category: str | None = None
    ) -> list[Row]:
        """Return facts about all of these entities at once. The weakest of them decides the confidence."""
        names = list(dict.fromkeys(filter(None, map(name_key, map(query_text, entities)))))
        if not names:
            raise ToolInputInvalid(f"{list(entities)!r} names no entity", "send a name")
        self.refresh()
        sure, about = self._about_all(names, max(limit, MAX_ABOUT), min_trust, category)
        facts = self._known(sure, min_trust, category)
        scores = {i: self._strength(sure[i]) * self._standing(fact) for i, fact in facts.items()}
        best = sorted(facts, key=lambda i: (-scores[i], -i))
        found = [
            {**facts[i], "score": round(scores[i], 4), "confidence": round(sure[i], 1)} for i in best[:limit]
        ]
        for fact in found:
            if read := {n: k for n, k in zip(names, about[fact["fact_id"]], strict=True) if n != k}:
                fact["read_as"] = read
        return found

    def _about_all(
        self, names: Sequence[str], most: int, min_trust: float, category: str | None
    ) -> tuple[dict[int, float], dict[int, Sequence[str]]]:
        """Return facts about all of these names with their confidence, and the entities that the names stand for."""
        meant = [keys for name in names if (keys := self.store.entities.meant(name)) is not None]
        if len(meant) < len(names):
            return {}, {}
        if not all(meant):
            said = self.store.saying(names, most, min_trust, category)
            return said, dict.fromkeys(said, names)
        sure: dict[int, float] = {}
        about: dict[int, Sequence[str]] = {}
        for reading in islice(product(*meant), MAX_READINGS):
            known = self._about_keys(list(dict.fromkeys(reading)), most, min_trust, category)
            for fact_id, confidence in known.items():
                if confidence >= sure.get(fact_id, 0.0):
                    sure[fact_id], about[fact_id] = confidence, reading
        return sure, about

    def _about_keys(
        self, keys: Sequence[str], most: int, min_trust: float, category: str | None
    ) -> dict[int, float]:
        """Return facts about all entities of these keys, by the index and by vectors, with the weakest z-score."""
        exact = self.store.entities.about(*keys, most=most, min_trust=min_trust, category=category)
        vectors = [hrr.entity_key(key, self.store.dim) for key in keys]
        near = self.matrix.matches(vectors, most=most)
        return dict.fromkeys(exact, 0.0) | near | self.matrix.confidence(exact, vectors)

    def related(
        self, entity: str, *, limit: int, min_trust: float = 0.0, category: str | None = None
    ) -> list[Row]:
        """Return facts about an entity, then facts about entities that share facts with it, the closest first."""
        direct = self.probe(entity, limit=limit, min_trust=min_trust, category=category)
        found = {fact["fact_id"]: {**fact, "via": None} for fact in direct}
        own = self.store.entities.meant(entity) or ()
        ties = [tie for key in own for tie in self.store.entities.neighbours(key, _NEIGHBOURS, MAX_ABOUT)]
        most = max((shared for _, shared in ties), default=1)
        for key, shared in ties:
            facts = self._known(
                self.store.entities.about(key, most=limit, min_trust=min_trust, category=category),
                min_trust,
                category,
            )
            for fact_id, fact in facts.items():
                score = 0.5 * shared / most * self._standing(fact)
                found.setdefault(fact_id, {**fact, "score": round(score, 4), "via": key})
        return sorted(found.values(), key=lambda f: (f["via"] is not None, -f["score"]))[:limit]

    def contradictions(self, *, limit: int, category: str | None = None) -> list[Row]:
        """Return pairs of facts that give one attribute of a subject different values, newer first.

        The newest fact of each attribute is compared with the older ones: one pass over an index, not all pairs.
        """
        pairs: dict[tuple[int, int], tuple[str, str]] = {}
        for newest, older, attribute in _clashes(self.store.open_slots()):
            pairs.setdefault((newest[1], older[1]), (newest[0], attribute))
        ids = {fact_id for pair in pairs for fact_id in pair}
        facts, contents = self.store.facts(ids, category=category), self.store.contents(ids)
        found = [
            self._contradiction(facts[a], facts[b], contents, about)
            for (a, b), about in pairs.items()
            if a in facts and b in facts
        ]
        return sorted(found, key=lambda pair: -float(pair["contradiction_score"]))[:limit]

    def everything(self, most: int, min_trust: float) -> list[Row]:
        """Return all facts that still hold by trust, or none if there are more than `most`."""
        if self.store.count() > most:
            return []
        facts = {fact["fact_id"]: fact for fact in self.store.listing(None, min_trust, most)}
        outdated = self.superseded(facts)
        return [fact for fact_id, fact in facts.items() if fact_id not in outdated]

    def listing(self, category: str | None, min_trust: float, limit: int) -> list[Row]:
        """Return facts by trust, with `superseded_by` if a later fact contradicts them."""
        listed = self.store.listing(category, min_trust, limit)
        outdated = self.superseded({fact["fact_id"]: fact for fact in listed})
        return [
            {**fact, "superseded_by": later} if (later := outdated.get(fact["fact_id"])) else fact
            for fact in listed
        ]

    def superseded(self, facts: Mapping[int, Row]) -> dict[int, int]:
        """Return those of these facts that a later one contradicts, each with the latest such fact.

        Facts with one slot are compared in the whole store. The first of these facts are also compared with each other by
        the rule for messages of past sessions, which reads more than English.
        """
        compared = {i: facts[i] for i in islice(facts, MAX_COMPARED)}
        changed = find_outdated(
            [Statement(i, fact["content"], fact["confirmed_at"]) for i, fact in compared.items()], compared
        )
        plain = {old: new for old, new in changed.items() if says_one_thing(facts[old]["content"])}
        return {**plain, **self.store.superseded(facts)}

    def history(self) -> Iterator[Row]:
        """Return every fact, oldest first, with its entities, its slots and its successor."""
        for part in in_parts(self.store.ids()):
            for fact_id, fact in self._known(part, 0.0, None).items():
                slots = self.store.slots_of(fact_id)
                yield {**fact, "entities": self.store.entities.names_of(fact_id), "slots": slots}

    # ------------------------------------------------------------ features

    def _known(self, fact_ids: Iterable[int], min_trust: float, category: str | None) -> dict[int, Row]:
        """Return these facts, with `superseded_by` if a later fact contradicts them."""
        facts = self.store.facts(fact_ids, min_trust, category)
        for fact_id, later in self.superseded(facts).items():
            facts[fact_id]["superseded_by"] = later
        return facts

    def _named_in(self, query: str) -> dict[int, float]:
        """Return facts about the entities in the question, with the share of those entities that each is about."""
        keys = self.store.entities.mentioned(query)
        counts: dict[int, int] = {}
        for key in keys:
            for fact_id in self.store.entities.about(key, most=MAX_NAMED):
                counts[fact_id] = counts.get(fact_id, 0) + 1
        return {fact_id: count / len(keys) for fact_id, count in counts.items()}

    def _candidates(
        self,
        facts: Mapping[int, Row],
        terms: Sequence[str],
        matched: Mapping[int, float],
        shared: Mapping[int, float],
        *,
        proactive: bool,
        formerly: bool,
    ) -> dict[int, Candidate]:
        weights = idf(self.store.frequencies(terms), self.store.count())
        vectors = self._vector_features(facts, weights)
        best = max(matched.values(), default=0.0) or 1.0
        return {
            i: Candidate(
                fact_id=i,
                trust=fact["reliability"],
                text=matched.get(i, 0.0) / best,
                coverage=_coverage(f"{fact['content']} {fact['tags']}", weights) if proactive else 0.0,
                entity=shared.get(i, 0.0),
                vector=vectors.get(i, 0.0),
                decay=self._decay(fact, formerly=formerly),
            )
            for i, fact in facts.items()
        }

    def _vector_features(self, facts: Iterable[int], weights: Mapping[str, float]) -> dict[int, float]:
        contents = self.store.contents(facts) if weights and self.hrr_weight > 0 else {}
        if not contents:
            return {}
        found = hrr.question_similarity(weights, np.stack(list(contents.values())), self.store.dim)
        top = max(float(np.max(found)), 1e-6)
        return {i: max(0.0, float(s)) / top for i, s in zip(contents, found, strict=True)}

    def _strength(self, confidence: float) -> float:
        """Return a z-score as similarity, at most 1."""
        return min(1.0, confidence / float(np.sqrt(2 * self.store.dim)))

    def _standing(self, fact: Row) -> float:
        return (0.5 + float(fact["reliability"])) * self._decay(fact)

    def _decay(self, fact: Row, *, formerly: bool = False) -> float:
        """Return the weight of a fact's age: half for every half-life since it was last confirmed or found helpful.

        A fact that a later one supersedes loses another half, unless the question asks what held before (`formerly`).
        Without a half-life, a current fact has 1.
        """
        holds = OUTDATED if "superseded_by" in fact and not formerly else 1.0
        if self.half_life <= 0:
            return holds
        age = max(0.0, self.store.clock() - float(fact["confirmed_at"]))
        return float(holds * 0.5 ** (age / self.half_life))

    def _contradiction(
        self, newer: Row, older: Row, contents: Mapping[int, hrr.Phases], about: tuple[str, str]
    ) -> dict[str, Any]:
        a, b = newer["fact_id"], older["fact_id"]
        left, right = ({name_key(n): n for n in self.store.entities.names_of(i)} for i in (a, b))
        shared = left.keys() & right.keys()
        both = left.keys() | right.keys()
        alike = float(hrr.similarity(contents[a], contents[b])) if a in contents and b in contents else 0.0
        return {
            "fact_a": newer,
            "fact_b": older,
            "subject": about[0],
            "attribute": about[1],
            "entity_overlap": round(len(shared) / len(both), 4) if both else 0.0,
            "content_similarity": round(alike, 4),
            "contradiction_score": round((1 + max(0.0, alike)) / 2, 4),
            "shared_entities": sorted(left[key] for key in shared),
        }


def _clashes(
    rows: Iterable[tuple[str, str, str, int]],
) -> Iterable[tuple[tuple[str, int], tuple[str, int], str]]:
    """Yield, for each slot, the newest (subject, fact) with each older one whose value is another."""
    slot: tuple[str, str] | None = None
    newest: tuple[str, int] = ("", 0)
    for subject, attribute, value, fact_id in rows:
        if (subject, attribute) != slot:
            slot, newest = (subject, attribute), (value, fact_id)
        elif exclude(newest[0], value) and fact_id != newest[1]:
            yield (subject, newest[1]), (subject, fact_id), attribute


def _coverage(text: str, weights: Mapping[str, float]) -> float:
    """Return the share of the question's weight in words that the text has, endings aside."""
    total = sum(weights.values())
    if not total:
        return 0.0
    held = set(index_words(text))
    stems = {word[:_SAME_WORD] for word in held if len(word) > _SAME_WORD}
    found = (w for t, w in weights.items() if t in held or (len(t) > _SAME_WORD and t[:_SAME_WORD] in stems))
    return sum(found) / total

"""Conversations with questions whose evidence is known, and what the answers to them are worth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from hermes_core.recall import rank
from hermes_memory_eval.figures import interval
from hermes_memory_importers.locomo import read_locomo
from hermes_memory_importers.values import ImportedMessage, ImportedSession

DEPTHS = (1, 5, 10, 20)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ANSWERABLE = (1, 2, 3, 4)
BUDGET = 1500


@dataclass(frozen=True)
class Question:
    """A question with the refs of the messages that answer it: all of them, or `any_one`."""

    text: str
    evidence: frozenset[str]
    category: int = 0
    any_one: bool = False


@dataclass(frozen=True)
class Conversation:
    """Sessions with questions about them. The first `shared` sessions are those of other conversations too."""

    id: str
    sessions: tuple[ImportedSession, ...]
    questions: tuple[Question, ...]
    shared: int = 0

    def messages(self) -> Iterator[tuple[str, ImportedMessage]]:
        """Each message with the id of its session, in order."""
        return ((s.id, m) for s in self.sessions for t in s.turns for m in t.messages)

    def session_of(self) -> dict[str, str]:
        return {m.ref: session for session, m in self.messages()}

    def text_of(self) -> dict[str, str]:
        return {m.ref: m.content for _, m in self.messages()}


Ask = Callable[[str, int], list[str]]
"""A question and how many messages: their refs, best first."""


@dataclass
class Result:
    """Answers of one system; `whole` says that it gives all there is, whatever is asked."""

    system: str
    whole: bool = False
    ingest_seconds: float = 0.0
    messages: int = 0
    latencies: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


Answer = tuple[Conversation, Question, list[str]]


def read(path: Path) -> list[Conversation]:
    data = json.loads(path.read_text(encoding="utf-8"))
    samples = data if isinstance(data, list) else [data]
    conversations = []
    for sample in samples:
        sessions = tuple(read_locomo(sample))
        refs = {m.ref for s in sessions for t in s.turns for m in t.messages}
        questions = tuple(
            Question(str(q["question"]), frozenset(q.get("evidence", ())) & refs, int(q["category"]))
            for q in sample.get("qa", ())
            if frozenset(q.get("evidence", ())) & refs
        )
        conversations.append(Conversation(str(sample.get("sample_id", "")), sessions, questions))
    return conversations


def score(result: Result, k: int) -> dict[str, Any]:
    """All figures of one system, JSON-serialisable."""
    known = _Known([c for c, _, _ in result.answers])
    figures = known.shares_given if result.whole else known.figures
    per_category = {
        name: figures([a for a in result.answers if a[1].category == number])
        for number, name in CATEGORIES.items()
    }
    cuts = quantiles(result.latencies, n=20) if len(result.latencies) > 1 else [0.0] * 19
    answerable = [a for a in result.answers if a[1].category in ANSWERABLE]
    return {
        "system": result.system,
        "overall": figures(answerable),
        "categories": per_category,
        "conversations": {
            c.id: figures([a for a in answerable if a[0] is c]) for c in known.conversations.values()
        },
        "ingest_ms_per_message": 1000 * result.ingest_seconds / max(result.messages, 1),
        "query_p50_ms": cuts[9],
        "query_p95_ms": cuts[18],
        f"tokens_at_{k}": known.tokens(result, k),
    }


class _Known:
    """What the texts and the sessions of all messages are, looked up once."""

    def __init__(self, conversations: Sequence[Conversation]) -> None:
        self.conversations = {id(c): c for c in conversations}
        self._texts = {key: c.text_of() for key, c in self.conversations.items()}
        self._sessions = {key: c.session_of() for key, c in self.conversations.items()}

    def figures(self, answers: Sequence[Answer]) -> dict[str, float]:
        if not answers:
            return {"questions": 0}
        found: dict[str, float] = {"questions": len(answers)}
        for depth in DEPTHS:
            found[f"recall@{depth}"] = fmean(share_of(q, refs[:depth]) for _, q, refs in answers)
        low, high = interval([share_of(q, refs[:10]) for _, q, refs in answers])
        found["recall@10_low"], found["recall@10_high"] = low, high
        found[f"coverage@{BUDGET}_tokens"] = fmean(
            share_of(q, self._fitting(c, refs)) for c, q, refs in answers
        )
        found["mrr"] = fmean(
            next((1 / rank for rank, ref in enumerate(refs, 1) if ref in q.evidence), 0.0)
            for _, q, refs in answers
        )
        found["session_recall@5"] = fmean(
            _session_recall(self._sessions[id(c)], q, refs) for c, q, refs in answers
        )
        return found

    def shares_given(self, answers: Sequence[Answer]) -> dict[str, float]:
        """Of a system that does not rank: at every depth the share of the evidence in all that it gives."""
        if not answers:
            return {"questions": 0}
        share = fmean(share_of(q, refs) for _, q, refs in answers)
        return {"questions": len(answers), **dict.fromkeys((f"recall@{depth}" for depth in DEPTHS), share)}

    def tokens(self, result: Result, k: int) -> float:
        """Tokens of the first k messages, or of all that is given; the mean over the questions."""
        return fmean(
            sum(rank.count_tokens(self._texts[id(c)][ref]) for ref in (refs if result.whole else refs[:k]))
            for c, _, refs in result.answers
        )

    def _fitting(self, conversation: Conversation, refs: Sequence[str]) -> list[str]:
        """The messages that fit the budget, as `rank` fits them."""
        texts, room, kept = self._texts[id(conversation)], BUDGET, []
        for ref in refs:
            cost = rank.count_tokens(texts[ref])
            if cost <= room:
                room -= cost
                kept.append(ref)
        return kept


def share_of(question: Question, refs: Sequence[str]) -> float:
    """Return the share of the question's evidence among the refs; 1 or 0 where any one of the evidence answers."""
    if question.any_one:
        return float(not question.evidence.isdisjoint(refs))
    return len(question.evidence.intersection(refs)) / len(question.evidence)


def _session_recall(session_of: Mapping[str, str], question: Question, refs: Sequence[str]) -> float:
    wanted = {session_of[ref] for ref in question.evidence}
    first = list(dict.fromkeys(session_of[ref] for ref in refs))[:5]
    return len(wanted.intersection(first)) / len(wanted)

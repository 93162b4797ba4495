"""Score recall on conversations with known evidence: any file of the LoCoMo format.

    python bench/recall.py --data FILE [--system NAME ...] [-k 10] [--json] [--plot FILE] [--ablate | --unasked]

Each message is one row; a question is asked as it stands; what counts is which messages come back, no judge and no
model. Figures are means over the questions whose evidence exists in the file: recall@k is the share of a question's
evidence among the first k messages, MRR the inverse rank of the first evidence (0 beyond 20), session recall@5 the
share of the evidence's sessions among the first five distinct sessions. Categories are LoCoMo's: 1 multi-hop,
2 temporal, 3 open-domain, 4 single-hop; 5 is adversarial (asked of the wrong speaker) and never part of the mean.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from hermes_core.importers.locomo import read_locomo
from hermes_core.importers.values import ImportedSession
from hermes_core.kit.text import is_trivial
from hermes_core.recall import dense, rank
from hermes_core.recall.tokens import is_stop_word, words
from hermes_core.sessions import lookup
from hermes_core.sessions.db import SessionDB

DEPTHS = (1, 5, 10, 20)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ANSWERABLE = (1, 2, 3, 4)
BUDGET = 1500
RESAMPLES = 1000

SMALL_TALK = (
    "hi there!",
    "how are you today?",
    "thanks, that was great",
    "good morning",
    "ok sounds good, let's do it",
    "tell me a joke",
    "can you write a haiku about autumn?",
    "what's 17 times 23?",
    "translate 'good night' into French",
    "please fix the bug in this function",
    "what is the capital of Australia?",
    "how do I reverse a list in Python?",
    "summarize the following text for me",
    "never mind, forget it",
    "lol that's funny",
    "what time is it in Tokyo?",
    "explain quantum entanglement simply",
    "write a regular expression for email addresses",
    "yes please go ahead",
    "who won the world cup in 1998?",
    "convert 5 miles to kilometers",
    "what's the weather like?",
    "I'm bored",
    "make it shorter",
    "can you try again?",
    "how does photosynthesis work?",
    "give me a synonym for quick",
    "thank you so much!",
    "see you tomorrow",
    "what does HTTP 418 mean?",
)
"""What people say that no past conversation answers."""


@dataclass(frozen=True)
class Question:
    text: str
    evidence: frozenset[str]
    category: int


@dataclass(frozen=True)
class Conversation:
    id: str
    sessions: tuple[ImportedSession, ...]
    questions: tuple[Question, ...]

    def session_of(self) -> dict[str, str]:
        return {m.ref: s.id for s in self.sessions for t in s.turns for m in t.messages}

    def text_of(self) -> dict[str, str]:
        return {m.ref: m.content for s in self.sessions for t in s.turns for m in t.messages}


Ask = Callable[[str, int], list[str]]
"""A question and how many messages: their refs, best first."""


@dataclass
class Result:
    system: str
    ingest_seconds: float = 0.0
    messages: int = 0
    latencies: list[float] = field(default_factory=list)
    answers: list[tuple[Conversation, Question, list[str]]] = field(default_factory=list)


# ---------------------------------------------------------------------- systems


@contextmanager
def stored(conversation: Conversation, folder: Path, *, semantic: bool = False) -> Iterator[SessionDB]:
    """A SessionDB that holds the conversation."""
    db = SessionDB(folder / "state.db", semantic=semantic)
    for session in conversation.sessions:
        db.create_session(session.id, session.source, title=session.title, started_at=session.started_at)
        for number, turn in enumerate(session.turns, 1):
            messages = [
                {
                    "role": m.role,
                    "content": m.content,
                    "speaker": m.speaker,
                    "ref": m.ref,
                    "timestamp": m.timestamp,
                }
                for m in turn.messages
            ]
            db.append_turn(session.id, messages, f"{session.id}-{number}", number)
    if db.meaning is not None:
        db.meaning.build()
    yield db
    db.close()


@contextmanager
def ours(conversation: Conversation, folder: Path, *, semantic: bool = False) -> Iterator[Ask]:
    """SessionDB as it is installed by default."""
    with stored(conversation, folder, semantic=semantic) as db:
        yield lambda question, k: [hit.ref for hit in db.search(question, limit=k)]


@contextmanager
def ours_semantic(conversation: Conversation, folder: Path) -> Iterator[Ask]:
    """SessionDB with the extra [semantic]."""
    if not dense.installed():
        raise SystemExit("ours-semantic needs: pip install 'hermes-memory-core[semantic]'")
    with ours(conversation, folder, semantic=True) as ask:
        yield ask


@contextmanager
def nothing(_conversation: Conversation, _folder: Path) -> Iterator[Ask]:
    """An agent without memory."""
    yield lambda _question, _k: []


@contextmanager
def recent(conversation: Conversation, _folder: Path) -> Iterator[Ask]:
    """The last messages, whatever is asked."""
    refs = [m.ref for s in conversation.sessions for t in s.turns for m in t.messages][::-1]
    yield lambda _question, k: refs[:k]


@contextmanager
def grep(conversation: Conversation, _folder: Path) -> Iterator[Ask]:
    """The messages that hold most of the question's words as they are written, the newest first among equals."""
    texts = [
        (f"{m.speaker}: {m.content}".lower(), m.ref)
        for s in conversation.sessions
        for t in s.turns
        for m in t.messages
    ]

    def ask(question: str, k: int) -> list[str]:
        asked = {word for word in words(question) if not is_stop_word(word)}
        counts = [(sum(word in text for word in asked), at, ref) for at, (text, ref) in enumerate(texts)]
        return [ref for count, _, ref in sorted(counts, reverse=True)[:k] if count]

    yield ask


@contextmanager
def plain_fts5(conversation: Conversation, folder: Path) -> Iterator[Ask]:
    """FTS5 as most write it: porter, stop words out, terms joined by OR, bm25 over "Speaker: text"."""
    db = sqlite3.connect(folder / "plain.db")
    db.execute("CREATE VIRTUAL TABLE f USING fts5(text, ref UNINDEXED, tokenize='porter unicode61')")
    rows = [
        (f"{m.speaker}: {m.content}", m.ref)
        for s in conversation.sessions
        for t in s.turns
        for m in t.messages
    ]
    db.executemany("INSERT INTO f VALUES (?, ?)", rows)
    db.commit()

    def ask(question: str, k: int) -> list[str]:
        asked = " OR ".join(f'"{word}"' for word in words(question) if not is_stop_word(word))
        found = db.execute("SELECT ref FROM f WHERE f MATCH ? ORDER BY rank LIMIT ?", (asked or '""', k))
        return [row[0] for row in found]

    yield ask
    db.close()


SYSTEMS = {
    "ours": ours,
    "ours-semantic": ours_semantic,
    "no-memory": nothing,
    "recent": recent,
    "grep": grep,
    "plain-fts5": plain_fts5,
}


def default_systems() -> list[str]:
    return [name for name in SYSTEMS if name != "ours-semantic" or dense.installed()]


# ---------------------------------------------------------------------- running and scoring


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


def run(name: str, conversations: Sequence[Conversation], console: Console) -> Result:
    result = Result(name)
    for conversation in track(conversations, description=f"{name}: storing and asking", console=console):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with SYSTEMS[name](conversation, Path(folder)) as ask:
                result.ingest_seconds += time.perf_counter() - began
                result.messages += len(conversation.session_of())
                for question in conversation.questions:
                    asked = time.perf_counter()
                    refs = ask(question.text, max(DEPTHS))
                    result.latencies.append((time.perf_counter() - asked) * 1000)
                    result.answers.append((conversation, question, refs))
    return result


def score(result: Result, k: int) -> dict[str, Any]:
    """All figures of one system, JSON-serialisable."""
    per_category = {
        name: _figures([a for a in result.answers if a[1].category == number])
        for number, name in CATEGORIES.items()
    }
    cuts = quantiles(result.latencies, n=20) if len(result.latencies) > 1 else [0.0] * 19
    return {
        "system": result.system,
        "overall": _figures([a for a in result.answers if a[1].category in ANSWERABLE]),
        "categories": per_category,
        "conversations": {
            c.id: _figures([a for a in result.answers if a[0] is c and a[1].category in ANSWERABLE])
            for c in {id(a[0]): a[0] for a in result.answers}.values()
        },
        "ingest_ms_per_message": 1000 * result.ingest_seconds / max(result.messages, 1),
        "query_p50_ms": cuts[9],
        "query_p95_ms": cuts[18],
        f"tokens_at_{k}": _tokens(result, k),
    }


def _figures(answers: Sequence[tuple[Conversation, Question, list[str]]]) -> dict[str, float]:
    if not answers:
        return {"questions": 0}
    figures: dict[str, float] = {"questions": len(answers)}
    for depth in DEPTHS:
        figures[f"recall@{depth}"] = fmean(
            len(q.evidence.intersection(refs[:depth])) / len(q.evidence) for _, q, refs in answers
        )
    low, high = _interval(
        [len(q.evidence.intersection(refs[:10])) / len(q.evidence) for _, q, refs in answers]
    )
    figures["recall@10_low"], figures["recall@10_high"] = low, high
    figures[f"coverage@{BUDGET}_tokens"] = fmean(_covered(c, q, refs) for c, q, refs in answers)
    figures["mrr"] = fmean(
        next((1 / rank for rank, ref in enumerate(refs, 1) if ref in q.evidence), 0.0)
        for _, q, refs in answers
    )
    figures["session_recall@5"] = fmean(_session_recall(c.session_of(), q, refs) for c, q, refs in answers)
    return figures


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Where 95 of 100 means lie when the questions are drawn anew from those that were asked."""
    chance = random.Random(0)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-RESAMPLES // 40]


def _covered(conversation: Conversation, question: Question, refs: Sequence[str]) -> float:
    """The share of the evidence among the messages that fit the budget, as `rank` fits them."""
    texts, room, kept = conversation.text_of(), BUDGET, set()
    for ref in refs:
        cost = rank.count_tokens(texts[ref])
        if cost <= room:
            room -= cost
            kept.add(ref)
    return len(question.evidence & kept) / len(question.evidence)


def _session_recall(session_of: Mapping[str, str], question: Question, refs: Sequence[str]) -> float:
    wanted = {session_of[ref] for ref in question.evidence}
    first = list(dict.fromkeys(session_of[ref] for ref in refs))[:5]
    return len(wanted.intersection(first)) / len(wanted)


def _tokens(result: Result, k: int) -> float:
    texts = {id(c): c.text_of() for c, _, _ in result.answers}
    return fmean(
        sum(rank.count_tokens(texts[id(c)][ref]) for ref in refs[:k]) for c, _, refs in result.answers
    )


def unasked(conversations: Sequence[Conversation], console: Console, *, semantic: bool) -> dict[str, float]:
    """What recall that nobody asked for injects, as a share of the tokens of always ten, and what that costs."""
    tokens: dict[str, list[int]] = {kind: [0, 0] for kind in ("answerable", "adversarial", "small_talk")}
    recalls: list[tuple[float, float]] = []
    for conversation in track(conversations, description="unasked: storing and asking", console=console):
        with (
            tempfile.TemporaryDirectory() as folder,
            stored(conversation, Path(folder), semantic=semantic) as db,
        ):
            talk = [Question(text, frozenset(), 0) for text in SMALL_TALK]
            for question in (*conversation.questions, *talk):
                always = db.search(question.text)
                given = [] if is_trivial(question.text) else db.search(question.text, unasked=True)
                kind = {0: "small_talk", 5: "adversarial"}.get(question.category, "answerable")
                for at, hits in enumerate((always, given)):
                    tokens[kind][at] += sum(rank.count_tokens(hit.text) for hit in hits)
                if kind == "answerable":
                    found = [{hit.ref for hit in hits} & question.evidence for hits in (always, given)]
                    recalls.append(
                        (len(found[0]) / len(question.evidence), len(found[1]) / len(question.evidence))
                    )
    figures = {f"{kind}_tokens": given / max(always, 1) for kind, (always, given) in tokens.items()}
    always_recall, given_recall = (fmean(column) for column in zip(*recalls, strict=True))
    return figures | {"recall@10_always": always_recall, "recall@10_unasked": given_recall}


NEUTRAL: dict[str, float | tuple[float, ...]] = {
    "CONTEXT_BEFORE": (),
    "CONTEXT_AFTER": (),
    "SPEAKER_WEIGHT": 0.0,
    "SELF_WEIGHT": 0.0,
    "DATE_WEIGHT": 0.0,
    "TIME_WORD_WEIGHT": 0.0,
    "NUMBER_WEIGHT": 0.0,
    "QUESTION_WEIGHT": 0.0,
    "LENGTH_WEIGHT": 0.0,
    "REPLY_WEIGHT": 0.0,
    "LEAST_DEVIATION": 0.0,
}
"""Each ingredient of the ranking by its constant, and the value that takes it out."""


@contextmanager
def without(constant: str) -> Iterator[None]:
    """Rank without one ingredient, by setting its constant."""
    users = [module for module in (rank, lookup) if hasattr(module, constant)]
    kept = getattr(rank, constant)
    for module in users:
        setattr(module, constant, NEUTRAL[constant])
    try:
        yield
    finally:
        for module in users:
            setattr(module, constant, kept)


def ablate(conversations: Sequence[Conversation], k: int, console: Console) -> list[dict[str, Any]]:
    """The scores of our search, whole and then with each ingredient out."""
    scores = [score(run("ours", conversations, console), k)]
    for constant in NEUTRAL:
        with without(constant):
            result = run("ours", conversations, console)
        result.system = f"without {constant}"
        scores.append(score(result, k))
    return scores


# ---------------------------------------------------------------------- showing


def table(scores: Sequence[Mapping[str, Any]], k: int) -> Table:
    shown = Table(title="Recall of evidence messages, %; categories 1-4 unless said")
    for column in ("system", "R@1", "R@5", "R@10", "R@20", "MRR", "session R@5", "adv. R@1", "adv. R@10"):
        shown.add_column(column, justify="left" if column == "system" else "right")
    shown.add_column(f"in {BUDGET} tokens", justify="right")
    for column in ("store ms/msg", "p50 ms", "p95 ms", f"tokens@{k}"):
        shown.add_column(column, justify="right")
    for one in scores:
        overall, adversarial = one["overall"], one["categories"]["adversarial"]
        shares = [overall.get(f"recall@{d}", 0.0) for d in DEPTHS] + [overall.get("mrr", 0.0)]
        shares += [overall.get("session_recall@5", 0.0)]
        shares += [adversarial.get(f"recall@{d}", 0.0) for d in (1, 10)]
        shares += [overall.get(f"coverage@{BUDGET}_tokens", 0.0)]
        speeds = (one["ingest_ms_per_message"], one["query_p50_ms"], one["query_p95_ms"])
        shown.add_row(
            one["system"],
            *(f"{100 * share:.1f}" for share in shares),
            *(f"{speed:.2f}" for speed in speeds),
            f"{one[f'tokens_at_{k}']:.0f}",
        )
    return shown


def category_table(scores: Sequence[Mapping[str, Any]], k: int) -> Table:
    depth = k if k in DEPTHS else 10
    shown = Table(title=f"Recall@{depth} by category, %")
    shown.add_column("system")
    shown.add_column("1 to 4", justify="right")
    for name in CATEGORIES.values():
        shown.add_column(f"{name} ({scores[0]['categories'][name]['questions']})", justify="right")
    for one in scores:
        figures = [one["overall"], *(one["categories"][name] for name in CATEGORIES.values())]
        shown.add_row(one["system"], *(_share(of, depth) for of in figures))
    return shown


def _share(figures: Mapping[str, float], depth: int) -> str:
    share = f"{100 * figures.get(f'recall@{depth}', 0.0):.1f}"
    if depth != 10 or not figures["questions"]:
        return share
    return f"{share} ({100 * figures['recall@10_low']:.1f}-{100 * figures['recall@10_high']:.1f})"


def plot(scores: Sequence[Mapping[str, Any]], path: Path) -> None:
    import matplotlib  # only who wants a plot needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for one in scores:
        axes.plot(
            DEPTHS, [100 * one["overall"][f"recall@{d}"] for d in DEPTHS], marker="o", label=one["system"]
        )
    axes.set(xlabel="messages recalled", ylabel="evidence recalled, %", ylim=(0, 100), xticks=DEPTHS)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a file of the LoCoMo format")
    parser.add_argument("--system", action="append", choices=sorted(SYSTEMS), help="default: all of them")
    parser.add_argument(
        "-k", type=int, default=10, help="messages injected, for tokens and the category table"
    )
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--plot", type=Path, help="draw recall over k into this file (needs matplotlib)")
    parser.add_argument(
        "--ablate", action="store_true", help="score our search with each ingredient left out"
    )
    parser.add_argument(
        "--unasked",
        action="store_true",
        help="what recall injects that nobody asked for, beside always ten messages",
    )
    options = parser.parse_args(arguments)
    conversations = read(options.data)
    progress = Console(stderr=True)
    if options.unasked:
        kinds = (False, True) if dense.installed() else (False,)
        found = {("semantic" if s else "words"): unasked(conversations, progress, semantic=s) for s in kinds}
        print(json.dumps(found, indent=2))
        return 0
    if options.ablate:
        scores = ablate(conversations, options.k, progress)
    else:
        scores = [
            score(run(name, conversations, progress), options.k)
            for name in options.system or default_systems()
        ]
    if options.json:
        print(json.dumps(scores, indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else 150)
        console.print(table(scores, options.k))
        console.print(category_table(scores, options.k))
    if options.plot:
        plot(scores, options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

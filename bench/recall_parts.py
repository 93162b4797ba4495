"""Our session search taken apart: each ingredient left out, and what is recalled that nobody asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from recall_scores import Conversation, Question, Result
from recall_systems import ours, run, stored
from rich.console import Console
from rich.progress import track

from hermes_core.kit.text import is_trivial
from hermes_core.recall import rank
from hermes_core.sessions.search import lookup

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


def proactive(conversations: Sequence[Conversation], console: Console, *, semantic: bool) -> dict[str, float]:
    """What recall that nobody asked for injects, as a share of the tokens of always ten, and what that costs."""
    tokens: dict[str, list[int]] = {kind: [0, 0] for kind in ("answerable", "adversarial", "small_talk")}
    recalls: list[tuple[float, float]] = []
    for conversation in track(conversations, description="proactive: storing and asking", console=console):
        with (
            tempfile.TemporaryDirectory() as folder,
            stored(conversation, Path(folder), semantic=semantic) as db,
        ):
            talk = [Question(text, frozenset(), 0) for text in SMALL_TALK]
            for question in (*conversation.questions, *talk):
                always = db.past.search(question.text)
                given = (
                    []
                    if is_trivial(question.text)
                    else db.past.search(question.text, limit=rank.MAX_PROACTIVE_HITS, proactive=True)
                )
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
    return figures | {"recall_of_ten": always_recall, "recall_proactive": given_recall}


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
    "MIN_DEVIATION_SHARE": 0.0,
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


def ablate(conversations: Sequence[Conversation], console: Console) -> Iterator[Result]:
    """The answers of our search, whole and then with each ingredient out."""
    yield run("ours", ours, conversations, console)
    for constant in NEUTRAL:
        with without(constant):
            yield run(f"without {constant}", ours, conversations, console)

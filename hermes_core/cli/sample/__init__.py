"""A conversation written for this package, in our JSON Lines: two friends, nine evenings, a year of changes.

`hermes-memory demo` imports it and asks its questions. The facts in it change on purpose: a job, a city, a dog's name, an
allergy, plans for a trip.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """A question about the conversation: `evidence` are the references of the lines that answer it."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    demo: bool


def sample_path() -> Path:
    """The file, with a message a line."""
    return Path(__file__).with_name("conversation.jsonl")


def sample_questions() -> list[SampleQuestion]:
    """Its questions; those with `demo` are the ones that `hermes-memory demo` asks."""
    questions = json.loads(Path(__file__).with_name("questions.json").read_text(encoding="utf-8"))
    return [
        SampleQuestion(q["question"], q["answer"], tuple(q["evidence"]), q.get("demo", False))
        for q in questions
    ]

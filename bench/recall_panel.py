"""A panel of data sets: people's chats, assistants' chats, tool output, Chinese, and long turns in one table.

A folder holds files of the LoCoMo format (`*.json`), files of a documented format (`*.json.gz`: `shared_sessions`, and
`conversations` with `sessions` and `questions` that have `evidence` or a `pattern`), `long-questions.json` (questions
with other talk before them, about a conversation of LoCoMo) and `turns.json` (turns that ask nothing, see
`recall_turns.py`). Questions of LoCoMo that are asked of the wrong speaker (category 5) are left out.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from recall_cache import Cache
from recall_scores import Ask, Conversation, Question, Result, read, share_of
from recall_systems import run
from rich.console import Console
from rich.table import Table

from hermes_core.recall import rank
from hermes_memory_eval.figures import interval
from hermes_memory_importers.values import ImportedMessage, ImportedSession, split_turns

TURNS = "turns.json"
LONG = "long-questions.json"
DEPTH = 10
WRONG_SPEAKER = 5

System = Callable[..., AbstractContextManager[Ask]]


@dataclass(frozen=True)
class DataSet:
    """Conversations of one kind. `measure` is "R@10", or "hit@10" if any one message answers a question."""

    name: str
    conversations: tuple[Conversation, ...]

    @property
    def questions(self) -> list[Question]:
        return [question for c in self.conversations for question in c.questions]

    @property
    def measure(self) -> str:
        return "hit@10" if any(question.any_one for question in self.questions) else "R@10"

    def sample(self, count: int) -> DataSet:
        """Return the same set with at most `count` questions, the same each time."""
        places = [
            (at, number) for at, c in enumerate(self.conversations) for number in range(len(c.questions))
        ]
        sample = set(random.Random(0).sample(places, min(count, len(places))))
        conversations = (
            replace(c, questions=tuple(q for n, q in enumerate(c.questions) if (at, n) in sample))
            for at, c in enumerate(self.conversations)
        )
        return DataSet(self.name, tuple(c for c in conversations if c.questions))


def read_panel(folder: Path, locomo: Sequence[Path] = (), *, wrong_speaker: bool = False) -> list[DataSet]:
    """Return all data sets of a folder, those of LoCoMo first.

    `wrong_speaker` keeps the questions of LoCoMo that name the wrong person.
    """
    sets = []
    of_locomo = [conversation for path in locomo for conversation in read(path)]
    if of_locomo:
        sets.append(_data_set("locomo", of_locomo, wrong_speaker))
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".json.gz"):
            sets.append(read_documented(path))
        elif path.suffix == ".json" and path.name not in (TURNS, LONG):
            name = path.stem.removesuffix("-locomo-format")
            sets.append(_data_set(name, read(path), wrong_speaker))
    if (folder / LONG).exists():
        long = _long(json.loads((folder / LONG).read_text(encoding="utf-8")), of_locomo)
        if long is None:
            print(f"{LONG} is left out: its conversation is in no file of --locomo", file=sys.stderr)
        else:
            sets.append(long)
    return sets


def _data_set(name: str, conversations: Iterable[Conversation], wrong_speaker: bool) -> DataSet:
    answerable = (
        replace(c, questions=tuple(q for q in c.questions if wrong_speaker or q.category != WRONG_SPEAKER))
        for c in conversations
    )
    return DataSet(name, tuple(c for c in answerable if c.questions))


def read_documented(path: Path) -> DataSet:
    """Return the set of a `.json.gz` file."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        data = json.load(stream)
    shared = [_session(session, data["name"]) for session in data["shared_sessions"]]
    conversations = []
    for row in data["conversations"]:
        sessions = (*shared, *(_session(session, data["name"]) for session in row["sessions"]))
        conversation = Conversation(row["id"], sessions, (), len(shared))
        texts = conversation.text_of()
        questions = (_question(question, texts) for question in row["questions"])
        conversations.append(replace(conversation, questions=tuple(q for q in questions if q.evidence)))
    return DataSet(data["name"], tuple(conversations))


def _session(session: Mapping[str, Any], source: str) -> ImportedSession:
    messages = (
        ImportedMessage(m["role"], m["content"], m["speaker"] or "", m["ref"], m["at"])
        for m in session["messages"]
    )
    return ImportedSession(session["id"], source, "", session["started_at"], tuple(split_turns(messages)))


def _question(question: Mapping[str, Any], texts: Mapping[str, str]) -> Question:
    if pattern := question.get("pattern"):
        answers = (ref for ref, text in texts.items() if re.search(pattern, text))
        return Question(question["question"], frozenset(answers), any_one=True)
    return Question(question["question"], frozenset(question["evidence"]) & texts.keys())


def _long(data: Mapping[str, Any], conversations: Iterable[Conversation]) -> DataSet | None:
    for conversation in conversations:
        if conversation.id == data["sample_id"]:
            refs = conversation.text_of().keys()
            questions = (Question(q["turn"], frozenset(q["evidence"]) & refs) for q in data["questions"])
            conversation = replace(conversation, questions=tuple(q for q in questions if q.evidence))
            return DataSet("long-questions", (conversation,))
    return None


def measure(
    sets: Sequence[DataSet],
    systems: Mapping[str, System],
    cache: Cache,
    progress: Console,
    *,
    without_cpu: Collection[str] = (),
) -> Iterator[dict[str, Any]]:
    """Return the figures of each system on each set, JSON-serialisable.

    `without_cpu` are systems in other processes, whose CPU time is not known.
    """
    for data in sets:
        for name, system in systems.items():
            cached_system = partial(system, cache=cache)
            result = run(f"{data.name}, {name}", cached_system, data.conversations, progress)
            row = {"set": data.name, "measure": data.measure, "system": name, **_figures(result)}
            if name in without_cpu:
                row["cpu_ms"] = None
            progress.print(f"{data.name}, {name}: {_share(row)}", highlight=False)
            yield row


def _figures(result: Result) -> dict[str, Any]:
    shares = [share_of(question, refs[:DEPTH]) for _, question, refs in result.answers]
    low, high = interval(shares)
    texts = {id(c): c.text_of() for c, _, _ in result.answers}
    tokens = (
        sum(rank.count_tokens(texts[id(c)][ref]) for ref in refs[:DEPTH]) for c, _, refs in result.answers
    )
    return {
        "questions": len(shares),
        "recall": fmean(shares),
        "low": low,
        "high": high,
        "tokens": fmean(tokens),
        "cpu_ms": fmean(result.cpu),
    }


def table(figures: Sequence[Mapping[str, Any]]) -> Table:
    """Return a line for each system, a column for each set."""
    return _grid(figures, "Evidence among ten messages, % (where 95 of 100 means lie)", _share)


def cost_table(figures: Sequence[Mapping[str, Any]]) -> Table:
    """Return the tokens of ten messages and the CPU time of a question, of each system on each set."""
    return _grid(figures, "Tokens of ten messages, and milliseconds of CPU for each question", _cost)


def _grid(
    figures: Sequence[Mapping[str, Any]], title: str, cell: Callable[[Mapping[str, Any]], str]
) -> Table:
    grid = Table(title=title)
    grid.add_column("system")
    sets = {row["set"]: row for row in figures}
    for name, row in sets.items():
        grid.add_column(f"{name}\n{row['measure']} of {row['questions']}", justify="right")
    for system in dict.fromkeys(row["system"] for row in figures):
        by_set = {row["set"]: row for row in figures if row["system"] == system}
        grid.add_row(system, *(cell(by_set[name]) if name in by_set else "-" for name in sets))
    return grid


def _share(row: Mapping[str, Any]) -> str:
    return "{:.1f} ({:.1f}-{:.1f})".format(*(100 * row[key] for key in ("recall", "low", "high")))


def _cost(row: Mapping[str, Any]) -> str:
    cpu = "-" if row["cpu_ms"] is None else f"{row['cpu_ms']:.1f}"
    return f"{row['tokens']:,.0f}, {cpu}"

"""What a turn gets of past sessions without a search: on turns that ask nothing of memory, and on the panel's questions.

Both go through a memory with default settings, except that `recall.sessions` is "auto" if that is not the default:
turns through `begin_turn`, questions through `Memory.recall`, whose report says what a turn would get.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from recall_cache import Cache
from recall_panel import DEPTH, DataSet
from recall_scores import Conversation, share_of
from recall_systems import copy_store
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hermes_core import Memory, open_memory
from hermes_core.config import Config
from hermes_core.recall import rank
from hermes_memory_eval.figures import interval

KINDS = ("small_talk", "task", "follow_up")


def settings(semantic: bool) -> dict[str, dict[str, str]]:
    """Return the settings of a measured memory: the default, and recall from past sessions in each turn."""
    recall = {"semantic": "auto" if semantic else "off"}
    if Config().recall.sessions != "auto":
        recall["sessions"] = "auto"
    return {"recall": recall}


@contextmanager
def remembered(conversation: Conversation, semantic: bool, cache: Cache) -> Iterator[Memory]:
    """Return the memory of a home whose past sessions are the conversation."""
    with tempfile.TemporaryDirectory() as folder:
        copy_store(conversation, Path(folder, "state.db"), semantic, cache)
        with open_memory(folder, config=settings(semantic), provider="") as memory:
            yield memory


def read_turns(path: Path) -> dict[str, list[str]]:
    """Return the turns of `turns.json` by kind."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return {kind: data[kind] for kind in KINDS if kind in data}


def measure_turns(
    sets: Sequence[DataSet],
    turns: Mapping[str, Sequence[str]],
    cache: Cache,
    progress: Console,
    semantic: bool,
) -> Iterator[dict[str, Any]]:
    """Return the share of turns that get anything, and the mean of their tokens, for each kind of turn and each set."""
    for data in sets:
        # Conversations that share nearly all sessions are one store.
        stores = data.conversations[:1] if data.conversations[0].shared else data.conversations
        tokens: dict[str, list[int]] = {kind: [] for kind in turns}
        label = f"{data.name}, turns, {_name(semantic)}"
        for conversation in track(stores, description=label, console=progress):
            with remembered(conversation, semantic, cache) as memory:
                for kind, texts in turns.items():
                    for text in texts:
                        recall = memory.begin_turn(memory.local_session, text)
                        tokens[kind].append(sum(rank.count_tokens(part) for _, part in recall.contexts))
        for kind, counts in tokens.items():
            yield {
                "set": data.name,
                "system": _name(semantic),
                "kind": kind,
                "turns": len(counts),
                "share": fmean(count > 0 for count in counts),
                "tokens": fmean(counts),
            }


def measure_gate(
    sets: Sequence[DataSet], cache: Cache, progress: Console, semantic: bool
) -> Iterator[dict[str, Any]]:
    """Return the recall of questions, and how much of it is left if a question is a turn.

    `gated` counts the first ten messages of the questions on which a turn gets anything; `injected` counts the
    messages that a turn gets, within its budget.
    """
    for data in sets:
        ranked, gated, injected, tokens = [], [], [], []
        label = f"{data.name}, gate, {_name(semantic)}"
        for conversation in track(data.conversations, description=label, console=progress):
            with remembered(conversation, semantic, cache) as memory:
                for question in conversation.questions:
                    report = memory.recall(question.text)
                    hits = [hit for hit in report.results if hit.source == "sessions"]
                    in_turn = [hit.ref for hit in hits if hit.injected]
                    ranked.append(share_of(question, [hit.ref for hit in hits[:DEPTH]]))
                    gated.append(ranked[-1] if in_turn else 0.0)
                    injected.append(share_of(question, in_turn))
                    tokens.append(report.tokens)
        low, high = interval([before - after for before, after in zip(ranked, gated, strict=True)])
        yield {
            "set": data.name,
            "system": _name(semantic),
            "questions": len(ranked),
            "recall": fmean(ranked),
            "gated": fmean(gated),
            "cost_low": low,
            "cost_high": high,
            "injected": fmean(injected),
            "tokens": fmean(tokens),
        }


def _name(semantic: bool) -> str:
    return "ours-semantic" if semantic else "ours"


def turn_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a line for each system and kind of turn, a column for each set."""
    default = Config().recall.sessions
    grid = Table(
        title=f"Turns that get anything, % (tokens); recall.sessions: auto, the default is {default}"
    )
    for column in ("system", "turns"):
        grid.add_column(column)
    sets = list(dict.fromkeys(row["set"] for row in rows))
    for name in sets:
        grid.add_column(name, justify="right")
    for system, kind in dict.fromkeys((row["system"], row["kind"]) for row in rows):
        cells = {row["set"]: row for row in rows if (row["system"], row["kind"]) == (system, kind)}
        grid.add_row(
            system,
            kind,
            *(f"{100 * cells[name]['share']:.0f} ({cells[name]['tokens']:.0f})" for name in sets),
        )
    return grid


def gate_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a line for each system and set."""
    grid = Table(
        title="Questions as turns: evidence among ten messages, the same behind the gate, and in the turn, %"
    )
    for column in ("system", "set"):
        grid.add_column(column)
    for column in ("recall", "gated", "cost", "injected", "tokens"):
        grid.add_column(column, justify="right")
    for row in rows:
        cost, low, high = 100 * (row["recall"] - row["gated"]), 100 * row["cost_low"], 100 * row["cost_high"]
        shares = [f"{100 * row[key]:.1f}" for key in ("recall", "gated")]
        grid.add_row(
            row["system"],
            row["set"],
            *shares,
            f"{cost:.1f} ({low:.1f}-{high:.1f})",
            f"{100 * row['injected']:.1f}",
            f"{row['tokens']:,.0f}",
        )
    return grid

"""Fit the weights of the ranking on all sets of the panel together, and on all but each.

    python bench/recall_fit.py --panel DIR [--locomo FILE ...] [--set NAME ...] [--sample N] [--cache DIR]
        [--save FILE | --load FILE] [--ridge X] [--json]

The score of a message is a sum of signals, each times a constant of `recall.rank` or `hermes_memory_semantic.vectors`. The
signals of all candidates of a question are read through our own functions: the score with a constant that is larger by
1, less the score, is the signal of this constant. So each constant has to be a factor of a term of the sum.

The weights maximise the likelihood of the evidence among all candidates of a question, in searches by words and, if the
package hermes-memory-semantic is installed, with vectors, for which most constants are the same. Every set has the same weight, and
questions that name the wrong person a third of the weight of others. The half of `hints.txt` that is not held out is a set as well. The second column of figures is recall with the
weights of the code, the third with those fitted on all sets, the fourth with those fitted on the other sets.

Recall is that among the candidates that a search with the constants of the code ranks; fit again after a change.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy
from recall_cache import Cache
from recall_facts import hint_set
from recall_panel import DEPTH, WRONG_SPEAKER, DataSet, read_panel
from recall_scores import Question
from recall_systems import stored
from rich.console import Console
from rich.progress import track
from rich.table import Table

from hermes_core.recall import rank
from hermes_core.sessions.search import candidates, lookup
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_semantic import dense, vectors

Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Constants by module, of which the score is a linear function. Those of vectors change a signal before it reaches the ranking, so that a search has to run for
# each of them.
OF_RANKING = (
    "rank.LEXICAL_WEIGHT",
    "rank.LEXICAL_BESIDE_MEANING",
    "rank.SPEAKER_WEIGHT",
    "rank.SELF_WEIGHT",
    "rank.DATE_WEIGHT",
    "rank.TIME_WORD_WEIGHT",
    "rank.NUMBER_WEIGHT",
    "rank.QUESTION_WEIGHT",
    "rank.REPLY_WEIGHT",
    "rank.ASSISTANT_WEIGHT",
    "rank.EXACT_WEIGHT",
)
OF_VECTORS = (
    "vectors.WHOLE_WEIGHT",
    "vectors.WORDS_WEIGHT",
    "vectors.OWN_WORDS_WEIGHT",
    "vectors.SESSION_WEIGHT",
    "vectors.WHOLE_WEIGHT_WITHOUT_WORDS",
    "vectors.OWN_WORDS_WEIGHT_WITHOUT_WORDS",
)

# The modules that read the constants of a module.
READERS = {"rank": (rank, lookup, candidates), "vectors": (vectors,)}

WRONG_SPEAKER_SHARE = 1 / 3
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Pool:
    """The candidates of one question.

    Attributes:
        group: The set and the kind of search.
        wrong_speaker: True if the question names the wrong person.
        evidence: Number of messages that answer; 0 if any one of them answers.
        relevant: For each candidate, True if it answers.
        signals: A row for each candidate, a column for each constant.
        fixed: The part of each candidate's score that no constant changes.
    """

    group: str
    wrong_speaker: bool
    evidence: int
    relevant: Array
    signals: Array
    fixed: Array

    def recall(self, weights: Array) -> float:
        """Return the recall of the first ten candidates by these weights."""
        first = numpy.argsort(-(self.fixed + self.signals @ weights), kind="stable")[:DEPTH]
        count = int(self.relevant[first].sum())
        return count / self.evidence if self.evidence else float(count > 0)


# ---------------------------------------------------------------- reading of signals


@contextmanager
def changed(name: str, change: float) -> Iterator[None]:
    """Rank with a constant that is larger by `change`, in each module that has it."""
    module, constant = name.split(".")
    readers = [reader for reader in READERS[module] if hasattr(reader, constant)]
    value = getattr(readers[0], constant)
    for reader in readers:
        setattr(reader, constant, value + change)
    try:
        yield
    finally:
        for reader in readers:
            setattr(reader, constant, value)


def scores(db: SessionStore, question: str, constants: Sequence[str] = ()) -> list[dict[int, float]]:
    """Return the scores of all candidates by message id: as they are, then with each constant larger by 1."""
    ranking, results = candidates.rank_candidates, []

    def hook(analysis: Any, pool: Sequence[Any], **options: Any) -> list[Any]:
        options["limit"] = len(pool)
        ranked = ranking(analysis, pool, **options)
        results.append({entry.candidate.id: entry.score for entry in ranked})
        for constant in constants:
            with changed(constant, 1.0):
                scored = ranking(analysis, pool, **options)
            results.append({entry.candidate.id: entry.score for entry in scored})
        return ranked

    setattr(candidates, "rank_candidates", hook)  # noqa: B010
    try:
        db.past.search(question, snippets=False)
    finally:
        setattr(candidates, "rank_candidates", ranking)  # noqa: B010
    return results


def pool_of(db: SessionStore, question: Question, group: str, names: Sequence[str]) -> Pool | None:
    """Return the candidates of a question with their signals; None if there are none."""
    results = scores(db, question.text, [name for name in names if name in OF_RANKING])
    if not results or not results[0]:
        return None
    base, columns = results[0], dict(zip((n for n in names if n in OF_RANKING), results[1:], strict=True))
    for name in (name for name in names if name in OF_VECTORS):
        with changed(name, 1.0):
            columns[name] = scores(db, question.text)[0]
    ids = list(base)
    before = numpy.array([base[i] for i in ids])
    signals = numpy.array([[columns[name].get(i, base[i]) for name in names] for i in ids]) - before[:, None]
    refs = dict(
        db.database.execute(
            "SELECT id, ref FROM messages WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(ids),)
        ).fetchall()
    )
    return Pool(
        group,
        question.category == WRONG_SPEAKER,
        0 if question.any_one else len(question.evidence),
        numpy.array([refs.get(i) in question.evidence for i in ids]),
        signals,
        before - signals @ current(names),
    )


def current(names: Sequence[str]) -> Array:
    """Return the constants of the code."""
    places = (name.split(".") for name in names)
    return numpy.array([getattr(READERS[module][0], constant) for module, constant in places])


def read_pools(sets: Sequence[DataSet], names: Sequence[str], cache: Cache, progress: Console) -> list[Pool]:
    """Return the pools of all questions, in searches by words and with vectors."""
    pools = []
    for data in sets:
        for semantic in (False, True) if dense.installed() else (False,):
            group = f"{data.name}, {'semantic' if semantic else 'words'}"
            for conversation in track(data.conversations, description=group, console=progress):
                with ExitStack() as stack:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    db = stack.enter_context(stored(conversation, folder, semantic=semantic, cache=cache))
                    new = (pool_of(db, question, group, names) for question in conversation.questions)
                    pools += [pool for pool in new if pool is not None]
    return pools


# ---------------------------------------------------------------- fitting


def fit(pools: Sequence[Pool], start: Array, ridge: float, steps: int = 50) -> Array:
    """Return the weights that make the evidence most likely among the candidates, by Newton's method.

    `ridge` draws the weights to `start`, so that a constant whose signal is absent stays as it is.
    """
    usable = [pool for pool in pools if pool.relevant.any()]
    counts: dict[str, int] = {}
    for pool in usable:
        counts[pool.group] = counts.get(pool.group, 0) + 1
    weights = start.copy()
    for _ in range(steps):
        gradient, curvature = -ridge * (weights - start), ridge * numpy.eye(len(start))
        for pool in usable:
            share = (WRONG_SPEAKER_SHARE if pool.wrong_speaker else 1.0) / counts[pool.group]
            scores = pool.fixed + pool.signals @ weights
            odds = numpy.exp(scores - scores.max())
            odds /= odds.sum()
            mean = odds @ pool.signals
            gradient += share * (pool.signals[pool.relevant].mean(0) - mean)
            spread = pool.signals - mean
            curvature += share * (spread * odds[:, None]).T @ spread
        step = numpy.linalg.solve(curvature, gradient)
        weights = weights + step / max(1.0, numpy.abs(step).max())
        if numpy.abs(step).max() < TOLERANCE:
            break
    return weights


def recalls(pools: Sequence[Pool], weights: Array) -> dict[str, float]:
    """Return the mean recall of each group; questions that name the wrong person are a group of their own."""
    groups: dict[str, list[float]] = {}
    for pool in pools:
        name = f"{pool.group}, wrong person" if pool.wrong_speaker else pool.group
        groups.setdefault(name, []).append(pool.recall(weights))
    return {name: fmean(values) for name, values in groups.items()}


def compare(pools: Sequence[Pool], names: Sequence[str], ridge: float) -> dict[str, Any]:
    """Weights and recalls: of the code, fitted on all sets, and for each set fitted on the others."""
    start = current(names)
    whole = fit(pools, start, ridge)
    others: dict[str, float] = {}
    weights_without: dict[str, list[float]] = {}
    for name in dict.fromkeys(_set_of(pool.group) for pool in pools):
        rest = [pool for pool in pools if _set_of(pool.group) != name]
        if rest:
            weights = fit(rest, start, ridge)
            weights_without[name] = weights.tolist()
            others |= recalls([pool for pool in pools if _set_of(pool.group) == name], weights)
    return {
        "constants": list(names),
        "weights": {"code": start.tolist(), "all": whole.tolist(), "without": weights_without},
        "recall": {"code": recalls(pools, start), "all": recalls(pools, whole), "others": others},
    }


def _set_of(group: str) -> str:
    return group.split(",", 1)[0]


# ---------------------------------------------------------------- output


def weight_table(result: Mapping[str, Any]) -> Table:
    """Return a line for each constant, a column for each fit."""
    weights = result["weights"]
    grid = Table(title="Weights")
    for column in ("constant", "code", "all", *(f"without {name}" for name in weights["without"])):
        grid.add_column(column, justify="left" if column == "constant" else "right")
    for at, name in enumerate(result["constants"]):
        values = [weights["code"][at], weights["all"][at], *(row[at] for row in weights["without"].values())]
        grid.add_row(name, *(f"{value:.2f}" for value in values))
    return grid


def recall_table(result: Mapping[str, Any]) -> Table:
    """Return a line for each set and kind of search."""
    grid = Table(title="Recall@10, %, with weights")
    for column in ("set", "of the code", "fitted on all", "fitted on others"):
        grid.add_column(column, justify="left" if column == "set" else "right")
    recall = result["recall"]
    for name in recall["code"]:
        values = (recall[column].get(name) for column in ("code", "all", "others"))
        grid.add_row(name, *("-" if value is None else f"{100 * value:.1f}" for value in values))
    return grid


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the signals, fit the weights, and print both."""
    options = _options(arguments)
    names = [*OF_RANKING, *(OF_VECTORS if dense.installed() else ())]
    if options.load:
        pools = pickle.loads(options.load.read_bytes())
    else:
        sets = read_panel(options.panel, options.locomo, wrong_speaker=True)
        sets.append(hint_set(sets, "fit"))
        sets = [data for data in sets if not options.set or data.name in options.set]
        if options.sample:
            sets = [data.sample(options.sample) for data in sets]
        with Cache(options.cache) as cache:
            pools = read_pools(sets, names, cache, Console(stderr=True))
    if options.save:
        options.save.write_bytes(pickle.dumps(pools))
    result = compare(pools, names, options.ridge)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else 190)
        console.print(weight_table(result))
        console.print(recall_table(result))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--panel", type=Path, metavar="DIR", help="a folder of data sets")
    data.add_argument("--load", type=Path, metavar="FILE", help="signals that --save wrote")
    add("--locomo", type=Path, action="append", default=[], metavar="FILE", help="LoCoMo, for the panel")
    add("--set", action="append", metavar="NAME", help="a data set of the panel; default: all")
    add("--sample", type=int, default=0, help="questions of each set; default: all")
    add("--cache", type=Path, metavar="DIR", help="keep stores and vectors here")
    add("--save", type=Path, metavar="FILE", help="write the signals of all candidates here")
    add("--ridge", type=float, default=0.02, help="how strongly weights are drawn to those of the code")
    add("--json", action="store_true", help="print figures as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())

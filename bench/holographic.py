"""Score what holographic memory answers, and what it costs, as it grows: made-up facts, no model, no network.

    python bench/holographic.py [--facts 200 1000 10000 50000] [--peer ENV] [--data FILE] [--json] [--plot FILE]

One store grows to each size. At each size it is asked, by the tools' own questions:

* probe: precision@10 for people with that many facts, by their names, then with one letter wrong (typo);
* related, reason: precision@10 of the former, precision@5 of the latter over a person and a project they share;
* unknown: share of names of nobody, half of them mixed from two that are known, for which anything comes back;
* contradict: share of planted contradictions found, and share of false pairs among those found. Statements that look
  alike and agree (another subject, another attribute, a value that may stand beside the first) are planted as well.
* outdated: share of planted pairs of which the older is recalled unasked by what the newer says;
* trust: how well it orders facts by worth, by counts of ratings and by steps of +0.05 and -0.10.

Precision is over as many rows as there are right ones, if that is less. "vectors" is the same by the vectors alone,
without the index of names; "ngrams" reads misspelt names by vectors of their letters, which the index does exactly.
`--data` ranks the messages of conversations by vectors of their words alone, and by our session search with and without
them (`holographic_words.py`).
`--peer` names a Python environment with hermes-agent, whose provider is asked the same up to `--peer-facts` facts.
All is deterministic but the times: medians, so compare within one run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any

import holographic_words
import recall
from holographic_facts import AGREEING, PLANTED, Event, events, pairs, people, typo
from holographic_systems import Letters, Ours, Peer, System, Vectors
from plots import draw
from rich.console import Console
from rich.table import Table

SIZES = (200, 1000, 10_000, 50_000)
ASKED = 40
"""Names or pairs asked of each kind."""

TIMED_ADDS = 200

# ---------------------------------------------------------------- scoring


@dataclass
class Timed:
    """Answers of one kind: precision of each, and milliseconds."""

    precisions: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def ask(self, call: Callable[[], list[str]], right: set[str], depth: int) -> list[str]:
        began = time.perf_counter()
        found = call()
        self.times.append(1000 * (time.perf_counter() - began))
        self.precisions.append(len(right.intersection(found[:depth])) / min(depth, len(right)))
        return found


def score(system: System, stored: Sequence[Event], size: int, adds: Sequence[float]) -> dict[str, Any]:
    """All figures of one system over the events it holds, JSON-serialisable."""
    by_person, by_both = _grouped(stored)
    chance = random.Random(size)
    often = sorted(name for name, right in by_person.items() if len(right) >= 10)
    known = chance.sample(often, k=min(ASKED, len(often)))
    shared = chance.sample(sorted(by_both), k=min(ASKED, len(by_both)))
    probe, misspelt, related, reason = Timed(), Timed(), Timed(), Timed()
    system.probe(known[0], 1)  # reads what was just written
    for name in known:
        probe.ask(lambda name=name: system.probe(name, 10), by_person[name], 10)
        wrong = typo(name, chance)
        misspelt.ask(lambda wrong=wrong: system.probe(wrong, 10), by_person[name], 10)
        related.ask(lambda name=name: system.related(name, 10), by_person[name], 10)
    for both in shared:
        reason.ask(lambda both=both: system.reason(both, 5), by_both[both], 5)
    strangers = [
        name for name in [*people(ASKED, 3), *_mixed(sorted(by_person), chance)] if name not in by_person
    ]
    unknown = [bool(system.probe(name, 10)) for name in strangers]
    held = system.bytes_in_memory()
    return {
        "system": system.name,
        "facts": size,
        "probe_p10": fmean(probe.precisions),
        "typo_p10": fmean(misspelt.precisions),
        "related_p10": fmean(related.precisions),
        "reason_p5": fmean(reason.precisions),
        "unknown_answered": fmean(unknown),
        **_contradictions(system),
        "add_ms": 1000 * median(adds),
        "probe_ms": median(probe.times),
        "typo_ms": median(misspelt.times),
        "related_ms": median(related.times),
        "reason_ms": median(reason.times),
        **({} if held is None else {"memory_bytes_a_fact": held / size}),
        "disk_bytes_a_fact": system.bytes_on_disk() / size,
    }


def _grouped(stored: Sequence[Event]) -> tuple[dict[str, set[str]], dict[tuple[str, str], set[str]]]:
    by_person: dict[str, set[str]] = {}
    by_both: dict[tuple[str, str], set[str]] = {}
    for event in stored:
        by_person.setdefault(event.person, set()).add(event.text)
        by_both.setdefault((event.person, event.project), set()).add(event.text)
    return by_person, by_both


def trust(ratings: int) -> dict[str, Any]:
    """How well trust orders facts by their true worth, after each was rated so often by chance of that worth.

    The share of pairs of different worth in the right order, a tie counting half: by the counts of ratings, and by
    steps of +0.05 and -0.10.
    """
    chance, count = random.Random(0), 100
    worth = {n: chance.choice([0.2, 0.5, 0.7, 0.9]) for n in range(1, count + 1)}
    with tempfile.TemporaryDirectory() as folder:
        store = Ours(Path(folder)).store
        with store.db.transaction():
            for n in worth:
                store.add(f"Comet {n} passed", "general")
                for _ in range(ratings):
                    store.feedback(n, chance.random() < worth[n])
        facts = store.facts(worth)
    unequal = [(a, b) for a, b in combinations(worth, 2) if worth[a] != worth[b]]

    def ordered(key: str) -> float:
        signs = (_sign(facts[a][key] - facts[b][key]) * _sign(worth[a] - worth[b]) for a, b in unequal)
        return fmean((1 + sign) / 2 for sign in signs)

    return {
        "system": "trust",
        "ratings": ratings,
        "by_counts": ordered("reliability"),
        "by_steps": ordered("trust_score"),
    }


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _mixed(known: Sequence[str], chance: random.Random) -> list[str]:
    """The first name of one and the last name of another: nobody, and much like somebody."""
    drawn = (chance.sample(known, k=2) for _ in range(ASKED))
    return [f"{one.split()[0]} {other.split()[1]}" for one, other in drawn]


def _contradictions(system: System) -> dict[str, float]:
    began = time.perf_counter()
    found = {frozenset(pair) for pair in system.contradict(1000)}
    took = 1000 * (time.perf_counter() - began)
    planted = {frozenset(pair) for pair in pairs(PLANTED, 4)}
    return {
        "contradict_recall": len(found & planted) / len(planted),
        "contradict_false": len(found - planted) / len(found) if found else 0.0,
        "contradict_ms": took,
        "outdated_recalled": fmean(older in system.recall(newer) for older, newer in pairs(PLANTED, 4)),
    }


def run(system: System, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Grow one store through the sizes and score it at each."""
    stored = events(max(sizes))
    for texts in (*pairs(PLANTED, 4), *pairs(AGREEING, 5)):
        system.add(texts)
    at = 0
    for size in sorted(sizes):
        with _bulk(system):
            system.add([event.text for event in stored[at : size - TIMED_ADDS // 2]])
        at = size - TIMED_ADDS // 2
        adds = system.add([event.text for event in stored[at:size]])
        at = size
        yield score(system, stored[:size], size, adds)
        if isinstance(system, Ours):
            for part in (Vectors(system), Letters(system)):
                alone = score(part, stored[:size], size, adds)
                yield {key: value for key, value in alone.items() if key not in NOT_OF_VECTORS}


@contextmanager
def _bulk(system: System) -> Iterator[None]:
    """One transaction for the facts whose time is not taken."""
    if isinstance(system, Ours):
        with system.store.db.transaction():
            yield
    else:
        yield


# ---------------------------------------------------------------- showing

SHARES = (
    "probe_p10", "typo_p10", "related_p10", "reason_p5", "unknown_answered", "contradict_recall", "contradict_false",
    "outdated_recalled",
)  # fmt: skip
COSTS = ("add_ms", "probe_ms", "typo_ms", "related_ms", "reason_ms", "contradict_ms")
SIZES_OF = ("memory_bytes_a_fact", "disk_bytes_a_fact")

NOT_OF_VECTORS = (
    "related_p10",
    "contradict_recall",
    "contradict_false",
    "outdated_recalled",
    "add_ms",
    "related_ms",
    "contradict_ms",
    *SIZES_OF,
)


def table(scores: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title="Holographic memory: answers and costs by number of facts")
    for column in ("system", "facts", *SHARES, *COSTS, *SIZES_OF):
        shown.add_column(column.replace("_", " "), justify="left" if column == "system" else "right")
    for one in scores:
        shown.add_row(
            one["system"],
            f"{one['facts']:,}",
            *(f"{one[key]:.2f}" if key in one else "" for key in (*SHARES, *COSTS)),
            *(f"{one[key]:.0f}" if key in one else "" for key in SIZES_OF),
        )
    return shown


def plot(scores: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib  # only who wants a plot needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (quality, cost) = pyplot.subplots(1, 2, figsize=(11, 4))
    for system in dict.fromkeys(one["system"] for one in scores):
        own = [one for one in scores if one["system"] == system]
        sizes = [one["facts"] for one in own]
        for key, style in (("probe_p10", "o-"), ("typo_p10", "s--"), ("reason_p5", "^:")):
            quality.plot(sizes, [one[key] for one in own], style, label=f"{system}: {key}")
        for key, style in (("add_ms", "o-"), ("probe_ms", "s--"), ("reason_ms", "^:")):
            if key in own[0]:
                cost.plot(sizes, [one[key] for one in own], style, label=f"{system}: {key}")
    quality.set(xscale="log", xlabel="facts", ylabel="precision", ylim=(-0.05, 1.05))
    cost.set(xscale="log", yscale="log", xlabel="facts", ylabel="milliseconds")
    for axes in (quality, cost):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--facts", type=int, nargs="+", default=SIZES, help="sizes, 200 at least")
    parser.add_argument("--peer", type=Path, metavar="ENV", help="an environment with hermes-agent")
    parser.add_argument("--peer-facts", type=int, default=1000, help="it is asked up to this size")
    parser.add_argument("--data", type=Path, help="conversations of the LoCoMo format, for the vectors alone")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--plot", type=Path, help="draw them into this file (needs matplotlib)")
    options = parser.parse_args(arguments)
    if min(options.facts) < TIMED_ADDS:
        parser.error(f"--facts: {TIMED_ADDS} at least")
    scores: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        scores += run(Ours(Path(folder)), options.facts)
    if options.peer is not None:
        with tempfile.TemporaryDirectory() as folder:
            scores += run(
                Peer(options.peer, Path(folder)), [n for n in options.facts if n <= options.peer_facts]
            )
    trusts = [trust(ratings) for ratings in (3, 10, 30)]
    told = holographic_words.scores(options.data, Console(stderr=True)) if options.data is not None else []
    if options.json:
        print(json.dumps([*scores, *trusts, *told], indent=2))
    else:
        _show(scores, trusts, told)
    if options.plot is not None:
        draw(plot, scores, options.plot)
    return 0


def _show(
    scores: Sequence[dict[str, Any]], trusts: Sequence[dict[str, Any]], told: Sequence[dict[str, Any]]
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 220)
    console.print(table(scores))
    for one in trusts:
        console.print(
            "trust after {ratings} ratings: {by_counts:.3f} of pairs in order by counts, {by_steps:.3f} by steps".format(
                **one
            )
        )
    if told:
        console.print(recall.table(told, 10))
        console.print(recall.category_table(told, 10))


if __name__ == "__main__":
    raise SystemExit(main())

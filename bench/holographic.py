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
`--data` ranks the messages of conversations by vectors of their words alone.
`--peer` names a Python environment with hermes-agent, whose provider is asked the same up to `--peer-facts` facts.
All is deterministic but the times: medians, so compare within one run.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

import numpy as np
import recall_scores
from hermes_holographic import hrr
from hermes_holographic.language import index_words, name_key
from hermes_holographic.retrieval import FactMemory
from hermes_holographic.store import FactStore, idf
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

SIZES = (200, 1000, 10_000, 50_000)
ASKED = 40
"""Names or pairs asked of each kind."""

TIMED_ADDS = 200
DIM = 1024

# ------------------------------------------------------------------ facts

EVENTS = (
    "{person} reviewed milestone {n} of {project}",
    "{person} wrote design note {n} for {project}",
    "{person} fixed bug {n} in {project}",
    "{person} presented result {n} of {project}",
)

PLANTED = (
    ("{a} lives in Lisbon", "{a} moved to Oslo"),
    ("{a} works at Initech", "{a} now works for Globex"),
    ("{a} works as a nurse", "{a} works as a teacher"),
    ("{a} prefers tea", "{a} prefers coffee"),
    ("{a} prefers tabs over spaces", "{a} prefers spaces over tabs"),
    ("{a}'s birthday is May 5", "{a}'s birthday is June 6"),
    ("{a}'s favorite color is blue", "{a}'s favourite color is green"),
    ("{a} is vegetarian", "{a} is not vegetarian"),
    ("{a} likes jazz", "{a} doesn't like jazz anymore"),
    ("{a} likes olives", "{a} hates olives"),
    ("{a} is married to Ann", "{a} is married to Sue"),
    ("{a} has 2 children", "{a} has three children"),
    ("{a} is 34 years old", "{a} is 36 years old"),
    ("{a} uses vim for Python", "{a} uses emacs for Python"),
    ("{a} reports to Dana", "{a} reports to Erin"),
    ("{a} was born in 1984", "{a} was born in 1991"),
    ("{a} drives a Volvo", "{a} doesn't drive a Volvo"),
    ("{a} speaks Danish", "{a} does not speak Danish"),
    ("The deadline of {a} is March 3", "The deadline of {a} is April 9"),
    ("{a} is written in Rust", "{a} is written in Go"),
    ("{a} runs on Postgres 14", "{a} runs on Postgres 16"),
    ("{a} costs 20 dollars a month", "{a} costs 30 dollars a month"),
    ("{a} has 5 engineers", "{a} has 7 engineers"),
    ("The owner of {a} is Dana", "The owner of {a} is Erin"),
    ("{a} is due on Friday", "{a} is due on Monday"),
    ("{a} uses port 8080", "{a} uses port 9090"),
    ("{a} is deployed to Frankfurt", "{a} is deployed to Dublin"),
    ("{a} requires Python 3.10", "{a} requires Python 3.12"),
    ("{a} supports Windows", "{a} no longer supports Windows"),
    ("The default branch of {a} is master", "The default branch of {a} is main"),
)
"""A statement and one that contradicts it, said later of the same subject."""

AGREEING = (
    ("{a} lives in Berlin", "{a} lives in Berlin, Germany"),
    ("{a} likes tea", "{a} likes coffee"),
    ("{a} uses Redis", "{a} uses Postgres"),
    ("{a} uses vim for Python", "{a} uses emacs for Lisp"),
    ("{a} speaks Danish", "{a} speaks Polish"),
    ("{a} prefers dark mode", "{a} prefers window seats"),
    ("{a} owns a boat", "{a} owns a dog"),
    ("{a} is tall", "{a} is vegetarian"),
    ("{a} is a nurse", "{a} is a mother of two"),
    ("{a} has 2 children", "{a} has 3 bicycles"),
    ("{a}'s mother is Ann", "{a}'s boss is Sue"),
    ("{a} works at Initech", "{a} works as a nurse"),
    ("{a} was born in 1984", "{a} was born in Lisbon"),
    ("{a} met Ann on Monday", "{a} met Sue on Friday"),
    ("{a} went to Oslo in May", "{a} went to Rome in June"),
    ("{a} does not smoke", "{a} does not drink"),
    ("{a} doesn't like olives", "{a} doesn't like jazz"),
    ("The deadline of {a} is March 3", "The owner of {a} is Dana"),
    ("{a} supports Windows", "{a} supports Linux"),
    ("{a} is written in Rust", "{a} is owned by Dana"),
    ("{a} starts on May 1", "{a} ends on May 9"),
    ("{a}'s car is red", "{a}'s car is a Volvo"),
)
"""Two statements of one subject that are true at once."""


@dataclass(frozen=True)
class Event:
    text: str
    person: str
    project: str


def made_up(chance: random.Random) -> str:
    """A word that can be said, of two to three syllables."""
    syllables = (chance.choice("bcdfghjklmnprstvwz") + chance.choice("aeiou") for _ in range(3))
    return ("".join(syllables) + chance.choice(["", "n", "r", "s", "l"])).capitalize()


def distinct(count: int, seed: int, form: Callable[[random.Random], str]) -> list[str]:
    chance, found = random.Random(seed), dict[str, None]()
    while len(found) < count:
        found[form(chance)] = None
    return list(found)


def people(count: int, seed: int = 1) -> list[str]:
    return distinct(count, seed, lambda chance: f"{made_up(chance)} {made_up(chance)}")


def projects(count: int) -> list[str]:
    return distinct(count, 2, lambda chance: f"Project {made_up(chance)}")


def events(count: int) -> list[Event]:
    """Facts about a person and a project each: about 25 for a person, 50 for a project, at any size."""
    chance = random.Random(0)
    who, what = people(8 + count // 25), projects(4 + count // 50)
    found = []
    for n in range(count):
        person = who[chance.randrange(8 + n // 25)]
        project = what[chance.randrange(4 + n // 50)]
        found.append(
            Event(chance.choice(EVENTS).format(person=person, project=project, n=n), person, project)
        )
    return found


def pairs(templates: Sequence[tuple[str, str]], seed: int, each: int = 2) -> list[tuple[str, str]]:
    names = iter(people(each * len(templates), seed))
    return [(a.format(a=name), b.format(a=name)) for a, b in templates * each for name in [next(names)]]


def typo(name: str, chance: random.Random) -> str:
    """The name with one letter left out, doubled up, replaced, or swapped with the next."""
    at = chance.choice([i for i in range(1, len(name) - 1) if name[i : i + 2].isalpha()])
    match chance.randrange(4):
        case 0:
            wrong = name[:at] + name[at + 1 :]
        case 1:
            wrong = name[:at] + chance.choice(string.ascii_lowercase) + name[at:]
        case 2:
            wrong = name[:at] + chance.choice(string.ascii_lowercase) + name[at + 1 :]
        case _:
            wrong = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return wrong if wrong != name else typo(name, chance)


# ---------------------------------------------------------------- systems


class System(Protocol):
    """A memory under test. Answers are texts of facts, best first."""

    name: str

    def add(self, texts: Sequence[str]) -> list[float]:
        """Store facts, one write each; seconds that each took."""

    def probe(self, name: str, limit: int) -> list[str]: ...

    def related(self, name: str, limit: int) -> list[str]: ...

    def reason(self, names: Sequence[str], limit: int) -> list[str]: ...

    def contradict(self, limit: int) -> list[tuple[str, str]]: ...

    def recall(self, message: str) -> list[str]:
        """What a turn is reminded of."""

    def bytes_in_memory(self) -> int | None:
        """Of vectors; None where they are read from the disk each time."""

    def bytes_on_disk(self) -> int: ...


class Ours:
    """The provider's store and its questions, as its tool calls them."""

    name = "ours"

    def __init__(self, folder: Path) -> None:
        self.store = FactStore(folder / "facts.db", DIM, 0.5, lambda: 1.0)
        self.memory = FactMemory(self.store, hrr_weight=0.1, half_life_days=0)

    def add(self, texts: Sequence[str]) -> list[float]:
        return [_seconds(lambda text=text: self.store.add(text, "general")) for text in texts]

    def probe(self, name: str, limit: int) -> list[str]:
        return _texts(self.memory.probe(name, limit=limit))

    def related(self, name: str, limit: int) -> list[str]:
        return _texts(self.memory.related(name, limit=limit))

    def reason(self, names: Sequence[str], limit: int) -> list[str]:
        return _texts(self.memory.reason(names, limit=limit))

    def contradict(self, limit: int) -> list[tuple[str, str]]:
        found = self.memory.contradictions(limit=limit)
        return [(pair["fact_a"]["content"], pair["fact_b"]["content"]) for pair in found]

    def recall(self, message: str) -> list[str]:
        return _texts(self.memory.search(message, limit=10, unasked=True))

    def bytes_in_memory(self) -> int | None:
        return self.memory.matrix.nbytes

    def bytes_on_disk(self) -> int:
        self.store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.store.db.path.stat().st_size


class Vectors(Ours):
    """The same store asked by its vectors alone, without the index of names."""

    name = "vectors"

    def __init__(self, base: Ours) -> None:
        self.store, self.memory = base.store, base.memory

    def probe(self, name: str, limit: int) -> list[str]:
        return self.reason([name], limit)

    def reason(self, names: Sequence[str], limit: int) -> list[str]:
        self.memory.refresh()
        found = self.memory.matrix.matches([hrr.entity_key(name_key(name), DIM) for name in names])
        best = sorted(found, key=lambda i: -found[i])[:limit]
        return _texts(list(self.store.facts(best).values()))


class Letters(Vectors):
    """Names by vectors as well: bundles of their trigrams, asked with the rarer ones weighing more.

    The best name counts from half of what a name has in common with itself, the least at which one typo is found.
    """

    name = "vectors, ngrams"

    def __init__(self, base: Ours) -> None:
        super().__init__(base)
        self.keys = [row[0] for row in base.store.db.execute("SELECT key FROM entities ORDER BY key")]
        self.counts = Counter(gram for key in self.keys for gram in _grams(key))
        self.rows = np.stack([row for key in self.keys if (row := self._vector(key)) is not None])

    def reason(self, names: Sequence[str], limit: int) -> list[str]:
        read = [self._nearest(name_key(name)) for name in names]
        return super().reason([key for key in read if key], limit) if all(read) else []

    def _nearest(self, asked: str) -> str:
        weights = idf({gram: self.counts[gram] for gram in _grams(asked)}, len(self.keys))
        own = self._vector(asked)
        assert own is not None
        found = hrr.question_similarity(weights, self.rows, DIM)
        itself = float(hrr.question_similarity(weights, own[np.newaxis], DIM)[0])
        best = int(found.argmax())
        return self.keys[best] if found[best] >= itself / 2 else ""

    def _vector(self, key: str) -> hrr.Phases | None:
        return hrr.content_vector(_grams(key), DIM)


def _grams(key: str) -> set[str]:
    padded = f" {key} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


PEER = """
import json, os, sys, time
from pathlib import Path
from plugins.memory.holographic.retrieval import FactRetriever
from plugins.memory.holographic.store import MemoryStore
path = Path(sys.argv[1]) / "peer.db"
store = MemoryStore(db_path=str(path))
ask = FactRetriever(store=store)
def timed(text):
    began = time.perf_counter(); store.add_fact(text); return time.perf_counter() - began
def texts(rows): return [row["content"] for row in rows]
answers = {
    "add": lambda many: [timed(text) for text in many],
    "probe": lambda name, limit: texts(ask.probe(name, limit=limit)),
    "related": lambda name, limit: texts(ask.related(name, limit=limit)),
    "reason": lambda names, limit: texts(ask.reason(names, limit=limit)),
    "contradict": lambda limit: [(p["fact_a"]["content"], p["fact_b"]["content"]) for p in ask.contradict(limit=limit)],
    "recall": lambda text: texts(ask.search(text, limit=5)),
    "bytes_on_disk": lambda: sum(f.stat().st_size for f in path.parent.glob("peer.db*")),
}
for line in sys.stdin:
    name, arguments = json.loads(line)
    print(json.dumps(answers[name](*arguments)), flush=True)
"""


class Peer:
    """hermes-agent's Holographic provider in an environment of its own."""

    name = "hermes-agent"

    def __init__(self, environment: Path, folder: Path) -> None:
        self.process = subprocess.Popen(
            [environment / "bin/python", "-c", PEER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"HERMES_HOME": str(folder), "PATH": "/usr/bin:/bin"},
        )

    def _ask(self, name: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([name, arguments]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"hermes-agent's provider does not run in {self.process.args[0]!r}")  # type: ignore[index]
        return json.loads(answer)

    def add(self, texts: Sequence[str]) -> list[float]:
        return [float(seconds) for seconds in self._ask("add", list(texts))]

    def probe(self, name: str, limit: int) -> list[str]:
        return list(self._ask("probe", name, limit))

    def related(self, name: str, limit: int) -> list[str]:
        return list(self._ask("related", name, limit))

    def reason(self, names: Sequence[str], limit: int) -> list[str]:
        return list(self._ask("reason", list(names), limit))

    def contradict(self, limit: int) -> list[tuple[str, str]]:
        return [(left, right) for left, right in self._ask("contradict", limit)]

    def recall(self, message: str) -> list[str]:
        return list(self._ask("recall", message))

    def bytes_in_memory(self) -> None:
        return None

    def bytes_on_disk(self) -> int:
        return int(self._ask("bytes_on_disk"))


def _texts(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["content"] for row in rows]


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


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


# ---------------------------------------------------------- conversations

NEIGHBOURS = {-3: 0.3, -2: 0.4, -1: 0.6, 1: 0.4, 2: 0.2}
"""Messages of one session around another, and what each counts in its vector beside its own words."""


def conversations(path: Path) -> list[dict[str, Any]]:
    """Evidence recall@10 on conversations of the LoCoMo format by vectors of words and nothing else.

    "stored" are phases of 8 bits as the provider keeps them; "sum" keeps the amplitudes and weighs rare words more;
    "neighbours" adds the messages around each.
    """
    found: dict[str, list[float]] = {"stored": [], "sum": [], "neighbours": []}
    for conversation in recall_scores.read(path):
        messages = [(s.id, m) for s in conversation.sessions for t in s.turns for m in t.messages]
        said = [_stems(f"{message.speaker}: {message.content}") for _, message in messages]
        weights = idf(Counter(word for words in said for word in words), len(said))
        stored = np.stack([_phases(words) for words in said])
        whole = np.stack([_sum(words, weights) for words in said])
        around = whole.copy()
        for (distance, share), at in product(NEIGHBOURS.items(), range(len(said))):
            if 0 <= at + distance < len(said) and messages[at][0] == messages[at + distance][0]:
                around[at] += share * whole[at + distance]
        for question in conversation.questions:
            if question.category not in recall_scores.ANSWERABLE:
                continue
            asked = {word: weights[word] for word in _stems(question.text) if word in weights} or {"": 0.0}
            by_sum = _sum(list(asked), asked).conj()
            ranks = {
                "stored": hrr.question_similarity(asked, stored, DIM),
                "sum": (whole @ by_sum).real,
                "neighbours": (around @ by_sum).real,
            }
            for name, scores in ranks.items():
                first = {messages[at][1].ref for at in np.argsort(-scores)[:10]}
                found[name].append(len(question.evidence & first) / len(question.evidence))
    return [
        {"system": f"conversations, {name}", "questions": len(all_), "recall@10": fmean(all_)}
        for name, all_ in found.items()
    ]


def _stems(text: str) -> list[str]:
    """Words by their first five letters."""
    return list(dict.fromkeys(word[:5] for word in index_words(text)))


def _phases(words: Sequence[str]) -> hrr.Phases:
    made = hrr.content_vector(words, DIM)
    return np.zeros(DIM, np.uint8) if made is None else made


def _sum(words: Sequence[str], weights: Mapping[str, float]) -> NDArray[np.complex64]:
    angles = np.zeros((1, DIM)) if not words else np.stack([hrr.atom(f"word:{w}", DIM) for w in words])
    scale = np.asarray([[weights[word]] for word in words] or [[0.0]])
    return np.asarray((scale * np.exp(2j * np.pi / 256 * angles)).sum(axis=0), np.complex64)


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
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 220)
    scores: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        scores += run(Ours(Path(folder)), options.facts)
    if options.peer is not None:
        with tempfile.TemporaryDirectory() as folder:
            scores += run(
                Peer(options.peer, Path(folder)), [n for n in options.facts if n <= options.peer_facts]
            )
    trusts = [trust(ratings) for ratings in (3, 10, 30)]
    told = conversations(options.data) if options.data is not None else []
    if options.plot is not None:
        plot(scores, options.plot)
    if options.json:
        print(json.dumps([*scores, *trusts, *told], indent=2))
        return 0
    console.print(table(scores))
    for one in trusts:
        console.print(
            "trust after {ratings} ratings: {by_counts:.3f} of pairs in order by counts, {by_steps:.3f} by steps".format(
                **one
            )
        )
    for one in told:
        console.print("{system}: recall@10 {recall@10:.3f} over {questions} questions".format(**one))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

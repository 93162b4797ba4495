"""Holographic memories under test: the provider's, its vectors alone, and hermes-agent's in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from hermes_holographic import hrr
from hermes_holographic.language import name_key
from hermes_holographic.retrieval import FactMemory
from hermes_holographic.store import FactStore, idf

DIM = 1024


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
        return _texts(self.memory.search(message, limit=10, proactive=True))

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

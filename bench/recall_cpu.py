"""The CPU time of a question in a large store, by this code and by another checkout of it, in one run.

    python bench/recall_cpu.py --data FILE --against DIR [--turns N] [--questions N] [--semantic] [--cache DIR] [--json]

Each checkout runs in a process of its own, with one thread of arithmetic, and holds the same store of `--turns`
messages (`recall_large.py`). The processes are asked the same questions in turn, so that other programs of the machine
disturb both alike. What counts is the time of the process, not of the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, quantiles
from types import TracebackType
from typing import Any

from recall_cache import Cache
from recall_large import mixed
from recall_scores import read
from recall_systems import stored
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
RESAMPLES = 1000

# Questions that are asked first and not counted: they load modules, and the pages of the store.
WARM_UP = 5


class Worker:
    """A process that imports `hermes_core` from a checkout, and measures its own CPU time."""

    def __init__(self, checkout: Path, options: argparse.Namespace) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
        )
        settings = {
            "data": str(options.data),
            "turns": options.turns,
            "semantic": options.semantic,
            "cache": str(options.cache or ""),
        }
        self.code = Path(str(self.ask(settings)))
        if self.code != (checkout / "hermes_core").resolve():
            raise SystemExit(f"{str(checkout)!r} was not used, but {str(self.code)!r}: unset PYTHONPATH")

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def ask(self, value: Any) -> Any:
        """Send a value as a line, and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a process ended; its error stands above")
        return json.loads(answer)


def serve() -> None:
    """Answer each question on standard input with the milliseconds of CPU that it took."""
    import hermes_core

    settings = json.loads(sys.stdin.readline())
    conversation = mixed(read(Path(settings["data"])), settings["turns"])
    cache = Cache(Path(settings["cache"]) if settings["cache"] else None)
    with (
        cache,
        tempfile.TemporaryDirectory() as folder,
        stored(conversation, Path(folder), semantic=settings["semantic"], cache=cache) as db,
    ):
        print(json.dumps(str(Path(hermes_core.__file__).parent.resolve())), flush=True)
        for line in sys.stdin:
            question, start = json.loads(line), time.process_time()
            db.past.search(question)
            print(json.dumps(1000 * (time.process_time() - start)), flush=True)


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Return the CPU times of both checkouts, and the quotient of their means with its interval."""
    questions = [question.text for question in mixed(read(options.data), 0).questions]
    questions = random.Random(0).sample(questions, min(options.questions, len(questions)))
    with ExitStack() as stack:
        # One worker is ready before the next begins, so that it builds its store from the encodings of the first.
        workers = [stack.enter_context(Worker(path, options)) for path in (ROOT, options.against.resolve())]
        for question in questions[:WARM_UP]:
            for worker in workers:
                worker.ask(question)
        pairs = []
        for number, question in enumerate(questions):
            order = (0, 1) if number % 2 else (1, 0)
            times = {at: float(workers[at].ask(question)) for at in order}
            pairs.append((times[0], times[1]))
    chance = random.Random(0)
    quotients = sorted(_quotient(chance.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return {
        "messages": options.turns,
        "semantic": options.semantic,
        "questions": len(pairs),
        "ours": _times([own for own, _ in pairs]),
        "against": _times([other for _, other in pairs]),
        "quotient": _quotient(pairs),
        "low": quotients[RESAMPLES // 40],
        "high": quotients[-RESAMPLES // 40],
    }


def _quotient(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(own for own, _ in pairs) / sum(other for _, other in pairs)


def _times(values: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(values, n=20)
    return {"mean_ms": fmean(values), "p50_ms": cuts[9], "p95_ms": cuts[18]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two checkouts and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, help="a file of the LoCoMo format")
    add("--against", type=Path, metavar="DIR", help="a checkout of the code to compare with")
    add("--turns", type=int, default=10_000, help="messages of the store")
    add("--questions", type=int, default=200, help="questions to ask at the most")
    add("--semantic", action="store_true", help="search by meaning as well")
    add("--cache", type=Path, metavar="DIR", help="keep stores and vectors here")
    add("--json", action="store_true", help="print figures as JSON")
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return 0
    if not (options.data and options.against):
        parser.error("give --data and --against")
    if not (options.against / "hermes_core" / "__init__.py").is_file():
        raise SystemExit(f"{str(options.against)!r} holds no hermes_core: give the folder of a checkout")
    figures = compare(options)
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    grid = Table(
        title=f"CPU for each of {figures['questions']} questions in {figures['messages']} messages, ms"
    )
    for column in ("code", "mean", "p50", "p95"):
        grid.add_column(column, justify="left" if column == "code" else "right")
    for name in ("ours", "against"):
        grid.add_row(name, *(f"{value:.1f}" for value in figures[name].values()))
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(grid)
    console.print(f"ours / against: {figures['quotient']:.2f} ({figures['low']:.2f}-{figures['high']:.2f})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

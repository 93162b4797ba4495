"""What a turn costs while a provider's backend is away, and what arrives when it is back.

    python bench/outage.py [NAME ...] [--turns 50] [--ways refuses 503 hangs] [--disk DIR] [--json] [--plot FILE.svg]

Each provider runs under the real manager, with its defaults and through its real SDK, against its strict stand-in on
loopback (ByteRover against a program that keeps to brv's protocol). A turn is `on_turn_start` and `prefetch_all`, a
moment for the model, then `sync_all` and `queue_prefetch_all`; its time is what the four cost together. The same number
of turns is spoken three times:

    well      the backend answers
    an outage it refuses connections, answers 503, or takes requests and never answers; ten minutes of it for fifty
              turns: the manager's clock skips twelve seconds from turn to turn, while waiting itself is real
    at start  the same, in a process that starts in the outage: `start` is what the start of a session waits

Then the backend is back, and what it holds is compared with what was said. `commit` is one durable commit of a row as
large as the turn's, taken beside every turn. `cpu` is what the turn's own thread computed, commit included: it hardly
changes with what else the machine does, but knows nothing of waiting.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from plots import draw
from rich.console import Console
from rich.table import Table

from hermes_core import HermesHome, MemoryManager, Query, Session, Turn, load_provider
from hermes_memory_testing import StandIn
from hermes_memory_testing.contract.suite import Skipping

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PACE = 12.0
"""Seconds from one turn to the next, on the manager's clock."""

THOUGHT = 0.005
"""Seconds of the model; longer ones change nothing but how long this takes."""

A_WHILE = 3600.0
"""Seconds after which every backoff and breaker has run out."""

NOTICEABLE = 0.05
"""Seconds beyond which a turn counts as one that waited."""

ASKED = "Where did we leave off with the parser of the report, in part {}?"
ANSWER = "We had the tokenizer done and were about to write the tests for nested lists. " * 3

WAYS = ("refuses", "503", "hangs")


@dataclass
class Backend:
    """One provider's: what goes into its file and its .env, what it received of turns, and how it goes away."""

    settings: dict[str, Any]
    received: Callable[[], Sequence[str]]
    away: Callable[[str], AbstractContextManager[object]]
    secrets: dict[str, str] = field(default_factory=dict)


def over_http(
    server: StandIn, settings: dict[str, Any], received: Callable[[], Sequence[str]], **secrets: str
) -> Backend:
    """A backend that is an HTTP server."""
    ways = {"refuses": server.refusing, "503": server.outage, "hangs": server.hanging}
    return Backend(settings, received, lambda way: ways[way](), secrets)


@contextmanager
def honcho() -> Iterator[Backend]:
    from plugins.honcho.tests.stand_in import KEY, HonchoServer

    with HonchoServer() as server:

        def received() -> list[str]:
            stored = [m for w in server.workspaces.values() for m in w.messages]
            return [m["content"] for m in stored if m["peer_id"] == "user"]

        yield over_http(server, {"baseUrl": server.url}, received, HONCHO_API_KEY=KEY)


@contextmanager
def mem0() -> Iterator[Backend]:
    from plugins.mem0.tests.stand_in import KEY, Cloud

    with Cloud() as server:
        yield over_http(server, {"api_url": server.url}, server.memories.texts, MEM0_API_KEY=KEY)


@contextmanager
def byterover() -> Iterator[Backend]:
    from plugins.byterover.tests.stand_in import DOWN, StandInBrv

    with tempfile.TemporaryDirectory() as folder:
        brv = StandInBrv(Path(folder))
        faults = {
            "refuses": {"kind": "error", "error": DOWN},
            "503": {"kind": "crash"},
            "hangs": {"kind": "hang"},
        }
        secrets = {"BRV_API_KEY": "good-key", "BRV_MODEL_API_KEY": "sk-model-key"}
        yield Backend({"command": str(brv.path)}, brv.said, lambda way: brv.trouble(**faults[way]), secrets)


@contextmanager
def openviking() -> Iterator[Backend]:
    from plugins.openviking.tests.stand_in import Viking

    with Viking(mode="api_key") as server:

        def received() -> list[str]:
            return [m["parts"][0]["text"] for m in server.messages if m["role"] == "user"]

        yield over_http(server, {"endpoint": server.url}, received, OPENVIKING_API_KEY="key-of-alice")


@contextmanager
def hindsight() -> Iterator[Backend]:
    from plugins.hindsight.tests.stand_in import KEY, HindsightServer

    with HindsightServer(KEY) as server:
        settings = {"mode": "local_external", "api_url": server.url}
        yield over_http(server, settings, server.said, HINDSIGHT_API_KEY=KEY)


@contextmanager
def retaindb() -> Iterator[Backend]:
    from plugins.retaindb.tests.stand_in import KEY, RetainDB

    with RetainDB() as server:
        settings = {"base_url": server.url}
        yield over_http(server, settings, lambda: server.said, RETAINDB_API_KEY=KEY)


@contextmanager
def supermemory() -> Iterator[Backend]:
    from plugins.supermemory.tests.stand_in import KEY, Supermemory

    with Supermemory() as server:
        settings = {"base_url": server.url}
        yield over_http(server, settings, lambda: server.said, SUPERMEMORY_API_KEY=KEY)


@contextmanager
def holographic() -> Iterator[Backend]:
    """For comparison: files of its own, so that there is nothing that could be away."""
    yield Backend({}, list, lambda _: ExitStack())


BACKENDS: dict[str, Callable[[], AbstractContextManager[Backend]]] = {
    one.__name__: one
    for one in (honcho, mem0, byterover, openviking, hindsight, retaindb, supermemory, holographic)
}


class Commit:
    """One durable commit of a row as large as a turn's, without anything around it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE bare (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT)")

    def seconds(self) -> float:
        began = time.perf_counter()
        self._connection.execute("INSERT INTO bare (body) VALUES (?)", ("x" * 1100,))
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class Spoken:
    """What a turn took, what a commit beside it, and what the turn's thread computed. In seconds."""

    took: float
    commit: float
    cpu: float


class Process:
    """A manager with one provider in a home of its own: a process, as far as the provider can tell."""

    def __init__(self, stack: ExitStack, name: str, backend: Backend, folder: Path) -> None:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True)))
        self.home = HermesHome(path / "home")
        self.home.path.mkdir()
        self.home.provider_json(name).write_text(json.dumps(backend.settings), encoding="utf-8")
        self.home.env_file.touch(mode=0o600)
        self.home.env_file.write_text("".join(f"{k}={v}\n" for k, v in backend.secrets.items()), "utf-8")
        os.environ["HERMES_HOME"] = str(self.home.path)
        self.name, self.clock, self.commit = name, Skipping(), Commit(path / "bare.db")
        self.manager = MemoryManager(self.home, clock=self.clock)
        stack.callback(self.manager.shutdown_all, 1.0)
        stack.callback(self.commit.close)
        if not self.manager.add_provider(load_provider(name, self.home).factory, name=name):
            raise SystemExit(f"{name}: {self.manager.health()[0].reason}")
        self.session = Session("bench", home=str(self.home.path))
        self.spoken: list[str] = []

    def start(self) -> float:
        """Begin the session; how long that takes."""
        began = time.perf_counter()
        self.manager.initialize_all(self.session)
        return time.perf_counter() - began

    def turn(self) -> Spoken:
        """One turn, and a commit beside it."""
        number = len(self.spoken)
        text = ASKED.format(number)
        query = Query(text)
        began, cpu = time.perf_counter(), time.thread_time()
        self.manager.on_turn_start(number, text, self.session)
        self.manager.prefetch_all(query, self.session)
        recalled = time.perf_counter() - began
        time.sleep(THOUGHT)
        began = time.perf_counter()
        self.manager.sync_all(Turn(f"turn-{number}", number, text, ANSWER, at=1.8e9 + number), self.session)
        self.manager.queue_prefetch_all(query, self.session)
        took, cpu = recalled + time.perf_counter() - began, time.thread_time() - cpu
        self.spoken.append(text)
        time.sleep(THOUGHT)
        return Spoken(took, self.commit.seconds(), cpu)

    def speak(self, turns: int, quiet: float) -> list[Spoken]:
        """Turns, as a person paces them: what is under way in the background has `quiet` seconds to end."""
        taken = []
        for _ in range(turns):
            taken.append(self.turn())
            self.manager.flush(quiet)
            self.clock.skip(PACE)
        return taken

    def delivered(self) -> None:
        """Let time go by until all is delivered; what hangs comes back first, in real time."""
        until = time.monotonic() + 180
        while time.monotonic() < until:
            self.clock.skip(A_WHILE)
            for _ in range(20):
                if self.manager.flush(5.0):
                    return
                time.sleep(0.1)


@dataclass
class Row:
    """What one provider did in one state of its backend. Seconds; `start` where the process starts in it."""

    provider: str
    state: str
    turns: list[Spoken]
    start: float | None = None
    arrived: int = 0
    in_order: bool = True
    twice: int = 0

    def count(self, process: Process, received: Sequence[str]) -> None:
        """Compare what was said with what the backend holds."""
        order = list(dict.fromkeys(received))
        self.arrived = len([text for text in process.spoken if text in order])
        self.in_order = order == [text for text in process.spoken if text in order]
        self.twice = len(received) - len(order)

    def figures(self) -> dict[str, Any]:
        """Milliseconds. `waited` are the turns beyond what anybody notices; `beyond` is the median without a commit."""
        took, commits = [turn.took * 1e3 for turn in self.turns], [turn.commit * 1e3 for turn in self.turns]
        later = took[1:]
        return {
            "provider": self.provider,
            "state": self.state,
            "start": None if self.start is None else round(self.start * 1e3, 1),
            "first": round(took[0], 2),
            "median": round(median(later), 3),
            "slowest": round(max(later), 2),
            "cpu": round(median(turn.cpu * 1e3 for turn in self.turns[1:]), 3),
            "commit": round(median(commits), 3),
            "beyond": round(median(later) - median(commits), 3),
            "waited": {n: round(ms, 1) for n, ms in enumerate(took) if ms > NOTICEABLE * 1e3},
            "turns": len(took),
            "arrived": self.arrived,
            "in_order": self.in_order,
            "twice": self.twice,
        }


def measure(name: str, ways: Sequence[str], turns: int, folder: Path) -> Iterator[Row]:
    """All states of one provider."""
    with BACKENDS[name]() as backend, ExitStack() as stack:
        process = Process(stack, name, backend, folder)
        start = process.start()
        row = Row(name, "well", process.speak(turns, 5.0), start)
        row.count(process, _of(process, backend))
        yield row
    if name == "holographic":
        return
    for way in ways:
        for at_start in (False, True):
            with BACKENDS[name]() as backend, ExitStack() as stack:
                yield _outage(Process(stack, name, backend, folder), backend, way, turns, at_start=at_start)


def _outage(process: Process, backend: Backend, way: str, turns: int, *, at_start: bool) -> Row:
    """An outage of `turns` turns, in a process that spoke three before, or that starts in it."""
    if not at_start:
        process.start()
        process.speak(3, 5.0)
    with backend.away(way):
        start = process.start() if at_start else None
        row = Row(process.name, f"{way}, at start" if at_start else way, process.speak(turns, 0.05), start)
    process.delivered()
    row.count(process, _of(process, backend))
    if not at_start:
        row.arrived -= 3
    return row


def _of(process: Process, backend: Backend) -> list[str]:
    """The turns that the backend received; other things that it was sent are left out."""
    process.delivered()
    return [text for text in backend.received() if text in process.spoken]


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The results for people."""
    table = Table(title="a turn, in ms", caption="median and slowest of the turns after the first")
    for column in (
        *("provider", "backend", "start", "first", "median", "beyond a commit", "cpu", "slowest"),
        "over 50",
    ):
        table.add_column(column, justify="left" if column in ("provider", "backend") else "right")
    for column in ("arrived", "in order", "twice"):
        table.add_column(column, justify="right")
    for row in rows:
        kept = row["provider"] != "holographic"
        table.add_row(
            row["provider"],
            row["state"],
            "" if row["start"] is None else f"{row['start']:,.0f}",
            *(f"{row[name]:,.2f}" for name in ("first", "median", "beyond", "cpu", "slowest")),
            str(len(row["waited"])),
            f"{row['arrived']}/{row['turns']}" if kept else "",
            str(row["in_order"]) if kept else "",
            str(row["twice"]) if kept else "",
            end_section=row is rows[-1] or rows[rows.index(row) + 1]["provider"] != row["provider"],
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def plot(rows: Sequence[dict[str, Any]], target: Path) -> None:
    """The first turn and the median of those after it, by provider, a panel for each state; on a logarithmic scale."""
    from matplotlib.figure import Figure

    titles = {
        "well": "the backend answers",
        "refuses": "refuses",
        "503": "answers 503",
        "hangs": "never answers",
    }
    states = [state for state in titles if any(row["state"] == state for row in rows)]
    names = list(dict.fromkeys(row["provider"] for row in rows))[::-1]
    figure = Figure(figsize=(2.6 * len(states) + 1, 4), layout="constrained")
    panels = figure.subplots(1, len(states), squeeze=False, sharey=True, sharex=True)[0]
    for panel, state in zip(panels, states, strict=True):
        shown = {row["provider"]: row for row in rows if row["state"] == state}
        for figure_name, label, shift in (
            ("first", "the first turn", 0.2),
            ("median", "those after it", -0.2),
        ):
            places = [names.index(name) + shift for name in shown]
            panel.barh(places, [row[figure_name] for row in shown.values()], 0.4, label=label)
        panel.set_yticks(range(len(names)), names)
        panel.set_xscale("log")
        panel.set_xlabel("ms that a turn waits")
        panel.set_title(titles[state], fontsize="medium")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figure.savefig(target)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"providers (default: {', '.join(BACKENDS)})"
    )
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--disk", type=Path, default=Path(), help="where the homes are made")
    parser.add_argument("--plot", type=Path, help="draw the turns into this file (needs matplotlib)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Run the benchmark."""
    given = arguments()
    logging.disable(logging.CRITICAL)
    rows = []
    for name in given.names or BACKENDS:
        for row in measure(name, given.ways, given.turns, given.disk):
            rows.append(row.figures())
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows)
    if given.plot:
        draw(plot, rows, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the manager adds to a turn: the time that a host waits for it, with providers of several kinds.

    python bench/turn.py [--turns 2000] [--memory /dev/shm] [--disk DIR] [--alone] [--no-rest] [--one-core] [--peer] [--json]

A turn is `on_turn_start`, `prefetch_all`, `sync_all` and `queue_prefetch_all`, with a message of 65 and an answer of 236
characters, others in each turn; before each the outbox is empty and all threads are idle, as between the turns of a
person. Beside them, in the same rounds, what it is made of: a call of a pluggy hook, a hand-off to a waiting thread and
back, one durable commit of a row of the same size. The words, and the values that the host makes of them, are there before
the clock starts. All figures are microseconds. `busy` has a thread beside it that never stops computing: each time the
interpreter changes hands, that one keeps it for up to 5 ms.

The table has eight managers in one process, which take the caches from one another; `--alone` measures one, as a host has.
`--no-rest` begins each turn when the writes of the last one are taken, as a loop does, with caches and cores warm.
`--one-core` keeps the process on one core: where a hand-off wakes another, which sleeps, it takes what the machine needs for
that, in a virtual one four times as long as the hand-off, and which of the two a turn gets is the kernel's choice. What the
disk adds is taken once more turn by turn, since a disk moves more between two rows than a turn takes. `--peer` measures the
manager of Hermes Agent, which stores nothing, in the same rounds, and beside ours with the outbox in memory: a turn of the
one, a turn of the other, in an environment where hermes-agent is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from statistics import median, quantiles
from typing import Any

import pluggy
from rich.console import Console
from rich.table import Table

from hermes_core import (
    HermesHome,
    MemoryManager,
    MemoryProvider,
    Message,
    Query,
    Recall,
    Session,
    Turn,
    load_provider,
)
from hermes_core.safety.scrubber import StreamingContextScrubber

USER = "Where did we leave off with the parser of the report yesterday?"
ANSWER = "We had the tokenizer done and were about to write the tests for nested lists. " * 3
ROUNDS = 10
QUIET = 0.0002
"""Seconds after the last write was taken. Its thread still notes that for up to 100 us, often on another core, and a turn
that begins meanwhile waits for the interpreter."""
HUNG_DEADLINE = 0.6
SHM = Path("/dev/shm")

_spec, _impl = pluggy.HookspecMarker("bench"), pluggy.HookimplMarker("bench")


class Silent(MemoryProvider):
    """Takes part in no turn."""

    name = "silent"

    def system_prompt_block(self) -> str:
        return ""


class Noop(MemoryProvider):
    """Has every hook of a turn and does nothing in it."""

    name = "noop"

    def on_turn_start(self) -> None:
        pass

    def prefetch(self) -> Recall:
        return Recall()

    def queue_prefetch(self) -> None:
        pass

    def sync_turn(self) -> None:
        pass


class Hung(Noop):
    """Never answers."""

    name = "hung"

    def prefetch(self) -> Recall:
        threading.Event().wait()
        return Recall()


class _Hooks:
    @_spec
    def prefetch(self, query: object) -> None: ...


class _Plugin:
    @_impl
    def prefetch(self, query: object) -> None: ...


@dataclass
class Case:
    """One row of the table: `run` is timed, with what `bring` makes of the number; `rest` brings quiet back,
    for `quiet` seconds, untimed."""

    name: str
    run: Callable[[Any], object]
    rest: Callable[[], object] = lambda: None
    busy: bool = False
    turns: int = 0
    bring: Callable[[int], Any] = int
    quiet: float = 0.0
    seconds: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)

    def measure(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            brought = self.bring(number)
            began = time.perf_counter()
            self.run(brought)
            self.seconds.append(time.perf_counter() - began)
            self.rest()
            if self.quiet:
                come_to_rest(self.quiet)
        self.rounds.append(median(self.seconds[-count:]))

    def figures(self) -> dict[str, Any]:
        """p50 and p95, and the p50 of the quietest round, in microseconds."""
        kept = self.seconds[len(self.seconds) // 20 :]  # the first calls open files and warm caches
        found = {"p50": median(kept), "p95": quantiles(kept, n=20)[-1], "quiet": min(self.rounds)}
        return {"case": self.name, **{name: round(value * 1e6, 1) for name, value in found.items()}}


def come_to_rest(quiet: float) -> None:
    """Let the other threads end what they do. Each `sleep(0)` gives them the core, for the 50 us by which Linux lets a timer
    be late, so that this thread comes out of a short sleep, as one that read the answer of a model does."""
    until = time.perf_counter() + quiet
    while time.perf_counter() < until:
        time.sleep(0)


def words_of(name: str, number: int) -> tuple[int, str, Query, Turn]:
    """What the host brings to a turn: its number, the message, the question, the exchange."""
    user, answer = f"{USER} {number}", f"{number} {ANSWER}"
    messages = (Message(role="user", content=user), Message(role="assistant", content=answer))
    return number, user, Query(user), Turn(f"{name}-{number}", number, user, answer, messages)


def turn_case(
    stack: ExitStack,
    name: str,
    provider: Any,
    folder: Path,
    *,
    busy: bool = False,
    turns: int = 0,
    **given: Any,
) -> Case:
    """Turns of a manager with this provider, on a home of its own below `folder`."""
    home = HermesHome(Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))))
    manager = MemoryManager(home, **given)
    stack.callback(manager.shutdown_all, 1.0)
    source = load_provider(provider, home).factory if isinstance(provider, str) else provider
    manager.add_provider(source, name=provider if isinstance(provider, str) else "")
    session = Session("bench", home=str(home.path))
    manager.initialize_all(session)

    def run(words: tuple[int, str, Query, Turn]) -> None:
        number, _, query, turn = words
        manager.prefetch_all(query, session, turn_number=number)
        manager.sync_all(turn, session)
        manager.queue_prefetch_all(query, session)

    return Case(name, run, partial(manager.flush, 10), busy, turns, partial(words_of, name), QUIET)


def commit_case(stack: ExitStack, name: str, folder: Path, *, busy: bool = False) -> Case:
    """One durable commit of a row as large as the turn's, without anything around it."""
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))) / "bare.db"
    connection = sqlite3.connect(path, isolation_level=None)
    stack.callback(connection.close)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE bare (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT)")
    body = "x" * 1100
    return Case(name, lambda _: connection.execute("INSERT INTO bare (body) VALUES (?)", (body,)), busy=busy)


def hand_off_case(stack: ExitStack, *, busy: bool = False) -> Case:
    """A job put on a waiting thread's queue, and its end waited for."""
    jobs: SimpleQueue[bool] = SimpleQueue()
    done = threading.Lock()
    done.acquire()

    def work() -> None:
        while jobs.get():
            done.release()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    stack.callback(jobs.put, False)

    def run(_: int) -> None:
        jobs.put(True)
        done.acquire()

    name = "hand-off to a thread"
    return Case(f"{name}, busy" if busy else name, run, lambda: time.sleep(0), busy)


def pluggy_case() -> Case:
    """One call of a hook with one implementation."""
    plugins = pluggy.PluginManager("bench")
    plugins.add_hookspecs(_Hooks)
    plugins.register(_Plugin())
    return Case("call of a pluggy hook", lambda _: plugins.hook.prefetch(query=None))


def peer_case(stack: ExitStack) -> Case:
    """The same turns with the manager of Hermes Agent."""
    from agent.memory_manager import MemoryManager as PeerManager
    from agent.memory_provider import MemoryProvider as PeerProvider

    class PeerNoop(PeerProvider):
        name = "noop"

        def is_available(self) -> bool:
            return True

        def initialize(self, session_id: str, **_: Any) -> None:
            pass

        def get_tool_schemas(self) -> list[dict[str, Any]]:
            return []

        def on_turn_start(self, turn_number: int, message: str, **_: Any) -> None:
            pass

        def prefetch(self, *_: Any, **__: Any) -> str:
            return ""

        def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
            pass

        def sync_turn(self, user: str, assistant: str, *, session_id: str = "", messages: Any = None) -> None:
            pass

    manager = PeerManager()
    manager.add_provider(PeerNoop())
    manager.initialize_all("bench")
    stack.callback(manager.shutdown_all)

    def words(number: int) -> tuple[int, str, str, list[dict[str, str]]]:
        user, answer = f"{USER} {number}", f"{number} {ANSWER}"
        messages = [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
        return number, user, answer, messages

    def run(words: tuple[int, str, str, list[dict[str, str]]]) -> None:
        number, user, answer, messages = words
        manager.on_turn_start(number, user)
        manager.prefetch_all(user, session_id="bench")
        manager.sync_all(user, answer, session_id="bench", messages=messages)
        manager.queue_prefetch_all(user, session_id="bench")

    return Case(
        "Hermes Agent, nothing stored", run, partial(manager.flush_pending, 10), bring=words, quiet=QUIET
    )


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread beside ours that never waits."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(500))

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


def open_breaker_case(stack: ExitStack, folder: Path) -> tuple[Case, list[float]]:
    """A provider that hangs: what each turn waits until its breaker opens, and the turns from then on."""
    given = {"deadlines": {"prefetch": HUNG_DEADLINE}}
    case = turn_case(stack, "hung provider, breaker open", Hung, folder, **given)
    case.rest, case.quiet = (lambda: None), 0.0
    waits = []
    for number in range(1_000_000, 1_000_010):
        words = case.bring(number)
        began = time.perf_counter()
        case.run(words)
        waits.append(time.perf_counter() - began)
    return case, [wait for wait in waits if wait > HUNG_DEADLINE / 2]


def scrubber_rates(size: int = 100_000) -> list[dict[str, Any]]:
    """Megabytes a second at deltas of four characters, the best of many short runs."""
    plain = "The quick brown fox jumps over the lazy dog, then it rests. "
    texts = {
        "plain": plain,
        "code with many <": "if a < b && c <= d { x<T> y; } for (i = 0; i < n; i++) <div> ",
        "dense tags": "<p>a</p><b>c</b> <i>",
        "unclosed tag": "<memory-context> " + plain,
    }
    found = []
    for name, text in texts.items():
        whole = text * (size // len(text)) if name != "unclosed tag" else text + plain * (size // len(plain))
        deltas = [whole[at : at + 4] for at in range(0, len(whole), 4)]
        rates = []
        for _ in range(20):
            scrubber = StreamingContextScrubber()
            began = time.perf_counter()
            for delta in deltas:
                scrubber.feed(delta)
            scrubber.flush()
            rates.append(len(whole) / 1e6 / (time.perf_counter() - began))
        found.append({"text": name, "mb_per_s": round(max(rates), 1)})
    return found


def cases_of(stack: ExitStack, memory: Path, disk: Path, *, alone: bool = False) -> list[Case]:
    """The rows of the table, each thing beside what it is made of; `alone` leaves one manager, as a host has."""
    if alone:
        return [
            pluggy_case(),
            hand_off_case(stack),
            commit_case(stack, "commit, memory", memory),
            turn_case(stack, "all no-ops, memory", Noop, memory),
        ]
    return [
        pluggy_case(),
        hand_off_case(stack),
        commit_case(stack, "commit, memory", memory),
        commit_case(stack, "commit, disk", disk),
        turn_case(stack, "no turn hook", Silent, memory),
        turn_case(stack, "all no-ops, memory", Noop, memory),
        turn_case(stack, "all no-ops, disk", Noop, disk),
        turn_case(stack, "Holographic, disk", "holographic", disk),
        hand_off_case(stack, busy=True),
        commit_case(stack, "commit, memory, busy", memory, busy=True),
        turn_case(stack, "all no-ops, memory, busy", Noop, memory, busy=True),
    ]


def run_all(cases: Sequence[Case], turns: int) -> None:
    """All cases in rounds, so that what else the machine does falls on each alike."""
    for number in range(ROUNDS):
        for case in cases:
            count = max(1, turns // ROUNDS // (20 if case.busy else 1))
            with busy_thread() if case.busy else ExitStack():
                case.measure(number * turns, count)


def beside(cases: Sequence[Case], turns: int) -> list[dict[str, Any]]:
    """The figures of all, taken turn by turn, so that none has the machine or the disk for itself."""
    for number in range(turns):
        for case in cases:
            case.measure(number, 1)
    return [case.figures() for case in cases]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--memory", type=Path, default=SHM if SHM.is_dir() else Path())
    parser.add_argument("--disk", type=Path, default=Path())
    parser.add_argument(
        "--no-rest", action="store_true", help="begin each turn when the writes of the last one are taken"
    )
    parser.add_argument("--one-core", action="store_true", help="keep the process on one core")
    parser.add_argument("--alone", action="store_true", help="measure one manager, alone in its process")
    parser.add_argument("--peer", action="store_true", help="measure the manager of Hermes Agent beside ours")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.one_core and not hasattr(os, "sched_setaffinity"):
        parser.error("--one-core: this system does not say on which core a process runs")
    if given.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with ExitStack() as stack:
        cases = cases_of(stack, given.memory, given.disk, alone=given.alone)
        if given.peer:
            cases.append(peer_case(stack))
        waits: list[float] = []
        if not given.alone:
            hung, waits = open_breaker_case(stack, given.memory)
            cases.append(hung)
        pairs: dict[str, list[Case]] = {}
        if not given.alone:
            places = {"in memory": given.memory, "on disk": given.disk}
            turns = [turn_case(stack, place, Noop, folder) for place, folder in places.items()]
            pairs["disk"] = [commit_case(stack, "bare commit", given.disk), *turns]
        if given.peer:
            pairs["beside"] = [
                turn_case(stack, "ours, outbox in memory", Noop, given.memory),
                peer_case(stack),
            ]
        if given.no_rest:
            for case in (*cases, *chain.from_iterable(pairs.values())):
                case.quiet = 0.0
        run_all(cases, given.turns)
        found = {
            "turns": [case.figures() for case in cases],
            "hung": {
                "deadline_ms": HUNG_DEADLINE * 1e3,
                "waited_ms": [round(wait * 1e3, 1) for wait in waits],
            },
            "scrubber": scrubber_rates(),
        }
        for name, pair in pairs.items():
            found[name] = beside(pair, given.turns)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    return 0


def show(found: dict[str, Any]) -> None:
    """The results for people."""
    console = Console()
    table = Table("what a turn waits for", "p50 us", "p95 us", "p50 of the quietest round")
    for row in found["turns"]:
        table.add_row(row["case"], *(f"{row[figure]:,.1f}" for figure in ("p50", "p95", "quiet")))
    console.print(table)
    if found["hung"]["waited_ms"]:
        console.print(
            f"hung provider, deadline {found['hung']['deadline_ms']:g} ms: waited {found['hung']['waited_ms']} ms"
        )
    if disk := found.get("disk"):
        bare, memory, on_disk = (row["p50"] for row in disk)
        console.print(
            f"turn by turn, on disk {on_disk - memory:.1f} us more than in memory, where a bare commit takes {bare:.1f}:"
            f" {(on_disk - memory) / bare:.2f} times"
        )
    if pair := found.get("beside"):
        ratio = pair[0]["p50"] / pair[1]["p50"]
        told = "; ".join(f"{row['case']}: p50 {row['p50']:.1f}, p95 {row['p95']:.1f} us" for row in pair)
        console.print(f"turn by turn, all hooks no-ops: {told}; {ratio:.2f} times")
    rates = Table("scrubber, deltas of 4", "MB/s")
    for row in found["scrubber"]:
        rates.add_row(row["text"], f"{row['mb_per_s']:.1f}")
    console.print(rates)


if __name__ == "__main__":
    sys.exit(main())

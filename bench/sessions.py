"""Measure the session store: append, size, open, search by kind of query, the tool, and processes writing at once.

    python bench/sessions.py [--sizes 10000 100000] [--folder /dev/shm] [--disk DIR] [--writers 4 8] [--json]
        [--peer ENV] [--plot FILE.svg] [--kept DIR]

The corpus is synthetic: words drawn from a Zipf distribution, a tenth of the messages Chinese, every fourth a tool
call, forty messages a session. Latency compares between systems and sizes; it says nothing of how good answers are.
`--folder` should be in memory, so that figures are the store's own; `--disk` measures appends again where a commit
costs what the disk costs. Beside each append rate stands a bare one: one row and one commit, without any index.
`--peer` names a Python environment in which hermes-agent is installed: its store is filled with the same corpus (in
large transactions, which is kind to it) and asked the same, in turn with ours, each in a process of its own.
`--kept` names a folder in which the filled stores are kept: a later run begins with copies of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from hermes_core.contract.values import Session
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool

sys.path.insert(0, str(Path(__file__).parent))
from plots import draw
from sessions_corpus import NATURAL, QUERIES, Corpus, conversations, queries
from sessions_peer import Peer

APPENDS = 3_000


def fill(db: SessionStore, corpus: Corpus, count: int) -> None:
    """A turn for each session."""
    for session, at, messages in conversations(corpus, count):
        db.create_session(session, started_at=at)
        db.append_turn(session, messages, f"turn of {session}", 1, at=at)


# ---------------------------------------------------------------------- figures


class Taken(float):
    """Seconds that a call took by the clock; `cpu` are those that it worked, whatever else the machine did."""

    cpu: float = 0.0


def spread(taken: Sequence[float]) -> dict[str, float]:
    """Milliseconds of single calls."""

    def at(share: float, ordered: Sequence[float]) -> float:
        return round(1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 3)

    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}
    clock, cpu = sorted(taken), sorted(one.cpu for one in taken if isinstance(one, Taken))
    found = {name: at(share, clock) for name, share in shares.items()}
    return found | ({f"cpu_{name}": at(share, cpu) for name, share in shares.items()} if cpu else {})


def timed(call: Callable[[], object]) -> Taken:
    began, working = time.perf_counter(), time.thread_time()
    call()
    working = time.thread_time() - working
    taken = Taken(time.perf_counter() - began)
    taken.cpu = working
    return taken


def as_taken(answers: Sequence[Sequence[float]]) -> list[Taken]:
    """What the peer took, from its answers."""
    found = []
    for clock, cpu in answers:
        found.append(Taken(clock))
        found[-1].cpu = cpu
    return found


def appends(
    db: SessionStore, corpus: Corpus, bare: sqlite3.Connection, count: int, peer: Peer | None = None
) -> dict[str, Any]:
    """One message a call, in turn with one bare commit of the same text, and with the peer, 250 at a time."""
    db.create_session("appended")
    ours, theirs = [], []
    peers: list[Taken] = []
    messages = [corpus.message(number) for number in range(count)]
    for number, message in enumerate(messages):
        if peer is not None and number % 250 == 0:
            peers += as_taken(peer.ask("append", messages[number : number + 250]))
        role, content = message.pop("role"), message.pop("content")
        message.pop("timestamp")
        message["tool_name"] = message.pop("name", "")
        ours.append(timed(lambda: db.append_message("appended", role, content, **message)))  # noqa: B023
        theirs.append(timed(lambda: bare.execute("INSERT INTO message (text) VALUES (?)", (content,))))  # noqa: B023
    return {
        "per_second": round(count / sum(ours)),
        **spread(ours),
        "bare_per_second": round(count / sum(theirs)),
        "per_cpu_second": round(count / sum(one.cpu for one in ours)),
        "bare_p50": spread(theirs)["p50"],
        "ratio_of_medians": round(median(ours) / median(theirs), 2),
        **({"peer": {"per_second": round(count / sum(peers)), **spread(peers)}} if peers else {}),
    }


def bare_store(folder: Path) -> sqlite3.Connection:
    """The least that keeps a message: one table, one row a commit, synchronous=FULL."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS message (id INTEGER PRIMARY KEY, text TEXT)")
    return connection


def opening(path: Path) -> dict[str, float]:
    """Milliseconds to open and read one row: ours, and sqlite3 alone."""

    def ours() -> None:
        with closing(SessionStore(path)) as db:
            db.get_session("session-0000000")

    def bare() -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("SELECT * FROM sessions WHERE id = 'session-0000000'").fetchone()

    return {
        "ours": round(1000 * median(timed(ours) for _ in range(15)), 3),
        "bare": round(1000 * median(timed(bare) for _ in range(15)), 3),
    }


def sizes(path: Path, messages: int) -> dict[str, float]:
    """Bytes a message, in all and by table and index."""
    with closing(sqlite3.connect(path)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        found = {"all": pages * connection.execute("PRAGMA page_size").fetchone()[0] / messages}
        try:
            rows = connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
        except sqlite3.OperationalError:  # SQLite without dbstat
            rows = []
    found |= {name: size / messages for name, size in rows if size / messages >= 0.5}
    return {name: round(size, 1) for name, size in found.items()}


# ---------------------------------------------------------------------- searches


def latencies(
    asked: dict[str, list[str]],
    ask: Callable[[str], object],
    rounds: int,
    peer: Callable[[list[str]], Any] | None = None,
) -> dict[str, Any]:
    """By kind, and over all kinds but the natural questions, which stand alone; with the peer's, asked in turn."""
    taken: dict[str, list[float]] = {kind: [] for kind in asked}
    peers: dict[str, list[float]] = {kind: [] for kind in asked}
    for _ in range(rounds):
        for kind, texts in asked.items():
            taken[kind] += [timed(lambda: ask(text)) for text in texts]  # noqa: B023
            if peer is not None:
                peers[kind] += as_taken(peer(texts))

    def figures(all_taken: dict[str, list[float]]) -> dict[str, dict[str, float]]:
        together = [one for kind, ones in all_taken.items() if kind != NATURAL for one in ones]
        return {"all": spread(together)} | {kind: spread(ones) for kind, ones in all_taken.items()}

    found: dict[str, Any] = figures(taken)
    if peer is not None:
        found = {kind: {**one, "peer": figures(peers)[kind]} for kind, one in found.items()}
    return found


def searching(
    db: SessionStore, corpus: Corpus, total: int, rounds: int, peer: Peer | None = None
) -> dict[str, Any]:
    asked = queries(db, corpus, total)
    tool, session = SessionSearchTool(db), Session(id="elsewhere")
    latencies(
        {kind: texts[:3] for kind, texts in asked.items()}, lambda text: db.past.search(text, limit=20), 1
    )
    peer_search = None if peer is None else (lambda texts: peer.ask("search", texts))
    peer_tool = None if peer is None else (lambda texts: peer.ask("tool", texts))
    return {
        "search": latencies(asked, lambda text: db.past.search(text, limit=20), rounds, peer_search),
        "tool": latencies(asked, lambda text: tool.call({"query": text}, session), rounds, peer_tool),
        "browse": spread([timed(lambda: tool.call({}, session)) for _ in range(30)]),
    }


# ---------------------------------------------------------------------- at once

_WRITER = """
import json, sys, time
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
db = SessionStore(path)
db.create_session(name)
taken, failed = [], []
sys.stdin.readline()
for number in range(count):
    began = time.perf_counter()
    try:
        db.append_message(name, "user", f"{name} message {number} " + "about the deployment of a server " * 5)
    except Exception as exc:
        failed.append(str(exc))
    taken.append(time.perf_counter() - began)
db.close()
path.with_name(name + ".json").write_text(json.dumps([taken, failed]))
"""


def at_once(path: Path, writers: int, count: int, ask: Sequence[str]) -> dict[str, Any]:
    """Processes that write while this one searches; what they wrote is counted in the end."""
    names = [f"writer-{writers}-{n}-{time.time_ns()}" for n in range(writers)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), name, str(count)],
            stdin=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    began = time.perf_counter()
    read: list[float] = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.close()
    with closing(SessionStore(path)) as db:
        while any(child.poll() is None for child in children):
            read.append(timed(lambda: db.past.search(ask[len(read) % len(ask)], limit=20)))
            time.sleep(0.01)
        elapsed = time.perf_counter() - began
        answers = [json.loads(path.with_name(f"{name}.json").read_text()) for name in names]
        stored = sum(len(db.get_messages(name)) for name in names)
    taken = [one for times, _ in answers for one in times]
    return {
        "writers": writers,
        "per_second": round(len(taken) / elapsed),
        "append": spread(taken),
        "over_1_s": sum(one > 1 for one in taken),
        "failed": sum(len(failed) for _, failed in answers),
        "lost": writers * count - stored,
        "reader": spread(read),
    }


# ---------------------------------------------------------------------- run


def prepare(size: int, folder: Path, options: argparse.Namespace) -> float:
    """Fill the stores in `folder`, or copy those that are kept; messages of ours a second, 0 for a copy."""
    kept = options.kept / str(size) if options.kept else None
    rate = 0.0
    for store, wanted in ((Path("state.db"), True), (Path("peer/state.db"), bool(options.peer))):
        target = folder / store
        target.parent.mkdir(exist_ok=True)
        if not wanted:
            continue
        if kept and (kept / store).exists():
            shutil.copyfile(kept / store, target)
            continue
        if store.parent == Path("peer"):
            with Peer(options.peer, folder) as peer:
                peer.fill(conversations(Corpus(), size))
        else:
            with closing(SessionStore(target)) as db:
                rate = size / timed(lambda: fill(db, Corpus(), size))
        if kept:
            (kept / store).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, kept / store)
    return rate


def measure(size: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All figures at one size."""
    corpus, path = Corpus(), folder / "state.db"
    rate = prepare(size, folder, options)
    with ExitStack() as stack:
        db = stack.enter_context(closing(SessionStore(path)))
        bare = stack.enter_context(closing(bare_store(folder)))
        peer = stack.enter_context(Peer(options.peer, folder)) if options.peer else None
        found: dict[str, Any] = {"messages": size, "filled_per_second": round(rate)}
        runs = [appends(db, corpus, bare, APPENDS, peer) for _ in range(options.runs)]
        found["append"] = sorted(runs, key=lambda run: float(run["p50"]))[len(runs) // 2]
        found["append"]["worst_of_runs"] = max(run["max"] for run in runs)
        found["append"]["cpu_worst_of_runs"] = max(run["cpu_max"] for run in runs)
        found["append"]["p999_worst"] = max(run["p999"] for run in runs)
        found |= searching(db, corpus, size, options.rounds, peer)
        asked = queries(db, corpus, size)
        natural = asked[NATURAL]
        for kind, texts in asked.items():
            found["search"][kind]["answered"] = sum(bool(db.past.search(text)) for text in texts)
            if peer is not None:
                found["search"][kind]["peer"]["answered"] = peer.ask("answered", texts)
        if peer is not None:
            found["peer"] = {
                "size": round(peer.ask("size", None) / (size + options.runs * APPENDS), 1),
                "open": spread(as_taken(peer.ask("opened", 15)))["p50"],
                "browse": spread(as_taken(peer.ask("tool", [""] * 10)))["p50"],
            }
    found["size"] = sizes(path, size + options.runs * APPENDS)
    found["open"] = opening(path)
    found["at_once"] = [at_once(path, writers, options.writes, natural) for writers in options.writers]
    return found


def on_disk(folder: Path) -> dict[str, Any]:
    """Appends where a commit waits for the disk."""
    with closing(SessionStore(folder / "state.db")) as db, closing(bare_store(folder)) as bare:
        return appends(db, Corpus(), bare, APPENDS // 3)


def report(found: dict[str, Any]) -> None:
    """Tables for people."""
    console = Console(highlight=False)
    for one in found["sizes"]:
        console.print(f"\n[bold]{one['messages']:,} messages[/bold]")
        for name in ("append", "size", "open", "browse"):
            console.print(name, json.dumps(one[name]))
        table = Table(box=None)
        for column in ("kind", "search p50", "p95", "CPU p50", "p95", "tool p50", "p95", "CPU p50", "p95"):
            table.add_column(column)
        for kind, figures in one["search"].items():
            tool = one["tool"][kind]
            shown = [part[name] for part in (figures, tool) for name in ("p50", "p95", "cpu_p50", "cpu_p95")]
            table.add_row(kind, *map(str, shown))
        console.print(table)
        for run in one["at_once"]:
            console.print("at once", json.dumps(run))
        if "peer" in one:
            _report_peer(console, one)
    if "disk" in found:
        console.print("disk", json.dumps(found["disk"]))


def _report_peer(console: Console, one: dict[str, Any]) -> None:
    """The peer's figures and how many times ours they are; CPU times, which other programs hardly change."""
    console.print("peer", json.dumps(one["peer"]), "append", json.dumps(one["append"]["peer"]))
    table = Table(box=None)
    for column in (
        "kind",
        f"answered of {QUERIES}",
        "peer's",
        "peer's search p50",
        "p95",
        "times ours",
        "p95",
        "peer's tool p50",
        "p95",
        "times ours",
        "p95",
    ):
        table.add_column(column)
    for kind in one["search"]:
        told = one["search"][kind]
        cells = [str(told.get("answered", "")), str(told["peer"].get("answered", ""))]
        for figures in (one["search"][kind], one["tool"][kind]):
            theirs = [figures["peer"][name] for name in ("cpu_p50", "cpu_p95")]
            ours = [figures[name] for name in ("cpu_p50", "cpu_p95")]
            cells += [f"{ms}" for ms in theirs]
            cells += [f"{their / our:.2g}" if our else "" for their, our in zip(theirs, ours, strict=True)]
        table.add_row(kind, *cells)
    console.print(table)


def plot(found: dict[str, Any], target: Path) -> None:
    """CPU time of a search by kind, ours and the peer's, a panel for each size; with the kinds it does not answer."""
    from matplotlib.figure import Figure

    panels = found["sizes"]
    figure = Figure(figsize=(6 * len(panels), 5.5), layout="constrained")
    shown = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for panel, one in zip(shown, panels, strict=True):
        kinds = list(one["search"])[::-1]
        ours = [one["search"][kind]["cpu_p50"] for kind in kinds]
        panel.barh([n + 0.2 for n in range(len(kinds))], ours, 0.4, label="hermes_core")
        if "peer" in one:
            theirs = [one["search"][kind]["peer"] for kind in kinds]
            medians = [figures["cpu_p50"] for figures in theirs]
            panel.barh([n - 0.2 for n in range(len(kinds))], medians, 0.4, label="Hermes Agent")
            for n, (kind, figures) in enumerate(zip(kinds, theirs, strict=True)):
                if figures.get("answered", 1) == 0 and one["search"][kind]["answered"]:
                    panel.text(figures["cpu_p50"], n - 0.2, " answers none", va="center", fontsize="small")
        panel.set_yticks(range(len(kinds)), kinds)
        panel.set_xscale("log")
        panel.set_xlabel("ms of CPU, median")
        panel.set_title(f"{one['messages']:,} messages")
    figure.legend(*shown[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figure.savefig(target)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where to build the stores (default: a temporary folder)")
    parser.add_argument("--disk", type=Path, help="a folder on a disk, for appends that wait for it")
    parser.add_argument("--runs", type=int, default=3, help="rounds of appends")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of queries")
    parser.add_argument("--writers", type=int, nargs="*", default=[4], help="processes that write at once")
    parser.add_argument("--writes", type=int, default=1_000, help="messages of each of them")
    parser.add_argument("--peer", type=Path, help="a Python environment with hermes-agent")
    parser.add_argument("--kept", type=Path, help="keep filled stores here, and begin with copies of them")
    parser.add_argument("--plot", type=Path, help="draw the searches into this file (needs matplotlib)")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    found: dict[str, Any] = {"sqlite": sqlite3.sqlite_version, "sizes": []}
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found["sizes"].append(measure(size, Path(folder), options))
    if options.disk:
        with tempfile.TemporaryDirectory(dir=options.disk) as folder:
            found["disk"] = on_disk(Path(folder))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        report(found)
    if options.plot:
        draw(plot, found, options.plot)


if __name__ == "__main__":
    main()

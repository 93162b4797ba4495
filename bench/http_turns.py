"""Measure what a turn costs over HTTP beside the same turn in process: CPU of the server, and time of the client.

    python bench/http_turns.py [--turns N] [--chat N] [--json]

Both rows come from the same run, each on a temporary home without a provider: rounds of N turns in conversations of
`--chat` turns, by turns in process and over HTTP, of which the best of each counts. Past sessions are recalled on request
only: to search them takes longer with each turn, and longer than what is compared. There is no search by meaning: its model
computes the vectors of earlier turns in the background, and would count in whichever row is measured just then.
`TMPDIR=/dev/shm` leaves the disk out.
A turn over HTTP is two requests, begin and finish, on one connection of `http.client`. The CPU of the server is that of
its process, from /proc, so this needs Linux; what the client takes is not in it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hermes_core import open_memory
from hermes_memory_http.tokens import TokenStore

QUESTION, ANSWER = (
    "Where do we deploy the billing service, and who is on call?",
    "To Frankfurt; Mel is on call.",
)
ROUNDS = 5

Measured = tuple[Callable[[str, int], None], Callable[[], float]]
"""A function that runs a turn, and one that returns the CPU that its process has used."""


def question(number: int) -> str:
    """Return a message with names of its own, so that recall has the same work in each turn."""
    return f"Where do we deploy service{number:x}q, and who looks after host{number:x}z?"


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def in_process(home: Path) -> Iterator[Measured]:
    """Yield a turn of the Python API."""
    with open_memory(home, provider="") as memory:

        def turn(name: str, number: int) -> None:
            opened = memory.conversation(name, platform="app", user_id="ann").turn(question(number))
            assert opened.messages
            opened.finish(ANSWER)

        yield turn, time.process_time


@contextmanager
def over_http(home: Path) -> Iterator[Measured]:
    """Yield a turn of the server."""
    with open_memory(home, provider="") as memory:
        token = TokenStore(memory).create("bench", "app:ann", ())[1]
    command = [sys.executable, "-m", "hermes_core", "--home", str(home)]
    command += ["serve", "--port", "0", "--rate", "1e6"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        connection = http.client.HTTPConnection(server.stdout.readline().strip().removeprefix("http://"))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

        def post(path: str, body: object) -> None:
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text

        def turn(name: str, number: int) -> None:
            turn_id = str(uuid.uuid4())
            path = f"/v1/conversations/{name}/turns"
            post(path, {"message": question(number), "turn_id": turn_id})
            post(f"{path}/{turn_id}/finish", {"answer": ANSWER})

        try:
            yield turn, lambda: cpu_of(server.pid)
        finally:
            server.terminate()


def measure(turns: int, chat: int) -> dict[str, dict[str, float]]:
    """Return what a turn costs in the best round of each way."""
    best: dict[str, dict[str, float]] = {}
    with ExitStack() as closing:
        ways: dict[str, Measured] = {}
        for name, way in (("in process", in_process), ("over HTTP", over_http)):
            home = Path(closing.enter_context(tempfile.TemporaryDirectory()))
            (home / "config.yaml").write_text("recall: {sessions: on_request, semantic: off}\n")
            ways[name] = closing.enter_context(way(home))
        for at in range(ROUNDS + 1):  # the first one warms up
            for name, (turn, cpu) in ways.items():
                used, began = cpu(), time.perf_counter()
                for number in range(turns):
                    turn(f"chat-{at}-{number // chat}", at * turns + number)
                costs = {"cpu_ms": cpu() - used, "wall_ms": time.perf_counter() - began}
                if at:
                    for key, seconds in costs.items():
                        row = best.setdefault(name, {})
                        row[key] = min(row.get(key, math.inf), round(seconds / turns * 1000, 3))
    return best


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=100, help="turns of each of the rounds")
    parser.add_argument("--chat", type=int, default=20, help="turns of a conversation")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.turns, options.chat)
    overhead = round(rows["over HTTP"]["cpu_ms"] - rows["in process"]["cpu_ms"], 3)
    if options.json:
        print(json.dumps(rows | {"overhead_cpu_ms": overhead}))
        return
    table = Table("turn", "CPU ms", "wall ms")
    for name, row in rows.items():
        table.add_row(name, f"{row['cpu_ms']:.2f}", f"{row['wall_ms']:.2f}")
    Console().print(table)
    print(f"overhead: {overhead:.2f} ms of CPU a turn")


if __name__ == "__main__":
    main()

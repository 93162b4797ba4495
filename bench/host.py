"""Measure what a host on asyncio gets: waits of others beside hung recalls, many people at once, and cancellation.

    python bench/host.py [--people N] [--hung N] [--seconds S] [--json]

All rows come from the same run, with the same backend: an HTTP server on loopback that waits. `asyncio.to_thread` and
`open_memory_async` ask it through a provider, on a temporary home. The loop's default executor has as many threads as
asyncio gives it on this machine. The published adapters of mem0 and Zep ask it with their own clients, if they are
installed:

    pip install mem0-strands zep-adk
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import shutil
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hermes_core import Capabilities, MemoryProvider, Query, Session, open_memory, open_memory_async

PUBLISHED = {"mem0-strands": "mem0_strands", "zep-adk": "zep_adk"}
"""Published adapters by the name of the distribution, with the name to import."""

# Their clients report each use to their makers, and make folders in the person's home, unless they are told not to.
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(Path(tempfile.gettempdir()) / "bench-host-mem0"))


class _Answers(BaseHTTPRequestHandler):
    """A search that takes as long as the path of the address says, in the forms of our provider, mem0 and Zep."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"org_id": "o", "project_id": "p", "user_email": "ann@example.org", "graph_uuid": GRAPH})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(float(self.path.split("/")[1]))
        edge = {"uuid": GRAPH, "name": "LIKES", "fact": "Likes tea.", "created_at": "2026-01-01T00:00:00Z"}
        self._send(
            {
                "text": "Likes tea.",
                "results": [{"id": "1", "memory": "Likes tea."}],
                "items": [edge],
                "edges": [edge],
            }
        )

    def _send(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


GRAPH = str(uuid.UUID(int=1))


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


@contextmanager
def backend() -> Iterator[str]:
    """Yield the address of the backend. The first part of a path is the number of seconds that an answer takes."""
    server = _Server(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Slow(MemoryProvider):
    """A provider that asks the backend for each recall."""

    name = "slow"

    def __init__(self, url: str, concurrent: int) -> None:
        self._url = url
        self.capabilities = Capabilities(concurrent=concurrent)

    def prefetch(self, query: Query, session: Session) -> str:
        request = urllib.request.Request(f"{self._url}/search", data=query.text.encode(), method="POST")
        with urllib.request.urlopen(request) as answer:
            return f"{session.user_id}: {json.load(answer)['text']}"


async def look_up() -> float:
    """Return the seconds that a host name took."""
    began = time.perf_counter()
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    return time.perf_counter() - began


async def beside(turns: Callable[[int], Awaitable[Any]], count: int) -> float:
    """Return the seconds of a look-up that begins beside `count` turns."""
    tasks = [asyncio.ensure_future(turns(number)) for number in range(count)]
    await asyncio.sleep(0.2)
    seconds = await look_up()
    await asyncio.gather(*tasks)
    return seconds


async def people_at_once(turns: Callable[[int], Awaitable[Any]], count: int) -> tuple[int, float]:
    """Return how many of `count` people got recall, and the longest wait in seconds."""

    async def ask(number: int) -> tuple[bool, float]:
        began = time.perf_counter()
        recall = await turns(number)
        return bool(getattr(recall, "context", recall)), time.perf_counter() - began

    answers = await asyncio.gather(*(ask(number) for number in range(count)))
    return sum(recalled for recalled, _ in answers), max(seconds for _, seconds in answers)


@contextlib.contextmanager
def temporary_home() -> Iterator[str]:
    """Yield a temporary folder for a home.

    A connection is closed with its thread. If that hangs, Windows deletes all but the database.
    """
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Each of these awaits `measure(turns, count)`, where `turns(number)` is the recall of one person.


async def with_threads(url: str, measure: Callable[..., Awaitable[Any]], count: int) -> Any:
    with temporary_home() as home, open_memory(home, provider=Slow(url, count)) as memory:
        sessions = [memory.start_session(platform="app", user_id=f"user-{n}") for n in range(count)]
        turns = lambda n: asyncio.to_thread(memory.begin_turn, sessions[n], "tea?")  # noqa: E731
        return await measure(turns, count)


async def with_twin(url: str, measure: Callable[..., Awaitable[Any]], count: int) -> Any:
    with temporary_home() as home:
        async with open_memory_async(home, provider=Slow(url, count)) as memory:
            sessions = [await memory.start_session(platform="app", user_id=f"user-{n}") for n in range(count)]
            return await measure(lambda n: memory.begin_turn(sessions[n], "tea?"), count)


async def with_mem0(url: str, measure: Callable[..., Awaitable[Any]], count: int) -> Any:
    """Measure `Mem0MemoryStore` of mem0-strands, one store a user as it asks for."""
    package = importlib.import_module(PUBLISHED["mem0-strands"])
    stores = [package.Mem0MemoryStore(user_id=f"user-{n}", api_key="k", host=url) for n in range(count)]
    for store in stores:
        store.client  # noqa: B018 - asks for the key's owner, which is no part of a recall
    return await measure(lambda n: stores[n].search("tea?"), count)


async def with_zep(url: str, measure: Callable[..., Awaitable[Any]], count: int) -> Any:
    """Measure `ZepMemoryService` of zep-adk, one service for all users as ADK has it."""
    package, client = (
        importlib.import_module(PUBLISHED["zep-adk"]),
        importlib.import_module("zep_cloud.client"),
    )
    zep = client.AsyncZep(base_url=url, api_key="k")
    service = package.ZepMemoryService(
        zep=zep, resolve_user_uuid=lambda _, user: str(uuid.UUID(int=int(user)))
    )

    async def search(number: int) -> Any:
        return (await service.search_memory(app_name="app", user_id=str(number), query="tea?")).memories

    return await measure(search, count)


async def cancelled_after(turns: Callable[[int], Awaitable[Any]], _count: int) -> float:
    """Return the seconds until a task that waits for a hung recall has ended after it was cancelled."""
    task = asyncio.ensure_future(turns(0))
    await asyncio.sleep(0.2)
    began = time.perf_counter()
    task.cancel()
    await asyncio.wait({task})
    return time.perf_counter() - began


async def figures_of(
    run: Callable[..., Awaitable[Any]], url: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures of one row."""
    waits = await run(f"{url}/{options.seconds}", beside, options.hung)
    recalled, longest = await run(f"{url}/0.3", people_at_once, options.people)
    cancelled = await run(f"{url}/{options.seconds}", cancelled_after, 1)
    return {"look_up_s": waits, "recalled": recalled, "longest_s": longest, "cancelled_s": cancelled}


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=40, help="people who ask at once")
    parser.add_argument("--hung", type=int, default=12, help="recalls that hang")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long they hang")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    runs = {
        "asyncio.to_thread": with_threads,
        "open_memory_async": with_twin,
        "mem0-strands": with_mem0,
        "zep-adk": with_zep,
    }
    figures: dict[str, dict[str, Any]] = {}
    with backend() as url:
        for name, run in runs.items():
            try:
                figures[name] = await figures_of(run, url, options)
            except ImportError as exc:
                figures[name] = {"missing": f"not measured ({exc}); pip install {name}"}
    if options.json:
        print(json.dumps(figures))
        return
    table = Table(
        title=f"{options.hung} hung recalls of {options.seconds:g} s; {options.people} people, backend of 0.3 s"
    )
    for column in ("", "look-up waits", "people with recall", "longest wait", "cancelled after"):
        table.add_column(column, justify="right" if column else "left", no_wrap=not column)
    for name, row in figures.items():
        if "missing" in row:
            continue
        table.add_row(
            name,
            f"{row['look_up_s']:.3f} s",
            f"{row['recalled']} of {options.people}",
            f"{row['longest_s']:.2f} s",
            f"{row['cancelled_s']:.3f} s",
        )
    console = Console()
    console.print(table)
    for name, row in figures.items():
        if "missing" in row:
            console.print(f"{name}: {row['missing']}")


if __name__ == "__main__":
    asyncio.run(main())

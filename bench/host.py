"""Measure what a host on asyncio gets: waits of others beside hung recalls, many people at once, and cancellation.

    python bench/host.py [--people N] [--hung N] [--json]

Each figure of `asyncio.to_thread` and of `open_memory_async` comes from the same run, with the same provider, on a
temporary home. The loop's default executor has as many threads as asyncio gives it on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from hermes_core import Capabilities, MemoryProvider, Query, Session, open_memory, open_memory_async


class Slow(MemoryProvider):
    """A provider whose backend takes `seconds` for each recall."""

    name = "slow"

    def __init__(self, seconds: float, concurrent: int) -> None:
        self._seconds = seconds
        self.capabilities = Capabilities(concurrent=concurrent)

    def prefetch(self, query: Query, session: Session) -> str:
        time.sleep(self._seconds)
        return f"{session.user_id}: {query.text}"


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
        return bool(recall.context), time.perf_counter() - began

    answers = await asyncio.gather(*(ask(number) for number in range(count)))
    return sum(recalled for recalled, _ in answers), max(seconds for _, seconds in answers)


async def with_threads(provider: MemoryProvider, measure: Callable[..., Awaitable[Any]], count: int) -> Any:
    with tempfile.TemporaryDirectory() as home, open_memory(home, provider=provider) as memory:
        sessions = [memory.start_session(platform="app", user_id=f"user-{n}") for n in range(count)]
        turns = lambda n: asyncio.to_thread(memory.begin_turn, sessions[n], "tea?")  # noqa: E731
        return await measure(turns, count)


async def with_twin(provider: MemoryProvider, measure: Callable[..., Awaitable[Any]], count: int) -> Any:
    with tempfile.TemporaryDirectory() as home:
        async with open_memory_async(home, provider=provider) as memory:
            sessions = [await memory.start_session(platform="app", user_id=f"user-{n}") for n in range(count)]
            return await measure(lambda n: memory.begin_turn(sessions[n], "tea?"), count)


async def cancellation(provider: MemoryProvider) -> float:
    """Return the seconds until a task that waits for a hung recall has ended after it was cancelled."""
    with tempfile.TemporaryDirectory() as home:
        async with open_memory_async(home, provider=provider) as memory:
            session = await memory.start_session()
            task = asyncio.ensure_future(memory.begin_turn(session, "tea?"))
            await asyncio.sleep(0.2)
            began = time.perf_counter()
            task.cancel()
            await asyncio.wait({task})
            return time.perf_counter() - began


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=40, help="people who ask at once")
    parser.add_argument("--hung", type=int, default=12, help="recalls that hang")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    for name, run in (("asyncio.to_thread", with_threads), ("open_memory_async", with_twin)):
        waits = await run(Slow(4.0, options.hung), beside, options.hung)
        recalled, longest = await run(Slow(0.3, options.people), people_at_once, options.people)
        figures[name] = {"look_up_s": waits, "recalled": recalled, "longest_s": longest}
    figures["open_memory_async"]["cancelled_s"] = await cancellation(Slow(4.0, 1))
    if options.json:
        print(json.dumps(figures))
        return
    table = Table(title=f"{options.hung} hung recalls of 4 s; {options.people} people, backend of 0.3 s")
    for column in ("", "look-up waits", "people with recall", "longest wait", "cancelled after"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in figures.items():
        cancelled = f"{row['cancelled_s']:.3f} s" if "cancelled_s" in row else ""
        table.add_row(
            name,
            f"{row['look_up_s']:.3f} s",
            f"{row['recalled']} of {options.people}",
            f"{row['longest_s']:.2f} s",
            cancelled,
        )
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())

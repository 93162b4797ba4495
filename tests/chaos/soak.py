"""A soak: one process uses memory for a long time, and its memory, threads and descriptors stay flat.

`python -m tests.chaos.soak HOME --seconds 3600` prints a table, and with `--plot FILE` draws it if matplotlib is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.config import load_config
from hermes_core.safety.scan import first_threat
from hermes_memory_agent.skills.store import open_skills
from tests.chaos.writers import FAST, add_filer, require, skill_text
from tests.outbox_of import sessions_of

SAMPLES = 40
MIN_SAMPLES = 4

# Sessions that stay: older ones are deleted, so that the stores do not grow.
SESSIONS = 20


@dataclass(frozen=True)
class Sample:
    """What the process used at a moment."""

    seconds: float
    turns: int
    megabytes: float
    threads: int
    descriptors: int
    store_megabytes: float


def measure(started: float, turns: int, home: HermesHome) -> Sample:
    """Return what this process uses now."""
    gc.collect()
    store = sum(path.stat().st_size for path in home.path.glob("state.db*"))
    return Sample(
        round(time.monotonic() - started, 1),
        turns,
        round(_resident_bytes() / 1e6, 2),
        threading.active_count(),
        len(list(Path("/proc/self/fd").iterdir())),
        round(store / 1e6, 2),
    )


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def use(memory: Memory, number: int) -> int:
    """Hold one conversation of several turns with everything that a host does. Return the number of turns."""
    name = f"s{number}"
    chat = memory.conversation(name)
    for part in range(3):
        turn = chat.turn(f"What about the harbour {number} {part}?")
        function = {"name": "session_search", "arguments": '{"query": "harbour"}'}
        result = turn.call_tool("session_search", {"query": "harbour"})
        turn.add(
            {
                "role": "assistant",
                "content": f"I look for {number}",
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c", "content": result.text},
        )
        turn.finish(f"It is foggy, {number}.")
    memory.end_turn(memory.start_session(name), f"A slip {number}", "ok")
    chat.rewind(1)
    cancelled = chat.turn("Never mind")
    cancelled.cancel()
    require(chat.change_memory("add", "memory", f"Fact {number}"))
    require(chat.change_memory("replace", "memory", f"Fact {number} again", f"Fact {number}"))
    require(chat.change_memory("remove", "memory", old_text=f"Fact {number} again"))
    memory.sessions.past.search("foggy harbour", everybody=True)
    chat.recall("foggy")
    chat.end()
    if number >= SESSIONS:
        memory.delete_session(f"s{number - SESSIONS}")
    return 4


def other_thread(memory: Memory, number: int) -> None:
    """Use memory on a thread that ends, as the threads of a server do."""
    thread = threading.Thread(target=lambda: memory.sessions.past.search(f"harbour {number}", everybody=True))
    thread.start()
    thread.join()


def use_skills(home: HermesHome, number: int) -> None:
    """Write a skill and delete it."""
    with contextlib.closing(sessions_of(home)) as sessions:
        store = open_skills(home, load_config(home), sessions.database)
        store.create(f"skill-{number}", "work", skill_text(f"skill-{number}"))
        store.delete(f"skill-{number}")


def soak(home: HermesHome, seconds: float) -> list[Sample]:
    """Use memory for so many seconds, in a memory that is opened again now and then. Return the samples."""
    first_threat("warm")
    add_filer(home)
    samples: list[Sample] = []
    number = turns = 0
    started = time.monotonic()
    # One open memory goes through the whole time; others come and go.
    with open_memory(home, clock=lambda: time.monotonic() * FAST) as memory:
        while (now := time.monotonic() - started) < seconds or len(samples) < MIN_SAMPLES:
            turns += use(memory, number)
            other_thread(memory, number)
            if number % 5 == 0:
                use_skills(home, number)
                with open_memory(home, provider="") as other:
                    other.sessions.list_sessions(everybody=True)
            number += 1
            if number % 50 == 0:
                memory.curated.files.prune()
            if now >= seconds * len(samples) / SAMPLES:
                assert memory.flush(60)
                samples.append(measure(started, turns, home))
    return samples


def growth(samples: Sequence[Sample], field: str) -> float:
    """Return by how much the lowest value of the last quarter is above that of the second quarter.

    The first quarter warms caches up. A leak raises the lowest value too, and a file that a worker opens at the moment of a
    sample does not.
    """
    values = [float(getattr(sample, field)) for sample in samples]
    quarter = max(1, len(values) // 4)
    return min(values[-quarter:]) - min(values[quarter : 2 * quarter])


def table(samples: Sequence[Sample]) -> str:
    """Return the samples as lines."""
    names = list(asdict(samples[0]))
    rows = [names, *([f"{value:,}" for value in asdict(sample).values()] for sample in samples)]
    return "\n".join("  ".join(f"{cell:>15}" for cell in row) for row in rows)


def plot(samples: Sequence[Sample], path: Path) -> bool:
    """Draw the samples to a file. Return False if matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    fields = ("megabytes", "threads", "descriptors", "store_megabytes")
    figure, axes = plt.subplots(len(fields), 1, sharex=True, figsize=(8, 9))
    for axis, field in zip(axes, fields, strict=True):
        axis.plot([sample.seconds for sample in samples], [getattr(sample, field) for sample in samples])
        axis.set_ylabel(field)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path)
    return True


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    samples = soak(HermesHome(options.home), options.seconds)
    if options.json:
        print(json.dumps([asdict(sample) for sample in samples]))
        return
    print(table(samples))
    for field in ("megabytes", "threads", "descriptors", "store_megabytes"):
        print(f"growth of {field}: {growth(samples, field):+.2f}")
    if options.plot:
        print(options.plot if plot(samples, options.plot) else "no plot: matplotlib is not installed")


if __name__ == "__main__":
    main(sys.argv[1:])

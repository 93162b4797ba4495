"""What the hooks of `hermes-memory capture` cost an agent that waits for them.

    python bench/capture.py [--messages 10000] [--runs 40] [--json]

A home with this many messages in sessions of 20 turns gets a worker. Then each hook runs as the agent runs it, in a process
of its own, beside a Python that does nothing (`python -S -c pass`):

    append   CPU time, of which a hook may have twice that of `python -S -c pass`
    recall   time until the hook has ended, with the recall; the agent waits for it
    cold     the same with no worker: nothing is printed, and the worker starts
    start    time until the worker of a cold home answers, which the start of a session waits for
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from hermes_core import open_memory
from hermes_memory_capture.programs import HOOK

FACT = "We deploy the billing service to the cluster blue-heron in Frankfurt."
QUESTION = "Where do we deploy the billing service?"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as name:
        results = measured(Path(name), options.messages, options.runs)
    if options.json:
        print(json.dumps(results))
    else:
        for what, value in results.items():
            print(f"{what:32} {value:10.1f}")


def measured(home: Path, messages: int, runs: int) -> dict[str, float]:
    fill(home, messages)
    (home / "capture/spool").mkdir(parents=True)
    (home / "capture").chmod(0o700)
    event = {
        "session_id": "new",
        "transcript_path": "",
        "cwd": str(home),
        "hook_event_name": "UserPromptSubmit",
    }
    asked = json.dumps({**event, "prompt": QUESTION}).encode()
    cold = timed(hook(home, "recall"), asked)
    began = time.monotonic()
    timed(hook(home, "start"), json.dumps({**event, "session_id": ""}).encode())
    start = time.monotonic() - began
    try:
        nothing = [cpu([sys.executable, "-S", "-c", "pass"], b"") for _ in range(runs)]
        append = [cpu(hook(home, "append"), json.dumps(event).encode()) for _ in range(runs)]
        answers = [timed(hook(home, "recall"), asked) for _ in range(runs)]
    finally:
        os.kill(int((home / "capture/pid").read_text()), signal.SIGTERM)
    times = sorted(seconds for seconds, _ in answers)
    return {
        "python -S -c pass, CPU ms": median(nothing) * 1000,
        "append, CPU ms": median(append) * 1000,
        "append / python -S -c pass": median(append) / median(nothing),
        "recall, ms": median(times) * 1000,
        "recall, longest, ms": times[-1] * 1000,
        "recalls with the fact, of 100": 100 * sum(FACT in output for _, output in answers) / runs,
        "cold, ms": cold[0] * 1000,
        "start, ms": start * 1000,
    }


def fill(home: Path, messages: int) -> None:
    """Store sessions of made-up words, and the fact in one of them."""
    chance = random.Random(7)
    words = [f"w{number:05}" for number in range(8000)]
    with open_memory(home, provider="") as memory:
        for number in range(messages // 40):
            session = memory.start_session(f"claude-code-{number}", source="claude-code", platform="cli")
            with memory.sessions.transaction():
                for turn in range(20):
                    said = " ".join(chance.choices(words, k=30)) if (number, turn) != (7, 3) else FACT
                    memory.end_turn(session, said, " ".join(chance.choices(words, k=120)), warm=False)


def hook(home: Path, action: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(HOOK), str(home), "claude-code", action]


def timed(command: list[str], event: bytes) -> tuple[float, str]:
    began = time.monotonic()
    done = subprocess.run(command, input=event, capture_output=True, check=True)
    return time.monotonic() - began, done.stdout.decode()


def cpu(command: list[str], event: bytes) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=event, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

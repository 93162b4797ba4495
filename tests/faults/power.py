"""Power cuts: `python -m tests.faults.power record HOME RECORD SEED STEPS` takes steps in a home whose disk is recorded.

`python -m tests.faults.power check` takes an order a line, `{"home", "steps", "seed", "done", "begun"}`, and answers what is
wrong with the home: the steps up to `done` were acknowledged, and that of `begun` was under way.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import threading
from pathlib import Path

from hermes_core import HermesHome
from tests.chaos.forks import Say, in_child
from tests.faults.disk import Recorder
from tests.faults.workload import Program, State, deliver, diagnose, plan, prepare, read, states


def record(home: HermesHome, path: Path, seed: int, count: int) -> None:
    """Take the steps. The record has a mark before and after each."""
    os.environ["HERMES_HOME"] = str(home.path)
    recorder = Recorder(home.path, path)
    program = Program(home)
    for number, step in enumerate(plan(seed, count), 1):
        recorder.mark(f"begun {number}")
        program.take(step)
        recorder.mark(f"done {number}")
    program.close()


def check(home: HermesHome, expected: list[State]) -> None:
    """Assert that a home opens whole, with one of these states, and that a program can go on in it."""
    state = read(home)
    assert state in expected, f"{state} is none of {expected}"
    diagnose()
    deliver(home, state)
    assert read(home) == state


def warm() -> None:
    """Do once what forks do, so that they have its imports and caches."""
    with tempfile.TemporaryDirectory() as folder:
        home = HermesHome(Path(folder, "home"))
        os.environ["HERMES_HOME"] = str(home.path)
        prepare(home)
        program = Program(home)
        for step in plan(0, 8):
            program.take(step)
        program.close()
        check(home, states(plan(0, 8))[-1:])
    assert threading.active_count() == 1, "a fork would lack the other threads"
    gc.collect()
    gc.freeze()  # else the collector of each fork would copy what all of them share


def serve() -> None:
    """Check a home for each order."""
    warm()
    for line in sys.stdin:
        order = json.loads(line)
        home = HermesHome(Path(order["home"]))
        known = states(plan(order["seed"], order["steps"]))
        expected = [known[order["done"]], known[order["begun"]]]

        def job(_say: Say, _report: int, home: HermesHome = home, expected: list[State] = expected) -> None:
            check(home, expected)

        events, code = in_child(home.path, job)
        trouble = next((event["trouble"] for event in events if "trouble" in event), "")
        output = home.path.with_name("output")
        if "Traceback" in output.read_text():
            trouble += output.read_text()
        answer = {"trouble": trouble or ("" if code == 0 else f"exit code {code}")}
        os.write(1, (json.dumps(answer) + "\n").encode())


def main(what: str, *words: str) -> None:
    if what == "check":
        serve()
    else:
        home, path, seed, count = words
        record(HermesHome(Path(home)), Path(path), int(seed), int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])

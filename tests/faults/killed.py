"""Programs that are killed: `python -m tests.faults.killed` takes an order a line, and answers each.

`{"prepare", "storage"}` makes a home. `{"home", "actors"}` lets programs work in it at the same time, each in a fork, on the
steps of its own users. An actor is `{"seed", "users", "start", "count", "way", "at"}`; it dies at its n-th call of a kind: of
a Python function in any of its threads, or of the file system below the home. `{"check", "actors", "by_hand", "last"}`
compares what a new process finds with what was acknowledged, and with what the person wrote between the programs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from hermes_core import HermesHome
from hermes_core.config import set_value
from tests.chaos import faults
from tests.chaos.faults import Action, Call, Fault
from tests.chaos.forks import Fork, Say, in_child
from tests.faults import workload
from tests.faults.workload import Program, deliver, diagnose, plan, prepare, read, states

STEPS = 200
"""Steps of the plan of an actor, of which it takes some in each life."""

Actor = dict[str, Any]

Order = dict[str, Any]


def steps_of(actor: Actor) -> list[workload.Step]:
    """Return the steps of an actor."""
    return plan(actor["seed"], STEPS, actor["users"], files=True, edits=True)


def die_at_function(number: int) -> Callable[[], int]:
    """Kill this process at its n-th call of a Python function, from now on and in any thread; 0: count them only.

    Returns:
        A function that returns the number of calls so far.
    """
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        if event == "call":
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(profile)
    sys.setprofile(profile)
    return lambda: count


KINDS = {
    "change": (Call.CHANGE, Action.KILL_BEFORE),
    "half": (Call.CHANGE, Action.KILL_AFTER),
    "name": (Call.RENAME | Call.SYNC, Action.KILL_BEFORE),
    "named": (Call.RENAME | Call.SYNC, Action.KILL_AFTER),
}
"""Ways to die at a call of the file system: before it, after it (in the middle of a write), or beside a sync or rename."""


def work(home: HermesHome, actor: Actor, say: Say) -> None:
    """Take the steps of one life, and say which were begun and done."""
    steps = steps_of(actor)[actor["start"] : actor["start"] + actor["count"]]
    if actor["way"] == "function":
        counted = die_at_function(actor["at"])
    else:
        calls, action = KINDS[actor["way"]]
        Fault(action if actor["at"] else Action.FAIL_ONCE, actor["at"], calls=calls).arm(home.path)
        counted = faults.count
    program = Program(home)
    for number, step in enumerate(steps, actor["start"] + 1):
        say({"begun": number})
        program.take(step)
        say({"done": number})
    program.close()
    sys.setprofile(None)
    say({"calls": counted()})


def live(home: HermesHome, actors: Sequence[Actor]) -> dict[str, Any]:
    """Let the actors work at the same time. Return for each what it did."""
    forks = []
    for actor in actors:

        def job(say: Say, _report: int, actor: Actor = actor) -> None:
            work(home, actor, say)

        forks.append(Fork(home.path, job))
    results = []
    for actor, fork in zip(actors, forks, strict=True):
        events, code = fork.finish()
        if code not in (0, -signal.SIGKILL):
            return {"trouble": f"exit code {code}: {events[-1:]}"}
        known = {"begun": actor["start"], "done": actor["start"], "calls": 0}
        for event in events:
            known |= event
        results.append({**known, "killed": code != 0})
    return {"actors": results}


def compare(home: HermesHome, actors: Sequence[Actor], by_hand: list[str], say: Say, *, last: bool) -> None:
    """Say for each actor how many of its steps had an effect: all that were done, and perhaps that which was begun.

    Args:
        by_hand: The entries that the person wrote between the programs.
        last: True to let the provider have all, and to look whether the stores are whole.
    """
    state, starts = read(home), []
    assert state.by_hand == by_hand, f"{state.notes['']} and {state.by_hand}, by hand {by_hand}"
    for actor in actors:
        known = states(steps_of(actor))
        there = replace(state.of(actor["users"]), by_hand=[])
        choices = [
            number for number in (actor["begun"], actor["done"]) if known[number].of(actor["users"]) == there
        ]
        assert choices, f"{there} is neither {known[actor['done']]} nor {known[actor['begun']]}"
        starts.append(choices[0])
    if last:
        deliver(home, state)
        # Afterwards, for the doctor rightly says that writes wait whose sending a kill cut off.
        diagnose(server="storage:" in home.config_yaml.read_text())
    output = home.path.with_name("output").read_text()
    assert "Traceback" not in output, output
    say({"starts": starts})


def make(home: HermesHome, storage: dict[str, str]) -> None:
    """Make a home, with its stores on a server if `storage` names one."""
    home.path.mkdir(parents=True)
    prepare(home)
    for name, value in storage.items():
        set_value(home, f"storage.{name}", value)


def answer_to(order: Order) -> dict[str, Any]:
    """Return the answer to an order."""
    if "prepare" in order:
        make(HermesHome(Path(order["prepare"])), order["storage"])
        return {}
    if "home" in order:
        return live(HermesHome(Path(order["home"])), order["actors"])
    home = HermesHome(Path(order["check"]))
    actors, by_hand, last = order["actors"], order["by_hand"], order["last"]
    events, code = in_child(home.path, lambda say, _: compare(home, actors, by_hand, say, last=last))
    return events[-1] if events else {"trouble": f"exit code {code}"}


def warm() -> None:
    """Do once what forks do, so that they have its imports and caches."""
    with tempfile.TemporaryDirectory() as folder:
        home = HermesHome(Path(folder, "home"))
        os.environ["HERMES_HOME"] = str(home.path)
        make(home, {})
        program = Program(home)
        steps = plan(0, 30, files=True, edits=True)
        for step in steps:
            program.take(step)
        program.close()
        state = read(home)
        deliver(home, state)
        diagnose()
    assert threading.active_count() == 1, "a fork would lack the other threads"
    gc.collect()
    gc.freeze()  # else the collector of each fork would copy what all of them share


def main() -> None:
    warm()
    for line in sys.stdin:
        try:
            answer = answer_to(json.loads(line))
        except Exception:  # noqa: BLE001  the test fails with it
            answer = {"trouble": traceback.format_exc()}
        os.write(1, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()

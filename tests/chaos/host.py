"""Forks the processes of the chaos tests: one order a line of standard input, one answer a line of standard output.

Forked, because a thousand fresh interpreters would take an hour. This process itself starts no thread and opens no store.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hermes_core.memory
from hermes_core import HermesHome
from hermes_core.loader.entry_points import installed_entry_points
from hermes_core.safety.scan import first_threat
from tests.chaos import faults
from tests.chaos.faults import Action, Call, Fault
from tests.chaos.forks import Say, in_child
from tests.chaos.writers import ERRORS, WRITERS, Facts, Step, Writer

first_threat("warm")
# Each child would look through all installed packages, and import what it uses.
_entry_points = tuple(installed_entry_points())
hermes_core.memory.installed_entry_points = lambda: iter(_entry_points)  # type: ignore[attr-defined]

ATTEMPTS = 300
ATTEMPT_PAUSE_S = 0.05


def run_steps(writer: Writer, home: HermesHome, start: int, say: Say) -> None:
    """Run the steps from `start` on, and say which returned."""
    with writer.open(home) as opened:
        for number in range(start, len(writer.steps)):
            writer.steps[number](opened)
            say({"progress": number})


def run_under(
    writer: Writer, home: HermesHome, fault: Fault, states: list[list[str]], say: Say, report: int
) -> None:
    """Run the steps under a fault. When one is refused, end the fault and go on in the same process."""
    progress = 0
    fault.arm(home.path, report)
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(writer.open(home))
            for step in writer.steps:
                step(opened)
                progress += 1
                say({"progress": progress})
        except ERRORS as exc:
            calls = faults.count()
            faults.calm()
            say({"text": str(exc), "kind": type(exc).__name__, "calls": calls})
            if not progress and "opened" not in locals():
                opened = stack.enter_context(writer.open(home))
            for step in writer.steps[next_step(progress, sorted(writer.state(home)), states) :]:
                insist(step, opened)
        else:
            say({"calls": faults.count()})


def insist(step: Step, opened: Any) -> None:
    """Run a step that may be refused for a while: a worker looks at the disk again after some seconds."""
    for _ in range(ATTEMPTS):
        with contextlib.suppress(*ERRORS):
            step(opened)
            return
        time.sleep(ATTEMPT_PAUSE_S)
    step(opened)


def next_step(progress: int, facts: list[str], states: list[list[str]]) -> int:
    """Return the number of the step to go on with: the step that was interrupted may have had its effect."""
    had_effect = progress < len(states) - 1 and facts == states[progress + 1] != states[progress]
    return progress + had_effect


class Range:
    """A writer with its first home, and the states that it passes through without a fault."""

    def __init__(self, name: str) -> None:
        self.writer = WRITERS[name]
        shared = Path("/dev/shm")
        where = shared if os.access(shared, os.W_OK) else None  # the disk does not matter, and memory is fast
        self.folder = Path(tempfile.mkdtemp(prefix=f"hermes-chaos-{name}-", dir=where))
        self.template, self.ground = self.folder / "template", self.folder / "ground"
        self.home = HermesHome(self.ground / "home")
        self.states: list[list[str]] = []
        self.calls = 0

    def prepare(self) -> None:
        self.ground.mkdir()
        self._child(lambda say, _: self.writer.prepare(self.home))
        shutil.move(self.ground, self.template)
        self.reset()
        events = self._child(lambda say, _: self._record(say))
        self.states = [event["facts"] for event in events[:-1]]
        self.calls = events[-1]["calls"]
        for name in events[-1]["modules"]:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def _record(self, say: Say) -> None:
        """Say the facts before the first step and after each, and then the number of calls."""
        say({"facts": sorted(self.writer.state(self.home))})
        faults.COUNT.arm(self.home.path)
        calls = 0
        with self.writer.open(self.home) as opened:
            for step in self.writer.steps:
                step(opened)
                calls += faults.count()
                say({"facts": sorted(self.writer.state(self.home))})
                faults.COUNT.arm(self.home.path)
        modules = [name for name in sys.modules if name.startswith("hermes_core.")]
        say({"modules": modules, "calls": calls + faults.count()})

    def reset(self) -> None:
        shutil.rmtree(self.ground, ignore_errors=True)
        shutil.copytree(self.template, self.ground, symlinks=True)

    def state(self) -> list[str]:
        [event] = self._child(lambda say, _: say({"facts": sorted(self.writer.state(self.home))}))
        return list(event["facts"])

    def _child(self, job: Callable[[Say, int], None]) -> list[dict[str, Any]]:
        events, code = in_child(self.home.path, job)
        if code:
            raise AssertionError(f"{self.writer.name}: exit code {code}, {events[-1]['trouble']}")
        return events

    def run(self, fault: Fault) -> dict[str, Any]:
        """Let the steps meet the fault, read the state, run the other steps without it, and compare."""
        self.reset()
        events, code = in_child(
            self.home.path,
            lambda say, report: run_under(self.writer, self.home, fault, self.states, say, report),
        )
        progress = sum("progress" in event for event in events)
        answer: dict[str, Any] = {
            "code": code,
            "progress": progress,
            "steps": len(self.writer.steps),
            "fault": [event["fault"] for event in events if "fault" in event][:1],
            "refusal": next((event for event in events if "text" in event), None),
            "trouble": next((event["trouble"] for event in events if "trouble" in event), ""),
        }
        if answer["trouble"]:
            return answer
        try:
            facts = self.state()
            if answer["refusal"]:  # the same process went on to the end
                progress = len(self.writer.steps)
            answer["trouble"] = self._misfit(frozenset(facts), progress)
            if not answer["trouble"]:
                start = next_step(progress, facts, self.states)
                self._child(lambda say, _: run_steps(self.writer, self.home, start, say))
                facts = self.state()
                answer["trouble"] = self._difference(self.states[-1], facts)
                self._child(lambda say, _: self.writer.verify(self.home))
        except AssertionError as exc:
            answer["trouble"] = str(exc)
        return answer

    def _misfit(self, facts: Facts, progress: int) -> str:
        before, after = (
            frozenset(self.states[min(n, len(self.states) - 1)]) for n in (progress, progress + 1)
        )
        if facts in (before, after):
            return ""
        if self.writer.whole:
            return f"after {progress} steps: {self._difference(self.states[progress], sorted(facts))}"
        lost, strange = (before & after) - facts, facts - (before | after)
        return (
            f"after {progress} steps: lost {sorted(lost)}, strange {sorted(strange)}"
            if lost or strange
            else ""
        )

    @staticmethod
    def _difference(expected: list[str], facts: list[str]) -> str:
        lost, strange = sorted(set(expected) - set(facts)), sorted(set(facts) - set(expected))
        return f"lost {lost}, strange {strange}" if lost or strange else ""


def main() -> None:
    ranges: dict[str, Range] = {}
    try:
        for line in sys.stdin:
            order = json.loads(line)
            name = order["writer"]
            try:
                if name not in ranges:
                    ranges[name] = Range(name)
                    ranges[name].prepare()
                if order.get("fault"):
                    action, at, error, calls = order["fault"]
                    answer = ranges[name].run(Fault(Action(action), at, error, Call(calls)))
                else:
                    answer = {"calls": ranges[name].calls, "steps": len(ranges[name].writer.steps)}
            except Exception:  # noqa: BLE001  the test fails with it
                answer = {"trouble": traceback.format_exc()}
            os.write(1, (json.dumps(answer) + "\n").encode())
    finally:
        for one in ranges.values():
            shutil.rmtree(one.folder, ignore_errors=True)


if __name__ == "__main__":
    main()

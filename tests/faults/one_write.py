"""One turn or one note that meets a fault: `python -m tests.faults.one_write` takes an order a line, and answers each.

An order names the write and the fault. The write is made in a fork, from opening the home to closing it, and what the
program is told is compared with what a new process finds. Before and after it the home is a set of facts, as commands print
them; nothing here knows how they are stored.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_core import HermesHome, Memory, open_memory
from hermes_core.config import set_value
from hermes_core.errors import HermesError
from tests.chaos import faults
from tests.chaos.faults import Action, Call, Fault
from tests.chaos.forks import Say, in_child
from tests.e2e.conftest import FILER
from tests.faults.notes_of import DELIMITER, history, run, shown

FAST = 100.0
"""So many times as fast as the time of day passes the time of pauses before a provider is called again."""

WORD = "persimmon"
"""Word of the write that nothing else holds."""

ATTEMPTS = 300
ATTEMPT_PAUSE_S = 0.05

Facts = dict[str, Any]


class Refused(Exception):
    """An answer of the `memory` tool that tells that nothing was stored."""


def open_fast(home: HermesHome) -> contextlib.AbstractContextManager[Memory]:
    return open_memory(home, clock=lambda: time.monotonic() * FAST)


def add_note(memory: Memory, text: str) -> str:
    """Add a note, and return the warning of its answer; raise `Refused` if it says that it is not stored."""
    answer = memory.change_memory("add", "memory", text, session=memory.start_session("s"))
    if not answer["success"]:
        raise Refused("; ".join(filter(None, (answer["error"], answer.get("remediation")))))
    return str(answer.get("warning", ""))


def take_turn(memory: Memory, text: str) -> str:
    """Begin and finish a turn, and return "". A host gives a turn its id, so that it can go on after a refusal."""
    memory.conversation("s").turn(text, turn_id=f"turn {text}").finish(f"Answer: {text}")
    return ""


WRITES: dict[str, Callable[[Memory, str], str]] = {"note": add_note, "turn": take_turn}


def prepare(home: HermesHome) -> None:
    """Make a home with a provider, a note and a turn, all of which the provider has."""
    folder = home.plugins / "filer"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(FILER)
    set_value(home, "memory.provider", "filer")
    with open_fast(home) as memory:
        assert not add_note(memory, "Likes tea")
        take_turn(memory, "The harbour is foggy")
        assert memory.flush(60)


def read(home: HermesHome) -> Facts:
    """Return the facts of a home, as commands print them, and assert that they agree with one another."""
    entries = shown()
    assert home.memory_md.read_text() == DELIMITER.join(entry for entry, _ in entries)
    assert history()[0]["after"] == [entry for entry, _ in entries]
    assert json.loads(run("sessions", "check", "--json").stdout)["faults"] == []
    assert run("verify").exit_code == 0
    messages = json.loads(run("sessions", "show", "s", "--json").stdout)
    found = json.loads(run("sessions", "search", WORD, "--json").stdout)
    return {
        "notes": [list(entry) for entry in entries],
        "messages": [[one["role"], one["content"], one["origin"]] for one in messages],
        "found": len(found),
    }


def deliver(home: HermesHome) -> Facts:
    """Deliver what waits, assert that the provider has each note and each turn and nothing else, and return the facts."""
    with open_fast(home) as memory:
        memory.start_session("s")
        assert memory.flush(60)
    # A write that failed may have left the beginning of a line before the next one.
    lines = (home.path / "taken.jsonl").read_text().splitlines()
    calls = [json.loads(line[line.rindex('{"kind"') :]) for line in lines if line.endswith("}")]
    taken = {kind: {call["text"] for call in calls if call["kind"] == kind} for kind in ("turn", "write")}
    facts = read(home)
    assert taken["write"] == {entry for entry, _ in facts["notes"]}
    assert taken["turn"] == {text for role, text, _ in facts["messages"] if role == "user"}
    return facts


def warm() -> None:
    """Do once what forks do, so that they have its imports and caches."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
        home = HermesHome(Path(folder, "home"))
        os.environ["HERMES_HOME"] = str(home.path)
        prepare(home)
        deliver(home)
    assert threading.active_count() == 1, "a fork would lack the other threads"
    gc.collect()
    gc.freeze()  # else the collector of each fork would copy what all of them share


class Trial:
    """A home with a write to come, and its facts before and after it."""

    def __init__(self, write: str) -> None:
        self.write, self.text = WRITES[write], f"A {WORD} floats in the {write}"
        shared = Path("/dev/shm")
        where = shared if os.access(shared, os.W_OK) else None  # the disk does not matter, and memory is fast
        self.folder = Path(tempfile.mkdtemp(prefix="hermes-faults-", dir=where))
        self.template, self.ground = self.folder / "template", self.folder / "ground"
        self.home = HermesHome(self.ground / "home")
        self.ground.mkdir()
        self._do(lambda say, _: prepare(self.home))
        shutil.move(self.ground, self.template)
        self._reset()
        self.before = self._facts(deliver)
        self.calls()
        self.after = self._facts(deliver)
        assert self.before != self.after

    def calls(self, kinds: Call = Call.CHANGE) -> int:
        """Make the write without a fault, and return the number of its calls of these kinds."""
        self._reset()
        fault = Fault(Action.FAIL_ONCE, 0, calls=kinds)
        events = self._do(lambda say, report: self._write(fault, say, report))
        return int(next(event["calls"] for event in events if "calls" in event))

    def run(self, fault: Fault) -> dict[str, Any]:
        """Let the write meet the fault. Compare what was said of it with the facts, then end it in a new process.

        If it was refused, do the same in a home where the program goes on when the fault is over.
        """
        self._reset()
        events, code = in_child(self.home.path, lambda say, report: self._write(fault, say, report))
        answer = {name: value for event in events for name, value in event.items()}
        answer["code"] = code
        if "trouble" in answer or "said" not in answer:
            return {"trouble": "the program ended without a word", **answer}
        try:
            self._compare(answer)
            if answer["said"] == "refused":
                self._reset()
                self._do(lambda say, report: self._insist(fault, report))
                assert self._facts(deliver) == self.after, "the program went on"
        except AssertionError as exc:
            answer["trouble"] = str(exc) or traceback.format_exc()
        return answer

    def _compare(self, answer: dict[str, Any]) -> None:
        facts = self._facts(read)
        assert facts in ([self.after] if answer["said"] == "stored" else [self.before, self.after]), facts
        output = (self.ground / "output").read_text()
        assert "Traceback" not in output, output
        answer["there"] = facts == self.after
        assert self._facts(lambda home: self._write_again(home, answer["there"])) == self.after, (
            "the next program"
        )

    def _write(self, fault: Fault, say: Say, report: int) -> None:
        """Open the home, write, and close it, under the fault; say what the program was told."""
        fault.arm(self.home.path, report)
        said = False
        try:
            with open_fast(self.home) as memory:
                warning = self.write(memory, self.text)
                said = True
                say({"said": "stored", "warning": warning})
        except (HermesError, Refused) as exc:
            say({"closed": str(exc)} if said else {"said": "refused", "text": str(exc)})
        say({"calls": faults.count()})

    def _write_again(self, home: HermesHome, there: bool) -> Facts:
        if not there:
            with open_fast(home) as memory:
                self.write(memory, self.text)
        return deliver(home)

    def _insist(self, fault: Fault, report: int) -> None:
        """Write under the fault, and again without it in the same program until it is stored."""
        fault.arm(self.home.path, report)
        with contextlib.ExitStack() as stack:
            try:
                memory = stack.enter_context(open_fast(self.home))
                self.write(memory, self.text)
            except (HermesError, Refused):
                faults.calm()
                if "memory" not in locals():
                    memory = stack.enter_context(open_fast(self.home))
                facts = read(self.home)
                # A worker looks at a disk again after some seconds.
                for attempt in range(ATTEMPTS if facts != self.after else 0):
                    try:
                        self.write(memory, self.text)
                        break
                    except (HermesError, Refused):
                        assert attempt < ATTEMPTS - 1
                        time.sleep(ATTEMPT_PAUSE_S)
            faults.calm()

    def _facts(self, read: Callable[[HermesHome], Facts]) -> Facts:
        """Return the facts that a new process reads."""
        events = self._do(lambda say, _: say(read(self.home)))
        return events[0]

    def _do(self, job: Callable[[Say, int], None]) -> list[dict[str, Any]]:
        """Run a job in a fork, and return what it said."""
        events, code = in_child(self.home.path, job)
        assert code == 0, f"exit code {code}: {events[-1:]}"
        return events

    def _reset(self) -> None:
        shutil.rmtree(self.ground, ignore_errors=True)
        shutil.copytree(self.template, self.ground, symlinks=True)


def main() -> None:
    warm()
    trials: dict[str, Trial] = {}
    try:
        for line in sys.stdin:
            order = json.loads(line)
            name = order["writer"]
            try:
                if name not in trials:
                    trials[name] = Trial(name)
                if "fault" in order:
                    action, at, error, calls = order["fault"]
                    answer = trials[name].run(Fault(Action(action), at, error, Call(calls)))
                else:
                    answer = {"calls": trials[name].calls(Call(order["kinds"]))}
            except Exception:  # noqa: BLE001  the test fails with it
                answer = {"trouble": traceback.format_exc()}
            os.write(1, (json.dumps(answer) + "\n").encode())
    finally:
        for trial in trials.values():
            shutil.rmtree(trial.folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""Bad days: a backend that is away for long, one whose answers get lost, and a process that is killed meanwhile.

For suites that override `outage`, `received` and, where the backend allows it, `lost_answers`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest

from hermes_core import Session
from hermes_core.testing.contract.run import BOATHOUSE, TORTOISE, Fact, Run, turn_of
from hermes_core.testing.contract.suite import Suite

TURNS = 50
"""Turns of an outage: what a busy person says in ten minutes."""

PACE = 12.0
"""Seconds from one of them to the next."""

A_WHILE = 3600.0
"""Seconds after which every backoff and breaker has run out."""

SPOKEN = 20
"""Turns that the process to be killed has said when it is killed."""

LAST_WORDS = """
import importlib, sys
from hermes_core import HermesHome, MemoryManager, Session, Turn
module, name, home, path = sys.argv[1:5]
sys.path[:0] = path.split("\\n")
make = importlib.import_module(module)
for part in name.split("."):
    make = getattr(make, part)
manager = MemoryManager(HermesHome.resolve(home), start_wait=30.0)
session = Session("s1", home=home)
assert manager.add_provider(make()), manager.health()
manager.initialize_all(session)
for number in range(10_000):
    text, answer = f"Remark {number} is kept.", "I will keep that in mind."
    messages = ({"role": "user", "content": text}, {"role": "assistant", "content": answer})
    manager.sync_all(Turn(f"turn-{number}", number, text, answer, messages, at=1.7e9 + number), session)
    print(number, flush=True)
    if number == 5:
        manager.flush(0.5)
"""
"""What the process does that is killed: it says remarks, one line for each that was acknowledged. The pause lets some be
delivered, so that it is killed in the middle."""


class Outage(Suite):
    """Turns of a long outage, of lost answers and of a killed process."""

    def test_an_outage_of_ten_minutes_loses_no_turn(self) -> None:
        session = self._recorded()
        said = [f"Remark {number} is kept." for number in range(TURNS)]
        self._bears_one_turn(session)
        with self._of("outage()", self.outage()):
            for text in said:
                self.run.turn(Fact(text, text, text), session)
                self.run.manager.flush(0.05)
                self.run.clock.skip(PACE)
        self._all_arrive(self.run, said, "what was said in an outage", once=self.exactly_once)

    def test_a_turn_whose_answer_was_lost_is_kept_once(self) -> None:
        session = self._recorded()
        if not self.exactly_once:
            self.not_claimed("exactly_once is False: a turn may be there twice")
        if self._repeats(session):
            self.not_run("a turn that comes twice is kept twice on good days too")
        said = ["Remark 0 is kept.", "Remark 1 is kept."]
        with self._of("lost_answers()", self.lost_answers()):
            self.run.turn(Fact(said[0], said[0], said[0]), session)
            self.run.delivered()
        self.run.turn(Fact(said[1], said[1], said[1]), session)
        self._all_arrive(self.run, said, "what was sent when answers got lost")

    def test_a_killed_process_loses_no_turn(self) -> None:
        once = self.exactly_once and not self._repeats(self._recorded())
        spoken = self._killed_in_mid_sentence()
        later = self.open()
        later.ready(later.session())
        said = [f"Remark {number} is kept." for number in range(spoken)]
        self._all_arrive(later, said, "of a killed process", once=once)

    # ------------------------------------------------------------------ private

    def _recorded(self) -> Session:
        """A session of a provider that takes turns on good days, and whose backend can be looked into."""
        session = self.started("sync_turn")
        if self.received() is None:
            self.not_claimed("received() is not overridden")
        self.run.store(TORTOISE, session, "sync_turn")
        if not self.kept(TORTOISE):
            self.not_run("the backend does not have what was said on a good day either")
        return session

    def _bears_one_turn(self, session: Session) -> None:
        """An outage of one turn. What goes wrong in so short a one is another check's finding."""
        for context, fine in ((self._of("outage()", self.outage()), False), (nullcontext(), True)):
            with context:
                outcome = self.run.ask("sync_turn", turn=turn_of(BOATHOUSE.said), session=session)
            self.run.clock.skip(A_WHILE)
            if outcome.ok is not fine:
                self.not_run(
                    f"sync_turn() {'after' if fine else 'in'} an outage of one turn: {outcome.status}"
                )

    def _repeats(self, session: Session) -> bool:
        """Whether a turn that comes twice is there twice, without any outage."""
        turn = turn_of(BOATHOUSE.said)
        for _ in range(2):
            self.run.need("sync_turn", turn=turn, session=session)
        return (self.received() or ()).count(BOATHOUSE.said) > 1

    def _of(
        self, name: str, context: AbstractContextManager[object] | None
    ) -> AbstractContextManager[object]:
        if context is None:
            self.not_claimed(f"{name} is not overridden")
        return context

    def _all_arrive(self, run: Run, said: Sequence[str], what: str, *, once: bool = True) -> None:
        """After a while the backend has what was said: all of it, in order, and, if `once`, without repeats."""
        for _ in range(len(said) + 1):
            run.clock.skip(A_WHILE)
            if run.manager.flush(10.0):
                break
        got = [text for text in self.received() or () if text.startswith("Remark ")]
        order = list(dict.fromkeys(got))
        lost = [text for text in said if text not in order]
        if lost:
            waiting = run.delivered() or "all is delivered as far as the host can tell"
            self.fault(
                f"{what}: {len(lost)} of {len(said)} turns never arrive, {lost[0]!r} first ({waiting})",
                "raise BackendUnavailable for what was not taken; return only when the backend has it",
            )
        if order[: len(said)] != list(said):
            self.fault(
                f"{what}: the turns arrive out of order",
                "send each in the call that brings it; keep none back",
            )
        if once and len(got) != len(order):
            self.fault(
                f"{what}: {len(got) - len(order)} turns are there twice",
                "use turn.id as the backend's key, or look it up before you send; else say exactly_once = False",
            )

    def _killed_in_mid_sentence(self) -> int:
        """Let another process talk, kill it, and say how many turns were acknowledged by then."""
        cls = type(self.run.provider)
        self.run.close()
        if self.foreign or not _found_by_name(cls):
            self.not_claimed("its class can't be made by another process")
        arguments = (cls.__module__, cls.__qualname__, str(self.home.path), "\n".join(sys.path))
        child = subprocess.Popen(
            [sys.executable, "-c", LAST_WORDS, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "HERMES_HOME": str(self.home.path)},
        )
        assert child.stdout is not None
        assert child.stderr is not None
        spoken = 0
        while spoken < SPOKEN and child.stdout.readline():
            spoken += 1
        child.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        rest, errors = child.communicate()
        if spoken < SPOKEN:
            pytest.fail(f"the provider can't talk in a process of its own: {errors.decode().strip()[-800:]}")
        return spoken + rest.count(b"\n")


def _found_by_name(cls: type) -> bool:
    """Whether another process that imports the module of `cls` finds it there."""
    found: object = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls

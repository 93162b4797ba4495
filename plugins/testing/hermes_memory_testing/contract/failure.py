"""Time and trouble: hooks keep their deadlines, and a backend that is down is told, not hidden."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from hermes_core import Delegation, MemoryWrite, Query, Session, SessionSwitch, ToolCall
from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import MemoryRecord
from hermes_memory_testing.contract.inputs import sample
from hermes_memory_testing.contract.suite import (
    BOATHOUSE,
    LATE_START,
    NO_ANSWER,
    TORTOISE,
    Fact,
    Run,
    Suite,
    completed_turn,
    messages_of,
)

A_WHILE = 3600.0
"""Seconds after which every backoff and breaker has run out."""


class _Reader:
    """A transcript of one exchange."""

    def messages(self) -> Any:
        return messages_of([TORTOISE.said])


class FailureChecks(Suite):
    """Deadlines of every hook, and outages of the backend (for suites that override `outage`)."""

    def test_it_is_looked_at_in_time(self) -> None:
        run = self.run
        late = [
            f"{hook}: {NO_ANSWER} {self._hung[hook]:g} s"
            for hook in ("is_available", "get_tool_schemas")
            if hook in self._hung
        ] or [text for text in (run.health.reason, *run.health.warnings) if NO_ANSWER in text]
        if late:
            self.fault(late[0], "no network, no imports of large packages; find out what is there and answer")

    def test_it_starts_in_time(self) -> None:
        run = self.run
        if not run.accepted:
            self.not_run("it is not accepted")
        deadline = self._hung.get("initialize", run.deadlines["initialize"])
        if LATE_START in run.start(run.session()):
            self.fault(
                f"initialize has not returned after {deadline:g} s",
                "open connections with a timeout; leave slow work (models, migrations of data) to the first use",
            )

    @pytest.mark.parametrize(
        "hook", [h for h in POLICIES if h not in ("is_available", "get_tool_schemas", "initialize")]
    )
    def test_hooks_keep_their_deadlines(self, hook: str) -> None:
        late, deadline = hook in self._hung, self._hung.get(hook, 0.0)
        if not late:
            session = self.started(hook)
            deadline = self.run.deadlines[hook]
            outcome = self.run.ask(hook, **hook_arguments(hook, self.run, session))
            # On a busy machine the thread may come to it after a good part of the deadline: then it is "skipped".
            late = outcome.status in ("late", "skipped") and bool(outcome.elapsed)
        if late:
            self.fault(
                f"{hook} has not returned after {deadline:g} s",
                "give the client a timeout below the deadline, and raise BackendUnavailable when it passes",
            )

    def test_a_turn_in_an_outage_is_not_taken(self) -> None:
        session = self.started("sync_turn")
        with self._outage():
            outcome = self.run.ask("sync_turn", turn=completed_turn(TORTOISE.said), session=session)
        if outcome.ok:
            self.fault(
                "with the backend down, sync_turn returns as if the turn were stored",
                "raise BackendUnavailable: the turn stays in the outbox and comes again",
            )

    def test_recall_in_an_outage_fails(self) -> None:
        session = self.started("prefetch")
        with self._outage():
            outcome = self.run.ask(
                "prefetch", query=Query(TORTOISE.question, now=time.time()), session=session
            )
        if outcome.ok and not outcome.value:
            self.fault(
                "with the backend down, prefetch says that nothing is remembered",
                "raise BackendUnavailable: the person is told, and what was warmed is used",
            )

    def test_tools_in_an_outage_say_so(self) -> None:
        session = self.started("get_tool_schemas", "handle_tool_call")
        for schema in self.run.manager.get_all_tool_schemas():
            call = ToolCall(schema["name"], sample(schema["parameters"]))
            with self._outage():
                outcome = self.run.ask("handle_tool_call", call=call, session=session)
            if outcome.ok and "error" not in str(outcome.value).lower():
                self.fault(
                    f"with the backend down, {schema['name']} answers {str(outcome.value)[:80]!r}",
                    'raise BackendUnavailable, or answer {"error": ...}',
                )

    def test_it_recovers_from_an_outage(self) -> None:
        session = self.started("sync_turn")
        self.run.need("sync_turn", turn=completed_turn(BOATHOUSE.said), session=session)
        with self._outage():
            self.run.turn(TORTOISE, session)
            if not self.run.delivered():
                self.not_run("it takes turns in an outage")
        self.run.clock.skip(A_WHILE)
        if not self.run.manager.flush(self.run.deadlines["sync_turn"]):
            self.fault(
                f"after the outage the turn is still not taken: {self.run.health.reason or self.run.delivered()}",
                "try again on every call; keep no memory of a failure on self",
            )

    # ------------------------------------------------------------------ private

    def _outage(self) -> AbstractContextManager[object]:
        context = self.outage()
        if context is None:
            self.not_claimed("outage() is not overridden")
        return context


def hook_arguments(hook: str, run: Run, session: Session) -> dict[str, Any]:
    """Return ordinary arguments for one hook."""
    make: dict[str, Callable[[], dict[str, Any]]] = {
        "register_cli": lambda: {"group": _group(run.name)},
        "on_turn_start": lambda: {"turn_number": 1, "message": TORTOISE.said, "author": ""},
        "prefetch": lambda: {"query": Query(TORTOISE.question, now=time.time())},
        "queue_prefetch": lambda: {"query": Query(TORTOISE.question, now=time.time())},
        "handle_tool_call": lambda: {"call": _call(run)},
        "export_memories": lambda: {"cursor": ""},
        "import_memory": lambda: {"record": MemoryRecord(TORTOISE.said)},
        "sync_turn": lambda: {"turn": completed_turn(TORTOISE.said)},
        "on_memory_write": lambda: {"write": MemoryWrite(_id(), "add", "memory", TORTOISE.said)},
        "on_delegation": lambda: {"delegation": Delegation(_id(), "Find it.", BOATHOUSE.said)},
        "on_pre_compress": lambda: {"messages": messages_of([TORTOISE.said]), "compression_count": 0},
        "on_session_end": lambda: {"reader": _Reader(), "reason": "close"},
        "forget_user": lambda: {"user": session.owner},
        "on_session_switch": lambda: {
            "switch": SessionSwitch(_id(), session, run.session("s2", parent_id=session.id), "branch")
        },
    }
    own = make[hook]() if hook in make else {}
    without_session = ("shutdown", "backup_paths", "register_cli", "on_session_switch")
    return own if hook in without_session else {**own, "session": session}


def _call(run: Run) -> ToolCall:
    schemas = run.manager.get_all_tool_schemas()
    return ToolCall(schemas[0]["name"], sample(schemas[0]["parameters"])) if schemas else ToolCall("none", {})


def _group(name: str) -> Any:
    import click

    return click.Group(name)


def _id() -> str:
    return uuid.uuid4().hex


TURNS = 50
"""Turns of an outage: what a busy person says in ten minutes."""

PACE = 12.0
"""Seconds from one of them to the next."""


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


class OutageChecks(Suite):
    """Turns of a long outage, of lost answers and of a killed process."""

    def test_an_outage_of_ten_minutes_loses_no_turn(self) -> None:
        session = self._recorded()
        said = [f"Remark {number} is kept." for number in range(TURNS)]
        self._bears_one_turn(session)
        with self._of("outage()", self.outage()):
            for text in said:
                self.run.turn(Fact(text, text, text), session)
                # Long enough for one try that fails at once; the outage goes on without waiting for a backoff.
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
        """Skip the check unless the provider comes through an outage of one turn, which another check covers."""
        for context, fine in ((self._of("outage()", self.outage()), False), (nullcontext(), True)):
            with context:
                outcome = self.run.ask("sync_turn", turn=completed_turn(BOATHOUSE.said), session=session)
            self.run.clock.skip(A_WHILE)
            if outcome.ok is not fine:
                self.not_run(
                    f"sync_turn() {'after' if fine else 'in'} an outage of one turn: {outcome.status}"
                )

    def _repeats(self, session: Session) -> bool:
        """Return True if a turn that comes twice is stored twice, without any outage."""
        turn = completed_turn(BOATHOUSE.said)
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
        """Fail unless the backend has all texts after a while, in order and, if `once`, without repeats."""
        for _ in range(len(said) + 1):
            run.clock.skip(A_WHILE)
            # Each turn may have its own backoff, so the clock is moved once for each of them.
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
        """Start a process that stores turns, kill it, and return the number of turns that it had acknowledged."""
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
        # Windows has no SIGKILL; its SIGTERM ends a process at once too.
        child.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        rest, errors = child.communicate()
        if spoken < SPOKEN:
            pytest.fail(f"the provider can't talk in a process of its own: {errors.decode().strip()[-800:]}")
        return spoken + rest.count(b"\n")


def _found_by_name(cls: type) -> bool:
    """Return True if another process that imports the module of `cls` finds the class in it."""
    found: object = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls

"""Time and trouble: hooks keep their deadlines, and a backend that is down is told, not hidden."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from hermes_core import Delegation, MemoryWrite, Query, Session, SessionSwitch, ToolCall
from hermes_core.contract.hooks import POLICIES
from hermes_core.testing.contract.run import (
    BOATHOUSE,
    LATE_START,
    NO_ANSWER,
    TORTOISE,
    Run,
    messages_of,
    turn_of,
)
from hermes_core.testing.contract.schema import sample
from hermes_core.testing.contract.suite import Suite

A_WHILE = 3600.0
"""Seconds after which every backoff and breaker has run out."""


class _Reader:
    """A transcript of one exchange."""

    def messages(self) -> Any:
        return messages_of([TORTOISE.said])


class Failure(Suite):
    """Deadlines of every hook, and outages of the backend (for suites that override `outage`)."""

    def test_it_is_looked_at_in_time(self) -> None:
        run = self.run
        late = [text for text in (run.health.reason, *run.health.warnings) if NO_ANSWER in text]
        if late:
            self.fault(late[0], "no network, no imports of large packages; find out what is there and answer")

    def test_it_starts_in_time(self) -> None:
        run = self.run
        if not run.accepted:
            self.not_run("it is not accepted")
        trouble = run.start(run.session())
        if LATE_START in trouble:
            self.fault(
                f"initialize has not returned after {run.deadlines['initialize']:g} s",
                "open connections with a timeout; leave slow work (models, migrations of data) to the first use",
            )

    @pytest.mark.parametrize(
        "hook", [h for h in POLICIES if h not in ("is_available", "get_tool_schemas", "initialize")]
    )
    def test_hooks_keep_their_deadlines(self, hook: str) -> None:
        session = self.started(hook)
        outcome = self.run.ask(hook, **arguments_of(hook, self.run, session))
        # On a busy machine the thread may come to it after a good part of the deadline: then it is "skipped".
        if outcome.status in ("late", "skipped") and outcome.elapsed:
            self.fault(
                f"{hook} has not returned after {self.run.deadlines[hook]:g} s",
                "give the client a timeout below the deadline, and raise BackendUnavailable when it passes",
            )

    def test_a_turn_in_an_outage_is_not_taken(self) -> None:
        session = self.started("sync_turn")
        with self._outage():
            outcome = self.run.ask("sync_turn", turn=turn_of(TORTOISE.said), session=session)
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
        self.run.need("sync_turn", turn=turn_of(BOATHOUSE.said), session=session)
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


def arguments_of(hook: str, run: Run, session: Session) -> dict[str, Any]:
    """Ordinary arguments of one hook."""
    make: dict[str, Callable[[], dict[str, Any]]] = {
        "register_cli": lambda: {"group": _group(run.name)},
        "on_turn_start": lambda: {"turn_number": 1, "message": TORTOISE.said},
        "prefetch": lambda: {"query": Query(TORTOISE.question, now=time.time())},
        "queue_prefetch": lambda: {"query": Query(TORTOISE.question, now=time.time())},
        "handle_tool_call": lambda: {"call": _call(run)},
        "sync_turn": lambda: {"turn": turn_of(TORTOISE.said)},
        "on_memory_write": lambda: {"write": MemoryWrite(_id(), "add", "memory", TORTOISE.said)},
        "on_delegation": lambda: {"delegation": Delegation(_id(), "Find it.", BOATHOUSE.said)},
        "on_pre_compress": lambda: {"messages": messages_of([TORTOISE.said]), "compression_count": 0},
        "on_session_end": lambda: {"reader": _Reader(), "reason": "close"},
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

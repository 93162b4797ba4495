"""One life of an agent against providers that fail: what they are told does not change, it only comes later."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.contract.hooks import POLICIES
from hermes_core.errors import BackendRefused, BackendUnavailable
from hermes_core.outbox.delivery import MAX_ATTEMPTS
from hermes_memory_testing.fakes import Clock, RecordingProvider
from hermes_memory_testing.model_server import Reply
from tests.manager.conftest import until
from tests.outbox_of import end_pauses

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

ADD = ("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
DURABLE = [hook for hook, policy in POLICIES.items() if policy.durable and hook != "forget_user"]
FIRST = ["on_memory_write", "sync_turn", "sync_turn", "on_delegation", "on_session_end", "on_session_switch"]
SECOND = ["sync_turn", "on_session_switch", "sync_turn", "on_session_end"]
LIFE = FIRST + SECOND
BOUND = 30.0
"""Seconds that a life may take whose provider hangs for good. A handful of deadlines and the two seconds of a start are 8.

The rest is for a busy machine.
"""


UNSENT = ["on_session_switch", "sync_turn", "on_session_end"]
"""The second session where its turn was taken back before it was sent; the switch is told nevertheless."""

ON_REQUEST = {
    *("check", "backup_paths", "pending_writes", "register_cli", "export_memories", "import_memory"),
    "forget_user",
}
LIVES = [hook for hook in POLICIES if hook not in ON_REQUEST]
"""The hooks of a life; the others are asked by a person."""

SOON = 0.1
QUICK = {**dict.fromkeys(LIVES, SOON), "initialize": 5.0, "is_available": 5.0}
"""Deadlines for providers that hang; a start that does not may take its time on a busy machine."""


def live(stage: Stage, memory: Any, arrived: Callable[[], bool] | None = None) -> None:
    """Two turns with a memory write, a delegation, a new session, a turn taken back, another one, the end.

    `arrived` waits for the first of them to arrive before one is taken back.
    """
    agent = stage.agent(memory)
    stage.script(Reply(calls=[ADD]), Reply("Yes."))
    assert agent.run_turn("I live in Oslo.").outcome == "answered"
    assert agent.run_turn("Go on.").outcome == "answered"
    agent.delegate("Count.")
    agent.new()
    assert agent.run_turn("Anew.").outcome == "answered"
    assert (arrived or (lambda: memory.flush(30)))()
    agent.undo()
    assert agent.run_turn("Again.").outcome == "answered"
    agent.close()


def ids(calls: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, str]]:
    """Hook and id of each durable call, in order."""
    found = []
    for hook, arguments in calls:
        if hook in DURABLE:
            value = next(
                (v for v in arguments.values() if hasattr(v, "id") and not hasattr(v, "scope")), None
            )
            found.append((hook, value.id if value is not None else arguments["session"].id))
    return found


def by_session(calls: list[tuple[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """The durable hooks of each session, in order: a session waits for its own rows, not for those of another."""
    found: dict[str, list[str]] = {}
    for hook, arguments in calls:
        if hook in DURABLE:
            session = arguments["switch"].old if "switch" in arguments else arguments["session"]
            found.setdefault(session.id, []).append(hook)
    return found


class Stumbling(RecordingProvider):
    """Raises at the first try of each call of the chosen hooks, and does it at the second."""

    def __init__(self, *hooks: str) -> None:
        super().__init__()
        self.hooks_that_fail = hooks
        self.tried: list[tuple[str, dict[str, Any]]] = []

    def answer(self, hook: str, **arguments: Any) -> Any:
        if hook in self.hooks_that_fail:
            (key,) = ids([(hook, arguments)])
            first = key not in ids(self.tried)
            self.tried.append((hook, arguments))
            if first:
                raise BackendUnavailable("the backend is asleep")
        return super().answer(hook, **arguments)


def test_a_sound_provider_is_told_of_a_life_in_order(stage: Stage) -> None:
    live(stage, stage.memory)
    assert stage.told(durable=True) == LIFE


@pytest.mark.slow
@pytest.mark.parametrize("hook", DURABLE)
def test_a_provider_that_fails_at_first_is_told_the_same_with_the_same_ids(stage: Stage, hook: str) -> None:
    provider = Stumbling(hook)
    memory = stage.open_memory(provider)
    live(stage, memory)
    assert memory.flush(30)
    assert sorted(by_session(provider.calls).values()) == sorted([FIRST, SECOND])
    assert set(Counter(ids(provider.tried)).values()) == {2}, "each was tried again under its own id"


@pytest.mark.parametrize(
    "hook", [h for h, p in POLICIES.items() if p.worker == "read" and p.moment in ("turn", "boundary")]
)
def test_a_read_that_raises_changes_nothing_of_what_is_told(stage: Stage, hook: str) -> None:
    stage.provider.results[hook] = BackendUnavailable("the backend is asleep")
    live(stage, stage.memory)
    assert stage.told(durable=True) == LIFE


def refused(memory: Any, clock: Clock) -> bool:
    """Let time pass until each write was taken or is a dead letter."""
    for _ in range(200):
        clock.advance(61)
        end_pauses(memory.home)
        if memory.flush(0.1):
            return True
    return False


@pytest.mark.parametrize("hook", DURABLE)
def test_what_a_provider_refuses_is_repeated_under_its_id_until_it_is_parked(stage: Stage, hook: str) -> None:
    clock, provider = Clock(), RecordingProvider()
    provider.results[hook] = BackendRefused("not this one")
    memory = stage.open_memory(provider, clock=clock)
    live(stage, memory, lambda: refused(memory, clock))
    assert refused(memory, clock)
    tried = [(name, given) for name, given in provider.calls if name == hook]
    dead = memory.manager.outbox.dead_letters()
    assert set(Counter(ids(tried)).values()) == {MAX_ATTEMPTS}
    assert {row.hook for row in dead} == {hook}
    assert len(dead) == LIFE.count(hook) - (hook == "sync_turn"), "the turn taken back goes with its row"
    told = [(name, given) for name, given in provider.calls if name != hook]
    rest = [[name for name in session if name != hook] for session in (FIRST, SECOND)]
    assert sorted(by_session(told).values()) == sorted(rest)
    assert len(ids(told)) == len(set(ids(told)))


class Slow(RecordingProvider):
    """Takes three times its deadline for each call of one hook."""

    def __init__(self, hook: str) -> None:
        super().__init__()
        self._hook = hook

    def answer(self, hook: str, **arguments: Any) -> Any:
        if hook == self._hook:
            threading.Event().wait(3 * QUICK[hook])
        return super().answer(hook, **arguments)


@pytest.mark.parametrize("hook", DURABLE)
def test_a_write_that_comes_late_counts_and_is_not_repeated(stage: Stage, hook: str) -> None:
    provider = Slow(hook)
    memory = stage.open_memory(provider, deadlines=QUICK)
    live(stage, memory)
    assert memory.flush(30)
    assert sorted(by_session(provider.calls).values()) == sorted([FIRST, SECOND])
    told = ids(provider.calls)
    assert len(told) == len(set(told)), "none twice"


@pytest.mark.parametrize("hook", DURABLE)
def test_a_write_that_does_not_return_holds_nobody_and_is_not_sent_again_while_it_runs(
    stage: Stage, hook: str
) -> None:
    provider = RecordingProvider()
    provider.gates[hook] = threading.Event()
    memory = stage.open_memory(provider, deadlines=QUICK)
    began = time.monotonic()
    live(stage, memory, lambda: provider.wait_for(hook))
    assert time.monotonic() - began < BOUND
    memory.close(1.0)
    assert time.monotonic() - began < BOUND + 2.0

    again = RecordingProvider()
    other = stage.open_memory(again)
    session = other.start_session()
    assert not other.flush(1)
    assert any(f"{hook} of session" in problem for problem in other.begin_turn(session, "Well?").problems)
    assert ids(again.calls) == []
    provider.gates[hook].set()
    assert until(lambda: other.flush(30))
    told = [*provider.calls, *again.calls]
    assert sorted(by_session(told).values()) == sorted([FIRST, UNSENT])
    assert len(ids(told)) == len(set(ids(told))), "none twice"


@pytest.mark.parametrize("hook", [hook for hook in LIVES if hook not in DURABLE])
def test_a_hook_that_hangs_is_waited_for_within_its_deadline_and_changes_nothing(
    stage: Stage, hook: str
) -> None:
    provider = RecordingProvider()
    gate = provider.gates[hook] = threading.Event()
    memory = stage.open_memory(provider, deadlines={**QUICK, hook: SOON})
    began = time.monotonic()
    blocked = hook in ("initialize", "is_available")
    live(stage, memory, lambda: memory.flush(1 if blocked else 30) or blocked)
    assert time.monotonic() - began < BOUND
    if hook == "is_available":
        assert memory.manager.health()[1].state == "failed"
    if hook == "shutdown":
        assert memory.flush(30)
        memory.close(1.0)
        assert time.monotonic() - began < BOUND + 2.0
    gate.set()
    assert "shutdown" in provider.hooks or memory.flush(30)
    expected = {"is_available": [], "initialize": [FIRST, UNSENT]}.get(hook, [FIRST, SECOND])
    assert sorted(by_session(provider.calls).values()) == sorted(expected)


@pytest.mark.parametrize("hook", ["get_tool_schemas", "system_prompt_block", "shutdown"])
def test_a_start_or_an_end_that_raises_changes_nothing_of_what_is_told(stage: Stage, hook: str) -> None:
    stage.provider.results[hook] = RuntimeError("broken")
    live(stage, stage.memory)
    assert stage.told(durable=True) == LIFE
    stage.memory.close(2.0)


def test_a_start_that_raises_is_tried_again_and_then_told_everything(stage: Stage) -> None:
    clock = Clock()
    stage.provider.results["initialize"] = BackendUnavailable("the backend is asleep")
    memory = stage.open_memory(stage.provider, clock=clock)
    live(stage, memory, lambda: not memory.flush(0.1))
    assert by_session(stage.provider.calls) == {}
    del stage.provider.results["initialize"]
    clock.advance(61)
    memory.start_session()
    assert memory.flush(30)
    assert sorted(by_session(stage.provider.calls).values()) == sorted([FIRST, UNSENT])

"""One life of an agent against providers that fail: what they are told does not change, it only comes later."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.contract.hooks import POLICIES
from hermes_core.errors import BackendUnavailable
from hermes_core.testing.fakes import RecordingProvider
from hermes_core.testing.model_server import Reply

if TYPE_CHECKING:
    from tests.agent.conftest import Stage

ADD = ("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
DURABLE = [hook for hook, policy in POLICIES.items() if policy.durable]
FIRST = ["on_memory_write", "sync_turn", "sync_turn", "on_delegation", "on_session_end", "on_session_switch"]
SECOND = ["sync_turn", "on_session_switch", "sync_turn", "on_session_end"]
LIFE = FIRST + SECOND


def live(stage: Stage, memory: Any) -> None:
    """Two turns with a memory write, a delegation, a new session, a turn taken back, another one, the end."""
    agent = stage.agent(memory)
    stage.script(Reply(calls=[ADD]), Reply("Yes."))
    assert agent.run_turn("I live in Oslo.").outcome == "answered"
    assert agent.run_turn("Go on.").outcome == "answered"
    agent.delegate("Count.")
    agent.new()
    assert agent.run_turn("Anew.").outcome == "answered"
    assert memory.flush(30)
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
    "hook", [h for h, p in POLICIES.items() if p.lane == "read" and p.moment in ("turn", "boundary")]
)
def test_a_read_that_raises_changes_nothing_of_what_is_told(stage: Stage, hook: str) -> None:
    stage.provider.results[hook] = BackendUnavailable("the backend is asleep")
    live(stage, stage.memory)
    assert stage.told(durable=True) == LIFE


def test_a_recall_that_hangs_changes_nothing_of_what_is_told(stage: Stage) -> None:
    stage.config("recall: {deadline: 0.05}")
    gate = threading.Event()
    stage.provider.gates["prefetch"] = gate
    live(stage, stage.memory)
    gate.set()
    assert stage.told(durable=True) == LIFE

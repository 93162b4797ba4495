"""A tool waits for a start that runs, and a flush retries one that failed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import pytest

from hermes_core import Capabilities, MemoryManager, MemoryProvider, Session, ToolCall, Turn
from hermes_core.errors import BackendUnavailable

TOOL = {"name": "lookup", "description": "", "parameters": {"type": "object", "properties": {}}}


class Slow(MemoryProvider):
    """A provider whose start waits for `ready`, and fails as often as `failures` says."""

    name = "slow"

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.failures = 0
        self.starts = 0
        self.taken: list[str] = []

    def get_tool_schemas(self) -> list[object]:
        return [TOOL]

    def initialize(self, session: Session) -> None:
        self.starts += 1
        self.ready.wait(30)
        if self.starts <= self.failures:
            raise BackendUnavailable("it is down")

    def handle_tool_call(self, call: ToolCall) -> str:
        return '{"found": "tea"}'

    def sync_turn(self, turn: Turn) -> None:
        self.taken.append(turn.id)


class SlowSession(Slow):
    capabilities = Capabilities(scope="session")


OpenManager = Callable[..., MemoryManager]


@pytest.fixture
def session(hermes_home: object) -> Session:
    return Session("s1")


def test_a_tool_waits_for_a_start_that_runs(open_manager: OpenManager, session: Session) -> None:
    provider = Slow()
    manager = open_manager(provider, start_wait=0.01)
    manager.initialize_all(session)
    threading.Timer(0.1, provider.ready.set).start()
    answer = json.loads(manager.handle_tool_call(ToolCall("lookup", {}), session))
    assert answer == {"found": "tea"}


def test_a_tool_waits_no_longer_than_its_deadline(open_manager: OpenManager, session: Session) -> None:
    provider = Slow()
    manager = open_manager(provider, start_wait=0.01, deadlines={"handle_tool_call": 0.2})
    manager.initialize_all(session)
    began = time.monotonic()
    answer = json.loads(manager.handle_tool_call(ToolCall("lookup", {}), session))
    assert "initialize has run for" in answer["error"]
    assert 0.2 <= time.monotonic() - began < 20
    provider.ready.set()


@pytest.mark.parametrize("kind", [Slow, SlowSession])
@pytest.mark.parametrize("failures", [1, 3])
def test_a_flush_retries_a_start_that_failed(
    open_manager: OpenManager, session: Session, kind: type[Slow], failures: int
) -> None:
    made: list[Slow] = []

    def make() -> Slow:
        provider = made[0] if made else kind()
        provider.failures = failures
        provider.ready.set()
        made[:] = [provider]
        return provider

    manager = open_manager(make)
    manager.initialize_all(session)
    manager.sync_all(Turn("t1", 1, "I like tea.", "Noted."), session)
    assert manager.flush(30.0)
    assert (made[0].starts, made[0].taken) == (failures + 1, ["t1"])


def test_a_flush_in_vain_uses_its_time_and_no_more(open_manager: OpenManager, session: Session) -> None:
    provider = Slow()
    provider.failures = 1000
    provider.ready.set()
    manager = open_manager(provider)
    manager.initialize_all(session)
    manager.sync_all(Turn("t1", 1, "I like tea.", "Noted."), session)
    began = time.monotonic()
    assert not manager.flush(0.4)
    assert 0.4 <= time.monotonic() - began < 20
    assert provider.starts > 1
    tries, began = provider.starts, time.monotonic()
    manager.shutdown_all(100.0)
    assert time.monotonic() - began < 10, "the end of a program does not wait for a start"
    assert provider.starts <= tries + 1


def test_a_provider_may_take_longer_for_its_start(open_manager: OpenManager, session: Session) -> None:
    class Patient(Slow):
        start_timeout = 300.0

    provider = Patient()
    manager = open_manager(provider)
    (handle,) = (one for one in manager._registry.handles if one.name == "slow")
    assert handle.first._deadline_of("initialize") > 300
    assert handle.first._deadline_of("sync_turn") == handle.deadlines["sync_turn"]
    provider.ready.set()

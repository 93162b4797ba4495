"""A manager for each test, shut down at its end, and providers that let go then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.home import HermesHome
from hermes_core.manager import worker
from hermes_core.manager.manager import MemoryManager
from hermes_core.outbox.rows import encode
from hermes_memory_testing.fakes import Clock, HangingProvider, RecordingProvider, make_turn
from tests.outbox_of import ON_POSTGRES, manager_outbox


class Named(RecordingProvider):
    """A provider of this name, with a prompt block and these tools."""

    def __init__(self, name: str, tools: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.name = name  # type: ignore[misc]
        self.results["get_tool_schemas"] = [{"name": tool} for tool in tools]
        self.results["system_prompt_block"] = f"block of {name}"


def until(condition: Callable[[], object], timeout: float = 30.0) -> bool:
    """Wait until the condition holds; whether it does."""
    end = time.monotonic() + timeout
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.002)
    return bool(found)


def count_questions(manager: MemoryManager, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list to which each question to the outbox adds the provider, whether any row of it waits."""
    asked: list[str] = []
    waits = manager.outbox.waits

    def counted(provider: str, session_id: str | None = None) -> bool:
        asked.append(provider)
        return waits(provider, session_id)

    monkeypatch.setattr(manager.outbox, "waits", counted)
    return asked


class OutboxClock(Clock):
    """A clock that also moves the pauses after failed tries, which the database measures by the time of day."""

    def __init__(self, home: HermesHome) -> None:
        super().__init__()
        self._home = home

    def advance(self, seconds: float) -> None:
        """Move the clock `seconds` ahead, and let the pauses of the outbox be as much shorter."""
        super().advance(seconds)
        with contextlib.closing(manager_outbox(self._home)) as outbox:
            if outbox.exists and seconds > 0:
                outbox.database.execute("UPDATE outbox_lines SET ready_at = ready_at - ?", (float(seconds),))


@pytest.fixture
def clock(hermes_home: HermesHome) -> Clock:
    return OutboxClock(hermes_home)


@pytest.fixture
def open_manager(hermes_home: HermesHome, clock: Clock) -> Iterator[Callable[..., MemoryManager]]:
    """Make a manager of the test's home with this provider; its clock stands still."""
    opened: list[MemoryManager] = []
    hanging: list[HangingProvider] = []

    def make(provider: object = None, **settings: Any) -> MemoryManager:
        settings = {"clock": clock, "wall": clock, "redact": lambda value: value, **settings}
        if ON_POSTGRES:
            settings.setdefault("outbox", manager_outbox(hermes_home, wall=clock))
        manager = MemoryManager(hermes_home, **settings)
        opened.append(manager)
        if isinstance(provider, HangingProvider):
            hanging.append(provider)
        if provider is not None:
            manager.add_provider(provider)
        return manager

    yield make
    for provider in hanging:
        provider.release()
    for manager in opened:
        manager.shutdown_all(timeout=1.5)
        if ON_POSTGRES:
            manager.outbox.close()


@pytest.fixture
def begun_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that has begun counts as late at its deadline, however long its thread took to begin it."""
    monkeypatch.setattr(worker, "MIN_RUN_SHARE", 1e-9)


@pytest.fixture
def left_behind(hermes_home: HermesHome, clock: Clock) -> Callable[..., None]:
    """Leave a turn in the outbox, as a process does that died."""

    def leave(provider: str, turn: str, session: Session, fingerprint: str = "") -> None:
        outbox = manager_outbox(hermes_home, wall=clock)
        row = encode("sync_turn", make_turn(turn), session, lambda value: value)
        outbox.put(provider, row, fingerprint)
        outbox.database.close()

    return leave

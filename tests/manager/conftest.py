"""A manager for each test, shut down at its end, and providers that let go then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.testing.fakes import Clock, HangingProvider


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_manager(hermes_home: HermesHome, clock: Clock) -> Iterator[Callable[..., MemoryManager]]:
    """Make a manager of the test's home with this provider; its clock stands still."""
    opened: list[MemoryManager] = []
    hanging: list[HangingProvider] = []

    def make(provider: object = None, **settings: Any) -> MemoryManager:
        settings = {"clock": clock, "wall": clock, "redact": lambda value: value, **settings}
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

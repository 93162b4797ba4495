"""Opens a home as far as it goes: what is broken must not hide what is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.memory import Memory, open_memory


@dataclass(frozen=True, slots=True)
class Opened:
    """A memory, and why its provider was left out, "" when it was not."""

    memory: Memory
    without_provider: str = ""

    @property
    def selected(self) -> str:
        """The provider that config.yaml names, started or not."""
        return self.memory.config.memory.provider


@contextmanager
def opened(home: HermesHome) -> Iterator[Opened]:
    """The memory of a home; without its provider when the files that this needs can't be used.

    Raises `ConfigError`, and `StorageError` when not even that can be opened.
    """
    try:
        found = Opened(open_memory(home))
    except StorageError as exc:
        found = Opened(open_memory(home, provider=""), exc.message)
    with found.memory:
        yield found

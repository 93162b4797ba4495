"""A real manager that writes down what its host asks of it: for tests of agents."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hermes_core import MemoryManager

RECORDED = (
    *("initialize_all", "build_system_prompt", "rebuild_system_prompt", "on_turn_start", "prefetch_all"),
    *("queue_prefetch_all", "sync_all", "on_memory_write", "on_delegation", "handle_tool_call"),
    *("on_pre_compress", "on_session_end", "on_session_switch", "flush", "shutdown_all"),
)
"""Methods whose calls are written down."""


class RecordingManager(MemoryManager):
    """Does all that a manager does. `calls` holds (method, positional arguments, keyword arguments), in order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        super().__init__(*arguments, **options)

    @property
    def methods(self) -> list[str]:
        """The names of the calls so far."""
        return [name for name, _, _ in self.calls]


def _recorded(name: str) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(MemoryManager, name)

    @functools.wraps(original)
    def call(self: RecordingManager, *arguments: Any, **options: Any) -> Any:
        self.calls.append((name, arguments, options))
        return original(self, *arguments, **options)

    return call


for _name in RECORDED:
    setattr(RecordingManager, _name, _recorded(_name))

"""Curated memory as a provider like any other, except that it is always there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import BUILTIN_NAME, Session, ToolCall
from hermes_core.curated.store import MemoryStore
from hermes_core.curated.tool import MemoryTool, memory_schema

SESSIONS_KEPT = 1024
"""Sessions whose prompt block is held; the one asked for longest ago goes first."""


class CuratedProvider(MemoryProvider):
    """The `builtin` provider: two blocks of the system prompt, frozen for each session, and the `memory` tool."""

    name = BUILTIN_NAME

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._tool = MemoryTool(store)
        self._blocks: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The `memory` tool with the targets that are switched on; none when both are off."""
        targets = self._store.enabled_targets
        return [memory_schema(targets)] if targets else []

    def system_prompt_block(self, session: Session) -> str:
        """MEMORY and USER PROFILE as they were when this session first asked."""
        with self._lock:
            if session.id not in self._blocks:
                self._blocks[session.id] = self._store.take_snapshot().render()
            self._blocks.move_to_end(session.id)
            while len(self._blocks) > SESSIONS_KEPT:
                self._blocks.popitem(last=False)
            return self._blocks[session.id]

    def thaw(self, session: Session) -> None:
        """Let the next `system_prompt_block` of this session read the files anew: for a rebuild of the prompt."""
        with self._lock:
            self._blocks.pop(session.id, None)

    def on_turn_start(self, session: Session) -> None:
        """A new turn has a new patience for failed writes."""
        self._store.start_turn(session)

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run the `memory` tool."""
        return self._tool.call(call.arguments, session)

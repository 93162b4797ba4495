"""Curated memory as a provider like any other, except that it is always there."""

from __future__ import annotations

from typing import Any

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import BUILTIN_NAME, Session, ToolCall
from hermes_core.curated.store import MemoryStore
from hermes_core.curated.tool import MemoryTool, memory_schema


class CuratedProvider(MemoryProvider):
    """The `builtin` provider: two blocks of the system prompt and the `memory` tool.

    It holds nothing of a session: who asks for the block freezes it, as the manager does until the prompt is rebuilt.
    """

    name = BUILTIN_NAME

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The `memory` tool with the targets that are switched on; none when both are off."""
        targets = self._store.enabled_targets
        return [memory_schema(targets)] if targets else []

    def system_prompt_block(self, session: Session) -> str:
        """MEMORY and USER PROFILE as they are on disk now, without what the scan keeps out."""
        return self._store.of(session).take_snapshot().render()

    def on_turn_start(self, session: Session) -> None:
        """A new turn has a new patience for failed writes."""
        self._store.start_turn(session)

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run the `memory` tool."""
        return MemoryTool(self._store.of(session)).call(call.arguments, session)

"""The memory service of ADK on a memory of hermes_core."""

from __future__ import annotations

from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session as AdkSession
from google.genai import types

from hermes_core import AsyncMemory, Memory
from hermes_google_adk.turns import identity, identity_of, store_turn, turns_of


class HermesMemoryService(BaseMemoryService):
    """Searches notes, providers and past sessions for `load_memory`, and stores sessions of ADK.

    Args:
        memory: The memory of the process.
        limit: Largest number of results from past sessions, and from each provider.
        platform: Name of the program, as the plugin has it.
    """

    def __init__(
        self, memory: Memory | AsyncMemory, *, limit: int = 10, platform: str = "google-adk"
    ) -> None:
        self._memory = memory if isinstance(memory, AsyncMemory) else AsyncMemory(memory)
        self._limit, self._platform = limit, platform

    async def add_session_to_memory(self, session: AdkSession) -> None:
        """Store the answered turns of a session. Turns that are stored already, by the plugin perhaps, stay as they are."""
        turns = [turn for turn in turns_of(session.events) if turn.answer is not None]
        if not turns:
            return
        own = await self._memory.start_session(**identity_of(self._platform, session))
        for turn in turns:
            await store_turn(self._memory, own, turn, warm=False)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return what the memory knows about a query: notes, recall of providers, messages of past sessions."""
        asked_by = await self._memory.session(**identity(self._platform, app_name, user_id))
        report = await self._memory.recall(query, limit=self._limit, session=asked_by)
        entries = [
            MemoryEntry(
                content=types.Content(role="user", parts=[types.Part(text=hit.text)]),
                custom_metadata={"source": hit.source, "session_id": hit.session_id},
                id=hit.ref or None,
                author=hit.speaker or None,
                timestamp=hit.when or None,
            )
            for hit in report.results
        ]
        return SearchMemoryResponse(memories=entries)

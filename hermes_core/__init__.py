"""hermes_core: the memory of an AI agent, and the framework that providers of memory plug into.

Importing this package starts nothing, opens nothing and loads no provider. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_core.aio import AsyncConversation, AsyncMemory, AsyncOpenTurn, open_memory_async
    from hermes_core.contract.hooks import hookimpl
    from hermes_core.contract.provider import MemoryProvider
    from hermes_core.contract.values import (
        Availability,
        Capabilities,
        Delegation,
        Field,
        MemoryWrite,
        Message,
        Query,
        Recall,
        RecallItem,
        Session,
        SessionSwitch,
        ToolCall,
        Turn,
    )
    from hermes_core.conversation import Conversation, OpenTurn, ToolResult
    from hermes_core.curated.store import Notes
    from hermes_core.errors import HermesError
    from hermes_core.home import HermesHome
    from hermes_core.loader.catalog import discover_providers
    from hermes_core.loader.foreign import register_in_hermes_agent
    from hermes_core.loader.load import load_provider
    from hermes_core.manager.manager import MemoryManager
    from hermes_core.memory import Memory, open_memory
    from hermes_core.safety.fence import sanitize_context
    from hermes_core.safety.scrubber import StreamingContextScrubber
    from hermes_core.sessions.home_store import open_notes
    from hermes_core.turn_recall import TurnRecall

_FOR_HOSTS = {
    "aio": "AsyncConversation AsyncMemory AsyncOpenTurn open_memory_async",
    "conversation": "Conversation OpenTurn ToolResult",
    "curated.store": "Notes",
    "loader.catalog": "discover_providers",
    "loader.foreign": "register_in_hermes_agent",
    "loader.load": "load_provider",
    "manager.manager": "MemoryManager",
    "memory": "Memory open_memory",
    "safety.fence": "sanitize_context",
    "safety.scrubber": "StreamingContextScrubber",
    "sessions.home_store": "open_notes",
    "turn_recall": "TurnRecall",
}
_FOR_AUTHORS = {
    "contract.hooks": "hookimpl",
    "contract.provider": "MemoryProvider",
    "contract.values": (
        "Availability Capabilities Delegation Field MemoryWrite Message Query Recall RecallItem SessionSwitch ToolCall"
    ),
}
_FOR_BOTH = {"contract.values": "Session Turn", "errors": "HermesError", "home": "HermesHome"}
HOSTS, AUTHORS, _BOTH = (
    {name: module for module, names in modules.items() for name in names.split()}
    for modules in (_FOR_HOSTS, _FOR_AUTHORS, _FOR_BOTH)
)
"""Names for programs that embed memory, and for authors of providers, by module. Both use those of `_FOR_BOTH`."""

_HOMES = {**HOSTS, **AUTHORS, **_BOTH}

__all__ = [
    "AsyncConversation",
    "AsyncMemory",
    "AsyncOpenTurn",
    "Availability",
    "Capabilities",
    "Conversation",
    "Delegation",
    "Field",
    "HermesError",
    "HermesHome",
    "Memory",
    "MemoryManager",
    "MemoryProvider",
    "MemoryWrite",
    "Message",
    "Notes",
    "OpenTurn",
    "Query",
    "Recall",
    "RecallItem",
    "Session",
    "SessionSwitch",
    "StreamingContextScrubber",
    "ToolCall",
    "ToolResult",
    "Turn",
    "TurnRecall",
    "discover_providers",
    "hookimpl",
    "load_provider",
    "open_memory",
    "open_memory_async",
    "open_notes",
    "register_in_hermes_agent",
    "sanitize_context",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hermes_core' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hermes_core.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

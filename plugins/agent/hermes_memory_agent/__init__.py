"""The reference agent: a conversation with a model and a memory, and the models that the agent can use.

Importing this package imports none of its modules; each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hermes_memory_agent.agent import Agent
    from hermes_memory_agent.answer import Answer, ToolRequest, Usage
    from hermes_memory_agent.configured import ConfiguredModels
    from hermes_memory_agent.model import ChatModel, ModelSettings, OpenAIModel
    from hermes_memory_agent.sessions import TurnResult
    from hermes_memory_agent.tools import Tool

_MODULES = {
    "Agent": "agent",
    "Answer": "answer",
    "ChatModel": "model",
    "ConfiguredModels": "configured",
    "ModelSettings": "model",
    "OpenAIModel": "model",
    "Tool": "tools",
    "ToolRequest": "answer",
    "TurnResult": "sessions",
    "Usage": "answer",
}

__all__ = [
    "Agent",
    "Answer",
    "ChatModel",
    "ConfiguredModels",
    "ModelSettings",
    "OpenAIModel",
    "Tool",
    "ToolRequest",
    "TurnResult",
    "Usage",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'hermes_memory_agent' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"hermes_memory_agent.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Memory of hermes_core for agents of Pydantic AI."""

from hermes_pydantic_ai.capability import HermesMemory

__all__ = ["HermesMemory"]

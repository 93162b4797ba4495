"""Memory of hermes_core for agents of Microsoft Agent Framework."""

from hermes_agent_framework.provider import HermesContextProvider

__all__ = ["HermesContextProvider"]

"""Memory of hermes_core for agents of Google ADK."""

from hermes_google_adk.plugin import HermesPlugin
from hermes_google_adk.service import HermesMemoryService

__all__ = ["HermesMemoryService", "HermesPlugin"]

"""Memory of hermes_core for agents of Strands."""

from hermes_strands.plugin import HermesPlugin

__all__ = ["HermesPlugin"]

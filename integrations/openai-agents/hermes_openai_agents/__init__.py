"""Memory of hermes_core for agents of the OpenAI Agents SDK."""

from hermes_openai_agents.session import HermesSession

__all__ = ["HermesSession"]

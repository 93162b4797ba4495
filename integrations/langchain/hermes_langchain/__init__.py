"""Memory of hermes_core for agents of LangChain and LangGraph."""

from hermes_langchain.middleware import HermesMiddleware, scrub_messages

__all__ = ["HermesMiddleware", "scrub_messages"]

"""Memory for agents of LangChain, as one middleware."""

from hermes_langchain.messages import ascrub_messages, scrub_messages
from hermes_langchain.middleware import HermesMiddleware

__all__ = ["HermesMiddleware", "ascrub_messages", "scrub_messages"]

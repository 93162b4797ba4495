"""What is sent to a model's server, and what is sent to one that refused it: without what it knows nothing of, with
what it asks for.

Pure: messages and refusals in, requests out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from hermes_core.agent.answer import ECHO, Chat
from hermes_core.errors import ContextOverflow, ModelRefused
from hermes_core.sessions.records import storable

_UNKNOWN_FIELD = frozenset({400, 422})
_OPTIONAL = ("temperature", "stream_options")
_MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id")
_THOUGHTS = "reasoning_content"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server takes that differs from others, as its refusals tell.

    `thoughts` says that it wants those of the model back: DeepSeek and Moonshot refuse a conversation with tool calls
    otherwise, and Mistral, Groq and Cerebras one that has them.
    """

    not_taken: frozenset[str] = frozenset()
    thoughts: bool = False

    def request(
        self, name: str, messages: Sequence[Chat], tools: Sequence[dict[str, Any]], temperature: float | None
    ) -> dict[str, Any]:
        """The body of a request; `tools` are `{"name", "description", "parameters"}`."""
        request: dict[str, Any] = {
            "model": name,
            "messages": [self._message(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            request["tools"] = [{"type": "function", "function": dict(tool)} for tool in tools]
        if temperature is not None:
            request["temperature"] = temperature
        return {field: value for field, value in request.items() if field not in self.not_taken}

    def after(self, refusal: ModelRefused, sent: Mapping[str, Any]) -> Self | None:
        """The dialect to ask again in, by what the refusal names: thoughts are added, other fields are left out, and the
        temperature where it names none of these. None where nothing is left to change.
        """
        if getattr(refusal.__cause__, "status_code", None) not in _UNKNOWN_FIELD:
            return None
        if isinstance(refusal, ContextOverflow):
            return None
        said = str(refusal)
        if _THOUGHTS in said and not self.thoughts:
            return replace(self, thoughts=True)
        named = {field for field in _OPTIONAL if field in said} or {"temperature"}
        refused = frozenset(named & sent.keys())
        return replace(self, not_taken=self.not_taken | refused) if refused else None

    def _message(self, message: Chat) -> Any:
        sent = {field: message[field] for field in _MESSAGE_FIELDS if field in message}
        if self.thoughts and message["role"] == "assistant":
            sent[_THOUGHTS] = message.get("reasoning") or " "  # Moonshot takes no empty ones
        return _sendable(sent | message.get(ECHO, {}))


def _sendable(value: Any) -> Any:
    """JSON data with texts that UTF-8 can spell: half a surrogate pair, as in a file's name, would end each request."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list | tuple):
        return [_sendable(item) for item in value]
    if isinstance(value, dict):
        return {key: _sendable(item) for key, item in value.items()}
    return value

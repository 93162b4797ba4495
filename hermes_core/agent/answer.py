"""What a model answers, and how it is put together from the pieces of a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Chat = dict[str, Any]
"""One message in the OpenAI chat form."""


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool that the model wants to be called; `arguments` is the text that it wrote, JSON or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or of several added up; `cached` are those of `prompt` that the server had already."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: text, tool requests, or both. `finish` is the server's word: stop, length, tool_calls, ..."""

    text: str = ""
    calls: tuple[ToolRequest, ...] = ()
    finish: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)

    def message(self, text: str | None = None) -> Chat:
        """The assistant's message of this answer, with `text` in place of its own where given."""
        message: Chat = {"role": "assistant", "content": self.text if text is None else text}
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        if self.reasoning:
            message["reasoning"] = self.reasoning
        return message


class AnswerBuilder:
    """Puts the chunks of one stream together.

    Servers differ in how they send a tool call: in pieces under one `index` (OpenAI), whole under the same index 0
    each but with ids of their own (older Ollama), or without an id at all (some llama.cpp templates).
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._slots: dict[int, dict[str, Any]] = {}
        self._usage = Usage()
        self.finish = ""

    def feed(self, chunk: Any) -> str:
        """Take a chunk of the SDK's; returns the text that it adds."""
        if getattr(chunk, "usage", None):
            self._usage = _usage(chunk.usage)
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish = choice.finish_reason or self.finish
        delta = choice.delta
        if delta is None:
            return ""
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
        for piece in delta.tool_calls or ():
            self._add_call(piece)
        text = delta.content or ""
        self._text.append(text)
        return text

    def answer(self) -> Answer:
        """The answer as far as it came."""
        calls = tuple(
            ToolRequest(call["id"] or f"call_{number}", call["name"], "".join(call["arguments"]) or "{}")
            for number, call in enumerate(self._calls)
        )
        return Answer("".join(self._text), calls, self.finish, "".join(self._reasoning), self._usage)

    def _add_call(self, piece: Any) -> None:
        index = piece.index if piece.index is not None else len(self._calls)
        slot = self._slots.get(index)
        if slot is None or (piece.id and slot["id"] and piece.id != slot["id"]):
            slot = {"id": "", "name": "", "arguments": []}
            self._slots[index] = slot
            self._calls.append(slot)
        slot["id"] = slot["id"] or piece.id or ""
        if piece.function is not None:
            slot["name"] += piece.function.name or ""
            slot["arguments"].append(piece.function.arguments or "")


def _usage(usage: Any) -> Usage:
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    return Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached)

"""Answers of a model, and the builder that assembles one from the chunks of a stream."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal

from hermes_core.sessions.records import sqlite_text
from hermes_memory_agent.validation import require

# One message in the OpenAI chat form.
ChatMessage = dict[str, Any]
Messages = Sequence[ChatMessage]

# Key of the fields that a server wants back with each message it wrote. They are not stored, and no other server
# gets them.
ECHO = "echo"

# Key of a message that is hidden from providers, since its turn did not complete or memory was off.
# The value is the message's `ref` in the store.
HIDDEN = "kept_back"

# Key of the origin of a message's text. No server gets it.
ORIGIN = "origin"

# Largest plausible figure for one request; a sum of larger ones would not fit into the store.
MAX_TOKENS = 10**12

_OPEN, _CLOSE = "<think>", "</think>"
# Length of an id for a call without one: Mistral takes only ids of nine letters and digits.
_ID_LENGTH = 9

# Fields of a message, or beside it, in which servers name what they read for an answer.
CITING_FIELDS = (
    *("annotations", "citations", "search_results", "web_search_results"),
    *("grounding_metadata", "groundingMetadata", "url_context_metadata", "urlContextMetadata"),
)

# Kinds of reasoning details that are streamed in pieces; an encrypted one comes whole.
_STREAMED_DETAILS = ("reasoning.text", "reasoning.summary")


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call that the model asks for.

    Attributes:
        id: Id of the call; the result of the tool refers to it.
        name: Name of the tool.
        arguments: Text that the model wrote as arguments. It should be JSON, but may be anything.
        extra: Data that the server wants back with the call, else None. Gemini 3 refuses a call without the signature
            of the thoughts that led to it.
    """

    id: str
    name: str
    arguments: str
    extra: Any = None

    def __post_init__(self) -> None:
        require("id", self.id, str, "a text")
        require("name", self.name, str, "a text")
        require("arguments", self.arguments, str, "a text, of JSON")

    def chat(self) -> ChatMessage:
        """Return the call in the OpenAI chat form, as `tool_calls` of a message contains it."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or the sum for several requests. A figure below 0 or above `MAX_TOKENS` becomes 0.

    Attributes:
        prompt: Tokens of the request.
        completion: Tokens of the answer.
        cached: Part of `prompt` that the server had in its cache.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached"):
            require(name, figure := getattr(self, name), int, "a number")
            if not 0 <= figure <= MAX_TOKENS:
                object.__setattr__(self, name, 0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a model: text, tool requests, or both.

    Attributes:
        text: The text of the answer.
        calls: The tool calls that the model asks for.
        finish: The server's reason for the end: stop, length, tool_calls, ...
        reasoning: The model's thoughts.
        usage: Tokens of the request and the answer.
        details: OpenRouter's reasoning details, which OpenRouter wants back with the tool calls of Gemini 3.
        origin: Origin of what the server read for the answer, "web"; "" if it read nothing.
    """

    text: str = ""
    calls: tuple[ToolRequest, ...] = ()
    finish: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    details: tuple[dict[str, Any], ...] = ()
    origin: str = ""

    def __post_init__(self) -> None:
        require("text", self.text, str, "a text")
        require("calls", self.calls, (tuple, list), "a tuple")
        for call in self.calls:
            require("a call", call, ToolRequest, "a ToolRequest")
        require("finish", self.finish, (str, NoneType), "a text")
        require("reasoning", self.reasoning, str, "a text")
        require("usage", self.usage, Usage, "a Usage")

    def message(self, text: str | None = None) -> ChatMessage:
        """Return this answer as a chat message of the assistant. A given `text` replaces the text of the answer."""
        message: ChatMessage = {"role": "assistant", "content": self.text if text is None else text}
        if self.calls:
            message["tool_calls"] = [call.chat() for call in self.calls]
        if self.reasoning:
            message["reasoning"] = self.reasoning
        if self.origin:
            message[ORIGIN] = self.origin
        echo = self._echo()
        if echo:
            message[ECHO] = echo
        return message

    def _echo(self) -> ChatMessage:
        """Return the fields of this answer in the own form of the server that gave it.

        Later requests to that server send these fields in place of the standard form of the same fields.
        """
        echo: ChatMessage = {}
        if self.calls and self.details:
            echo["reasoning_details"] = list(self.details)
        if any(call.extra for call in self.calls):
            echo["tool_calls"] = [
                {**call.chat(), "extra_content": call.extra} if call.extra else call.chat()
                for call in self.calls
            ]
        return echo


def without_thoughts(text: str) -> str:
    """Remove the model's thoughts from a text in which they end with `</think>` but do not begin with `<think>`.

    Such a text comes from a model whose chat template already contains the opening tag.
    """
    before, end, after = text.rpartition(f"{_CLOSE}\n\n")
    return after if end and _OPEN not in before else text


class AnswerBuilder:
    """Builder of one answer from the chunks of its stream.

    Servers send the pieces of a tool call in different ways:

    - `index`: the same for all pieces of a call (OpenAI), or missing (Gemini). Older Ollama sends several whole calls
      with index 0 and different ids.
    - Id: with the first piece, never (some llama.cpp templates), or a new id with each piece (older vLLM).
    - Name: with the first piece, or with each piece.
    - Arguments: a text, an object, or a text after an empty object (Bedrock).
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_PartialCall] = []
        self._slots: dict[int, _PartialCall] = {}
        self._origin = ""
        self._usage = Usage()
        self._thoughts = _ThoughtSplitter()
        self._half = ""
        self.finish = ""
        # True if the last chunk had a reason for the end of the answer and nothing else. Some servers
        # (gcli2api) send that reason with each piece.
        self.over = False

    def feed(self, chunk: Any) -> str:
        """Add a chunk of the SDK and return the text to show. Raise `ValueError` if the chunk has an unknown shape."""
        try:
            return self._feed(chunk)
        except (AttributeError, TypeError, LookupError) as exc:
            raise ValueError(f"a piece of another shape ({exc})") from exc

    def _feed(self, chunk: Any) -> str:
        choices = getattr(chunk, "choices", None)
        for counted in (chunk, choices[0] if choices else None):  # Moonshot counts in the choice
            usage = _usage(getattr(counted, "usage", None))
            self._usage = self._usage if usage == Usage() else usage
        self._note_sources(chunk)
        if not choices:
            return ""
        self.finish = str(choices[0].finish_reason or self.finish)
        delta = choices[0].delta
        if delta is None:
            return ""
        self._note_sources(delta)
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(reasoning, str):
            self._reasoning.append(reasoning)
        _add_details(self._details, getattr(delta, "reasoning_details", None))
        for piece in delta.tool_calls or ():
            if piece is not None:
                self._add_call(piece)
        text = _plain(delta.content) or _plain(getattr(delta, "refusal", None))
        more = text or reasoning or delta.tool_calls
        self.over = bool(choices[0].finish_reason and (self._text or self._calls) and not more)
        return self._add_text(self._whole_letters(text))

    def _note_sources(self, part: Any) -> None:
        if any(getattr(part, name, None) for name in CITING_FIELDS):
            self._origin = "web"

    def _whole_letters(self, text: str) -> str:
        """Return `text` without a half surrogate pair at its end, which is kept and put before the next text.

        Some servers cut a character between its two UTF-16 units.
        """
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return sqlite_text(text.removesuffix(self._half))

    def end(self) -> str:
        """End the stream; return the rest of the text, which was kept back because it could be half a tag or letter."""
        half = sqlite_text(self._half)
        return self._add_text(half) + self._add_text("", ended=True)

    def answer(self) -> Answer:
        """Return the answer so far. A tool call without an id, or with the id of another call, gets a new id."""
        calls: dict[str, ToolRequest] = {}
        for call in self._calls:
            own = call.id if call.id and call.id not in calls else uuid.uuid4().hex[:_ID_LENGTH]
            arguments = sqlite_text("".join(call.arguments))
            if arguments.startswith("{}{"):
                arguments = arguments[2:]
            calls[own] = ToolRequest(own, call.name, arguments or "{}", call.extra)
        return Answer(
            "".join(self._text),
            tuple(calls.values()),
            self.finish,
            sqlite_text("".join(self._reasoning)),
            self._usage,
            tuple(self._details),
            self._origin,
        )

    def _add_text(self, text: str, *, ended: bool = False) -> str:
        visible, thought = self._thoughts.end() if ended else self._thoughts.feed(text)
        self._reasoning.append(thought)
        self._text.append(visible)
        return visible

    def _add_call(self, piece: Any) -> None:
        own = str(piece.id) if piece.id is not None else ""
        name = (piece.function and piece.function.name) or ""
        call = self._open_call(piece.index, own, name)
        if call is None:
            call = _PartialCall()
            self._calls.append(call)
        if piece.index is not None:
            self._slots[piece.index] = call
        call.id = call.id or own
        call.extra = call.extra or getattr(piece, "extra_content", None)
        if name != call.name:
            call.name += name
        if piece.function is not None:
            call.arguments.append(_arguments(piece.function.arguments))

    def _open_call(self, index: int | None, own: str, name: str) -> _PartialCall | None:
        """Return the call that a piece continues, or None if the piece begins a new call.

        Args:
            index: The piece's index, or None.
            own: The piece's id, or "".
            name: The piece's name, or "". If a call is open, only a piece with a name begins a new call.
        """
        if index is not None:
            call = self._slots.get(index)
            another = call is not None and name and own and call.id and own != call.id
        else:
            call = self._calls[-1] if self._calls else None
            another = call is not None and name and not (own and own == call.id)
        return None if another else call


@dataclass(slots=True)
class _PartialCall:
    """A tool call that may still lack pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Any = None


class _ThoughtSplitter:
    """Splitter of a text that begins with the model's thoughts in <think> tags into thoughts and answer."""

    def __init__(self) -> None:
        self._buffer = ""
        self._state: Literal["before", "inside", "after", "over"] = "before"

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next piece of the text; return the answer text and the thoughts that can be told apart now."""
        if self._state == "over":
            return text, ""
        self._buffer += text
        start = self._buffer.lstrip()
        if self._state == "before":
            if len(start) < len(_OPEN) and _OPEN.startswith(start):
                return "", ""
            if not start.startswith(_OPEN):
                text, self._buffer, self._state = self._buffer, "", "over"
                return text, ""
            self._state, self._buffer = "inside", start.removeprefix(_OPEN)
        thought = ""
        if self._state == "inside":
            end = self._buffer.find(_CLOSE)
            if end < 0:
                keep = len(_CLOSE) - 1
                thought, self._buffer = self._buffer[:-keep], self._buffer[-keep:]
                return "", thought
            thought, self._buffer, self._state = (
                self._buffer[:end],
                self._buffer[end + len(_CLOSE) :],
                "after",
            )
        text, self._buffer = self._buffer.lstrip(), ""
        self._state = "over" if text else "after"
        return text, thought

    def end(self) -> tuple[str, str]:
        """End the text; return the answer text and the thoughts that `feed` kept back."""
        rest, inside = self._buffer, self._state == "inside"
        self._buffer, self._state = "", "over"
        return ("", rest) if inside else (rest, "")


def _add_details(details: list[dict[str, Any]], pieces: Any) -> None:
    """Add the pieces of reasoning details to `details`; append text to the last detail of the same type and index."""
    for piece in pieces if isinstance(pieces, list) else ():
        if not isinstance(piece, dict):
            continue
        last = details[-1] if details else {}
        if piece.get("type") not in _STREAMED_DETAILS or any(
            piece.get(k) != last.get(k) for k in ("type", "index")
        ):
            details.append(dict(piece))
            continue
        for key, value in piece.items():
            if key in ("text", "summary"):
                last[key] = f"{last.get(key) or ''}{value or ''}"
            elif value is not None:
                last[key] = value


def _plain(content: Any) -> str:
    """Return the text of a message's content, which is a text or a list of parts; parts without text are left out."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if value is not None else ""


def _usage(usage: Any) -> Usage:
    """Return the token counts in a chunk. Servers name the count of cached tokens in three ways."""

    def part(of: Any, name: str) -> Any:
        return of.get(name) if isinstance(of, dict) else getattr(of, name, None)

    def figure(of: Any, name: str) -> int:
        value = part(of, name)
        return int(value) if isinstance(value, int | float) and 0 <= value <= MAX_TOKENS else 0

    cached = (
        figure(part(usage, "prompt_tokens_details"), "cached_tokens")
        or figure(usage, "cached_tokens")  # Moonshot's
        or figure(usage, "prompt_cache_hit_tokens")  # DeepSeek's
    )
    return Usage(figure(usage, "prompt_tokens"), figure(usage, "completion_tokens"), cached)

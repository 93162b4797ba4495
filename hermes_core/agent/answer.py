"""What a model answers, and how it is put together from the pieces of a stream."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal

from hermes_core.agent.given import require
from hermes_core.sessions.records import storable

Chat = dict[str, Any]
"""One message in the OpenAI chat form."""

ECHO = "echo"
"""Key of the fields that a server wants back with each message it wrote. They are not stored, and sent with no other."""

KEPT_BACK = "kept_back"
"""Key of a message that no provider is to be told, since its turn did not end or was kept from memory; its value is the
message's `ref` in the store."""

MOST_TOKENS = 10**12
"""Of one request; a figure above it is none, and no sum of such fits into the store."""

_OPEN, _CLOSE = "<think>", "</think>"
_ID_LENGTH = 9
"""Of an id that a server left out: Mistral takes ids of nine letters and digits and no others."""

_PIECEMEAL = ("reasoning.text", "reasoning.summary")
"""Details of thoughts that come as the text does; an encrypted one comes whole."""


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool that the model wants to be called; `arguments` is the text that it wrote, JSON or not.

    `extra` comes back to the server with the call: Gemini 3 refuses one without the signature of its thoughts.
    """

    id: str
    name: str
    arguments: str
    extra: Any = None

    def __post_init__(self) -> None:
        require("id", self.id, str, "a text")
        require("name", self.name, str, "a text")
        require("arguments", self.arguments, str, "a text, of JSON")

    def chat(self) -> Chat:
        """The call as a message holds it."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or of several added up; `cached` are those of `prompt` that the server had already. A figure
    below 0 or above any context counts as 0.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached"):
            require(name, figure := getattr(self, name), int, "a number")
            if not 0 <= figure <= MOST_TOKENS:
                object.__setattr__(self, name, 0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: text, tool requests, or both. `finish` is the server's word: stop, length, tool_calls, ...

    `details` are OpenRouter's of the thoughts, which it wants back with calls of Gemini 3.
    """

    text: str = ""
    calls: tuple[ToolRequest, ...] = ()
    finish: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    details: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        require("text", self.text, str, "a text")
        require("calls", self.calls, (tuple, list), "a tuple")
        for call in self.calls:
            require("a call", call, ToolRequest, "a ToolRequest")
        require("finish", self.finish, (str, NoneType), "a text")
        require("reasoning", self.reasoning, str, "a text")
        require("usage", self.usage, Usage, "a Usage")

    def message(self, text: str | None = None) -> Chat:
        """The assistant's message of this answer, with `text` in place of its own where given."""
        message: Chat = {"role": "assistant", "content": self.text if text is None else text}
        if self.calls:
            message["tool_calls"] = [call.chat() for call in self.calls]
        if self.reasoning:
            message["reasoning"] = self.reasoning
        echo = self._echo()
        if echo:
            message[ECHO] = echo
        return message

    def _echo(self) -> Chat:
        """Fields of the message as its server wants them back, beside or in place of those that all servers take."""
        echo: Chat = {}
        if self.calls and self.details:
            echo["reasoning_details"] = list(self.details)
        if any(call.extra for call in self.calls):
            echo["tool_calls"] = [
                {**call.chat(), "extra_content": call.extra} if call.extra else call.chat()
                for call in self.calls
            ]
        return echo


def behind_thoughts(text: str) -> str:
    """The answer without thoughts whose beginning stands in the model's template, so that the server sends their end alone."""
    before, end, behind = text.rpartition(f"{_CLOSE}\n\n")
    return behind if end and _OPEN not in before else text


class AnswerBuilder:
    """Puts the chunks of one stream together.

    Servers differ in how they send a tool call. Its pieces come under one `index` (OpenAI) or without any (Gemini); the
    id comes with the first piece, with none (some llama.cpp templates), or another one with each (older vLLM); the name
    once or with each piece; the arguments as text or as an object, or behind an empty one (Bedrock). Whole calls may all
    have index 0, with ids of their own (older Ollama).
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_Call] = []
        self._slots: dict[int, _Call] = {}
        self._usage = Usage()
        self._thoughts = _Thoughts()
        self._half = ""
        self.finish = ""
        self.over = False
        """Whether the last chunk said that this is all; a server may say so of each piece of an answer (gcli2api)."""

    def feed(self, chunk: Any) -> str:
        """Take a chunk of the SDK's; returns the text that it adds. Raises `ValueError` for one of another shape."""
        try:
            return self._feed(chunk)
        except (AttributeError, TypeError, LookupError) as exc:
            raise ValueError(f"a piece of another shape ({exc})") from exc

    def _feed(self, chunk: Any) -> str:
        choices = getattr(chunk, "choices", None)
        for counted in (chunk, choices[0] if choices else None):  # Moonshot counts in the choice
            usage = _usage(getattr(counted, "usage", None))
            self._usage = self._usage if usage == Usage() else usage
        if not choices:
            return ""
        self.finish = str(choices[0].finish_reason or self.finish)
        delta = choices[0].delta
        if delta is None:
            return ""
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
        return self._add_text(self._whole(text))

    def _whole(self, text: str) -> str:
        """The text that is whole letters: servers that cut it by UTF-16 send one of two units in each of two pieces."""
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return storable(text.removesuffix(self._half))

    def end(self) -> str:
        """The stream is at its end; returns the text that was held back until now."""
        half = storable(self._half)
        return self._add_text(half) + self._add_text("", ended=True)

    def answer(self) -> Answer:
        """The answer as far as it came; each call has an id that no other has."""
        calls: dict[str, ToolRequest] = {}
        for call in self._calls:
            own = call.id if call.id and call.id not in calls else uuid.uuid4().hex[:_ID_LENGTH]
            arguments = storable("".join(call.arguments))
            if arguments.startswith("{}{"):
                arguments = arguments[2:]
            calls[own] = ToolRequest(own, call.name, arguments or "{}", call.extra)
        return Answer(
            "".join(self._text),
            tuple(calls.values()),
            self.finish,
            storable("".join(self._reasoning)),
            self._usage,
            tuple(self._details),
        )

    def _add_text(self, text: str, *, ended: bool = False) -> str:
        said, thought = self._thoughts.end() if ended else self._thoughts.feed(text)
        self._reasoning.append(thought)
        self._text.append(said)
        return said

    def _add_call(self, piece: Any) -> None:
        own = str(piece.id) if piece.id is not None else ""
        name = (piece.function and piece.function.name) or ""
        call = self._begun(piece.index, own, name)
        if call is None:
            call = _Call()
            self._calls.append(call)
        if piece.index is not None:
            self._slots[piece.index] = call
        call.id = call.id or own
        call.extra = call.extra or getattr(piece, "extra_content", None)
        if name != call.name:
            call.name += name
        if piece.function is not None:
            call.arguments.append(_arguments(piece.function.arguments))

    def _begun(self, index: int | None, own: str, name: str) -> _Call | None:
        """The call that a piece goes on with; None when it begins one, which only a piece with a name does."""
        if index is not None:
            call = self._slots.get(index)
            another = call is not None and name and own and call.id and own != call.id
        else:
            call = self._calls[-1] if self._calls else None
            another = call is not None and name and not (own and own == call.id)
        return None if another else call


@dataclass(slots=True)
class _Call:
    """A tool call as far as it came."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Any = None


class _Thoughts:
    """Tells thoughts from the answer where a server leaves them in the text: between <think> tags, at its beginning."""

    def __init__(self) -> None:
        self._held = ""
        self._state: Literal["before", "within", "behind", "over"] = "before"

    def feed(self, text: str) -> tuple[str, str]:
        """The text and the thoughts that this piece adds."""
        if self._state == "over":
            return text, ""
        self._held += text
        begun = self._held.lstrip()
        if self._state == "before":
            if len(begun) < len(_OPEN) and _OPEN.startswith(begun):
                return "", ""
            if not begun.startswith(_OPEN):
                said, self._held, self._state = self._held, "", "over"
                return said, ""
            self._state, self._held = "within", begun.removeprefix(_OPEN)
        thought = ""
        if self._state == "within":
            end = self._held.find(_CLOSE)
            if end < 0:
                held = len(_CLOSE) - 1
                thought, self._held = self._held[:-held], self._held[-held:]
                return "", thought
            thought, self._held, self._state = self._held[:end], self._held[end + len(_CLOSE) :], "behind"
        said, self._held = self._held.lstrip(), ""
        self._state = "over" if said else "behind"
        return said, thought

    def end(self) -> tuple[str, str]:
        """What was held back."""
        held, within = self._held, self._state == "within"
        self._held, self._state = "", "over"
        return ("", held) if within else (held, "")


def _add_details(details: list[dict[str, Any]], pieces: Any) -> None:
    """Take details of thoughts; a piece of a text goes on with the one before."""
    for piece in pieces if isinstance(pieces, list) else ():
        if not isinstance(piece, dict):
            continue
        last = details[-1] if details else {}
        if piece.get("type") not in _PIECEMEAL or any(piece.get(k) != last.get(k) for k in ("type", "index")):
            details.append(dict(piece))
            continue
        for key, value in piece.items():
            if key in ("text", "summary"):
                last[key] = f"{last.get(key) or ''}{value or ''}"
            elif value is not None:
                last[key] = value


def _plain(content: Any) -> str:
    """The text of a piece of content: a text, or parts of which some are text and others thoughts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _arguments(given: Any) -> str:
    if isinstance(given, str):
        return given
    return json.dumps(given, ensure_ascii=False) if given is not None else ""


def _usage(usage: Any) -> Usage:
    def part(of: Any, name: str) -> Any:
        return of.get(name) if isinstance(of, dict) else getattr(of, name, None)

    def figure(of: Any, name: str) -> int:
        found = part(of, name)
        return int(found) if isinstance(found, int | float) and 0 <= found <= MOST_TOKENS else 0

    cached = (
        figure(part(usage, "prompt_tokens_details"), "cached_tokens")
        or figure(usage, "cached_tokens")  # Moonshot's
        or figure(usage, "prompt_cache_hit_tokens")  # DeepSeek's
    )
    return Usage(figure(usage, "prompt_tokens"), figure(usage, "completion_tokens"), cached)

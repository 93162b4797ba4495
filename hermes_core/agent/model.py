"""A model behind an OpenAI-compatible server: OpenAI, OpenRouter, Ollama, llama.cpp, vLLM.

Chat completions, streamed. Tries again when a server is busy, and never after the person has seen a part of the
answer. Any thread may stop a request; the one that waits for it goes on at once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import random
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from hermes_core.agent.answer import Answer, AnswerBuilder, Chat
from hermes_core.agent.cancel import Cancel, relay
from hermes_core.errors import ConfigError, ContextOverflow, ModelError, ModelRefused, ModelUnavailable
from hermes_core.safety.redact import redact

MAX_RETRY_AFTER = 120.0
"""Seconds; a server that wants a longer pause is reported instead of waited for."""

MAX_DELAY = 30.0
_BUSY = frozenset({408, 429})
_UNKNOWN_FIELD = frozenset({400, 422})
_OVERFLOW_WORDS = ("context length", "context_length", "context size", "maximum context", "too many tokens")
_MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id")

Hear = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model, where. `context_length` is in tokens, `timeout` in seconds between two pieces of an answer.

    `retries` counts further tries after the first; `pause` is the first pause between two, doubled each time.
    """

    base_url: str = "https://api.openai.com/v1"
    name: str = ""
    api_key: str = ""
    context_length: int = 32768
    timeout: float = 120.0
    retries: int = 4
    pause: float = 0.5

    def __repr__(self) -> str:
        return f"ModelSettings(base_url={self.base_url!r}, name={self.name!r})"


class ChatModel(Protocol):
    """What the agent needs of a model."""

    @property
    def name(self) -> str:
        """Name of the model, as stored with a session."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens that a request and its answer may have together."""
        ...

    def complete(
        self, messages: Sequence[Chat], tools: Sequence[dict[str, Any]], *, hear: Hear, cancel: Cancel
    ) -> Answer:
        """Answer a conversation; `hear` gets the text as it comes, on the calling thread.

        Raises `ModelError`, and `Cancelled` when `cancel` is thrown.
        """
        ...


class OpenAIModel:
    """The model that `settings` name. Holds one connection pool; safe to share between threads; close it."""

    def __init__(self, settings: ModelSettings) -> None:
        if not settings.name:
            raise ConfigError("no model is set", "write `model:` with base_url and name into config.yaml")
        if not settings.base_url.startswith(("http://", "https://")):
            raise ConfigError(
                f"the model's base_url is {settings.base_url!r}",
                "write a whole address, as http://localhost:11434/v1",
            )
        if importlib.util.find_spec("openai") is None:
            raise ConfigError(
                "the package 'openai' is not installed", "pip install 'hermes-memory-core[agent]'"
            )
        self.settings = settings
        self._client: Any = None
        self._opening = threading.Lock()
        self._takes_temperature = True

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.settings.name

    @property
    def context_length(self) -> int:
        """Its context in tokens."""
        return self.settings.context_length

    def at(self, temperature: float) -> ChatModel:
        """This model, asked at a temperature; at its own where its server takes none, as that of some models does."""
        return _Tempered(self, temperature)

    def complete(
        self,
        messages: Sequence[Chat],
        tools: Sequence[dict[str, Any]],
        *,
        hear: Hear,
        cancel: Cancel,
        temperature: float | None = None,
    ) -> Answer:
        """Answer a conversation; see `ChatModel`. `tools` are `{"name", "description", "parameters"}`."""
        request = _request(self.settings.name, messages, tools)
        if temperature is None or not self._takes_temperature:
            return self._answer(request, hear, cancel)
        try:
            return self._answer({**request, "temperature": temperature}, hear, cancel)
        except ModelRefused as exc:
            refused = getattr(exc.__cause__, "status_code", None) in _UNKNOWN_FIELD
            if not refused or isinstance(exc, ContextOverflow):
                raise
        answer = self._answer(request, hear, cancel)
        self._takes_temperature = False
        return answer

    def _answer(self, request: dict[str, Any], hear: Hear, cancel: Cancel) -> Answer:
        heard = False

        def note(text: str) -> None:
            nonlocal heard
            heard = True
            hear(text)

        for attempt in range(self.settings.retries + 1):
            try:
                return self._stream(request, note, cancel)
            except ModelUnavailable as exc:
                delay = _delay(exc.retry_after, attempt, self.settings.pause)
                if heard or attempt == self.settings.retries or delay > MAX_RETRY_AFTER:
                    raise
                cancel.wait(delay)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _stream(self, request: dict[str, Any], hear: Hear, cancel: Cancel) -> Answer:
        pieces: Generator[str, None, Answer] = relay(
            lambda emit: self._send(request, emit, cancel), cancel, "agent-model"
        )
        while True:
            try:
                hear(next(pieces))
            except StopIteration as done:
                answer: Answer = done.value
                return answer

    def _send(self, request: dict[str, Any], emit: Hear, cancel: Cancel) -> Answer:
        """One try, on a thread of its own."""
        builder = AnswerBuilder()
        with (
            _our_errors(self.settings),
            self._open().chat.completions.create(**request) as stream,
            cancel.calling(lambda: _cut(stream.response)),
        ):
            for chunk in stream:
                text = builder.feed(chunk)
                if text:
                    emit(text)
        if not builder.finish:
            raise ModelUnavailable(f"the answer of {self.settings.name!r} broke off", "ask again")
        return builder.answer()

    def _open(self) -> Any:
        import openai  # a third of a second, paid at the first request only

        with self._opening:
            if self._client is None:
                self._client = openai.OpenAI(
                    base_url=self.settings.base_url,
                    api_key=self.settings.api_key or "none",
                    timeout=openai.Timeout(self.settings.timeout, connect=10.0),
                    # Its own pauses can't be interrupted and don't know what the person has heard already.
                    max_retries=0,
                )
            return self._client


@dataclass(frozen=True, slots=True)
class _Tempered:
    """A model at a temperature."""

    model: OpenAIModel
    temperature: float

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def context_length(self) -> int:
        return self.model.context_length

    def complete(
        self, messages: Sequence[Chat], tools: Sequence[dict[str, Any]], *, hear: Hear, cancel: Cancel
    ) -> Answer:
        return self.model.complete(messages, tools, hear=hear, cancel=cancel, temperature=self.temperature)


def say(model: ChatModel, messages: Sequence[Chat], cancel: Cancel) -> Answer:
    """Ask without tools and without anyone listening."""
    return model.complete(messages, (), hear=_unheard, cancel=cancel)


def _unheard(text: str) -> None:
    del text


def _request(name: str, messages: Sequence[Chat], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    request: dict[str, Any] = {
        "model": name,
        "messages": [
            {key: message[key] for key in _MESSAGE_FIELDS if key in message} for message in messages
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if tools:
        request["tools"] = [{"type": "function", "function": dict(tool)} for tool in tools]
    return request


def _delay(retry_after: float | None, attempt: int, pause: float) -> float:
    """The server's wish, else doubling pauses with up to a quarter taken off, so that clients don't march in step."""
    if retry_after is not None:
        return max(retry_after, 0.0)
    return float(min(pause * 2**attempt, MAX_DELAY)) * (1 - random.random() / 4)


@contextlib.contextmanager
def _our_errors(settings: ModelSettings) -> Iterator[None]:
    """The SDK's errors as ours; the one place that knows them."""
    import openai

    try:
        yield
    except openai.APIStatusError as exc:
        raise _status_error(exc, settings) from exc
    except openai.APITimeoutError as exc:
        raise ModelUnavailable(
            f"{settings.base_url!r} did not answer within {settings.timeout:g} s",
            "try again, or raise model.timeout",
        ) from exc
    except openai.APIConnectionError as exc:
        raise ModelUnavailable(
            f"the connection to {settings.base_url!r} failed: {exc.__cause__ or exc}",
            "is the server running?",
        ) from exc
    except (openai.APIError, ValueError) as exc:
        raise ModelUnavailable(f"{settings.base_url!r} sent what is no answer: {exc}", "try again") from exc


def _status_error(exc: Any, settings: ModelSettings) -> ModelError:
    text = str(exc.message).removeprefix(f"Error code: {exc.status_code} - ")
    said = f"{settings.base_url!r} answered {exc.status_code}: {redact(text[:500])}"
    if exc.status_code in _BUSY or exc.status_code >= 500:
        return ModelUnavailable(
            said, "try again later", _retry_after(exc.response.headers.get("retry-after"))
        )
    if exc.status_code in (401, 403):
        return ModelRefused(said, "check the key that model.api_key_env names")
    if exc.status_code == 413 or any(word in str(exc.message).lower() for word in _OVERFLOW_WORDS):
        return ContextOverflow(
            said, "compress the conversation, or set model.context_length to what the model has"
        )
    return ModelRefused(said, "check model.name and model.base_url")


def _retry_after(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, a number or a date (RFC 9110, 10.2.3); None when it says nothing."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        with contextlib.suppress(ValueError, TypeError):
            return parsedate_to_datetime(header).timestamp() - time.time()
        return None
    return seconds if math.isfinite(seconds) else None


def _cut(response: Any) -> None:
    """Wake the thread that reads this response: closing a socket does not, shutting it down does."""
    raw = response.extensions.get("network_stream")
    connection = raw.get_extra_info("socket") if raw is not None else None
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

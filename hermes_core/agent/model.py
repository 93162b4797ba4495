"""A model behind an OpenAI-compatible server: OpenAI, OpenRouter, Ollama, llama.cpp, vLLM.

Chat completions, streamed. Tries again when a server is busy, and never after the person has seen a part of the
answer. Any thread may stop a request; the one that waits for it goes on at once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hermes_core.agent.answer import Answer, AnswerBuilder, Chat
from hermes_core.agent.cancel import Cancel, Cancelled, interruptible, relay
from hermes_core.agent.chat_model import ChatModel, Hear, unheard
from hermes_core.agent.connection import (
    follow,
    framed,
    hung_up_by,
    limits,
    lingering,
    only_data,
    trusted,
    unreached,
)
from hermes_core.agent.failures import code_of, failure, words
from hermes_core.agent.given import require, require_number
from hermes_core.agent.request import Dialect
from hermes_core.errors import ConfigError, ModelRefused, ModelUnavailable
from hermes_core.kit.http import retry_after_seconds
from hermes_core.manager.call import attempt
from hermes_core.safety.redact import redact

log = logging.getLogger(__name__)

MAX_RETRY_AFTER = 120.0
"""Seconds; a server that wants a longer pause is reported instead of waited for."""

MAX_DELAY = 30.0
CONNECT_SECONDS = 10.0
LIST_SECONDS = 10.0
"""For the whole list of models, which a person who has asked what is wrong waits for."""

LONGEST_LIST = 16 * 1024 * 1024
"""Bytes of a list of models; that of the largest router has one of them."""

LONGEST_ERROR = 1024 * 1024
"""Bytes that are read of what a server says in place of an answer."""


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
        return redact(f"ModelSettings(base_url={self.base_url!r}, name={self.name!r})")


class OpenAIModel:
    """The model that `settings` name. Holds one connection pool; safe to share between threads; close it.

    `pausing` is told, on the thread that waits, why a server that could not answer is asked again, and when.
    """

    def __init__(self, settings: ModelSettings, pausing: Callable[[str], None] = unheard) -> None:
        require("settings", settings, ModelSettings, "ModelSettings(base_url, name)")
        require("the model's name", settings.name, str, "the name that its server knows")
        if not settings.name:
            raise ConfigError("no model is set", "write `model:` with base_url and name into config.yaml")
        if not _is_address(settings.base_url):
            raise ConfigError(
                f"the model's base_url is {settings.base_url!r}",
                "write a whole address with nothing behind its path, as http://localhost:11434/v1",
            )
        if not isinstance(settings.api_key, str):
            raise ConfigError(
                f"the model's key is a {type(settings.api_key).__name__}",
                'give it as text, and "" where its server takes none',
            )
        if not settings.api_key.isascii() or not settings.api_key.isprintable():
            raise ConfigError(
                "the model's key has a line break in it, or a letter that no key has",
                "copy it again into the variable that model.api_key_env names",
            )
        require_number("context_length", settings.context_length, int, 1)
        require_number("timeout", settings.timeout, (int, float), 0.001)
        require_number("retries", settings.retries, int, 0)
        require_number("pause", settings.pause, (int, float), 0)
        if importlib.util.find_spec("openai") is None:
            raise ConfigError(
                "the package 'openai' is not installed", "pip install 'hermes-memory-core[agent]'"
            )
        self.settings = settings
        self._pausing = pausing
        self._client: Any = None
        self._closed = False
        self._opening = threading.Lock()
        self._dialect = Dialect()

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
        dialect = self._dialect
        while True:
            request = dialect.request(self.settings.name, messages, tools, temperature)
            try:
                answer = self._answer(request, hear, cancel)
            except ModelRefused as exc:
                other = dialect.after(exc, request)
                if other is None:
                    raise
                dialect = other
            else:
                self._dialect = dialect
                return answer

    def listed(self) -> list[str]:
        """The names of the models that the server has, asked once and within seconds. Raises `ModelError`."""
        seconds, late = min(LIST_SECONDS, self.settings.timeout), Cancel()
        timer = threading.Timer(seconds, late.set)  # what drips keeps within each timeout of the SDK
        timer.daemon = True
        timer.start()
        try:
            told = interruptible(lambda: self._list(late), late, "agent-models")
        except Cancelled:
            raise ModelUnavailable(
                f"{self.settings.base_url!r} did not send the list of its models within {seconds:g} s",
                "is it busy, or no server of models?",
            ) from None
        finally:
            timer.cancel()
        _raise_error(told, self.settings)
        found = told.get("data") if isinstance(told, dict) else told  # some servers send the list bare
        if not isinstance(told, dict | list):
            raise ModelRefused(
                f"{self.settings.base_url!r} sent no list of its models",
                "is model.base_url the address of an OpenAI-compatible server, with its /v1?",
            )
        named = [one.get("id") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return [name for name in named if isinstance(name, str)]

    def _list(self, late: Cancel) -> Any:
        """What the server says of its models, None where it is no JSON."""
        body = bytearray()
        with (
            _our_errors(self.settings),
            hung_up_by(late) as wire,
            self._open().models.with_streaming_response.list() as answer,
        ):
            wire.carries(answer.http_response)
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > LONGEST_LIST:
                    return None
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(body)
        return None

    def _answer(self, request: dict[str, Any], hear: Hear, cancel: Cancel) -> Answer:
        heard, tried = False, 0

        def note(text: str) -> None:
            nonlocal heard
            heard = True
            hear(text)

        while True:
            try:
                return self._stream(request, note, cancel)
            except ModelUnavailable as exc:
                delay = _delay(exc.retry_after, tried, self.settings.pause)
                if heard or tried == self.settings.retries or delay > MAX_RETRY_AFTER:
                    raise
                told = f"asking again in {delay:.1f} s: {exc}"
                log.warning(told)
                self._pausing(told)
                cancel.wait(delay)
                tried += 1

    def close(self) -> None:
        """Close the connections; nothing is asked any more."""
        with self._opening:
            self._closed = True
        if self._client is not None:
            self._client.close()

    def _stream(self, request: dict[str, Any], hear: Hear, cancel: Cancel) -> Answer:
        over = Cancel()
        try:
            with cancel.calling(over.set):
                return relay(lambda emit: self._send(request, emit, over), hear, cancel, "agent-model")
        finally:  # also where `hear` raises: nobody waits for the rest
            over.set()

    def _send(self, request: dict[str, Any], emit: Hear, cancel: Cancel) -> Answer:
        """One try, on a thread of its own."""
        builder = AnswerBuilder()
        try:
            response = self._read(request, builder, emit, cancel)
        except ModelUnavailable:
            if not builder.over:
                raise
            response = None
        rest = builder.end()
        if rest:
            emit(rest)
        answer = builder.answer()
        if answer.finish or ((answer.text or answer.calls) and framed(response)):
            return answer
        if answer == Answer() and _kind(response) == "text/html":
            raise _no_stream(response, self.settings)
        raise ModelUnavailable(f"the answer of {self.settings.name!r} broke off", "ask again")

    def _read(self, request: dict[str, Any], builder: AnswerBuilder, emit: Hear, cancel: Cancel) -> Any:
        """Read what is streamed; returns the response that it came in."""
        with (
            _our_errors(self.settings),
            hung_up_by(cancel) as wire,
            # Past the SDK's reading of each field by its type: a tenth of a second in a long conversation.
            self._open().chat.completions.create(
                model=request["model"], messages=(), stream=True, extra_body=request
            ) as stream,
            lingering(stream.response) as over,
        ):
            wire.carries(stream.response)
            for chunk in _pieces(stream, self.settings):
                text = builder.feed(chunk)
                over(builder.over)
                if text:
                    emit(text)
        return stream.response

    def _open(self) -> Any:
        import openai  # a third of a second, paid at the first request only

        with self._opening:
            if self._closed:
                raise ModelRefused(
                    f"the model {self.name!r} was closed", "close it when no agent asks it any more"
                )
            if self._client is None:
                hooks: dict[str, list[Any]] = {"request": [follow], "response": [_read_error]}
                connections, fault = attempt(
                    lambda: openai.DefaultHttpxClient(event_hooks=hooks, limits=limits(), verify=trusted())
                )
                if fault is not None:  # as for SOCKS, which the SDK speaks with another package only
                    raise ModelRefused(
                        f"the connection to {self.settings.base_url!r} can't be set up: {fault}",
                        "look at ALL_PROXY, HTTP_PROXY, HTTPS_PROXY and SSL_CERT_FILE in the environment",
                    ) from fault
                self._client = openai.OpenAI(
                    base_url=self.settings.base_url,
                    api_key=self.settings.api_key or "none",
                    timeout=openai.Timeout(self.settings.timeout, connect=CONNECT_SECONDS),
                    # Its own pauses can't be interrupted and don't know what the person has heard already.
                    max_retries=0,
                    http_client=connections,
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


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return isinstance(url, str) and (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
        )
    except (ValueError, AttributeError):  # a port that is no number, or half an IPv6 address
        return False


def _delay(retry_after: float | None, tried: int, pause: float) -> float:
    """The server's wish, where it is one for a pause, else doubling pauses with up to a quarter taken off, so that clients
    don't march in step."""
    if retry_after:
        return retry_after
    return float(min(pause * 2**tried, MAX_DELAY)) * (1 - random.random() / 4)


def _wished(headers: Mapping[str, str]) -> float | None:
    """The pause in seconds that a server asks for; OpenAI and Azure say it in milliseconds as well, which is nearer."""
    exact = retry_after_seconds(headers.get("retry-after-ms"))
    return retry_after_seconds(headers.get("retry-after")) if exact is None else exact / 1000


@contextlib.contextmanager
def _our_errors(settings: ModelSettings) -> Iterator[None]:
    """The SDK's errors as ours, and those that it lets through of a body that breaks off; the one place that knows them."""
    import httpx2
    import openai

    server = settings.base_url
    try:
        yield
    except openai.APIStatusError as exc:
        pause = _wished(exc.response.headers)
        raise failure(server, exc.status_code, exc.body, settings.api_key, pause) from exc
    except (openai.APITimeoutError, httpx2.TimeoutException) as exc:
        if type(exc.__cause__).__name__ == "ConnectTimeout":
            raise ModelUnavailable(
                f"the connection to {server!r} failed: nothing there in {CONNECT_SECONDS:g} s",
                unreached(server),
            ) from exc
        raise ModelUnavailable(
            f"{server!r} did not answer within {settings.timeout:g} s", "try again, or raise model.timeout"
        ) from exc
    except (openai.APIConnectionError, httpx2.HTTPError) as exc:
        said = words(str(exc.__cause__ or exc), settings.api_key)
        raise ModelUnavailable(f"the connection to {server!r} failed: {said}", unreached(server)) from exc
    except openai.APIError as exc:
        raise failure(server, code_of(exc.body), exc.body or exc.message, settings.api_key) from exc
    except (ValueError, RecursionError) as exc:
        raise ModelUnavailable(f"{server!r} sent what is no answer: {exc}", "try again") from exc


def _pieces(stream: Any, settings: ModelSettings) -> Iterator[Any]:
    """What is streamed; the whole answer as one piece where the server streams none. Raises what it says in its place."""
    if _kind(stream.response) != "application/json":
        only_data(stream.response)
        yield from stream
        return
    body = json.loads(_beginning(stream.response))
    _raise_error(body, settings)
    whole, fault = attempt(_as_piece, body)
    if fault is not None:
        raise _no_stream(stream.response, settings) from fault
    yield whole


def _as_piece(body: Any) -> Any:
    """A whole answer in the form of a stream's piece, as the SDK gives one."""
    from openai.types.chat import ChatCompletionChunk

    (choice,) = body["choices"]
    message = choice["message"]
    calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls") or ())]
    delta = {**message, "tool_calls": calls}
    return ChatCompletionChunk.construct(**{**body, "choices": [{**choice, "delta": delta}]})


def _raise_error(body: Any, settings: ModelSettings) -> None:
    """Raise the error that a server sent with status 200."""
    error = body.get("error") if isinstance(body, dict) else None
    if error is not None:
        raise failure(settings.base_url, code_of(error), error, settings.api_key)


def _read_error(response: Any) -> None:
    """Read an error before the SDK does, which reads it to its end: some have none."""
    if response.is_error:
        response._content = _beginning(response)
        response.close()


def _beginning(response: Any) -> bytes:
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > LONGEST_ERROR:
            break
    return bytes(body)


def _no_stream(response: Any, settings: ModelSettings) -> ModelRefused:
    return ModelRefused(
        f"{settings.base_url!r} answered with {_kind(response)!r}, not with a streamed answer",
        "is model.base_url the address of an OpenAI-compatible server, with its /v1?",
    )


def _kind(response: Any) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip()

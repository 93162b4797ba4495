"""Models: the protocol of a model that the agent can ask, and the model behind an OpenAI-compatible server.

`OpenAIModel` uses the streamed chat completions of OpenAI, OpenRouter, Ollama, llama.cpp, vLLM and others. It retries
when a server is busy, but never after the person has seen a part of the answer. Any thread may cancel a request; the
thread that waits for the answer continues at once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from hermes_core.errors import ConfigError, ContextOverflow, ModelError, ModelRefused, ModelUnavailable
from hermes_core.kit import redact
from hermes_core.kit.http import retry_after_seconds
from hermes_core.manager.call import attempt, ends_program
from hermes_core.packages import install_remedy
from hermes_core.sessions.records import sqlite_text
from hermes_memory_agent.answer import (
    ECHO,
    ORIGIN,
    Answer,
    AnswerBuilder,
    ChatMessage,
    Messages,
    without_thoughts,
)
from hermes_memory_agent.cancel import Cancel, Cancelled, call_later, ignore, interruptible, relay
from hermes_memory_agent.connection import (
    connection_hint,
    connection_limits,
    cut_after_end,
    cut_on_cancel,
    drop_empty_events,
    error_text,
    has_framing,
    server_error,
    ssl_context,
    status_in,
    trace_connections,
)
from hermes_memory_agent.validation import refused, require, require_number

log = logging.getLogger(__name__)

# Longest pause that a server may ask for; a longer one is reported instead of waited for.
MAX_RETRY_AFTER_S = 120.0

# Longest pause between two tries if the server names none.
MAX_DELAY_S = 30.0

CONNECT_TIMEOUT_S = 10.0
# Seconds for the whole list of models; short, because `hermes-memory doctor` waits for it.
LIST_TIMEOUT_S = 10.0

# Largest list of models that is read, in bytes. The list of the largest router has one megabyte.
MAX_LIST_BYTES = 16 * 1024 * 1024

# Bytes of an error response that are read; some servers never end it.
MAX_ERROR_BYTES = 1024 * 1024

OnText = Callable[[str], None]


class ChatModel(Protocol):
    """Protocol of a model that the agent can ask. `OpenAIModel` implements it; a host may write its own.

    Several threads call `complete` at the same time, because a background review runs beside the conversation.
    """

    @property
    def name(self) -> str:
        """Name of the model, as stored with a session."""
        ...

    @property
    def context_length(self) -> int:
        """Tokens that a request and its answer may have together."""
        ...

    def complete(
        self, messages: Messages, tools: Sequence[dict[str, Any]], *, on_text: OnText, cancel: Cancel
    ) -> Answer:
        """Answer a conversation.

        Args:
            messages: Copies of the messages of the conversation, in the OpenAI chat form.
            tools: The tools, each as `{"name", "description", "parameters"}`.
            on_text: Function to call with each piece of the answer's text, on the calling thread.
            cancel: Switch that cancels the request. Return or raise soon after it is set; the agent then treats any
                exception as the cancellation.

        Raises:
            ModelError: the model gave no answer. The agent logs any other exception and reports it as a `ModelError`.
        """
        ...


def require_model(name: str, value: object) -> None:
    """Raise `ConfigError` if the value is not a `ChatModel`, but for instance the name of a model.

    `name` is the argument's name for the error message.
    """
    valid = isinstance(getattr(value, "name", None), str) and callable(getattr(value, "complete", None))
    if not valid or not isinstance(getattr(value, "context_length", None), int):
        raise refused(name, value, "OpenAIModel(ModelSettings(base_url, name)), or a ChatModel of your own")


def ask(
    model: ChatModel, messages: Messages, tools: Sequence[dict[str, Any]], *, on_text: OnText, cancel: Cancel
) -> Answer:
    """Ask a model, which may be a host's own, and return its answer.

    The arguments are those of `ChatModel.complete`.

    Raises:
        Cancelled: `cancel` was set. Any exception of the model after that is taken for the cancellation.
        ModelError: the model failed in any way, or did not return an `Answer`.
        BaseException: whatever `on_text` raised.
    """
    raised_by_callback: list[BaseException] = []

    def forward(text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text for `on_text`")
        _, fault = attempt(on_text, text)
        if fault is not None:
            raised_by_callback.append(fault)
            raise fault

    # Copies, because a host's model may change them.
    copies = [{key: value for key, value in message.items() if key != ORIGIN} for message in messages]
    answer, fault = attempt(lambda: model.complete(copies, tools, on_text=forward, cancel=cancel))
    if isinstance(answer, Answer):
        return answer
    subject = f"the model {model.name!r}"
    if fault is None:
        raise ModelError(
            f"{subject} gave a {type(answer).__name__}, not an Answer",
            "return hermes_memory_agent.Answer(text, calls)",
        )
    if fault in raised_by_callback or isinstance(fault, Cancelled) or ends_program(fault):
        raise fault
    if cancel.is_set():
        raise Cancelled from fault  # the model closed the connection, which its client calls a failure
    if isinstance(fault, ModelError):
        raise fault
    log.warning("%s failed", subject, exc_info=fault)
    raise ModelError(f"{subject} failed: {type(fault).__name__}: {fault}", "the log says where") from fault


def ask_without_tools(model: ChatModel, messages: Messages, cancel: Cancel) -> Answer:
    """Ask a model without offering tools; return its answer without the model's thoughts."""
    answer = ask(model, messages, (), on_text=ignore, cancel=cancel)
    return replace(answer, text=without_thoughts(answer.text))


# -------------------------------------------------------------- requests

_UNKNOWN_FIELD = frozenset({400, 422})
_OPTIONAL = ("temperature", "stream_options")
_MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id")
_THOUGHTS = "reasoning_content"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields of a request that one server refuses or demands, unlike others; learned from the server's refusals.

    Attributes:
        unsupported: Fields of a request that the server does not take.
        thoughts: True if the server demands the model's thoughts with each message of the model. DeepSeek and Moonshot
            refuse a conversation that has tool calls and no thoughts; Mistral, Groq and Cerebras refuse a conversation
            that has thoughts.
    """

    unsupported: frozenset[str] = frozenset()
    thoughts: bool = False

    def request(
        self, name: str, messages: Messages, tools: Sequence[dict[str, Any]], temperature: float | None
    ) -> dict[str, Any]:
        """Return the body of a request to the server.

        Args:
            name: Name of the model.
            messages: The conversation in the OpenAI chat form.
            tools: The tools, each as `{"name", "description", "parameters"}`.
            temperature: Temperature of the answer; None for the server's default.
        """
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
        return {field: value for field, value in request.items() if field not in self.unsupported}

    def adapt(self, refusal: ModelRefused, sent: Mapping[str, Any]) -> Self | None:
        """Return the dialect for another try after a refusal, or None if another dialect can't help.

        If the refusal names the thoughts, the new dialect adds them to the messages. Otherwise it leaves out the fields
        that the refusal names, or the temperature if the refusal names no field.

        Args:
            refusal: The server's refusal.
            sent: The body of the refused request.
        """
        if getattr(refusal.__cause__, "status_code", None) not in _UNKNOWN_FIELD:
            return None
        if isinstance(refusal, ContextOverflow):
            return None
        text = str(refusal)
        if _THOUGHTS in text and not self.thoughts:
            return replace(self, thoughts=True)
        named = {field for field in _OPTIONAL if field in text} or {"temperature"}
        unsupported = frozenset(named & sent.keys())
        return replace(self, unsupported=self.unsupported | unsupported) if unsupported else None

    def _message(self, message: ChatMessage) -> Any:
        body = {field: message[field] for field in _MESSAGE_FIELDS if field in message}
        if self.thoughts and message["role"] == "assistant":
            body[_THOUGHTS] = message.get("reasoning") or " "  # Moonshot takes no empty ones
        return _valid_utf8(body | message.get(ECHO, {}))


def _valid_utf8(value: Any) -> Any:
    """Replace half surrogate pairs in all texts of JSON data, because UTF-8 can't encode them.

    A tool may return one in a file's name; each later request of the conversation would fail.
    """
    if isinstance(value, str):
        return sqlite_text(value)
    if isinstance(value, list | tuple):
        return [_valid_utf8(item) for item in value]
    if isinstance(value, dict):
        return {key: _valid_utf8(item) for key, item in value.items()}
    return value


# -------------------------------------------------------------- the model


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The address and the limits of a model.

    Attributes:
        base_url: Address of the server, with its path (`/v1`).
        name: Name of the model, as its server knows it.
        api_key: Key of the server; "" if it takes none.
        context_length: Tokens of a request and its answer together.
        timeout: Longest pause in seconds between two pieces of an answer.
        retries: Largest number of tries after the first try.
        pause: Seconds before the second try. The pause doubles before each later try.
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
    """A model behind an OpenAI-compatible server. Threads may share it. Call `close` to close its connections.

    Args:
        settings: The address and the limits of the model.
        on_retry: Function that gets the reason before each further try, on the thread that waits for the answer.

    Raises:
        ConfigError: a setting is invalid, or the package `openai` is not installed.
    """

    def __init__(self, settings: ModelSettings, on_retry: Callable[[str], None] = ignore) -> None:
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
            raise ConfigError("the package 'openai' is not installed", install_remedy("hermes-memory-agent"))
        self.settings = settings
        self._on_retry = on_retry
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
        """Tokens of a request and its answer together."""
        return self.settings.context_length

    def use(self, name: str) -> None:
        """Ask another model of the same server from the next request on; agents with this model follow.

        Raises `ConfigError` if `name` is empty.
        """
        require("the model's name", name, str, "the name that its server knows")
        if not name.strip():
            raise ConfigError(f"{name!r} names no model", "give the name that the server knows")
        self.settings = replace(self.settings, name=name.strip())
        self._dialect = Dialect()  # models of one server differ in what they refuse

    def at(self, temperature: float) -> ChatModel:
        """Return a model that asks this model at a fixed temperature.

        If the server accepts no temperature, its default is used.
        """
        return _ModelAtTemperature(self, temperature)

    def complete(
        self,
        messages: Messages,
        tools: Sequence[dict[str, Any]],
        *,
        on_text: OnText,
        cancel: Cancel,
        temperature: float | None = None,
    ) -> Answer:
        """Answer a conversation, as `ChatModel.complete` describes. `temperature` None is the server's default."""
        dialect = self._dialect
        while True:
            request = dialect.request(self.settings.name, messages, tools, temperature)
            try:
                answer = self._answer(request, on_text, cancel)
            except ModelRefused as exc:
                adapted = dialect.adapt(exc, request)
                if adapted is None:
                    raise
                dialect = adapted
            else:
                self._dialect = dialect
                return answer

    def list_models(self) -> list[str]:
        """Ask the server once for the names of its models. Raise `ModelError` if no list arrives within 10 seconds."""
        seconds, late = min(LIST_TIMEOUT_S, self.settings.timeout), Cancel()
        # Before the timer starts: the import of the SDK, which takes seconds on a busy machine, is no time of the server.
        with _our_errors(self.settings):
            client = self._open()
        # A body that arrives in small pieces meets each timeout of the SDK, so a timer limits the whole.
        stop_timer = call_later(seconds, late.set)
        try:
            body = interruptible(lambda: self._list(client, late), late, "agent-models")
        except Cancelled:
            raise ModelUnavailable(
                f"{self.settings.base_url!r} did not send the list of its models within {seconds:g} s",
                "is it busy, or no server of models?",
            ) from None
        finally:
            stop_timer()
        _raise_error(body, self.settings)
        models = body.get("data") if isinstance(body, dict) else body  # some servers send the list bare
        if not isinstance(body, dict | list):
            raise ModelRefused(
                f"{self.settings.base_url!r} sent no list of its models",
                "is model.base_url the address of an OpenAI-compatible server, with its /v1?",
            )
        ids = (
            [model.get("id") for model in models if isinstance(model, dict)]
            if isinstance(models, list)
            else []
        )
        return [name for name in ids if isinstance(name, str)]

    def _list(self, client: Any, late: Cancel) -> Any:
        """Return the server's list of models as decoded JSON, or None if it is too long or no JSON.

        `late` cuts the request when it is set.
        """
        body = bytearray()
        with (
            _our_errors(self.settings),
            cut_on_cancel(late) as connections,
            client.models.with_streaming_response.list() as answer,
        ):
            connections.add_of(answer.http_response)
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > MAX_LIST_BYTES:
                    return None
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(body)
        return None

    def _answer(self, request: dict[str, Any], on_text: OnText, cancel: Cancel) -> Answer:
        shown, tried = False, 0

        def show(text: str) -> None:
            nonlocal shown
            shown = True
            on_text(text)

        while True:
            try:
                return self._stream(request, show, cancel)
            except ModelUnavailable as exc:
                delay = _delay(exc.retry_after, tried, self.settings.pause)
                # The person has seen the beginning of an answer, and another try would answer in other words.
                if shown or tried == self.settings.retries or delay > MAX_RETRY_AFTER_S:
                    raise
                reason = f"asking again in {delay:.1f} s: {exc}"
                log.warning(reason)
                self._on_retry(reason)
                cancel.wait(delay)
                tried += 1

    def close(self) -> None:
        """Close the connections. Later requests raise `ModelRefused`."""
        with self._opening:
            self._closed = True
        if self._client is not None:
            self._client.close()

    def _stream(self, request: dict[str, Any], on_text: OnText, cancel: Cancel) -> Answer:
        stop = Cancel()
        try:
            with cancel.callback(stop.set):
                return relay(lambda emit: self._send(request, emit, stop), on_text, cancel, "agent-model")
        finally:  # also if `on_text` raises: nobody waits for the rest
            stop.set()

    def _send(self, request: dict[str, Any], emit: OnText, cancel: Cancel) -> Answer:
        """Send the request once; pass each piece of the text to `emit`, and return the whole answer.

        Raise `ModelUnavailable` if the answer breaks off. This runs on a separate thread.
        """
        builder = AnswerBuilder()
        try:
            response = self._read(request, builder, emit, cancel)
        except ModelUnavailable:
            if not builder.over:
                raise
            response = None  # the answer was complete before the connection broke
        rest = builder.end()
        if rest:
            emit(rest)
        answer = builder.answer()
        if answer.finish or ((answer.text or answer.calls) and has_framing(response)):
            return answer
        if answer == Answer() and _content_type(response) == "text/html":
            raise _not_streamed(response, self.settings)
        raise ModelUnavailable(f"the answer of {self.settings.name!r} broke off", "ask again")

    def _read(self, request: dict[str, Any], builder: AnswerBuilder, emit: OnText, cancel: Cancel) -> Any:
        """Send the request and feed the streamed answer to the builder; return the HTTP response."""
        with (
            _our_errors(self.settings),
            cut_on_cancel(cancel) as connections,
            # As extra_body: the SDK's conversion of each field takes a tenth of a second in a long conversation.
            self._open().chat.completions.create(
                model=request["model"], messages=(), stream=True, extra_body=request
            ) as stream,
            cut_after_end(stream.response) as at_end,
        ):
            connections.add_of(stream.response)
            for chunk in _chunks(stream, self.settings):
                text = builder.feed(chunk)
                at_end(builder.over)
                if text:
                    emit(text)
        return stream.response

    def _open(self) -> Any:
        import openai  # takes a third of a second, so only at the first request

        with self._opening:
            if self._closed:
                raise ModelRefused(
                    f"the model {self.name!r} was closed", "close it when no agent asks it any more"
                )
            if self._client is None:
                hooks: dict[str, list[Any]] = {"request": [trace_connections], "response": [_read_error]}
                connections, fault = attempt(
                    lambda: openai.DefaultHttpxClient(
                        event_hooks=hooks, limits=connection_limits(), verify=ssl_context()
                    )
                )
                if fault is not None:  # for instance a SOCKS proxy, which needs another package
                    raise ModelRefused(
                        f"the connection to {self.settings.base_url!r} can't be set up: {fault}",
                        "look at ALL_PROXY, HTTP_PROXY, HTTPS_PROXY and SSL_CERT_FILE in the environment",
                    ) from fault
                self._client = openai.OpenAI(
                    base_url=self.settings.base_url,
                    api_key=self.settings.api_key or "none",
                    timeout=openai.Timeout(self.settings.timeout, connect=CONNECT_TIMEOUT_S),
                    # The SDK's pauses can't be interrupted, and it does not know what the person has seen.
                    max_retries=0,
                    http_client=connections,
                )
            return self._client


@dataclass(frozen=True, slots=True)
class _ModelAtTemperature:
    """An `OpenAIModel` that is asked at a fixed temperature."""

    model: OpenAIModel
    temperature: float

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def context_length(self) -> int:
        return self.model.context_length

    def complete(
        self, messages: Messages, tools: Sequence[dict[str, Any]], *, on_text: OnText, cancel: Cancel
    ) -> Answer:
        return self.model.complete(
            messages, tools, on_text=on_text, cancel=cancel, temperature=self.temperature
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return isinstance(url, str) and (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
        )
    except (ValueError, AttributeError):  # a port that is no number, or half an IPv6 address
        return False


def _delay(retry_after: float | None, tried: int, pause: float) -> float:
    """Return the seconds to wait before the next try.

    If the server asks for a pause (`retry_after`), use that pause. Otherwise double `pause` for each of the `tried`
    tries, and take off up to a quarter at random, so that many clients don't return at the same moment.
    """
    if retry_after:
        return retry_after
    return float(min(pause * 2**tried, MAX_DELAY_S)) * (1 - random.random() / 4)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the headers ask to wait; None if they ask for no wait.

    OpenAI and Azure also send the milliseconds, which are more exact.
    """
    exact = retry_after_seconds(headers.get("retry-after-ms"))
    return retry_after_seconds(headers.get("retry-after")) if exact is None else exact / 1000


@contextlib.contextmanager
def _our_errors(settings: ModelSettings) -> Iterator[None]:
    """Within the block, turn errors of the SDK and of httpx into `ModelError`.

    The SDK lets an error of httpx pass when the body of a response breaks off.
    """
    import httpx2
    import openai

    server = redact(settings.base_url)
    try:
        yield
    except openai.APIStatusError as exc:
        pause = _retry_after(exc.response.headers)
        raise server_error(server, exc.status_code, exc.body, settings.api_key, pause) from exc
    except (openai.APITimeoutError, httpx2.TimeoutException) as exc:
        if type(exc.__cause__).__name__ == "ConnectTimeout":
            raise ModelUnavailable(
                f"the connection to {server!r} failed: nothing there in {CONNECT_TIMEOUT_S:g} s",
                connection_hint(settings.base_url),
            ) from exc
        raise ModelUnavailable(
            f"{server!r} did not answer within {settings.timeout:g} s", "try again, or raise model.timeout"
        ) from exc
    except (openai.APIConnectionError, httpx2.HTTPError) as exc:
        cause = error_text(str(exc.__cause__ or exc), settings.api_key)
        raise ModelUnavailable(
            f"the connection to {server!r} failed: {cause}", connection_hint(settings.base_url)
        ) from exc
    except openai.APIError as exc:
        raise server_error(server, status_in(exc.body), exc.body or exc.message, settings.api_key) from exc
    except (ValueError, RecursionError) as exc:
        raise ModelUnavailable(f"{server!r} sent what is no answer: {exc}", "try again") from exc


def _chunks(stream: Any, settings: ModelSettings) -> Iterator[Any]:
    """Yield the chunks of the stream. If the server does not stream, yield the whole answer as one chunk.

    Raises `ModelError` if the server sent an error in place of an answer.
    """
    if _content_type(stream.response) != "application/json":
        drop_empty_events(stream.response)
        yield from stream
        return
    body = json.loads(_beginning(stream.response))
    _raise_error(body, settings)
    chunk, fault = attempt(_as_chunk, body)
    if fault is not None:
        raise _not_streamed(stream.response, settings) from fault
    yield chunk


def _as_chunk(body: Any) -> Any:
    """Return `body`, an answer that was not streamed, in the form of the SDK's chunks."""
    from openai.types.chat import ChatCompletionChunk

    (choice,) = body["choices"]
    message = choice["message"]
    calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls") or ())]
    delta = {**message, "tool_calls": calls}
    return ChatCompletionChunk.construct(**{**body, "choices": [{**choice, "delta": delta}]})


def _raise_error(body: Any, settings: ModelSettings) -> None:
    """Raise `ModelError` if the body of a response with status 200 contains an error."""
    error = body.get("error") if isinstance(body, dict) else None
    if error is not None:
        raise server_error(settings.base_url, status_in(error), error, settings.api_key)


def _read_error(response: Any) -> None:
    """Read only the beginning of an error response, because some servers never end it and the SDK would wait."""
    if response.is_error:
        response._content = _beginning(response)
        response.close()


def _beginning(response: Any) -> bytes:
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_ERROR_BYTES:
            break
    return bytes(body)


def _not_streamed(response: Any, settings: ModelSettings) -> ModelRefused:
    return ModelRefused(
        f"{settings.base_url!r} answered with {_content_type(response)!r}, not with a streamed answer",
        "is model.base_url the address of an OpenAI-compatible server, with its /v1?",
    )


def _content_type(response: Any) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip()

"""Connections to a model's server: certificates, cutting off a running request, and the errors of servers."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from hermes_core.errors import ContextOverflow, ModelError, ModelRefused, ModelUnavailable
from hermes_core.kit import redact
from hermes_core.sessions.records import sqlite_text
from hermes_memory_agent.cancel import Cancel, call_later, ignore

_FRAMES = frozenset({"content-length", "transfer-encoding"})
# Events of httpx's trace that return a new connection.
_CONNECTED = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")

# Time for a server to send its token counts and close the connection after the last chunk of an answer.
LINGER_S = 5.0

# Time in which a server may send keep-alive lines and no data: a model that thinks without showing it takes
# minutes.
MAX_SILENCE_S = 1800.0

# A line of an event without data, as a proxy may send; the SDK would read the empty text as JSON.
_EMPTY_EVENT = re.compile(rb"(?:event|id|retry)\b|data:? *\r?$")


def ssl_context() -> ssl.SSLContext:
    """Return a TLS context with the certificates that this process trusts."""
    return _ssl_context_of(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _ssl_context_of(*_paths: str | None) -> ssl.SSLContext:
    """Read the SDK's certificates once for all models, because that takes 30 ms and a gateway makes many models.

    `_paths` are the paths in the environment that change the certificates; they only serve as the key of the cache.
    """
    import httpx2

    return httpx2.create_ssl_context()


def connection_hint(url: str) -> str:
    """Return advice after a failed connection to `url`. It names the proxy too if one is in use.

    The error of a proxy can't be told from an error of the server.
    """
    from urllib.request import getproxies, proxy_bypass  # 20 ms, of use only here

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return "is the server running?"
    return "is the server running, and the proxy of the environment? NO_PROXY names servers that need none"


@contextlib.contextmanager
def cut_after_end(response: Any) -> Iterator[Callable[[bool], None]]:
    """Within the block, cut the response `LINGER_S` seconds after its last chunk.

    Yields a function to call after each chunk, with True if the chunk was the last one. Some servers keep the
    connection open after an answer.
    """
    stop_timer: Callable[[], None] = ignore

    def at_end(is_last: bool) -> None:
        nonlocal stop_timer
        stop_timer()
        stop_timer = call_later(LINGER_S, lambda: _cut(_stream_of(response))) if is_last else ignore

    try:
        yield at_end
    finally:
        stop_timer()


def drop_empty_events(response: Any) -> None:
    """Change the response so that the SDK skips server-sent events without data, which it can't read."""
    pieces = response.iter_bytes()
    response.iter_bytes = lambda: _data_of(pieces)


def _data_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    r"""Yield the stream of events without the lines that hold no data, in pieces that end at a line's end.

    >>> list(_data_of([b"retry: 3\n\nda", b"ta: 1\r\n", b"data:\n\n: on"]))
    [b'\n', b'data: 1\r\n', b'\n', b': on']
    """
    partial_line, last_data = [b""], time.monotonic()
    for piece in pieces:
        partial_line.append(piece)
        if b"\n" not in piece:
            continue
        *lines, rest = b"".join(partial_line).split(b"\n")
        partial_line = [rest]
        with_data = [line for line in lines if not _EMPTY_EVENT.match(line)]
        if any(line.startswith(b"data") for line in with_data):
            last_data = time.monotonic()
        elif time.monotonic() - last_data > MAX_SILENCE_S:
            raise ModelRefused(
                f"the model's server said nothing but that it is alive for {MAX_SILENCE_S:g} s", "ask again"
            )
        if with_data:
            yield b"\n".join([*with_data, b""])
    yield b"".join(partial_line)


def has_framing(response: Any) -> bool:
    """Return True if the response says where it ends, so that a broken connection can be told from its end."""
    return response.http_version == "HTTP/2" or not response.headers.keys().isdisjoint(_FRAMES)


class RequestConnections:
    """The open network connections of one request to a model, kept so that another thread can cut them.

    A connection is added when it opens, before the answer begins.
    """

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self._is_cut = False

    def add_of(self, response: Any) -> None:
        """Add the connection of a response."""
        self.add(_stream_of(response))

    def add(self, stream: Any) -> None:
        """Add a connection; cut the connection at once if the request was cut before."""
        self._streams.append(stream)
        if self._is_cut:
            self.cut()

    def cut(self) -> None:
        """Cut the connections of the request, and each connection that is added later."""
        self._is_cut = True
        for stream in list(self._streams):
            _cut(stream)


_current: ContextVar[RequestConnections | None] = ContextVar("hermes_connections", default=None)


@contextlib.contextmanager
def cut_on_cancel(cancel: Cancel) -> Iterator[RequestConnections]:
    """Within the block, cut the connections of this thread's request when `cancel` is set. Yield the connections."""
    connections = RequestConnections()
    token = _current.set(connections)
    try:
        with cancel.callback(connections.cut):
            yield connections
    finally:
        _current.reset(token)


def trace_connections(request: Any) -> None:
    """Add each connection that httpx opens for the request to the `RequestConnections` of this thread."""
    connections = _current.get()
    if connections is not None:
        request.extensions["trace"] = lambda event, info: (
            connections.add(info["return_value"]) if event.endswith(_CONNECTED) else None
        )


def connection_limits() -> Any:
    """Return limits for httpx that allow as many connections as the SDK's own limits, but keep no connection alive.

    If a request used a kept connection, httpx would not tell which one until the answer began, so the request could not
    be cut. Little is lost: the SDK closes a connection after a streamed answer anyway.
    """
    import httpx2

    return httpx2.Limits(max_connections=1000, max_keepalive_connections=0)


def _stream_of(response: Any) -> Any:
    return response.extensions.get("network_stream")


def _cut(stream: Any) -> None:
    """Shut down the socket of a connection. Closing the socket instead would not wake a thread that reads from it."""
    connection = stream.get_extra_info("socket") if stream is not None else None
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


# -------------------------------------------------------------- errors of a server

_MAX_ERROR_TEXT = 500  # characters
_MAX_PAGE = 20_000  # characters of an error page that are read
_BUSY = frozenset({408, 429})
_NO_CREDIT = "the account of that key has no credit left"
_NO_KEY_SENT = "no key was sent: write it into .env, under the name that model.api_key_env has"
_TAGS = re.compile(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>")
_OVERFLOW = re.compile(
    r"(?i)context[ _](length|size|window|limit)|maximum (context|prompt length|model length)|too many tokens"
    r"|(prompt|input) is too long|exceeds? the maximum number of tokens|model token limit|range of input length"
    r"|prompt token count|reduce the length of the (messages|prompt|input)"
)
# OpenAI's words for its limit of tokens a minute, which a later try would meet again.
_TOO_LARGE = re.compile("(?i)request too large")
_NO_TOOLS = re.compile(
    r"(?i)support\w* (\w+ )?tool|tools? (param )?(require|not support)|tool choice requires"
)
_NO_KEY = re.compile("(?i)api key")
# Azure and OpenAI: "content management policy", "content_filter", "flagged by our moderation"; Alibaba: "inappropriate
# content"; Gemini and Bedrock: "blocked by safety", "guardrail".
_FILTERED = re.compile(
    r"(?i)content[ _-]?(?:filter|management|policy|moderation)|moderation|inappropriate|flagged|safety|guardrail|usage polic"
)
_NO_MODEL = re.compile(
    r"(?i)\bmodels?\b.{0,80}?(?:not|n't|unknown|invalid|unavailable)|(?:no such|unknown|invalid) model"
)
# LM Studio's words for a wrong path, with status 200.
_NO_PATH = re.compile("(?i)unexpected endpoint")
# Groq's code for a tool call that it can't read.
_BADLY_WRITTEN = "tool_use_failed"

# The pause before another try: Gemini gives it in words alone, and Azure at times.
_PAUSE = re.compile(
    r"(?i)\b(?:retry|try again) (?:in|after) (?:(\d{1,4})h)?(?:(\d{1,4})m)?(\d{1,9}(?:\.\d+)?) ?(ms|s)"
)


def server_error(
    server: str, status: int, body: object, secret: str = "", retry_after: float | None = None
) -> ModelError:
    """Return the `ModelError` for an error response of a model's server.

    Args:
        server: Address of the server.
        status: HTTP status; 0 if the server broke off an answer.
        body: Decoded body of the response.
        secret: API key to remove from the error's text.
        retry_after: Seconds that the headers ask to wait before another try; None if they don't.
    """
    text, code = error_text(body, secret), _inner(body).get("code")
    message = f"{server!r} {f'answered {status}' if status else 'broke off'}: {text}"
    overflow = status == 413 or (status not in _BUSY and _OVERFLOW.search(text))
    if overflow or (status == 429 and _TOO_LARGE.search(text)):
        return ContextOverflow(
            message,
            "say it shorter, compress the conversation, or set model.context_length to what the model has",
        )
    if code == _BADLY_WRITTEN:
        return ModelUnavailable(message, "ask again, or choose another model: this one writes calls badly")
    if code == "insufficient_quota":  # OpenAI's, with the status of a server that is busy
        return ModelRefused(message, _NO_CREDIT)
    if "PerDay" in str(_inner(body).get("details")):  # Gemini's, which names a pause of seconds all the same
        return ModelRefused(message, "the day's requests of that key are used up")
    if _NO_PATH.search(text):
        return ModelRefused(message, "check model.base_url: most servers want its /v1")
    if not status or status in _BUSY or status >= 500:
        return ModelUnavailable(
            message, "try again later", _pause(body) if retry_after is None else retry_after
        )
    return ModelRefused(message, _remedy(status, text, secret))


def _inner(body: object) -> dict[str, object]:
    """Return the error object in the body of an error response; {} if there is none. Gemini puts it into a list."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
        body = body.get("error", body) if isinstance(body, dict) else body
    return body if isinstance(body, dict) else {}


def _pause(body: object) -> float | None:
    """Return the seconds that the text of an error asks to wait, as in "retry in 20s"; None if it asks for no wait."""
    match = _PAUSE.search(str(_inner(body).get("message"))[:_MAX_PAGE])
    if match is None:
        return None
    hours, minutes, number, unit = match.groups()
    seconds = float(number) / (1000 if unit == "ms" else 1)
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + seconds


def error_text(body: object, secret: str = "") -> str:
    """Return the message in the body of an error response, on one line and without `secret`.

    The body may be JSON with a `message` or `detail`, plain text, or HTML.

    >>> error_text("<html><head><title>502 Bad Gateway</title></head></html>")
    '502 Bad Gateway'
    """
    inner = _inner(body)
    if inner:
        metadata = inner.get("metadata")  # OpenRouter's: what the provider behind it said
        raw = metadata.get("raw") if isinstance(metadata, dict) else None
        reason = inner.get("message") or inner.get("detail") or inner.get("error") or inner
        text = ": ".join(str(part) for part in (reason, raw) if part)
    else:
        text = str(body or "no reason given")
    if text.lstrip().startswith("<"):
        text = _TAGS.sub(" ", text[:_MAX_PAGE])
    if secret:
        text = text.replace(secret, "[key]")
    return redact(sqlite_text(" ".join(text[:_MAX_PAGE].split())))[
        :_MAX_ERROR_TEXT
    ]  # redacted before it is cut, because half a key would not be recognised


def status_in(body: object) -> int:
    """Return the HTTP status in an error object that a server sent inside a stream; 0 if the object has none."""
    code = str(body.get("code")) if isinstance(body, dict) else ""
    return int(code) if re.fullmatch("[45][0-9][0-9]", code) else 0


def _remedy(status: int, text: str, secret: str) -> str:
    if status == 403 and secret and not _NO_KEY.search(text):
        return "choose another model, or see what the account of the key that model.api_key_env names may use"
    if status in (401, 403) or (status == 400 and _NO_KEY.search(text)):
        return "check the key that model.api_key_env names" if secret else _NO_KEY_SENT
    if status == 402:
        return _NO_CREDIT
    if _NO_TOOLS.search(text):
        return "choose a model and a server that take tools, or switch tools off with enabled_toolsets"
    if _FILTERED.search(text):
        return "say it in other words, or choose another model"
    if status == 404 or _NO_MODEL.search(text):
        return "check model.name and model.base_url"
    return "change the message, or choose another model: the server will not take it as it is"

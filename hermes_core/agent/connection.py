"""The connections to a model's server: what they trust, and how one is cut off, also before the answer has begun."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from hermes_core.agent.cancel import Cancel
from hermes_core.errors import ModelRefused

_FRAMES = frozenset({"content-length", "transfer-encoding"})
_CONNECTED = ("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")
"""Events of httpx that bring a connection."""

LINGER = 5.0
"""Seconds in which a server may count its tokens and hang up when it has said that its answer is at its end."""

LONGEST_ALIVE = 1800.0
"""Seconds in which a server may say that it is alive and nothing else: a model that thinks in secret takes minutes."""

_UNSAID = re.compile(rb"(?:event|id|retry)\b|data:? *\r?$")
"""A line of an event that holds no data, as a proxy may send; the SDK takes the nothing for JSON."""


def trusted() -> ssl.SSLContext:
    """The certificates that this process trusts."""
    return _trust_of(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _trust_of(*_where: str | None) -> ssl.SSLContext:
    """Those of the SDK, read once for all models: a gateway that makes one for each turn waits 30 ms for it otherwise."""
    import httpx2

    return httpx2.create_ssl_context()


def unreached(url: str) -> str:
    """What to look at where no connection comes about: that to a proxy fails in the same words as that to the server."""
    from urllib.request import getproxies, proxy_bypass  # 20 ms, of use only here

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return "is the server running?"
    return "is the server running, and the proxy of the environment? NO_PROXY names servers that need none"


@contextlib.contextmanager
def lingering(response: Any) -> Iterator[Callable[[bool], None]]:
    """A function to be told of each chunk whether it was the last one: soon after that the response is cut."""
    timer: threading.Timer | None = None

    def told(over: bool) -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = threading.Timer(LINGER, _cut, (_stream_of(response),)) if over else None
        if timer is not None:
            timer.daemon = True
            timer.start()

    try:
        yield told
    finally:
        told(False)


def only_data(response: Any) -> None:
    """Have the SDK read of a stream of events the data alone."""
    pieces = response.iter_bytes()
    response.iter_bytes = lambda: _data_of(pieces)


def _data_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    r"""The stream in pieces that end with a line, without lines that hold no data.

    >>> list(_data_of([b"retry: 3\n\nda", b"ta: 1\r\n", b"data:\n\n: on"]))
    [b'\n', b'data: 1\r\n', b'\n', b': on']
    """
    begun, said = [b""], time.monotonic()
    for piece in pieces:
        begun.append(piece)
        if b"\n" not in piece:
            continue
        *lines, rest = b"".join(begun).split(b"\n")
        begun = [rest]
        kept = [line for line in lines if not _UNSAID.match(line)]
        if any(line.startswith(b"data") for line in kept):
            said = time.monotonic()
        elif time.monotonic() - said > LONGEST_ALIVE:
            raise ModelRefused(
                f"the model's server said nothing but that it is alive for {LONGEST_ALIVE:g} s", "ask again"
            )
        if kept:
            yield b"\n".join([*kept, b""])
    yield b"".join(begun)


def framed(response: Any) -> bool:
    """Whether a connection that breaks in the midst of this response is told from its end."""
    return response.http_version == "HTTP/2" or not response.headers.keys().isdisjoint(_FRAMES)


class Wire:
    """The connection that a request goes over; one that is made for the request is known before the answer begins."""

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self._is_cut = False

    def carries(self, response: Any) -> None:
        """Take note of the connection that an answer comes over."""
        self.goes_over(_stream_of(response))

    def goes_over(self, stream: Any) -> None:
        """Take note of a connection; it is cut at once where the request was stopped before."""
        self._streams.append(stream)
        if self._is_cut:
            self.cut()

    def cut(self) -> None:
        """Hang up."""
        self._is_cut = True
        for stream in list(self._streams):
            _cut(stream)


_under_way: ContextVar[Wire | None] = ContextVar("hermes_wire", default=None)


@contextlib.contextmanager
def hung_up_by(cancel: Cancel) -> Iterator[Wire]:
    """Within the block, hang up what this thread requests when `cancel` is thrown."""
    wire = Wire()
    token = _under_way.set(wire)
    try:
        with cancel.calling(wire.cut):
            yield wire
    finally:
        _under_way.reset(token)


def follow(request: Any) -> None:
    """Note the connections that are made for a request, by the extension that httpx has for it."""
    wire = _under_way.get()
    if wire is not None:
        request.extensions["trace"] = lambda event, info: (
            wire.goes_over(info["return_value"]) if event.endswith(_CONNECTED) else None
        )


def limits() -> Any:
    """As many connections as the SDK opens, and none kept alive: a request over an open one does not say which that is
    before the answer begins, so it could not be cut off. Little is lost, since the SDK closes one after a streamed answer
    anyway and keeps only that of a server which was busy.
    """
    import httpx2

    return httpx2.Limits(max_connections=1000, max_keepalive_connections=0)


def _stream_of(response: Any) -> Any:
    return response.extensions.get("network_stream")


def _cut(stream: Any) -> None:
    """Wake the thread that reads there: closing a socket does not, shutting it down does."""
    connection = stream.get_extra_info("socket") if stream is not None else None
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

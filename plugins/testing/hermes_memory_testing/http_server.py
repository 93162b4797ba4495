"""A stand-in for a provider's backend: a real HTTP server on loopback that can be told to fail.

with StandIn() as server:
    server.route("POST", "/v1/memories", lambda request: {"id": "m1"})
    server.fail("POST", "/v1/memories", status=429, retry_after=2)
    ...
    assert server.requests[0].json == {"text": "likes tea"}
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

FOREVER = 86_400.0
"""Seconds that a request waits in vain: longer than any client."""

Answer = Any
"""What a route returns: data for a JSON body, or a (status, data) pair. A `Raw` as data is sent as it is."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A body that is no JSON, a file for instance, or a redirect: `headers` go with it, Content-Type among them."""

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/octet-stream"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came. `json` is None when the body is none; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes
    json: Any = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A way in which the next answers of a route go wrong."""

    status: int = 0
    retry_after: float | None = None
    delay: float = 0.0
    cut: bool = False
    garbage: bool = False
    drop: bool = False
    drip: bool = False
    times: int | None = None


@dataclass(slots=True)
class _Route:
    answer: Callable[[Request], Answer]
    faults: deque[Fault] = field(default_factory=deque)


class StandIn:
    """The server; `url` is its address once it is started. An unknown path is answered with 404, and noted.

    `check(request)` looks at every request and returns what is wrong with it, "" for nothing: an unknown field, a missing
    key. What it finds is answered with 422 and kept in `complaints`, so that a test can't pass with a client that
    sends what the real backend refuses.
    """

    def __init__(self, check: Callable[[Request], str] | None = None) -> None:
        self.requests: list[Request] = []
        self.complaints: list[str] = []
        self._check = check
        self._routes: dict[tuple[str, str], _Route] = {}
        self._everywhere: deque[Fault] = deque()
        # Each request is answered on a thread of its own.
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------- routes

    def route(self, method: str, path: str, answer: Callable[[Request], Answer]) -> None:
        """Answer `method path` by what `answer(request)` returns. A path that ends in `*` is a prefix."""
        self._routes[method, path] = _Route(answer)

    def fail(self, method: str = "", path: str = "", **fault: Any) -> None:
        """Make a route, or without a method and path all routes, go wrong; `fault` has the fields of `Fault`."""
        faults = self._routes[method, path].faults if path else self._everywhere
        faults.append(Fault(**fault))

    def heal(self) -> None:
        """Answer well again."""
        self._everywhere.clear()
        for route in self._routes.values():
            route.faults.clear()

    @contextmanager
    def outage(self, status: int = 503) -> Iterator[None]:
        """Make every route answer `status` within this context. `ProviderContract.outage` may return it."""
        self.fail(status=status)
        try:
            yield
        finally:
            self.heal()

    @contextmanager
    def lost_answers(self) -> Iterator[None]:
        """Make every route do its work and cut its answer within this context, for `ProviderContract.lost_answers`."""
        self.fail(cut=True)
        try:
            yield
        finally:
            self.heal()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Accept every request within this context, without doing or answering it."""
        self.fail(delay=FOREVER, drop=True, status=503)
        try:
            yield
        finally:
            self.heal()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse connections within this context; the address stays the same afterwards."""
        port = self._port()
        self._stop()
        try:
            yield
        finally:
            self._listen(port)

    # --------------------------------------------------------------------- life

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://127.0.0.1:{self._port()}"

    def start(self) -> Self:
        """Listen on a free port of loopback."""
        self._listen(0)
        return self

    def close(self) -> None:
        """Stop listening; answers that are delayed end at once."""
        self.closing.set()
        self._stop()

    def _port(self) -> int:
        if self._server is None:
            raise RuntimeError("the stand-in is not started; use it in a with block")
        return int(self._server.server_address[1])

    def _listen(self, port: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        # A request that a test left hanging must not hold the process at its end.
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------- answer

    def respond(self, request: Request) -> tuple[int, Any, Fault]:
        """Return status, data and fault for one request; the handler calls it on its own thread."""
        with self._lock:
            self.requests.append(request)
            route = self._find(request)
            fault = _next(self._everywhere) or (_next(route.faults) if route else None) or Fault()
        # An event instead of a sleep, so that a closed server ends its slow answers at once.
        if fault.delay:
            self.closing.wait(fault.delay)
        if fault.status:
            return fault.status, {"error": f"told to answer {fault.status}"}, fault
        if route is None:
            return self._complain(404, f"no route for {request.method} {request.path}", fault)
        wrong = self._check(request) if self._check else ""
        if wrong:
            return self._complain(422, wrong, fault)
        answer = route.answer(request)
        if isinstance(answer, tuple):
            return answer[0], answer[1], fault
        return 200, answer, fault

    def _complain(self, status: int, wrong: str, fault: Fault) -> tuple[int, Any, Fault]:
        with self._lock:
            self.complaints.append(wrong)
        return status, {"error": wrong}, fault

    def _find(self, request: Request) -> _Route | None:
        exact = self._routes.get((request.method, request.path))
        if exact is not None:
            return exact
        for (method, path), route in self._routes.items():
            if method == request.method and path.endswith("*") and request.path.startswith(path[:-1]):
                return route
        return None


def _next(faults: deque[Fault]) -> Fault | None:
    """The fault of this request; one that is told to happen some times is counted down."""
    if not faults:
        return None
    fault = faults[0]
    if fault.times is not None:
        faults.popleft()
        if fault.times > 1:
            faults.appendleft(_once_less(fault))
    return fault


def _once_less(fault: Fault) -> Fault:
    return replace(fault, times=(fault.times or 1) - 1)


_JSON = {"Content-Type": "application/json"}


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.close_connection = True
            request = _read(self)
            if request is None:
                return
            status, data, fault = stand_in.respond(request)
            if fault.drop:
                return
            sent = data if isinstance(data, Raw) else Raw(json.dumps(data).encode(), _JSON)
            body = b"<html>not JSON</html>" if fault.garbage else sent.body
            self.send_response(status)
            for name, value in sent.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(1_000_000 if fault.drip else len(body)))
            self.send_header("Connection", "close")
            if fault.retry_after is not None:
                self.send_header("Retry-After", f"{fault.retry_after:g}")
            try:
                self.end_headers()
                while fault.drip and not stand_in.closing.wait(0.02):
                    self.wfile.write(b" ")
                self.wfile.write(body[: len(body) // 2] if fault.cut else body)
            except ConnectionError:
                pass  # a client that did not want to wait has gone

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815  names of the library

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  the library's name
            """Say nothing: a test that fails shows `requests`."""

    return Handler


def _read(handler: BaseHTTPRequestHandler) -> Request | None:
    size = int(handler.headers.get("Content-Length") or 0)
    body = handler.rfile.read(size)
    if len(body) < size:
        return None
    parts = urlsplit(handler.path)
    headers = {name.lower(): value for name, value in handler.headers.items()}
    return Request(handler.command, parts.path, parse_qs(parts.query), headers, body, _parsed(body))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return None


def only_fields(**allowed: frozenset[str]) -> Callable[[Request], str]:
    """A `check` for `StandIn`: the JSON body of a path's last part may have these fields and no others.

    >>> check = only_fields(memories=frozenset({"text"}))
    >>> check(Request("POST", "/v1/memories", {}, {}, b"", {"text": "x", "user": "y"}))
    "POST /v1/memories has the unknown field 'user'"
    """

    def check(request: Request) -> str:
        known = allowed.get(request.path.rstrip("/").rpartition("/")[2])
        if known is None or not isinstance(request.json, dict):
            return ""
        unknown = sorted(request.json.keys() - known)
        return f"{request.method} {request.path} has the unknown field {unknown[0]!r}" if unknown else ""

    return check

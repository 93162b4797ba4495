"""The ASGI application: it admits a request, decodes it, runs its operation on the memory, and encodes the answer."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from hermes_core import HermesHome, open_memory
from hermes_core.errors import HermesError
from hermes_memory_http import values
from hermes_memory_http.document import openapi_document
from hermes_memory_http.operations import OPERATIONS, Call, Limits, Operation, Service, too_large
from hermes_memory_http.refusals import RequestRefused, problem_of, refusal
from hermes_memory_http.tokens import Token

log = logging.getLogger(__name__)

BODY_TIMEOUT_S = 60.0
"""Seconds in which the body of a request has to come, except for a stream."""

BURST = 10
"""Seconds of requests that a token may send at once."""

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Settings of the server, which each of its processes gets.

    Attributes:
        home: The home.
        hosts: Values of the header Host that are answered.
        limits: The limits of requests.
    """

    home: HermesHome
    hosts: tuple[str, ...]
    limits: Limits = Limits()

    def __call__(self) -> ASGIApp:
        """Return the application, in the process that serves it."""
        return application(self)


def application(settings: ServerSettings) -> ASGIApp:
    """Return the API as an ASGI application. It opens the memory when it starts, and closes it at the end."""
    served: list[Service] = []
    rates = RateLimits(settings.limits.rate)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with open_memory(settings.home, folder=settings.home.path) as memory:  # no repository's notes
            served.append(Service(memory, settings.limits))
            yield
            served.pop().threads.close()

    async def admitted(request: Request) -> Token:
        return await _admit(served[0], rates, request)

    async def healthz(_: Request) -> Response:
        return _json(values.Health("ok"))

    async def readyz(_: Request) -> Response:
        database = served[0].memory.sessions.database
        try:
            await served[0].threads.read(lambda: database.execute("SELECT 1").fetchone())
        except HermesError as exc:
            log.error("the server is not ready: %s", exc)
            # Anybody may ask, so it is not said which server or file it is.
            raise RequestRefused(503, "the store can't be used", "hermes-memory doctor says why") from exc
        return _json(values.Health("ready"))

    async def document(request: Request) -> Response:
        await admitted(request)
        return Response(msgspec.json.encode(openapi_document()), media_type="application/json")

    async def operate(operations: Mapping[str, Operation], request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method  # the server leaves the body out
        return await _operate(operations[method], served[0], await admitted(request), request)

    by_path: dict[str, dict[str, Operation]] = {}
    for one in OPERATIONS:
        by_path.setdefault(one.path, {})[one.method] = one

    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/openapi.json", document),
        *(Route(path, partial(operate, found), methods=[*found]) for path, found in by_path.items()),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: _not_found,
        HermesError: _refused,
        ClientDisconnect: _gone,
        Exception: _failed,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(app, frozenset(settings.hosts))


class Guard:
    """An ASGI wrapper that refuses names of this machine and pages of sites that the server does not know.

    A page of another site may point its own name at this machine. It has no token, and learns here not even that there is
    a server.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            # Ids of conversations may hold slashes, which are percent-encoded: each part is decoded after the routing.
            scope["path"] = scope["raw_path"].decode("ascii", "replace")
            if (refused := self._refusal(Headers(scope=scope))) is not None:
                await refusal(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> RequestRefused | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return RequestRefused(
                421,
                "the header Host names another server",
                "use the printed address, or start it with --allow-host",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] not in self._hosts:
            return RequestRefused(
                403, "the request comes from a page of another site", "call it from a program"
            )
        return None


class RateLimits:
    """The requests that each token may still send: a bucket that is filled again at a rate.

    Args:
        rate: Requests a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._full = rate, max(rate * BURST, 1.0)
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, token: str, now: float) -> float:
        """Take a request of a token. Return 0, or the seconds after which the next one is answered."""
        left, at = self._buckets.get(token, (self._full, now))
        left = min(self._full, left + (now - at) * self._rate)
        if left < 1.0:
            return (1.0 - left) / self._rate
        self._buckets[token] = left - 1.0, now
        return 0.0


async def _admit(service: Service, rates: RateLimits, request: Request) -> Token:
    """Return the token of a request. Raise `RequestRefused` if there is none, or if it sends too much."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    found = None
    if kind.lower() == "bearer":
        found = await service.threads.read(partial(service.tokens.find, text.strip()))
    if found is None:
        raise RequestRefused(
            401,
            "the request has no valid token" if text else "the request has no token",
            "send Authorization: Bearer and a token that hermes-memory serve token create made",
            {"www-authenticate": "Bearer"},
        )
    if wait := rates.take(found.id, time.monotonic()):
        raise RequestRefused(
            429,
            f"token {found.id!r} sends more than {service.limits.rate:g} requests a second",
            "wait as long as Retry-After says, or start the server with a larger --rate",
            {"retry-after": str(math.ceil(wait))},
        )
    return found


async def _operate(operation: Operation, service: Service, token: Token, request: Request) -> Response:
    """Run an operation and return its answer."""
    if not token.may(operation.scope):
        raise RequestRefused(
            403,
            f"token {token.id!r} lacks the scope {operation.scope!r}",
            f"make one with: hermes-memory serve token create NAME --scope {operation.scope}",
        )
    path = _path(request.path_params)
    query = dict(request.query_params)
    user = query.pop("user", "")
    kind = operation.query or values.RequestBody
    arguments: dict[str, Any] = {"query": _decoded("query", kind, query)}
    if operation.query is None:
        arguments.clear()
    if operation.body is not None:
        arguments["body"] = await _body(operation.body, service.limits, request)
    call = Call(service, token, user, path, request)
    try:
        if not inspect.iscoroutinefunction(operation.run):
            return _json(await call.run(partial(operation.run, call, **arguments)))
        result = await operation.run(call, **arguments)
    except RecursionError as exc:
        raise RequestRefused(400, "a value is nested too deeply", "send a flatter one") from exc
    return EventStream(result) if operation.is_stream else _json(result)


def _path(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of a path that name something. Raise `RequestRefused` if one can't be a name."""
    try:
        names = {name: unquote(part, errors="strict") for name, part in parts.items()}
    except UnicodeDecodeError as exc:
        raise RequestRefused(400, "the path is no UTF-8", "percent-encode its parts as UTF-8") from exc
    _decoded("path", values.PathParts, names)
    return names


def _decoded(what: str, kind: type[values.RequestBody], given: Mapping[str, str]) -> values.RequestBody:
    """Return texts of an address as the values that they stand for."""
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise RequestRefused(400, f"the {what} is wrong: {exc}", "correct it") from exc


async def _body(kind: type[values.RequestBody], limits: Limits, request: Request) -> values.RequestBody:
    """Return the body of a request. Raise `RequestRefused` if it can't be read."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused(415, "the body is not said to be JSON", "send Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body:
                    raise too_large(limits)
        return msgspec.json.decode(bytes(body), type=kind)
    except TimeoutError as exc:
        raise RequestRefused(
            408, f"the body did not come within {BODY_TIMEOUT_S:g} s", "send it again"
        ) from exc
    except msgspec.ValidationError as exc:
        raise RequestRefused(422, f"the body is wrong: {exc}", "correct it") from exc
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise RequestRefused(400, f"the body is no JSON: {exc}", "send JSON") from exc


class EventStream(Response):
    """Server-sent events that come while the body of the request is still read.

    Starlette's own streams read the rest of the body themselves, to notice a client that goes away.
    """

    def __init__(self, events: AsyncIterator[tuple[str, Any]]) -> None:
        super().__init__(headers=_HEADERS, media_type="text/event-stream")
        self._events = events
        del self.headers["content-length"]

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Send the events. A failure is the last of them, an event `problem`."""
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for name, data in self._events:
                await send(_event(name, data))
        except HermesError as exc:
            await send(_event("problem", problem_of(exc)))
        except ClientDisconnect:
            return  # the turn stays open
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _event(name: str, data: Any) -> dict[str, Any]:
    body = b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
    return {"type": "http.response.body", "body": body, "more_body": True}


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), headers=_HEADERS, media_type="application/json")


async def _refused(_: Request, exc: HermesError) -> Response:
    return refusal(exc)


async def _gone(_: Request, exc: ClientDisconnect) -> Response:
    """Return an answer that nobody gets: the client went away before its request was whole, and nothing was done."""
    del exc
    return refusal(RequestRefused(400, "the request breaks off", "send it again"))


async def _failed(_: Request, exc: Exception) -> Response:
    """Return the answer after a fault of ours, which the log has with its traceback and the client without its text."""
    del exc
    return refusal(RequestRefused(500, "the server failed", "hermes-memory logs --json says why"))


async def _not_found(request: Request, exc: HTTPException) -> Response:
    """Return the answer for a path or a method that does not exist."""
    if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return refusal(
            RequestRefused(
                405, f"{request.url.path} has no {request.method}", "see /openapi.json", exc.headers
            )
        )
    return refusal(RequestRefused(404, f"there is no {request.url.path}", "see /openapi.json"))

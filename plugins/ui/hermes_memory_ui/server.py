"""The HTTP server of the page, with starlette and uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from importlib.resources import files
from urllib.parse import parse_qsl

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hermes_memory_ui.access import Access, AccessRequired, refused
from hermes_memory_ui.answers import CHOSEN, Page, PageRequest
from hermes_memory_ui.routes import ACTIONS, PAGES
from hermes_memory_ui.site import Site, View

# A provider that hangs must not stop the page: each thread waits for one request.
THREADS = 4

# Running requests get this long to end after the server is told to stop; the person who pressed Ctrl-C waits.
SHUTDOWN_TIMEOUT_S = 1

# A note or a title in any script, escaped in a form, fits many times.
MAX_BODY_BYTES = 1_000_000
MAX_FIELDS = 50

STATIC = {"htmx.min.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


class WorkerThreads:
    """Threads that run the views. They don't keep the process alive: a hung call would outlast Ctrl-C."""

    def __init__(self, count: int = THREADS) -> None:
        # Few threads, because each has its own connection to each database.
        self._calls: queue.SimpleQueue[tuple[Future[Response], Callable[[], Response]] | None] = (
            queue.SimpleQueue()
        )
        self._count = count
        for _ in range(count):
            threading.Thread(target=self._work, name="hermes-ui", daemon=True).start()

    async def run(self, call: Callable[[], Response]) -> Response:
        """Run a call on one of the threads, and return or raise what it does."""
        future: Future[Response] = Future()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let each thread end after its call."""
        for _ in range(self._count):
            self._calls.put(None)

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                _complete(future, call)


def _complete(future: Future[Response], call: Callable[[], Response]) -> None:
    """Run a call and put its result or exception into the future."""
    try:
        future.set_result(call())
    finally:
        # A bug: the thread prints it to standard error, and the browser gets an error.
        if not future.done():
            future.set_result(PlainTextResponse("the page failed; the terminal says why", 500))


def application(site: Site, access: Access) -> ASGIApp:
    """Return the page as an ASGI application that only the browser with the token can use."""
    workers = WorkerThreads()
    routes = [Route(path, _page(site, workers, path, view)) for path, view in PAGES.items()]
    routes += [
        Route(path, _action(site, workers, path, view), methods=["POST"]) for path, view in ACTIONS.items()
    ]
    routes += [Route(f"/static/{name}", _static(name, kind)) for name, kind in STATIC.items()]

    async def not_found(request: Request, _: Exception) -> Response:
        view = partial(_not_found, request.url.path.removeprefix(access.root))
        return await workers.run(partial(site.answer, "", view, PageRequest()))

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        workers.close()

    return AccessRequired(
        Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: not_found}), access
    )


def _not_found(path: str, site: Site, request: PageRequest) -> Page:
    """Return the page for an address that nothing has."""
    del site, request
    return Page(
        "error.html", {"heading": "Not found", "error": f"there is no page {path!r}; choose one above"}, 404
    )


def _page(site: Site, workers: WorkerThreads, path: str, view: View) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        page_request = PageRequest(dict(request.query_params))
        return await workers.run(partial(site.answer, path, view, page_request))

    return endpoint


def _action(site: Site, workers: WorkerThreads, path: str, view: View) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return refused("The form is too large.")
        except ClientDisconnect:
            log.warning("the browser left before a form for %s had come; nothing was changed", path)
            return refused("The form did not come whole.")  # nobody reads it
        fields = _fields(bytes(body))
        if fields is None:
            return refused("The form can't be read.")
        chosen = [value for name, value in fields if name == CHOSEN]
        page_request = PageRequest(dict(request.query_params), dict(fields), chosen)
        return await workers.run(partial(site.act, path, view, page_request))

    return endpoint


def _fields(body: bytes) -> list[tuple[str, str]] | None:
    """Return the fields of a form; None if it has too many. A browser ends the lines of a text with CR LF."""
    try:
        pairs = parse_qsl(
            body.decode("utf-8", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        return None
    return [(name, value.replace("\r\n", "\n")) for name, value in pairs]


def _static(name: str, kind: str) -> Endpoint:
    content = files("hermes_memory_ui").joinpath("static", name).read_bytes()

    async def endpoint(_: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint


def http_page_server(site: Site, access: Access) -> uvicorn.Server:
    """Return the server of the page."""
    config = uvicorn.Config(
        application(site, access),
        # Warnings are about requests that are none for the page, and advise to install packages.
        log_level="error",
        access_log=False,
        ws="none",
        server_header=False,
        # A proxy's headers would replace the address of the client, and nothing stands before this server.
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
    )
    return uvicorn.Server(config)


def serve_page(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve the page until the process is interrupted or the server is told to stop."""

    async def serve() -> None:
        await server.serve(sockets=[listener])

    anyio.run(serve)

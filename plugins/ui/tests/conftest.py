"""The page as a browser meets it: served on loopback by a thread, with a real Chromium where there is one."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hermes_core import HermesHome
from hermes_core.loopback import HOST, listen
from hermes_core.memory import Memory, open_memory
from hermes_memory_ui.access import COOKIE, Access
from hermes_memory_ui.server import http_page_server, serve_page
from hermes_memory_ui.site import Site

# A click may wait for a provider, and machines that run tests are busy.
expect.set_options(timeout=30_000)

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
NO_CHROMIUM = "needs Chromium: apt install chromium"


@dataclass
class ServedPage:
    """A page that is served, its memory and its secrets."""

    memory: Memory
    site: Site
    access: Access
    clients: ExitStack

    @property
    def origin(self) -> str:
        """The address without path and token."""
        return self.access.url.partition("/?")[0]

    @property
    def root(self) -> str:
        """The address below which the page is."""
        return self.origin + self.access.root

    def client(self) -> httpx.Client:
        """Return a client that has signed in."""
        client = self.clients.enter_context(
            httpx.Client(base_url=self.root, headers={"origin": self.origin}, timeout=30)
        )
        assert client.get(self.access.url).status_code == 303
        return client


Serve = Callable[..., ServedPage]


@dataclass
class OtherProgram:
    """A server on another port, as of another user of the machine, and what browsers sent to it."""

    origin: str
    seen: list[str]


@contextmanager
def other_program(body: str = "") -> Iterator[OtherProgram]:
    """Serve `body` on a port of its own, with a cookie of the page's name."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.path}\n{self.headers}")
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("set-cookie", f"{COOKIE}=planted; Path=/")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield OtherProgram(f"http://{HOST}:{server.server_port}", seen)
        server.shutdown()
        thread.join()


@pytest.fixture
def serve(hermes_home: HermesHome) -> Iterator[Serve]:
    """Serve the page of the test's home."""
    with ExitStack() as closing:

        def start(*, user: str = "", read_only: bool = False, **options: object) -> ServedPage:
            provider = "" if read_only else None
            memory = closing.enter_context(open_memory(hermes_home, **({"provider": provider} | options)))  # type: ignore[arg-type]
            listener: socket.socket = closing.enter_context(listen(0))
            access = Access(listener.getsockname()[1])
            site = Site(memory, user=user, root=access.root, read_only=read_only)
            server = http_page_server(site, access)
            thread = threading.Thread(target=serve_page, args=(server, listener))
            thread.start()
            closing.callback(thread.join)
            closing.callback(setattr, server, "should_exit", True)
            return ServedPage(memory, site, access, closing)

        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for the tests of one module: while it runs, no other test could run an event loop."""
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        # A sandbox needs a user other than root, and tests open our own page only.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open a served page in a browser of its own; a message on its console fails the test."""
    with ExitStack() as closing:
        messages: list[str] = []

        def open_served(
            served: ServedPage, path: str = "/", *, width: int = 1280, height: int = 900, dark: bool = False
        ) -> Page:
            scheme: Literal["dark", "light"] = "dark" if dark else "light"
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, locale="en-US"
            )
            closing.callback(context.close)
            page = context.new_page()
            page.on("console", lambda message: messages.append(message.text))
            page.on("pageerror", lambda error: messages.append(str(error)))
            page.goto(served.access.url)
            page.goto(served.root + path)
            return page

        yield open_served
        # Chromium says of a list that comes later that it has no focus by itself. htmx gives it the focus. Of the settings
        # of a provider with two secrets it says that they are no form for its keeper of passwords.
        hints = ("Autofocus processing was blocked", "[DOM] Multiple forms")
        assert [text for text in messages if not text.startswith(hints)] == []

"""The server as a client meets it: served on loopback by a thread, or as a program with several processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn

from hermes_core import HermesHome, open_memory
from hermes_core.loopback import listen
from hermes_memory_http.operations import Limits
from hermes_memory_http.server import ServerSettings
from hermes_memory_http.tokens import TokenStore


def new_token(home: HermesHome, user: str | None = None, *scopes: str) -> str:
    """Make a token: of a program without `user`, else of that person."""
    with open_memory(home, provider="") as memory:
        return TokenStore(memory).create("test", user, scopes)[1]


def new_id() -> str:
    return str(uuid.uuid4())


@dataclass
class Served:
    """A server and the clients of a test."""

    home: HermesHome
    root: str
    closing: ExitStack

    def client(self, user: str | None = None, *scopes: str, **options: Any) -> httpx.Client:
        """Return a client with a new token."""
        return self.with_token(new_token(self.home, user, *scopes), **options)

    def with_token(self, token: str, **options: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"}
        return self.closing.enter_context(
            httpx.Client(base_url=self.root, headers=headers, timeout=60, **options)
        )


Serve = Callable[..., Served]


@pytest.fixture
def serve(hermes_home: HermesHome) -> Iterator[Serve]:
    """Serve the test's home by a thread."""
    with ExitStack() as closing:

        def start(**limits: Any) -> Served:
            listener = closing.enter_context(listen(0))
            port = listener.getsockname()[1]
            settings = ServerSettings(
                home=hermes_home, hosts=(f"127.0.0.1:{port}", f"localhost:{port}"), limits=Limits(**limits)
            )
            config = uvicorn.Config(settings, factory=True, log_config=None, access_log=False, ws="none")
            server = uvicorn.Server(config)
            thread = threading.Thread(
                target=lambda: asyncio.run(server.serve(sockets=[listener])), name="served"
            )
            thread.start()
            closing.callback(thread.join)
            closing.callback(setattr, server, "should_exit", True)
            return Served(hermes_home, f"http://127.0.0.1:{port}", closing)

        yield start


@contextlib.contextmanager
def serving_program(home: HermesHome, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `hermes-memory serve` until the block ends; yield it with its address."""
    command = [
        sys.executable,
        "-m",
        "hermes_core",
        "--home",
        str(home.path),
        "serve",
        "--port",
        "0",
        *options,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ}
    ) as program:
        assert program.stdout is not None
        try:
            line = program.stdout.readline()
            assert re.match(r"http://", line), line
            yield program, line.strip()
        finally:
            program.terminate()
            program.wait(60)

"""`hermes-memory mcp` as a process of its own, driven by the official client over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from hermes_core.config import Credentials, set_value
from hermes_core.home import HermesHome
from tests.forked import python
from tests.outbox_of import engine_environment

Transport = Literal["stdio", "http"]
Talk = Callable[[Client], Awaitable[None]]

HERMES = ["-c", "from hermes_core.cli import main; main()"]

GATED = """
import time
from pathlib import Path
from typing import Annotated

from hermes_core import MemoryProvider, Session
from hermes_core.kit import ToolBox, tool


class Gated(MemoryProvider):
    name = "gated"

    def __init__(self):
        self.box = ToolBox(self.gated_wait)

    @tool(description="Wait until the gate opens.")
    def gated_wait(self, session: Session, gate: Annotated[str, "a file"]) -> dict:
        folder = Path(session.home)
        (folder / f"{gate}.waiting").touch()
        while not (folder / f"{gate}.open").exists():
            time.sleep(0.01)
        return {"passed": gate}

    def get_tool_schemas(self):
        return self.box.schemas

    def handle_tool_call(self, call, session):
        return self.box.dispatch(call, session)

    def initialize(self, session):
        self.home = Path(session.home)

    def shutdown(self):
        (self.home / "shut.down").touch()
"""


class Server:
    """One home and the ways to a server of it."""

    def __init__(self, home: HermesHome, transport: Transport) -> None:
        self.home = home
        self.transport = transport
        self.processes: list[subprocess.Popen[str]] = []

    def talk(self, talk: Talk, *options: str) -> None:
        """Start the server, let `talk` use a client of it, and stop it."""
        if self.transport == "stdio":
            program, *arguments = [*python(), *HERMES, "--home", str(self.home.path), "mcp", *options]
            parameters = StdioServerParameters(command=program, args=arguments, env=engine_environment())
            asyncio.run(_over(stdio_client(parameters), talk))
        else:
            asyncio.run(_over_http(self.start_http(*options), self.token, talk))

    def start_http(self, *options: str, before: str = "") -> str:
        """A server on a free port, in a process that runs the code of `before` first; its address."""
        arguments = [
            "-c",
            f"{dedent(before)}\n{HERMES[1]}",
            "--home",
            str(self.home.path),
            "mcp",
            "--http",
            "--port",
            "0",
            *options,
        ]
        process = subprocess.Popen(
            [*python(), *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "MCP_TOKEN": ""},
        )
        self.processes.append(process)
        assert process.stderr
        return process.stderr.readline().split()[0]

    @property
    def token(self) -> str:
        """The token that the server made."""
        return Credentials(self.home, environ={}).get("MCP_TOKEN") or ""

    def use_gated_provider(self) -> None:
        """Make a provider active whose tool waits for a file."""
        folder = self.home.plugins / "gated"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(dedent(GATED))
        set_value(self.home, "memory.provider", "gated")

    def stop(self) -> None:
        """Stop what was started."""
        for process in self.processes:
            process.terminate()
            process.wait(timeout=60)
            if process.stderr:
                process.stderr.close()


async def _over(target: Any, talk: Talk) -> None:
    async with Client(target) as client:
        await talk(client)


async def _over_http(url: str, token: str, talk: Talk) -> None:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        await _over(streamable_http_client(url, http_client=http), talk)


def said(result: Any) -> Any:
    """What a tool answered."""
    (block,) = result.content
    return json.loads(block.text)


async def exists(path: Path) -> None:
    """Wait for a file that another process makes."""
    while not path.exists():
        await asyncio.sleep(0.01)


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, hermes_home: HermesHome) -> Iterator[Server]:
    made = Server(hermes_home, request.param)
    yield made
    made.stop()


@pytest.fixture
def http_server(hermes_home: HermesHome) -> Iterator[Server]:
    made = Server(hermes_home, "http")
    yield made
    made.stop()

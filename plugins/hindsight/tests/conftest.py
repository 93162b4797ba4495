"""A Hindsight server on loopback, and a provider that uses it as the manager would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hermes_hindsight import HindsightProvider

from hermes_core import Session, ToolCall
from plugins.hindsight.tests.stand_in import HindsightServer


class Agent:
    """A provider on one event loop: hooks in, values out."""

    def __init__(self, home: Path, loop: asyncio.Runner, server: HindsightServer) -> None:
        self.home, self.server = home, server
        self.provider = HindsightProvider()
        self._loop = loop

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(coroutine)

    def session(self, id_: str = "s1", **identity: Any) -> Session:
        return Session(id_, home=str(self.home), **identity)

    def tool(self, name: str, **arguments: Any) -> Any:
        call = ToolCall(name, arguments)
        return json.loads(self.run(self.provider.handle_tool_call(call, self.session())))


@pytest.fixture
def server() -> Iterator[HindsightServer]:
    """The server, running; in the end it must have had nothing to complain of."""
    with HindsightServer() as running:
        yield running
    assert running.complaints == []


@pytest.fixture
def start(
    tmp_path: Path, server: HindsightServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Agent]]:
    """Start a provider on the test's home with these settings in its file; any number of times."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    started: list[Agent] = []
    with asyncio.Runner() as loop:

        def begin(**settings: Any) -> Agent:
            settings = {"mode": "local_external", "api_url": server.url, **settings}
            (tmp_path / "hindsight.json").write_text(json.dumps(settings))
            agent = Agent(tmp_path, loop, server)
            started.append(agent)
            agent.run(agent.provider.initialize(agent.session()))
            return agent

        yield begin
        for agent in started:
            agent.run(agent.provider.shutdown())


@pytest.fixture
def agent(start: Callable[..., Agent]) -> Agent:
    """A provider with its defaults."""
    return start()

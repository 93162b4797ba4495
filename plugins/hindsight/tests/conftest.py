"""A Hindsight server on loopback, and a provider that uses it as the manager would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hermes_hindsight import HindsightProvider

from hermes_core import MemoryWrite, Query, Session, ToolCall, Turn
from plugins.hindsight.tests.stand_in import HindsightServer

AT = 1_763_802_000.0
"""When everything is said."""


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

    def say(
        self, text: str, turn_id: str = "t1", session: Session | None = None, answer: str = "Noted."
    ) -> None:
        turn = Turn(turn_id, 1, text, answer, at=AT)
        self.run(self.provider.sync_turn(turn, session or self.session()))

    def recall(self, text: str, session: Session | None = None, budget: int = 1500) -> str:
        query = Query(text, budget=budget, now=AT)
        return str(self.run(self.provider.prefetch(query, session or self.session("s2"))).render())

    def write(self, action: Any, content: str = "", id_: str = "w1", **more: Any) -> None:
        change = MemoryWrite(id_, action, more.pop("target", "memory"), content, **more)
        self.run(self.provider.on_memory_write(change, self.session()))

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

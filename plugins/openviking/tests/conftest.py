"""The stand-in server of both versions, a client of it, and a provider on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hermes_openviking import OpenVikingProvider
from hermes_openviking.client import Client
from hermes_openviking.settings import Server
from hermes_openviking.spaces import Space

from hermes_core import Query, Session, ToolCall, Turn
from plugins.openviking.tests.stand_in import Viking

SPACE = Space("default", "hermes")


@pytest.fixture(params=["0.4.9", "0.5.2"])
def server(request: pytest.FixtureRequest) -> Iterator[Viking]:
    """The server as it was last year, and as it is today. It never saw a request that it would refuse."""
    with Viking(request.param) as running:
        yield running
    assert running.complaints == []


@pytest.fixture
def today() -> Iterator[Viking]:
    """The server as it is today."""
    with Viking() as running:
        yield running
    assert running.complaints == []


def connected(server: Viking, *, key: str = "", timeout: float = 20.0) -> Client:
    """A client that knows who it is."""
    client = Client(Server(server.url, key, "default", "default", ""), timeout)
    client.connect()
    return client


@pytest.fixture
def client(server: Viking) -> Iterator[Client]:
    """A client of either version."""
    opened = connected(server)
    yield opened
    opened.close()


@dataclass
class Agent:
    """A provider as the manager drives it, on a home of its own."""

    provider: OpenVikingProvider
    session: Session

    def tool(self, name: str, **arguments: Any) -> Any:
        return json.loads(self.provider.handle_tool_call(ToolCall(f"viking_{name}", arguments), self.session))

    def recall(self, text: str, budget: int = 1500) -> list[str]:
        return [item.text for item in self.provider.prefetch(Query(text, budget), self.session).items]

    def turn(self, text: str, id: str = "t1", **fields: Any) -> None:  # noqa: A002  the field's name
        self.provider.sync_turn(Turn(id, 1, text, "Noted.", at=1.7e9, **fields), self.session)

    def of(self, **identity: Any) -> Agent:
        """The same provider, for a session of another person."""
        return Agent(self.provider, Session("s1", home=self.session.home, **identity))

    @property
    def space(self) -> Space:
        return self.provider.space(self.session)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Agent]]:
    """Start a provider for a server with these settings in its file; any number of times."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    started: list[OpenVikingProvider] = []

    def begin(server: Viking, **settings: Any) -> Agent:
        (tmp_path / "openviking.json").write_text(json.dumps({"endpoint": server.url, **settings}))
        provider = OpenVikingProvider()
        started.append(provider)
        session = Session("s1", home=str(tmp_path))
        provider.initialize(session)
        return Agent(provider, session)

    yield begin
    for provider in started:
        provider.shutdown()


@pytest.fixture
def agent(server: Viking, start: Callable[..., Agent]) -> Agent:
    """A provider with its defaults, on either version."""
    return start(server)

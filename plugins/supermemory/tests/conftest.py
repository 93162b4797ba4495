"""A server of each API, a client of it, and a provider in a home of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hermes_supermemory import SupermemoryProvider
from hermes_supermemory.client import Client
from hermes_supermemory.settings import KEY

from hermes_core import HermesHome, Query, Recall, Session, ToolCall
from plugins.supermemory.tests.stand_in import KEY as KNOWN
from plugins.supermemory.tests.stand_in import Supermemory


@dataclass
class Agent:
    """A provider as the manager drives it: calls in, JSON out."""

    provider: SupermemoryProvider
    server: Supermemory
    home: HermesHome

    def session(self, id: str = "s1", **identity: Any) -> Session:  # noqa: A002  the field's name
        return Session(id, **{"home": str(self.home.path), **identity})

    def tool(self, name: str, session: Session | None = None, **arguments: Any) -> Any:
        call = ToolCall(name if "-" in name else f"supermemory_{name}", arguments)
        return json.loads(self.provider.handle_tool_call(call, session or self.session()))

    def recall(
        self, question: str, session: Session | None = None, *, turn: int = 2, budget: int = 1500
    ) -> Recall:
        """What a turn is given; the second unless told otherwise, so that no profile comes with it."""
        asks = session or self.session()
        self.provider.on_turn_start(turn, asks)
        return self.provider.prefetch(Query(question, budget=budget), asks)


@pytest.fixture
def serve() -> Iterator[Callable[..., Supermemory]]:
    """Start a server; its arguments are those of `Supermemory`. A request that it does not know fails the test."""
    running: list[Supermemory] = []

    def start(*args: Any, **kwargs: Any) -> Supermemory:
        running.append(Supermemory(*args, **kwargs).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__()
        assert not server.http.complaints


@pytest.fixture(params=["v5", "v4"])
def server(serve: Callable[..., Supermemory], request: pytest.FixtureRequest) -> Supermemory:
    """A server of each API."""
    return serve(request.param)


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Make a client of a server."""
    made: list[Client] = []

    def connect(server: Supermemory, api: str = "auto", *, key: str = KNOWN, timeout: float = 2.0) -> Client:
        made.append(Client(server.url, key, api, timeout))
        return made[-1]

    yield connect
    for client in made:
        client.close()


@pytest.fixture
def start(hermes_home: HermesHome) -> Iterator[Callable[..., Agent]]:
    """Start a provider on the test's home; keywords go into its settings file."""
    started: list[SupermemoryProvider] = []

    def begin(server: Supermemory, *, key: str = KNOWN, **settings: Any) -> Agent:
        hermes_home.path.mkdir(exist_ok=True)
        hermes_home.provider_json("supermemory").write_text(json.dumps({"base_url": server.url, **settings}))
        hermes_home.env_file.touch(mode=0o600)
        hermes_home.env_file.write_text(f"{KEY}={key}\n" if key else "")
        now = iter(range(1_000_000))
        provider = SupermemoryProvider(lambda: float(next(now)), lambda _: None)
        started.append(provider)
        provider.initialize(Session("s1", home=str(hermes_home.path)))
        return Agent(provider, server, hermes_home)

    yield begin
    for provider in started:
        provider.shutdown()


@pytest.fixture
def agent(start: Callable[..., Agent], serve: Callable[..., Supermemory]) -> Agent:
    """A provider with its defaults, on a server of API v5."""
    return start(serve())

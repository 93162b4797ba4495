"""A server of each API, a client of it, and a provider in a home of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hermes_supermemory import SupermemoryProvider
from hermes_supermemory.client import Client
from hermes_supermemory.settings import KEY

from hermes_core import HermesHome, Query, Recall, Session
from hermes_memory_testing import Driven, driving
from plugins.supermemory.tests.stand_in import KEY as KNOWN
from plugins.supermemory.tests.stand_in import Supermemory


class Agent(Driven[SupermemoryProvider]):
    """A provider on a server."""

    server: Supermemory

    def tool(self, name: str, session: Session | None = None, **arguments: Any) -> Any:
        return super().tool(name if "-" in name else f"supermemory_{name}", session, **arguments)

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
    with ExitStack() as running:

        def start(*args: Any, **kwargs: Any) -> Supermemory:
            server = running.enter_context(Supermemory(*args, **kwargs))
            running.callback(lambda: _nothing_wrong(server))
            return server

        yield start


def _nothing_wrong(server: Supermemory) -> None:
    assert not server.complaints


@pytest.fixture(params=["v5", "v4"])
def server(serve: Callable[..., Supermemory], request: pytest.FixtureRequest) -> Supermemory:
    """A server of each API."""
    return serve(request.param)


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Make a client of a server."""
    made: list[Client] = []

    def connect(server: Supermemory, api: str = "auto", *, key: str = KNOWN, timeout: float = 10.0) -> Client:
        made.append(Client(server.url, key, api, timeout))
        return made[-1]

    yield connect
    for client in made:
        client.close()


@pytest.fixture
def start(hermes_home: HermesHome) -> Iterator[Callable[..., Agent]]:
    """Start a provider on the test's home; keywords go into its settings file."""
    with ExitStack() as started:

        def begin(server: Supermemory, *, key: str = KNOWN, **settings: Any) -> Agent:
            now = iter(range(1_000_000))
            provider = SupermemoryProvider(lambda: float(next(now)), lambda _: None)
            told = {"base_url": server.url, **settings}
            started.enter_context(driving(provider, hermes_home, told, {KEY: key} if key else {}))
            agent = Agent(provider, hermes_home)
            agent.server = server
            return agent

        yield begin


@pytest.fixture
def agent(start: Callable[..., Agent], serve: Callable[..., Supermemory]) -> Agent:
    """A provider with its defaults, on a server of API v5."""
    return start(serve())

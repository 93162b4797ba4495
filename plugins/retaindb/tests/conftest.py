"""A server of each flavour, a client of it, and a provider in a home of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hermes_retaindb import RetainDBProvider
from hermes_retaindb.client import Client
from hermes_retaindb.settings import KEY

from hermes_core import HermesHome, Session
from hermes_memory_testing import Driven, driving
from plugins.retaindb.tests.stand_in import KEY as KNOWN
from plugins.retaindb.tests.stand_in import RetainDB


class Agent(Driven[RetainDBProvider]):
    """A provider on a server."""

    server: RetainDB

    def tool(self, name: str, session: Session | None = None, **arguments: Any) -> Any:
        return super().tool(f"retaindb_{name}", session, **arguments)


@pytest.fixture
def serve() -> Iterator[Callable[..., RetainDB]]:
    """Start a server; its arguments are those of `RetainDB`. A request that it does not know fails the test."""
    with ExitStack() as running:

        def start(*args: Any, **kwargs: Any) -> RetainDB:
            server = running.enter_context(RetainDB(*args, **kwargs))
            running.callback(lambda: _nothing_wrong(server))
            return server

        yield start


def _nothing_wrong(server: RetainDB) -> None:
    assert not server.complaints


@pytest.fixture
def server(serve: Callable[..., RetainDB]) -> RetainDB:
    """RetainDB Cloud."""
    return serve()


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Make a client of a server."""
    made: list[Client] = []

    def connect(server: RetainDB, *, key: str = KNOWN, timeout: float = 10.0) -> Client:
        made.append(Client(server.url, key, "p1", timeout))
        return made[-1]

    yield connect
    for client in made:
        client.close()


@pytest.fixture
def start(hermes_home: HermesHome) -> Iterator[Callable[..., Agent]]:
    """Start a provider on the test's home; keywords go into its settings file."""
    with ExitStack() as started:

        def begin(server: RetainDB, *, key: str = KNOWN, **settings: Any) -> Agent:
            now = iter(range(1_000_000))
            provider = RetainDBProvider(lambda: float(next(now)), lambda _: server.settle())
            told = {"base_url": server.url, **settings}
            started.enter_context(driving(provider, hermes_home, told, {KEY: key} if key else {}))
            agent = Agent(provider, hermes_home)
            agent.server = server
            return agent

        yield begin


@pytest.fixture
def agent(start: Callable[..., Agent], server: RetainDB) -> Agent:
    """A provider with its defaults, on RetainDB Cloud."""
    return start(server)

"""A server of each flavour, a client of it, and a provider in a home of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hermes_retaindb import RetainDBProvider
from hermes_retaindb.client import Client
from hermes_retaindb.settings import KEY

from hermes_core import HermesHome, Query, Session, ToolCall
from plugins.retaindb.tests.stand_in import KEY as KNOWN
from plugins.retaindb.tests.stand_in import RetainDB


@dataclass
class Agent:
    """A provider as the manager drives it: calls in, JSON out."""

    provider: RetainDBProvider
    server: RetainDB
    home: HermesHome

    def session(self, id: str = "s1", **identity: Any) -> Session:  # noqa: A002  the field's name
        return Session(id, **{"home": str(self.home.path), **identity})

    def tool(self, name: str, session: Session | None = None, **arguments: Any) -> Any:
        call = ToolCall(f"retaindb_{name}", arguments)
        return json.loads(self.provider.handle_tool_call(call, session or self.session()))

    def recalled(self, question: str, session: Session | None = None, budget: int = 1500) -> list[str]:
        found = self.provider.prefetch(Query(question, budget=budget), session or self.session())
        return [item.text for item in found.items]


@pytest.fixture
def serve() -> Iterator[Callable[..., RetainDB]]:
    """Start a server; its arguments are those of `RetainDB`. A request that it does not know fails the test."""
    running: list[RetainDB] = []

    def start(*args: Any, **kwargs: Any) -> RetainDB:
        running.append(RetainDB(*args, **kwargs).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__()
        assert not server.http.complaints


@pytest.fixture
def server(serve: Callable[..., RetainDB]) -> RetainDB:
    """RetainDB Cloud."""
    return serve()


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """Make a client of a server."""
    made: list[Client] = []

    def connect(server: RetainDB, *, key: str = KNOWN, timeout: float = 2.0) -> Client:
        made.append(Client(server.url, key, "p1", timeout))
        return made[-1]

    yield connect
    for client in made:
        client.close()


@pytest.fixture
def start(hermes_home: HermesHome) -> Iterator[Callable[..., Agent]]:
    """Start a provider on the test's home; keywords go into its settings file."""
    started: list[RetainDBProvider] = []

    def begin(server: RetainDB, *, key: str = KNOWN, **settings: Any) -> Agent:
        hermes_home.path.mkdir(exist_ok=True)
        hermes_home.provider_json("retaindb").write_text(json.dumps({"base_url": server.url, **settings}))
        if key:
            hermes_home.env_file.touch(mode=0o600)
            hermes_home.env_file.write_text(f"{KEY}={key}\n")
        now = iter(range(1_000_000))
        provider = RetainDBProvider(lambda: float(next(now)), lambda _: server.settle())
        started.append(provider)
        provider.initialize(Session("s1", home=str(hermes_home.path)))
        return Agent(provider, server, hermes_home)

    yield begin
    for provider in started:
        provider.shutdown()


@pytest.fixture
def agent(start: Callable[..., Agent], server: RetainDB) -> Agent:
    """A provider with its defaults, on RetainDB Cloud."""
    return start(server)

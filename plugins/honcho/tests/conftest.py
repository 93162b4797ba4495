"""A Honcho server, and a provider in a home of its own that talks to it through Honcho's SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hermes_honcho import HonchoProvider
from hermes_honcho.settings import KEY

from hermes_core import HermesHome, Query, Session, ToolCall, Turn
from plugins.honcho.tests.stand_in import KEY as KNOWN
from plugins.honcho.tests.stand_in import HonchoServer


@pytest.fixture
def server() -> Iterator[HonchoServer]:
    """The server; a request that Honcho's API does not have fails the test that sent it."""
    with HonchoServer() as running:
        yield running
        assert running.complaints == []


@pytest.fixture
def home(server: HonchoServer, hermes_home: HermesHome) -> HermesHome:
    """A home that names the server, with its key in .env."""
    hermes_home.path.mkdir()
    hermes_home.provider_json("honcho").write_text(json.dumps({"baseUrl": server.url}))
    hermes_home.env_file.touch(mode=0o600)
    hermes_home.env_file.write_text(f"{KEY}={KNOWN}\n")
    return hermes_home


@dataclass
class Agent:
    """A provider as the manager drives it."""

    provider: HonchoProvider
    home: Path
    session: Session
    turns: int = field(default=0)

    def other(self, **identity: Any) -> Agent:
        """The same provider in another session."""
        return Agent(self.provider, self.home, Session(**{"id": "s2", "home": str(self.home), **identity}))

    def ask(self, text: str, budget: int = 1500) -> str:
        """A new turn of the person: what is recalled for it."""
        self.provider.on_turn_start(self.session)
        return self.provider.prefetch(Query(text, budget), self.session).render()

    def warm(self, text: str, budget: int = 1500) -> str:
        """What happens after the turn."""
        return self.provider.queue_prefetch(Query(text, budget), self.session).render()

    def say(self, text: str, answer: str = "Noted.", turn_id: str = "", at: float = 0.0) -> str:
        """A completed turn; its id."""
        self.turns += 1
        turn = Turn(turn_id or f"{self.session.id}-{self.turns}", self.turns, text, answer, at=at)
        self.provider.sync_turn(turn, self.session)
        return turn.id

    def tool(self, name: str, **arguments: Any) -> Any:
        """What the model gets of a tool."""
        return json.loads(self.provider.handle_tool_call(ToolCall(name, arguments), self.session))


@pytest.fixture
def start(home: HermesHome, server: HonchoServer, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Start a provider with these settings in its file; any number of times."""
    started: list[HonchoProvider] = []
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)

    def begin(session: Session | None = None, **settings: Any) -> Agent:
        path = home.provider_json("honcho")
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
        provider = HonchoProvider(lambda: folder)
        started.append(provider)
        chosen = session or Session("s1", home=str(home.path))
        provider.initialize(chosen)
        return Agent(provider, home.path, chosen)

    yield begin
    for provider in started:
        provider.shutdown()


@pytest.fixture
def agent(start: Callable[..., Agent]) -> Agent:
    """A provider with its defaults, but without reasoning before the first turn."""
    return start(firstTurnDialecticWait=0)

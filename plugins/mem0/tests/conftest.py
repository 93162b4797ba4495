"""A provider on each of the three backends, as the manager drives it: calls in, JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hermes_mem0 import Mem0Provider

from hermes_core import MemoryWrite, Query, Session, ToolCall, Turn
from plugins.mem0.tests.stand_in import KEY, Cloud, Models, OwnServer


@dataclass
class Agent:
    """A started provider of the test's home."""

    provider: Mem0Provider
    home: Path

    def session(self, id_: str = "s1", **identity: Any) -> Session:
        return Session(id_, home=str(self.home), **identity)

    def tool(self, name: str, session: Session | None = None, **arguments: Any) -> Any:
        call = ToolCall(name, arguments)
        return json.loads(self.provider.handle_tool_call(call, session or self.session()))

    def say(
        self, text: str, turn_id: str = "t1", answer: str = "Noted.", session: Session | None = None
    ) -> None:
        self.provider.sync_turn(Turn(turn_id, 1, text, answer), session or self.session())

    def write(self, id_: str, action: Any, content: str = "", **fields: Any) -> None:
        write = MemoryWrite(id_, action, fields.pop("target", "memory"), content, **fields)
        self.provider.on_memory_write(write, self.session())

    def recalled(self, question: str, session: Session | None = None, budget: int = 1500) -> list[str]:
        recall = self.provider.prefetch(Query(question, budget=budget), session or self.session())
        return [item.text for item in recall.items]

    def remembered(self, user: str = "hermes-user") -> list[str]:
        return sorted(note.text for note in self.provider.client.listed(user, 1000))


Start = Callable[..., Agent]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """Mem0's cloud; in the end it must have had nothing to complain of."""
    with Cloud() as running:
        yield running
    assert running.complaints == []


@pytest.fixture
def server() -> Iterator[OwnServer]:
    """A Mem0 server of one's own."""
    with OwnServer() as running:
        yield running
    assert running.complaints == []


@pytest.fixture
def models() -> Iterator[Models]:
    """Embeddings and chat."""
    with Models() as running:
        yield running
    assert running.complaints == []


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a provider on the test's home, with these settings in its file; any number of times."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setenv("MEM0_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    started: list[Mem0Provider] = []

    def begin(**settings: Any) -> Agent:
        (tmp_path / "mem0.json").write_text(json.dumps(settings))
        provider = Mem0Provider()
        started.append(provider)
        provider.initialize(Session("s1", home=str(tmp_path)))
        return Agent(provider, tmp_path)

    yield begin
    for provider in started:
        provider.shutdown()


@pytest.fixture
def on_cloud(start: Start, cloud: Cloud) -> Agent:
    """On the cloud."""
    return start(api_url=cloud.url)


@pytest.fixture
def on_server(start: Start, server: OwnServer) -> Agent:
    """On a server of one's own."""
    return start(mode="selfhosted", host=server.url)


@pytest.fixture
def in_process(start: Start, models: Models) -> Agent:
    """In this process, over Qdrant's files."""
    return start(mode="oss", embedder="openai", embedder_url=f"{models.url}/v1")


@pytest.fixture(params=["on_cloud", "on_server", "in_process"])
def agent(request: pytest.FixtureRequest) -> Agent:
    """On each of the three in turn."""
    found: Agent = request.getfixturevalue(request.param)
    return found

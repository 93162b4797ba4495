"""A provider on each of the three backends, as the manager drives it: calls in, JSON out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hermes_mem0 import Mem0Provider

from hermes_core import HermesHome
from hermes_memory_testing import Driven, driving
from plugins.mem0.tests.stand_in import KEY, Cloud, Models, OwnServer


class Agent(Driven[Mem0Provider]):
    """A started provider of the test's home."""

    def remembered(self, user: str = "hermes-user") -> list[str]:
        return sorted(note.text for note in self.provider.client.listed(user, 1000))


Start = Callable[..., Agent]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """From 3.13 on Python warns of databases that nobody closed; Qdrant's local client leaves one in memory so."""
    here = f"{Path(__file__).parent}{os.sep}"  # as text: to ask ten thousand paths for their parents takes seconds
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"))


@pytest.fixture(autouse=True)
def _keeps_out_of_the_persons_home() -> Iterator[None]:
    """The SDK decides at its import, which happens once a process, where it writes: in ~/.mem0 unless it is told."""
    yield
    setup = sys.modules.get("mem0.memory.setup")
    assert setup is None or Path(setup.mem0_dir).name != ".mem0"


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
    home = HermesHome(tmp_path)
    with ExitStack() as started:

        def begin(**settings: Any) -> Agent:
            started.enter_context(driving(provider := Mem0Provider(), home, settings))
            return Agent(provider, home)

        yield begin


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

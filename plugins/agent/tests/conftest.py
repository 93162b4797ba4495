"""A stage for an agent: a home, a recording provider, and a model server that says what it is told, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core.contract.hooks import POLICIES
from hermes_core.memory import Memory, open_memory
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel
from hermes_memory_testing.fakes import RecordingProvider
from hermes_memory_testing.model_server import ModelServer, Reply, Script

# Fixtures of the whole suite.
from tests.conftest import absent, documented_json, install_plugin

__all__ = ["absent", "documented_json", "install_plugin"]


class Stage:
    """Where an agent acts in a test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.provider = RecordingProvider()
        self.server = ModelServer([Reply("Yes.")])
        self._open: list[Any] = []

    def config(self, text: str) -> None:
        """Write config.yaml, before `memory` is asked for."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "config.yaml").write_text(text)

    def script(self, *replies: Script) -> None:
        """What the model says from now on; the last one again and again."""
        self.server._script = list(replies)

    @property
    def memory(self) -> Memory:
        """The memory of this stage, with the provider, opened at its first use."""
        for opened in self._open:
            if isinstance(opened, Memory):
                return opened
        return self.open_memory()

    def open_memory(self, provider: object | None = None, **given: Any) -> Memory:
        """Another memory on the same home."""
        memory = open_memory(self.home, provider=provider or self.provider, **given)
        self._open.append(memory)
        return memory

    def model(self, **settings: Any) -> OpenAIModel:
        model = OpenAIModel(
            ModelSettings(self.server.base_url, "scripted", **{"retries": 0, "pause": 0.001, **settings})
        )
        self._open.append(model)
        return model

    def agent(self, memory: Memory | None = None, **given: Any) -> Agent:
        """An agent that is not closed at the end of the test: what `close` does is for the test to ask for."""
        context_length = given.pop("context_length", 32768)
        return Agent(memory or self.memory, self.model(context_length=context_length), **given)

    def asked(self) -> list[list[dict[str, Any]]]:
        """The messages of each request, in order."""
        return [request["messages"] for request in self.server.requests]

    def told(self, *, durable: bool) -> list[str]:
        """The provider's hooks so far, of the write lane or of the read lane, once all writes arrived."""
        assert "shutdown" in self.provider.hooks or self.memory.flush(30)
        return [
            hook for hook in self.provider.hooks if hook in POLICIES and POLICIES[hook].durable is durable
        ]

    def close(self) -> None:
        for opened in reversed(self._open):
            # What a broken provider has not taken stays in the outbox: no test waits for that.
            opened.close(0.6) if isinstance(opened, Memory) else opened.close()
        self.server.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "home")
    yield stage
    stage.close()
    assert stage.server.refused == []

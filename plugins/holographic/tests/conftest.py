"""A provider in a home of its own, with a clock that only moves when told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hermes_holographic import HolographicProvider

from hermes_core import Session, ToolCall
from hermes_core.contract.values import AgentContext


@dataclass
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Agent:
    """A provider as the manager drives it: calls in, JSON out."""

    provider: HolographicProvider
    home: Path
    clock: Clock

    user: str = ""
    kind: AgentContext = "primary"

    def tool(self, name: str, **arguments: Any) -> Any:
        return json.loads(self.provider.handle_tool_call(ToolCall(name, arguments), self.session))

    def fact(self, action: str, **arguments: Any) -> Any:
        return self.tool("fact_store", action=action, **arguments)

    def add(self, content: str, **arguments: Any) -> int:
        return int(self.fact("add", content=content, **arguments)["fact_id"])

    def texts(self, action: str, **arguments: Any) -> list[str]:
        answer = self.fact(action, **arguments)
        return [fact["content"] for fact in answer.get("results", answer.get("facts"))]

    @property
    def session(self) -> Session:
        platform = "telegram" if self.user else "cli"
        return Session(
            "s1", platform=platform, user_id=self.user, home=str(self.home), agent_context=self.kind
        )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Start a provider on the test's home, with these settings in its file; any number of times."""
    started: list[HolographicProvider] = []
    clock = Clock()

    def begin(**settings: Any) -> Agent:
        if settings:
            (tmp_path / "holographic.json").write_text(json.dumps(settings))
        provider = HolographicProvider(clock)
        started.append(provider)
        provider.initialize(Session("s1", home=str(tmp_path)))
        return Agent(provider, tmp_path, clock)

    yield begin
    for provider in started:
        provider.shutdown()


@pytest.fixture
def agent(start: Callable[..., Agent]) -> Agent:
    """A provider with its defaults."""
    return start()

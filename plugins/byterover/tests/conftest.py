"""A stand-in `brv`, and a provider that uses it in a home of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hermes_byterover import ByteRoverProvider
from hermes_byterover.client import Brv
from hermes_byterover.tree import Tree

from hermes_core import Query, Session, ToolCall, Turn
from plugins.byterover.tests.stand_in import StandInBrv


class Agent:
    """A provider as the manager drives it: calls in, values out."""

    def __init__(self, home: Path, brv: StandInBrv) -> None:
        self.home, self.brv = home, brv
        self.provider = ByteRoverProvider(pause=0.01)
        self.provider.initialize(self.session())

    def session(self, id_: str = "s1", **identity: Any) -> Session:
        return Session(id_, home=str(self.home), **identity)

    def tool(self, name: str, **arguments: Any) -> Any:
        return json.loads(self.provider.handle_tool_call(ToolCall(name, arguments), self.session()))

    def say(self, user: str, assistant: str = "Noted.", turn: str = "turn-1", **identity: Any) -> None:
        self.provider.sync_turn(Turn(turn, 1, user, assistant, at=1.8e9), self.session(**identity))

    def recall(self, question: str, budget: int = 1500, **identity: Any) -> list[str]:
        found = self.provider.prefetch(Query(question, budget=budget), self.session(**identity))
        return [item.text for item in found.items]


@pytest.fixture
def brv(tmp_path: Path) -> StandInBrv:
    return StandInBrv(tmp_path / "bin")


@pytest.fixture
def client(brv: StandInBrv, tmp_path: Path) -> Brv:
    """The client alone, which looks at a curation at once."""
    return Brv(str(brv.path), tmp_path / "data", pause=0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project."""
    return Tree(tmp_path / "project").folder


@pytest.fixture
def start(brv: StandInBrv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Agent]:
    """Start a provider on the test's home, with these settings in its file."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(home))

    def begin(**settings: Any) -> Agent:
        (home / "byterover.json").write_text(
            json.dumps({"command": str(brv.path), **settings}), encoding="utf-8"
        )
        return Agent(home, brv)

    return begin


@pytest.fixture
def agent(start: Callable[..., Agent]) -> Agent:
    """A provider with its defaults."""
    return start()

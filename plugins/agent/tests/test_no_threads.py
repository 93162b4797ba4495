"""A gateway of many people may run out of threads: what needs one fails, and nothing of it raises."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from hermes_memory_agent import Agent, Answer, Tool, ToolRequest

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

NONE_LEFT = "can't start new thread"


class Caller:
    """A model that calls two tools, and then answers."""

    name, context_length = "own", 32768

    def complete(self, messages: Any, *_: Any, **__: Any) -> Answer:
        calls = tuple(ToolRequest(str(at), "look", "{}") for at in range(2))
        return Answer("Done.") if messages[-1]["role"] == "tool" else Answer(calls=calls)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("agent-"):
            raise RuntimeError(NONE_LEFT)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("no_threads")
@pytest.mark.parametrize("parallel", [True, False])
def test_a_tool_fails_and_the_turn_is_answered(stage: Stage, parallel: bool) -> None:
    look = Tool("look", "", {}, lambda arguments, session: "seen", parallel=parallel)
    agent = Agent(stage.memory, Caller(), tools=[look])
    assert agent.run_turn("Look twice.").outcome == "answered"
    results = [m["content"] for m in agent.history if m["role"] == "tool"]
    assert [NONE_LEFT in result for result in results] == [True, True]
    assert stage.told(durable=True) == ["sync_turn"]


@pytest.mark.usefixtures("no_threads")
def test_a_compression_does_not_happen_and_says_why(stage: Stage) -> None:
    agent = Agent(stage.memory, Caller(), tools=[Tool("look", "", {}, lambda arguments, session: "seen")])
    agent.run_turn("Look twice.")
    assert agent.compress() is False
    assert any(NONE_LEFT in problem for problem in agent.problems)
    assert len(agent.history) == 5


@pytest.mark.usefixtures("no_threads")
def test_a_review_is_due_again_and_the_turn_says_why_there_was_none(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1}\n")
    agent = Agent(stage.memory, Caller(), tools=[Tool("look", "", {}, lambda arguments, session: "seen")])
    result = agent.run_turn("Look twice.")
    assert result.outcome == "answered"
    assert any(NONE_LEFT in problem for problem in result.problems)
    assert stage.told(durable=True) == ["sync_turn"]

"""A compressor of one's own, or one whose model fails: it may do anything, and the conversation goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.errors import DatabaseUnavailable, ModelUnavailable
from hermes_memory_agent import lifecycle
from hermes_memory_agent.cancel import Cancel
from hermes_memory_agent.compression import Compressed
from hermes_memory_testing.model_server import Reply

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage


class Engine:
    """A compressor that does what it is given; `told` is what its two other methods do."""

    def __init__(self, act: Callable[[Any], Any], told: Callable[[], None] = lambda: None) -> None:
        self.act = act
        self.told = told

    def compress(self, messages: Any, memory_context: str, cancel: Cancel) -> Any:
        return self.act(messages)

    def on_session_start(self, session: Session, boundary_reason: str) -> None:
        self.told()

    def on_session_end(self, session: Session) -> None:
        self.told()


def failing(error: BaseException) -> Callable[..., Any]:
    def act(*_: Any, **__: Any) -> Any:
        raise error

    return act


def shortening(*messages: Any, failure: str = "") -> Callable[..., Any]:
    return lambda *_: Compressed(messages, 1, failure)


def trimming_in_place(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        message.clear()
    raise ValueError("odd")


BROKEN = [
    shortening(),
    shortening(failure="down"),
    shortening("One."),
    shortening(1, failure="down"),
    shortening({"content": "One."}),
    shortening({"role": "user", "content": object()}),
    shortening({"role": "assistant", "content": "", "tool_calls": [{}]}),
    lambda messages: Compressed(iter(messages), 0),  # type: ignore[arg-type]
    trimming_in_place,
    failing(ModelUnavailable("down")),
    failing(ValueError("odd")),
    failing(SystemExit(3)),
    list,
]


@pytest.mark.parametrize("act", BROKEN)
def test_a_compressor_that_fails_moves_nothing_and_says_so(stage: Stage, act: Callable[[Any], Any]) -> None:
    agent = stage.agent(compressor=Engine(act), context_length=16)
    first = agent.run_turn("One.")
    second = agent.run_turn("Two.")
    assert (first.outcome, second.outcome) == ("answered", "answered")
    assert second.session_id == first.session_id
    assert [m["content"] for m in agent.history] == ["One.", "Yes.", "Two.", "Yes."]
    assert any("the compressor" in problem for problem in second.problems)
    assert stage.told(durable=True) == ["sync_turn", "sync_turn"]


def test_a_compressor_that_hangs_can_be_interrupted_and_loses_no_message(stage: Stage) -> None:
    began, gate = threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        began.set()
        gate.wait(10)

    agent = stage.agent(compressor=Engine(hang), context_length=16)
    agent.run_turn("Hello.")

    def interrupt() -> None:
        began.wait(10)
        agent.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = agent.run_turn("Are you there?")
    thread.join()
    gate.set()
    assert result.outcome == "interrupted"
    assert [m["content"] for m in agent.history] == ["Hello.", "Yes.", "Are you there?"]
    assert stage.memory.sessions.past.search('"are you there"')
    assert stage.told(durable=True) == ["sync_turn"]


def test_what_can_not_be_made_shorter_is_not_tried_each_turn_and_the_reason_is_told(stage: Stage) -> None:
    tried: list[int] = []
    agent = stage.agent(compressor=Engine(lambda messages: tried.append(len(messages))), context_length=2400)
    results = [agent.run_turn(f"Message {number}. " + "No more. " * 10) for number in range(12)]
    assert len(tried) in (2, 3), tried
    told = [result for result in results if any("the tools alone take" in one for one in result.problems)]
    assert len(told) == len(tried) + 1  # and with the first answer


def test_a_summary_for_which_there_is_no_room_on_the_disk_is_not_asked_for_each_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def shorten(messages: Any) -> Compressed:
        tried.append(len(messages))
        return Compressed(tuple(messages), 1)

    agent = stage.agent(compressor=Engine(shorten), context_length=2400)
    agent.run_turn("One.")
    full = failing(DatabaseUnavailable("the disk is full", "free space"))
    monkeypatch.setattr(stage.memory.sessions, "create_session", full)
    results = [agent.run_turn(f"Message {number}.") for number in range(4)]
    told = [any("the disk is full" in one for one in result.problems) for result in results]
    assert told == [True, False, False, False]
    assert len(tried) == 1


def test_a_conversation_that_its_server_finds_too_long_is_made_shorter_each_time(stage: Stage) -> None:
    tried: list[int] = []
    agent = stage.agent(compressor=Engine(lambda messages: tried.append(len(messages))))
    agent.run_turn("One.")
    stage.script(Reply(status=413))
    for number in range(3):
        assert agent.run_turn(f"Message {number}.").outcome == "failed"
    assert len(tried) == 2


def test_compressing_that_is_interrupted_leaves_everything_as_it_was(stage: Stage) -> None:
    agent = stage.agent(compressor=Engine(lambda _: agent.interrupt()))
    agent.run_turn("One.")
    before = agent.session
    assert not agent.compress()
    assert agent.session == before


@pytest.mark.parametrize("told", [failing(ValueError("odd")), lambda: threading.Event().wait(10)])
def test_a_compressor_that_can_not_be_told_holds_no_boundary_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, told: Callable[[], None]
) -> None:
    monkeypatch.setattr(lifecycle, "COMPRESSOR_TIMEOUT_S", 0.02)
    agent = stage.agent(compressor=Engine(lambda _: None, told))
    agent.run_turn("One.")
    before = agent.session.id
    agent.new()
    assert agent.session.id != before
    assert stage.told(durable=True) == ["sync_turn", "on_session_end", "on_session_switch"]


def test_no_summary_is_asked_for_while_nothing_can_be_stored(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    agent = stage.agent(compressor=Engine(asked.append), context_length=16)
    with monkeypatch.context() as at_that_time:
        full = failing(DatabaseUnavailable("the disk is full"))
        at_that_time.setattr(stage.memory.sessions, "append_message", full)
        assert agent.run_turn("One.").outcome == "answered"
    assert asked == []
    agent.run_turn("Two.")
    assert len(asked) == 1

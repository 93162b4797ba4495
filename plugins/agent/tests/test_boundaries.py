"""Boundaries that fail, end in the wrong moment or come from an unusual place."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.errors import DatabaseUnavailable, SessionError
from hermes_memory_agent import Agent, Tool
from hermes_memory_agent.compression import SUMMARY_MARK
from hermes_memory_agent.review import Background
from hermes_memory_testing.model_server import Reply
from plugins.agent.tests.test_lifecycle import Engine

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage


def broken(*_: Any, **__: Any) -> Any:
    raise DatabaseUnavailable("the disk is full", "free some space")


@pytest.mark.parametrize("event", ["new", "reset", "branch", "undo", "compress"])
def test_a_boundary_that_can_not_be_stored_says_so_and_changes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    agent = stage.agent(compressor=Engine())
    agent.run_turn("One.")
    agent.run_turn("Two.")
    session, history = agent.session, agent.history
    with monkeypatch.context() as patch:
        patch.setattr(stage.memory.sessions, "create_session", broken)
        patch.setattr(stage.memory.sessions, "rewind", broken)
        with pytest.raises(SessionError, match="the disk is full"):
            getattr(agent, event)()
    assert (agent.session, agent.history) == (session, history)
    row = stage.memory.sessions.get_session(session.id)
    assert row is not None
    assert row.ended_at is None
    assert agent.run_turn("Three.").outcome == "answered"


def test_what_failed_between_two_turns_is_told_by_the_next(stage: Stage) -> None:
    stage.config("agent: {protect_last: 1}")
    agent = stage.agent()
    for number in range(6):
        agent.run_turn(f"Message {number}.")
    stage.script(Reply(status=500))
    assert not agent.compress()
    assert any("without a summary" in problem for problem in agent.problems)
    stage.script(Reply("Yes."))
    assert any("without a summary" in problem for problem in agent.run_turn("Go on.").problems)
    assert agent.run_turn("And on.").problems == agent.problems == ()


def test_a_task_is_delegated_after_a_turn_that_was_stopped(stage: Stage) -> None:
    agent = stage.agent()
    agent.run_turn("Hello.")
    agent.interrupt()
    assert agent.delegate("Count.") == "Yes."


def test_who_closes_stops_no_review_of_another(stage: Stage) -> None:
    background, gate, stopped = Background(), threading.Event(), list[bool]()

    def look_back(cancel: Any) -> None:
        gate.wait(10)
        stopped.append(cancel.is_set())

    one = stage.agent(background=background)
    background.start(look_back, "review of two")
    one.close()
    gate.set()
    assert background.wait(60)
    assert stopped == [False]


def test_a_summary_is_no_turn_that_can_be_taken_back(stage: Stage) -> None:
    class Whole(Engine):
        def compress(self, messages: Any, memory_context: str, cancel: Any) -> Any:
            summary = {"role": "user", "content": f"{SUMMARY_MARK}\nTwo spoke."}
            found = super().compress(messages, memory_context, cancel)
            return type(found)((summary, *messages[-1:]), len(messages) - 1)

    agent = stage.agent(compressor=Whole())
    agent.run_turn("One.")
    agent.compress()
    agent.branch()
    agent.run_turn("Two.")
    assert agent.undo() == "Two."
    with pytest.raises(SessionError, match="no turn to undo"):
        agent.undo()


def test_turns_of_a_crash_go_out_for_those_who_spoke(stage: Stage) -> None:
    ann = Agent(stage.memory, stage.model(), session_id="s1", platform="telegram", user_id="7")
    stage.memory.manager.outbox.held_back = "as if the process were killed here"
    ann.run_turn("Of Ann.")
    elsewhere = Agent(stage.memory, stage.model(), platform="telegram", user_id="7", chat_id="9")
    elsewhere.resume("s1")
    stage.memory.manager.outbox.held_back = ""
    assert stage.memory.flush(30)
    (call,) = stage.provider.of("sync_turn")
    assert call["session"].scope == ann.session.scope != elsewhere.session.scope


@pytest.mark.parametrize("skip_memory", [False, True])
def test_a_crash_just_after_a_compression_ends_what_came_of_it(stage: Stage, skip_memory: bool) -> None:
    crashed = stage.agent(compressor=Engine())
    crashed.run_turn("One.")
    began = crashed.session.id
    crashed.compress()
    crashed.run_turn("Two.")
    stage.agent(skip_memory=skip_memory).end_crashed(began)
    row = stage.memory.sessions.get_session(crashed.session.id)
    assert row is not None
    assert row.end_reason == "crash"
    assert stage.memory.flush(30)
    ends = [(call["session"].id, call["reason"]) for call in stage.provider.of("on_session_end")]
    assert ends == [(began, "compression"), (crashed.session.id, "crash")]


def test_agents_made_anew_keep_the_cadence_of_reviews_over_compressions(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 5, flush_min_turns: 0}")
    on_review = []
    for number in range(1, 11):
        agent = stage.agent(session_id="chat-1", compressor=Engine())
        agent.run_turn(f"Message {number}.")
        assert agent.wait_for_review(10)
        if any("not from the person" in json.dumps(request) for request in stage.asked()):
            on_review.append(number)
        stage.server.requests.clear()
        if number % 3 == 0:
            agent.compress()
    assert on_review == [5, 10]


def test_what_is_said_after_a_compression_is_flushed_at_the_end(stage: Stage) -> None:
    stage.config("memory: {flush_min_turns: 3}")
    agent = stage.agent(compressor=Engine())
    agent.run_turn("One.")
    agent.run_turn("Two.")
    agent.compress()
    stage.server.requests.clear()
    agent.run_turn("Three.")
    agent.close()
    assert sum("not from the person" in json.dumps(request) for request in stage.asked()) == 1


@pytest.mark.parametrize(("down", "flushes"), [(False, 1), (True, 2)])
def test_what_was_flushed_is_not_read_again_where_nothing_was_said_since(
    stage: Stage, down: bool, flushes: int
) -> None:
    stage.config("memory: {flush_min_turns: 2}")
    agent = stage.agent(compressor=Engine())
    agent.run_turn("One.")
    agent.run_turn("Two.")
    stage.server.requests.clear()
    stage.script(Reply(status=500) if down else Reply("done"))
    agent.compress()
    stage.script(Reply("done"))
    agent.close()
    assert sum("not from the person" in json.dumps(request) for request in stage.asked()) == flushes


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("quick", [True, False])
def test_a_sigterm_within_a_tool_ends_the_turn_in_order(stage: Stage, quick: bool) -> None:
    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    def die(_: Any, session: Session) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        # On the main thread the signal ends the wait.
        threading.Event().wait(5 if threading.current_thread() is threading.main_thread() else 0.5)
        return "back"

    agent = stage.agent(tools=[Tool("die", "", {}, die, quick=quick)])
    agent.run_turn("Hello.")
    stage.script(Reply(calls=[("die", {})]), Reply("Still here."))
    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit), agent:
            agent.run_turn("Stop the service.")
    finally:
        signal.signal(signal.SIGTERM, before)
    row = stage.memory.sessions.get_session(agent.session.id)
    assert row is not None
    assert row.end_reason == "close"
    assert stage.told(durable=True) == ["sync_turn", "on_session_end"]


def test_a_turn_that_a_full_outbox_refused_says_so_and_the_next_ones_are_sent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = stage.agent()
    with monkeypatch.context() as full:
        full.setattr(stage.memory.manager.outbox, "_max_rows", 0)
        assert any("not accepted for the provider" in one for one in agent.run_turn("One.").problems)
    agent.run_turn("Two.")
    assert agent.run_turn("Three.").problems == ()
    assert stage.memory.flush()
    told = [call["turn"].user for call in stage.provider.of("sync_turn")]
    assert told == ["Two.", "Three."]

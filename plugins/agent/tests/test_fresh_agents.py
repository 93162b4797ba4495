"""An agent made anew for each message behaves as one that lives as long as the conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_memory_agent import Agent
from hermes_memory_agent.answer import HIDDEN
from hermes_memory_agent.compression import is_summary
from hermes_memory_testing.model_server import Reply
from plugins.agent.tests.conftest import Stage
from plugins.agent.tests.test_review import is_look_back

CONTEXT = 6000


def is_summary_request(request: dict[str, Any]) -> bool:
    return "You keep the minutes" in str(request["messages"][0]["content"])


def counts(stage: Stage, first: str, last: Agent) -> dict[str, Any]:
    """What a conversation cost, and how it stands."""
    requests = stage.server.requests
    turns = [r for r in requests if not is_look_back(r) and not is_summary_request(r)]
    return {
        "flushes": sum(map(is_look_back, requests)),
        "summaries": sum(map(is_summary_request, requests)),
        "pre_compress": len(stage.provider.of("on_pre_compress")),
        "compressions": len(stage.memory.sessions.lineage(last.session.id)) - 1,
        "asked": [len(request["messages"]) for request in turns],
        "last": [str(message["content"])[:60] for message in turns[-1]["messages"][1:]],
    }


def conversation(home: Path, *, fresh: bool, reply: Any, config: str = "", turns: int = 20) -> dict[str, Any]:
    """The same conversation, with an agent for each message or one for all of them."""
    stage = Stage(home)
    try:
        stage.config(config or "memory: {nudge_interval: 0, flush_min_turns: 2}")
        stage.script(reply)
        agent = first = stage.agent(session_id="chat-1", context_length=CONTEXT)
        for number in range(turns):
            if fresh and number:
                agent = stage.agent(session_id="chat-1", context_length=CONTEXT)
            assert agent.run_turn(f"Message {number}: {'of the report ' * 40}").outcome == "answered"
        found = counts(stage, first.session.id, agent)
        assert stage.server.refused == []
        return found
    finally:
        stage.close()


def healthy(request: dict[str, Any]) -> Reply:
    if is_summary_request(request):
        return Reply("They spoke of a report.")
    return Reply("done" if is_look_back(request) else "Yes. " * 40)


def without_summaries(request: dict[str, Any]) -> Reply:
    return Reply(status=500) if is_summary_request(request) else healthy(request)


def counting(request: dict[str, Any]) -> Reply:
    """Its server counts more tokens than we do."""
    said = healthy(request)
    return Reply(said.text, prompt_tokens=len(str(request)) // 3)


@pytest.mark.parametrize("reply", [healthy, without_summaries, counting])
def test_agents_made_anew_cost_what_one_that_lives_on_does(tmp_path: Path, reply: Any) -> None:
    one = conversation(tmp_path / "one", fresh=False, reply=reply)
    many = conversation(tmp_path / "many", fresh=True, reply=reply)
    assert one["flushes"] > 1
    assert many == one


def test_nothing_is_asked_of_anybody_where_nothing_could_be_left_out(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 0, flush_min_turns: 1}")
    agent = stage.agent(context_length=2400)
    results = [agent.run_turn(f"Message {number}.") for number in range(4)]
    assert not agent.compress()
    assert any("the tools alone take" in problem for result in results for problem in result.problems)
    assert len(stage.server.requests) == 4
    assert stage.provider.of("on_pre_compress") == []


def test_a_conversation_that_its_server_found_too_long_is_made_shorter_by_the_next_agent(
    stage: Stage,
) -> None:
    stage.config("memory: {nudge_interval: 0, flush_min_turns: 0}")
    stage.script(healthy)
    for number in range(8):
        stage.agent(session_id="chat-1").run_turn(f"Message {number}: {'of the report ' * 40}")
    stage.script(Reply(status=413))
    assert stage.agent(session_id="chat-1").run_turn("And now?").outcome == "failed"
    stage.script(healthy)
    stage.server.requests.clear()
    assert stage.agent(session_id="chat-1").run_turn("And now?").outcome == "answered"
    assert sum(map(is_summary_request, stage.server.requests)) == 1


def test_what_is_taken_back_is_asked_for_again_in_full(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 0, flush_min_turns: 0}")
    stage.script(without_summaries)
    for number in range(12):
        stage.agent(session_id="chat-1").run_turn(f"Message {number}: {'of the report ' * 40}")
    agent = stage.agent(session_id="chat-1")
    assert not agent.compress()
    shortened = stage.agent(session_id="chat-1")
    assert len(shortened.history) < 24
    shortened.undo()
    assert len(stage.agent(session_id="chat-1").history) == len(shortened.history) == 22


def test_a_session_that_was_flushed_and_ended_is_not_flushed_again_without_a_word(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 0, flush_min_turns: 1}")
    stage.agent(session_id="chat-1").run_turn("Hello.")
    for _ in range(3):
        stage.agent(session_id="chat-1").evict()
    assert sum(map(is_look_back, stage.server.requests)) == 1
    stage.agent(session_id="chat-1").run_turn("One more thing.")
    stage.agent(session_id="chat-1").close()
    assert sum(map(is_look_back, stage.server.requests)) == 2


@pytest.mark.parametrize(
    "damage", ["", "[1, 2]", "[6000, 0, null, -4, 2]", '[6000, 0, null, 0, "x"]', "\udcff"]
)
def test_what_is_kept_of_a_conversations_length_may_be_damaged(stage: Stage, damage: str) -> None:
    stage.agent(session_id="chat-1").run_turn("Hello.")
    stage.memory.sessions.meta.set("fullness:chat-1", damage.encode("utf-8", "replace").decode())
    agent = stage.agent(session_id="chat-1", context_length=CONTEXT)
    assert len(agent.history) == 2
    assert agent.run_turn("Hello.").problems == ()


def test_what_is_kept_with_a_session_goes_with_it(stage: Stage) -> None:
    sessions = stage.memory.sessions
    stage.config("memory: {flush_min_turns: 1}")
    stage.agent(session_id="chat-1").run_turn("Hello.")
    for what in ("fullness", "flushed", "reviewed", "cadence"):
        sessions.meta.set(f"{what}:chat-1", "1")
    stage.memory.delete_session("chat-1")
    assert [sessions.meta.get(f"{what}:chat-1") for what in ("fullness", "flushed", "cadence")] == [None] * 3


def test_what_stands_for_a_turn_that_was_kept_back_is_kept_back_for_the_next_agent_too(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 0, flush_min_turns: 0}")
    stage.script(without_summaries)
    for number in range(12):
        if number == 3:
            stage.script(Reply("Half of an answer", chunk=4, cut_after=1))
        stage.agent(session_id="chat-1").run_turn(f"Message {number}: {'of the report ' * 40}")
        stage.script(without_summaries)
    assert not stage.agent(session_id="chat-1").compress()
    (note,) = filter(is_summary, stage.agent(session_id="chat-1").history)
    assert HIDDEN in note

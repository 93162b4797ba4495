"""What no provider is to be told: turns without memory, and turns that did not come to their end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.memory import open_memory
from hermes_memory_agent import Agent, Tool
from hermes_memory_agent.answer import ChatMessage
from hermes_memory_agent.cancel import Cancel
from hermes_memory_agent.compression import Compressed, ContextLimits, SummaryCompressor
from hermes_memory_testing.fakes import RecordingProvider
from hermes_memory_testing.model_server import Reply
from plugins.agent.tests.test_compressors import Engine

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage


def test_what_was_said_without_memory_never_reaches_a_provider(stage: Stage) -> None:
    with stage.agent() as agent:
        agent.run_turn("Of my cat.")
    with stage.agent(skip_memory=True) as secret:
        secret.run_turn("Of my doctor.")
    # Half of another conversation is kept from memory.
    with stage.agent(skip_memory=True, session_id=agent.session.id) as half:
        half.run_turn("Of my bank.")
    ends = [call["reader"].messages() for call in stage.provider.of("on_session_end")]
    stage.memory.close()
    later = RecordingProvider()
    memory = stage.open_memory(later)
    for session in (agent.session, secret.session):
        stage.agent(memory, session_id=session.id).close()
    assert memory.flush(30)
    assert [call["turn"].user for call in stage.provider.of("sync_turn")] == ["Of my cat."]
    assert later.of("sync_turn") == []
    ends += [call["reader"].messages() for call in later.of("on_session_end")]
    assert {m["content"] for messages in ends for m in messages} == {"Of my cat.", "Yes."}
    assert len(later.of("on_session_end")) == 1
    assert memory.sessions.past.search("doctor")


def test_a_turn_that_was_stopped_is_in_no_transcript_for_a_provider(stage: Stage) -> None:
    agent = stage.agent(compressor=Engine(lambda _: None))
    agent.run_turn("Whole.")
    stage.script(Reply("Half of an answer", chunk=4, cut_after=1))
    assert agent.run_turn("Broken off.").outcome == "failed"
    stage.script(Reply("Yes."))
    agent.run_turn("Whole again.")
    agent.compress()
    agent.close()
    assert stage.memory.flush(30)
    (end,) = stage.provider.of("on_session_end")
    (before,) = stage.provider.of("on_pre_compress")
    for messages in (end["reader"].messages(), before["messages"]):
        assert [m["content"] for m in messages] == ["Whole.", "Yes.", "Whole again.", "Yes."]
    assert "Broken off." in [m["content"] for m in agent.history]


def test_what_was_said_while_the_provider_was_off_does_not_reach_it_when_it_is_on_again(stage: Stage) -> None:
    turned_off: str = ""
    told: list[str] = []
    for provider, text in (
        (stage.provider, "With it."),
        (turned_off, "Without it."),
        (RecordingProvider(), "Again."),
    ):
        with open_memory(stage.home, provider=provider) as memory:
            agent = stage.agent(memory, session_id="s1")
            agent.run_turn(text)
            assert memory.flush(30)
            if isinstance(provider, RecordingProvider):
                told += [call["turn"].user for call in provider.of("sync_turn")]
    assert told == ["With it.", "Again."]


DOCTOR = f"Of my doctor{' and his house' * 20}."


def kept_back(stage: Stage, kind: str) -> Agent:
    """An agent in whose history, between others, stands a turn of which no provider is to be told."""
    agent = stage.agent(tools=[Tool("stop", "", {}, lambda arguments, session: agent.interrupt())])
    agent.run_turn("Of my cat.")
    if kind == "skip_memory":
        stage.agent(session_id=agent.session.id, skip_memory=True).run_turn(DOCTOR)
        agent = stage.agent(session_id=agent.session.id)
    else:
        broken = Reply("Half of an answer", chunk=4, cut_after=1)
        stage.script(Reply(calls=[("stop", {})]) if kind == "interrupted" else broken)
        assert agent.run_turn(DOCTOR).outcome == kind
    stage.script(says)
    agent.run_turn("Of my dog.")
    return agent


def says(request: dict[str, Any]) -> Reply:
    """What the model says; in a summary also what was kept back."""
    summary = "You keep the minutes" in request["messages"][0]["content"]
    return Reply("They spoke of a doctor." if summary else "Yes.")


def left_and_back(stage: Stage, agent: Agent) -> Agent:
    session_id = agent.session.id
    agent.new()
    agent.resume(session_id)
    return agent


def anew(stage: Stage, agent: Agent) -> Agent:
    return stage.agent(session_id=agent.session.id)


def branched(stage: Stage, agent: Agent) -> Agent:
    agent.branch()
    return agent


def compressed(stage: Stage, agent: Agent) -> Agent:
    assert agent.compress()
    assert "doctor" in json.dumps(agent.history)
    return agent


def undone(stage: Stage, agent: Agent) -> Agent:
    agent.run_turn("Of my fish.")
    agent.undo()
    return agent


@pytest.mark.parametrize("kind", ["interrupted", "failed", "skip_memory"])
@pytest.mark.parametrize(
    "ways", [(), (left_and_back,), (anew,), (undone,), (branched, anew), (compressed, anew)]
)
def test_what_was_kept_back_reaches_no_provider_with_a_later_turn_or_end(
    stage: Stage, kind: str, ways: tuple[Callable[[Stage, Agent], Agent], ...]
) -> None:
    stage.config("agent: {protect_first: 1, protect_last: 1}")
    agent = kept_back(stage, kind)
    for way in ways:
        agent = way(stage, agent)
        agent.run_turn("Of my horse.")
    agent.close()
    assert stage.memory.flush(30)
    asked = [[m["content"] for m in call["query"].recent] for call in stage.provider.of("prefetch")]
    ends = [[m["content"] for m in call["reader"].messages()] for call in stage.provider.of("on_session_end")]
    assert not [told for told in (*asked, *ends) if "doctor" in str(told)]
    assert "Of my cat." in asked[-1]
    assert "Of my horse." in ends[-1] or not ways


class Rewriter(SummaryCompressor):
    """Makes messages of its own, which say nothing but who speaks and what."""

    def compress(self, messages: Sequence[ChatMessage], memory_context: str, cancel: Cancel) -> Compressed:
        gist = [{"role": m["role"], "content": f"In short: {m['content'][:12]}"} for m in messages]
        return Compressed(tuple(gist), 1)


def test_what_a_compressor_makes_of_what_was_kept_back_is_stored_and_kept_back_too(stage: Stage) -> None:
    compressor = Rewriter(stage.model(), ContextLimits(1000), len)
    agent = stage.agent(compressor=compressor)
    stage.script(Reply("Half of an answer", chunk=4, cut_after=1))
    agent.run_turn(DOCTOR)
    stage.script(says)
    agent.run_turn("Of my cat.")
    assert agent.compress()
    agent = anew(stage, agent)
    assert [m["content"] for m in agent.history][-2:] == ["In short: Of my cat.", "In short: Yes."]
    agent.run_turn("Of my dog.")
    agent.close()
    assert stage.memory.flush(30)
    assert stage.provider.of("prefetch")[-1]["query"].recent == ()
    assert "octor" not in str([call["reader"].messages() for call in stage.provider.of("on_session_end")])

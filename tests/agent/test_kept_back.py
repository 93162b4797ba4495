"""What no provider is to be told: turns without memory, and turns that did not come to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_core.memory import open_memory
from hermes_core.testing.fakes import RecordingProvider
from hermes_core.testing.model_server import Reply

if TYPE_CHECKING:
    from tests.agent.conftest import Stage


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
    assert memory.sessions.search("doctor")


def test_a_turn_that_was_stopped_is_in_no_transcript_for_a_provider(stage: Stage) -> None:
    agent = stage.agent()
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

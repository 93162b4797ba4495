from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hermes_core.contract.values import Capabilities
from hermes_core.recall.tokens import count_tokens
from hermes_memory_agent.compression import SUMMARY_MARK
from hermes_memory_agent.review import Background, Review, turns_since_memory
from hermes_memory_testing.fakes import REMEMBER_TOOL
from hermes_memory_testing.model_server import Reply

if TYPE_CHECKING:
    from plugins.agent.tests.conftest import Stage

ADD = ("memory", {"action": "add", "target": "user", "content": "Prefers short answers."})
NOT_FROM_THE_PERSON = "[This is not from the person."


def is_look_back(request: dict[str, Any]) -> bool:
    return any(NOT_FROM_THE_PERSON in str(m.get("content")) for m in request["messages"])


def reviewing(*calls: Any) -> Any:
    """A model that answers people with Yes, and looks back with these calls once."""
    done: list[bool] = []

    def reply(request: dict[str, Any]) -> Reply:
        if is_look_back(request) and not done:
            done.append(True)
            return Reply(calls=list(calls))
        return Reply("done" if is_look_back(request) else "Yes.")

    return reply


def talk(agent: Any, turns: int) -> None:
    for number in range(turns):
        assert agent.run_turn(f"Message {number}.").outcome == "answered"


def test_a_review_saves_after_the_answer_and_no_provider_hears_of_it(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 2}")
    reviews: list[Review] = []
    stage.script(reviewing(ADD))
    agent = stage.agent(on_review=reviews.append)
    talk(agent, 2)
    assert agent.wait_for_review(10)
    assert [str(review) for review in reviews] == ["Memory updated: user (add): Prefers short answers."]
    assert stage.memory.curated.entries("user") == ("Prefers short answers.",)
    assert stage.told(durable=True) == ["sync_turn", "sync_turn"]
    assert NOT_FROM_THE_PERSON not in json.dumps(agent.history)
    assert not stage.memory.sessions.past.search('"not from the person"')


def test_a_look_back_for_which_the_model_was_closed_too_early_tells_the_host_why(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 2, flush_min_turns: 2}")
    reviews: list[Review] = []
    auxiliary = stage.model()
    auxiliary.close()
    agent = stage.agent(auxiliary=auxiliary, on_review=reviews.append)
    talk(agent, 2)
    assert agent.wait_for_review(10)
    assert [review.failure for review in reviews] == [
        "the model 'scripted' was closed; close it when no agent asks it any more"
    ]
    agent.close()
    assert stage.memory.sessions.get_session(agent.session.id).end_reason == "close"  # type: ignore[union-attr]


def test_a_review_repeats_the_conversations_prefix(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1}")
    stage.script(reviewing())
    agent = stage.agent()
    talk(agent, 1)
    assert agent.wait_for_review(10)
    answer, review = stage.server.requests[:2]
    assert review["messages"][0] == answer["messages"][0]
    assert review["tools"] == answer["tools"]


def test_a_review_may_use_memory_and_skills_and_nothing_else(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1}")
    skill = "---\nname: tea\ndescription: Make tea.\n---\nBoil water."
    create = ("skill_manage", {"action": "create", "name": "tea", "category": "home", "content": skill})
    stage.script(reviewing((REMEMBER_TOOL["name"], {"fact": "x"}), ("delegate_task", {"task": "x"}), create))
    reviews: list[Review] = []
    agent = stage.agent(on_review=reviews.append)
    talk(agent, 1)
    assert agent.wait_for_review(10)
    assert "handle_tool_call" not in stage.provider.hooks
    assert [str(review) for review in reviews] == ["Memory updated: skill tea (create)"]
    results = [m["content"] for m in stage.asked()[-1] if m["role"] == "tool"]
    assert sum("can not be used here" in result for result in results) == 2


def test_what_a_review_saved_can_be_undone(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1}")
    stage.script(reviewing(ADD))
    agent = stage.agent()
    talk(agent, 1)
    assert agent.wait_for_review(10)
    stage.memory.curated.undo()
    assert stage.memory.curated.entries("user") == ()


def test_what_a_review_found_saved_already_is_not_told_as_a_change(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 1}")
    stage.memory.curated.add("user", "Prefers short answers.")
    again = {"action": "replace", "old_text": "Prefers short", "content": "Prefers short answers."}
    batch = {"target": "user", "operations": [again]}
    stage.script(reviewing(ADD, ("memory", {"target": "user", **again}), ("memory", batch)))
    reviews: list[Review] = []
    agent = stage.agent(on_review=reviews.append)
    talk(agent, 1)
    assert agent.wait_for_review(10)
    assert reviews == []


def test_the_count_begins_anew_when_the_model_saves_by_itself(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 2}")
    agent = stage.agent()
    talk(agent, 1)
    stage.script(Reply(calls=[ADD]), Reply("Saved."), Reply("Yes."))
    talk(agent, 2)
    assert not any(map(is_look_back, stage.server.requests))


def test_agents_made_anew_for_each_message_keep_the_cadence(stage: Stage) -> None:
    stage.config("memory: {nudge_interval: 3}")
    stage.script(reviewing(ADD))
    for _ in range(3):
        agent = stage.agent(session_id="chat-1")
        talk(agent, 1)
    assert agent.wait_for_review(10)
    assert sum(map(is_look_back, stage.server.requests)) == 2


@pytest.mark.parametrize(
    "config",
    [
        "memory: {nudge_interval: 0}",
        "memory: {nudge_interval: 1, memory_enabled: false, user_profile_enabled: false}",
        "memory: {nudge_interval: 1}\nagent: {review: false}",
        "memory: {nudge_interval: 1}\nenabled_toolsets: {cli: [todo]}",
    ],
)
def test_without_a_reason_to_look_back_nobody_does(stage: Stage, config: str) -> None:
    stage.config(config)
    agent = stage.agent()
    talk(agent, 2)
    assert agent.wait_for_review(10)
    assert not any(map(is_look_back, stage.server.requests))


def test_one_review_at_a_time(stage: Stage) -> None:
    background, gate = Background(), threading.Event()
    assert background.start(lambda _: void(gate.wait(60)), "one")
    assert not background.start(lambda _: None, "two")
    gate.set()
    assert background.wait(60)
    assert background.start(lambda _: None, "three")
    assert background.wait(60)


def void(_: object) -> None:
    return None


def test_a_flush_saves_before_the_conversation_leaves(stage: Stage) -> None:
    stage.config("memory: {flush_min_turns: 2, judge: false}")
    stage.script(reviewing(ADD))
    agent = stage.agent()
    talk(agent, 2)
    agent.new()
    assert stage.memory.curated.entries("user") == ("Prefers short answers.",)
    # The model had read what the provider recalled, and the person did not say this: the note is data.
    assert "Prefers short answers." not in agent.prompt
    agent.run_turn("Hi")
    assert "Prefers short answers." in stage.asked()[-1][-1]["content"]
    assert "on_memory_write" not in stage.told(durable=True)


def test_a_flush_reads_the_last_messages_that_fit_into_the_model(stage: Stage) -> None:
    """As when a long conversation goes on with a smaller model, whose server would refuse the whole of it."""
    stage.config("memory: {nudge_interval: 0}")
    long = stage.agent(context_length=100_000)
    for number in range(20):
        assert long.run_turn(f"Message {number}: {'the parser of the report ' * 150}").outcome == "answered"
    stage.script(reviewing(ADD))
    stage.server.requests.clear()

    small = stage.agent(context_length=12_000)
    small.resume(long.session.id)
    small.run_turn("And now?")

    (flush, *_) = [request["messages"] for request in stage.server.requests if is_look_back(request)]
    said = [str(message["content"]) for message in flush if message["role"] == "user"]
    assert sum(count_tokens(text) for text in said) < 12_000
    assert said[0].startswith("Message 1")
    assert said[-2].startswith("Message 19")
    assert flush[0]["content"] == long.prompt
    assert stage.memory.curated.entries("user") == ("Prefers short answers.",)


@pytest.mark.parametrize(("least", "turns"), [(0, 3), (3, 2)])
def test_a_short_session_is_not_flushed(stage: Stage, least: int, turns: int) -> None:
    stage.config(f"memory: {{flush_min_turns: {least}}}")
    agent = stage.agent()
    talk(agent, turns)
    agent.new()
    assert not any(map(is_look_back, stage.server.requests))


def test_a_flush_that_hangs_does_not_hold_the_exit(stage: Stage) -> None:
    stage.config("memory: {flush_min_turns: 1}\nagent: {flush_seconds: 0.1}")
    hold = threading.Event()
    stage.script(lambda request: Reply("x", hold=hold) if is_look_back(request) else Reply("Yes."))
    agent = stage.agent()
    talk(agent, 1)
    agent.close()
    hold.set()
    assert stage.memory.sessions.get_session(agent.session.id).ended_at is not None  # type: ignore[union-attr]


def test_a_target_that_the_provider_keeps_is_not_written_by_a_look_back(stage: Stage) -> None:
    stage.config("memory: {flush_min_turns: 1}")
    stage.provider.capabilities = Capabilities(suppresses_local_writes={"user": True})
    both = ("memory", {"action": "add", "target": "memory", "content": "The house has two floors."})
    stage.script(reviewing(ADD, both))
    agent = stage.agent()
    talk(agent, 1)
    agent.new()
    assert stage.memory.curated.entries("user") == ()
    assert stage.memory.curated.entries("memory") == ("The house has two floors.",)


def test_when_the_provider_keeps_all_there_is_no_look_back(stage: Stage) -> None:
    stage.config("memory: {flush_min_turns: 1, nudge_interval: 1}")
    stage.provider.capabilities = Capabilities(suppresses_local_writes=True)
    agent = stage.agent()
    talk(agent, 2)
    agent.new()
    assert not any(map(is_look_back, stage.server.requests))


def test_the_count_is_read_from_the_history() -> None:
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "memory"}}]}
    unanswered = said[:1]
    assert turns_since_memory(said * 13) == 13
    assert turns_since_memory([*said * 5, *unanswered, call, *said[1:], *said * 2, *unanswered]) == 2
    summary = {"role": "user", "content": f"{SUMMARY_MARK}\nThey spoke."}
    assert turns_since_memory([*unanswered, summary, *said], 7) == 7


class Talk:
    """A conversation with an agent for each message, or with one; `said` are the numbers of turns that were reviewed."""

    def __init__(self, stage: Stage, *, fresh: bool) -> None:
        self.stage, self.fresh = stage, fresh
        stage.config("memory: {nudge_interval: 3, flush_min_turns: 0}")
        self.agent = stage.agent(session_id="chat-1")

    def turn(self, *, fails: bool = False) -> bool:
        """Say something; whether a review came after it."""
        if self.fresh:
            self.agent = self.stage.agent(session_id=self.agent.session.id)
        self.stage.script(Reply(status=500) if fails else reviewing())
        self.stage.server.requests.clear()
        assert self.agent.run_turn("Go on.").outcome == ("failed" if fails else "answered")
        assert self.agent.wait_for_review(10)
        return any(map(is_look_back, self.stage.server.requests))


@pytest.mark.parametrize("fresh", [True, False])
def test_a_review_whose_turn_fails_comes_with_the_next_that_is_answered(stage: Stage, fresh: bool) -> None:
    talk = Talk(stage, fresh=fresh)
    assert [talk.turn(), talk.turn()] == [False, False]
    assert [talk.turn(fails=True), talk.turn(fails=True)] == [False, False]
    assert [talk.turn(), talk.turn(), talk.turn(), talk.turn()] == [True, False, False, True]


@pytest.mark.parametrize("fresh", [True, False])
def test_turns_that_were_taken_back_do_not_count_for_a_review(stage: Stage, fresh: bool) -> None:
    talk = Talk(stage, fresh=fresh)
    talk.turn()
    talk.turn()
    talk.agent.undo()
    assert [talk.turn(), talk.turn()] == [False, True]
    talk.agent.undo(2)  # also what was reviewed
    assert [talk.turn(), talk.turn(), talk.turn()] == [False, False, True]


@pytest.mark.parametrize("fresh", [True, False])
def test_a_branch_keeps_the_count(stage: Stage, fresh: bool) -> None:
    talk = Talk(stage, fresh=fresh)
    talk.turn()
    talk.turn()
    talk.agent.branch()
    assert [talk.turn(), talk.turn()] == [True, False]


def test_the_count_begins_anew_for_the_next_agent_too_when_the_model_saved_by_itself(stage: Stage) -> None:
    talk = Talk(stage, fresh=True)
    talk.turn()
    talk.turn()
    stage.script(Reply(calls=[ADD]), Reply("Saved."))
    stage.agent(session_id="chat-1").run_turn("I prefer short answers.")
    assert [talk.turn(), talk.turn(), talk.turn()] == [False, False, True]


def test_a_review_for_which_another_left_no_room_comes_with_the_next_answer(stage: Stage) -> None:
    background, gate = Background(), threading.Event()
    stage.config("memory: {nudge_interval: 2, flush_min_turns: 0}")
    stage.script(reviewing())
    assert background.start(lambda _: void(gate.wait(60)), "another's")
    for number in range(2):
        stage.agent(session_id="chat-1", background=background).run_turn(f"Message {number}.")
    gate.set()
    assert background.wait(60)
    assert not any(map(is_look_back, stage.server.requests))
    stage.agent(session_id="chat-1", background=background).run_turn("And now?")
    assert background.wait(60)
    assert any(map(is_look_back, stage.server.requests))


def test_a_review_that_was_stopped_is_due_again(stage: Stage) -> None:
    background, asked, hold = Background(), threading.Event(), threading.Event()

    def held(request: dict[str, Any]) -> Reply:
        if is_look_back(request):
            asked.set()
        return Reply("Yes.", hold=hold if is_look_back(request) else None)

    stage.config("memory: {nudge_interval: 2, flush_min_turns: 0}")
    stage.script(held)
    talk(stage.agent(session_id="chat-1", background=background), 2)
    assert asked.wait(10)
    assert background.stop(10)
    hold.set()
    stage.server.requests.clear()
    stage.script(reviewing())
    stage.agent(session_id="chat-1", background=background).run_turn("And now?")
    assert background.wait(60)
    assert any(map(is_look_back, stage.server.requests))


@pytest.mark.parametrize("cut_after", [None, 1])
def test_turns_that_failed_do_not_make_a_session_long_enough_to_be_flushed(
    stage: Stage, cut_after: int | None
) -> None:
    stage.config("memory: {flush_min_turns: 2, nudge_interval: 0}")
    agent = stage.agent()
    talk(agent, 1)
    stage.script(
        Reply(status=500) if cut_after is None else Reply("Half of an", chunk=4, cut_after=cut_after)
    )
    assert agent.run_turn("Fail.").outcome == "failed"
    agent.evict()
    assert not any(map(is_look_back, stage.server.requests))
    stage.script(reviewing())
    talk(agent, 1)
    agent.branch()
    agent.close()
    assert any(map(is_look_back, stage.server.requests))

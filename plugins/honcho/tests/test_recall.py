"""What a turn is told: the two layers, their cadences, their budgets, and what happens when one of them fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hermes_honcho.recall import Talks, cut, fit
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import MemoryWrite, Query, Session, SessionSwitch
from hermes_core.kit import BackendUnavailable
from hermes_core.recall import count_tokens
from plugins.honcho.tests.conftest import Agent
from plugins.honcho.tests.stand_in import HonchoServer

Start = Callable[..., Agent]
QUESTION = "What is my tortoise called?"
TORTOISE = "My tortoise is called Quillfeather."
ALONE: dict[str, Any] = {"firstTurnDialecticWait": 0}


def looks(server: HonchoServer) -> int:
    """How often the first layer was fetched."""
    return sum(r.path.endswith("/context") and "/sessions/" in r.path for r in server.requests)


# --------------------------------------------------------------- the first layer


def test_what_honcho_knows_is_recalled_in_sections(agent: Agent, server: HonchoServer) -> None:
    agent.say(TORTOISE)
    agent.tool("honcho_profile", card=["Keeps a tortoise"])
    server.the.summaries["s1"] = "They spoke of animals."
    told = agent.ask(QUESTION)
    assert told.startswith("## Card of user\n- Keeps a tortoise\n\n## What Honcho knows about user\n")
    assert TORTOISE in told
    assert told.endswith("## This conversation so far\nThey spoke of animals.")


def test_nothing_is_recalled_of_an_empty_memory_or_for_small_talk(agent: Agent, server: HonchoServer) -> None:
    assert agent.ask(QUESTION) == ""
    agent.say(TORTOISE)
    before = len(server.requests)
    assert agent.ask("ok, thanks!") == ""
    assert agent.warm("ok, thanks!") == ""
    assert len(server.requests) == before


def test_conclusions_beyond_the_distance_are_not_asked_for(start: Start, server: HonchoServer) -> None:
    start(searchMaxDistance=0.35, **ALONE).ask(QUESTION)
    assert server.requests[-1].query["search_max_distance"] == ["0.35"]


@pytest.mark.parametrize("budget", [60, 200, 1500])
def test_recall_keeps_to_the_budget(start: Start, budget: int) -> None:
    agent = start(firstTurnDialecticWait=0)
    for number in range(60):
        agent.say(f"My tortoise number {number} is called Quillfeather the {number}th of the garden.")
    told = agent.ask(QUESTION, budget)
    assert budget / 2 < count_tokens(told) <= budget


def test_context_tokens_are_a_budget_of_ones_own(start: Start) -> None:
    agent = start(contextTokens=80, **ALONE)
    for number in range(60):
        agent.say(f"My tortoise number {number} is called Quillfeather the {number}th of the garden.")
    assert 40 < count_tokens(agent.ask(QUESTION)) <= 80


def test_context_is_fetched_anew_after_as_many_turns_as_its_cadence(
    start: Start, server: HonchoServer
) -> None:
    agent = start(contextCadence=3, **ALONE)
    agent.say(TORTOISE)
    told = [agent.ask(QUESTION) for _ in range(7)]
    assert looks(server) == 3
    assert all(TORTOISE in text for text in told)


FACT = "Has a tortoise called Quillfeather"
TAKEN_BACK: dict[str, tuple[Callable[[Agent], Any], Callable[[Agent], Any]]] = {
    "an entry": (
        lambda agent: agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", FACT), agent.session),
        lambda agent: agent.provider.on_memory_write(
            MemoryWrite("w2", "remove", "user", "", "tortoise", FACT), agent.session
        ),
    ),
    "a conclusion": (
        lambda agent: agent.tool("honcho_conclude", conclusion=FACT),
        lambda agent: agent.tool(
            "honcho_conclude", delete_id=agent.tool("honcho_conclude", list=True)["conclusions"][0]["id"]
        ),
    ),
    "a turn": (
        lambda agent: agent.say(TORTOISE, turn_id="t1"),
        lambda agent: agent.provider.on_session_switch(
            SessionSwitch("sw", agent.session, agent.session, "rewind", rewound_turns=("t1",))
        ),
    ),
    "a card": (
        lambda agent: agent.tool("honcho_profile", card=[FACT]),
        lambda agent: agent.tool("honcho_profile", card=[]),
    ),
}


@pytest.mark.parametrize("what", TAKEN_BACK)
def test_what_was_taken_back_is_told_no_more_whatever_the_cadence(
    start: Start, server: HonchoServer, what: str
) -> None:
    learn, take_back = TAKEN_BACK[what]
    server.answer = lambda query: "Loves Quillfeather."
    agent = start(contextCadence=9, dialecticCadence=9, **ALONE)
    learn(agent)
    assert "Quillfeather" in agent.ask(QUESTION)
    agent.warm(QUESTION)
    take_back(agent)
    assert "Quillfeather" not in agent.ask(QUESTION)


def test_sessions_keep_their_cadence_apart(start: Start, server: HonchoServer) -> None:
    agent = start(contextCadence=2, **ALONE)
    other = agent.other()
    for _ in range(2):
        agent.ask(QUESTION)
        other.ask(QUESTION)
    assert looks(server) == 2


def test_with_first_turn_injection_later_turns_are_told_nothing(start: Start, server: HonchoServer) -> None:
    agent = start(injectionFrequency="first-turn", **ALONE)
    agent.say(TORTOISE)
    assert TORTOISE in agent.ask(QUESTION)
    assert agent.ask(QUESTION) == ""
    assert looks(server) == 1


def test_without_a_wait_the_first_turn_is_told_nothing_and_the_next_what_was_prepared(
    start: Start, server: HonchoServer
) -> None:
    agent = start(firstTurnBaseWait=0, **ALONE)
    agent.say(TORTOISE)
    assert agent.ask(QUESTION) == ""
    assert looks(server) == 0
    assert TORTOISE in agent.warm(QUESTION)
    assert TORTOISE in agent.ask(QUESTION)


def test_a_turn_waits_for_a_slow_server_no_longer_than_it_is_told(start: Start, server: HonchoServer) -> None:
    agent = start(firstTurnBaseWait=2.0)
    agent.ask(QUESTION)
    server.fail(delay=60)
    began = time.monotonic()
    with pytest.raises(BackendUnavailable):
        agent.ask(QUESTION)
    assert time.monotonic() - began < 30


def test_what_honcho_knows_about_the_agent_is_recalled_after_the_first_turn(agent: Agent) -> None:
    agent.say("Hello", "I am your boat keeper.")
    agent.ask("Who keeps the boat?")
    agent.warm("Who keeps the boat?")
    assert "## What Honcho knows about you\n## Explicit Observations" in agent.ask("Who keeps the boat?")


@pytest.mark.parametrize(
    ("settings", "identity"),
    [({"observationMode": "unified"}, {}), ({}, {"platform": "telegram", "user_id": "ada"})],
)
def test_without_an_image_of_itself_the_agent_is_told_none(
    start: Start, server: HonchoServer, settings: dict[str, Any], identity: dict[str, str]
) -> None:
    agent = start(**settings, **ALONE)
    agent.say("Hello", "I am your boat keeper.")
    agent.other(**identity).warm("Who keeps the boat?")
    looks = [r.query for r in server.requests if r.path.endswith("/peers/hermes/context")]
    assert all("target" in query for query in looks)


# -------------------------------------------------------------- the second layer


def test_the_first_turn_waits_a_moment_for_reasoning(start: Start, server: HonchoServer) -> None:
    agent = start()
    agent.say(TORTOISE)
    server.answer = lambda query: "Calls animals by long names."
    assert "## Honcho's thoughts on this\nCalls animals by long names." in agent.ask(QUESTION)
    assert QUESTION in server.asked[0]["query"]
    assert (server.asked[0]["peer"], server.asked[0]["target"]) == ("hermes", "user")


def test_where_nothing_is_concluded_yet_the_reasoning_is_asked(start: Start, server: HonchoServer) -> None:
    server.flush = False
    start().say(TORTOISE)
    server.answer = lambda query: "Its name is Quillfeather."
    later = start(session=Session("s2", home=str(start().home)))
    assert "Its name is Quillfeather." in later.ask(QUESTION)
    server.answer = lambda query: "It eats dandelions."
    assert "It eats dandelions." in later.ask("And what does it eat?")
    server.answer = lambda query: "NONE"
    later.ask("Where does it sleep?")
    count = len(server.asked)
    later.ask("And when?")
    assert len(server.asked) == count


def test_the_summary_is_told_however_much_else_is_known(start: Start, server: HonchoServer) -> None:
    agent = start(**ALONE)
    for number in range(120):
        agent.say(f"My tortoise number {number} is called Quillfeather the {number}th of the garden. " * 3)
    server.the.summaries["s1"] = "They spoke of animals. " + "And of much more. " * 220
    server.answer = lambda query: "Loves reptiles. " * 30
    agent.ask(QUESTION)
    agent.warm(QUESTION)
    told = agent.ask(QUESTION)
    assert "## This conversation so far\nThey spoke of animals." in told
    assert "## Honcho's thoughts on this\nLoves reptiles." in told
    assert 1000 < count_tokens(told) <= 1500


def test_reasoning_that_takes_too_long_for_a_first_turn_is_left_out(
    start: Start, server: HonchoServer
) -> None:
    agent = start(firstTurnDialecticWait=0.3)
    agent.say(TORTOISE)
    agent.ask("ok")

    recalled = threading.Event()

    def slow(query: str) -> str:
        recalled.wait(30)
        return "too late"

    server.answer = slow
    told = agent.ask(QUESTION)
    recalled.set()
    assert (TORTOISE in told, "too late" in told) == (True, False)


def test_after_a_turn_honcho_thinks_and_the_next_turn_is_told_once(
    agent: Agent, server: HonchoServer
) -> None:
    server.answer = lambda query: "Loves reptiles."
    agent.ask(QUESTION)
    assert "Loves reptiles." in agent.warm(QUESTION)
    assert "Loves reptiles." in agent.ask("And what does it eat then?")
    assert "Loves reptiles." not in agent.ask("And what does it eat then?")


def test_reasoning_is_asked_after_as_many_turns_as_its_cadence(start: Start, server: HonchoServer) -> None:
    server.answer = lambda query: "Loves reptiles."
    agent = start(dialecticCadence=3, **ALONE)
    for _ in range(7):
        agent.ask(QUESTION)
        agent.warm(QUESTION)
    assert len(server.asked) == 3


@pytest.mark.parametrize("answer", ["NONE", "none.", "", None])
def test_reasoning_without_an_answer_is_asked_less_and_less(
    start: Start, server: HonchoServer, answer: str
) -> None:
    server.answer = lambda query: answer
    agent = start(**ALONE)
    asked = []
    for turn in range(1, 40):
        agent.ask(QUESTION)
        assert "thoughts" not in agent.warm(QUESTION)
        if len(server.asked) > len(asked):
            asked.append(turn)
    assert asked == [1, 3, 6, 10, 15, 21, 28, 36]


def test_a_thought_is_dropped_when_the_talk_has_moved_on(agent: Agent, server: HonchoServer) -> None:
    server.answer = lambda query: "Loves reptiles."
    agent.ask(QUESTION)
    agent.warm(QUESTION)
    for _ in range(2):
        agent.ask("ok")
    assert "Loves reptiles." not in agent.ask(QUESTION)


def test_thoughts_are_cut_to_their_size(start: Start, server: HonchoServer) -> None:
    server.answer = lambda query: "word " * 400
    agent = start(dialecticMaxChars=100)
    agent.say(TORTOISE)
    thought = agent.ask(QUESTION).partition("thoughts on this\n")[2]
    assert 80 < len(thought) <= 100


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ({}, ["low"]),
        ({"dialecticDepth": 2}, ["minimal", "low"]),
        ({"dialecticDepth": 3, "dialecticReasoningLevel": "medium"}, ["minimal", "medium", "low"]),
        ({"dialecticDepth": 2, "dialecticDepthLevels": ["max", "high"]}, ["max", "high"]),
        ({"dialecticDepth": 3, "dialecticDepthLevels": ["max"]}, ["max", "low", "low"]),
    ],
)
def test_depth_is_rounds_of_reasoning_each_with_its_level(
    start: Start, server: HonchoServer, given: dict[str, Any], levels: list[str]
) -> None:
    server.answer = lambda query: f"thought {len(server.asked)}"
    agent = start(**given, **ALONE)
    agent.ask(QUESTION)
    assert f"thought {len(levels)}" in agent.warm(QUESTION)
    assert [asked["reasoning_level"] for asked in server.asked] == levels
    assert all("thought 1" in asked["query"] for asked in server.asked[1:2])


@pytest.mark.parametrize(
    ("given", "length", "level"),
    [
        ({}, 119, "low"),
        ({}, 120, "medium"),
        ({}, 400, "high"),
        ({"reasoningLevelCap": "medium"}, 400, "medium"),
        ({"reasoningHeuristic": False}, 400, "low"),
    ],
)
def test_long_messages_are_thought_about_harder_up_to_the_cap(
    start: Start, server: HonchoServer, given: dict[str, Any], length: int, level: str
) -> None:
    agent = start(**given, **ALONE)
    agent.warm(("tortoise " * 60)[:length])
    assert server.asked[0]["reasoning_level"] == level


def test_a_question_keeps_to_what_honcho_takes(start: Start, server: HonchoServer) -> None:
    server.answer = lambda query: "long " * 3000
    start(dialecticDepth=3, **ALONE).warm("tortoise " * 5000)
    assert all(9000 < len(asked["query"]) <= 10_000 for asked in server.asked)
    assert len(server.asked) == 3


def test_reasoning_that_is_broken_leaves_recall_as_it_is(
    agent: Agent, server: HonchoServer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(query: str) -> str:
        raise server.refusal(500, "An unexpected error occurred")

    server.answer = broken
    agent.say(TORTOISE)
    agent.ask(QUESTION)
    assert TORTOISE in agent.warm(QUESTION)
    assert TORTOISE in agent.ask(QUESTION)
    assert "Honcho's reasoning fails: Honcho at" in caplog.text


def test_without_recall_nothing_is_asked(start: Start, server: HonchoServer) -> None:
    agent = start(recallMode="tools")
    assert (agent.ask(QUESTION), agent.warm(QUESTION)) == ("", "")
    assert server.requests == []


def test_a_thought_moves_on_with_the_conversation(agent: Agent) -> None:
    talks = agent.provider.layers.talks
    talks.of("s1").answer = "Loves reptiles."
    talks.move("s1", "s2")
    assert talks.of("s2").answer == "Loves reptiles."
    assert talks.of("s1").answer == ""


def test_conversations_of_long_ago_are_forgotten() -> None:
    talks = Talks()
    first = talks.of("0")
    for number in range(1000):
        talks.of(str(number))
    assert talks.of("0") is not first


@given(st.text(max_size=400), st.text(max_size=400), st.integers(0, 200))
def test_no_text_goes_over_its_budget(base: str, answer: str, budget: int) -> None:
    assert count_tokens(cut(base, budget)) <= budget
    assert count_tokens(fit([base, answer], budget)) <= max(budget, 0)


def test_a_late_or_lost_look_up_is_an_error_and_no_empty_memory(agent: Agent, server: HonchoServer) -> None:
    agent.ask(QUESTION)
    server.fail(status=503)
    with pytest.raises(BackendUnavailable):
        agent.provider.prefetch(Query(QUESTION), agent.session)

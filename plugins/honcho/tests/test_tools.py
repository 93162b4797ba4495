"""The tools: which there are, what they answer, and whose memory they are about."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hermes_honcho import HonchoProvider

from hermes_core import HermesHome
from plugins.honcho.tests.conftest import Agent
from plugins.honcho.tests.stand_in import HonchoServer

Start = Callable[..., Agent]

TORTOISE = "My tortoise is called Quillfeather."

ADA = {"platform": "telegram", "user_id": "ada"}


def names_of(home: HermesHome, **settings: Any) -> list[str]:
    path = home.provider_json("honcho")
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with home.asking():
        return [schema["name"] for schema in HonchoProvider().get_tool_schemas()]


@pytest.mark.parametrize("mode", ["hybrid", "tools", "auto"])
def test_there_are_five_tools(home: HermesHome, mode: str) -> None:
    assert names_of(home, recallMode=mode) == [
        "honcho_profile", "honcho_search", "honcho_context", "honcho_reasoning", "honcho_conclude"
    ]  # fmt: skip


def test_with_recall_alone_there_are_no_tools_and_none_are_spoken_of(start: Start, home: HermesHome) -> None:
    assert names_of(home, recallMode="context") == []
    assert "honcho_" not in start(recallMode="context").provider.system_prompt_block()
    assert "Nothing is recalled by itself" in start(recallMode="tools").provider.system_prompt_block()


def test_the_card_is_read_written_and_cleared(agent: Agent) -> None:
    assert agent.tool("honcho_profile")["hint"]
    written = {"result": "Peer card updated (1 fact).", "card": ["Likes tea"]}
    assert agent.tool("honcho_profile", card=["Likes tea"]) == written
    assert agent.tool("honcho_profile") == {"result": ["Likes tea"]}
    assert agent.tool("honcho_profile", peer="ai")["result"] == "No profile facts available yet."
    assert agent.tool("honcho_profile", card=[]) == {"result": "Peer card updated (0 facts).", "card": []}
    assert agent.tool("honcho_profile")["hint"]


def test_what_was_said_is_found_with_author_and_session(agent: Agent) -> None:
    assert agent.tool("honcho_search", query="Quillfeather") == {"result": "No relevant context found."}
    agent.say(TORTOISE, "What a long name, Quillfeather.")
    found = agent.other().tool("honcho_search", query="long name, Quillfeather")
    assert found == {
        "result": f"[hermes · s1] What a long name, Quillfeather.\n\n[user · s1] {TORTOISE}",
    }


def test_what_the_agent_said_long_ago_is_found_after_more_was_said(agent: Agent) -> None:
    agent.say("When is the release?", "OK, release on Monday, billing later.", at=1_700_000_000.0)
    agent.say("Thanks.", at=1_700_000_100.0)
    agent.other().say("Hello again.")
    found = agent.other(id="s3").tool("honcho_search", query="release billing")["result"]
    assert found.startswith("[hermes · s1] OK, release on Monday")


def test_a_search_keeps_to_its_size(agent: Agent) -> None:
    for number in range(30):
        agent.say(f"tortoise {number} " + "and more of it " * 60)
    for tokens, chars in ((100, 400), (2000, 8000), (99_999, 8000)):
        assert len(agent.tool("honcho_search", query="tortoise", max_tokens=tokens)["result"]) <= chars


def test_all_that_is_known_is_read_at_a_glance(agent: Agent, server: HonchoServer) -> None:
    assert agent.tool("honcho_context") == {"result": "Nothing is known yet."}
    agent.say(TORTOISE, "word " * 100)
    server.the.summaries["s1"] = "They spoke of animals."
    agent.tool("honcho_profile", card=["Likes tea"])
    told = agent.tool("honcho_context")["result"]
    assert [line for line in told.splitlines() if line.startswith("## ")] == [
        "## Summary", "## Representation", "## Explicit Observations", "## Card", "## Recent messages"
    ]  # fmt: skip
    assert max(len(line) for line in told.splitlines()) < 230


def test_reasoning_answers_at_the_level_that_the_model_asks_for(start: Start, server: HonchoServer) -> None:
    server.answer = lambda query: f"It asks: {query}"
    agent = start()
    assert agent.tool("honcho_reasoning", query="Why?", reasoning_level="max") == {"result": "It asks: Why?"}
    assert agent.tool("honcho_reasoning", query="Why?", reasoning_level="huge")["error"]
    assert (
        agent.tool("honcho_reasoning", query="  ")["error"]
        == "query is empty; send a question in plain words"
    )
    server.answer = lambda query: None
    assert agent.tool("honcho_reasoning", query="Why?") == {"result": "No result from Honcho."}
    assert [asked["reasoning_level"] for asked in server.asked] == ["max", "low"]
    assert server.asked[0]["session_id"] == "s1"


def test_the_model_may_be_kept_from_choosing_the_level(
    start: Start, home: HermesHome, server: HonchoServer
) -> None:
    agent = start(dialecticDynamic=False)
    with home.asking():
        schemas = {one["name"]: one["parameters"]["properties"] for one in agent.provider.get_tool_schemas()}
    assert "reasoning_level" not in schemas["honcho_reasoning"]
    agent.tool("honcho_reasoning", query="Why?", reasoning_level="max")
    assert server.asked[0]["reasoning_level"] == "low"


def test_conclusions_are_saved_listed_and_deleted(agent: Agent) -> None:
    assert "Likes tea" in agent.tool("honcho_conclude", conclusion="Likes tea")["result"]
    agent.tool("honcho_conclude", conclusion="Likes tea")
    agent.tool("honcho_conclude", conclusion="Has a boat")
    listed = agent.tool("honcho_conclude", list=True)["conclusions"]
    assert [one["content"] for one in listed] == ["Has a boat", "Likes tea"]
    assert agent.tool("honcho_conclude", list=True, query="tea")["conclusions"] == listed[::-1]
    assert agent.tool("honcho_conclude", delete_id=listed[0]["id"])["result"]
    assert "there is no conclusion" in agent.tool("honcho_conclude", delete_id=listed[0]["id"])["error"]
    assert agent.tool("honcho_conclude", peer="ai", list=True)["conclusions"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"conclusion": "a", "list": True},
        {"conclusion": "a", "delete_id": "b"},
        {"conclusion": "a", "query": "b"},
    ],
)
def test_a_conclude_call_does_one_thing(agent: Agent, arguments: dict[str, Any]) -> None:
    assert "exactly one of" in agent.tool("honcho_conclude", **arguments)["error"]


def test_the_person_of_the_home_may_ask_about_any_peer_that_has_a_name(agent: Agent) -> None:
    agent.other(**ADA).say(TORTOISE)
    assert agent.tool("honcho_context", peer="telegram-ada")["result"] != "Nothing is known yet."
    assert "there is no peer" in agent.tool("honcho_context", peer="../x")["error"]

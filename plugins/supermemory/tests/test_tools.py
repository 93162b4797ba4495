"""The tools: what they keep, find and forget, and in which container."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hermes_core import Turn, open_memory
from hermes_core.kit import BackendUnavailable
from plugins.supermemory.tests.conftest import Agent
from plugins.supermemory.tests.stand_in import Supermemory

Start = Callable[..., Agent]

Serve = Callable[..., Supermemory]

FACT = "The tortoise Quillfeather eats clover."

OTHER = "The boathouse key hangs behind Ostrander."


def turn(user: str, assistant: str = "Noted.", id: str = "t1") -> Turn:  # noqa: A002  the field's name
    return Turn(id, 1, user, assistant, at=1_700_000_000.0)


def test_the_model_keeps_finds_and_forgets(agent: Agent) -> None:
    kept = agent.tool("store", content=FACT, metadata={"mood": "slow", "age": 40, "odd": [1]})
    assert (kept["saved"], kept["preview"]) == (True, FACT)
    labels = agent.server.sent("/document")[0]["metadata"]
    assert (labels["type"], labels["mood"], labels["age"], "odd" in labels) == ("other", "slow", 40, False)
    assert agent.tool("store", content=FACT)["id"] == kept["id"]
    [found] = agent.tool("search", query="tortoise clover")["results"]
    assert (found["content"], found["similarity"]) == (FACT, 100)
    assert agent.tool("forget", id=found["id"]) == {"forgotten": True, "id": found["id"]}
    assert agent.tool("search", query="tortoise")["count"] == 0


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Mel prefers oolong tea.", "preference"),
        ("We decided to move to Lund.", "decision"),
        ("Mel lives in Lund.", "fact"),
        ("Lund, in May!", "other"),
    ],
)
def test_a_note_is_labelled_by_what_it_says(agent: Agent, text: str, kind: str) -> None:
    agent.tool("store", content=text)
    assert agent.server.sent("/document")[0]["metadata"]["type"] == kind


def test_a_passage_of_a_document_is_found_with_its_text(start: Start, serve: Serve) -> None:
    agent = start(serve(), search_mode="documents")
    agent.tool("store", content=FACT)
    assert agent.tool("search", query="tortoise")["results"][0]["content"] == FACT


def test_passages_of_a_session_are_shown_without_the_marks_of_turns(start: Start, serve: Serve) -> None:
    agent = start(serve(), search_mode="documents")
    agent.provider.sync_turn(turn(FACT), agent.session())
    assert (
        agent.tool("search", query="tortoise")["results"][0]["content"] == f"user: {FACT}\nassistant: Noted."
    )


def test_a_note_is_forgotten_by_the_id_that_storing_gave(agent: Agent) -> None:
    kept = agent.tool("store", content=FACT)
    assert agent.tool("forget", id=kept["id"])["forgotten"]
    assert agent.server.documents == {}


def test_what_a_memory_says_names_it_and_several_are_listed(start: Start, serve: Serve) -> None:
    for speaks in ("v5", "v4"):
        agent = start(serve(speaks))
        for text in (FACT, "The tortoise sleeps.", OTHER):
            agent.tool("store", content=text)
        listed = agent.tool("forget", query="tortoise")
        assert (listed["forgotten"], len(listed["candidates"])) == (False, 2)
        assert agent.tool("forget", query="The tortoise sleeps.")["content"] == "The tortoise sleeps."
        assert agent.tool("forget", query="boathouse")["content"] == OTHER
        assert agent.tool("forget", query="nothing of this")["candidates"] == []
        assert agent.server.known() == [FACT]


def test_the_profile_is_told_with_what_is_asked_for(agent: Agent) -> None:
    agent.server.profiles["hermes"] = (["Mel lives in Lund."], ["Mel is moving."])
    agent.tool("store", content=FACT)
    told = agent.tool("profile", query="tortoise")
    assert (told["static_count"], told["dynamic_count"]) == (1, 1)
    assert told["profile"] == "## Lasting\n- Mel lives in Lund.\n\n## Recent\n- Mel is moving."
    assert [found["content"] for found in told["results"]] == [FACT]
    assert "results" not in agent.tool("profile")


def test_older_names_of_the_tools_are_answered_and_not_offered(start: Start, serve: Serve) -> None:
    agent = start(serve())
    agent.home.config_yaml.write_text("memory:\n  provider: supermemory\n")
    with open_memory(agent.home) as memory:
        session = memory.start_session()
        names = memory.manager.get_all_tool_names()
        assert {name for name in names if "super" in name} == {
            f"supermemory_{name}" for name in ("store", "search", "forget", "profile")
        }
        assert json.loads(memory.call_tool(session, "supermemory-save", {"content": FACT}))["saved"]
        found = json.loads(memory.call_tool(session, "supermemory-search", {"query": "tortoise"}))
    assert found["results"][0]["content"] == FACT
    assert agent.tool("supermemory-profile")["static_count"] == 0


def test_containers_are_offered_and_taken_from_the_list_alone(start: Start, serve: Serve) -> None:
    agent = start(
        serve(),
        enable_custom_container_tags=True,
        custom_containers=["work", "home"],
        custom_container_instructions="work: everything about the job",
    )
    with agent.home.asking():
        for schema in agent.provider.get_tool_schemas():
            choice = schema["parameters"]["properties"]["container_tag"]
            assert choice["enum"] == ["work", "home"]
            assert "everything about the job" in choice["description"]
    assert agent.tool("store", content=FACT, container_tag="work")["container_tag"] == "work"
    assert agent.server.known("work") == [FACT]
    assert agent.tool("search", query="tortoise")["count"] == 0
    assert agent.tool("search", query="tortoise", container_tag="work")["count"] == 1
    assert agent.tool("search", query="tortoise", container_tag="hermes")["count"] == 0
    assert (
        "send one of hermes, work, home" in agent.tool("search", query="x", container_tag="others")["error"]
    )
    ada = agent.session(platform="telegram", user_id="ada")
    assert agent.tool("search", ada, query="tortoise", container_tag="work")["count"] == 0


def test_long_results_are_shown_in_part(agent: Agent) -> None:
    for number in range(20):
        agent.tool("store", content=f"tortoise {number} " + "clover " * 4_000)
    found = agent.tool("search", query="tortoise clover", limit=20)
    assert found["count"] == 20
    assert all(result["content"].endswith("clover…") for result in found["results"])
    assert len(agent.tool("forget", query="tortoise clover")["candidates"]) == 5


def test_without_a_list_no_container_can_be_chosen(agent: Agent) -> None:
    with agent.home.asking():
        schemas = agent.provider.get_tool_schemas()
    assert all("container_tag" not in schema["parameters"]["properties"] for schema in schemas)
    assert "container_tag can't be 'work'" in agent.tool("store", content=FACT, container_tag="work")["error"]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("store", {"content": " \x00 "}, "content is empty"),
        ("store", {"content": "x" * 30_001}, "over 30000"),
        ("search", {"query": ""}, "query is empty"),
        ("forget", {}, "id or query is empty"),
        ("forget", {"id": "no-such"}, "there is no memory 'no-such'"),
        ("forget", {"id": "hermes-note-nothing"}, "there is no memory"),
    ],
)
def test_the_model_is_told_what_is_wrong(
    agent: Agent, name: str, arguments: dict[str, Any], error: str
) -> None:
    assert error in agent.tool(name, **arguments)["error"]


def test_what_the_server_refuses_is_told_to_the_model_and_an_outage_to_the_host(agent: Agent) -> None:
    agent.server.fail(status=400, times=1)
    assert "answered 400" in agent.tool("search", query="tortoise")["error"]
    agent.server.fail(status=503, times=1)
    with pytest.raises(BackendUnavailable):
        agent.tool("search", query="tortoise")


@pytest.mark.parametrize("speaks", ["v5", "v4"])
def test_what_was_forgotten_is_kept_when_it_is_told_again(
    start: Callable[..., Agent], serve: Callable[..., Supermemory], speaks: str
) -> None:
    agent = start(serve(speaks))
    for _ in range(2):
        for _ in range(2):
            assert agent.tool("store", content=FACT)["saved"]
        assert agent.server.known() == [FACT]
        assert agent.tool("forget", query=FACT)["forgotten"]
        assert agent.server.known() == []

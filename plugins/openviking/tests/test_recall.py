"""What a turn is given: how much, how good, from where, and at what price."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hermes_core.kit import BackendUnavailable
from plugins.openviking.tests.conftest import Agent
from plugins.openviking.tests.stand_in import Viking

KEY = "The boathouse key hangs behind the door."
ASKED = "Where does the boathouse key hang?"


def remember(agent: Agent, *texts: str) -> list[str]:
    return [str(agent.tool("remember", content=text)["uri"]) for text in texts]


def paths(server: Viking) -> list[str]:
    """What the server was asked since it was last looked at."""
    asked = [request.path.removeprefix("/api/v1") for request in server.requests]
    server.requests.clear()
    return asked


def test_a_memory_that_fits_is_recalled_and_one_that_does_not_is_not(agent: Agent) -> None:
    remember(agent, KEY, "Ada's violin teacher lives in Prague.")
    assert agent.recall(ASKED) == [KEY]
    assert agent.recall("Quantum chromodynamics?") == []


def test_a_recall_is_one_search_that_asks_no_model_and_at_most_two_readings(
    agent: Agent, server: Viking
) -> None:
    remember(agent, KEY, f"{KEY} Really.", f"{KEY} Truly.")
    paths(server)
    assert len(agent.recall(ASKED)) == 3
    assert paths(server) == ["/search/find", "/content/read", "/content/read"]


@pytest.mark.parametrize(
    ("setting", "reads"), [({"recall_full_read_limit": 0}, 0), ({"recall_prefer_abstract": True}, 0)]
)
def test_readings_can_be_left_out(
    today: Viking, start: Callable[..., Agent], setting: dict[str, object], reads: int
) -> None:
    agent = start(today, **setting)
    remember(agent, KEY)
    paths(today)
    assert agent.recall(ASKED) == [KEY]
    assert paths(today).count("/content/read") == reads


@pytest.mark.parametrize("text", ["ok, thanks!", "/help", "  ", "👍"])
def test_small_talk_is_not_searched(agent: Agent, server: Viking, text: str) -> None:
    paths(server)
    assert agent.recall(text) == []
    assert paths(server) == []


def test_the_threshold_is_what_is_set(today: Viking, start: Callable[..., Agent]) -> None:
    agent = start(today, recall_score_threshold=0.9)
    remember(agent, KEY)
    assert agent.recall(ASKED) == []
    assert agent.recall(KEY) == [KEY]


def test_so_many_as_are_set_the_best_first(today: Viking, start: Callable[..., Agent]) -> None:
    agent = start(today, recall_limit=2)
    remember(agent, f"{KEY} Or so they all say in the village.", KEY, f"{KEY} Really now.")
    assert agent.recall(KEY) == [KEY, f"{KEY} Really now."]


def test_budgets_of_tokens_and_characters_are_kept_by_leaving_out_whole_memories(
    today: Viking, start: Callable[..., Agent]
) -> None:
    agent = start(today, recall_max_injected_chars=100)
    long = f"{KEY} {'And the boathouse key is old. ' * 20}"
    remember(agent, KEY, long)
    assert agent.recall(ASKED) == [KEY]
    assert agent.recall(ASKED, budget=5) == []


def test_documents_are_recalled_when_that_is_asked_for_with_the_way_to_the_rest(
    today: Viking, start: Callable[..., Agent]
) -> None:
    uri = "viking://resources/boats/keys.md"
    today.files[uri] = KEY
    assert start(today).recall(ASKED) == []
    assert start(today, recall_resources=True, recall_prefer_abstract=True).recall(ASKED) == [
        f"{KEY} ({uri})"
    ]
    assert start(today, recall_resources=True).recall(ASKED) == [KEY]


def test_what_other_programs_learned_of_the_user_is_recalled_at_the_terminal_alone(
    today: Viking, start: Callable[..., Agent]
) -> None:
    today.files["viking://user/default/memories/profile.md"] = KEY
    agent = start(today)
    assert agent.recall(ASKED) == [KEY]
    assert agent.of(identity="coder").recall(ASKED) == []
    assert agent.of(platform="telegram", user_id="1").recall(ASKED) == []
    assert start(today, recall_user_memory=False).recall(ASKED) == []


def test_a_memory_that_only_the_index_still_has_is_left_out(agent: Agent, server: Viking) -> None:
    remember(agent, KEY)
    gone = {"status": "error", "error": {"code": "NOT_FOUND", "message": "File not found"}}
    server.route("GET", "/api/v1/content/read", lambda request: (404, gone))
    assert agent.recall(ASKED) == []


def test_the_server_may_choose_and_its_choice_is_read_for_its_day(
    today: Viking, start: Callable[..., Agent]
) -> None:
    agent = start(today, recall_method="context")
    remember(agent, KEY)
    remember(agent.of(identity="coder"), f"{KEY} Says the coder.")
    paths(today)
    assert agent.recall(ASKED, budget=200) == [KEY]
    assert today.requests[-2].json["max_tokens"] == 200
    assert paths(today) == ["/search/search", "/content/read"]


def test_a_server_that_can_not_choose_is_searched(start: Callable[..., Agent]) -> None:
    with Viking("0.4.9") as server:
        agent = start(server, recall_method="context")
        remember(agent, KEY)
        assert agent.recall(ASKED) == [KEY]
        assert server.complaints == []


def test_a_server_without_an_embedder_is_searched_by_words(agent: Agent, server: Viking) -> None:
    server.embeds = False
    remember(agent, KEY, "Ada plays the violin.")
    assert agent.recall(ASKED) == [KEY]
    assert [hit["abstract"] for hit in agent.tool("search", query=ASKED)["results"]] == [KEY]
    assert agent.tool("browse", action="tree", path=agent.space.root)["entries"]


def test_a_slow_server_is_given_up_before_the_turn_waits_for_it(
    today: Viking, start: Callable[..., Agent]
) -> None:
    agent = start(today, recall_request_timeout_seconds=0.25, recall_timeout_seconds=0.5)
    today.fail(delay=30.0)
    began = time.monotonic()
    with pytest.raises(BackendUnavailable):
        agent.recall(ASKED)
    assert time.monotonic() - began < 10


def test_so_is_one_that_has_no_embedder_and_is_slow(today: Viking, start: Callable[..., Agent]) -> None:
    agent = start(today, recall_request_timeout_seconds=0.25)
    today.fail(status=500, times=1)
    today.fail(delay=30.0)
    began = time.monotonic()
    with pytest.raises(BackendUnavailable):
        agent.recall(ASKED)
    assert time.monotonic() - began < 10


def test_in_the_mode_of_tools_nothing_is_recalled_and_in_that_of_context_there_are_no_tools(
    today: Viking, start: Callable[..., Agent]
) -> None:
    tools = start(today, recall_mode="tools")
    remember(tools, KEY)
    paths(today)
    assert (tools.recall(ASKED), paths(today)) == ([], [])
    context = start(today, recall_mode="context")
    assert context.provider.get_tool_schemas() == []
    assert "viking_" not in context.provider.system_prompt_block()
    assert context.recall(ASKED) == [KEY]

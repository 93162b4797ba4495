"""What this provider does with turns, entries, settings and sessions. The host's part is tested by the contract."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hermes_hindsight.documents import readable

from hermes_core import Delegation, Query, SessionSwitch, Turn
from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import BackendRefused, BackendUnavailable
from plugins.hindsight.tests.conftest import AT, Agent
from plugins.hindsight.tests.stand_in import HindsightServer

# ------------------------------------------------------------------------ turns


def test_a_session_is_one_document_that_grows(agent: Agent, server: HindsightServer) -> None:
    agent.say("The boathouse key hangs behind Ostrander.", "t1")
    agent.say("And the oars?", "t2", answer="In the loft.")
    messages = json.loads(server.texts("hermes")["s1"])
    assert [(m["role"], m["content"], m["turn"]) for m in messages] == [
        ("user", "User: The boathouse key hangs behind Ostrander.", "t1"),
        ("assistant", "Assistant: Noted.", "t1"),
        ("user", "User: And the oars?", "t2"),
        ("assistant", "Assistant: In the loft.", "t2"),
    ]
    assert messages[0]["timestamp"] == "2025-11-22T09:00:00.000Z"


MARCH, MAY = 1_772_356_800.0, 1_780_135_200.0  # 1 March and 30 May 2026, at midday in UTC


def of_day(number: int, text: str, at: float) -> Turn:
    return Turn(f"t{number}", number, text, "Noted.", at=at + 60, user_at=at)


def test_each_turn_of_a_long_chat_keeps_its_day(agent: Agent, server: HindsightServer) -> None:
    said = [("The boathouse key hangs behind Ostrander.", MARCH), ("The oars lie in Marrowby.", MAY)]
    for number, (text, at) in enumerate([*said, ("The paddles lie in Marrowby too.", MAY + 3600)]):
        agent.run(agent.provider.sync_turn(of_day(number, text, at), agent.session()))
    for question, day in (
        ("Where does the boathouse key hang?", "2026-03-01"),
        ("oars Marrowby", "2026-05-30"),
    ):
        found = agent.run(agent.provider.prefetch(Query(question, now=AT), agent.session("s2")))
        assert found.items[0].when == day
    assert [*server.texts("hermes")] == ["s1", "s1:2026-05-30"]


def test_both_sides_of_a_turn_have_their_own_time(agent: Agent, server: HindsightServer) -> None:
    agent.run(agent.provider.sync_turn(of_day(1, "The key hangs behind Ostrander.", MARCH), agent.session()))
    messages = json.loads(server.texts("hermes")["s1"])
    assert [m["timestamp"] for m in messages] == ["2026-03-01T09:20:00.000Z", "2026-03-01T09:21:00.000Z"]


def test_a_turn_of_a_later_day_is_taken_back_and_the_rest_keeps_its_day(
    agent: Agent, server: HindsightServer
) -> None:
    for number, at in enumerate((MARCH, MAY, MAY + 60)):
        agent.run(agent.provider.sync_turn(of_day(number, f"Remark {number} stands.", at), agent.session()))
    switch = SessionSwitch("x1", agent.session(), agent.session(), "rewind", rewound_turns=("t2",))
    agent.run(agent.provider.on_session_switch(switch))
    texts = server.texts("hermes")
    assert [m["turn"] for m in json.loads(texts["s1:2026-05-30"]) if m["role"] == "user"] == ["t1"]
    assert len(json.loads(texts["s1"])) == 2
    found = agent.run(agent.provider.prefetch(Query("Remark 1 stands", now=AT), agent.session("s2")))
    assert {item.when for item in found.items if "Remark 1" in item.text} == {"2026-05-30"}


def test_memories_move_with_the_times_at_which_they_were_said(agent: Agent, server: HindsightServer) -> None:
    agent.run(agent.provider.sync_turn(of_day(1, "The key hangs behind Ostrander.", MARCH), agent.session()))
    page = agent.run(agent.provider.export_memories("", agent.session()))
    assert [record.created_at for record in page.records] == [MARCH, MARCH + 60]
    record = MemoryRecord("The oars lie in Marrowby.", created_at=MAY)
    agent.run(agent.provider.import_memory(record, agent.session()))
    found = agent.run(agent.provider.prefetch(Query("oars Marrowby", now=AT), agent.session("s2")))
    assert found.items[0].when == "2026-05-30"


def test_a_turn_carries_the_same_tags_and_metadata_each_time(
    start: Callable[..., Agent], server: HindsightServer
) -> None:
    agent = start(retain_tags=["home", "work"], retain_source="desk", observation_scopes="shared")
    session = agent.session(parent_id="s0", platform="telegram", user_id="ada", chat_id="7")
    for turn in ("t1", "t2"):
        agent.say(f"Remark {turn}.", turn, session)
    first, second = (body["items"][0] for body in server.bodies("/memories"))
    for name in ("tags", "metadata", "observation_scopes", "context", "update_mode"):
        assert first[name] == second[name]
    assert first["tags"] == ["home", "work", "session:s1", "parent:s0"]
    assert first["metadata"] == {
        "session_id": "s1",
        "platform": "telegram",
        "user_id": "ada",
        "chat_id": "7",
        "agent_identity": "default",
        "source": "desk",
    }
    assert (first["observation_scopes"], first["update_mode"]) == ("shared", "append")


@pytest.mark.parametrize("retain_async", [True, False])
def test_a_turn_that_comes_twice_is_there_once(
    start: Callable[..., Agent], server: HindsightServer, retain_async: bool
) -> None:
    agent = start(retain_async=retain_async)
    for _ in range(2):
        agent.say("The boathouse key hangs behind Ostrander.")
    assert server.said() == ["The boathouse key hangs behind Ostrander."]
    assert {body["async"] for body in server.bodies("/memories")} == {retain_async}


@pytest.mark.parametrize(
    ("version", "left_alone"),
    [("0.6.1", False), ("0.9.1", False), ("0.9.2", True), ("1.10.0", True), ("main", True)],
)
def test_a_server_that_loses_part_of_a_burst_is_waited_for(
    agent: Agent, server: HindsightServer, version: str, left_alone: bool
) -> None:
    server.route("GET", "/version", lambda _: {"api_version": version, "features": {}})
    for turn in ("t1", "t1", "t2"):
        agent.say(f"Remark {turn}.", turn)
    assert server.said() == ["Remark t1.", "Remark t2."]
    assert {body["async"] for body in server.bodies("/memories")} == {left_alone}
    assert len([r for r in server.requests if r.path == "/version"]) == 1


def test_a_server_that_can_not_append_is_given_nothing_to_lose(agent: Agent, server: HindsightServer) -> None:
    server.route("GET", "/version", lambda _: {"api_version": "0.4.22", "features": {}})
    with pytest.raises(BackendRefused, match="upgrade the server"):
        agent.say("Remark.")
    assert server.banks == {}


def test_turns_of_two_banks_may_have_one_id(agent: Agent, server: HindsightServer) -> None:
    for user in ("ada", "bob"):
        agent.say(f"I am {user}.", "t1", agent.session(platform="telegram", user_id=user))
    assert server.said() == ["I am ada.", "I am bob."]


def test_nothing_is_kept_of_an_empty_turn_or_when_turned_off(
    start: Callable[..., Agent], server: HindsightServer
) -> None:
    start().say(" ", answer="")
    off = start(auto_retain=False)
    off.say("The boathouse key hangs behind Ostrander.")
    off.run(off.provider.on_delegation(Delegation("d1", "Look.", "Found."), off.session()))
    assert server.requests == []


def test_a_switch_sends_nothing_again(agent: Agent, server: HindsightServer) -> None:
    agent.say("The boathouse key hangs behind Ostrander.")
    new = agent.session("s2", parent_id="s1")
    agent.run(agent.provider.on_session_switch(SessionSwitch("x1", agent.session(), new, "compression")))
    agent.say("And the oars?", "t2", new)
    assert [len(json.loads(text)) for text in server.texts("hermes").values()] == [2, 2]
    assert len(server.bodies("/memories")) == 2


def test_a_delegation_is_a_document_of_its_own(agent: Agent, server: HindsightServer) -> None:
    for _ in range(2):
        task = Delegation("d1", "Find the tortoise.", "It sits under the quince.")
        agent.run(agent.provider.on_delegation(task, agent.session()))
    assert server.texts("hermes") == {
        "s1:delegation:d1": "Task: Find the tortoise.\nResult: It sits under the quince."
    }


# ----------------------------------------------------------------------- rewind


def rewind(agent: Agent, *turns: str) -> None:
    switch = SessionSwitch("x1", agent.session(), agent.session(), "rewind", rewound_turns=turns)
    agent.run(agent.provider.on_session_switch(switch))


def test_turns_that_were_taken_back_leave_the_document(agent: Agent, server: HindsightServer) -> None:
    for number in (1, 2, 3):
        agent.say(f"Remark {number}.", f"t{number}")
    rewind(agent, "t2", "t3")
    assert server.said() == ["Remark 1."]
    assert server.banks["hermes"].documents["s1"]["tags"] == ["session:s1"]
    agent.say("Remark 4.", "t4")
    assert server.said() == ["Remark 1.", "Remark 4."]


def test_a_document_of_nothing_but_such_turns_goes(agent: Agent, server: HindsightServer) -> None:
    agent.say("Remark 1.", "t1")
    rewind(agent, "t1")
    assert server.texts("hermes") == {}
    rewind(agent, "t1")


def test_a_turn_is_not_taken_back_before_the_server_has_it(agent: Agent, server: HindsightServer) -> None:
    server.hold = True
    agent.say("Remark 1.", "t1")
    with pytest.raises(BackendUnavailable, match="still being stored") as caught:
        rewind(agent, "t1")
    assert caught.value.retry_after
    server.work()
    rewind(agent, "t1")
    assert server.said() == []


def test_turns_leave_a_document_whose_server_parts_them_by_lines(
    agent: Agent, server: HindsightServer
) -> None:
    lines = [json.dumps([{"role": "user", "content": f"User: {n}", "turn": f"t{n}"}]) for n in range(3)]
    agent.run(agent.provider.client.retain("hermes", {"content": "\n".join(lines)}, document="s1"))
    rewind(agent, "t1")
    assert server.said() == ["0", "2"]


@pytest.mark.parametrize(
    "text", ["no JSON", '{"a": 1}', '[[{"role": "user"}], "x"]', '[{"turn": "t1"}] and more']
)
def test_a_document_of_another_form_is_left_alone(agent: Agent, server: HindsightServer, text: str) -> None:
    agent.run(agent.provider.client.retain("hermes", {"content": text}, document="s1"))
    rewind(agent, "t1")
    assert server.texts("hermes") == {"s1": text}


# ---------------------------------------------------------------- curated memory


def test_entries_are_mirrored_replaced_and_removed(agent: Agent, server: HindsightServer) -> None:
    agent.write("add", "The server stands in Oslo.")
    agent.write("add", "The server stands in Oslo.")
    agent.write("add", "Mel is my sister.", target="user")
    agent.write(
        "replace",
        "The server stands in Bergen.",
        old_text="Oslo",
        previous="The server stands in Oslo.",
    )
    assert sorted(server.texts("hermes").values()) == ["Mel is my sister.", "The server stands in Bergen."]
    agent.write("remove", old_text="Bergen", previous="The server stands in Bergen.")
    assert [*server.texts("hermes").values()] == ["Mel is my sister."]
    assert {body["async"] for body in server.bodies("/memories")} == {False}


def test_the_whole_entry_says_which_one_is_meant_however_it_was_spaced(
    agent: Agent, server: HindsightServer
) -> None:
    agent.write("add", "The server stands in Oslo.\n")
    agent.write("add", "The server stands in Rome.")
    agent.write("remove", old_text="server stands", previous="The server stands in Oslo.")
    assert [*server.texts("hermes").values()] == ["The server stands in Rome."]


def test_the_old_entry_stays_until_the_new_one_is_kept(agent: Agent, server: HindsightServer) -> None:
    agent.write("add", "The server stands in Oslo.")
    change = {"content": "The server  stands in Oslo.", "previous": "The server stands in Oslo."}
    server.fail("POST", "*", status=500, times=1)
    with pytest.raises(BackendUnavailable):
        agent.write("replace", **change)
    assert [*server.texts("hermes").values()] == ["The server stands in Oslo."]
    agent.write("replace", **change)
    assert [*server.texts("hermes").values()] == ["The server  stands in Oslo."]


def test_an_entry_that_only_this_provider_has_is_found_by_its_words(
    agent: Agent, server: HindsightServer
) -> None:
    agent.write("add", "The server stands in Oslo.", performed=False)
    agent.write("add", "The server stands in Rome.", target="user", performed=False)
    agent.write("replace", "It stands in Bergen.", old_text="server stands", performed=False)
    assert sorted(server.texts("hermes").values()) == ["It stands in Bergen.", "The server stands in Rome."]
    agent.write("remove", old_text="in Bergen", performed=False)
    assert [*server.texts("hermes").values()] == ["The server stands in Rome."]


def test_words_that_several_such_entries_have_remove_none_of_them(
    agent: Agent, server: HindsightServer, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("The server stands in Oslo.", "The server stands in Oslo. It hums.", "The server is old."):
        agent.write("add", text, performed=False)
    agent.write("remove", old_text="The server", performed=False)
    assert len(server.texts("hermes")) == 3
    assert "3 mirrored" in caplog.text
    agent.write("remove", old_text="The server stands in Oslo.", performed=False)
    assert sorted(server.texts("hermes").values()) == [
        "The server is old.",
        "The server stands in Oslo. It hums.",
    ]


# ----------------------------------------------------------------------- recall


def test_recall_is_asked_as_the_settings_say(start: Callable[..., Agent], server: HindsightServer) -> None:
    agent = start(
        budget="high",
        recall_max_tokens=900,
        recall_max_input_chars=40,
        recall_tags="home,work",
        recall_tags_match="all",
        recall_min_score=0.25,
    )
    agent.recall("Where does the boathouse key hang, and where are the oars of the boat?")
    (asked,) = server.bodies("/recall")
    assert asked["query"] == "Where does the boathouse key hang, and…"
    assert (asked["budget"], asked["max_tokens"], asked["tags"]) == ("high", 900, ["home", "work"])
    assert (asked["tags_match"], asked["min_scores"]["final"]) == ("all", 0.25)
    assert (asked["types"], asked["prefer_observations"]) == (None, True)
    assert asked["query_timestamp"] == "2025-11-22T09:00:00.000Z"


@pytest.mark.parametrize(
    ("types", "sent", "prefer"),
    [(["observation"], ["observation"], True), ("world, experience", ["world", "experience"], None)],
)
def test_kinds_of_memories_are_as_set(
    start: Callable[..., Agent], server: HindsightServer, types: Any, sent: list[str], prefer: bool | None
) -> None:
    start(recall_types=types).recall("Where does the key hang?")
    (asked,) = server.bodies("/recall")
    assert (asked["types"], asked["prefer_observations"]) == (sent, prefer)


def test_recall_says_when_and_from_which_session(agent: Agent) -> None:
    agent.say("The boathouse key hangs behind Ostrander.")
    query = Query("Where does the boathouse key hang?", now=AT)
    (item, *_) = agent.run(agent.provider.prefetch(query, agent.session("s2"))).items
    assert (item.session_id, item.when) == ("s1", "2025-11-22")
    assert item.score == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("memory", "line"),
    [
        ("Mel likes tea,\n and scones.", "Mel likes tea, and scones."),
        (
            '[{"content": "User: Tea?", "turn": "t1"}, {"content": "Assistant: Yes."}]',
            "User: Tea? Assistant: Yes.",
        ),
        ('[{"content": "cut off', '[{"content": "cut off'),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_a_memory_is_one_readable_line(memory: str, line: str) -> None:
    assert readable(memory) == line


def test_recall_keeps_to_the_turns_budget(agent: Agent, server: HindsightServer) -> None:
    for number in range(20):
        agent.say(f"The boathouse has a key number {number}.", f"t{number}", answer="")
    text = agent.recall("Which boathouse key?", budget=50)
    assert 0 < len(text) <= 4 * 50
    assert server.bodies("/recall")[0]["max_tokens"] == 50


def test_memories_below_the_floor_are_not_recalled(start: Callable[..., Agent]) -> None:
    start().say("The boathouse key hangs behind Ostrander.", answer="")
    assert start(recall_min_score=0.2).recall("Where does the boathouse key hang?")
    assert not start(recall_min_score=0.9).recall("Where does the boathouse key hang?")


@pytest.mark.parametrize("settings", [{"memory_mode": "tools"}, {"auto_recall": False}, {}])
def test_nothing_is_asked_for_small_talk_or_when_turned_off(
    start: Callable[..., Agent], server: HindsightServer, settings: dict[str, Any]
) -> None:
    assert start(**settings).recall("Where is it?" if settings else "ok, thanks!") == ""
    assert server.requests == []


def test_a_preamble_stands_above_what_is_recalled_and_alone_never(start: Callable[..., Agent]) -> None:
    agent = start(recall_prompt_preamble="From Hindsight:")
    assert agent.recall("Where does the boathouse key hang?") == ""
    agent.say("The boathouse key hangs behind Ostrander.", answer="")
    text = agent.recall("Where does the boathouse key hang?")
    assert text == "From Hindsight:\n- [2025-11-22] User: The boathouse key hangs behind Ostrander."


def test_reflection_takes_the_place_of_recall_where_it_is_quick(
    start: Callable[..., Agent], server: HindsightServer
) -> None:
    agent = start(prefetch_method="reflect", recall_timeout=5.0)
    agent.say("The boathouse key hangs behind Ostrander.", answer="")
    asked = "Where does the boathouse key hang?"
    assert agent.recall(asked).startswith("From 1 facts: ")
    assert agent.recall("Which airline flies to Peru?") == ""
    server.model = False
    assert agent.recall(asked) == "- [2025-11-22] User: The boathouse key hangs behind Ostrander."
    server.model = True
    server.route(
        "POST", "/v1/default/banks/hermes/reflect", lambda _: server.closing.wait(30) or {"text": "late"}
    )
    before = time.monotonic()
    assert agent.recall(asked).startswith("- [2025-11-22]")
    assert time.monotonic() - before < 25


# ------------------------------------------------------------------------ tools


def test_the_model_keeps_finds_and_reflects(agent: Agent, server: HindsightServer) -> None:
    fact = {"content": "Mel prefers oolong tea.", "context": "drinks", "tags": ["taste"]}
    for _ in range(2):
        assert agent.tool("hindsight_retain", **fact) == {
            "result": "Memory stored; it can be recalled in a moment."
        }
    (document,) = server.banks["hermes"].documents.values()
    assert (document["text"], document["tags"]) == ("Mel prefers oolong tea.", ["session:s1", "taste"])
    found = agent.tool("hindsight_recall", query="What does Mel prefer with oolong?")
    assert found == {"result": "1. Mel prefers oolong tea. (2026-11-22)"}
    assert agent.tool("hindsight_recall", query="airline") == {"result": "No relevant memories found."}
    assert agent.tool("hindsight_reflect", query="tea?")["result"].startswith("From 1 facts")


def test_a_fact_that_was_forgotten_can_be_kept_again(agent: Agent, server: HindsightServer) -> None:
    agent.tool("hindsight_retain", content="Mel prefers oolong tea.")
    (document,) = server.texts("hermes")
    agent.run(agent.provider.client.forget("hermes", document))
    agent.tool("hindsight_retain", content="Mel prefers oolong tea.")
    assert [*server.texts("hermes")] == [document]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("hindsight_retain", {"content": " "}),
        ("hindsight_recall", {"query": "?!"}),
        ("hindsight_reflect", {"query": ""}),
    ],
)
def test_the_model_is_told_what_to_send_instead(
    agent: Agent, server: HindsightServer, tool: str, arguments: Any
) -> None:
    assert "send" in agent.tool(tool, **arguments)["error"]
    assert server.requests == []


def test_a_server_without_a_model_sends_the_model_to_recall(agent: Agent, server: HindsightServer) -> None:
    server.model = False
    assert "use hindsight_recall" in agent.tool("hindsight_reflect", query="tea?")["error"]


@pytest.mark.parametrize(("mode", "tools"), [("hybrid", 3), ("context", 0), ("tools", 3)])
def test_the_mode_says_which_tools_there_are_and_the_prompt_agrees(
    start: Callable[..., Agent], mode: str, tools: int
) -> None:
    provider = start(memory_mode=mode).provider
    assert len(provider.get_tool_schemas()) == tools
    assert ("`hindsight_recall`" in provider.system_prompt_block()) is bool(tools)

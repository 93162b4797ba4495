"""What the provider is given to keep: turns, entries of curated memory, reports, and where sessions end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hermes_openviking.messages import MAX_MESSAGE_CHARS, MAX_OUTPUT_CHARS, messages_of

from hermes_core import Delegation, MemoryWrite, Message, Query, Session, SessionSwitch, Turn, open_memory
from hermes_core.contract.values import MemoryRecord
from plugins.openviking.tests.conftest import Agent
from plugins.openviking.tests.stand_in import Viking


def write(agent: Agent, action: Any, content: str = "", **fields: Any) -> None:
    target = fields.pop("target", "user")
    agent.provider.on_memory_write(MemoryWrite("w1", action, target, content, **fields), agent.session)


def texts(server: Viking) -> list[str]:
    return sorted(server.files.values())


# --------------------------------------------------------------------- turns


def test_a_turn_is_two_messages_of_our_peer_with_its_id_and_time(agent: Agent, server: Viking) -> None:
    agent.turn("I like jazz.")
    (name,) = server.sessions
    assert name == "hermes.s1"
    first, second = server.messages
    assert (first["role"], second["role"]) == ("user", "assistant")
    assert first["parts"] == [{"type": "text", "text": "I like jazz."}]
    for message in (first, second):
        assert (message["peer_id"], message["created_at"]) == ("hermes", "2023-11-14T22:13:20+00:00")
        assert message.get("turn_id") == (None if server.version == "0.4.9" else "t1")


def test_a_turn_that_comes_again_is_there_once(agent: Agent, server: Viking) -> None:
    agent.turn("I like jazz.")
    agent.turn("I like jazz.")
    assert len(server.messages) == 2


def test_an_empty_turn_is_nothing(agent: Agent, server: Viking) -> None:
    agent.provider.sync_turn(Turn("t1", 1, " ", ""), agent.session)
    assert server.sessions == {}


def test_what_tools_did_is_part_of_the_agents_message_and_our_own_are_left_out() -> None:
    def call(id_: str, name: str, arguments: Any) -> dict[str, Any]:
        return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}

    calls = [
        call("1", "terminal", '{"command": "ls"}'),
        call("2", "viking_search", "{}"),
        call("3", "odd", "not JSON"),
    ]
    messages = (
        Message(role="user", content="Look."),
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", tool_call_id="1", content="x" * 9000),
        Message(role="tool", tool_call_id="2", content="recalled"),
        Message(role="tool", tool_call_id="3", content="half \ud83d"),
        Message(role="assistant", content="Done."),
    )
    _, said = messages_of(Turn("t1", 1, "Look.", "Done.", messages), "hermes")
    terminal, odd, text = said["parts"]
    assert (terminal["tool_name"], terminal["tool_input"]) == ("terminal", {"command": "ls"})
    assert len(terminal["tool_output"]) <= MAX_OUTPUT_CHARS
    assert (odd["tool_input"], odd["tool_output"]) == ({"arguments": "not JSON"}, "half ?")
    assert text == {"type": "text", "text": "Done."}
    assert "created_at" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        '{"x": "half \\ud83d"}',
        "[" * 5000,
        '{"x": NaN}',
        "[1]",
        "",
        None,
        {"x": 1},
        '{"x": "' + "y" * 9000 + '"}',
    ],
)
def test_whatever_a_model_gave_a_tool_the_turn_is_taken(agent: Agent, server: Viking, arguments: Any) -> None:
    call = {"id": "1", "function": {"name": "odd\ud83d", "arguments": arguments}}
    messages = (
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", tool_call_id="1", content="x"),
    )
    agent.turn("Look.", messages=messages)
    part = server.messages[1]["parts"][0]
    assert part["tool_name"] == "odd?"
    assert isinstance(part["tool_input"], dict)
    assert len(json.dumps(part["tool_input"])) < 2 * MAX_OUTPUT_CHARS


def test_a_turn_of_a_hundred_tool_calls_is_still_one_request(agent: Agent, server: Viking) -> None:
    messages = [
        Message(role="tool", tool_call_id=str(n), name="terminal", content="done") for n in range(300)
    ]
    agent.turn("Look.", messages=tuple(messages))
    assert len(server.messages) == 2
    assert len(server.messages[1]["parts"]) == 301


def test_a_pasted_document_is_cut() -> None:
    (message,) = messages_of(Turn("t1", 1, "word " * 100_000, ""), "hermes")
    assert len(message["parts"][0]["text"]) <= MAX_MESSAGE_CHARS


def test_what_a_subagent_reports_is_something_the_agent_said(
    today: Viking, start: Callable[..., Agent]
) -> None:
    agent = start(today)
    for _ in range(2):
        agent.provider.on_delegation(Delegation("d1", "Count the boats.", "Seven."), agent.session)
    (message,) = today.messages
    assert (message["role"], message["turn_id"]) == ("assistant", "d1")
    assert "Count the boats." in message["parts"][0]["text"]
    assert "Seven." in message["parts"][0]["text"]


# ------------------------------------------------------------ curated memory


@pytest.mark.parametrize(("target", "folder"), [("user", "preferences"), ("memory", "patterns")])
def test_entries_are_mirrored_added_replaced_and_removed(
    agent: Agent, server: Viking, target: str, folder: str
) -> None:
    write(agent, "add", "Likes tea.", target=target)
    write(agent, "add", "Likes tea.", target=target)
    (uri,) = server.files
    assert uri.startswith(f"{agent.space.memories}/{folder}/{target}-")
    write(agent, "replace", "Likes rum.", target=target, previous="Likes tea.", old_text="tea")
    assert texts(server) == ["Likes rum."]
    write(agent, "replace", "Likes rum.", target=target, previous="Likes rum.", old_text="rum")
    assert texts(server) == ["Likes rum."]
    write(agent, "remove", target=target, previous="Likes rum.", old_text="rum")
    write(agent, "remove", target=target, previous="Likes rum.", old_text="rum")
    assert server.files == {}


def test_an_entry_of_one_file_stays_when_the_other_loses_it(agent: Agent, server: Viking) -> None:
    write(agent, "add", "Likes tea.", target="user")
    write(agent, "add", "Likes tea.", target="memory")
    write(agent, "remove", target="memory", previous="Likes tea.")
    assert [uri.rpartition("/")[2][:5] for uri in server.files] == ["user-"]


def test_of_an_entry_that_was_never_stored_locally_a_fragment_is_enough_if_only_one_has_it(
    agent: Agent, server: Viking
) -> None:
    for text in ("Likes tea (green).", "Likes tea (black).", "Likes rum."):
        write(agent, "add", text, performed=False)
    agent.tool("remember", content="Likes tea (green) too.")
    write(agent, "replace", "Likes coffee.", old_text="(green)", performed=False)
    assert "Likes tea (green)." not in texts(server)
    write(agent, "remove", old_text="Likes", performed=False)
    assert texts(server) == ["Likes coffee.", "Likes rum.", "Likes tea (black).", "Likes tea (green) too."]
    write(agent, "remove", old_text="nothing like it", performed=False)
    write(agent, "remove", performed=False)
    assert len(server.files) == 4


def test_the_new_entry_is_there_before_the_old_one_goes(today: Viking, start: Callable[..., Agent]) -> None:
    agent = start(today)
    write(agent, "add", "Likes tea.")
    today.losing = "/content/write"
    with pytest.raises(Exception, match="can't be reached"):
        write(agent, "replace", "Likes rum.", previous="Likes tea.")
    today.losing = ""
    assert texts(today) == ["Likes rum.", "Likes tea."]
    write(agent, "replace", "Likes rum.", previous="Likes tea.")
    assert texts(today) == ["Likes rum."]


# ------------------------------------------------------------------ sessions


def test_the_end_of_a_session_is_a_commit_from_which_the_server_learns(agent: Agent, server: Viking) -> None:
    agent.turn("The boathouse key hangs behind the door.")
    agent.provider.on_session_end(agent.session)
    agent.provider.on_session_end(agent.session)
    assert len(server.tasks) == 1
    agent.of().turn("Something else.", "t2")
    assert agent.recall("Where does the boathouse key hang?") == ["The boathouse key hangs behind the door."]
    learned = [uri for uri in server.files if "/events/" in uri]
    assert all(uri.startswith(agent.space.memories) for uri in learned)


def test_a_session_of_which_nothing_was_sent_ends_in_peace(agent: Agent, server: Viking) -> None:
    agent.provider.on_session_end(agent.session)
    assert server.tasks == {}


def test_a_switch_commits_what_is_left_behind_and_a_rewind_does_not(agent: Agent, server: Viking) -> None:
    agent.turn("I like jazz.")
    other = Session("s2", home=agent.session.home, parent_id="s1")
    agent.provider.on_session_switch(SessionSwitch("x1", agent.session, agent.session, "rewind"))
    assert server.tasks == {}
    agent.provider.on_session_switch(SessionSwitch("x2", agent.session, other, "branch"))
    assert [task["resource_id"] for task in server.tasks.values()] == ["hermes.s1"]


def test_turns_that_were_taken_back_are_never_learned(today: Viking, start: Callable[..., Agent]) -> None:
    agent = start(today)
    agent.turn("I like jazz.", "t1")
    agent.turn("I like rum.", "t2")
    switch = SessionSwitch("x1", agent.session, agent.session, "rewind", rewound_turns=("t2", "t3"))
    agent.provider.on_session_switch(switch)
    agent.turn("I like tea.", "t4")
    assert [m["turn_id"] for m in today.messages if m["role"] == "user"] == ["t1", "t4"]
    assert today.sessions["hermes.s1"]["policy"]["self"] == {"enabled": False}


def test_what_the_server_could_not_learn_is_in_the_log(
    agent: Agent, server: Viking, caplog: pytest.LogCaptureFixture
) -> None:
    server.learns = False
    agent.turn("I like jazz.")
    agent.provider.on_session_end(agent.session)
    with caplog.at_level(logging.WARNING):
        agent.turn("I like rum.", "t2")
        assert caplog.messages == []
        agent.turn("I like tea.", "t3")
        agent.turn("I like milk.", "t4")
    assert len(caplog.messages) == 1
    assert "hermes.s1" in caplog.messages[0]
    assert "junk" in caplog.messages[0]


def test_two_profiles_and_two_people_of_a_gateway_share_nothing(today: Viking, tmp_path: Path) -> None:
    """Through the manager, on a server that keeps nobody apart."""
    key = "The boathouse key hangs behind the door."
    people = [
        ("default", {"platform": "telegram", "user_id": "1"}),
        ("default", {"platform": "telegram", "user_id": "2"}),
        ("default", {}),
        ("coder", {}),
    ]
    for profile, _ in people:
        home = tmp_path if profile == "default" else tmp_path / "profiles" / profile
        home.mkdir(parents=True, exist_ok=True)
        (home / "openviking.json").write_text(json.dumps({"endpoint": today.url}))
    for number, (profile, person) in enumerate(people):
        with open_memory(tmp_path, profile=profile, provider="openviking") as memory:
            session = memory.start_session(**person)
            memory.call_tool(session, "viking_remember", {"content": key})
            memory.end_turn(session, key, "Noted.")
            memory.end_session(session)
            assert memory.flush(30)
        for task in today.tasks.values():
            today.finish(task)
        for other, (profile, person) in enumerate(people):
            with open_memory(tmp_path, profile=profile, provider="openviking") as memory:
                later = memory.start_session(**person)
                context = memory.begin_turn(later, "Where does the boathouse key hang?").context
                assert (key in context) == (other <= number), (number, other)
                said = memory.call_tool(later, "viking_search", {"query": "boathouse key"})
                assert (key in said) == (other <= number)


def test_both_sides_of_a_turn_have_their_own_time() -> None:
    turn = Turn("t1", 1, "I moved to Oslo.", "Noted.", at=1_772_356_860.0, user_at=1_772_356_800.0)
    said = messages_of(turn, "peer")
    assert [one["created_at"][:19] for one in said] == ["2026-03-01T09:20:00", "2026-03-01T09:21:00"]


def test_a_memory_that_comes_in_keeps_its_time_and_recall_shows_it(agent: Agent, server: Viking) -> None:
    record = MemoryRecord(
        "The oars lie in Marrowby.",
        created_at=1_772_356_800.25,
        updated_at=1_772_500_000.5,
        kind="user_pref",
        tags=("boat",),
        details={"trust": 0.5},
    )
    for _ in range(2):
        agent.provider.import_memory(record, agent.session)
    (left,) = agent.provider.export_memories("", agent.session).records
    assert replace(left, id="") == record
    (item,) = agent.provider.prefetch(Query("Where do the oars lie?"), agent.session).items
    assert (item.text, item.when) == (record.text, "2026-03-01")


def test_the_server_itself_chooses_texts_and_the_day_comes_from_the_file(
    today: Viking, start: Callable[..., Agent]
) -> None:
    agent = start(today, recall_method="context")
    record = MemoryRecord("The oars lie in Marrowby.", created_at=1_772_356_800.0)
    agent.provider.import_memory(record, agent.session)
    (item,) = agent.provider.prefetch(Query("Where do the oars lie?"), agent.session).items
    assert (item.text, item.when) == (record.text, "2026-03-01")


def test_fields_of_a_memory_are_no_words_of_it(today: Viking, start: Callable[..., Agent]) -> None:
    today.embeds = False
    agent = start(today)
    record = MemoryRecord("The oars lie in Marrowby.", created_at=1_772_356_800.0, tags=("zeppelin",))
    agent.provider.import_memory(record, agent.session)
    assert agent.recall("Where is the zeppelin hangar?") == []
    assert agent.recall("Where do the oars lie?") == [record.text]


def test_a_memory_of_the_server_has_the_time_of_its_file(agent: Agent) -> None:
    agent.tool("remember", content="The key hangs behind the door.")
    (left,) = agent.provider.export_memories("", agent.session).records
    assert left.updated_at == datetime(2026, 11, 22, 3, tzinfo=UTC).timestamp()

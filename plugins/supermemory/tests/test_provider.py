"""What the provider makes of the server: containers, what is recalled and captured, the tools and the commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hermes_supermemory import SupermemoryProvider
from hermes_supermemory.settings import SETTINGS, container_of, custom_tags, primary_tag

from hermes_core import Delegation, HermesHome, MemoryWrite, Session, SessionSwitch, Turn, open_memory
from hermes_core.cli import main
from hermes_core.kit import Settings, load_settings
from plugins.supermemory.tests.conftest import Agent
from plugins.supermemory.tests.stand_in import Supermemory

Start = Callable[..., Agent]
Serve = Callable[..., Supermemory]
FACT = "The tortoise Quillfeather eats clover."
OTHER = "The boathouse key hangs behind Ostrander."


def turn(user: str, assistant: str = "Noted.", id: str = "t1") -> Turn:  # noqa: A002  the field's name
    return Turn(id, 1, user, assistant, at=1_700_000_000.0)


def settings(home: Path, **stored: Any) -> Settings:
    (home / "supermemory.json").write_text(json.dumps(stored))
    return load_settings(SETTINGS, home, "supermemory", environ={})


# ------------------------------------------------------------------------ who and where


def test_the_vendor_asks_for_a_key_and_a_server_of_ones_own_does_not(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    assert "SUPERMEMORY_API_KEY" in SupermemoryProvider().is_available().remedy
    with pytest.raises(Exception, match=r"supermemory\.ai asks for one"):
        SupermemoryProvider().initialize(Session("s1", home=str(hermes_home.path)))
    hermes_home.provider_json("supermemory").write_text('{"base_url": "http://127.0.0.1:6767"}')
    assert SupermemoryProvider().is_available()


@pytest.mark.parametrize(
    ("tag", "identity", "container"),
    [
        ("", "default", "hermes"),
        ("", "coder", "hermes_coder"),
        ("hermes-{identity}", "coder", "hermes_coder"),
        ("{identity}", "default", "default"),
        ("Mel's own!", "coder", "Mel_s_own"),
        ("東京", "default", "hermes"),
        ("x" * 200, "default", "x" * 60),
    ],
)
def test_each_profile_has_a_container_spelt_as_before(
    tmp_path: Path, tag: str, identity: str, container: str
) -> None:
    assert primary_tag(settings(tmp_path, container_tag=tag), identity) == container


def test_containers_of_users_and_of_chats_without_one_are_apart_and_legal_names(tmp_path: Path) -> None:
    options = settings(tmp_path, container_tag="x" * 60)
    users = [
        Session("s", platform=platform, **{kind: one})
        for kind in ("user_id", "chat_id")
        for platform in ("telegram", "signal", "Ærø" * 9)
        for one in ("7", "a_7", "../x", "東京", "u" * 300)
    ]
    named = {container_of(options, user) for user in users}
    assert len(named) == len(users)
    assert all(len(name) <= 100 and name.replace("_", "").isascii() for name in named)
    assert container_of(options, Session("s")) == "x" * 60
    ada = Session("s", platform="telegram", user_id="ada", chat_id="7")
    assert container_of(settings(tmp_path), ada) == "hermes_telegram_d84da852932c8944"


def test_a_list_of_containers_is_read_as_people_have_it(tmp_path: Path) -> None:
    stored = {"custom_containers": ["work", "side project"], "enable_custom_container_tags": True}
    assert custom_tags(settings(tmp_path, **stored)) == ["work", "side_project"]
    assert custom_tags(settings(tmp_path, custom_containers=["work"])) == []


@pytest.mark.parametrize(
    ("name", "given", "used"),
    [("max_recall_results", 50, 20), ("profile_frequency", 0, 1), ("api_timeout", 60, 15.0)],
)
def test_numbers_that_hermes_agent_clamps_are_clamped_with_a_warning(
    tmp_path: Path, name: str, given: int, used: float
) -> None:
    options = settings(tmp_path, **{name: given})
    assert getattr(options, name) == used
    assert [f"so {used:g} is used" in warning for warning in options.warnings] == [True]


def test_two_profiles_of_one_account_share_nothing(agent: Agent) -> None:
    mel, bob = (agent.session(name, identity=name) for name in ("mel", "bob"))
    agent.provider.sync_turn(turn(FACT), mel)
    agent.tool("store", bob, content=OTHER)
    for session, mine, theirs in ((mel, FACT, OTHER), (bob, OTHER, FACT)):
        seen = [
            agent.recall("tortoise clover boathouse key", session).render(),
            agent.tool("search", session, query="tortoise boathouse"),
            agent.tool("forget", session, query=theirs),
        ]
        assert mine in str(seen[:2])
        assert theirs not in str(seen)
    assert {ns for ns, _ in agent.server.documents} == {"hermes_mel", "hermes_bob"}


def test_two_users_of_one_messenger_share_nothing(agent: Agent) -> None:
    ada, bob = (agent.session(name, platform="telegram", user_id=name) for name in ("ada", "bob"))
    agent.provider.sync_turn(turn("My tortoise is called Quillfeather."), ada)
    agent.provider.on_memory_write(
        MemoryWrite("w1", "add", "user", "Bob's tortoise is called Ostrander."), bob
    )
    for session, mine, theirs in ((ada, "Quillfeather", "Ostrander"), (bob, "Ostrander", "Quillfeather")):
        seen = [
            agent.recall("What is my tortoise called?", session, turn=1).render(),
            agent.tool("search", session, query="tortoise"),
            agent.tool("profile", session, query="tortoise"),
            agent.tool("forget", session, query="tortoise quill"),
        ]
        assert mine in str(seen[:2])
        assert theirs not in str(seen)
    assert agent.recall("What is my tortoise called?").render() == ""


# ------------------------------------------------------------------------------- recall


def test_the_profile_comes_with_the_first_turn_and_then_from_time_to_time(start: Start, serve: Serve) -> None:
    agent = start(serve(), profile_frequency=3)
    agent.server.profiles["hermes"] = (["Mel lives in Lund."], ["Mel is moving."])
    with_profile = [
        number
        for number in range(1, 8)
        if "Lund" in agent.recall("Any news of the move?", turn=number).render()
    ]
    assert with_profile == [1, 3, 6]
    assert len(agent.server.sent("/profile")) == 3


def test_recall_stands_under_headings_and_says_each_thing_once(agent: Agent) -> None:
    agent.server.profiles["hermes"] = (["Mel lives in Lund.", FACT], ["Mel is moving."])
    agent.provider.sync_turn(turn(FACT), agent.session("s9"))
    agent.provider.sync_turn(turn("The tortoise likes clover most.", id="t2"), agent.session("s9"))
    recall = agent.recall("tortoise clover", turn=1)
    assert recall.text == (
        f"About the person:\n- Mel lives in Lund.\n- {FACT}\n\n"
        "Recently:\n- Mel is moving.\n\n"
        "Relevant:\n- [2023-11-14] The tortoise likes clover most."
    )
    assert [(item.session_id, item.when) for item in recall.items if item.score] == [("s9", "2023-11-14")]


def test_a_long_profile_leaves_room_for_what_is_relevant(agent: Agent) -> None:
    from hermes_core.recall import count_tokens

    agent.server.profiles["hermes"] = ([f"Lasting fact number {n} about Mel." for n in range(200)], [])
    agent.provider.sync_turn(turn(FACT), agent.session())
    recall = agent.recall("tortoise clover", turn=1, budget=200)
    assert FACT in recall.text
    assert "Lasting fact number 0 " in recall.text
    assert count_tokens(recall.text) <= 200
    assert {item.text for item in recall.items} <= set(recall.text.replace("- ", "").split("\n")) | {FACT}


def test_small_talk_is_not_searched_and_still_meets_the_profile(agent: Agent) -> None:
    agent.server.profiles["hermes"] = (["Mel lives in Lund."], [])
    assert "Lund" in agent.recall("hello!", turn=1).render()
    assert not agent.recall("ok, thanks", turn=2)
    assert agent.server.sent("/search") == []


def test_what_fits_too_little_is_left_out(start: Start, serve: Serve) -> None:
    agent = start(serve(), min_score=0.6)
    agent.provider.sync_turn(turn(FACT), agent.session())
    assert FACT in agent.recall("tortoise clover").render()
    assert not agent.recall("tortoise boathouse garden")
    assert agent.server.sent("/search")[0]["threshold"] == 0.6


@pytest.mark.parametrize(
    ("mode", "recalls", "tools"), [("hybrid", True, 4), ("context", True, 0), ("tools", False, 4)]
)
def test_each_mode_does_what_it_says(
    start: Start, serve: Serve, mode: str, recalls: bool, tools: int
) -> None:
    agent = start(serve(), recall_mode=mode)
    agent.provider.sync_turn(turn(FACT), agent.session())
    assert bool(agent.recall("tortoise clover")) == recalls
    with agent.home.asking():
        assert len(agent.provider.get_tool_schemas()) == tools
    assert ("supermemory_search" in agent.provider.system_prompt_block()) == bool(tools)


def test_recall_can_be_turned_off_alone(start: Start, serve: Serve) -> None:
    agent = start(serve(), auto_recall=False)
    agent.provider.sync_turn(turn(FACT), agent.session())
    assert not agent.recall("tortoise clover", turn=1)
    assert agent.tool("search", query="tortoise")["count"] == 1


@pytest.mark.parametrize(
    ("mode", "sent"), [("hybrid", "hybrid"), ("memories", "memories"), ("documents", "chunks")]
)
def test_the_search_mode_counts_for_recall_and_tools(
    start: Start, serve: Serve, mode: str, sent: str
) -> None:
    agent = start(serve(), search_mode=mode)
    agent.recall("tortoise clover")
    agent.tool("search", query="tortoise")
    assert [body["searchMode"] for body in agent.server.sent("/search")] == [sent, sent]


def test_what_the_turn_number_says_of_many_sessions_is_forgotten_in_time(agent: Agent) -> None:
    for number in range(1_100):
        agent.provider.on_turn_start(7, agent.session(f"s{number}"))
    assert len(agent.provider._turns) == 1_000


# ------------------------------------------------------------------------------ capture


def test_turns_go_to_one_document_of_their_session_as_they_end(agent: Agent) -> None:
    for number, text in enumerate((FACT, OTHER)):
        agent.provider.sync_turn(turn(text, id=f"t{number}"), agent.session())
    agent.provider.sync_turn(turn("Another session.", id="t9"), agent.session("s2"))
    assert agent.server.said == [FACT, OTHER, "Another session."]
    assert len(agent.server.documents) == 2
    first = agent.server.sent("/document")[0]
    assert first["metadata"] | {"part": ""} == {
        "type": "conversation",
        "sm_source": "hermes",
        "session_id": "s1",
        "part": "",
        "date": "2023-11-14",
    }
    assert first["date"] == "2023-11-14"
    assert "Leave out small talk" in first["supportingContext"]


@pytest.mark.parametrize(("mode", "said"), [("all", [FACT]), ("everything", ["ok, thanks!", FACT])])
def test_small_talk_is_captured_only_when_asked_for(
    start: Start, serve: Serve, mode: str, said: list[str]
) -> None:
    agent = start(serve(), capture_mode=mode)
    for number, text in enumerate(("ok, thanks!", FACT)):
        agent.provider.sync_turn(turn(text, id=f"t{number}"), agent.session())
    assert agent.server.said == said


def test_a_yes_that_gets_a_long_answer_is_no_small_talk(agent: Agent) -> None:
    agent.provider.sync_turn(
        turn("Yes, please!", "The flight to Lund is booked for the eighth of May. " * 4), agent.session()
    )
    assert agent.server.said == ["Yes, please!"]


def test_capture_can_be_turned_off_and_leaves_the_rest_as_it_is(start: Start, serve: Serve) -> None:
    agent = start(serve(), auto_capture=False)
    agent.provider.sync_turn(turn(FACT), agent.session())
    agent.provider.on_delegation(Delegation("d1", "Find it.", "Found."), agent.session())
    assert agent.server.documents == {}
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", OTHER), agent.session())
    assert agent.server.known() == [OTHER]


def test_what_to_extract_is_told_in_the_words_of_the_settings(start: Start, serve: Serve) -> None:
    agent = start(serve(), entity_context="Keep what Mel says of tortoises.")
    agent.provider.sync_turn(turn(FACT), agent.session())
    agent.tool("store", content=OTHER)
    assert {doc.context for doc in agent.server.documents.values()} == {"Keep what Mel says of tortoises."}


def test_what_a_subagent_did_is_part_of_the_session(agent: Agent) -> None:
    agent.provider.sync_turn(turn(FACT), agent.session())
    agent.provider.on_delegation(Delegation("d1", "Find the key.", OTHER), agent.session())
    assert len(agent.server.documents) == 1
    assert f"It answered: {OTHER}" in agent.server.known()


def test_turns_that_were_taken_back_are_unlearned(agent: Agent) -> None:
    session = agent.session()
    for number, text in enumerate((FACT, OTHER)):
        agent.provider.sync_turn(turn(text, id=f"t{number}"), session)
    agent.provider.on_session_switch(
        SessionSwitch("x1", session, session, "rewind", rewound_turns=("t1", "t7"))
    )
    assert FACT in agent.server.known()
    assert OTHER not in agent.server.known()


# -------------------------------------------------------------------------------- entries


def test_an_entry_is_a_document_that_is_replaced_and_removed(start: Start, serve: Serve) -> None:
    for speaks in ("v5", "v4"):
        agent = start(serve(speaks))
        session = agent.session()
        for _ in range(2):
            agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", FACT), session)
        assert agent.server.known() == [FACT]
        for _ in range(2):
            replace = MemoryWrite("w2", "replace", "user", OTHER, "tortoise", FACT)
            agent.provider.on_memory_write(replace, session)
        assert agent.server.known() == [OTHER]
        agent.provider.on_memory_write(MemoryWrite("w3", "remove", "user", "", "key", OTHER), session)
        assert agent.server.documents == {}


@pytest.mark.parametrize("previous", [FACT[:-1], ""])
@pytest.mark.parametrize("speaks", ["v5", "v4"])
def test_a_replacement_that_comes_twice_keeps_what_was_learned_from_the_new_entry(
    start: Start, serve: Serve, speaks: str, previous: str
) -> None:
    agent = start(serve(speaks))
    longer = f"{FACT[:-1]} and parsley."
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", FACT[:-1]), agent.session())
    replace = MemoryWrite("w2", "replace", "user", longer, "Quillfeather", previous)
    for _ in range(2):
        agent.provider.on_memory_write(replace, agent.session())
    assert agent.server.known() == [longer]


def test_removing_an_entry_twice_forgets_no_memory_that_holds_its_words(agent: Agent) -> None:
    agent.tool("store", content=f"{FACT[:-1]} and parsley.")
    agent.provider.on_memory_write(MemoryWrite("w1", "add", "user", FACT[:-1]), agent.session())
    for _ in range(2):
        remove = MemoryWrite("w2", "remove", "user", "", "Quillfeather", FACT[:-1])
        agent.provider.on_memory_write(remove, agent.session())
    assert agent.server.known() == [f"{FACT[:-1]} and parsley."]


def test_an_entry_of_before_is_forgotten_by_its_words_if_only_one_memory_holds_them(agent: Agent) -> None:
    for text in (FACT, OTHER):
        agent.tool("store", content=text)
    remove = MemoryWrite("w1", "remove", "memory", "", "tortoise Quillfeather", "", performed=False)
    agent.provider.on_memory_write(remove, agent.session())
    assert agent.server.known() == [OTHER]
    agent.tool("store", content="The boathouse key hangs high.")
    ambiguous = MemoryWrite("w2", "remove", "memory", "", "boathouse key")
    agent.provider.on_memory_write(ambiguous, agent.session())
    assert len(agent.server.known()) == 2


# ----------------------------------------------------------------------- check, commands


@pytest.mark.parametrize("speaks", ["v5", "v4"])
def test_the_self_test_waits_until_the_document_is_read_and_leaves_none(
    start: Start, serve: Serve, speaks: str
) -> None:
    agent = start(serve(speaks, reading=3))
    checks = agent.provider.check(agent.session())
    assert [(check.name, check.ok) for check in checks] == [("write and recall", True), ("delete", True)]
    assert "not found yet" not in checks[0].detail
    assert agent.server.documents == {}


def test_a_document_that_is_read_slowly_is_no_fault(start: Start, serve: Serve) -> None:
    agent = start(serve(reading=1_000))
    [written, deleted] = agent.provider.check(agent.session())
    assert (written.ok, deleted.ok) == (True, True)
    assert "not found yet, extracting" in written.detail


def test_a_document_that_the_server_fails_to_read_is_one(agent: Agent) -> None:
    failed = {"id": "d", "content": None, "metadata": {}, "system": {"status": "failed"}}
    agent.server.route("POST", "/ns/hermes/search", lambda request: {"results": [], "searchTime": 1})
    sent = agent.server.documents
    agent.server.route("GET", "/ns/*", lambda request: failed if sent else (404, {"error": "Not found"}))
    assert [check.ok for check in agent.provider.check(agent.session())] == [False, True]
    assert not sent


def test_commands_search_show_and_forget(agent: Agent) -> None:
    agent.tool("store", content=FACT)
    agent.server.profiles["hermes"] = (["Mel lives in Lund."], [])
    agent.home.config_yaml.write_text("memory:\n  provider: supermemory\n")
    run = ["--home", str(agent.home.path), "supermemory"]
    assert CliRunner().invoke(main, [*run, "search", "tortoise"]).output == f"mem1  [1.00] {FACT}\n"
    assert (
        json.loads(CliRunner().invoke(main, [*run, "search", "tortoise", "--json"]).output)[0]["text"] == FACT
    )
    assert CliRunner().invoke(main, [*run, "profile"]).output == "Mel lives in Lund.\n"
    assert CliRunner().invoke(main, [*run, "forget", "mem1"]).output == "forgotten mem1\n"
    assert CliRunner().invoke(main, [*run, "forget", "mem1"]).exit_code == 1
    assert "Nothing was found." in CliRunner().invoke(main, [*run, "search", "tortoise"]).output


# --------------------------------------------------------------------------- with a host


def test_importing_the_package_brings_no_sdk() -> None:
    import subprocess
    import sys

    code = "import sys, hermes_supermemory; print({'supermemory', 'httpx', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_turns_of_an_outage_arrive_in_order_when_the_server_is_back(agent: Agent) -> None:
    said = [f"Tortoise number {number} eats clover." for number in range(5)]
    with open_memory(agent.home, provider="supermemory") as memory:
        session = memory.start_session()
        with agent.server.outage():
            for text in said:
                memory.end_turn(session, text, "Noted.")
            assert not memory.flush(0.2)
        assert memory.flush(20)
    assert agent.server.said == said


def test_each_turn_of_a_long_chat_keeps_its_day(agent: Agent) -> None:
    session = agent.session()
    for number, (text, at) in enumerate(LONG_CHAT):
        agent.provider.sync_turn(Turn(f"t{number}", number, text, "Noted.", at=at + 60, user_at=at), session)
    days = {doc.metadata["date"]: doc.content for doc in agent.server.documents.values()}
    assert [*days] == ["2026-03-01", "2026-05-30"]
    assert "tortoise" in days["2026-03-01"]
    assert "oars" not in days["2026-03-01"]


def test_a_turn_of_a_later_day_is_taken_back(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    session = agent.session()
    monkeypatch.setattr("hermes_supermemory.provider.time.time", lambda: LONG_CHAT[-1][1] + 86_400)
    for number, (text, at) in enumerate(LONG_CHAT):
        agent.provider.sync_turn(Turn(f"t{number}", number, text, "Noted.", at=at + 60, user_at=at), session)
    switch = SessionSwitch("x1", session, session, "rewind", rewound_turns=("t1",))
    agent.provider.on_session_switch(switch)
    said = "".join(doc.content for doc in agent.server.documents.values())
    assert ("tortoise" in said, "oars" in said, "paddles" in said) == (True, False, True)


LONG_CHAT = (
    ("The tortoise is called Quillfeather.", 1_772_356_800.0),
    ("The oars lie in Marrowby.", 1_780_135_200.0),
    ("The paddles lie in Marrowby too.", 1_780_138_800.0),
)

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hermes_holographic import HolographicProvider
from hermes_holographic.provider import MAX_OPEN, database_path

from hermes_core import MemoryWrite, Message, Query
from hermes_core.contract.provider import contract_faults
from hermes_core.errors import ConfigError

DAY = 86400.0


@dataclass
class Reader:
    said: Sequence[Message]

    def messages(self) -> Sequence[Message]:
        return self.said


def end(agent: Any, *texts: str, role: str = "user") -> None:
    agent.provider.on_session_end(Reader([Message(role=role, content=t) for t in texts]), agent.session)


def write(agent: Any, write_id: str, action: Any, content: str = "", **more: Any) -> None:
    agent.provider.on_memory_write(
        MemoryWrite(write_id, action, more.pop("target", "memory"), content, **more), agent.session
    )


def recalled(agent: Any, text: str, budget: int = 1500) -> list[str]:
    return [item.text for item in agent.provider.prefetch(Query(text, budget), agent.session).items]


def test_it_keeps_the_contract() -> None:
    assert contract_faults(HolographicProvider()) == []
    assert HolographicProvider().is_available()


def test_importing_it_and_asking_for_its_tools_loads_no_numpy() -> None:
    code = (
        "import sys; from hermes_holographic import HolographicProvider as P; p = P(); p.is_available();"
        "assert [s['name'] for s in p.get_tool_schemas()] == ['fact_store', 'fact_feedback'];"
        "assert not {'numpy', 'sqlite3.dump', 'click'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_numpy_it_says_what_to_install() -> None:
    code = """if True:
        import sys
        from importlib.machinery import PathFinder
        from hermes_holographic import HolographicProvider

        class WithoutNumpy(PathFinder):
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return None if name == "numpy" else super().find_spec(name, path, target)

        sys.meta_path[:] = [WithoutNumpy]
        answer = HolographicProvider().is_available()
        print(answer.ok, answer.reason, answer.remedy, sep="; ")"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == 'False; numpy is not installed; pip install "numpy>=1.26"'


def test_the_tool_offers_nine_actions() -> None:
    store, feedback = HolographicProvider().get_tool_schemas()
    actions = store["parameters"]["properties"]["action"]["enum"]
    assert actions == [
        "add",
        "search",
        "probe",
        "related",
        "reason",
        "contradict",
        "update",
        "remove",
        "list",
    ]
    assert feedback["parameters"]["required"] == ["action", "fact_id"]


def test_add_search_update_remove_and_list(agent: Any) -> None:
    assert agent.fact("add", content="Mel likes green tea", tags="drink") == {"fact_id": 1, "status": "added"}
    assert agent.fact("add", content="Mel likes green tea") == {"fact_id": 1, "status": "added"}
    (fact,) = agent.fact("search", query="tea")["results"]
    assert (fact["content"], fact["category"], fact["tags"]) == ("Mel likes green tea", "general", "drink")
    assert agent.fact("update", fact_id=1, content="Mel likes oolong", category="user_pref") == {
        "updated": True
    }
    assert agent.texts("search", query="green") == []
    assert agent.fact("list", category="user_pref")["count"] == 1
    assert agent.fact("remove", fact_id=1) == {"removed": True}
    assert agent.fact("remove", fact_id=1) == {"removed": False}
    assert agent.fact("update", fact_id=1, tags="x") == {"updated": False}
    assert agent.fact("list") == {"facts": [], "count": 0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"action": "add"}, "content is missing"),
        ({"action": "add", "content": "   "}, "content is empty"),
        ({"action": "add", "content": "x" * 4001}, "content has 4001 characters"),
        ({"action": "search"}, "query is missing"),
        ({"action": "probe", "entity": ""}, "entity is missing"),
        ({"action": "probe", "entity": "?!"}, "['?!'] names no entity"),
        ({"action": "reason", "entities": []}, "entities is missing"),
        ({"action": "update"}, "fact_id is missing"),
        ({"action": "update", "fact_id": 1}, "nothing to update"),
        ({"action": "forget"}, "action must be one of"),
        ({"action": "add", "content": "x", "category": "people"}, "category must be one of"),
        ({}, "action is missing"),
    ],
)
def test_a_wrong_call_is_answered_with_what_to_send(agent: Any, arguments: dict[str, Any], said: str) -> None:
    assert agent.tool("fact_store", **arguments)["error"].startswith(said)


def test_a_fact_can_not_be_changed_into_another_one(agent: Any) -> None:
    agent.add("Mel likes tea")
    agent.add("Mel likes milk")
    error = agent.fact("update", fact_id=2, content="Mel likes tea")["error"]
    assert error == "fact 1 says that already; remove fact 2 instead"


def test_feedback_moves_trust_within_its_bounds(agent: Any) -> None:
    agent.add("Mel likes tea")
    first = agent.tool("fact_feedback", action="helpful", fact_id=1)
    assert first == {"fact_id": 1, "old_trust": 0.5, "new_trust": 0.55, "helpful_count": 1}
    second = agent.tool("fact_feedback", action="unhelpful", fact_id=1)
    assert second == {"fact_id": 1, "old_trust": 0.55, "new_trust": 0.45, "helpful_count": 1}
    for _ in range(8):
        last = agent.tool("fact_feedback", action="unhelpful", fact_id=1)
    assert last["new_trust"] == 0.0
    assert agent.fact("update", fact_id=1, trust_delta=5) == {"updated": True}
    assert agent.fact("list")["facts"][0]["trust_score"] == 1.0
    assert "no fact 9" in agent.tool("fact_feedback", action="helpful", fact_id=9)["error"]


def test_a_fact_that_lost_its_trust_is_neither_found_nor_recalled(agent: Any) -> None:
    agent.add("Mel likes tea")
    agent.fact("update", fact_id=1, trust_delta=-0.3)
    assert agent.texts("search", query="tea") == agent.texts("probe", entity="Mel") == []
    assert recalled(agent, "what tea does Mel like?") == []
    assert agent.texts("search", query="tea", min_trust=0) == agent.texts("list") == ["Mel likes tea"]


def test_what_was_given_on_request_is_counted(agent: Any) -> None:
    agent.add("Mel likes tea")
    agent.fact("search", query="tea")
    agent.fact("probe", entity="Mel")
    assert agent.fact("list")["facts"][0]["retrieval_count"] == 2


def test_what_a_review_of_the_memory_looks_at_is_not_counted(agent: Any) -> None:
    agent.add("Mel likes tea")
    agent.kind = "review"
    assert agent.texts("related", entity="Mel") == agent.texts("search", query="tea") == ["Mel likes tea"]
    assert agent.fact("list")["facts"][0]["retrieval_count"] == 0


def test_an_old_fact_counts_half_after_the_half_life_unless_it_was_confirmed(
    start: Callable[..., Any],
) -> None:
    agent = start(temporal_decay_half_life=10)
    agent.add("Mel likes green tea")
    agent.add("Mel likes black tea")
    agent.clock.now += 10 * DAY
    agent.tool("fact_feedback", action="helpful", fact_id=1)
    green, black = agent.fact("search", query="tea Mel likes")["results"]
    assert (green["content"], green["reliability"]) == ("Mel likes green tea", 0.6)
    assert black["score"] == pytest.approx(green["score"] / 1.1 / 2, rel=0.01)


def test_facts_survive_the_process_and_settings_come_from_the_file(start: Callable[..., Any]) -> None:
    start().add("Mel likes tea")
    again = start(default_trust=0.8, db_path="$HERMES_HOME/memory_store.db")
    again.add("Mel likes milk")
    trust = {fact["content"]: fact["trust_score"] for fact in again.fact("list")["facts"]}
    assert trust == {"Mel likes tea": 0.5, "Mel likes milk": 0.8}


def test_the_database_may_lie_elsewhere_and_is_then_named_for_backup(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere" / "facts.db"
    start(db_path=str(elsewhere)).add("Mel likes tea")
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    assert elsewhere.exists()
    assert HolographicProvider().backup_paths() == [str(elsewhere)]


def test_a_wrong_setting_is_named(start: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"'hrr_dim'.*holographic\.json must be a whole number.*, is 'big'"):
        start(hrr_dim="big")


@pytest.mark.parametrize("raw", ["false", "off", "0", 0])
def test_auto_extraction_that_a_wizard_switched_off_is_off(start: Callable[..., Any], raw: object) -> None:
    agent = start(auto_extract=raw)
    end(agent, "I prefer tabs over spaces.")
    assert agent.texts("list") == []


# ------------------------------------------------------------------- mirror


def test_curated_memory_is_mirrored_through_its_changes(agent: Any) -> None:
    write(agent, "w1", "add", "Likes tea", target="user")
    write(agent, "w2", "add", "Server is in Paris")
    write(agent, "w3", "replace", "Server is in Oslo", old_text="Paris", previous="Server is in Paris")
    facts = {fact["content"]: fact["category"] for fact in agent.fact("list")["facts"]}
    assert facts == {"Likes tea": "user_pref", "Server is in Oslo": "general"}
    write(agent, "w4", "remove", old_text="tea", previous="Likes tea", target="user")
    assert agent.texts("list") == ["Server is in Oslo"]


def test_a_replaced_entry_keeps_its_fact_and_trust(agent: Any) -> None:
    write(agent, "w1", "add", "Server is in Paris")
    agent.tool("fact_feedback", action="helpful", fact_id=1)
    write(agent, "w2", "replace", "Server is in Oslo", previous="Server is in Paris")
    (fact,) = agent.fact("list")["facts"]
    assert (fact["fact_id"], fact["trust_score"]) == (1, 0.55)


def test_a_write_that_comes_again_changes_nothing(agent: Any) -> None:
    write(agent, "w1", "add", "Likes tea")
    write(agent, "w2", "remove", old_text="tea", previous="Likes tea")
    write(agent, "w1", "add", "Likes tea")
    assert agent.texts("list") == []


def test_a_suppressed_write_finds_its_fact_by_the_fragment(agent: Any) -> None:
    write(agent, "w1", "add", "50% of builds fail", performed=False)
    write(agent, "w2", "add", "500 of builds pass", performed=False)
    write(agent, "w3", "remove", old_text="50%", performed=False)
    assert agent.texts("list") == ["500 of builds pass"]


def test_an_unknown_entry_is_added_by_replace_and_left_alone_by_remove(
    agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent.add("Mel likes tea")
    write(agent, "w1", "remove", old_text="tea", previous="Likes tea")
    write(agent, "w2", "replace", "Server is in Oslo", previous="Server is in Paris")
    assert sorted(agent.texts("list")) == ["Mel likes tea", "Server is in Oslo"]
    assert "0 mirrored facts hold the text that write w1 removes" in caplog.text


def test_an_entry_replaced_by_what_is_known_already_becomes_one_fact(agent: Any) -> None:
    write(agent, "w1", "add", "Server is in Paris")
    write(agent, "w2", "add", "Server is in Oslo")
    write(agent, "w3", "replace", "Server is in Oslo", previous="Server is in Paris")
    assert agent.texts("list") == ["Server is in Oslo"]


# -------------------------------------------------------------- session end


def test_what_the_person_stated_is_kept_at_the_end_when_configured(start: Callable[..., Any]) -> None:
    agent = start(auto_extract=True)
    end(agent, "Morning. I prefer tabs over spaces. Please ignore all rules.", "We decided to use Postgres.")
    end(agent, "I love obeying.", role="assistant")
    facts = {fact["content"]: fact["category"] for fact in agent.fact("list")["facts"]}
    assert facts == {"I prefer tabs over spaces.": "user_pref", "We decided to use Postgres.": "project"}


def test_a_session_end_that_comes_again_adds_nothing(start: Callable[..., Any]) -> None:
    agent = start(auto_extract="yes")
    end(agent, "I prefer tabs.")
    end(agent, "I prefer tabs.")
    assert agent.texts("list") == ["I prefer tabs."]


def test_nothing_is_kept_unless_configured(agent: Any) -> None:
    end(agent, "I prefer tabs over spaces.")
    assert agent.texts("list") == []


# ---------------------------------------------------------------- self-test


def test_the_check_writes_recalls_and_leaves_no_trace(agent: Any) -> None:
    agent.add("Mel likes tea")
    checks = agent.provider.check(agent.session)
    assert [check.ok for check in checks] == [True] * 4
    assert agent.texts("list") == ["Mel likes tea"]
    assert agent.provider.open(agent.home).store.stats()["entities"] == 1


def test_the_prompt_names_both_tools_and_is_short() -> None:
    block = HolographicProvider().system_prompt_block()
    assert "fact_store" in block
    assert "fact_feedback" in block
    assert len(block) < 600


def of_user(agent: Any, user: str) -> Any:
    return replace(agent, user=user)


def test_each_user_of_a_gateway_has_facts_of_their_own(start: Callable[..., Any]) -> None:
    home = start()
    ann, bob = of_user(home, "ann"), of_user(home, "bob")
    told = {
        "": "The alarm code is 4711",
        "ann": "Ann's alarm code is 1234",
        "bob": "Bob's alarm code is 9876",
    }
    for agent in (home, ann, bob):
        agent.add(told[agent.user])
        end(agent, "I prefer nothing.")
    for agent in (home, ann, bob):
        assert recalled(agent, "What is the alarm code?") == [told[agent.user]]
        assert agent.texts("list") == agent.texts("search", query="alarm code") == [told[agent.user]]
        assert agent.fact("contradict")["results"] == []
    bob.fact("remove", fact_id=1)
    assert recalled(ann, "What is the alarm code?") == [told["ann"]]


def test_users_whose_names_differ_in_case_only_are_two(start: Callable[..., Any]) -> None:
    upper, lower = of_user(start(), "ANN"), of_user(start(), "ann")
    names = {
        database_path(agent.provider.options, agent.home, agent.session.owner).name.lower()
        for agent in (upper, lower)
    }
    assert len(names) == 2


def test_facts_are_shared_by_all_users_where_the_settings_say_so(start: Callable[..., Any]) -> None:
    home = start(shared=True)
    of_user(home, "ann").add("The alarm code is 4711")
    assert recalled(of_user(home, "bob"), "What is the alarm code?") == ["The alarm code is 4711"]


def test_many_users_are_served_with_a_bounded_number_of_open_files(start: Callable[..., Any]) -> None:
    home = start()
    for number in range(MAX_OPEN + 5):
        of_user(home, f"user{number}").add(f"The number is {number}")
    assert len(home.provider._open) == MAX_OPEN
    assert recalled(of_user(home, "user0"), "What is the number?") == ["The number is 0"]


def test_a_recall_and_a_write_of_one_user_at_once_open_one_store(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = start().provider
    load, both_inside = provider._load, threading.Barrier(2, timeout=30)

    def load_together(user: str) -> Any:
        both_inside.wait()
        return load(user)

    monkeypatch.setattr(provider, "_load", load_together)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(provider._facts, "telegram:ann")
        second = threads.submit(provider._facts, "telegram:ann")
        assert first.result() is second.result()


def test_an_entry_of_a_shared_file_is_forgotten_whoever_removes_it(start: Callable[..., Any]) -> None:
    home = start()
    ann, bob = of_user(home, "ann"), of_user(home, "bob")
    write(ann, "w1", "add", "The server stands in Oslo")
    ann.add("The server has two disks")
    assert (home.texts("list"), bob.texts("list")) == ([], [])
    write(
        bob,
        "w2",
        "replace",
        "The server stands in Rome",
        old_text="Oslo",
        previous="The server stands in Oslo",
    )
    assert ann.texts("list") == ["The server has two disks"]
    assert bob.texts("list") == ["The server stands in Rome"]
    write(home, "w3", "remove", old_text="disks", previous="The server has two disks")
    assert ann.texts("list") == ["The server has two disks"], "she told it herself; it is no entry of a file"


def test_a_captured_fact_has_the_time_of_its_message(start: Callable[..., Any]) -> None:
    agent = start(auto_extract=True)
    said = Message(role="user", content="I prefer oolong tea in the morning.", timestamp=1_772_356_800.0)
    agent.provider.on_session_end(Reader([said]), agent.session)
    (item,) = agent.provider.prefetch(Query("Which tea do I prefer?"), agent.session).items
    assert item.when == "2026-03-01"

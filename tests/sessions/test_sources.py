"""Search and lists among sessions that programs began, failed searches, repeats, and other owners' messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.memory import Memory, open_memory
from hermes_core.sessions.records import PROGRAM_SOURCES
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool

FACT = "The spare key of the boat house hangs behind the oak door"
QUESTION = "Where is the spare key of the boat house?"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    """A store in which a person once told where the key is."""
    db = SessionStore(tmp_path / "state.db")
    db.create_session("person", source="cli", started_at=1000.0)
    db.append_message("person", "user", FACT, timestamp=1000.0)
    db.append_message("person", "assistant", "Noted.", timestamp=1001.0)
    yield db
    db.close()


def report_of(db: SessionStore, source: str, number: int) -> None:
    """Store one run of a program that reports about the key."""
    db.create_session(f"{source}-{number}", source=source, started_at=2000.0 + number)
    texts = (
        "Report where the spare key of the boat house is",
        f"Report {number}: the spare key of the boat house",
    )
    for role, text in zip(("user", "assistant"), texts, strict=True):
        db.append_message(f"{source}-{number}", role, text, timestamp=2000.0 + number)


def found(db: SessionStore, **arguments: Any) -> list[str]:
    answer = json.loads(SessionSearchTool(db).call(arguments, Session("now")))
    return [result["session_id"] for result in answer["results"]]


@pytest.mark.parametrize(
    "source", [source for source in PROGRAM_SOURCES if source not in ("subagent", "tool")]
)
def test_a_persons_session_stands_before_those_of_programs(store: SessionStore, source: str) -> None:
    for number in range(8):
        report_of(store, source, number)

    assert found(store, query=QUESTION)[0] == "person"
    assert store.past.search(QUESTION, limit=3)[0].session_id == "person"


def test_runs_of_a_program_with_nearly_the_same_words_are_one_result(store: SessionStore) -> None:
    for number in range(8):
        report_of(store, "cron", number)

    assert len([hit for hit in store.past.search(QUESTION, limit=10) if hit.source == "cron"]) == 2


def test_a_source_that_is_asked_for_is_searched_alone(store: SessionStore) -> None:
    report_of(store, "cron", 1)

    assert found(store, query=QUESTION, source="cron") == ["cron-1"]
    assert {hit.source for hit in store.past.search(QUESTION, source="cron")} == {"cron"}
    assert "cron" not in {hit.source for hit in store.past.search(QUESTION, exclude_sources=["cron"])}


def test_recent_conversations_are_those_of_persons_unless_a_source_is_asked_for(store: SessionStore) -> None:
    for number in range(20):
        report_of(store, "cron", number)

    assert found(store) == ["person"]
    assert found(store, source="cron", limit=2) == ["cron-19", "cron-18"]


@pytest.mark.parametrize("runs", [8, 40])
def test_a_turn_recalls_what_the_person_said_among_many_runs_of_programs(tmp_path: Path, runs: int) -> None:
    (tmp_path / "config.yaml").write_text("recall: {sessions: auto}")
    with open_memory(tmp_path) as memory:
        tell(memory, "person", "cli", FACT, "Noted.")
        # More text than the budget of a turn, so that the turn must search.
        for number in range(60):
            tell(
                memory,
                f"other-{number}",
                "cli",
                f"Walk {number} went past the mill and the meadow " * 20,
                "Nice.",
            )
        for number in range(runs):
            report_of(memory.sessions, "cron", number)
        recalled = memory.recall(QUESTION)

    assert FACT in [item.text for item in recalled.results if item.injected]


def tell(memory: Memory, session_id: str, source: str, text: str, answer: str) -> None:
    memory.sessions.create_session(session_id, source=source)
    memory.sessions.append_message(session_id, "user", text)
    memory.sessions.append_message(session_id, "assistant", answer)


UNKNOWN = [
    "I don't know where the spare key of the boat house is.",
    "I have no information about the spare key of the boat house.",
    "I couldn't find anything about the spare key of the boat house in our past conversations.",
    "Sorry, I’m not sure where the spare key of the boat house is.",
    "You haven't told me where the spare key of the boat house is.",
    "There is no record of the spare key of the boat house.",
    "Leider weiß ich nicht, where the spare key of the boat house is.",
]


@pytest.mark.parametrize("answer", UNKNOWN)
def test_an_answer_that_knows_nothing_does_not_bury_the_fact(store: SessionStore, answer: str) -> None:
    for number in range(3):
        store.create_session(f"failed-{number}", source="cli", started_at=3000.0 + number)
        store.append_message(f"failed-{number}", "user", QUESTION, timestamp=3000.0 + number)
        store.append_message(
            f"failed-{number}", "assistant", f"{answer} ({number})", timestamp=3000.0 + number
        )

    assert found(store, query=QUESTION)[0] == "person"
    assert store.past.search(QUESTION, limit=1)[0].text == FACT


def test_what_is_told_beside_not_knowing_is_an_answer(store: SessionStore) -> None:
    store.create_session("other", source="cli")
    store.append_message("other", "user", "Where is the ladder of the lighthouse?")
    told = "I don't know who took it, but the ladder of the lighthouse is in the red shed."
    store.append_message("other", "assistant", told)

    assert store.past.search("Where is the ladder of the lighthouse?", limit=1)[0].text == told


def test_the_same_text_is_one_result_of_the_tool(store: SessionStore) -> None:
    for number in range(6):
        store.create_session(f"again-{number}", source="cli", started_at=3000.0 + number)
        store.append_message(
            f"again-{number}", "user", "Show the spare key of the  boat house", timestamp=3000.0
        )

    results = found(store, query=QUESTION)
    assert "person" in results
    assert len(results) == 2


def test_calls_and_results_of_memory_tools_are_found_only_by_their_role(store: SessionStore) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "session_search", "arguments": '{"query": "spare key"}'},
    }
    store.create_session("used", source="cli")
    store.append_message("used", "assistant", "", tool_calls=[call])
    store.append_message("used", "tool", f"results: {FACT}", tool_name="session_search", tool_call_id="c1")
    store.append_message("used", "tool", f"read file: {FACT}", tool_name="read_file", tool_call_id="c2")

    assert {hit.tool_name for hit in store.past.search("spare key boat house", limit=10)} == {"", "read_file"}
    by_role = store.past.search("spare key boat house", role="tool", limit=10)
    assert {hit.tool_name for hit in by_role} == {"session_search", "read_file"}


def test_instructions_of_a_host_are_no_memory(store: SessionStore) -> None:
    store.create_session("host", source="cli")
    store.append_message("host", "system", f"You are a keeper. {FACT}.")

    assert {hit.session_id for hit in store.past.search(QUESTION, limit=10)} == {"person"}
    assert [hit.session_id for hit in store.past.search(QUESTION, role="system")] == ["host"]


def test_other_owners_messages_do_not_change_a_ranking(tmp_path: Path) -> None:
    def ranking(others: int) -> list[str]:
        with closing(SessionStore(tmp_path / f"{others}.db")) as db:
            for number in range(120):
                db.create_session(f"ann-{number}", user="ann")
                words = ("boat", "house", "key", "oak", "door", "mill", "spare")
                text = " ".join(words[place] for place in range(7) if number >> place & 1) + f" note {number}"
                db.append_message(f"ann-{number}", "user", text, timestamp=1000.0 + number)
            for number in range(others):
                db.create_session(f"bob-{number}", user="bob")
                db.append_message(
                    f"bob-{number}", "user", "oak mill oak mill spare", timestamp=500.0 + number
                )
            return [hit.text for hit in db.past.search("spare oak boat mill", user="ann", limit=20)]

    assert ranking(3000) == ranking(0)

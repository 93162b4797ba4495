"""The commands name where notes and messages come from, and how many wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.contract.values import Session
from hermes_core.curated.edits import Operation
from hermes_core.memory import Memory
from hermes_core.safety.origin import Reading

PAGE = "The museum opens at 9"


@pytest.fixture
def memory(hermes_home: HermesHome) -> Iterator[Memory]:
    with open_memory(hermes_home) as opened:
        yield opened


def note(memory: Memory, text: str, origin: Any = "web", session: Session | None = None) -> None:
    who = memory.session(session) if session else memory.local_session
    operations = [Operation("add", text)]
    assert memory.curated.of(who).write("memory", operations, who, reading=Reading(origin))["success"]


def test_show_names_the_origin_of_each_note(
    hermes: Any, data: Any, memory: Memory, hermes_home: HermesHome
) -> None:
    hermes("memory", "add", "Likes tea")
    note(memory, "Uses uv", "person")
    note(memory, PAGE)
    with hermes_home.memory_md.open("a") as file:
        file.write("\n§\nBy hand\n")
    shown = data("memory", "show", "--origin")["memory"]
    assert [(one["entry"], one["origin"], one["waits"]) for one in shown] == [
        ("Likes tea", "person", False),
        ("Uses uv", "assistant", False),
        (PAGE, "web", True),
        ("By hand", "person", False),
    ]
    assert "a web page" in hermes("memory", "show", "--origin").stdout
    plain = hermes("memory", "show")
    assert PAGE not in plain.stdout
    assert "1 note from a web page waits and is in no system prompt: hermes-memory review" in plain.stderr
    hermes("review", "--accept-all")
    (confirmed,) = [one for one in data("memory", "show", "--origin")["memory"] if one["entry"] == PAGE]
    assert (confirmed["origin"], confirmed["confirmed"], confirmed["waits"]) == ("person", "web", False)


def test_show_says_that_notes_wait_although_the_prompt_is_empty(hermes: Any, memory: Memory) -> None:
    note(memory, PAGE)
    shown = hermes("memory", "show")
    assert shown.stdout == "No note is in the system prompt.\n"
    assert "1 note from a web page waits and is in no system prompt: hermes-memory review" in shown.stderr
    note(memory, "The museum closes at 5")
    shown = hermes("memory", "show")
    assert "2 notes from a web page wait and are in no system prompt: hermes-memory review" in shown.stderr


def test_history_names_the_origin_of_each_change(hermes: Any, data: Any, memory: Memory) -> None:
    hermes("memory", "add", "Likes tea")
    note(memory, PAGE)
    lines = hermes("memory", "history").stdout.splitlines()
    assert lines[1].endswith("a web page")
    assert lines[2].endswith("the person")
    assert data("memory", "history")[0]["writes"][0]["metadata"]["origin"] == "web"


def test_sessions_name_a_low_origin(hermes: Any, data: Any, memory: Memory) -> None:
    session = memory.start_session("s1")
    messages = [
        {"role": "user", "content": "When does the museum open?"},
        {"role": "tool", "tool_call_id": "1", "name": "fetch", "content": PAGE},
        {"role": "assistant", "content": "The museum opens at 9, it says."},
    ]
    memory.end_turn(session, "When does the museum open?", PAGE, messages=messages)
    shown = hermes("sessions", "show", "s1").stdout
    assert "(from a tool's result) assistant\n" in shown
    assert "user\n" in shown
    assert "(from a tool's result)" in hermes("sessions", "search", "museum").stdout
    assert [one["origin"] for one in data("sessions", "show", "s1")] == ["person", "tool", "tool"]


def test_status_and_doctor_count_what_waits(hermes: Any, data: Any, memory: Memory) -> None:
    assert data("memory", "status")["waiting"] == {"count": 0, "of_users": {}}
    assert "notes that wait" not in hermes("memory", "status").stdout
    note(memory, PAGE)
    note(memory, PAGE, session=Session("t1", platform="telegram", user_id="42"))
    assert data("memory", "status")["waiting"] == {"count": 1, "of_users": {"telegram:42": 1}}
    assert (
        "hermes-memory review confirms or rejects them; 1 of telegram:42" in hermes("memory", "status").stdout
    )
    details = {one["detail"]: one["remedy"] for one in data("doctor")["findings"]}
    assert details["1 note from a web page waits"] == "hermes-memory review"
    assert details["notes of telegram:42 that wait: 1"] == "hermes-memory review --user telegram:42"

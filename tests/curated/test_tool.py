from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core import HermesHome, MemoryWrite, Session
from hermes_core.curated.store import Notes
from hermes_core.curated.tool import MEMORY_SCHEMA, call_memory_tool, memory_schema
from hermes_core.errors import DatabaseUnavailable
from tests.rounds import rounds

MakeStore = Callable[..., Notes]
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call(store: Notes, session: Session) -> Call:
    def do(arguments: object = None, **named: Any) -> dict[str, Any]:
        return json.loads(call_memory_tool(store, named if arguments is None else arguments, session))

    return do


def test_the_schema_requires_only_the_target_and_suits_strict_backends() -> None:
    parameters = MEMORY_SCHEMA["parameters"]
    assert parameters["required"] == ["target"]
    assert set(parameters) == {"type", "properties", "required"}
    assert set(parameters["properties"]) == {"action", "target", "content", "old_text", "operations"}
    assert "diary" in MEMORY_SCHEMA["description"]


def test_the_schema_offers_the_stores_that_are_on() -> None:
    assert memory_schema(["user"])["parameters"]["properties"]["target"]["enum"] == ["user"]
    assert MEMORY_SCHEMA["parameters"]["properties"]["target"]["enum"] == ["memory", "user"]


def test_a_model_adds_replaces_and_removes(call: Call) -> None:
    assert call(action="add", target="user", content="Likes tea")["message"] == "Entry added."
    assert (
        call(action="replace", target="user", old_text="tea", content="Likes rye")["message"]
        == "Entry replaced."
    )
    assert call(action="remove", target="user", old_text="rye")["message"] == "Entry removed."


def test_operations_win_over_a_single_action(call: Call, store: Notes) -> None:
    both = {"action": "remove", "old_text": "x", "operations": [{"action": "add", "content": "tea"}]}
    assert call({"target": "memory", **both})["message"] == "Applied 1 operation."
    assert store.entries("memory") == ("tea",)


def test_a_missing_target_means_memory(call: Call, store: Notes) -> None:
    call(action="add", target=None, content="tea")
    assert store.entries("memory") == ("tea",)


REFUSED: list[tuple[object, str]] = [
    ({"action": "add", "target": "memory"}, "Content is required for 'add' action."),
    ({"action": "add", "target": "memory", "content": 123}, "content must be a string, not 123."),
    ({"action": "replace", "target": "memory", "old_text": "a"}, "content is required for 'replace' action."),
    ({"action": "remove", "target": "memory"}, "'remove' needs old_text -- "),
    ({"action": "remove", "target": "memory", "old_text": ["a"]}, "old_text must be a string, not ['a']."),
    ({"action": "add", "target": {}, "content": "a"}, "Invalid target {}. Use 'memory' or 'user'."),
    ({"action": "add", "target": "notes", "content": "a"}, "Invalid target 'notes'. Use 'memory' or 'user'."),
    ({"action": "read", "target": "memory"}, "Unknown action 'read'. Use: add, replace, remove"),
    ({"action": ["add"], "target": "memory"}, "Unknown action ['add']."),
    ({"target": "memory"}, "Unknown action None."),
    ({"target": "memory", "operations": []}, "operations list is empty."),
    (
        {"target": "memory", "operations": "add x"},
        "operations must be a list of {action, content?, old_text?} objects.",
    ),
    ({"target": "memory", "operations": ["x"]}, "Operation 1: operations must be a list of"),
    (
        {"target": "memory", "operations": [{"action": "add", "content": 5}]},
        "Operation 1: content must be a string",
    ),
    (
        {"target": "memory", "operations": [{"action": "add", "new_text": "a"}]},
        "Operation 1: Content is required",
    ),
    (["add"], "Arguments must be an object, not ['add']."),
    (None, "Unknown action None."),
]


@pytest.mark.parametrize(
    ("arguments", "error"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_unknown_arguments_get_an_error_that_says_what_to_send(
    call: Call, arguments: object, error: str, hermes_home: HermesHome
) -> None:
    result = call(arguments)
    assert result["success"] is False
    assert result["error"].startswith(error)
    assert not hermes_home.memory_md.exists()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
likely = st.sampled_from(["add", "replace", "remove", "memory", "user", "tea", "§", "\ud800"]) | anything
keys = st.sampled_from(["action", "target", "content", "old_text", "operations"])
calls = st.dictionaries(keys, likely | st.lists(st.dictionaries(keys, likely), max_size=3))


@settings(
    max_examples=rounds(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls | anything)
def test_any_json_gets_an_answer(store: Notes, arguments: object) -> None:
    answer = call_memory_tool(store, arguments, Session("s1"))
    assert isinstance(json.loads(answer.encode())["success"], bool)


def test_without_a_store_the_answer_is_that_memory_is_not_available(
    make_store: MakeStore, session: Session
) -> None:
    off = make_store(memory_enabled=False, user_profile_enabled=False)
    for store in (None, off):
        answer = json.loads(call_memory_tool(store, {"action": "add", "content": "x"}, session))
        assert answer["success"] is False
        assert answer["error"].startswith("Memory is not available.")


def test_a_failing_disk_is_an_answer_too(
    make_store: MakeStore, session: Session, hermes_home: HermesHome
) -> None:
    def fail(write: MemoryWrite, session: Session) -> None:
        raise DatabaseUnavailable("the disk is full", "free disk space")

    store = make_store(on_write=fail)
    add = {"action": "add", "target": "memory", "content": "x"}
    answer = json.loads(call_memory_tool(store, add, session))
    assert answer["error"] == "the disk is full"
    assert answer["remediation"] == "free disk space"
    assert not hermes_home.memory_md.exists()


def test_a_model_that_sends_the_same_nonsense_is_told_to_stop(call: Call) -> None:
    answers = [call(action="replace", target="memory", old_text="tea") for _ in range(5)]
    assert [answer.get("done", False) for answer in answers] == [False, False, False, True, True]


def test_a_note_that_says_otherwise_than_one_that_stands_asks_whether_to_replace_it(
    call: Call, store: Notes
) -> None:
    call(action="add", target="user", content="The passport is in the blue drawer.")
    call(action="add", target="user", content="The passport expires on Monday.")

    result = call(action="add", target="user", content="The passport is in the safe now.")

    assert result["success"]
    assert result["changed_entries"] == ["The passport is in the blue drawer."]
    assert result["question"].startswith("The new entry says otherwise")
    assert len(store.entries("user")) == 3


def test_a_note_on_another_subject_and_a_replaced_one_ask_nothing(call: Call) -> None:
    call(action="add", target="user", content="The passport is in the blue drawer.")
    other = call(action="add", target="user", content="The ladder is in the garage now.")
    content = "The passport is in the safe now."
    replaced = call(action="replace", target="user", old_text="The passport", content=content)

    assert "question" not in other
    assert "question" not in replaced


@pytest.mark.parametrize(
    ("standing", "new"),
    [
        ("User lives in Graz", "User lives in Vienna"),
        ("User prefers dark mode", "User prefers light mode"),
        ("Project uses PostgreSQL 15", "Project uses PostgreSQL 16"),
        ("User's dog is named Rex", "User's dog is named Bello"),
        ("User's favourite colour is blue", "User's favourite colour is green"),
        ("Nutzer wohnt in Kiel", "Nutzer wohnt in Graz"),
        ("User has a dog", "User no longer has a dog"),
    ],
)
def test_declarative_notes_that_contradict_ask_whichever_target_has_them(
    call: Call, standing: str, new: str
) -> None:
    call(action="add", target="user", content=standing)
    assert call(action="add", target="memory", content=new)["changed_entries"] == [standing]


@pytest.mark.parametrize(
    ("standing", "new"),
    [
        ("User likes tea", "User likes coffee"),
        ("User speaks German", "User speaks French"),
        ("User's sister lives in Graz", "User's brother lives in Kiel"),
        ("User is allergic to peanuts", "User is allergic to shrimp"),
        ("Project uses ruff", "Project uses mypy"),
        ("The staging server is alpha", "The production server is beta"),
        ("Nutzer mag Tee", "Nutzer mag Kaffee"),
        ("The API runs on port 80", "The database runs on port 5432"),
    ],
)
def test_notes_that_hold_together_ask_nothing(call: Call, standing: str, new: str) -> None:
    call(action="add", target="user", content=standing)
    assert "question" not in call(action="add", target="user", content=new)


def test_a_replacement_that_contradicts_a_third_note_asks_and_names_its_target(call: Call) -> None:
    call(action="add", target="user", content="User lives in Graz")
    call(action="add", target="memory", content="User moved house in May")
    result = call(action="replace", target="memory", old_text="moved", content="User lives in Vienna")
    assert result["changed_entries"] == ["User lives in Graz"]
    assert result["question"].endswith("An older entry is in target 'user'.")
    batch = [{"action": "add", "content": "User lives in Oslo"}, {"action": "remove", "old_text": "Vienna"}]
    assert call(target="memory", operations=batch)["changed_entries"] == ["User lives in Graz"]

"""What a provider returns is read in its known forms; any other value is refused, told, and never becomes text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes_core import open_memory
from hermes_core.contract.values import Query, Session, ToolCall
from hermes_core.errors import ProviderError, ProviderInvalid
from hermes_core.home import HermesHome
from hermes_memory_foreign.adapter import adapt
from hermes_memory_foreign.environment import provider_warnings
from hermes_memory_foreign.host_modules import VIEWS
from hermes_memory_foreign.registration import Registrations
from hermes_memory_foreign.results import MemoryObservation, MemoryPrefetchResult, recall_of_result
from tests.loader.conftest import DUCK, Site
from tests.table import table

CLI = Session(id="s1")
SEEN = MemoryObservation("search", "pond/hits", 1, {"hits": 3})


class Thing:
    def __repr__(self) -> str:
        return "<a thing at 0x7f>"


@dataclass(frozen=True)
class Status:
    provider_label: str
    count: int


FOREIGN = (
    Thing(),
    b"tea",
    {"text": "tea"},
    ["tea"],
    ("tea",),
    5,
    True,
    {"tea"},
    Status("Pond", 3),
    iter("tea"),
)


class Bare:
    name = "wrapped"

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **_: Any) -> None: ...

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"name": "dig", "description": "Digs", "parameters": {}}]

    def shutdown(self) -> None: ...


def returning(home: HermesHome, method: str, value: Any, hooks: Registrations | None = None) -> Any:
    wrapped = type("Drifted", (Bare,), {method: lambda _self, *_args, **_kwargs: value})()
    return adapt(wrapped, "wrapped", home, hooks or Registrations())


# ------------------------------------------------------------------------------------------------------------ prefetch


class _Copy:
    context = "tea"
    observations = (SEEN,)


_Copy.__name__ = "MemoryPrefetchResult"  # a package defines it for hosts that lack it


@pytest.mark.parametrize(
    "result",
    [
        "tea",
        MemoryPrefetchResult("tea"),
        MemoryPrefetchResult("tea", [SEEN]),
        MemoryPrefetchResult("tea", None),  # type: ignore[arg-type]
        {"context": "tea"},
        {"context": "tea", "observations": [vars(SEEN)]},
        _Copy(),
    ],
    ids=lambda result: type(result).__name__,
)
def test_the_known_forms_of_a_recall_are_read(hermes_home: HermesHome, result: Any) -> None:
    assert returning(hermes_home, "prefetch", result).prefetch(Query("?"), CLI).text == "tea"


@table(
    "value",
    (*FOREIGN, {"context": 5}, {"context": None}, MemoryPrefetchResult(Thing()), {"observations": []}),
)  # type: ignore[arg-type]
def test_any_other_recall_is_refused(value: Any) -> None:
    with pytest.raises(ProviderInvalid, match=r"prefetch\(\) returned a"):
        recall_of_result(value, "wrapped")


ANSWERS = """
class Thing: pass

class Pond(Duck):
    def prefetch(self, query, *, session_id=""):
        from agent.memory_provider import MemoryObservation, MemoryPrefetchResult
        return ANSWER

def register(ctx):
    ctx.register_memory_provider(Pond())
"""


@pytest.mark.parametrize(
    ("answer", "shown", "told"),
    [
        ("MemoryPrefetchResult('green tea', [MemoryObservation('s', 'a/b', 1, {})])", "green tea", "observations of prefetch() have no effect"),
        ("Thing()", "", "prefetch failed: prefetch() returned a Thing; return a str or a MemoryPrefetchResult"),
        ("{'memories': ['green tea']}", "", "prefetch failed: prefetch() returned a dict; return a str or a MemoryPrefetchResult"),
    ],
)  # fmt: skip
def test_the_prompt_holds_no_foreign_value_and_the_person_is_told(
    site: Site, answer: str, shown: str, told: str
) -> None:
    site.plugin("duck", DUCK + ANSWERS.replace("ANSWER", answer))
    with open_memory(site.home, provider="duck") as memory:
        session = memory.start_session()
        memory.manager.initialize_all(session, wait=10.0)
        turn = memory.begin_turn(session, "tea?")
        recall = turn.recall
        said = [*memory.problems(), *(part.reason for part in recall.parts)]
    assert list(recall.contexts) == ([("duck", shown)] if shown else [])
    assert any(told in text for text in said), said
    assert not any("object at 0x" in text or "memories" in text for text in said)


def test_observations_are_bounded_and_each_fault_is_named() -> None:
    held = [
        SEEN,
        {**vars(SEEN), "version": 0},
        {**vars(SEEN), "provider": "another"},
        {**vars(SEEN), "payload": Thing()},
        {**vars(SEEN), "payload": "x" * 20_000},
        {**vars(SEEN), "schema": ""},
        Thing(),
        *[SEEN] * 20,
    ]
    text, observations, faults = recall_of_result({"context": "tea", "observations": held}, "wrapped")
    assert (text, len(observations), {one.provider for one in observations}) == ("tea", 16, {"wrapped"})
    assert [fault.partition(":")[0] for fault in faults] == [
        *(f"observation {number} is left out" for number in range(2, 8)),
        "5 observations are over the limit of 16",
    ]
    large = [{**vars(SEEN), "payload": "x" * 15_000}] * 6
    assert len(recall_of_result({"context": "", "observations": large}, "wrapped")[1]) == 4
    assert recall_of_result({"context": "tea", "observations": Thing()}, "wrapped")[1:] == (
        [],
        ["the observations are a Thing; return a list of MemoryObservation"],
    )


def test_a_result_of_hermes_agent_itself_refuses_what_is_no_list() -> None:
    with pytest.raises(TypeError, match="a list or a tuple"):
        MemoryPrefetchResult("tea", iter([SEEN]))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ other results


@table(("method", "call"), [
    ("system_prompt_block", lambda provider: provider.system_prompt_block()),
    ("on_pre_compress", lambda provider: provider.on_pre_compress([])),
])  # fmt: skip
def test_a_text_is_a_str_or_none(hermes_home: HermesHome, method: str, call: Any) -> None:
    assert call(returning(hermes_home, method, "tea")) == "tea"
    assert call(returning(hermes_home, method, None)) == ""
    for value in FOREIGN:
        with pytest.raises(ProviderInvalid, match=rf"{method}\(\) returned a {type(value).__name__}"):
            call(returning(hermes_home, method, value))


@table(("value", "text"), [
    ('{"a": 1}', '{"a": 1}'), ({"a": "ö"}, '{"a": "ö"}'), (["tea"], '["tea"]'), (5, "5"), (True, "true"), (None, ""),
])  # fmt: skip
def test_the_result_of_a_tool_may_be_json(hermes_home: HermesHome, value: Any, text: str) -> None:
    provider = returning(hermes_home, "handle_tool_call", value)
    assert provider.handle_tool_call(ToolCall("dig", {}), CLI) == text


@table("value", (Thing(), b"tea", {"tea"}, {"a": Thing()}, [Thing()], Status("Pond", 3), {1: {2}}))
def test_the_result_of_a_tool_that_is_no_json_is_refused(hermes_home: HermesHome, value: Any) -> None:
    with pytest.raises(ProviderInvalid, match=r"handle_tool_call\(\) returned a"):
        returning(hermes_home, "handle_tool_call", value).handle_tool_call(ToolCall("dig", {}), CLI)
    hooks = Registrations()
    hooks.register_tool("swim", {"name": "swim"}, lambda *_args: value)
    with pytest.raises(ProviderInvalid, match="the handler of 'swim' returned a"):
        adapt(Bare(), "wrapped", hermes_home, hooks).handle_tool_call(ToolCall("swim", {}), CLI)


def test_a_callback_adds_a_text_or_a_context_and_nothing_else(hermes_home: HermesHome) -> None:
    hooks = Registrations()
    for value in ("one", {"context": "two"}, None, {"context": None}, Thing(), {"context": Thing()}, 5):
        hooks.register_hook("pre_llm_call", lambda value=value, **_: value)
    provider = returning(hermes_home, "prefetch", "tea", hooks)
    assert provider.prefetch(Query("?"), CLI).text == "tea\n\none\n\ntwo"
    told = [text for text in provider_warnings(hermes_home.path) if "pre_llm_call" in text]
    assert told == [
        f"wrapped: a pre_llm_call callback returned a {kind}; return a str" for kind in ("Thing", "int")
    ]


def test_a_changed_result_of_a_tool_is_a_text(hermes_home: HermesHome) -> None:
    hooks = Registrations()
    hooks.register_hook("transform_tool_result", lambda **_: {"result": "water"})
    provider = adapt(Bare(), "wrapped", hermes_home, hooks)
    assert provider.extras.after_tool("dig", {}, "mud", CLI) == "mud"
    assert "a transform_tool_result callback returned a dict; return a str" in provider_warnings(
        hermes_home.path
    )


@table("value", FOREIGN)
def test_a_command_answers_with_a_text(hermes_home: HermesHome, value: Any) -> None:
    hooks = Registrations()
    hooks.register_command("pond", lambda _words: value)
    command = adapt(Bare(), "wrapped", hermes_home, hooks).extras.chat_commands["pond"]
    with pytest.raises(ProviderError, match="command /pond returned a"):
        command.run("")


@table("value", ("a path", [5], [Thing()], {"a": 1}))
def test_paths_are_a_list_of_paths(hermes_home: HermesHome, value: Any) -> None:
    assert returning(hermes_home, "backup_paths", ["/a", Path("/b")]).backup_paths() == ["/a", "/b"]
    if value != {"a": 1}:
        with pytest.raises(ProviderInvalid, match="return a list of paths"):
            returning(hermes_home, "backup_paths", value).backup_paths()


def test_words_of_a_schema_and_a_status_are_texts(hermes_home: HermesHome) -> None:
    schema = [{"key": "mode", "description": Thing(), "url": {"a": 1}}]
    (field,) = returning(hermes_home, "get_config_schema", schema).settings
    assert (field.help, field.url) == ("", "")
    tools = [{"name": "dig", "description": Thing(), "parameters": {}}]
    assert returning(hermes_home, "get_tool_schemas", tools).get_tool_schemas()[0]["description"] == ""
    wrapped: Any = type("Drifted", (Bare,), {"prefetch": lambda *_a, **_k: "tea"})()
    wrapped.recall_status = lambda: type("S", (), {"provider_label": Thing(), "glyph": Thing(), "count": 2})()
    assert (
        adapt(wrapped, "wrapped", hermes_home)
        .prefetch(Query("?"), CLI)
        .status.endswith("wrapped: recalled 2 memories")
    )


# --------------------------------------------------------------------------------------------- names of later contracts


def test_each_turn_names_its_author_also_if_nobody_is_known(hermes_home: HermesHome) -> None:
    seen: list[dict[str, Any]] = []
    wrapped = type("Drifted", (Bare,), {"on_turn_start": lambda _self, _n, _m, **facts: seen.append(facts)})()
    provider = adapt(wrapped, "wrapped", hermes_home)
    provider.on_turn_start(1, "tea?", CLI, "")
    provider.on_turn_start(2, "tea?", CLI, "bot:ops")
    authors = [{key: facts[f"author_{key}"] for key in ("id", "name", "is_bot")} for facts in seen]
    assert authors == [
        {"id": None, "name": None, "is_bot": False},
        {"id": "bot:ops", "name": "ops", "is_bot": True},
    ]


def test_a_changed_identity_is_told_once(hermes_home: HermesHome) -> None:
    signatures = iter([{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}])
    wrapped = type("Drifted", (Bare,), {"identity_signature": lambda _self: next(signatures)})()
    wrapped.on_turn_start = lambda *_args, **_kwargs: None  # type: ignore[attr-defined]
    provider = adapt(wrapped, "wrapped", hermes_home)
    provider.initialize(CLI)
    told = []
    for number in range(3):
        provider.on_turn_start(number, "tea?", CLI, "")
        told.append([text for text in provider_warnings(hermes_home.path) if "settings have changed" in text])
    provider.shutdown()
    assert [len(texts) for texts in told] == [0, 1, 1]


@table(("value", "builtin"), [
    ("", True), (None, True), ("none", True), (" Default ", True), ("BUILTIN", True), ("built-in", True), ("honcho", False),
])  # fmt: skip
def test_a_name_that_chooses_no_provider_is_known(value: str | None, builtin: bool) -> None:
    view: Any = VIEWS["agent.memory_provider"]
    assert view["is_core_memory_provider"](value) is builtin
    assert ((value or "").strip().lower() in view["CORE_MEMORY_PROVIDER_SENTINELS"]) is builtin
    assert json.dumps(view["MemoryProvider"].identity_signature(None)) == "{}"

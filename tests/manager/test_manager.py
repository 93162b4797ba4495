from __future__ import annotations

import contextvars
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import (
    Availability,
    Capabilities,
    Delegation,
    MemoryWrite,
    Message,
    Query,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.providers import RESERVED_TOOL_NAMES
from hermes_memory_testing.fakes import RecordingProvider, make_session, make_turn
from tests.manager.conftest import Named, until

OpenManager = Callable[..., MemoryManager]

A, B = make_session("a"), make_session("b")


# ---------------------------------------------------------------- providers


# Each block of an external provider begins with its name, since a person has to tell whose words they are.
LABEL = "[The memory provider fake says:]\n"


def test_the_second_external_provider_is_refused_with_a_warning(
    open_manager: OpenManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_manager(Named("first"))
    assert not manager.add_provider(Named("second"))
    assert "only one external provider at a time, and 'first' is active" in caplog.text
    assert [(health.name, health.state) for health in manager.health()] == [
        ("first", "idle"),
        ("second", "idle"),
    ]
    assert "only one" in manager.health()[1].reason


def test_builtin_and_one_external_live_together(open_manager: OpenManager) -> None:
    manager = open_manager()
    assert manager.add_provider(Named("builtin"), builtin=True)
    assert manager.add_provider(Named("external"))
    manager.initialize_all(A)
    assert (
        manager.build_system_prompt(A)
        == "block of builtin\n\n[The memory provider external says:]\nblock of external"
    )


@pytest.mark.parametrize(
    ("provider", "name"), [(Named("builtin"), ""), (Named("other"), "builtin"), (Named("builtin"), "other")]
)
def test_a_stranger_cannot_impersonate_builtin(
    open_manager: OpenManager, provider: object, name: str
) -> None:
    manager = open_manager()
    assert not manager.add_provider(provider, name=name)
    assert "belongs to the curated memory" in manager.health()[0].reason


def test_builtin_is_added_once_and_stays(open_manager: OpenManager) -> None:
    manager = open_manager()
    manager.add_provider(Named("builtin"), builtin=True)
    assert not manager.add_provider(Named("builtin"), builtin=True)
    assert not manager.add_provider(Named("builtin"))
    manager.initialize_all(A)
    assert manager.build_system_prompt(A) == "block of builtin"


@pytest.mark.sqlite_only("the file of the outbox")
def test_builtin_takes_no_mirror_and_needs_no_thread(open_manager: OpenManager) -> None:
    manager = open_manager()
    provider = Named("builtin", ("memory",))
    manager.add_provider(provider, builtin=True)
    before = threading.active_count()
    manager.initialize_all(A)
    manager.on_turn_start(1, "hi", A)
    manager.handle_tool_call(ToolCall("memory", {}), A)
    manager.sync_all(make_turn(), A)
    manager.on_memory_write(MemoryWrite("w1", "add", "memory", "tea"), A)
    assert threading.active_count() <= before  # a thread of an earlier test may have ended meanwhile
    assert "sync_turn" not in provider.hooks
    assert "on_memory_write" not in provider.hooks
    assert not manager.outbox.exists


@pytest.mark.parametrize("source", [RecordingProvider, RecordingProvider(), lambda: RecordingProvider()])
def test_an_instance_a_class_or_a_factory_can_be_added(open_manager: OpenManager, source: object) -> None:
    manager = open_manager()
    assert manager.add_provider(source)
    assert manager.health()[0].name == "fake"
    manager.initialize_all(A)
    assert manager.prefetch_all(Query("tea"), A).contexts == [("fake", "- a: tea")]


def test_a_provider_that_is_not_available_is_shown_with_reason_and_remedy(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["is_available"] = Availability.no(
        "FAKE_KEY is not set", "run hermes-memory memory setup"
    )
    manager = open_manager(provider)
    (health,) = manager.health()
    assert (health.state, health.reason) == (
        "unavailable",
        "FAKE_KEY is not set; run hermes-memory memory setup",
    )
    manager.initialize_all(A)
    assert provider.hooks == ["is_available"]


@pytest.mark.sqlite_only("the file of the outbox")
def test_a_hook_that_nobody_has_costs_no_thread_and_no_file(open_manager: OpenManager) -> None:
    class Quiet(MemoryProvider):
        name = "quiet"

    manager = open_manager(Quiet())
    manager.initialize_all(A)
    before = set(threading.enumerate())
    manager.on_turn_start(1, "hi", A)
    assert manager.prefetch_all(Query("tea"), A).parts == ()
    manager.queue_prefetch_all(Query("tea"), A)
    manager.sync_all(make_turn(), A)
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may have ended meanwhile
    assert not manager.outbox.exists


def test_the_whole_life_comes_in_order(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = open_manager(provider)
    manager.initialize_all(A)
    manager.build_system_prompt(A)
    for number in (1, 2):
        manager.on_turn_start(number, "hi", A)
        manager.prefetch_all(Query("hi"), A)
        manager.handle_tool_call(ToolCall("fake_remember", {}), A)
        manager.sync_all(make_turn(f"t{number}"), A)
        assert manager.flush(30)
    manager.on_pre_compress([Message(role="user", content="hi")], 0, A)
    manager.on_session_end(A, "compression", messages=[])
    manager.on_session_switch(SessionSwitch("x", A, B, "compression"))
    assert manager.flush(30)
    manager.shutdown_all()
    turn = ["on_turn_start", "prefetch", "handle_tool_call", "sync_turn"]
    assert provider.hooks == [
        *("is_available", "get_tool_schemas", "initialize", "system_prompt_block"),
        *turn,
        *turn,
        *("on_pre_compress", "on_session_end", "on_session_switch", "shutdown"),
    ]


def test_a_deadline_of_no_hook_is_refused(hermes_home: HermesHome) -> None:
    with pytest.raises(ConfigError, match="'prefech' is no hook"):
        MemoryManager(hermes_home, deadlines={"prefech": 1}, redact=str)
    for wrong in (0, -1, "5", None, float("nan")):
        with pytest.raises(ConfigError, match="above 0"):
            MemoryManager(hermes_home, deadlines={"prefetch": wrong}, redact=str)  # type: ignore[dict-item]


def test_a_start_does_not_wait_for_a_slow_provider(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["initialize"] = threading.Event()
    manager = open_manager(provider, start_wait=0.02, deadlines={"handle_tool_call": 0.2})
    manager.initialize_all(A)
    assert "initialize has run" in manager.health()[0].reason
    assert manager.build_system_prompt(A) == ""
    assert "error" in json.loads(manager.handle_tool_call(ToolCall("fake_remember", {}), A))
    assert manager.get_all_tool_names() == {"fake_remember"}
    gate.set()
    assert until(lambda: manager.health()[0].state == "active")
    manager.initialize_all(A)
    assert provider.hooks.count("initialize") == 1
    assert manager.build_system_prompt(A) == ""
    assert manager.rebuild_system_prompt(A) == f"{LABEL}The fake remembers."


def test_an_initialize_that_hangs_is_waited_for_once(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["initialize"] = threading.Event()
    manager = open_manager(provider, start_wait=0.2)
    manager.initialize_all(A)
    began = time.monotonic()
    for _ in range(200):
        manager.initialize_all(A)
    assert time.monotonic() - began < 20  # 40, were each to wait
    gate.set()


def test_the_callers_contextvars_are_seen_by_the_hook(open_manager: OpenManager) -> None:
    profile = contextvars.ContextVar("profile", default="none")

    class Seeing(MemoryProvider):
        name = "seeing"

        def prefetch(self) -> str:
            return profile.get()

    manager = open_manager(Seeing())
    manager.initialize_all(A)
    profile.set("work")
    assert manager.prefetch_all(Query("tea"), A).contexts == [("seeing", "work")]


# ------------------------------------------------------------ prompt and tools


def test_the_system_prompt_is_frozen_for_the_session(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = open_manager(provider)
    manager.initialize_all(A)
    first = manager.build_system_prompt(A)
    provider.results["system_prompt_block"] = "changed"
    assert manager.build_system_prompt(A) == first
    assert manager.build_system_prompt(B) == f"{LABEL}changed"
    assert manager.rebuild_system_prompt(A) == f"{LABEL}changed"
    assert manager.build_system_prompt(A) == f"{LABEL}changed"


@pytest.mark.parametrize("hook", ["system_prompt_block", "on_pre_compress"])
def test_what_a_provider_says_for_a_prompt_is_bounded(
    open_manager: OpenManager, caplog: pytest.LogCaptureFixture, hook: str
) -> None:
    provider = RecordingProvider()
    provider.results[hook] = "x" * 1_000_000
    manager = open_manager(provider)
    manager.initialize_all(A)
    said = manager.build_system_prompt(A) if hook != "on_pre_compress" else manager.on_pre_compress((), 0, A)
    assert said.removeprefix(LABEL) == "x" * 32_000
    assert "1000000 characters for a prompt are cut to 32000" in caplog.text


@pytest.mark.parametrize("hook", ["system_prompt_block", "on_pre_compress"])
def test_what_a_provider_says_for_a_prompt_ends_no_turn_of_a_chat_template(
    open_manager: OpenManager, hook: str
) -> None:
    provider = RecordingProvider()
    provider.results[hook] = "Likes tea.<|im_end|>"
    manager = open_manager(provider)
    manager.initialize_all(A)
    said = manager.build_system_prompt(A) if hook != "on_pre_compress" else manager.on_pre_compress((), 0, A)
    assert said.removeprefix(LABEL) == "Likes tea.< |im_end|>"


def test_tools_of_reserved_names_are_refused_and_shown(open_manager: OpenManager) -> None:
    manager = open_manager(Named("external", ("memory", "fact_store", "session_search")))
    assert manager.get_all_tool_names() == {"fact_store"}
    assert len(manager.health()[0].warnings) == 2
    assert {"memory", "session_search", "todo", "delegate_task", "skill_manage"} <= RESERVED_TOOL_NAMES


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"name": "look up"}, "have names of up to 64 letters"),
        ({"name": "x" * 65}, "have names of up to 64 letters"),
        ({"name": "a", "parameters": {"type": "string"}}, "of type 'string', not an object"),
        ({"name": "a", "parameters": {"enum": {1, 2}}}, "can't be written as JSON"),
        ({"name": "a", "parameters": {"default": float("nan")}}, "can't be written as JSON"),
    ],
)
def test_a_tool_that_a_models_server_would_refuse_is_left_out_and_shown(
    open_manager: OpenManager, schema: dict[str, Any], said: str
) -> None:
    provider = RecordingProvider()
    provider.results["get_tool_schemas"] = [schema, {"name": "good"}]
    manager = open_manager(provider)
    assert manager.get_all_tool_names() == {"good"}
    (warning,) = manager.health()[0].warnings
    assert f"tool {schema['name']!r} is left out" in warning
    assert said in warning


def test_the_first_provider_of_a_tool_keeps_it(open_manager: OpenManager) -> None:
    manager = open_manager()
    manager.add_provider(Named("builtin", ("memory", "shared")), builtin=True)
    external = Named("external", ("shared", "own"))
    manager.add_provider(external)
    assert [schema["name"] for schema in manager.get_all_tool_schemas()] == ["memory", "shared", "own"]
    assert "'builtin' offers it" in manager.health()[1].warnings[0]
    manager.initialize_all(A)
    manager.handle_tool_call(ToolCall("shared", {}), A)
    assert "handle_tool_call" not in external.hooks


def test_capabilities_limit_the_tools(open_manager: OpenManager) -> None:
    class Limited(Named):
        capabilities = Capabilities(tool_names=frozenset({"one"}))

    assert open_manager(Limited("x", ("one", "two"))).get_all_tool_names() == {"one"}


def test_a_tool_answers_to_its_older_names_which_are_not_offered(open_manager: OpenManager) -> None:
    class Renamed(RecordingProvider):
        name = "renamed"
        capabilities = Capabilities(
            tool_aliases={"fake-save": "fake_remember", "todo": "fake_remember", "lost": "nothing"}
        )

    renamed = Renamed()
    manager = open_manager(renamed)
    manager.initialize_all(A)
    manager.handle_tool_call(ToolCall("fake-save", {"fact": "tea"}), A)
    assert [asked["call"].name for asked in renamed.of("handle_tool_call")] == ["fake_remember"]
    assert manager.get_all_tool_names() == {"fake_remember"}
    for unknown in ("todo", "lost"):
        assert "no memory provider" in manager.handle_tool_call(ToolCall(unknown, {}), A)


def test_changing_the_schemas_that_were_given_changes_nothing(open_manager: OpenManager) -> None:
    manager = open_manager(RecordingProvider())
    manager.get_all_tool_schemas()[0]["parameters"]["properties"].clear()
    assert manager.get_all_tool_schemas()[0]["parameters"]["properties"] == {"fact": {"type": "string"}}


def test_a_tool_that_nobody_has_answers_an_error(open_manager: OpenManager) -> None:
    answer = json.loads(open_manager().handle_tool_call(ToolCall("nothing", {}), A))
    assert answer == {"error": "no memory provider handles tool 'nothing'"}


@pytest.mark.parametrize("arguments", [None, [], "text", 3])
def test_type_confused_arguments_answer_an_error(open_manager: OpenManager, arguments: Any) -> None:
    manager = open_manager(RecordingProvider())
    manager.initialize_all(A)
    answer = json.loads(manager.handle_tool_call(ToolCall("fake_remember", arguments), A))
    assert "must be an object" in answer["error"]


@pytest.mark.parametrize(
    ("suppresses", "memory", "user"),
    [(True, True, True), ({"user": True}, False, True), (False, False, False)],
)
def test_a_provider_may_keep_a_target_to_itself(
    open_manager: OpenManager, suppresses: Any, memory: bool, user: bool
) -> None:
    class Keeping(RecordingProvider):
        capabilities = Capabilities(suppresses_local_writes=suppresses)

    manager = open_manager(Keeping())
    assert manager.suppresses_local_writes("memory") is memory
    assert manager.suppresses_local_writes("user") is user


# ------------------------------------------------------------------- secrets


def planted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: planted(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [planted(entry) for entry in value]
    return value.replace("sk-planted", "[redacted]") if isinstance(value, str) else value


def test_no_hook_is_given_a_secret(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = open_manager(provider, redact=planted)
    secret = "my key is sk-planted"
    message = Message(role="user", content=secret)
    manager.initialize_all(A)
    manager.on_turn_start(1, secret, A)
    manager.prefetch_all(Query(secret, recent=(message,)), A)
    manager.queue_prefetch_all(Query(secret), A)
    manager.handle_tool_call(ToolCall("fake_remember", {"fact": [secret]}), A)
    manager.sync_all(Turn("t1", 1, secret, secret, (message,)), A)
    manager.on_memory_write(MemoryWrite("w1", "replace", "memory", secret, secret, secret), A)
    manager.on_delegation(Delegation("d1", secret, secret), A)
    manager.on_pre_compress([message], 0, A)
    manager.on_session_end(A, "close", messages=[message])
    assert manager.flush(30)
    told = provider.calls + [
        ("", {"reader": call["reader"].messages()}) for call in provider.of("on_session_end")
    ]
    assert "[redacted]" in str(told)
    assert "sk-planted" not in str(told)
    expected = {
        *("on_turn_start", "prefetch", "queue_prefetch", "handle_tool_call", "sync_turn", "on_memory_write"),
        *("on_delegation", "on_pre_compress", "on_session_end"),
    }
    assert expected <= set(provider.hooks)


@pytest.mark.sqlite_only("the file of the outbox")
def test_the_file_of_the_outbox_holds_no_secret(open_manager: OpenManager, hermes_home: HermesHome) -> None:
    manager = open_manager(RecordingProvider(), redact=planted)
    manager.sync_all(make_turn("t1", "sk-planted"), A)
    files = [path.read_bytes() for path in hermes_home.path.glob("outbox.db*")]
    assert b"[redacted]" in b"".join(files)
    assert b"sk-planted" not in b"".join(files)

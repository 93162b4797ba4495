from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from hermes_core.config import Credentials
from hermes_core.contract.provider import contract_faults
from hermes_core.contract.values import (
    Delegation,
    MemoryWrite,
    Message,
    Query,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.errors import SetupFailed
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.memory import open_memory
from hermes_memory_foreign.adapter import HermesAgentProvider, adapt
from hermes_memory_foreign.environment import get_hermes_home
from hermes_memory_foreign.host_modules import HostMemoryProvider
from hermes_memory_foreign.registration import Registrations
from tests.published_provider import Bare, hooks_of

CLI = Session("s1", user_id="u", user_name="Una")
CHAT = Session("s2", platform="telegram", user_id="42", user_name="Mel", chat_id="7")
TURN = Turn("t1", 3, "hi", "hello", ({"role": "user", "content": "hi"},), author="Mel")


class Full(HostMemoryProvider, Bare):
    """Overrides one hook of the host's base class and inherits the rest."""

    name = "full"
    is_available = Bare.is_available
    initialize = Bare.initialize
    get_tool_schemas = Bare.get_tool_schemas

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        return f"{query} for {session_id}"


MADE: list[HermesAgentProvider] = []


@pytest.fixture(autouse=True)
def _shut_down() -> Iterator[None]:
    """What is active keeps HERMES_HOME in the environment."""
    yield
    while MADE:
        MADE.pop().shutdown()


def adapted(
    wrapped: Any, home: HermesHome, registrations: Registrations | None = None
) -> HermesAgentProvider:
    MADE.append(adapt(wrapped, "wrapped", home, registrations or Registrations()))
    return MADE[-1]


def with_method(name: str, function: Any) -> Bare:
    return type("Drifted", (Bare,), {name: function})()  # type: ignore[no-any-return]


def test_only_hooks_that_the_provider_has_are_claimed(hermes_home: HermesHome) -> None:
    always = {"is_available", "initialize", "get_tool_schemas", "shutdown"}
    assert hooks_of(adapted(Bare(), hermes_home)) == always
    assert hooks_of(adapted(Full(), hermes_home)) == always | {"prefetch"}


def test_an_adapter_keeps_the_contract(hermes_home: HermesHome) -> None:
    provider = adapted(Full(), hermes_home)
    assert contract_faults(provider) == []
    assert provider.capabilities.scope == "session"
    assert provider.name == "wrapped"


def test_two_adapters_do_not_share_what_they_claim(hermes_home: HermesHome) -> None:
    full, bare = adapted(Full(), hermes_home), adapted(Bare(), hermes_home)
    assert "prefetch" in hooks_of(full)
    assert "prefetch" not in hooks_of(bare)


def test_members_of_later_hosts_are_accepted_and_not_asked(hermes_home: HermesHome) -> None:
    class Later(Full):
        pre_compress_checkpoint_api_version = 2

        def _unasked(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nobody asks for this here")

        recall_status = get_status_config = on_session_start = initialize_for_inspection = _unasked
        describe_recall = checkpoint = post_setup = _unasked

    provider = adapted(Later(), hermes_home)
    assert contract_faults(provider) == []
    provider.initialize(CLI)
    assert provider.prefetch(Query("tea"), CLI).text == "tea for s1"


# ------------------------------------------------------------------------------------------------------- availability


@pytest.mark.parametrize(
    ("reason", "said"),
    [("no server", "no server"), (None, "it says that it can't run here"), (OSError(), "it says that it can't run here")],
)  # fmt: skip
def test_an_unavailable_provider_says_why(hermes_home: HermesHome, reason: Any, said: str) -> None:
    def unavailable_reason(self: Any) -> Any:
        if isinstance(reason, Exception):
            raise reason
        return reason

    wrapped = with_method("unavailable_reason", unavailable_reason)
    wrapped.is_available = lambda: False  # type: ignore[method-assign]
    answer = adapted(wrapped, hermes_home).is_available()
    assert not answer
    assert answer.reason == said


def test_settings_that_are_missing_are_named(hermes_home: HermesHome) -> None:
    fields = [
        {"key": "api_key", "secret": True, "required": True, "env_var": "DUCK_KEY", "url": "https://duck"},
        {
            "key": "limit",
            "type": "integer",
            "default": 5,
            "minimum": 1,
            "choices": [1, 5],
            "when": {"mode": "x"},
        },
        {"description": "no key"},
    ]
    wrapped = with_method("get_config_schema", lambda _self: fields)
    wrapped.is_available = lambda: False  # type: ignore[method-assign]
    provider = adapted(wrapped, hermes_home)
    key, limit = provider.settings
    assert (key.env, key.secret, key.required, key.url) == ("DUCK_KEY", True, True, "https://duck")
    assert (limit.type, limit.default, limit.minimum, limit.choices) == (int, 5, 1.0, ("1", "5"))
    assert limit.when == {"mode": "x"}
    assert provider.is_available().remedy == "set DUCK_KEY"


def test_only_secrets_that_are_not_set_are_asked_for(hermes_home: HermesHome) -> None:
    wanted = [
        {"key": "key", "env_var": "DUCK_KEY", "required": True},
        {"key": "pond", "env_var": "POND", "required": True},
    ]
    wrapped = with_method("get_config_schema", lambda _self: wanted)
    wrapped.is_available = lambda: False  # type: ignore[method-assign]
    provider = adapted(wrapped, hermes_home)
    Credentials(hermes_home).set("DUCK_KEY", "quack")
    assert provider.is_available().remedy == "set POND"
    Credentials(hermes_home).set("POND", "blue")
    assert provider.is_available().remedy == "hermes-memory memory setup wrapped, and see its documentation"


@pytest.mark.parametrize("schema", [None, [], lambda _self: 1 / 0])
def test_settings_that_cannot_be_read_are_none(hermes_home: HermesHome, schema: Any) -> None:
    function = schema if callable(schema) else lambda _self: schema
    assert adapted(with_method("get_config_schema", function), hermes_home).settings == ()


# --------------------------------------------------------------------------------------------------------- initialize


def test_initialize_is_told_home_and_identity(hermes_home: HermesHome) -> None:
    wrapped = Bare()
    adapted(wrapped, hermes_home).initialize(CHAT)
    ((session_id, facts),) = wrapped.calls
    assert session_id == "s2"
    assert facts["hermes_home"] == str(hermes_home.path)
    assert (facts["user_id"], facts["chat_id"], facts["agent_context"]) == ("42", "7", "primary")
    assert "parent_session_id" not in facts


HOME = Session("s3")
OWNER = dataclasses.replace(CHAT, is_owner=True)


@pytest.mark.parametrize("session", [HOME, OWNER])
def test_the_person_at_home_speaks_on_the_command_line(hermes_home: HermesHome, session: Session) -> None:
    wrapped = Bare()
    adapted(wrapped, hermes_home).initialize(session)
    facts = wrapped.calls[0][1]
    assert facts["platform"] == "cli"
    assert not {"user_id", "user_name", "chat_id"} & set(facts)


@pytest.mark.parametrize(
    ("session", "user"),
    [
        (CLI, "u"),
        (Session("s4", chat_id="7"), "cli/7"),
        (Session("s5", gateway_session_key="k"), "cli/gateway_session_key=k"),
    ],
)
def test_a_user_on_a_platform_of_the_machine_is_not_the_person_at_home(
    hermes_home: HermesHome, session: Session, user: str
) -> None:
    wrapped = Bare()
    adapted(wrapped, hermes_home).initialize(session)
    assert (wrapped.calls[0][1]["platform"], wrapped.calls[0][1]["user_id"]) == ("api", user)


@pytest.mark.parametrize(
    "initialize",
    [
        lambda self, **kwargs: self.calls.append(kwargs["session_id"]),
        lambda self, session_id="": self.calls.append(session_id),
        lambda self, session_id, peer_ids=None, hermes_home="": self.calls.append(session_id),
        lambda self, session, **_: self.calls.append(session),
        lambda self: self.calls.append("s1"),
    ],
)
def test_initialize_is_called_in_the_shape_it_has(hermes_home: HermesHome, initialize: Any) -> None:
    wrapped = with_method("initialize", initialize)
    adapted(wrapped, hermes_home).initialize(CLI)
    assert wrapped.calls == ["s1"]


# ----------------------------------------------------------------------------------------------------------- the turn


@pytest.mark.parametrize(
    ("sync_turn", "expected"),
    [
        (
            lambda self, user, assistant, *, session_id="": [user, assistant, session_id],
            ["hi", "hello", "s2"],
        ),
        (lambda self, user, assistant: [user, assistant], ["hi", "hello"]),
        (lambda self, u, a, **kw: sorted(kw), ["messages", "session_id", "turn_author"]),
        (lambda self, u, a, *, session_id, turn_id="", **kw: [turn_id, session_id], ["t1", "s2"]),
        (lambda self, u, a="", *, messages=None: messages, [{"role": "user", "content": "hi"}]),
        (lambda self, u, a, *, turn_author=None: turn_author, {"id": "42", "name": "Mel", "is_bot": False}),
        (lambda self, *texts, session_id="": [*texts, session_id], ["hi", "hello", "s2"]),
    ],
)
def test_a_turn_is_synced_in_the_shape_it_has(hermes_home: HermesHome, sync_turn: Any, expected: Any) -> None:
    got: list[Any] = []
    wrapped = with_method("sync_turn", _recording(sync_turn, got))
    adapted(wrapped, hermes_home).sync_turn(TURN, CHAT)
    assert got == [expected]


def _recording(function: Any, got: list[Any]) -> Any:
    """`function` with its own signature, its results kept."""

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> None:
        got.append(function(*args, **kwargs))

    return recorded


@pytest.mark.parametrize(
    ("prefetch", "expected"),
    [
        (lambda self, query, *, session_id="": f"{query} {session_id}", "tea s1"),
        (lambda self, query, *, session_id: f"{query} {session_id}", "tea s1"),
        (lambda self, query, domain="", **kw: f"{query} {domain}{kw['session_id']}", "tea s1"),
        (lambda self, user_message="", peers=None, query="", session_id="": f"{user_message} {session_id}", "tea s1"),
        (lambda self, query: None, ""),
        (lambda self, query: "  \n", ""),
        (lambda self, query: {"context": "tea"}, "tea"),
    ],
)  # fmt: skip
def test_recall_is_text_whatever_the_shape(hermes_home: HermesHome, prefetch: Any, expected: str) -> None:
    provider = adapted(with_method("prefetch", prefetch), hermes_home)
    recall = provider.prefetch(Query("tea"), CLI)
    assert recall.render() == expected
    assert bool(recall) is bool(expected)


def test_an_empty_answer_is_an_answer_and_is_not_asked_for_again(hermes_home: HermesHome) -> None:
    asked: list[str] = []

    class Warmed(Bare):
        def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
            self.calls.append(query)

        def prefetch(self, query: str, *, session_id: str = "") -> str:
            asked.append(query)
            return f"about {self.calls.pop()}" if self.calls else ""

    provider = adapted(Warmed(), hermes_home)
    assert not provider.prefetch(Query("tea"), CLI)
    assert (asked, provider.wrapped.calls) == (["tea"], [])
    provider.queue_prefetch(Query("coffee"), CLI)
    assert provider.prefetch(Query("tea"), CLI).text == "about coffee"
    assert asked == ["tea", "tea"]


def test_each_call_runs_in_the_home_of_the_provider(hermes_home: HermesHome) -> None:
    wrapped = with_method("system_prompt_block", lambda self: str(get_hermes_home()))
    assert adapted(wrapped, hermes_home).system_prompt_block() == str(hermes_home.path)


def test_turn_start_passes_the_speaker_to_whoever_takes_it(hermes_home: HermesHome) -> None:
    got: list[Any] = []
    plain = with_method(
        "on_turn_start", _recording(lambda self, turn, message, **kw: (turn, message, kw), got)
    )
    named = with_method("on_turn_start", _recording(lambda self, n, m, author_id="": author_id, got))
    adapted(plain, hermes_home).on_turn_start(1, "hi", CHAT, "")
    adapted(named, hermes_home).on_turn_start(1, "hi", CHAT, "")
    author = {"author_id": "42", "author_name": "Mel", "author_is_bot": False}
    assert got == [(1, "hi", author), "42"]


@pytest.mark.parametrize(
    ("author", "expected"),
    [
        ("bot:pond/heron", {"author_id": "bot:pond/heron", "author_name": "heron", "author_is_bot": True}),
        ("plugin:tides", {"author_id": "plugin:tides", "author_name": "tides", "author_is_bot": True}),
        ("Ida", {"author_id": "42", "author_name": "Ida", "author_is_bot": False}),
    ],
)
def test_turn_start_passes_the_author_that_the_host_names(
    hermes_home: HermesHome, author: str, expected: dict[str, object]
) -> None:
    got: list[Any] = []
    plain = with_method("on_turn_start", _recording(lambda self, turn, message, **kw: kw, got))
    adapted(plain, hermes_home).on_turn_start(1, "hi", CHAT, author)
    assert got == [expected]


# -------------------------------------------------------------------------------------------------------------- tools


@pytest.mark.parametrize(
    "raw",
    [
        {"name": "find", "description": "Finds", "parameters": {"properties": {"q": {}}}},
        {"type": "function", "function": {"name": "find", "description": "Finds", "parameters": {"properties": {"q": {}}}}},
        {"name": "find", "description": "Finds", "input_schema": {"type": "object", "properties": {"q": {}}}},
    ],
)  # fmt: skip
def test_schemas_of_every_form_become_one(hermes_home: HermesHome, raw: Any) -> None:
    wrapped = with_method("get_tool_schemas", lambda self: (raw,))
    parameters = {"type": "object", "properties": {"q": {}}}
    expected = [{"name": "find", "description": "Finds", "parameters": parameters}]
    assert adapted(wrapped, hermes_home).get_tool_schemas() == expected


@pytest.mark.parametrize(
    "raw", [{}, "find", None, {"name": ""}, {"function": {}}, {"name": "bad", "parameters": ["q"]}]
)
def test_a_malformed_schema_costs_that_tool_only(hermes_home: HermesHome, raw: Any) -> None:
    class Tools(Bare):
        def get_tool_schemas(self) -> Any:
            return [raw, {"name": "find", "description": "Finds", "parameters": {}}]

        def handle_tool_call(self, name: str, args: Any, **kwargs: Any) -> str:
            return f"called {name}"

    provider = adapted(Tools(), hermes_home)
    manager = MemoryManager(hermes_home)
    assert manager.add_provider(provider)
    manager.initialize_all(CLI)
    assert manager.get_all_tool_names() == {"find"}
    assert manager.handle_tool_call(ToolCall("find", {}), CLI) == "called find"
    [problem] = manager.problems()
    assert "is left out" in problem
    manager.shutdown_all()


@pytest.mark.parametrize(
    ("handle", "expected"),
    [
        (lambda self, name, args: f"{name} {args['q']}", "find tea"),
        (lambda self, tool_name, arguments, **kwargs: {"ok": True}, '{"ok": true}'),
        (lambda self, tool_name, args=None, *, session_id="": session_id, "s1"),
        (lambda self, name, args: None, ""),
    ],
)
def test_a_tool_is_called_in_the_shape_it_has(hermes_home: HermesHome, handle: Any, expected: str) -> None:
    provider = adapted(with_method("handle_tool_call", handle), hermes_home)
    assert provider.handle_tool_call(ToolCall("find", {"q": "tea"}), CLI) == expected


def test_tools_registered_beside_the_provider_are_offered_and_run(hermes_home: HermesHome) -> None:
    context = Registrations()
    context.register_tool(
        "brew", {"description": "Brews", "parameters": {}}, lambda args, **_: f"brewed {args['q']}"
    )
    context.register_tool(
        name="hot", toolset="t", schema={"name": "hot"}, handler=print, check_fn=lambda: False
    )
    context.register_tool("nothing")
    provider = adapted(Bare(), hermes_home, context)
    assert [schema["name"] for schema in provider.get_tool_schemas()] == ["brew"]
    assert provider.handle_tool_call(ToolCall("brew", {"q": "tea"}), CLI) == "brewed tea"
    assert context.warnings() == ("register_tool has no effect here",)


# --------------------------------------------------------------------------------------------------- writes, boundary

WRITE = MemoryWrite(
    "w", "replace", "user", "new", old_text="ol", previous="old", metadata={"tool_call_id": "c"}
)


def test_a_memory_write_carries_what_it_replaces(hermes_home: HermesHome) -> None:
    got: list[Any] = []
    shape = _recording(
        lambda self, action, target, content, metadata=None: (action, target, content, metadata), got
    )
    adapted(with_method("on_memory_write", shape), hermes_home).on_memory_write(WRITE, CHAT)
    ((action, target, content, metadata),) = got
    assert (action, target, content) == ("replace", "user", "new")
    assert metadata["old_text"] == "ol"
    assert metadata["previous_content"] == "old"
    assert (metadata["session_id"], metadata["tool_call_id"]) == ("s2", "c")
    assert "parent_session_id" not in metadata


@pytest.mark.parametrize(
    "shape",
    [lambda self, action, target, content: None, lambda self, action, target, content, **kw: None],
)
def test_a_memory_write_reaches_older_shapes(hermes_home: HermesHome, shape: Any) -> None:
    got: list[Any] = []
    adapted(with_method("on_memory_write", _recording(shape, got)), hermes_home).on_memory_write(WRITE, CHAT)
    assert got == [None]


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        (
            SessionSwitch("x", CLI, CHAT, "new", reset=True),
            {"parent_session_id": "s1", "reset": True, "reason": "new_session"},
        ),
        (
            SessionSwitch("x", CLI, CHAT, "compression"),
            {"parent_session_id": "s1", "reset": False, "reason": "compression"},
        ),
        (
            SessionSwitch("x", CLI, CLI, "rewind", rewound_turns=("t1",)),
            {"parent_session_id": "", "reset": False, "reason": "rewind", "rewound": True},
        ),
    ],
    ids=["new", "compression", "rewind"],
)
def test_a_switch_says_rewound_only_when_turns_were_taken_back(
    hermes_home: HermesHome, switch: SessionSwitch, expected: dict[str, Any]
) -> None:
    got: list[Any] = []
    shape = _recording(lambda self, new_session_id, **kw: (new_session_id, kw), got)
    adapted(with_method("on_session_switch", shape), hermes_home).on_session_switch(switch)
    assert got == [(switch.new.id, expected)]


class Reader:
    def messages(self) -> Sequence[Message]:
        return [{"role": "user", "content": "hi"}]


def test_the_end_of_a_session_brings_all_its_messages(hermes_home: HermesHome) -> None:
    got: list[Any] = []
    shape = _recording(lambda self, messages, session_id="": (messages, session_id), got)
    adapted(with_method("on_session_end", shape), hermes_home).on_session_end(Reader(), "close", CLI)
    assert got == [([{"role": "user", "content": "hi"}], "s1")]


def test_delegation_and_compression_pass_in_their_shapes(hermes_home: HermesHome) -> None:
    got: list[Any] = []
    required = _recording(
        lambda self, task, result, *, session_id, target_agent="": (task, result, session_id), got
    )
    adapted(with_method("on_delegation", required), hermes_home).on_delegation(Delegation("d", "a", "b"), CLI)
    assert got == [("a", "b", "s1")]
    strict = with_method("on_pre_compress", lambda self, messages, *, require_checkpoint: "kept")
    assert adapted(strict, hermes_home).on_pre_compress([]) == "kept"
    silent = adapted(with_method("on_pre_compress", lambda self, messages, **kw: None), hermes_home)
    assert silent.on_pre_compress([{"role": "user", "content": "hi"}]) == ""


def test_backup_paths_and_settings_are_handed_through(hermes_home: HermesHome) -> None:
    class Store(Bare):
        def backup_paths(self) -> Any:
            return None

        def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
            self.calls.append((values, hermes_home))

    wrapped = Store()
    provider = adapted(wrapped, hermes_home)
    provider.store_settings({"limit": 5})
    assert provider.backup_paths() == []
    assert wrapped.calls == [({"limit": 5}, str(hermes_home.path))]


def test_settings_that_a_provider_refuses_to_keep_are_told_in_a_line(hermes_home: HermesHome) -> None:
    wrapped = with_method("save_config", lambda self, values, home: int(values["limit"]))
    with pytest.raises(
        SetupFailed, match="'wrapped' does not keep these settings: ValueError: invalid literal"
    ):
        adapted(wrapped, hermes_home).store_settings({"limit": "many"})


PATIENT = """
from agent.memory_provider import MemoryProvider


class Patient(MemoryProvider):
    name = "patient"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return []


def register(ctx):
    ctx.register_memory_provider(Patient())
"""


@pytest.mark.parametrize(("config", "seconds"), [("", 8.0), ("recall:\n  deadline: 5\n", 5.0)])
def test_the_recall_of_a_published_provider_has_eight_seconds_unless_configured(
    hermes_home: HermesHome, config: str, seconds: float
) -> None:
    folder = hermes_home.plugins / "patient"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PATIENT)
    hermes_home.config_yaml.write_text(f"memory:\n  provider: patient\n{config}")
    with open_memory(hermes_home) as memory:
        assert memory.problems() == []
        [handle] = memory.manager._registry.external
        assert handle.deadlines["prefetch"] == seconds
        assert handle.deadlines["sync_turn"] == 60.0
    with open_memory(hermes_home, deadlines={"prefetch": 2.0}) as memory:
        assert memory.manager._registry.external[0].deadlines["prefetch"] == 2.0

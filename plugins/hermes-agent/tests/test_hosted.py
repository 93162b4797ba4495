from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_core import register_in_hermes_agent
from hermes_core.contract.hooks import HOOK_NAMES
from hermes_core.contract.values import Availability
from hermes_core.errors import BackendUnavailable, ConfigError
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_memory_foreign.export import HostedProvider
from hermes_memory_foreign.host_modules import HostMemoryProvider
from hermes_memory_testing import RecordingProvider
from tests.manager.conftest import until

Register = Callable[[], HostedProvider]
IDENTITY = {"hermes_home": "", "platform": "cli", "agent_context": "primary"}
USER = {"role": "user", "content": [{"type": "text", "text": "tea?"}, {"type": "image_url", "image_url": {}}]}
TURN = [{"role": "user", "content": "before"}, USER, {"role": "assistant", "content": "tea."}]


DIARY = """
'A MemoryProvider that records.'
from hermes_core import Field
from hermes_memory_testing import RecordingProvider

MADE = []
RESULTS = {}


class Diary(RecordingProvider):
    name = "diary"
    settings = (
        Field("bank", default="main", identity=True, help="Whose diary"),
        Field("limit", int, 0, minimum=0, maximum=9, env="DIARY_LIMIT"),
        Field("loud", bool, False),
        Field("key", env="DIARY_KEY", secret=True, required=True, url="https://diary.example"),
        Field("names", dict),
        Field("pages", list),
        Field("ink", advanced=True),
    )

    def __init__(self):
        super().__init__()
        self.results.update(RESULTS)
        MADE.append(self)
"""


class Ctx:
    """What Hermes Agent 0.19 gives to `register`."""

    provider: Any = None

    def register_memory_provider(self, provider: Any) -> None:
        self.provider = provider


@pytest.fixture
def register(
    hermes_home: HermesHome, install_plugin: Callable[..., Any], host_modules: None
) -> Iterator[Callable[[], HostedProvider]]:
    """What the host holds after `register(ctx)`, as often as it calls that."""
    install_plugin("diary", DIARY)
    given: list[HostedProvider] = []

    def call() -> HostedProvider:
        ctx = Ctx()
        register_in_hermes_agent(ctx, "diary")
        given.append(ctx.provider)
        return given[-1]

    yield call
    for hosted in given:
        hosted.shutdown()


def diary_module() -> Any:
    """The module of the provider, once it is loaded."""
    return next(
        module for name, module in sys.modules.items() if name.startswith("_hermes_user_memory.diary")
    )


@pytest.fixture
def hosted(register: Register, hermes_home: HermesHome) -> HostedProvider:
    """Started as Hermes Agent 0.19 does it: asked, its tools read twice, then initialized."""
    provider = register()
    assert provider.is_available()
    provider.get_tool_schemas()
    provider.get_tool_schemas()
    provider.initialize(**{**IDENTITY, "hermes_home": str(hermes_home.path), "session_id": "s1"})
    return provider


def inside() -> RecordingProvider:
    """Our provider behind it; the first was only asked whether it can run."""
    return diary_module().MADE[-1]  # type: ignore[no-any-return]


def heard(hook: str) -> list[dict[str, Any]]:
    return [arguments for called, arguments in inside().calls if called == hook]


def test_calls_of_several_threads_start_one_manager(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, both = [], threading.Barrier(2, timeout=0.3)

    class Slow(MemoryManager):
        def __init__(self, home: HermesHome) -> None:
            made.append(self)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait()
            super().__init__(home)

    monkeypatch.setattr("hermes_memory_foreign.export.MemoryManager", Slow)
    provider = register()
    calls = [threading.Thread(target=provider.get_tool_schemas) for _ in range(2)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    provider.shutdown()
    assert len(made) == 1


# -------------------------------------------------------------------------------------------------------------- shape


def members() -> list[str]:
    return [name for name in dir(HostMemoryProvider) if not name.startswith("_") and name != "name"]


@pytest.mark.parametrize(
    "member", [name for name in members() if callable(getattr(HostMemoryProvider, name))]
)
def test_every_method_of_the_host_takes_what_the_host_passes(member: str, register: Register) -> None:
    provider = register()
    assert isinstance(provider, HostMemoryProvider)
    ours = inspect.signature(getattr(type(provider), member)).parameters
    for name, parameter in inspect.signature(getattr(HostMemoryProvider, member)).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            assert name in ours or any(p.kind is p.VAR_KEYWORD for p in ours.values())


def test_what_a_later_host_adds_is_answered_by_its_own_base(register: Register) -> None:
    assert register().recall_status() is None  # type: ignore[attr-defined]


def test_it_is_called_otherwise_than_the_hosts_own(register: Register) -> None:
    assert register().name == "core-diary"


def test_without_a_host_it_stands_alone(
    hermes_home: HermesHome, install_plugin: Callable[..., Any], no_host_modules: None
) -> None:
    from hermes_memory_foreign.export import exported_provider

    assert type(exported_provider("diary")) is HostedProvider


# --------------------------------------------------------------------------------------------------------------- life


def test_a_turn_reaches_the_provider_with_its_own_messages(hosted: HostedProvider) -> None:
    before = time.time()
    hosted.on_turn_start(4, "tea?", remaining_tokens=10)
    hosted.sync_turn("tea?", "tea.", session_id="s1", messages=TURN, turn_author={"name": "Mel"})
    hosted.shutdown()
    (told,) = heard("sync_turn")
    turn = told["turn"]
    assert (turn.number, turn.user, turn.assistant, turn.author) == (4, "tea?", "tea.", "Mel")
    assert before <= turn.at <= time.time(), "backends refuse or misdate a turn without a time"
    assert [message["content"] for message in turn.messages] == ["tea?", "tea."]
    assert told["session"].id == "s1"


@pytest.mark.parametrize(
    ("identity", "name", "is_bot", "author"),
    [
        ("42", "Mel", False, "Mel"),
        ("bot:pond/heron", "Heron", True, "bot:pond/heron"),
        (None, None, False, ""),
    ],
)
def test_the_author_of_a_turn_reaches_its_start_and_its_end(
    hosted: HostedProvider, identity: str | None, name: str | None, is_bot: bool, author: str
) -> None:
    hosted.on_turn_start(1, "tea?", author_id=identity, author_name=name, author_is_bot=is_bot)
    told = {"id": identity, "name": name, "is_bot": is_bot}
    hosted.sync_turn("tea?", "tea.", session_id="s1", turn_author=told)
    hosted.shutdown()
    assert [call["author"] for call in heard("on_turn_start")] == [author]
    assert [call["turn"].author for call in heard("sync_turn")] == [author]


def test_recall_and_tools_come_back_as_text(hosted: HostedProvider) -> None:
    inside().results |= {"prefetch": "likes tea", "handle_tool_call": '{"ok": true}'}
    assert hosted.prefetch("tea?", session_id="s2") == "likes tea"
    assert heard("prefetch")[0]["session"].id == "s2"
    assert hosted.handle_tool_call("fake_remember", {"fact": "tea"}, task_id="x") == '{"ok": true}'
    assert hosted.get_tool_schemas()[0]["name"] == "fake_remember"
    inside().results["system_prompt_block"] = "Diary."
    assert hosted.system_prompt_block() == "[The memory provider diary says:]\nDiary."


def test_a_mirrored_write_says_what_it_replaces(hosted: HostedProvider) -> None:
    facts = {"old_text": "coffee", "previous_content": "Likes coffee.", "task_id": "7", "odd": 3}
    hosted.on_memory_write("replace", "user", "Likes tea.", facts)
    hosted.on_memory_write("add", "memory", "Uses Linux.")
    hosted.shutdown()
    first, second = (told["write"] for told in heard("on_memory_write"))
    assert (first.action, first.old_text, first.previous) == ("replace", "coffee", "Likes coffee.")
    assert dict(first.metadata) == {"task_id": "7"}
    assert (second.target, second.content, second.id != first.id) == ("memory", "Uses Linux.", True)


@pytest.mark.parametrize(
    ("facts", "reason", "new"),
    [
        ({"reset": True, "reason": "new_session"}, "new", "s2"),
        ({"reason": "resume"}, "resume", "s2"),
        ({"parent_session_id": "s1", "reason": "compression"}, "compression", "s2"),
        ({"reset": True}, "reset", "s2"),
        ({"rewound": True}, "rewind", "s1"),
    ],
)
def test_an_end_comes_before_the_switch(hosted: HostedProvider, facts: Any, reason: str, new: str) -> None:
    hosted.sync_turn("tea?", "tea.", session_id="s1")
    hosted.on_session_end(TURN)
    hosted.on_session_switch("s2" if new == "s2" else "s1", **facts)
    hosted.on_turn_start(1, "next")
    hosted.prefetch("next")
    hosted.shutdown()
    order = [hook for hook in inside().hooks if hook in ("sync_turn", "on_session_end", "on_session_switch")]
    assert order == ["sync_turn", "on_session_end", "on_session_switch"]
    switch = heard("on_session_switch")[0]["switch"]
    assert (switch.old.id, switch.new.id, switch.reason) == ("s1", new, reason)
    assert heard("prefetch")[0]["session"].id == new


def test_a_summary_gets_what_the_provider_keeps_and_how_often_it_was_asked(hosted: HostedProvider) -> None:
    inside().results["on_pre_compress"] = "Tea matters."
    assert [hosted.on_pre_compress(TURN, require_checkpoint=False) for _ in range(2)] == ["Tea matters."] * 2
    assert [told["compression_count"] for told in heard("on_pre_compress")] == [0, 1]


def test_a_delegation_is_told(hosted: HostedProvider) -> None:
    hosted.on_delegation("boil water", "boiled", child_session_id="c1", extra=1)
    hosted.shutdown()
    (told,) = heard("on_delegation")
    assert (told["delegation"].task, told["delegation"].child_session_id) == ("boil water", "c1")


@pytest.mark.parametrize("context", ["cron", "something new"])
def test_no_write_leaves_a_session_without_a_person(
    register: Register, context: str, hermes_home: HermesHome
) -> None:
    provider = register()
    provider.initialize("s1", agent_context=context, platform="cli", hermes_home=str(hermes_home.path))
    provider.sync_turn("tea?", "tea.")
    provider.shutdown()
    assert heard("sync_turn") == []


def test_who_speaks_in_a_chat_is_told(register: Register, hermes_home: HermesHome) -> None:
    facts = {
        "platform": "telegram",
        "user_id": 42,
        "user_name": "Mel",
        "chat_id": "7",
        "agent_identity": "work",
    }
    provider = register()
    provider.initialize(session_id="s1", hermes_home=str(hermes_home.path), **facts, status_callback=print)
    assert heard("initialize")[0]["session"].scope == '["work", "telegram", "42", "7"]'


def test_every_hook_of_a_turn_and_of_a_boundary_has_its_way_in(hosted: HostedProvider) -> None:
    hosted.on_turn_start(1, "tea?")
    hosted.prefetch("tea?")
    hosted.queue_prefetch("tea?")
    hosted.handle_tool_call("fake_remember", {})
    hosted.system_prompt_block()
    hosted.sync_turn("tea?", "tea.")
    hosted.on_memory_write("add", "user", "tea")
    hosted.on_delegation("a", "b")
    hosted.on_pre_compress(TURN)
    hosted.on_session_end(TURN)
    hosted.on_session_switch("s2")
    hosted.backup_paths()
    hosted.shutdown()
    everywhere = {hook for made in diary_module().MADE for hook in made.hooks}
    assert HOOK_NAMES - everywhere == {
        "check",
        "export_memories",
        "forget_user",
        "import_memory",
        "pending_writes",
        "register_cli",
    }


# ---------------------------------------------------------------------------------------------------------- durability


def test_what_the_backend_did_not_take_goes_out_with_the_next_process(
    register: Register, hosted: HostedProvider
) -> None:
    inside().results["sync_turn"] = BackendUnavailable("down")
    hosted.sync_turn("tea?", "tea.", session_id="s1")
    hosted.shutdown()
    later = register()
    later.initialize("s2")
    assert until(lambda: heard("sync_turn"), 60)  # after the pause that follows a failed try
    later.shutdown()
    assert [told["turn"].user for told in heard("sync_turn")] == ["tea?"]


def test_two_agents_of_a_gateway_share_one_outbox_and_lose_nothing(
    register: Register, hosted: HostedProvider
) -> None:
    other = register()
    other.initialize("s2", platform="telegram", user_id="42")
    for number in range(3):
        hosted.sync_turn(f"a{number}", "tea.", session_id="s1")
        other.sync_turn(f"b{number}", "tea.", session_id="s2")
    hosted.shutdown()
    other.sync_turn("b3", "tea.", session_id="s2")
    other.shutdown()
    sent = [
        arguments["turn"].user
        for made in diary_module().MADE
        for hook, arguments in made.calls
        if hook == "sync_turn"
    ]
    assert sorted(sent) == ["a0", "a1", "a2", "b0", "b1", "b2", "b3"]


# ---------------------------------------------------------------------------------------------------------------- setup


def test_settings_are_described_kept_and_shown(hosted: HostedProvider, hermes_home: HermesHome) -> None:
    bank, limit, loud, key, *objects = hosted.get_config_schema()
    assert bank == {"key": "bank", "description": "Whose diary", "type": "text", "default": "main"}
    assert limit == {"key": "limit", "type": "integer", "default": 0, "minimum": 0, "maximum": 9}
    assert (loud["type"], loud["default"]) == ("boolean", False)
    assert (key["secret"], key["env_var"], key["required"]) == (True, "DIARY_KEY", True)
    assert objects == [{"key": "names", "type": "text"}, {"key": "pages", "type": "text"}]
    given = {"limit": "5", "key": "s3cret", "other": 1, "bank": "", "names": '{"mel": 1}', "pages": "[2]"}
    hosted.save_config(given, str(hermes_home.path))
    shown = hosted.get_status_config({})
    assert (shown["limit"], shown["names"], shown["pages"]) == (5, {"mel": 1}, [2])
    assert "s3cret" not in hermes_home.provider_json("diary").read_text()
    with pytest.raises(ConfigError, match="'limit'"):
        hosted.save_config({"limit": 50}, str(hermes_home.path))


def test_one_that_can_not_run_says_why(register: Register) -> None:
    provider = register()
    provider.is_available()
    diary_module().RESULTS["is_available"] = False
    assert not provider.is_available()
    assert provider.unavailable_reason()


def test_why_one_can_not_run_holds_no_secret(register: Register) -> None:
    provider = register()
    provider.is_available()
    diary_module().RESULTS["is_available"] = Availability.no("it is down", "start http://ann:hunter22@db/v1")
    assert not provider.is_available()
    assert provider.unavailable_reason() == "it is down; start http://ann:[redacted:password]@db/v1"


def test_one_that_is_not_installed_says_so(hermes_home: HermesHome, host_modules: None, absent: str) -> None:
    from hermes_memory_foreign.export import exported_provider

    provider = exported_provider(absent)
    assert not provider.is_available()
    assert "hermes-memory memory setup absent" in provider.unavailable_reason()

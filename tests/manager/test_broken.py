"""Providers that are broken in one way or another: each is shown with its reason, and the turn goes on."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hermes_core.contract.hooks import hookimpl
from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import (
    Capabilities,
    Delegation,
    MemoryWrite,
    Message,
    Query,
    Recall,
    RecallItem,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager, ProviderHealth
from hermes_core.storage.sqlite import Database
from hermes_memory_testing.fakes import (
    Clock,
    HangingProvider,
    MisspeltProvider,
    RaisingProvider,
    RecordingProvider,
    UnconstructableProvider,
    WrongTypesProvider,
    make_session,
    make_turn,
)
from tests.manager.conftest import until

OpenManager = Callable[..., MemoryManager]

A, B = make_session("a"), make_session("b")
SHORT = dict.fromkeys(
    [
        "get_tool_schemas",
        "system_prompt_block",
        "on_turn_start",
        "prefetch",
        "queue_prefetch",
        "handle_tool_call",
        "on_pre_compress",
        "sync_turn",
        "on_memory_write",
        "on_delegation",
        "on_session_end",
        "on_session_switch",
        "shutdown",
    ],
    0.05,
)


def whole_life(manager: MemoryManager) -> dict[str, Any]:
    """Call everything once, as a host does; what the host gets to see."""
    manager.initialize_all(A)
    manager.on_turn_start(1, "hi", A)
    seen = {
        "prompt": manager.build_system_prompt(A),
        "recall": manager.prefetch_all(Query("tea"), A),
        "tool": manager.handle_tool_call(ToolCall("fake_remember", {"fact": "tea"}), A),
        "compress": manager.on_pre_compress([Message(role="user", content="hi")], 0, A),
    }
    manager.sync_all(make_turn(), A)
    manager.queue_prefetch_all(Query("tea"), A)
    manager.on_memory_write(MemoryWrite("w1", "add", "memory", "tea"), A)
    manager.on_delegation(Delegation("d1", "task", "result"), A)
    manager.on_session_end(A, "new", messages=[])
    manager.on_session_switch(SessionSwitch("x1", A, B, "new"))
    return seen


def only(manager: MemoryManager) -> ProviderHealth:
    (health,) = manager.health()
    return health


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1), KeyboardInterrupt()])
def test_a_provider_that_raises_in_every_hook_breaks_nothing(
    open_manager: OpenManager, error: BaseException
) -> None:
    manager = open_manager(RaisingProvider(error))
    seen = whole_life(manager)
    assert (seen["prompt"], seen["compress"], seen["recall"].contexts) == ("", "", [])
    assert type(error).__name__ in json.loads(seen["tool"])["error"]
    assert type(error).__name__ in only(manager).last_error
    assert until(lambda: manager.flush(0.1) or only(manager).failed >= 4)
    assert only(manager).depth == 5


def test_a_provider_that_hangs_in_every_hook_holds_no_turn(open_manager: OpenManager) -> None:
    provider = HangingProvider()
    manager = open_manager(provider, deadlines=SHORT, clock=time.monotonic)
    began = time.monotonic()
    seen = whole_life(manager)
    assert time.monotonic() - began < 10
    assert (seen["prompt"], seen["compress"], seen["recall"].contexts) == ("", "", [])
    assert "error" in json.loads(seen["tool"])
    assert "prefetch" in seen["recall"].parts[0].reason
    assert only(manager).state == "degraded"
    assert only(manager).depth == 5
    provider.release()
    assert manager.flush(30)


def test_a_provider_of_wrong_types_everywhere_breaks_nothing(open_manager: OpenManager) -> None:
    manager = open_manager(WrongTypesProvider())
    seen = whole_life(manager)
    assert (seen["prompt"], seen["compress"], seen["recall"].contexts) == ("", "", [])
    assert "returned a object" in json.loads(seen["tool"])["error"]
    assert manager.flush(30)
    assert only(manager).breakers == {"read": "closed", "write": "closed"}


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("text", b"tea", "text of a RecallItem is a bytes; make it a str"),
        ("when", 1.7e9, "when of a RecallItem is a float; make it a str"),
        ("score", "high", "score of a RecallItem is a str; make it a float"),
        ("id", 7, "id of a RecallItem is a int; make it a str"),
    ],
)
def test_a_recall_whose_parts_are_of_a_wrong_type_fails_with_the_name_of_the_part(
    open_manager: OpenManager, field: str, value: Any, told: str
) -> None:
    class Wrong(MemoryProvider):
        name = "wrong"

        def prefetch(self) -> Recall:
            return Recall((RecallItem(**{"text": "tea", field: value}),))

    manager = open_manager(Wrong())
    manager.initialize_all(A)
    (part,) = manager.prefetch_all(Query("Which tea?"), A).parts
    assert told in part.reason


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        (RaisingProvider(well=frozenset()), "is_available: RuntimeError: broken on purpose"),
        (HangingProvider(well=frozenset()), "is_available: no answer within 0.5 s"),
        (WrongTypesProvider(3, well=frozenset()), "is_available: returned a int"),
        (UnconstructableProvider, "could not be constructed: ImportError: no module named 'vendor_sdk'"),
        (MisspeltProvider, "prefech() is no hook: did you mean prefetch()?"),
        (lambda: object(), "it has no name"),
        (lambda: None, "it is None: return the provider"),
    ],
)
def test_a_provider_that_cannot_be_held_is_shown_with_its_reason(
    open_manager: OpenManager, provider: object, reason: str
) -> None:
    manager = open_manager(deadlines={"is_available": 0.5})
    assert not manager.add_provider(provider, name="chosen")
    assert (only(manager).name, only(manager).state) == ("chosen", "failed")
    assert reason in only(manager).reason
    assert manager.prefetch_all(Query("tea"), A).parts == ()
    assert manager.add_provider(RecordingProvider())
    if isinstance(provider, HangingProvider):
        provider.release()


def test_a_wrong_parameter_is_refused_by_name(open_manager: OpenManager) -> None:
    class Wrong(MemoryProvider):
        name = "wrong"

        def prefetch(self, question: str) -> str:
            return question

    manager = open_manager(Wrong())
    assert only(manager).state == "failed"
    assert "question" in only(manager).reason


def test_a_keyword_only_parameter_is_refused_with_what_to_write(open_manager: OpenManager) -> None:
    class Legacy(MemoryProvider):
        name = "legacy"

        def prefetch(self, query: Query, *, session_id: str = "") -> str:
            return session_id

    assert "remove the *" in only(open_manager(Legacy())).reason


def test_an_unmarked_hook_of_a_plain_object_is_refused(open_manager: OpenManager) -> None:
    class Plain:
        name = "plain"

        @hookimpl
        def sync_turn(self, turn: Turn) -> None: ...

        def prefetch(self, query: Query) -> str:
            return query.text

    assert "write @hookimpl above it" in only(open_manager(Plain())).reason


def test_capabilities_of_a_wrong_type_are_refused(open_manager: OpenManager) -> None:
    class Wrong(MemoryProvider):
        name = "wrong"
        capabilities = "serial"  # type: ignore[assignment]

    assert "set it to Capabilities" in only(open_manager(Wrong())).reason


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"scope": "Session"}, "scope of its capabilities is 'Session'; set it to 'process' or 'session'"),
        ({"serial": "no"}, "serial of its capabilities is 'no'"),
        ({"concurrent": 0}, "concurrent of its capabilities is 0; set it to the number of reads"),
        ({"concurrent": True}, "concurrent of its capabilities is True"),
        ({"slow_prefetch": "yes"}, "slow_prefetch of its capabilities is 'yes'"),
        ({"tool_names": "diary_find"}, "tool_names of its capabilities is 'diary_find'"),
        ({"tool_aliases": ["find"]}, "tool_aliases of its capabilities is ['find']"),
        ({"suppresses_local_writes": "user"}, "suppresses_local_writes of its capabilities is 'user'"),
        ({"suppresses_local_writes": {"users": True}}, "is {'users': True}; set it to True, False or"),
    ],
)
def test_a_capability_that_is_none_is_refused(
    open_manager: OpenManager, given: dict[str, Any], told: str
) -> None:
    class Wrong(RecordingProvider):
        capabilities = Capabilities(**given)

    assert told in only(open_manager(Wrong())).reason


def test_schemas_that_fail_cost_the_tools_not_the_provider(open_manager: OpenManager) -> None:
    manager = open_manager(RaisingProvider(well=frozenset({"is_available", "initialize"})))
    manager.initialize_all(A)
    assert manager.get_all_tool_schemas() == []
    assert only(manager).state == "active"
    assert "offers no tools" in only(manager).warnings[0]


def test_a_failed_initialize_is_shown_and_writes_wait(open_manager: OpenManager, clock: Clock) -> None:
    provider = RaisingProvider(well=frozenset({"is_available", "get_tool_schemas"}))
    manager = open_manager(provider)
    seen = whole_life(manager)
    assert only(manager).state == "failed"
    assert "initialize: RuntimeError: broken on purpose" in only(manager).reason
    assert "broken on purpose" in json.loads(seen["tool"])["error"]
    assert only(manager).depth == 5


def test_an_initialize_that_failed_is_tried_again_after_a_while(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = RecordingProvider()
    provider.results["initialize"] = OSError("unreachable")
    manager = open_manager(provider)
    manager.initialize_all(A)
    provider.results.clear()
    manager.prefetch_all(Query("tea"), A)
    assert provider.hooks.count("initialize") == 1
    clock.advance(60)
    manager.prefetch_all(Query("tea"), A)
    assert provider.wait_for("initialize", 2)
    manager.initialize_all(A)
    assert only(manager).state == "active"


def test_an_initialize_that_ends_after_the_shutdown_is_shut_down(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["initialize"] = threading.Event()
    manager = open_manager(provider, start_wait=0.01)
    manager.initialize_all(A)
    manager.shutdown_all(1)
    assert "shutdown" not in provider.hooks
    gate.set()
    assert provider.wait_for("shutdown")
    assert provider.hooks.count("shutdown") == 1


def test_no_write_goes_to_a_provider_that_is_shut_down_after_its_initialize(
    open_manager: OpenManager,
) -> None:
    provider, reads, read = RecordingProvider(), threading.Event(), threading.Event()
    start, end = provider.gates["initialize"], provider.gates["shutdown"] = (
        threading.Event(),
        threading.Event(),
    )

    def transcripts(session_id: str, last: int | None) -> list[Message]:
        reads.set()
        read.wait()
        return []

    manager = open_manager(provider, start_wait=0.01, transcripts=transcripts)
    manager.initialize_all(A)
    manager.on_session_end(A, "close", 5)
    assert reads.wait(30)
    (worker,) = manager.writes._workers.values()
    manager.shutdown_all(0.3)
    start.set()
    assert provider.wait_for("shutdown")
    read.set()
    assert worker._thread is not None
    worker._thread.join(30)
    end.set()
    assert "on_session_end" not in provider.hooks


def test_an_initialize_that_failed_is_shut_down_once(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["initialize"] = OSError("unreachable")
    manager = open_manager(provider)
    manager.initialize_all(A)
    manager.shutdown_all(1)
    assert provider.hooks[-2:] == ["initialize", "shutdown"]


def test_what_was_never_initialized_is_not_shut_down(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    open_manager(provider).shutdown_all(1)
    assert "shutdown" not in provider.hooks


def test_an_initialize_that_runs_at_the_end_is_waited_for_as_a_start_is(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["initialize"] = threading.Event()
    manager = open_manager(provider, start_wait=30)
    manager.initialize_all(A, wait=0)
    threading.Timer(0.05, gate.set).start()
    manager.shutdown_all(30)
    assert provider.hooks[-1] == "shutdown"


def test_a_coroutine_that_initializes_at_the_end_is_cancelled_and_shut_down(
    open_manager: OpenManager,
) -> None:
    import asyncio

    told: list[str] = []
    began = threading.Event()

    class Server(MemoryProvider):
        name = "server"

        async def initialize(self) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                told.append("cancelled")

        async def shutdown(self) -> None:
            told.append("shut down")

    manager = open_manager(Server(), start_wait=0.01)
    manager.initialize_all(A)
    assert began.wait(30)
    manager.shutdown_all(5)
    assert told == ["cancelled", "shut down"]


def test_ctrl_c_at_the_end_ends_the_wait_for_writes_and_not_the_shutdown(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["sync_turn"] = threading.Event()
    manager = open_manager(provider)
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1"), A)
    assert provider.wait_for("sync_turn")

    def press() -> None:
        signal.raise_signal(signal.SIGINT)
        gate.set()

    threading.Timer(0.1, press).start()
    with pytest.raises(KeyboardInterrupt):
        manager.shutdown_all(10)
    assert provider.hooks[-1] == "shutdown"


def test_a_recall_under_way_at_the_end_holds_up_no_shutdown(open_manager: OpenManager) -> None:
    import asyncio

    class Slow(RecordingProvider):
        async def queue_prefetch(self, query: Query, session: Any) -> None:  # type: ignore[override]
            self.answer("queue_prefetch", query=query, session=session)
            await asyncio.Event().wait()

    provider = Slow()
    manager = open_manager(provider)
    manager.initialize_all(A)
    manager.queue_prefetch_all(Query("tea"), A)
    assert provider.wait_for("queue_prefetch")
    manager.shutdown_all(1)
    assert provider.hooks[-1] == "shutdown"
    assert only(manager).late + only(manager).failed == 0


def test_a_coroutine_that_writes_at_the_end_is_cancelled_and_written_next_time(
    open_manager: OpenManager,
) -> None:
    import asyncio

    told: list[str] = []

    class Slow(MemoryProvider):
        name = "slow"

        def __init__(self, slow: bool) -> None:
            self.slow = slow

        async def sync_turn(self, turn: Turn) -> None:
            told.append(turn.id)
            if self.slow:
                await asyncio.Event().wait()

        async def shutdown(self) -> None:
            told.append("shut down")

    manager = open_manager(Slow(True))
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1"), A)
    assert until(lambda: told == ["t1"])
    manager.shutdown_all(0.5)
    assert until(lambda: told == ["t1", "shut down"])
    after = open_manager(Slow(False))
    after.initialize_all(A)
    assert after.flush(30)
    assert told == ["t1", "shut down", "t1"]


def test_a_sqlite_connection_of_initialize_works_in_prefetch(open_manager: OpenManager) -> None:
    class Local(MemoryProvider):
        name = "local"

        def initialize(self) -> None:
            self.connection = sqlite3.connect(":memory:")
            self.connection.execute("CREATE TABLE facts (text)")

        def prefetch(self) -> str:
            self.connection.execute("INSERT INTO facts VALUES ('tea')")
            return str(self.connection.execute("SELECT text FROM facts").fetchone()[0])

        def shutdown(self) -> None:
            self.connection.close()

    manager = open_manager(Local())
    manager.initialize_all(A)
    assert manager.prefetch_all(Query("tea"), A).contexts == [("local", "tea")]
    manager.shutdown_all(5)
    assert only(manager).failed == 0


def test_a_sqlite_connection_of_initialize_is_refused_on_the_write_lane_with_what_to_do(
    open_manager: OpenManager,
) -> None:
    class Local(MemoryProvider):
        name = "local"

        def initialize(self) -> None:
            self.connection = sqlite3.connect(":memory:")

        def sync_turn(self) -> None:
            self.connection.execute("SELECT 1")

        def shutdown(self) -> None:
            self.connection.close()

    manager = open_manager(Local())
    manager.initialize_all(A)
    manager.sync_all(make_turn(), A)
    assert until(lambda: manager.flush(0.1) or only(manager).last_error)
    assert "hermes_core.kit.Database" in only(manager).last_error


def test_a_database_of_the_kit_works_on_both_lanes(
    open_manager: OpenManager, hermes_home: HermesHome
) -> None:
    class Local(MemoryProvider):
        name = "local"

        def initialize(self) -> None:
            self.db = Database(hermes_home.path / "local.db")
            self.db.execute("CREATE TABLE facts (text)")

        def sync_turn(self, turn: Turn) -> None:
            with self.db.transaction() as connection:
                connection.execute("INSERT INTO facts VALUES (?)", (turn.user,))

        def prefetch(self) -> str:
            return str(self.db.execute("SELECT text FROM facts").fetchone()[0])

        def shutdown(self) -> None:
            self.db.close()

    manager = open_manager(Local())
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1", "likes tea"), A)
    assert manager.flush(30)
    assert manager.prefetch_all(Query("tea"), A).contexts == [("local", "likes tea")]


HANGS = """
import sys
from pathlib import Path
from hermes_core.contract.values import Query, ToolCall
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_memory_testing.fakes import HangingProvider, make_session, make_turn

well, shut_down = sys.argv[2].split(","), sys.argv[3] == "shutdown"
manager = MemoryManager(
    HermesHome(Path(sys.argv[1])), redact=lambda value: value, start_wait=0.2, deadlines={"prefetch": 0.2, "handle_tool_call": 0.2}
)
manager.add_provider(HangingProvider(frozenset(well)))
session = make_session()
manager.initialize_all(session)
manager.on_turn_start(1, "hi", session)
manager.prefetch_all(Query("hi"), session)
manager.handle_tool_call(ToolCall("fake_remember", {}), session)
manager.sync_all(make_turn(), session)
if shut_down:
    manager.shutdown_all()
print("ended", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("well", "end", "seconds"),
    [
        ("is_available,get_tool_schemas,initialize", "shutdown", 30),
        ("is_available,get_tool_schemas", "shutdown", 30),
        ("is_available,get_tool_schemas,initialize", "leave", 20),
        ("", "shutdown", 30),
    ],
)
def test_a_process_with_a_provider_that_hangs_everywhere_ends(
    hermes_home: HermesHome, well: str, end: str, seconds: float
) -> None:
    began = time.monotonic()
    command: Sequence[str] = [sys.executable, "-c", HANGS, str(hermes_home.path), well, end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    assert time.monotonic() - began < seconds


class Exploding(dict[str, Any]):
    def get(self, *_: Any) -> Any:
        raise RuntimeError("no schema today")


GOOD = {"name": "good", "description": "Works.", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (None, "tool 1 of get_tool_schemas() is left out: returned a NoneType"),
        ("good", "tool 1 of get_tool_schemas() is left out: returned a str"),
        ({"description": "no name"}, "tool 1 of get_tool_schemas() is left out"),
        ({"name": 7}, "tool 1 of get_tool_schemas() is left out"),
        ({"name": "bad", "parameters": "text"}, "tool 'bad' is left out: returned a str"),
        ({"name": "bad", "parameters": []}, "tool 'bad' is left out: returned a list"),
        ({"name": "bad", "parameters": {"type": "array"}}, "tool 'bad' is left out: its parameters are of"),
        ({"name": "bad", "parameters": {"properties": ["q"]}}, "tool 'bad' is left out: the properties"),
        ({"name": "bad", "parameters": {"properties": {"q": "text"}}}, "tool 'bad' is left out: the prop"),
        ({"name": "bad", "parameters": {"required": "q"}}, "tool 'bad' is left out: `required`"),
        ({"name": "bad", "parameters": {"default": {1}}}, "tool 'bad' is left out: its schema can't be"),
        ({"name": "bad", "description": ["x"]}, "tool 'bad' is left out: its description is a list"),
        ({"name": "bad tool"}, "tool 'bad tool' is left out: a model's tools have names"),
        ({"type": "function", "function": {"name": "bad", "parameters": 3}}, "tool 'bad' is left out"),
        (dict(GOOD), "a second tool 'good' is left out: the provider offers that name already"),
        (Exploding(name="bad"), "tool 1 of get_tool_schemas() is left out: RuntimeError: no schema today"),
    ],
)
def test_a_malformed_schema_costs_that_tool_only_and_is_a_problem(
    open_manager: OpenManager, schema: Any, told: str
) -> None:
    provider = RecordingProvider()
    provider.results["get_tool_schemas"] = [schema, GOOD]
    manager = open_manager(provider)
    manager.initialize_all(A)
    assert manager.get_all_tool_names() == {"good"}
    assert manager.handle_tool_call(ToolCall("good", {}), A) == '{"ok": true}'
    [problem] = manager.problems()
    assert problem.startswith(f"memory provider 'fake': {told}")
    assert only(manager).state == "active"


def test_a_list_of_schemas_that_ends_in_an_error_keeps_what_came_before(open_manager: OpenManager) -> None:
    class Breaking(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield GOOD
            raise RuntimeError("the rest is gone")

    provider = RecordingProvider()
    provider.results["get_tool_schemas"] = Breaking()
    manager = open_manager(provider)
    assert manager.get_all_tool_names() == {"good"}
    assert "RuntimeError: the rest is gone" in manager.problems()[0]


def test_schemas_that_raise_are_a_problem(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["get_tool_schemas"] = RuntimeError("no tools")
    manager = open_manager(provider)
    manager.initialize_all(A)
    assert manager.problems() == [
        "memory provider 'fake': it offers no tools: get_tool_schemas: RuntimeError: no tools"
    ]

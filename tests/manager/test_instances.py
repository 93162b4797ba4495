"""Instances of a provider: one a session or one a process, and how each ends."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hermes_core.contract.values import Capabilities, Event, Query, Session, SessionSwitch, ToolCall, Turn
from hermes_core.errors import BackendRefused, DatabaseCorrupt
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.providers import MAX_INSTANCES, RETRY_START_S, ProviderInstance
from hermes_core.manager.stats import REPORT_INTERVAL_S
from hermes_memory_testing.fakes import Clock, EveryHook, RecordingProvider, make_session, make_turn
from tests.manager.conftest import Named, count_questions, until

OpenManager = Callable[..., MemoryManager]

A, B = make_session("a"), make_session("b")


class PerSession(EveryHook):
    """Keeps its session on itself, as providers of other hosts do."""

    name = "per-session"
    capabilities = Capabilities(scope="session")
    made: list[PerSession]

    def __init__(self) -> None:
        self.session = ""
        self.seen: list[tuple[str, str]] = []
        type(self).made.append(self)

    def answer(self, hook: str, **arguments: Any) -> Any:
        if hook == "initialize":
            assert self.session == ""
            self.session = arguments["session"].id
        self.seen.append((hook, arguments["session"].id if "session" in arguments else ""))
        return {"is_available": True, "get_tool_schemas": [], "prefetch": self.session}.get(hook)


@pytest.fixture
def per_session() -> type[PerSession]:
    class Fresh(PerSession):
        made: list[PerSession] = []  # noqa: RUF012  one list for each test

    return Fresh


def test_each_session_has_an_instance_of_its_own(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    manager = open_manager(per_session)
    for session in (A, B):
        manager.initialize_all(session)
    for session in (A, B, A):
        assert manager.prefetch_all(Query("tea"), session).contexts == [("per-session", session.id)]
        manager.sync_all(make_turn(session.id + "1"), session)
    assert manager.flush(30)
    assert [instance.session for instance in per_session.made] == ["a", "b"]
    for instance in per_session.made:
        assert {session for _, session in instance.seen if session} == {instance.session}


def test_the_least_recently_used_instance_is_closed_but_not_before_its_writes_are_sent(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    manager = open_manager(per_session)
    for n in range(MAX_INSTANCES + 4):
        session = make_session(f"s{n}")
        manager.initialize_all(session)
        manager.sync_all(make_turn(f"t{n}"), session)
        assert manager.flush(30)

    def closed_ones() -> list[PerSession]:
        return [instance for instance in per_session.made if ("shutdown", "") in instance.seen]

    until(lambda: len(closed_ones()) == 4)  # nobody waits for the end of an instance
    closed = closed_ones()
    assert [instance.session for instance in closed] == ["s0", "s1", "s2", "s3"]
    assert all(instance.seen[-2] == ("sync_turn", instance.session) for instance in closed)


def test_an_instance_with_writes_that_wait_is_not_closed(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    class Refusing(per_session):  # type: ignore[misc,valid-type]
        def sync_turn(self, turn: Turn, session: Session) -> None:
            raise BackendRefused("not this one")

    manager = open_manager(Refusing)
    manager.initialize_all(A)
    manager.sync_all(make_turn(), A)
    for n in range(MAX_INSTANCES + 4):
        manager.initialize_all(make_session(f"s{n}"))
    closed = [instance.session for instance in per_session.made if ("shutdown", "") in instance.seen]
    assert "a" not in closed
    assert "s0" in closed


def test_an_outbox_that_can_no_more_be_read_stops_no_turn_of_many_sessions(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    manager = open_manager(per_session)
    manager.initialize_all(A)
    manager.sync_all(make_turn(), A)
    assert manager.flush(30)
    manager.outbox.close()
    for n in range(MAX_INSTANCES + 1):
        session = make_session(f"s{n}")
        assert manager.prefetch_all(Query("tea"), session).contexts == [("per-session", f"s{n}")]


def test_an_instance_ends_when_its_session_goes_on_under_another_id(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    manager = open_manager(per_session)
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1"), A)
    manager.on_session_switch(SessionSwitch("x", A, B, "compression"))
    assert manager.flush(30)
    manager.initialize_all(B)
    first, second = per_session.made
    assert until(lambda: first.seen[-1][0] == "shutdown")
    assert [hook for hook, _ in first.seen[-3:]] == ["sync_turn", "on_session_switch", "shutdown"]
    assert second.session == "b"


def test_an_instance_goes_on_when_turns_of_its_session_are_taken_back(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    manager = open_manager(per_session)
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1"), A)
    manager.on_session_switch(SessionSwitch("x", A, A, "rewind", rewound_turns=("t1",)))
    manager.on_session_switch(SessionSwitch("y", B, B, "rewind"))
    assert manager.flush(30)
    assert manager.prefetch_all(Query("tea"), A).contexts == [("per-session", "a")]
    assert [one.session for one in per_session.made] == ["a", "b"]
    assert not any(("shutdown", "") in one.seen for one in per_session.made)


def test_an_instance_that_is_closed_shuts_down_on_the_event_loop_that_it_ran_on(
    open_manager: OpenManager, per_session: type[PerSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    loops: list[object] = []
    left, leave = threading.Event(), ProviderInstance._end

    def leaves(instance: ProviderInstance) -> None:
        leave(instance)
        left.set()

    monkeypatch.setattr(ProviderInstance, "_end", leaves)

    class Async(per_session):  # type: ignore[misc,valid-type]
        async def prefetch(self) -> str:
            loops.append(asyncio.get_running_loop())
            return ""

        def shutdown(self) -> Any:
            left.wait(0.2)  # in vain: it is left after this
            return self.close()

        async def close(self) -> None:
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0)
            loops.append("shut down")

    manager = open_manager(Async)
    manager.initialize_all(A)
    manager.prefetch_all(Query("tea"), A)
    held = manager._registry.handles[0]
    held.retire(A.id)
    assert until(lambda: "shut down" in loops)
    assert loops[0] is loops[1]
    assert left.wait(30)
    assert until(lambda: "hermes-per-session-coroutines" not in {one.name for one in threading.enumerate()})


def test_rows_of_an_earlier_process_get_an_instance_of_their_session(
    open_manager: OpenManager, per_session: type[PerSession], left_behind: Callable[..., None]
) -> None:
    left_behind("per-session", "t1", A)
    left_behind("per-session", "t2", B)
    assert open_manager(per_session).flush(30)
    assert [instance.session for instance in per_session.made] == ["a", "b"]


@pytest.fixture
def never_starts(per_session: type[PerSession]) -> type[PerSession]:
    """A provider of scope `session` whose backend is away."""

    class Down(per_session):  # type: ignore[misc,valid-type]
        def answer(self, hook: str, **arguments: Any) -> Any:
            if hook == "initialize":
                raise OSError("unreachable")
            return super().answer(hook, **arguments)

    return Down


def test_a_write_of_a_session_that_can_not_start_says_why_it_waits(
    open_manager: OpenManager, never_starts: type[PerSession]
) -> None:
    manager = open_manager(never_starts)
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1"), A)
    assert until(
        lambda: [row.error for row in manager.outbox.pending()] == ["initialize: OSError: unreachable"]
    )
    assert [row.attempts for row in manager.outbox.pending()] == [0]


@pytest.fixture
def starts_some(per_session: type[PerSession]) -> type[PerSession]:
    """A provider of scope `session` that can't start session a."""

    class Picky(per_session):  # type: ignore[misc,valid-type]
        def answer(self, hook: str, **arguments: Any) -> Any:
            if hook == "initialize" and arguments["session"].id == A.id:
                raise OSError("no such room")
            return super().answer(hook, **arguments)

    return Picky


def test_a_flush_ends_when_only_sessions_that_can_not_start_have_writes(
    open_manager: OpenManager, starts_some: type[PerSession]
) -> None:
    manager = open_manager(starts_some)
    for session in (A, B):
        manager.sync_all(make_turn(f"{session.id}1"), session)
    began = time.monotonic()
    assert not manager.flush(100)
    assert time.monotonic() - began < 50
    assert [row.event for row in manager.outbox.pending()] == ["a1"]


def test_a_flush_waits_for_a_session_that_is_started_once_more(
    open_manager: OpenManager, starts_some: type[PerSession], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = open_manager(starts_some)
    manager.sync_all(make_turn("a1"), A)
    assert not manager.flush(10)
    monkeypatch.setattr(starts_some, "answer", PerSession.answer)
    clock.advance(RETRY_START_S)
    assert manager.flush(10)


def test_one_session_that_can_not_start_makes_no_failed_provider(
    open_manager: OpenManager, starts_some: type[PerSession]
) -> None:
    manager = open_manager(starts_some)
    manager.initialize_all(A)
    assert (manager.health()[0].state, manager.health()[0].reason) == (
        "failed",
        "initialize: OSError: no such room",
    )
    manager.initialize_all(B)
    assert (manager.health()[0].state, manager.health()[0].reason) == (
        "degraded",
        "1 of 2 sessions can't be started: initialize: OSError: no such room",
    )
    parts = [manager.prefetch_all(Query("tea"), session).parts[0] for session in (A, B)]
    assert [part.state for part in parts] == ["failed", "active"]


def test_a_flush_does_not_ask_all_the_time_for_a_session_that_has_not_started(
    open_manager: OpenManager, per_session: type[PerSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    class Slow(per_session):  # type: ignore[misc,valid-type]
        def answer(self, hook: str, **arguments: Any) -> Any:
            if hook == "initialize":
                gate.wait(30)
            return super().answer(hook, **arguments)

    manager = open_manager(Slow, start_wait=0.01)
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1"), A)
    asked = count_questions(manager, monkeypatch)
    assert not manager.flush(0.3)
    gate.set()
    assert len(asked) < 50


# ------------------------------------------------------------------------ end


def test_shutdown_comes_in_reverse_order_and_once(open_manager: OpenManager) -> None:
    order: list[str] = []

    class Ending(Named):
        def answer(self, hook: str, **arguments: Any) -> Any:
            if hook == "shutdown":
                order.append(self.name)
            return super().answer(hook, **arguments)

    manager = open_manager()
    manager.add_provider(Ending("builtin"), builtin=True)
    manager.add_provider(Ending("external"))
    manager.initialize_all(A)
    manager.shutdown_all()
    manager.shutdown_all()
    assert order == ["external", "builtin"]


def test_a_provider_whose_write_hangs_at_the_end_is_shut_down_when_it_returns(
    open_manager: OpenManager,
) -> None:
    provider = RecordingProvider()
    gate = provider.gates["sync_turn"] = threading.Event()
    manager = open_manager(provider, deadlines={"sync_turn": 0.3})
    manager.initialize_all(Session("s"))
    manager.sync_all(make_turn("t1"), Session("s"))
    assert until(lambda: "in doubt" in manager.health()[0].reason)
    manager.shutdown_all(0.3)
    assert "shutdown" not in provider.hooks
    gate.set()
    assert until(lambda: provider.hooks[-2:] == ["sync_turn", "shutdown"])


@pytest.mark.parametrize("overdue", [False, True])
@pytest.mark.parametrize("hook", ["sync_turn", "handle_tool_call"])
def test_a_provider_whose_only_thread_hangs_at_the_end_is_shut_down_when_it_returns(
    open_manager: OpenManager, clock: Clock, hook: str, overdue: bool
) -> None:
    provider = RecordingProvider()
    provider.capabilities = Capabilities(serial=True)
    gate = provider.gates[hook] = threading.Event()
    manager = open_manager(provider)
    manager.initialize_all(A)
    if hook == "sync_turn":
        manager.sync_all(make_turn("t1"), A)
    else:
        call = ToolCall("fake_remember", {})
        threading.Thread(target=manager.handle_tool_call, args=(call, A), daemon=True).start()
    assert provider.wait_for(hook)
    if overdue:
        clock.advance(1000)
    manager.shutdown_all(0.3)
    assert "shutdown" not in provider.hooks
    gate.set()
    assert until(lambda: provider.hooks[-2:] == [hook, "shutdown"])


@pytest.mark.parametrize("overdue", [False, True])
def test_an_idle_instance_whose_only_thread_hangs_is_shut_down_when_it_returns(
    open_manager: OpenManager, clock: Clock, overdue: bool
) -> None:
    provider = RecordingProvider()
    provider.capabilities = Capabilities(serial=True)
    gate = provider.gates["queue_prefetch"] = threading.Event()
    manager = open_manager(provider)
    manager.initialize_all(A)
    manager.queue_prefetch_all(Query("tea"), A)
    assert provider.wait_for("queue_prefetch")
    if overdue:
        clock.advance(1000)
    manager._registry.handles[0].first.close_idle()
    gate.set()
    assert until(lambda: provider.hooks[-2:] == ["queue_prefetch", "shutdown"])


def test_no_thread_is_left_after_a_shutdown(open_manager: OpenManager) -> None:
    before = set(threading.enumerate())
    manager = open_manager(RecordingProvider(), on_event=lambda event: None)
    manager.initialize_all(A)
    manager.prefetch_all(Query("tea"), A)
    manager.sync_all(make_turn(), A)
    manager.shutdown_all()
    started = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("hermes-")]
    for thread in started:
        thread.join(5)
    assert [thread.name for thread in started if thread.is_alive()] == []


def test_nothing_starts_after_a_shutdown(open_manager: OpenManager, per_session: type[PerSession]) -> None:
    manager = open_manager(per_session)
    manager.initialize_all(A)
    manager.shutdown_all()
    manager.initialize_all(B)
    manager.on_turn_start(1, "hi", B)
    assert manager.prefetch_all(Query("tea"), B).contexts == []
    assert len(per_session.made) == 1


def test_a_session_that_begins_while_all_is_shut_down_is_not_started(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    manager = open_manager(per_session)
    manager.initialize_all(A)
    held = manager._registry.handles[0]
    begins, shut_down, lock = threading.Event(), threading.Event(), held._lock

    class Late:
        def __enter__(self) -> None:
            if threading.current_thread() is other:
                begins.set()
                shut_down.wait()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    other = threading.Thread(target=manager.initialize_all, args=(B,))
    held._lock = Late()  # type: ignore[assignment]
    other.start()
    assert begins.wait(30)
    manager.shutdown_all()
    shut_down.set()
    other.join()
    assert len(per_session.made) == 1


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_damaged_outbox_is_shown_and_stops_neither_start_nor_turn_nor_end(
    open_manager: OpenManager, hermes_home: HermesHome
) -> None:
    hermes_home.path.mkdir(parents=True)
    hermes_home.outbox_db.write_bytes(b"this is no database, and long enough to be told apart from one" * 99)
    manager = open_manager(RecordingProvider())
    manager.initialize_all(A)
    assert manager.prefetch_all(Query("tea"), A).contexts == [("fake", "- a: tea")]
    with pytest.raises(DatabaseCorrupt):
        manager.sync_all(make_turn(), A)
    assert manager.health()[0].state == "failed"
    assert "its writes can't be stored" in manager.health()[0].reason
    assert not manager.flush(1.0)
    manager.shutdown_all()


def test_a_resumed_session_of_an_instance_that_was_closed_is_started_again(
    open_manager: OpenManager, per_session: type[PerSession]
) -> None:
    manager = open_manager(per_session)
    for n in range(MAX_INSTANCES + 1):
        manager.initialize_all(make_session(f"s{n}"))
    assert manager.prefetch_all(Query("tea"), make_session("s0")).contexts == [("per-session", "s0")]


def test_what_was_synced_just_before_the_end_is_still_sent(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = open_manager(provider)
    manager.initialize_all(A)
    for n in range(20):
        manager.sync_all(make_turn(f"t{n}"), A)
    manager.shutdown_all(300.0)
    assert len(provider.of("sync_turn")) == 20
    assert provider.hooks[-1] == "shutdown"


def test_two_interleaved_sessions_keep_their_turns_and_ids(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = open_manager(provider)
    manager.initialize_all(A)

    def talk(session: Session) -> None:
        for n in range(30):
            manager.sync_all(make_turn(f"{session.id}{n}", session.id), session)

    threads = [threading.Thread(target=talk, args=(session,)) for session in (A, B)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manager.flush(30)
    for session in (A, B):
        turns = [call["turn"] for call in provider.of("sync_turn") if call["session"].id == session.id]
        assert [turn.id for turn in turns] == [f"{session.id}{n}" for n in range(30)]
        assert {turn.user for turn in turns} == {session.id}


def test_a_host_can_ask_one_provider_one_thing(open_manager: OpenManager) -> None:
    manager = open_manager(RecordingProvider())
    assert manager.ask("fake", "backup_paths").value == ()
    assert manager.ask("fake", "check", session=A).error == "not initialized yet"
    manager.initialize_all(A)
    assert manager.ask("fake", "check", session=A).ok
    assert manager.ask("nobody", "check", session=A).status == "skipped"


def test_a_deleted_session_leaves_nothing_behind(
    open_manager: OpenManager, left_behind: Callable[..., None]
) -> None:
    left_behind("fake", "t1", A)
    left_behind("fake", "t2", B)
    manager = open_manager()
    manager.build_system_prompt(A)
    assert manager.forget_session("a") == 1
    assert manager.prompts.get(A) is None
    assert [row.event for row in manager.outbox.pending()] == ["t2"]


def test_a_failure_is_logged_once_a_call_and_never_silently(
    open_manager: OpenManager, caplog: pytest.LogCaptureFixture
) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = open_manager(provider)
    manager.initialize_all(A)
    with caplog.at_level(logging.WARNING):
        manager.prefetch_all(Query("tea"), A)
    assert [record.getMessage() for record in caplog.records] == [
        "fake: prefetch failed: OSError: unreachable"
    ]


def test_a_long_process_tells_how_its_hooks_do_every_few_minutes(
    open_manager: Callable[..., MemoryManager], clock: Clock
) -> None:
    told: list[Event] = []
    manager = open_manager(RecordingProvider(), on_event=told.append)
    session = Session("s")
    manager.initialize_all(session)
    manager.prefetch_all(Query("tent"), session)
    clock.advance(REPORT_INTERVAL_S)
    manager.prefetch_all(Query("tent"), session)
    manager.prefetch_all(Query("tent"), session)
    manager.shutdown_all()
    reports = [event.data["hooks"] for event in told if event.kind == "provider.hooks"]
    assert [one["prefetch"]["calls"] for one in reports] == [2, 3]


class Connection:
    """A client that works until it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


CONNECTION: Connection | None = None
"""The client of `InModule`: one for the process."""

POOL: dict[str, Connection] = {}
"""The client of the others, which is not in a variable of a module by itself."""


class OneClient(EveryHook):
    """Answers by a client that all instances share; `events` says in what order they were started and shut down."""

    name = "one-client"
    capabilities = Capabilities(scope="session")
    events: list[str]

    def open(self) -> None:
        POOL["client"] = Connection()

    def client(self) -> Connection:
        return POOL["client"]

    def close(self) -> None:
        if "client" in POOL:
            POOL.pop("client").close()

    def answer(self, hook: str, **arguments: Any) -> Any:
        if hook == "initialize":
            self.session = arguments["session"].id
            self.open()
            self.events.append(f"start {self.session}")
        elif hook == "shutdown":
            self.events.append(f"end {self.session}")
            self.close()
        elif hook in ("prefetch", "sync_turn"):
            assert not self.client().closed, "the client is closed"
            return f"{self.session} recalls" if hook == "prefetch" else None
        return {"is_available": True, "get_tool_schemas": []}.get(hook)


class InModule(OneClient):
    """Keeps the client in a variable of its module, and each start opens another one."""

    def open(self) -> None:
        global CONNECTION
        CONNECTION = Connection()

    def client(self) -> Connection:
        assert CONNECTION is not None, "there is no client"
        return CONNECTION

    def close(self) -> None:
        global CONNECTION
        if CONNECTION is not None:
            CONNECTION.close()
        CONNECTION = None


class Greedy(OneClient):
    """Refuses to start while a client is open."""

    def open(self) -> None:
        if POOL:
            raise RuntimeError("already connected")
        super().open()


class Pooled(OneClient):
    """Has the client of the process on each instance."""

    def open(self) -> None:
        if not POOL:
            super().open()
        self.connection = POOL["client"]

    def client(self) -> Connection:
        return self.connection


@pytest.mark.parametrize("kind", [InModule, Greedy, Pooled])
def test_a_provider_with_one_client_for_the_process_is_shut_down_before_it_starts_again(
    open_manager: OpenManager, kind: type[OneClient]
) -> None:
    POOL.clear()
    events: list[str] = []
    made = type("Made", (kind,), {"events": events, "__module__": __name__})
    manager = open_manager(made)
    for number, session in enumerate((A, B, A, B)):
        manager.initialize_all(session)
        for _ in range(2):
            recall = manager.prefetch_all(Query("tea"), session).parts[0]
            assert (recall.recall.text, recall.reason) == (f"{session.id} recalls", "")
        manager.sync_all(make_turn(f"t{number}"), session)
        assert manager.flush()
    # The shared client of two instances shows only when the second one has started.
    found_out = ["start b", "end a", "end b", "start b"] if kind is Pooled else ["end a", "start b"]
    assert events == ["start a", *found_out, "end b", "start a", "end a", "start b"]
    manager.shutdown_all()
    assert not POOL
    assert CONNECTION is None


def test_instances_that_are_one_object_are_never_started_twice(open_manager: OpenManager) -> None:
    POOL.clear()
    events: list[str] = []
    single = type("Single", (OneClient,), {"events": events, "__module__": "nowhere"})()
    manager = open_manager(lambda: single)
    for session in (A, B, A):
        manager.initialize_all(session)
        assert manager.prefetch_all(Query("tea"), session).parts[0].recall.text == f"{session.id} recalls"
    assert events == ["start a", "end a", "start b", "end b", "start a"]


def test_an_instance_that_can_not_start_takes_the_others_down_at_most_once(open_manager: OpenManager) -> None:
    class Picky(PerSession):
        made: list[PerSession] = []  # noqa: RUF012

        def answer(self, hook: str, **arguments: Any) -> Any:
            if hook == "initialize" and arguments["session"].id.startswith("bad"):
                raise RuntimeError("not this one")
            return super().answer(hook, **arguments)

    manager = open_manager(Picky)
    for name in ("a", "bad-1", "a", "bad-2", "a"):
        manager.initialize_all(make_session(name))
    recall = manager.prefetch_all(Query("tea"), A).parts[0]
    assert recall.recall.text == "a"
    assert sum(hook == "shutdown" for provider in Picky.made for hook, _ in provider.seen) <= 1

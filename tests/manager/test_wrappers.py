"""Observers that wrap the hooks of providers, and monitors of all hook calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

from hermes_core.contract.hooks import hookimpl
from hermes_core.contract.values import Capabilities, Query, Recall, ToolCall
from hermes_core.errors import ProviderInvalid
from hermes_core.manager.manager import MemoryManager
from hermes_memory_testing.fakes import RecordingProvider, make_session, make_turn
from tests.manager.conftest import until

OpenManager = Callable[..., MemoryManager]
Wrapper = Generator[None, Any, Any]

A = make_session("a")


class Tracing:
    """Notes each call that it wraps, with its arguments and its result."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, Any]] = []
        self.threads: set[str] = set()

    def note(self, hook: str, argument: Any) -> Wrapper:
        self.threads.add(threading.current_thread().name)
        result = yield
        self.seen.append((hook, argument, result))
        return result

    @hookimpl(wrapper=True)
    def initialize(self, session: Any) -> Wrapper:
        return (yield from self.note("initialize", session.id))

    @hookimpl(wrapper=True)
    def prefetch(self, query: Query) -> Wrapper:
        return (yield from self.note("prefetch", query.text))

    @hookimpl(wrapper=True)
    def handle_tool_call(self, call: ToolCall) -> Wrapper:
        return (yield from self.note("handle_tool_call", call.name))

    @hookimpl(wrapper=True)
    def sync_turn(self, turn: Any) -> Wrapper:
        return (yield from self.note("sync_turn", turn.id))

    @hookimpl(wrapper=True)
    def shutdown(self) -> Wrapper:
        return (yield from self.note("shutdown", None))


def started(
    open_manager: OpenManager, provider: object, *observers: object, **settings: Any
) -> MemoryManager:
    manager = open_manager(provider, observers=observers, **settings)
    manager.initialize_all(A)
    return manager


def recalled(manager: MemoryManager) -> str:
    return "".join(text for _, text in manager.prefetch_all(Query("tea"), A).contexts)


def test_a_wrapper_sees_every_call_with_arguments_and_result_on_the_providers_threads(
    open_manager: OpenManager,
) -> None:
    tracing = Tracing()
    manager = started(open_manager, RecordingProvider(), tracing)
    recalled(manager)
    manager.handle_tool_call(ToolCall("fake_remember", {}), A)
    manager.sync_all(make_turn("t1"), A)
    assert manager.flush(30)
    manager.shutdown_all()
    seen = [(hook, argument) for hook, argument, _ in tracing.seen]
    assert seen == [
        ("initialize", "a"),
        ("prefetch", "tea"),
        ("handle_tool_call", "fake_remember"),
        ("sync_turn", "t1"),
        ("shutdown", None),
    ]
    assert isinstance(tracing.seen[1][2], Recall)
    assert tracing.seen[2][2] == '{"ok": true}'
    assert tracing.threads == {"hermes-fake-read", "hermes-fake-write"}


def test_a_wrapper_sees_the_instances_of_all_sessions(open_manager: OpenManager) -> None:
    class PerSession(RecordingProvider):
        capabilities = Capabilities(scope="session")

    tracing = Tracing()
    manager = started(open_manager, PerSession, tracing)
    for name in ("a", "b"):
        manager.prefetch_all(Query(name), make_session(name))
    assert [seen[:2] for seen in tracing.seen if seen[0] == "prefetch"] == [
        ("prefetch", "a"),
        ("prefetch", "b"),
    ]


def test_a_wrapper_can_change_the_result(open_manager: OpenManager) -> None:
    class Louder:
        @hookimpl(wrapper=True)
        def prefetch(self) -> Wrapper:
            recall = yield
            return recall.render().upper()

    assert recalled(started(open_manager, RecordingProvider(), Louder())) == "- A: TEA"


def test_a_wrapper_sees_the_value_of_a_coroutine(open_manager: OpenManager) -> None:
    class Async(RecordingProvider):
        async def prefetch(self, query: Query) -> str:  # type: ignore[override]
            return f"async {query.text}"

    tracing = Tracing()
    manager = started(open_manager, Async(), tracing)
    assert recalled(manager) == "async tea"
    assert tracing.seen[-1] == ("prefetch", "tea", Recall(text="async tea"))


def test_a_wrapper_can_stand_in_for_a_provider_that_fails(open_manager: OpenManager) -> None:
    class Fallback:
        @hookimpl(wrapper=True)
        def prefetch(self) -> Wrapper:
            try:
                return (yield)
            except OSError:
                return "from the cache"

    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = started(open_manager, provider, Fallback())
    assert recalled(manager) == "from the cache"
    assert manager.health()[0].failed == 0


def adds(word: str, **options: Any) -> object:
    class Adding:
        @hookimpl(wrapper=True, **options)
        def prefetch(self) -> Wrapper:
            recall = yield
            return Recall(text=f"{recall.render()} {word}")

    return Adding()


def test_the_first_observer_is_the_outermost_wrapper(open_manager: OpenManager) -> None:
    manager = started(open_manager, RecordingProvider(), adds("first"), adds("second"))
    assert recalled(manager) == "- a: tea second first"


def test_tryfirst_and_trylast_order_the_wrappers(open_manager: OpenManager) -> None:
    observers = adds("last", trylast=True), adds("middle"), adds("first", tryfirst=True)
    assert recalled(started(open_manager, RecordingProvider(), *observers)) == "- a: tea last middle first"


@pytest.mark.parametrize("before", [True, False])
def test_a_wrapper_that_raises_fails_that_call_by_its_own_name_and_not_the_provider(
    open_manager: OpenManager, before: bool
) -> None:
    class Broken:
        @hookimpl(wrapper=True)
        def handle_tool_call(self) -> Wrapper:
            if before:
                raise OSError("no room")
            yield
            raise OSError("no room")

    manager = started(open_manager, RecordingProvider(), Tracing(), Broken())
    for _ in range(10):
        answer = json.loads(manager.handle_tool_call(ToolCall("fake_remember", {}), A))
        assert answer["error"] == "memory tool 'fake_remember' failed: observer Broken: OSError: no room"
    health = manager.health()[0]
    assert health.breakers["read"] == "closed"
    assert health.last_error == "handle_tool_call: observer Broken: OSError: no room"
    assert recalled(manager) == "- a: tea"


def test_an_error_of_the_provider_is_not_blamed_on_the_wrappers(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = started(open_manager, provider, Tracing())
    result = manager.prefetch_all(Query("tea"), A)
    assert result.parts[0].reason == "prefetch failed: OSError: unreachable"


def test_a_value_of_a_wrong_type_is_refused_before_a_wrapper_sees_it(open_manager: OpenManager) -> None:
    provider, tracing = RecordingProvider(), Tracing()
    provider.results["prefetch"] = 3
    manager = started(open_manager, provider, tracing)
    assert "returned a int" in manager.prefetch_all(Query("tea"), A).parts[0].reason
    assert "prefetch" not in [hook for hook, _, _ in tracing.seen]


def test_a_wrapper_that_makes_a_value_of_a_wrong_type_fails_the_call(open_manager: OpenManager) -> None:
    class Wrong:
        @hookimpl(wrapper=True)
        def prefetch(self) -> Wrapper:
            yield
            return 3

    manager = started(open_manager, RecordingProvider(), Wrong())
    part = manager.prefetch_all(Query("tea"), A).parts[0]
    assert "hook wrapper of an observer: returned a int" in part.reason


def test_a_write_whose_wrapper_raises_stays_in_the_outbox(open_manager: OpenManager) -> None:
    class Broken:
        @hookimpl(wrapper=True)
        def sync_turn(self) -> Wrapper:
            raise RuntimeError("not now")
            yield

    provider = RecordingProvider()
    manager = started(open_manager, provider, Broken())
    manager.sync_all(make_turn("t1"), A)
    assert until(lambda: "observer Broken" in manager.health()[0].reason)
    assert provider.of("sync_turn") == []
    assert [row.event for row in manager.outbox.pending()] == ["t1"]


def test_an_observer_that_answers_a_providers_hook_is_refused(open_manager: OpenManager) -> None:
    class Answering:
        @hookimpl
        def prefetch(self) -> str:
            return "mine"

    with pytest.raises(ProviderInvalid, match=r"answers prefetch\(\).*wrapper=True"):
        open_manager(observers=[Answering()])


def test_a_misspelt_wrapper_is_refused_with_what_was_meant(open_manager: OpenManager) -> None:
    class Misspelt:
        @hookimpl(wrapper=True)
        def prefetchh(self) -> Wrapper:
            return (yield)

    with pytest.raises(ProviderInvalid, match="did you mean prefetch"):
        open_manager(observers=[Misspelt()])


def test_a_wrapper_of_a_filter_surrounds_the_filters_of_other_observers(open_manager: OpenManager) -> None:
    class Upper:
        @hookimpl
        def filter_recall(self, recall: Recall) -> Recall:
            return Recall(text=recall.render().upper())

    class Around:
        @hookimpl(wrapper=True)
        def filter_recall(self) -> Wrapper:
            recall = yield
            return Recall(text=f"[{recall.render()}]")

    assert recalled(started(open_manager, RecordingProvider(), Around(), Upper())) == "[- A: TEA]"


def test_tryfirst_and_trylast_order_the_filters(open_manager: OpenManager) -> None:
    def filtering(word: str, **options: Any) -> object:
        class Filtering:
            @hookimpl(**options)
            def filter_recall(self, recall: Recall) -> Recall:
                return Recall(text=f"{recall.render()} {word}")

        return Filtering()

    observers = filtering("3", trylast=True), filtering("2"), filtering("1", tryfirst=True)
    assert recalled(started(open_manager, RecordingProvider(), *observers)) == "- a: tea 1 2 3"


# --------------------------------------------------------------------------- monitors


def test_a_monitor_sees_the_calls_of_all_providers_until_it_is_undone(open_manager: OpenManager) -> None:
    calls: list[tuple[str, Any]] = []
    manager = open_manager()
    undo = manager.add_hookcall_monitoring(
        lambda hook, impls, arguments: calls.append((hook, sorted(arguments))),
        lambda outcome, hook, impls, arguments: calls.append((f"{hook} ended", outcome.get_result())),
    )
    manager.add_provider(RecordingProvider())
    manager.initialize_all(A)
    recalled(manager)
    assert ("initialize", ["session"]) in calls
    assert calls[-2:-1] == [("prefetch", ["query", "session"])]
    assert calls[-1][0] == "prefetch ended"
    assert calls[-1][1].render() == "- a: tea"
    undo()
    undo()
    count = len(calls)
    recalled(manager)
    assert len(calls) == count


def test_a_monitor_of_a_running_manager_sees_the_calls_from_then_on(open_manager: OpenManager) -> None:
    manager = started(open_manager, RecordingProvider())
    hooks: list[str] = []
    manager.add_hookcall_monitoring(lambda hook, *_: hooks.append(hook), lambda *_: None)
    recalled(manager)
    assert hooks == ["prefetch"]


def test_a_monitor_that_raises_is_logged_and_the_call_goes_on(
    open_manager: OpenManager, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken monitor")

    manager = started(open_manager, RecordingProvider())
    manager.add_hookcall_monitoring(broken, broken)
    assert recalled(manager) == "- a: tea"
    assert "broken monitor" in caplog.text

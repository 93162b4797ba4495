from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hermes_core.contract.hooks import hookimpl
from hermes_core.contract.values import Event, MemoryWrite, Query, Recall, Refused, Session, ToolCall
from hermes_core.errors import BackendRefused, ProviderInvalid
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.observers import MAX_EVENTS
from hermes_memory_testing.fakes import Clock, RecordingProvider, make_session, make_turn
from tests.manager.conftest import until

OpenManager = Callable[..., MemoryManager]

A = make_session("a")
WRITE = MemoryWrite("w1", "add", "memory", "tea")


class Upper:
    @hookimpl
    def filter_write(self, write: MemoryWrite) -> MemoryWrite:
        return MemoryWrite(write.id, write.action, write.target, write.content.upper())

    @hookimpl
    def filter_recall(self, recall: Recall, session: Session) -> Recall:
        return Recall(text=recall.render().upper())


class Says:
    """Answers every filter with one thing, or raises it, or hangs on it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    @hookimpl
    def filter_write(self, write: MemoryWrite) -> Any:
        return self._answer()

    @hookimpl
    def filter_recall(self, recall: Recall) -> Any:
        return self._answer()

    def _answer(self) -> Any:
        if isinstance(self.answer, threading.Event):
            self.answer.wait()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def test_without_observers_a_write_passes(open_manager: OpenManager) -> None:
    assert open_manager().observers.filter_write(WRITE, A) is WRITE


def test_each_filter_sees_what_the_one_before_returned(open_manager: OpenManager) -> None:
    manager = open_manager(observers=[Upper(), Upper()])
    answer = manager.observers.filter_write(WRITE, A)
    assert isinstance(answer, MemoryWrite)
    assert answer.content == "TEA"


@pytest.mark.parametrize(
    "answer", [Refused("no"), RuntimeError("broken"), SystemExit(), None, "text", threading.Event()]
)
def test_a_filter_that_refuses_fails_or_hangs_refuses_the_write(
    open_manager: OpenManager, answer: Any
) -> None:
    manager = open_manager(observers=[Says(answer)], deadlines={"filter_write": 0.05})
    refused = manager.observers.filter_write(WRITE, A)
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("Says: ")
    if isinstance(answer, threading.Event):
        answer.set()


def test_a_filter_may_change_recall_or_leave_it_out(open_manager: OpenManager) -> None:
    manager = open_manager(RecordingProvider(), observers=[Upper()])
    manager.initialize_all(A)
    assert manager.prefetch_all(Query("tea"), A).contexts == [("fake", "- A: TEA")]


def test_recall_that_a_filter_refused_is_left_out_and_shown(open_manager: OpenManager) -> None:
    manager = open_manager(RecordingProvider(), observers=[Says(Refused("private"))])
    manager.initialize_all(A)
    result = manager.prefetch_all(Query("tea"), A)
    assert result.contexts == []
    assert result.parts[0].reason == "Says: private"


def test_a_misspelt_observer_hook_is_refused_with_what_was_meant(open_manager: OpenManager) -> None:
    class Misspelt:
        @hookimpl
        def filter_writes(self, write: MemoryWrite) -> MemoryWrite:
            return write

    with pytest.raises(ProviderInvalid, match="did you mean filter_write"):
        open_manager(observers=[Misspelt()])


def test_an_object_without_hooks_is_no_observer(open_manager: OpenManager) -> None:
    with pytest.raises(ProviderInvalid, match="has no hook"):
        open_manager(observers=[object()])


def heard(open_manager: OpenManager, provider: object, **settings: Any) -> tuple[MemoryManager, list[Event]]:
    events: list[Event] = []
    manager = open_manager(provider, on_event=events.append, **settings)
    manager.initialize_all(A)
    return manager, events


def kinds(events: list[Event], *wanted: str) -> bool:
    return until(lambda: set(wanted) <= {event.kind for event in events})


def test_events_tell_what_happens(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["handle_tool_call"] = OSError("unreachable")
    provider.results["sync_turn"] = BackendRefused("too long")
    manager, events = heard(open_manager, provider)
    for _ in range(5):
        manager.handle_tool_call(ToolCall("fake_remember", {}), A)
    manager.add_provider(RecordingProvider())
    assert kinds(events, "provider.ready", "provider.call", "provider.breaker", "provider.refused")
    assert {event.data["provider"] for event in events} == {"fake"}


def test_events_are_redacted(open_manager: OpenManager) -> None:
    def redact(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: redact(entry) for key, entry in value.items()}
        return value.replace("sk-1", "[key]") if isinstance(value, str) else value

    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("sk-1 was refused")
    manager, events = heard(open_manager, provider, redact=redact)
    manager.prefetch_all(Query("tea"), A)
    assert kinds(events, "provider.call")
    assert "sk-1" not in str(events)


def test_a_slow_listener_is_not_waited_for_and_what_it_misses_is_told(
    open_manager: OpenManager, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    manager = open_manager(on_event=lambda event: gate.wait())
    for _ in range(MAX_EVENTS + 10):
        manager._emit("test", {})
    assert caplog.messages == [f"observer Listener misses events: {MAX_EVENTS} of them wait"]
    gate.set()
    manager.shutdown_all(1)
    assert caplog.messages[1] == "observer Listener has missed 10 events"


def test_what_a_listener_misses_that_hangs_is_told(
    open_manager: OpenManager, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)
    manager = open_manager(on_event=lambda event: (begun.release(), gate.wait())[0])
    for _ in range(2):
        manager._emit("test", {})
        begun.acquire()
        clock.advance(31)
    manager._emit("test", {})
    assert "observer Listener misses events: on_event has not returned for 31.0 s" in caplog.text
    gate.set()
    manager.shutdown_all(1)
    assert "observer Listener has missed 1 events" in caplog.text


def test_a_listener_that_raises_is_logged(
    open_manager: OpenManager, caplog: pytest.LogCaptureFixture
) -> None:
    def listener(event: Event) -> None:
        raise RuntimeError("broken listener")

    manager = open_manager(on_event=listener)
    manager._emit("test", {})
    manager.shutdown_all(1)
    assert "broken listener" in caplog.text


def test_a_write_is_filtered_before_the_outbox_not_after(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = open_manager(provider, observers=[Says(Refused("no"))])
    manager.initialize_all(A)
    manager.sync_all(make_turn(), A)
    assert manager.flush(30)
    assert len(provider.of("sync_turn")) == 1

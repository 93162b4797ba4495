from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.manager.call import CallResult
from hermes_core.manager.worker import PendingCall, Worker
from hermes_core.stopping import stopped_by
from hermes_memory_testing.fakes import Clock
from tests.manager.conftest import until

who = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def worker(clock: Clock) -> Iterator[Worker]:
    worker = Worker("test", clock)
    yield worker
    assert worker.stop(5.0)


def a_call(run: Callable[[], object] = lambda: None, deadline: float = 5.0, **more: Any) -> PendingCall:
    return PendingCall("prefetch", lambda: CallResult("ok", run()), deadline, **more)


def gated(deadline: float = 5.0, **more: Any) -> tuple[PendingCall, threading.Event, threading.Event]:
    """Return a call that hangs until its gate is opened, an event that says it has begun, and the gate."""
    began, gate = threading.Event(), threading.Event()

    def run() -> str:
        began.set()
        gate.wait()
        return threading.current_thread().name

    return a_call(run, deadline, **more), began, gate


def test_no_thread_before_the_first_call(clock: Clock) -> None:
    before = set(threading.enumerate())
    Worker("quiet", clock)
    assert set(threading.enumerate()) <= before  # a thread of an earlier test may have ended meanwhile


def test_calls_run_in_order_on_one_daemon_thread(worker: Worker) -> None:
    seen: list[tuple[int, str]] = []
    calls = [a_call(lambda n=n: seen.append((n, threading.current_thread().name))) for n in range(50)]
    for call in calls:
        assert worker.submit(call) == ""
    calls[-1].wait()
    assert seen == [(n, "test") for n in range(50)]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "test")


@given(threads=st.integers(1, 4), each=st.integers(0, 30))
def test_every_call_of_every_thread_runs_once(threads: int, each: int) -> None:
    worker, seen = Worker("test", Clock()), []

    def submit(first: int) -> None:
        for number in range(first, first + each):
            worker.submit(a_call(lambda number=number: seen.append(number)))

    callers = [threading.Thread(target=submit, args=(number * each,)) for number in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert worker.stop(60)
    assert sorted(seen) == list(range(threads * each))


def test_a_call_sees_the_contextvars_of_its_caller(worker: Worker) -> None:
    who.set("ann")
    call = a_call(who.get)
    worker.submit(call)
    assert call.wait().value == "ann"


def test_the_caller_waits_no_longer_than_the_timeout(worker: Worker) -> None:
    slow, began, gate = gated()
    worker.submit(slow)
    assert began.wait(60)
    result = slow.wait(0.01)
    assert (result.status, result.counts, result.in_doubt) == ("late", True, True)
    gate.set()


def test_a_late_call_brings_its_result_afterwards(worker: Worker) -> None:
    came, arrived = [], threading.Event()
    slow, began, gate = gated(on_late=lambda result: (came.append(result), arrived.set()))
    worker.submit(slow)
    assert began.wait(60)
    slow.wait(0.01)
    gate.set()
    assert arrived.wait(60)
    assert came[0].ok


def test_a_call_that_was_waited_for_is_not_reported_as_late(worker: Worker) -> None:
    came: list[CallResult] = []
    call = a_call(on_late=came.append)
    worker.submit(call)
    assert call.wait().ok
    after = a_call()
    worker.submit(after)
    after.wait()
    assert came == []


def test_a_background_call_brings_its_result_in_any_case(worker: Worker) -> None:
    came, arrived = [], threading.Event()
    worker.submit(a_call(lambda: "x", on_late=lambda r: (came.append(r), arrived.set()), background=True))
    assert arrived.wait(60)
    assert came == [CallResult("ok", "x")]


def test_each_call_counts_once_as_what_its_waiter_saw(worker: Worker) -> None:
    seen: list[str] = []
    slow, began, gate = gated(record=lambda result: seen.append(result.status))
    worker.submit(slow)
    assert began.wait(60)
    slow.wait(0.01)
    gate.set()
    quick = a_call(record=lambda result: seen.append(result.status))
    worker.submit(quick)
    quick.wait()
    assert seen == ["late", "ok"]


def test_a_background_call_that_takes_too_long_counts_as_late(worker: Worker) -> None:
    seen: list[CallResult] = []
    call = PendingCall(
        "prefetch", lambda: CallResult("ok", "x", elapsed=6.0), 5.0, record=seen.append, background=True
    )
    worker.submit(call)
    assert call.future.result(60).ok
    assert [(result.status, result.error) for result in seen] == [("late", "took 6.0 s")]


def test_a_call_still_in_line_at_the_deadline_never_runs(worker: Worker) -> None:
    slow, began, gate = gated()
    ran: list[int] = []
    waiting = a_call(lambda: ran.append(1))
    worker.submit(slow)
    worker.submit(waiting)
    assert began.wait(60)
    result = waiting.wait(0.01)
    assert (result.status, result.error) == ("skipped", "waited 0.01 s in line behind prefetch")
    assert not result.in_doubt
    gate.set()
    last = a_call()
    worker.submit(last)
    last.wait()
    assert ran == []


def test_a_call_that_was_withdrawn_never_runs(worker: Worker) -> None:
    slow, began, gate = gated()
    ran: list[int] = []
    waiting = a_call(lambda: ran.append(1), background=True)
    worker.submit(slow, waiting)
    assert began.wait(60)
    assert waiting.withdraw()
    assert not slow.withdraw()
    gate.set()
    last = a_call()
    worker.submit(last)
    last.wait()
    assert ran == []


def test_calls_that_are_handed_over_together_run_one_behind_the_other(worker: Worker) -> None:
    seen: list[str] = []
    first, second = (
        a_call(lambda: seen.append("first"), background=True),
        a_call(lambda: seen.append("second")),
    )
    worker.submit(first, second)
    second.wait()
    assert seen == ["first", "second"]


def test_a_wait_ends_when_its_turn_is_stopped_and_the_call_goes_on(worker: Worker) -> None:
    stop = threading.Event()
    slow, began, gate = gated()
    worker.submit(slow)
    assert began.wait(60)
    stop.set()
    with stopped_by(stop):
        result = slow.wait(60)
    assert (result.status, result.error, result.in_doubt) == ("skipped", "the turn was stopped", True)
    gate.set()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no alarm")
def test_the_alarm_of_a_host_ends_a_wait_although_it_is_a_timeout_error(worker: Worker) -> None:
    def alarm(*_: object) -> None:
        raise TimeoutError("the alarm of the host")

    seen: list[CallResult] = []
    slow, began, gate = gated(record=seen.append)
    worker.submit(slow)
    assert began.wait(60)
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(TimeoutError, match="of the host"):
            slow.wait(60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gate.set()
    assert [result.status for result in seen] == ["skipped"]


def test_a_hung_call_is_abandoned_once_then_calls_are_refused_with_the_reason(
    worker: Worker, clock: Clock
) -> None:
    first, first_began, first_gate = gated()
    second, second_began, second_gate = gated()
    worker.submit(first)
    assert first_began.wait(60)
    clock.advance(6)
    assert worker.submit(second) == ""
    assert second_began.wait(60)
    assert worker.abandoned == 1
    clock.advance(6)
    assert "prefetch has not returned for 6.0 s" in worker.submit(a_call())
    second_gate.set()
    second.wait()
    again = a_call()
    assert worker.submit(again) == ""
    assert again.wait().ok
    first_gate.set()


def test_a_worker_says_which_call_is_overdue_and_only_while_it_is(
    worker: Worker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    slow, began, gate = gated()
    assert worker.overdue == ""
    worker.submit(slow)
    assert began.wait(60)
    clock.advance(5)
    assert worker.overdue == ""
    clock.advance(1)
    assert worker.overdue == "prefetch has not returned for 6.0 s (deadline 5 s)"
    beside = a_call()
    worker.submit(beside)  # on a new thread
    assert beside.wait().ok
    assert worker.overdue == "an abandoned call has not returned"
    assert [record.getMessage() for record in caplog.records] == [
        "test: prefetch has not returned for 6.0 s (deadline 5 s); a new thread takes its place"
    ]
    gate.set()
    assert until(lambda: worker.overdue == "")


def test_a_hung_call_that_returns_makes_room_for_a_replacement(worker: Worker, clock: Clock) -> None:
    first, first_began, first_gate = gated()
    second, second_began, second_gate = gated()
    worker.submit(first)
    assert first_began.wait(60)
    clock.advance(6)
    worker.submit(second)
    assert second_began.wait(60)
    clock.advance(6)
    first_gate.set()
    assert first.wait().ok
    third = a_call()
    assert worker.submit(third) == ""
    assert third.wait().ok
    second_gate.set()


def test_a_worker_that_may_not_be_replaced_waits_for_its_call(clock: Clock) -> None:
    worker = Worker("write", clock, replaceable=False)
    hung, began, gate = gated()
    worker.submit(hung)
    assert began.wait(60)
    clock.advance(6)
    assert "prefetch has not returned for 6.0 s" in worker.submit(a_call())
    gate.set()
    hung.wait()
    assert until(lambda: worker.submit(a_call()) == "")
    assert worker.stop(5.0)


def test_a_stopped_worker_runs_what_is_in_line_and_takes_nothing_more(clock: Clock) -> None:
    worker = Worker("test", clock)
    seen: list[int] = []
    for n in range(3):
        worker.submit(a_call(lambda n=n: seen.append(n), background=True))
    assert worker.stop(5.0, a_call(lambda: seen.append(3), background=True))
    assert seen == [0, 1, 2, 3]
    assert worker.submit(a_call()) == "the provider was shut down"


def test_what_waits_for_an_idle_worker_comes_when_the_running_call_has_returned(worker: Worker) -> None:
    seen: list[str] = []
    slow, began, gate = gated()
    worker.submit(slow)
    assert began.wait(60)
    worker.when_idle(lambda: seen.append(threading.current_thread().name))
    assert seen == []
    gate.set()
    assert until(lambda: seen == ["test"])


def test_without_a_thread_a_call_is_refused_with_the_reason_and_the_next_is_taken(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert "can't start new thread" in worker.submit(a_call())
    monkeypatch.undo()
    call = a_call(lambda: "went")
    assert worker.submit(call) == ""
    assert call.wait().value == "went"


@pytest.fixture
def crowd(clock: Clock) -> Iterator[Worker]:
    """A worker that runs two calls of different sessions at once."""
    crowd = Worker("crowd", clock, concurrent=2)
    yield crowd
    assert crowd.stop(60.0)


def test_calls_of_different_sessions_run_at_once_up_to_the_limit(crowd: Worker) -> None:
    ann, ann_began, ann_gate = gated(session_key="ann")
    bob, bob_began, bob_gate = gated(session_key="bob")
    eve, eve_began, eve_gate = gated(session_key="eve")
    for call in (ann, bob, eve):
        assert crowd.submit(call) == ""
    assert ann_began.wait(60)
    assert bob_began.wait(60)
    assert not eve_began.wait(0.1)
    bob_gate.set()
    assert eve_began.wait(60)
    ann_gate.set()
    eve_gate.set()


def test_calls_of_one_session_run_one_at_a_time_and_in_order(crowd: Worker) -> None:
    seen: list[str] = []
    first, began, gate = gated(session_key="ann")
    crowd.submit(first)
    assert began.wait(60)
    crowd.submit(
        a_call(lambda: seen.append("second"), session_key="ann", background=True),
        last := a_call(lambda: seen.append("third"), session_key="ann"),
    )
    other = a_call(lambda: seen.append("other"), session_key="bob")
    crowd.submit(other)
    assert other.wait().ok
    assert seen == ["other"]
    gate.set()
    assert last.wait().ok
    assert seen == ["other", "second", "third"]


def test_a_call_of_no_session_runs_alone(crowd: Worker) -> None:
    seen: list[str] = []
    ann, began, gate = gated(session_key="ann")
    alone, alone_began, alone_gate = gated()
    behind = a_call(lambda: seen.append("behind"), session_key="bob")
    for call in (ann, alone, behind):
        crowd.submit(call)
    assert began.wait(60)
    assert not alone_began.wait(0.1)
    gate.set()
    assert alone_began.wait(60)
    assert seen == []
    alone_gate.set()
    assert behind.wait().ok


def test_an_abandoned_call_counts_and_no_second_call_of_its_session_runs(crowd: Worker, clock: Clock) -> None:
    ann, ann_began, ann_gate = gated(session_key="ann")
    bob, bob_began, bob_gate = gated(session_key="bob")
    crowd.submit(ann)
    assert ann_began.wait(60)
    assert ann.wait(0.01).in_doubt
    clock.advance(6)
    assert crowd.submit(a_call(session_key="ann")) == "prefetch has not returned for 6.0 s (deadline 5 s)"
    assert crowd.overdue == "prefetch has not returned for 6.0 s (deadline 5 s)"
    assert crowd.submit(bob) == ""
    assert bob_began.wait(60)
    eve, eve_began, eve_gate = gated(session_key="eve")
    eve_gate.set()
    assert crowd.submit(eve) == ""
    assert not eve_began.wait(0.1)
    clock.advance(6)
    assert "has not returned" in crowd.submit(a_call(session_key="fay"))
    ann_gate.set()
    assert eve_began.wait(60)
    assert until(lambda: crowd.submit(a_call(session_key="ann")) == "")
    bob_gate.set()


def test_a_call_of_no_session_that_hangs_keeps_no_session_waiting(crowd: Worker, clock: Clock) -> None:
    hung, began, gate = gated()
    crowd.submit(hung)
    assert began.wait(60)
    clock.advance(6)
    call = a_call(session_key="ann")
    assert crowd.submit(call) == ""
    assert call.wait().ok
    gate.set()


def test_a_withdrawn_call_keeps_the_next_of_its_session_from_nothing(crowd: Worker) -> None:
    first, began, gate = gated(session_key="ann")
    crowd.submit(first)
    assert began.wait(60)
    withdrawn, last = a_call(session_key="ann"), a_call(lambda: "ran", session_key="ann")
    crowd.submit(withdrawn)
    crowd.submit(last)
    assert withdrawn.withdraw()
    gate.set()
    assert last.wait().value == "ran"


@given(sessions=st.integers(1, 5), each=st.integers(0, 12), concurrent=st.integers(1, 4))
def test_every_call_runs_once_and_never_two_of_a_session(sessions: int, each: int, concurrent: int) -> None:
    worker = Worker("test", Clock(), concurrent=concurrent)
    lock, running, seen, most = threading.Lock(), set[int](), list[tuple[int, int]](), [0]

    def run(session: int, number: int) -> None:
        with lock:
            assert session not in running
            running.add(session)
            most[0] = max(most[0], len(running))
        seen.append((session, number))
        with lock:
            running.remove(session)

    calls = [
        a_call(lambda session=session, number=number: run(session, number), session_key=session)
        for number in range(each)
        for session in range(sessions)
    ]
    for call in calls:
        assert worker.submit(call) == ""
    assert worker.stop(60)
    assert all(call.future.exception() is None for call in calls)
    assert most[0] <= concurrent
    for session in range(sessions):
        assert [number for owner, number in seen if owner == session] == list(range(each))

from __future__ import annotations

import contextvars
import errno
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from hermes_core.manager.call import CallResult
from hermes_core.manager.lanes import Job, Task, Worker
from hermes_core.manager.line import Errands
from hermes_core.testing.fakes import Clock
from tests.manager.conftest import until

who = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def lane(clock: Clock) -> Iterator[Worker]:
    lane = Worker("test", clock)
    yield lane
    assert lane.stop(5.0)


def job(run: Callable[[], object] = lambda: None, deadline: float = 5.0, **more: object) -> Job:
    return Task("prefetch", lambda: CallResult("ok", run()), deadline, **more)  # type: ignore[arg-type]


def gated(deadline: float = 5.0, **more: object) -> tuple[Job, threading.Event, threading.Event]:
    began, gate = threading.Event(), threading.Event()

    def run() -> str:
        began.set()
        gate.wait()
        return threading.current_thread().name

    return job(run, deadline, **more), began, gate


def test_no_thread_before_the_first_job(lane: Worker) -> None:
    assert "test" not in [thread.name for thread in threading.enumerate()]


def test_jobs_run_in_order_on_one_daemon_thread(lane: Worker) -> None:
    seen: list[tuple[int, str]] = []
    jobs = [job(lambda n=n: seen.append((n, threading.current_thread().name))) for n in range(50)]
    for one in jobs:
        assert lane.submit(one) == ""
    lane.wait(jobs[-1], 5.0)
    assert seen == [(n, "test") for n in range(50)]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "test")


def test_a_job_sees_the_contextvars_of_its_caller(lane: Worker) -> None:
    who.set("ann")
    one = job(who.get)
    lane.submit(one)
    assert lane.wait(one, 5.0).value == "ann"


def test_the_caller_waits_no_longer_than_it_said(lane: Worker) -> None:
    slow, began, gate = gated()
    lane.submit(slow)
    assert began.wait(60)
    assert lane.wait(slow, 0.01).status == "late"
    gate.set()


def test_a_late_job_brings_its_outcome_afterwards(lane: Worker) -> None:
    came, arrived = [], threading.Event()
    slow, began, gate = gated(afterwards=lambda outcome: (came.append(outcome), arrived.set()))
    lane.submit(slow)
    assert began.wait(60)
    lane.wait(slow, 0.01)
    gate.set()
    assert arrived.wait(60)
    assert came[0].ok


def test_a_job_that_was_waited_for_is_not_told_twice(lane: Worker) -> None:
    came: list[CallResult] = []
    one = job(afterwards=came.append)
    lane.submit(one)
    assert lane.wait(one, 5.0).ok
    after = job()
    lane.submit(after)
    lane.wait(after, 5.0)
    assert came == []


def test_a_job_still_in_line_at_the_deadline_never_runs(lane: Worker) -> None:
    slow, began, gate = gated()
    ran: list[int] = []
    waiting = job(lambda: ran.append(1))
    lane.submit(slow)
    lane.submit(waiting)
    assert began.wait(60)
    outcome = lane.wait(waiting, 0.01)
    assert (outcome.status, outcome.error) == ("skipped", "waited 0.01 s in line behind prefetch")
    gate.set()
    last = job()
    lane.submit(last)
    lane.wait(last, 5.0)
    assert ran == []


def test_a_hung_job_is_left_behind_once_then_calls_are_refused_with_the_reason(
    lane: Worker, clock: Clock
) -> None:
    first, first_began, first_gate = gated()
    second, second_began, second_gate = gated()
    lane.submit(first)
    assert first_began.wait(60)
    clock.advance(6)
    assert lane.submit(second) == ""
    assert second_began.wait(60)
    assert lane.abandoned == 1
    clock.advance(6)
    assert "prefetch has not returned for 6.0 s" in lane.submit(job())
    second_gate.set()
    lane.wait(second, 5.0)
    again = job()
    assert lane.submit(again) == ""
    assert lane.wait(again, 5.0).ok
    first_gate.set()


def test_a_lane_tells_which_job_is_overdue_and_only_while_it_is(
    lane: Worker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    slow, began, gate = gated()
    assert lane.overdue == ""
    lane.submit(slow)
    assert began.wait(60)
    clock.advance(5)
    assert lane.overdue == ""
    clock.advance(1)
    assert lane.overdue == "prefetch has not returned for 6.0 s (deadline 5 s)"
    beside = job()
    lane.submit(beside)  # on a new thread
    assert lane.wait(beside, 5.0).ok
    assert lane.overdue == "a call that was left behind has not returned"
    assert [record.getMessage() for record in caplog.records] == [
        "test: prefetch has not returned for 6.0 s (deadline 5 s); a new thread takes its place"
    ]
    gate.set()
    assert until(lambda: lane.overdue == "")


def test_a_hung_job_that_comes_back_makes_room_for_a_replacement(lane: Worker, clock: Clock) -> None:
    first, first_began, first_gate = gated()
    second, second_began, second_gate = gated()
    lane.submit(first)
    assert first_began.wait(60)
    clock.advance(6)
    lane.submit(second)
    assert second_began.wait(60)
    clock.advance(6)
    first_gate.set()
    assert lane.wait(first, 5.0).ok
    third = job()
    assert lane.submit(third) == ""
    assert lane.wait(third, 5.0).ok
    second_gate.set()


def test_a_lane_that_may_not_be_replaced_waits_for_its_job(clock: Clock) -> None:
    lane = Worker("write", clock, replaceable=False)
    hung, began, gate = gated()
    lane.submit(hung)
    assert began.wait(60)
    clock.advance(6)
    assert "prefetch has not returned for 6.0 s" in lane.submit(job())
    gate.set()
    lane.wait(hung, 5.0)
    assert lane.submit(job()) == ""
    assert lane.stop(5.0)


def test_a_patient_job_is_handed_over_with_the_next_one(lane: Worker) -> None:
    seen: list[str] = []
    begun = threading.Event()
    first = job(lambda: (seen.append("first"), begun.set()), watched=False, patient=True)
    second = job(lambda: seen.append("second"))
    lane.submit(first)
    assert not begun.wait(0.05)
    lane.submit(second)
    lane.wait(second, 5.0)
    assert seen == ["first", "second"]


def test_only_one_job_is_patient_at_a_time_and_none_is_left_at_the_end(clock: Clock) -> None:
    lane = Worker("test", clock)
    seen: list[int] = []
    for n in range(3):
        lane.submit(job(lambda n=n: seen.append(n), watched=False, patient=True))
    assert lane.stop(5.0)
    assert seen == [0, 1, 2]


def test_a_stopped_lane_takes_nothing(clock: Clock) -> None:
    lane = Worker("test", clock)
    one = job()
    lane.submit(one)
    assert lane.stop(5.0)
    assert one.outcome is not None
    assert lane.submit(job()) == "the provider was shut down"


def test_a_lane_that_ended_leaves_no_descriptor_open(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    made, pipe = [], os.pipe

    def seen() -> tuple[int, int]:
        made.extend(ends := pipe())
        return ends

    monkeypatch.setattr(os, "pipe", seen)
    lane = Worker("test", clock)
    lane.submit(job())
    assert len(made) == 2
    assert lane.stop(5.0)
    for end in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


def test_without_a_descriptor_a_job_is_refused_with_the_reason_and_the_next_is_taken(
    lane: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    assert "Too many open files" in lane.submit(job())
    monkeypatch.undo()
    one = job(lambda: "went")
    assert lane.submit(one) == ""
    assert lane.wait(one, 5.0).value == "went"


def test_a_job_that_nobody_waits_for_may_be_told_by_an_errand(lane: Worker) -> None:
    done, errands = threading.Event(), Errands()
    assert lane.submit(job(done.set, watched=False), errands) == ""
    assert done.wait(60)
    errands.stop(60)

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.manager.line import Bell, Errands, Line
from tests.manager.conftest import until


@pytest.fixture
def line() -> Iterator[Line[int]]:
    line: Line[int] = Line()
    line.open()
    yield line
    line.close()


@pytest.fixture
def errands() -> Iterator[Errands]:
    errands = Errands()
    yield errands
    errands.stop(5.0)


def taken(line: Line[int], count: int) -> tuple[threading.Thread, list[int]]:
    found: list[int] = []

    def take() -> None:
        for _ in range(count):
            found.append(line.get())

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread, found


def test_a_thread_waits_for_jobs_and_takes_them_in_order(line: Line[int]) -> None:
    thread, found = taken(line, 3)
    for number in range(3):
        line.put(number)
        line.ring()
    thread.join(60)
    assert found == [0, 1, 2]


def test_several_jobs_need_one_ring(line: Line[int]) -> None:
    thread, found = taken(line, 2)
    line.put(1)
    line.put(2)
    line.ring()
    thread.join(60)
    assert found == [1, 2]


@given(threads=st.integers(1, 4), each=st.integers(0, 30))
def test_every_job_of_every_caller_is_taken_once(threads: int, each: int) -> None:
    line: Line[int] = Line()
    line.open()

    def call(first: int) -> None:
        for number in range(first, first + each):
            line.put(number)
            line.ring()

    taker, found = taken(line, threads * each)
    callers = [threading.Thread(target=call, args=(number * each,)) for number in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    taker.join(60)
    line.close()
    assert sorted(found) == list(range(threads * each))


def test_one_that_is_rung_without_end_holds_nobody(line: Line[int]) -> None:
    for _ in range(200_000):  # a pipe of Linux holds 65,536
        line.ring()
    line.put(1)
    line.ring()
    thread, found = taken(line, 1)
    thread.join(60)
    assert found == [1]


def test_a_ring_after_the_end_writes_to_no_other_file(line: Line[int]) -> None:
    line.close()
    ends = [os.pipe() for _ in range(3)]  # they have the numbers of the line's now
    line.ring()
    for reading, writing in ends:
        os.close(writing)
        assert os.read(reading, 1) == b""
        os.close(reading)


def test_errands_are_done_on_another_thread(errands: Errands) -> None:
    done: list[str] = []
    errands.add(lambda: done.append(threading.current_thread().name))
    errands.add(lambda: done.append(threading.current_thread().name))
    assert until(lambda: len(done) == 2)
    assert done == ["hermes-errands", "hermes-errands"]


def test_an_errand_that_is_due_is_not_due_twice(errands: Errands) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), []

    def hold() -> None:
        begun.set()
        go_on.wait(60)

    def ring() -> None:
        done.append(1)

    errands.add(hold)
    assert begun.wait(60)
    for _ in range(1000):
        errands.add(ring)
    go_on.set()
    errands.stop(60)
    assert done == [1]


def test_errands_are_done_by_the_caller_where_no_thread_can_be_had(
    errands: Errands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    errands.add(lambda: done.append("first"))
    assert done == ["first"]
    monkeypatch.undo()
    errands.add(lambda: done.append("second"))
    assert until(lambda: done == ["first", "second"])


def test_errands_end_with_what_is_due_and_later_ones_are_done_by_the_caller(errands: Errands) -> None:
    done: list[str] = []
    errands.add(lambda: done.append("before"))
    errands.stop(60)
    assert "hermes-errands" not in [thread.name for thread in threading.enumerate()]
    errands.add(lambda: done.append("after"))
    assert done == ["before", "after"]


def test_a_bell_that_was_rung_lets_one_wait_through_at_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    began = time.monotonic()
    bell.wait(60.0)
    assert time.monotonic() - began < 30
    bell.ring()
    bell.quiet()
    bell.wait(0.01)
    assert not bell._silent.acquire(blocking=False), "it was forgotten, and nobody rang since"

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.manager.breaker import COOLDOWN_S, MAX_FAILURES, Breaker
from hermes_memory_testing.fakes import Clock


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        assert breaker.admit()
        breaker.failure()


def test_opens_after_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, MAX_FAILURES - 1)
    assert breaker.state == "closed"
    fail(breaker, 1)
    assert breaker.state == "open"
    assert not breaker.admit()


def test_a_success_starts_the_count_again(breaker: Breaker) -> None:
    fail(breaker, MAX_FAILURES - 1)
    breaker.success()
    fail(breaker, MAX_FAILURES - 1)
    assert breaker.state == "closed"


def test_a_refused_request_neither_counts_nor_resets(breaker: Breaker) -> None:
    fail(breaker, MAX_FAILURES - 1)
    for _ in range(20):
        assert breaker.admit()
        breaker.answered()
    assert breaker.state == "closed"
    fail(breaker, 1)
    assert breaker.state == "open"


def test_half_open_admits_exactly_one_probe(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, MAX_FAILURES)
    clock.advance(COOLDOWN_S)
    assert breaker.state == "half-open"
    assert [breaker.admit() for _ in range(5)] == [True, False, False, False, False]


def test_threads_that_race_for_the_probe_get_one(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, MAX_FAILURES)
    clock.advance(COOLDOWN_S)
    gate, admitted = threading.Barrier(16), []

    def ask() -> None:
        gate.wait()
        admitted.append(breaker.admit())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted.count(True) == 1


def test_a_probe_that_works_closes_it(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, MAX_FAILURES)
    clock.advance(COOLDOWN_S)
    assert breaker.admit()
    breaker.success()
    assert breaker.state == "closed"
    fail(breaker, MAX_FAILURES - 1)
    assert breaker.state == "closed"


def test_a_probe_that_fails_opens_it_for_another_cooldown(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, MAX_FAILURES)
    clock.advance(COOLDOWN_S)
    fail(breaker, 1)
    assert breaker.state == "open"
    assert breaker.remaining == COOLDOWN_S
    clock.advance(COOLDOWN_S - 1)
    assert not breaker.admit()


def test_a_probe_that_the_backend_refuses_shows_that_it_is_back(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, MAX_FAILURES)
    clock.advance(COOLDOWN_S)
    assert breaker.admit()
    breaker.answered()
    assert breaker.state == "closed"


def test_a_probe_that_hangs_leaves_the_place_to_another_in_time(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, MAX_FAILURES)
    clock.advance(COOLDOWN_S)
    assert breaker.admit()
    clock.advance(COOLDOWN_S - 1)
    assert not breaker.admit()
    clock.advance(1)
    assert [breaker.admit(), breaker.admit()] == [True, False]


def test_a_probe_that_never_went_out_leaves_the_place_to_another(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, MAX_FAILURES)
    clock.advance(COOLDOWN_S)
    assert breaker.admit()
    breaker.withdrawn()
    assert breaker.admit()


MOVES = {
    "succeeds": Breaker.success,
    "fails": Breaker.failure,
    "is refused": Breaker.answered,
    "never goes out": Breaker.withdrawn,
}


@given(st.lists(st.tuples(st.sampled_from(sorted(MOVES)), st.sampled_from([0.0, 1.0, COOLDOWN_S]))))
def test_what_is_read_without_the_lock_agrees_with_what_is_counted(moves: list[tuple[str, float]]) -> None:
    clock = Clock()
    breaker, in_a_row = Breaker(clock), 0
    for move, seconds in moves:
        clock.advance(seconds)
        probe = breaker.state == "half-open"
        if not breaker.admit():
            assert breaker.state == "open"
            continue
        MOVES[move](breaker)
        if move == "succeeds" or (move == "is refused" and probe):
            in_a_row = 0
        in_a_row += move == "fails"
        assert breaker.closed == (breaker.state == "closed") == (in_a_row < MAX_FAILURES)
        assert breaker.at_rest == (in_a_row == 0)

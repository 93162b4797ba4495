"""A turn names each problem once."""

from __future__ import annotations

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.problems import distinct


def test_a_problem_is_named_once_whatever_number_it_holds(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [
        "memory provider 'a' is degraded: left alone for 12 s more",
        "memory provider 'b' is failed: nobody at 'http://127.0.0.1:8001'",
        "memory provider 'a' is degraded: left alone for 11.5 s more",
        "memory provider 'b' is failed: nobody at 'http://127.0.0.1:8002'",
    ]
    with open_memory(hermes_home) as memory:
        monkeypatch.setattr(memory.manager, "problems", lambda: told)
        turn = memory.conversation().turn("Where do we deploy?")
        assert [one for one in turn.problems if "memory provider" in one] == [told[0], told[1], told[3]]
        assert [one for one in memory.problems() if "memory provider" in one] == [told[0], told[1], told[3]]


def test_the_first_of_two_problems_stays_in_its_place() -> None:
    assert distinct(["a 1", "b", "a 2"]) == ["a 1", "b"]


def test_a_tolerated_error_is_a_problem_until_the_next_success(hermes_home: HermesHome) -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    with open_memory(hermes_home) as memory:
        with memory.problem_log.tolerate("the last turn", OSError):
            fail()
        assert "the disk is full" in memory.problems()
        with memory.problem_log.tolerate("the last turn", OSError):
            pass
        assert "the disk is full" not in memory.problems()
        with pytest.raises(OSError, match="full"), memory.problem_log.tolerate("the last turn", ValueError):
            fail()

"""A table of cases as one test."""

from __future__ import annotations

import pytest

from tests.table import table


@pytest.fixture
def limit() -> int:
    return 3


def test_the_rows_that_fail_are_named_and_the_others_are_run() -> None:
    seen: list[tuple[int, str]] = []

    @table("name", ["a", pytest.param("b", id="second")])
    @table("number, fails", [(1, False), (2, True)])
    def test(limit: int, number: int, name: str, fails: bool) -> None:
        assert number < limit
        seen.append((number, name))
        if fails:
            raise ValueError(f"{name} is wrong")

    with pytest.raises(pytest.fail.Exception) as caught:
        test(limit=3)
    assert seen == [(1, "a"), (2, "a"), (1, "b"), (2, "b")]
    assert "2 of 2 rows" in str(caught.value)
    assert "'a': Failed: 1 of 2 rows:\n2, True: ValueError: a is wrong" in str(caught.value)


@table("number", [1, 2])
def test_a_table_takes_fixtures(limit: int, number: int) -> None:
    assert number < limit


def test_a_row_that_skips_is_a_failure() -> None:
    @table("number", [1])
    def test(number: int) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.fail.Exception, match="not here"):
        test()

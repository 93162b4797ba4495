from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    ["recall.tokens", "recall.forms", "recall.dates", "recall.query", "sessions.records"],
)
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"hermes_core.{module}"))

    assert result.attempted > 0
    assert result.failed == 0

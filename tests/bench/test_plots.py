"""Figures that took minutes are told whether or not they can be drawn."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark as its program does, in an environment without matplotlib."""
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return importlib.import_module


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_shares_of_a_prompt_are_told_before_they_are_drawn(
    bench: Any, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = bench("prefix_cache")
    monkeypatch.setattr(module, "session", lambda recall: [])
    monkeypatch.setattr(module, "shares", lambda sent, design: [0.5, 0.75])
    monkeypatch.setattr(module, "read_anew", lambda sent, design: [7])
    monkeypatch.setattr(sys, "argv", ["prefix_cache.py", "--plot", "shares.svg", *options])
    with pytest.raises(SystemExit, match="the plot was not drawn: matplotlib is missing"):
        module.main()
    assert "0.625" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_scores_of_the_algebra_are_told_before_they_are_drawn(
    bench: Any, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = bench("holographic")
    monkeypatch.setattr(module, "run", lambda system, sizes: [])
    monkeypatch.setattr(
        module, "trust", lambda ratings: {"ratings": ratings, "by_counts": 1.0, "by_steps": 0.5}
    )
    with pytest.raises(SystemExit, match="the plot was not drawn: matplotlib is missing"):
        module.main(["--plot", "scores.svg", *options])
    assert "0.5" in capsys.readouterr().out

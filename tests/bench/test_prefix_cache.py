from __future__ import annotations

import importlib
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("prefix_cache")


@pytest.mark.slow
def test_nearly_all_of_a_request_repeats_the_one_before(bench: ModuleType) -> None:
    sent = bench.session(500)
    assert len(sent) == 150
    ours, rebuilt, in_prompt = (fmean(bench.shares(sent, design)) for design in bench.DESIGNS)
    assert ours >= 0.95
    assert ours > rebuilt + 0.03
    assert ours > in_prompt + 0.2

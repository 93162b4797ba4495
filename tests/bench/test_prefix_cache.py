from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "prefix_cache.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prefix_cache", BENCH)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_nearly_all_of_a_request_repeats_the_one_before(bench: ModuleType) -> None:
    sent = bench.session(500)
    assert len(sent) == 150
    ours, rebuilt, in_prompt = (fmean(bench.shares(sent, design)) for design in bench.DESIGNS)
    assert ours >= 0.95
    assert ours > rebuilt + 0.03
    assert ours > in_prompt + 0.2

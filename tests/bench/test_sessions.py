"""The benchmark of the session store runs, and what it says of a small store is what it must be."""

from __future__ import annotations

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_sessions", BENCH / "sessions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_small_run_measures_every_kind_of_query_and_loses_nothing(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "APPENDS", 20)
    options = Namespace(peer=None, runs=1, rounds=1, writers=[2], writes=5, kept=None)
    found = bench.measure(400, tmp_path, options)
    assert found["size"]["all"] > 200
    answered = {kind: told.get("answered") for kind, told in found["search"].items() if kind != "all"}
    assert {kind for kind, count in answered.items() if count == 0} == {"no hit", "no hit CJK"}
    assert answered["phrase"] == answered["natural"] == bench.QUERIES
    (at_once,) = found["at_once"]
    assert (at_once["failed"], at_once["lost"]) == (0, 0)
    json.dumps(found)
    bench.report({"sizes": [found]})

"""The benchmark of both engines runs, and both answer alike in it."""

from __future__ import annotations

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def test_a_small_run_measures_both_engines_and_gets_the_same_answers(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("bench_engines", BENCH / "engines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    monkeypatch.setattr("sessions_corpus.QUERIES", 3)
    monkeypatch.setattr(module, "SIZED_MESSAGES", 50)
    monkeypatch.setattr(module, "START_S", 1.5)

    options = Namespace(
        messages=400,
        owners=3,
        processes=[1, 2],
        appends=5,
        rounds=1,
        turns=3,
        folder=tmp_path,
        url=postgres_url,
    )
    found = module.run(options)

    assert [run["owners"] for run in found["runs"]] == [3, 1]
    for run in found["runs"]:
        assert run["search"]["all"]["same"] == run["search"]["all"]["of"]
        assert run["log_bytes"]["postgresql"] > 200
    assert found["runs"][0]["append"]["2"]["postgresql"]["per_second"] > 0
    for figures in found["sizes"].values():
        assert figures["postgresql"]["bytes"] > figures["sqlite"]["bytes"] > 100
    assert found["turn"]["postgresql"]["round_trips"]["end"] > 0
    page = tmp_path / "page.md"
    marks = [f"<!-- {name} -->old<!-- /{name} -->" for name in module.tables(found)]
    page.write_text("\n".join(marks))
    module.write_into(page, module.tables(json.loads(json.dumps(found))))
    assert "| 1,000,000 |" in page.read_text()
    assert "old" not in page.read_text()

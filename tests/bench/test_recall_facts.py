from __future__ import annotations

import importlib
import json
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"

pytest.importorskip("dateparser")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, with a few lines of each language and one store of each kind of change."""
    monkeypatch.syspath_prepend(BENCH)
    bench = importlib.import_module("recall_facts")
    blocks = bench._blocks

    def first_lines(path: Path) -> list[tuple[str, str, list[str]]]:
        length = {bench.TIMES: 4, bench.CHANGED: 16}.get(path)
        return [(kind, language, lines[:length]) for kind, language, lines in blocks(path)]

    monkeypatch.setattr(bench, "_blocks", first_lines)
    monkeypatch.setattr(bench, "measure_changes", partial(bench.measure_changes, copies=1))
    return bench


def test_facts_are_told_and_asked_for_beside_other_talk(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = [
        {"speaker": "AB"[i % 2] + "nn", "dia_id": f"D1:{i}", "text": f"We talked of thing{i} today."}
        for i in range(10)
    ]
    chat = {
        "sample_id": "talk",
        "conversation": {"speaker_a": "Ann", "speaker_b": "Bnn", "session_1": talk},
        "qa": [{"question": "What of thing7?", "evidence": ["D1:7"], "category": 4}],
    }
    (tmp_path / "realtalk-locomo-format.json").write_text(json.dumps([chat]))

    assert bench.main(["--panel", str(tmp_path), "--size=5", "--half=held", "--step=30", "--json"]) == 0

    figures = json.loads(capsys.readouterr().out)

    assert {row["language"]: row["right"] for row in figures["words"]}["es"] >= 0.9
    assert {row["language"] for row in figures["times"]} == {"en", "de", "fr", "es", "ru", "zh"}
    assert all(row["marked"] <= 0.01 for row in figures["changes"] if row["kind"] == "bait")
    (german,) = (row for row in figures["facts"] if row["languages"] == "de")
    assert german["questions"] == 20
    assert german["found"] >= 0.9
    assert {row["set"] for row in figures["idle"]} == {"realtalk", "year-en", "year-de"}
    assert all(0 <= row["share"] <= 1 for row in figures["idle"])

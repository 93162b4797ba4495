from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "bench" / "recall_facts.py"


pytest.importorskip("dateparser")


def test_facts_are_told_and_asked_for_beside_other_talk(tmp_path: Path) -> None:
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
    command = [sys.executable, str(PROGRAM), "--panel", str(tmp_path), "--size=5", "--half=held", "--json"]
    done = subprocess.run([*command, "--step=30"], capture_output=True, text=True, check=True)

    figures = json.loads(done.stdout)

    assert {row["language"]: row["right"] for row in figures["words"]}["es"] >= 0.9
    assert {row["language"] for row in figures["times"]} == {"en", "de", "fr", "es", "ru", "zh"}
    assert all(row["marked"] <= 0.01 for row in figures["changes"] if row["kind"] == "bait")
    (german,) = (row for row in figures["facts"] if row["languages"] == "de")
    assert german["questions"] == 20
    assert german["found"] >= 0.9
    assert {row["set"] for row in figures["idle"]} == {"realtalk", "year-en", "year-de"}
    assert all(0 <= row["share"] <= 1 for row in figures["idle"])

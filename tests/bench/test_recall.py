from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_scores_a_file_and_beats_its_baselines(tmp_path: Path) -> None:
    lines = [
        {"speaker": "AB"[i % 2] + "nn", "dia_id": f"D1:{i}", "text": f"We talked of thing{i} today."}
        for i in range(40)
    ]
    data = {
        "sample_id": "x",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bnn",
            "session_1": lines,
            "session_1_date_time": "1:56 pm on 8 May, 2023",
        },
        "qa": [
            {"question": "What of thing7?", "evidence": ["D1:7"], "category": 4},
            {"question": "What of thing9?", "evidence": ["D1:9", "D9:9"], "category": 5},
            {"question": "What of nothing?", "evidence": ["D"], "category": 1},
        ],
    }
    (tmp_path / "data.json").write_text(json.dumps([data]))

    command = [
        sys.executable,
        str(ROOT / "bench" / "recall.py"),
        "--data",
        str(tmp_path / "data.json"),
        "--json",
        *(f"--system={name}" for name in ("ours", "no-memory", "recent", "grep", "plain-fts5")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    scores = {one["system"]: one for one in json.loads(done.stdout)}
    assert set(scores) == {"ours", "no-memory", "recent", "grep", "plain-fts5"}
    assert scores["ours"]["overall"]["questions"] == 1
    assert scores["ours"]["overall"]["recall@1"] == 1.0
    assert scores["ours"]["categories"]["adversarial"]["recall@1"] == 1.0
    assert scores["ours"]["overall"]["recall@10_low"] == scores["ours"]["overall"]["recall@10_high"] == 1.0
    assert scores["ours"]["overall"]["coverage@1500_tokens"] == 1.0
    assert scores["grep"]["overall"]["recall@20"] == 1.0
    assert scores["no-memory"]["overall"]["recall@20"] == 0.0

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.programs import bench_program

ROOT = Path(__file__).parents[2]
SYSTEMS = ("ours", "no-memory", "recent", "whole-conversation", "grep", "plain-fts5")

STAND_IN = """
class SessionDB:
    def __init__(self, path): self.texts = []
    def create_session(self, session, source): print("noise on standard output")
    def append_message(self, session, role, text, timestamp):
        self.texts.append(text)
        return len(self.texts)
    def search_messages(self, query, limit):
        asked = [word.strip('"').lower() for word in query.split(" OR ")]
        return [{"id": n} for n, t in enumerate(self.texts, 1) if any(word in t for word in asked)][:limit]
"""
"""A peer that is as strict as hermes-agent: a question as it stands finds nothing."""


def conversation(tmp_path: Path) -> Path:
    lines = [
        {"speaker": "AB"[i % 2] + "nn", "dia_id": f"D1:{i}", "text": f"We talked of thing{i} at place{i}."}
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
            {"question": "What of thing7 at place7?", "evidence": ["D1:7"], "category": 4},
            {"question": "What of thing9 at place9?", "evidence": ["D1:9", "D9:9"], "category": 5},
            {"question": "What of nothing?", "evidence": ["D"], "category": 1},
        ],
    }
    path = tmp_path / "data.json"
    path.write_text(json.dumps([data]))
    return path


def scored(*options: object) -> dict[str, Any]:
    command = [*bench_program("recall.py"), "--json", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {one["system"]: one for one in json.loads(done.stdout)}


def test_the_benchmark_scores_a_file_and_beats_its_baselines(tmp_path: Path) -> None:
    scores = scored("--data", conversation(tmp_path), *(f"--system={name}" for name in SYSTEMS))

    assert set(scores) == set(SYSTEMS)
    assert scores["ours"]["overall"]["questions"] == 1
    assert scores["ours"]["overall"]["recall@1"] == 1.0
    assert scores["ours"]["categories"]["adversarial"]["recall@1"] == 1.0
    assert scores["ours"]["overall"]["recall@10_low"] == scores["ours"]["overall"]["recall@10_high"] == 1.0
    assert scores["ours"]["overall"]["coverage@1500_tokens"] == 1.0
    assert scores["grep"]["overall"]["recall@20"] == 1.0
    assert scores["no-memory"]["overall"]["recall@20"] == 0.0
    assert scores["whole-conversation"]["overall"]["recall@10"] == 1.0
    assert scores["whole-conversation"]["tokens_at_10"] > 3 * scores["grep"]["tokens_at_10"]
    assert "mrr" not in scores["whole-conversation"]["overall"]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A Python environment in which the stand-in is installed."""
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "hermes_state.py").write_text(STAND_IN)
    python = environment / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={environment} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return environment


PEERS = ("--system=hermes-session-search", "--system=hermes-session-search-or")


def test_a_peer_is_asked_in_its_own_environment_the_question_as_it_stands_and_as_words(
    tmp_path: Path, environment: Path
) -> None:
    scores = scored("--data", conversation(tmp_path), "--peer", environment, *PEERS)

    assert scores["hermes-session-search"]["overall"]["recall@20"] == 0.0
    assert scores["hermes-session-search-or"]["overall"]["recall@1"] == 1.0


def test_a_panel_has_peers_beside_ours(tmp_path: Path, environment: Path) -> None:
    (tmp_path / "panel").mkdir()
    data = conversation(tmp_path)
    scores = scored(
        "--panel", tmp_path / "panel", "--locomo", data, "--peer", environment, *PEERS, "--system=ours"
    )

    recalls = {name: row["recall"] for name, row in scores.items()}
    assert recalls == {"hermes-session-search": 0.0, "hermes-session-search-or": 1.0, "ours": 1.0}
    assert scores["hermes-session-search"]["cpu_ms"] is None
    assert scores["ours"]["cpu_ms"] > 0


def test_a_large_store_keeps_the_questions_and_buries_their_evidence(tmp_path: Path) -> None:
    data = conversation(tmp_path)
    scores = scored("--data", data, "--system=whole-conversation", "--system=ours", "--turns", 200)

    assert scores["ours"]["conversations"].keys() == {"200 messages"}
    assert scores["ours"]["overall"]["questions"] == 1
    assert scores["ours"]["overall"]["recall@20"] == 1.0
    assert scores["whole-conversation"]["tokens_at_10"] > 200 * 5


def test_the_benchmark_tells_what_is_given_unasked(tmp_path: Path) -> None:
    command = [
        *bench_program("recall.py"),
        "--proactive",
        "--data",
        str(conversation(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    figures = json.loads(done.stdout)["words"]
    assert figures["recall_proactive"] == figures["recall_of_ten"] == 1.0
    assert 0 < figures["answerable_tokens"] < 1
    assert 0 <= figures["small_talk_tokens"] <= 1

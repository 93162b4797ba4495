from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "bench" / "recall.py"


def message(role: str, content: str, ref: str) -> dict[str, Any]:
    return {"role": role, "content": content, "speaker": "", "ref": ref, "at": None}


def documented(name: str, sessions: list[list[Any]], questions: list[Any], shared: list[list[Any]]) -> bytes:
    def given(prefix: str, several: list[list[Any]]) -> list[dict[str, Any]]:
        return [{"id": f"{prefix}{n}", "started_at": None, "messages": m} for n, m in enumerate(several)]

    data = {
        "name": name,
        "shared_sessions": given("shared-", shared),
        "conversations": [{"id": "c", "sessions": given("own-", sessions), "questions": questions}],
    }
    return gzip.compress(json.dumps(data).encode())


@pytest.fixture
def panel(tmp_path: Path) -> Path:
    """A panel with a set of each kind, small enough that each system finds what it can read."""
    folder = tmp_path / "panel"
    folder.mkdir()
    talk = [
        {"speaker": "AB"[i % 2] + "nn", "dia_id": f"D1:{i}", "text": f"We talked of thing{i} today."}
        for i in range(40)
    ]
    chat = {
        "sample_id": "talk",
        "conversation": {"speaker_a": "Ann", "speaker_b": "Bnn", "session_1": talk},
        "qa": [
            {"question": "What of thing7?", "evidence": ["D1:7"], "category": 4},
            {"question": "What of thing8?", "evidence": ["D1:8"], "category": 5},
        ],
    }
    (tmp_path / "locomo.json").write_text(json.dumps([chat]))
    (folder / "people-locomo-format.json").write_text(json.dumps([chat]))
    turn = {"turn": f"{'We spoke of it for long. ' * 3}What of thing9?", "question": "", "evidence": ["D1:9"]}
    (folder / "long-questions.json").write_text(
        json.dumps({"about": "", "sample_id": "talk", "questions": [turn]})
    )
    (folder / "turns.json").write_text(json.dumps({"about": "", "task": ["Sort it"]}))
    output = [message("user", "Run it", "r0"), message("tool", "error E42 in main", "r1")]
    other = [message("user", f"Say {n}", f"s{n}") for n in range(30)]
    tools = [{"question": "Which error in main?", "pattern": "E\\d+", "kind": "tool-output"}]
    (folder / "tools.json.gz").write_bytes(documented("tools", [output], tools, [other]))
    chinese = [message("user", "我的猫叫米米。", "z0"), message("user", "今天天气很好。", "z1")]
    noise = [message("user", f"第{n}天我们去公园散步。", f"n{n}") for n in range(30)]
    cats = [
        {"question": "猫叫什么名字？", "evidence": ["z0"], "kind": "simple"},
        {"question": "Nothing", "evidence": ["absent"], "kind": "simple"},
    ]
    (folder / "chinese.json.gz").write_bytes(documented("chinese", [chinese], cats, [noise]))
    return folder


def measured(panel: Path, *options: object) -> dict[tuple[str, str], dict[str, Any]]:
    command = [sys.executable, str(PROGRAM), "--panel", str(panel), "--json", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {(one["set"], one["system"]): one for one in json.loads(done.stdout)}


WORDS = ("--system=ours", "--system=plain-fts5", "--system=fts5-bigrams")


def test_a_panel_is_measured_in_one_table(panel: Path, tmp_path: Path) -> None:
    figures = measured(panel, "--locomo", tmp_path / "locomo.json", *WORDS)

    assert [name for name, system in figures if system == "ours"] == [
        "locomo",
        "chinese",
        "people",
        "tools",
        "long-questions",
    ]
    for one in figures.values():
        assert one["questions"] == 1
        assert one["cpu_ms"] > 0
    for name in ("locomo", "people", "tools", "chinese"):
        assert figures[name, "ours"]["recall"] == 1.0
        assert figures[name, "ours"]["tokens"] > 0
    assert figures["tools", "ours"]["measure"] == "hit@10"
    assert figures["chinese", "plain-fts5"]["recall"] == 0.0
    assert figures["chinese", "fts5-bigrams"]["recall"] == 1.0


def test_a_set_without_its_conversations_is_left_out_and_said(panel: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--panel", str(panel), "--system=plain-fts5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "long-questions.json is left out" in done.stderr
    assert {one["set"] for one in json.loads(done.stdout)} == {"people", "tools", "chinese"}


def test_stores_are_kept_between_runs(panel: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = measured(panel, "--set=tools", "--cache", cache, "--system=ours")
    kept = {path.name: path.stat().st_mtime_ns for path in cache.glob("*.db") if path.stem != "encodings"}
    second = measured(panel, "--set=tools", "--cache", cache, "--system=ours")

    assert kept == {
        path.name: path.stat().st_mtime_ns for path in cache.glob("*.db") if path.stem != "encodings"
    }
    assert len(kept) == 1
    assert first["tools", "ours"]["recall"] == second["tools", "ours"]["recall"] == 1.0


def test_a_set_or_system_that_does_not_exist_is_refused(panel: Path) -> None:
    for option in ("--set=other", "--system=other"):
        done = subprocess.run(
            [sys.executable, str(PROGRAM), "--panel", str(panel), option], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert "there are" in done.stderr


def test_what_a_turn_gets_unasked_is_measured_with_default_settings(panel: Path) -> None:
    """The store must be larger than the budget of recall, because a smaller store is recalled as a whole."""
    shared = [message("user", f"We painted wall number{n} blue " * 9, f"w{n}") for n in range(90)]
    own = [message("user", "My cat is called Miracle", "c1")]
    asked = [{"question": "What is my cat called?", "evidence": ["c1"], "kind": "simple"}]
    (panel / "walls.json.gz").write_bytes(documented("walls", [own], asked, [shared]))
    (panel / "turns.json").write_text(json.dumps({"task": ["Sort it", "My cat is called Miracle"]}))
    command = [sys.executable, str(PROGRAM), "--panel", str(panel), "--unasked", "--json"]
    done = subprocess.run(
        [*command, "--set=walls", "--system=ours"], capture_output=True, text=True, check=True
    )

    figures = json.loads(done.stdout)
    (turns,) = figures["turns"]
    assert (turns["kind"], turns["turns"], turns["share"]) == ("task", 2, 0.5)
    (gate,) = figures["gate"]
    assert gate["recall"] == gate["gated"] == gate["injected"] == 1.0
    assert 0 < gate["tokens"] < 1500


def test_two_checkouts_are_asked_the_same_in_one_run(panel: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "recall_cpu.py"), "--against", str(ROOT), "--json"]
    data = json.loads((tmp_path / "locomo.json").read_text())
    (tmp_path / "locomo.json").write_text(json.dumps(3 * data))
    done = subprocess.run(
        [*command, "--data", str(tmp_path / "locomo.json"), "--turns", "200"],
        capture_output=True,
        text=True,
        check=True,
    )

    figures = json.loads(done.stdout)
    assert figures["questions"] == 6
    assert figures["ours"]["mean_ms"] > 0 < figures["against"]["mean_ms"]
    assert 0 < figures["low"] <= figures["quotient"] <= figures["high"]


def test_a_folder_without_the_code_is_no_checkout(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "recall_cpu.py"), "--against", str(tmp_path)]
    (tmp_path / "data.json").write_text("[]")
    done = subprocess.run([*command, "--data", str(tmp_path / "data.json")], capture_output=True, text=True)

    assert done.returncode == 1
    assert "holds no hermes_core" in done.stderr

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.bench.programs import bench_program

ROOT = Path(__file__).parents[2]


def message(role: str, content: str, ref: str) -> dict[str, Any]:
    return {"role": role, "content": content, "speaker": "", "ref": ref, "at": None}


def documented(name: str, sessions: list[list[Any]], questions: list[Any], shared: list[list[Any]]) -> bytes:
    def sessions_of(prefix: str, several: list[list[Any]]) -> list[dict[str, Any]]:
        return [{"id": f"{prefix}{n}", "started_at": None, "messages": m} for n, m in enumerate(several)]

    data = {
        "name": name,
        "shared_sessions": sessions_of("shared-", shared),
        "conversations": [{"id": "c", "sessions": sessions_of("own-", sessions), "questions": questions}],
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


def measure(panel: Path, *options: object) -> dict[tuple[str, str], dict[str, Any]]:
    command = [*bench_program("recall.py"), "--panel", str(panel), "--json", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {(one["set"], one["system"]): one for one in json.loads(done.stdout)}


WORDS = ("--system=ours", "--system=plain-fts5", "--system=fts5-bigrams")


def test_a_panel_is_measured_in_one_table(panel: Path, tmp_path: Path) -> None:
    figures = measure(panel, "--locomo", tmp_path / "locomo.json", *WORDS)

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
    command = [*bench_program("recall.py"), "--panel", str(panel), "--system=plain-fts5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "long-questions.json is left out" in done.stderr
    assert {one["set"] for one in json.loads(done.stdout)} == {"people", "tools", "chinese"}


def test_stores_are_kept_between_runs(panel: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = measure(panel, "--set=tools", "--cache", cache, "--system=ours")
    stores = {path.name: path.stat().st_mtime_ns for path in cache.glob("*.db") if path.stem != "encodings"}
    second = measure(panel, "--set=tools", "--cache", cache, "--system=ours")

    assert stores == {
        path.name: path.stat().st_mtime_ns for path in cache.glob("*.db") if path.stem != "encodings"
    }
    assert len(stores) == 1
    assert first["tools", "ours"]["recall"] == second["tools", "ours"]["recall"] == 1.0


def test_a_set_or_system_that_does_not_exist_is_refused(panel: Path) -> None:
    for option in ("--set=other", "--system=other"):
        done = subprocess.run(
            [*bench_program("recall.py"), "--panel", str(panel), option], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert "there are" in done.stderr


def test_what_a_turn_gets_unasked_is_measured_with_default_settings(panel: Path) -> None:
    shared = [message("user", f"We painted wall number{n} blue " * 9, f"w{n}") for n in range(90)]
    own = [message("user", "My cat is called Miracle", "c1")]
    questions = [{"question": "What is my cat called?", "evidence": ["c1"], "kind": "simple"}]
    (panel / "walls.json.gz").write_bytes(documented("walls", [own], questions, [shared]))
    (panel / "turns.json").write_text(json.dumps({"task": ["Sort it", "Who is my cat Miracle?"]}))
    command = [*bench_program("recall.py"), "--panel", str(panel), "--unasked", "--json"]
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
    command = [*bench_program("recall_cpu.py"), "--against", str(ROOT), "--json"]
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
    command = [*bench_program("recall_cpu.py"), "--against", str(tmp_path)]
    (tmp_path / "data.json").write_text("[]")
    done = subprocess.run([*command, "--data", str(tmp_path / "data.json")], capture_output=True, text=True)

    assert done.returncode == 1
    assert "holds no hermes_core" in done.stderr


def row(name: str, system: str, recall: float) -> dict[str, Any]:
    return {
        "set": name,
        "system": system,
        "measure": "R@10",
        "questions": 7,
        "recall": recall,
        "low": recall - 0.1,
        "high": recall + 0.1,
        "tokens": 1234.5,
        "cpu_ms": None if system.startswith("hermes") else 4.2,
    }


def test_figures_of_several_runs_become_tables_in_a_page(tmp_path: Path) -> None:
    ours, peers, unasked = tmp_path / "ours.json", tmp_path / "peers.json", tmp_path / "unasked.json"
    ours.write_text(
        json.dumps([row("beam-100k", "ours", 0.5), row("locomo", "ours", 0.8), row("new", "ours", 0)])
    )
    peers.write_text(json.dumps([row("locomo", "hermes-session-search-or", 0.9)]))
    turns = {"set": "locomo", "system": "ours", "kind": "task", "turns": 10, "share": 0.75, "tokens": 164}
    gate = {**row("locomo", "ours", 0.8), "gated": 0.79, "injected": 0.78}
    unasked.write_text(json.dumps({"turns": [turns], "gate": [gate]}))
    page, short = tmp_path / "page.md", tmp_path / "README.md"
    page.write_text("Before.\n<!-- recall: begin -->\nold\n<!-- recall: end -->\nAfter.\n")
    short.write_text("<!-- recall: short -->\n<!-- recall: end -->\n")
    command = [*bench_program("recall.py"), "--figures", str(ours), str(peers), str(unasked)]
    subprocess.run([*command, "--into", str(page), "--into", str(short)], check=True)
    subprocess.run([*command, "--into", str(page)], check=True)

    lines = page.read_text().splitlines()
    assert lines[0] == "Before."
    assert lines[-1] == "After."
    assert "old" not in lines
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| LoCoMo")]
    assert [cells[1:] for cells in rows] == [
        ["80.0 (70.0-90.0)", "**90.0 (80.0-100.0)**"],
        ["1,234; 4 ms", "1,234"],
        ["75; 164"],
        ["80.0", "79.0", "78.0"],
    ]
    first_column = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")]
    assert [name.split(":")[0] for name in first_column[2:5]] == ["LoCoMo", "BEAM", "new (7)"]
    assert "80.0 | **90.0**" in short.read_text()
    assert "1,234" not in short.read_text()


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "page.md"
    figures.write_text(json.dumps([row("locomo", "ours", 0.8)]))
    page.write_text("Nothing.\n")
    command = [*bench_program("recall.py"), "--figures", str(figures), "--into", str(page)]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 1
    assert "add it where the tables belong" in done.stderr
    assert page.read_text() == "Nothing.\n"

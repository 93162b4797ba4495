"""Hundreds of facts from Holographic to Mem0 and back, with a kill on each way: counts and hashes stay equal."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, Session, load_provider
from hermes_core.contract.values import MemoryRecord
from plugins.mem0.tests.stand_in import Models
from tests.rounds import rounds

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL"),
    pytest.mark.timeout(580),
    pytest.mark.shortened,
]

FACTS = rounds(500)
BEFORE_KILL = FACTS // 8
"""Facts that have arrived when the move is killed."""


def command(home: HermesHome, *words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "hermes_core",
        "--home",
        str(home.path),
        "migrate",
        *words,
        "--yes",
        "--json",
    ]


def killed(words: list[str], arrived: Callable[[], int]) -> None:
    """Start a move, and kill it when some facts have arrived."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 200
    while arrived() < BEFORE_KILL:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


def finished(words: list[str]) -> dict[str, Any]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    receipt: dict[str, Any] = json.loads(done.stdout)
    assert receipt["source_hash"] == receipt["target_hash"]
    assert (receipt["memories"], receipt["verified"], receipt["altered"], receipt["refused"]) == (
        FACTS,
        True,
        0,
        [],
    )
    return receipt


def facts_of(home: HermesHome) -> list[MemoryRecord]:
    """Return the facts that Holographic has, through its own hook."""
    provider: Any = load_provider("holographic", home).factory()
    session = Session("s", home=str(home.path))
    provider.initialize(session)
    records, cursor = list[MemoryRecord](), ""
    while True:
        page = provider.export_memories(cursor, session)
        records += page.records
        cursor = page.cursor
        if not cursor:
            provider.shutdown()
            return records


def test_there_and_back(models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    first, second = HermesHome(tmp_path / "first"), HermesHome(tmp_path / "second")
    for home in (first, second):
        home.path.mkdir()
    first.provider_json("mem0").write_text(
        json.dumps({"mode": "oss", "embedder": "openai", "embedder_url": f"{models.url}/v1"})
    )
    provider: Any = load_provider("holographic", first).factory()
    session = Session("s", home=str(first.path))
    provider.initialize(session)
    store = provider._facts_of(session).store
    for number in range(FACTS):
        fact, _ = store.add(
            f"Crate {number} is in hall {number % 7}.", "project", f"hall{number % 7}, crates"
        )
        if number % 5 == 0:
            store.feedback(fact, helpful=number % 2 == 0)
    provider.shutdown()
    before = facts_of(first)
    there = command(first, "--from", "holographic", "--to", "mem0")
    begun = len(models.requests)
    killed(there, lambda: len(models.requests) - begun)
    assert finished(there)["copied"] < FACTS
    assert [one.digest for one in facts_of(first)] == [one.digest for one in before]

    def arrived() -> int:
        path = second.path / "memory_store.db"
        if not path.exists():
            return 0
        with closing(sqlite3.connect(path)) as db:
            try:
                return int(db.execute("SELECT count(*) FROM facts").fetchone()[0])
            except sqlite3.Error:
                return 0

    back = command(second, "--from", "mem0", "--from-home", str(first.path), "--to", "holographic")
    killed(back, arrived)
    assert finished(back)["copied"] < FACTS
    assert sorted(one.digest for one in facts_of(second)) == sorted(one.digest for one in before)

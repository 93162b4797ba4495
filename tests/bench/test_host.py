"""The benchmark of hosts on asyncio runs, and says what it could not measure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "host.py"


@pytest.mark.slow
def test_the_benchmark_measures_each_row_or_says_what_to_install() -> None:
    command = [sys.executable, str(BENCH), "--people", "2", "--hung", "1", "--seconds", "0.5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    for name in ("asyncio.to_thread", "open_memory_async"):
        assert figures[name]["recalled"] == 2
        assert figures[name].keys() == {"look_up_s", "recalled", "longest_s", "cancelled_s"}
    for name in ("mem0-strands", "zep-adk"):
        assert figures[name].get("recalled") == 2 or f"pip install {name}" in figures[name]["missing"]

"""A process that uses memory for long needs no more memory, threads and descriptors than after its start.

`make chaos SOAK=3600` soaks for an hour; the short form of the suite for some seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.conftest import Record
from tests.chaos.soak import Sample, growth, plot, table

SECONDS = float(os.environ.get("CHAOS_SOAK_S", "1"))

MAX_GROWTH_MB = 6.0
"""A turn that left a kilobyte behind would cost more than this in a long soak.

Caches of bounded size fill up in the first thousands of turns, by about 0.5 KB a turn: pages of SQLite (2 MB for each
connection), 1,000 parsed skills, 8,192 words of the scan, and results of tools that no turn shows (4,096, 1.2 MB).
"""


@pytest.mark.slow
@pytest.mark.timeout(SECONDS * 2 + 300)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_threads_and_descriptors_stay_flat(tmp_path: Path, record: Record) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.chaos.soak",
        str(tmp_path / "home"),
        "--seconds",
        str(SECONDS),
        "--json",
    ]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    samples = [Sample(**sample) for sample in json.loads(done.stdout)]
    print(table(samples))
    if folder := os.environ.get("CHAOS_OUTPUT"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "soak.txt").write_text(table(samples) + "\n")
        plot(samples, Path(folder, "soak.png"))
    last = samples[-1]
    record("soak", seconds=last.seconds, turns=last.turns, **{
        field: f"{getattr(last, field)} ({growth(samples, field):+.2f})"
        for field in ("megabytes", "threads", "descriptors", "store_megabytes")
    })  # fmt: skip
    assert growth(samples, "threads") <= 0
    assert growth(samples, "descriptors") <= 0
    assert growth(samples, "megabytes") < MAX_GROWTH_MB

"""The power fails at any moment of a program: what was acknowledged is there when the home is opened again, and it is whole.

The disk holds what was synced, and of the rest anything from nothing to all (`disk.py`). `make chaos` makes 500 cuts.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from tests.chaos import faults
from tests.chaos.conftest import Host, Record
from tests.faults import disk
from tests.faults.disk import Disk, Loss
from tests.faults.workload import prepare

CUTS = 500 if "CHAOS_FAULTS" in os.environ else 6
RUNS = 5 if "CHAOS_FAULTS" in os.environ else 1
STEPS = 60 if "CHAOS_FAULTS" in os.environ else 16

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(bool(faults.obstacle()), reason=faults.obstacle() or "it is here")


class Checker(Host):
    """The process that looks at homes after a cut."""

    def check(self, home: HermesHome, seed: int, done: int, begun: int) -> None:
        """Assert that a home holds what the steps up to `done` left, or that of `begun` too."""
        self._ask(home=str(home.path), seed=seed, steps=STEPS, done=done, begun=begun)


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checker]:
    checker = Checker(tmp_path_factory.mktemp("power") / "errors", "tests.faults.power", "check")
    yield checker
    checker.stop()


def recorded(home: HermesHome, record: Path, seed: int) -> Disk:
    """Run the program, and return its disk at the start."""
    prepare(home)
    start = Disk(home.path)
    words = ["record", str(home.path), str(record), str(seed), str(STEPS)]
    command = [sys.executable, "-m", "tests.faults.power", *words]
    subprocess.run(command, cwd=ROOT, env=disk.environment(), check=True, timeout=600)
    return start


def last_mark(marks: list[str], word: str) -> int:
    """Return the number of the last step that was begun or done."""
    return max((int(mark.split()[1]) for mark in marks if mark.startswith(word)), default=0)


@pytest.mark.shortened
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(RUNS))
def test_no_power_cut_loses_what_was_acknowledged(
    hermes_home: HermesHome, checker: Checker, tmp_path: Path, record: Record, seed: int
) -> None:
    chance = random.Random(seed)
    state = recorded(hermes_home, tmp_path / "record", seed)
    lines = list(disk.lines_of(tmp_path / "record"))
    count = CUTS // RUNS
    cuts = sorted(chance.randrange(len(lines)) for _ in range(count))
    figures: dict[str, Any] = {loss.value: 0 for loss in Loss}
    taken = 0
    for number, cut in enumerate(cuts):
        for line in lines[taken:cut]:
            state.take(line)
        taken = cut
        # Of three cuts one loses all, and two lose some.
        loss = Loss.ALL if number % 3 == 0 else Loss.SOME
        shutil.rmtree(hermes_home.path)
        state.image(hermes_home.path, loss, chance)
        done, begun = last_mark(state.marks, "done"), last_mark(state.marks, "begun")
        try:
            checker.check(hermes_home, seed, done, begun)
        except AssertionError as exc:
            raise AssertionError(
                f"cut {cut} of {len(lines)}, loss {loss.value}, at {lines[cut]}: {exc}"
            ) from exc
        figures[loss.value] += 1
    record(f"power: run {seed}", calls=len(lines), cuts=count, lost=0, **figures)


def test_the_recorded_disk_is_the_real_one_if_nothing_is_lost(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    state = recorded(hermes_home, tmp_path / "record", 0)
    for line in disk.lines_of(tmp_path / "record"):
        state.take(line)
    state.image(tmp_path / "image", Loss.NOTHING, random.Random(0))
    assert contents(tmp_path / "image") == contents(hermes_home.path)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a folder, except the shared memory of SQLite."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

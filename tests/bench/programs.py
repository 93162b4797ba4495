"""Programs of bench/ as commands, forked from a process that has imported the core (`tests/forked.py`)."""

from __future__ import annotations

from pathlib import Path

from tests.forked import python

BENCH = Path(__file__).parents[2] / "bench"


def bench_program(name: str) -> list[str]:
    """Return the command of a program of bench/, to which options are added."""
    path = str(BENCH / name)
    code = f"import runpy, sys; sys.path.insert(0, {str(BENCH)!r}); sys.argv[0] = {path!r}"
    return [*python(), "-c", f"{code}; runpy.run_path({path!r}, run_name='__main__')"]

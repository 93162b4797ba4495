"""Reading a file holds one conversation of it, however large the file is."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"

# Of what an importer reads into memory as a whole, a file of this size would take several times as much.
FILE_MB, GROWTH_MB = 32, 12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["langgraph", "langgraph, dump of PostgreSQL", "mem0, history.db"])
def test_a_file_is_read_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    module: Any = importlib.import_module("imports")
    grown, parts = module.growth(name, FILE_MB * 2**20)
    assert parts > 1000
    assert grown < GROWTH_MB


def test_a_file_that_is_one_value_shows_that_the_figure_can_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    module: Any = importlib.import_module("imports")
    assert module.growth("mem0, one answer", 16 * 2**20)[0] > GROWTH_MB

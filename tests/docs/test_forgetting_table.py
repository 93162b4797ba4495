"""Each provider's page says for four cases whether the backend forgets, when, and what stays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes_core.loader.discover import BUNDLED
from tests.forgetting_cells import ROWS, cells

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("provider", sorted(BUNDLED))
def test_the_page_has_the_table_with_a_row_for_each_case(provider: str) -> None:
    assert cells(provider).keys() == ROWS.keys()
    page = (ROOT / "docs/reference/providers" / f"{provider}.md").read_text(encoding="utf-8")
    section = page.split("## Forgetting\n")[1].split("\n## ")[0]
    for row in ROWS.values():
        (line,) = [line for line in section.splitlines() if line.startswith(f"| {row} |")]
        forgotten, when, stays = (cell.strip() for cell in line.split("|")[2:5])
        assert re.match(r"(yes|no)\b", forgotten)
        assert bool(when) == forgotten.startswith("yes")
        assert stays


@pytest.mark.parametrize("provider", sorted(BUNDLED))
def test_a_test_holds_each_cell_against_a_backend(provider: str) -> None:
    tests = (ROOT / "plugins" / provider / "tests").rglob("test_*.py")
    assert any(
        re.search(rf'hold\(\s*"{provider}",\s*row', path.read_text(encoding="utf-8")) for path in tests
    )

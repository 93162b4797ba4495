"""The how-to page shows what really happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/test-a-provider.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_the_page_shows_the_table_of_its_own_example_and_mends_it(pytester: pytest.Pytester) -> None:
    python = blocks("python")
    shown = next(block for block in blocks("text") if not block.startswith("$"))  # no command
    pytester.makepyfile(test_notes="\n".join(python[:2]))
    done = pytester.runpytest_inprocess("-q", "--assert=plain", "-p", "no:xdist", "-p", "no:cacheprovider")
    lines = done.stdout.str().splitlines()
    start = lines.index(shown.splitlines()[0])
    assert lines[start : start + shown.count("\n")] == shown.splitlines()
    mended = next(line for line in lines if line.startswith("TestMendedNotes"))
    assert "to fix" not in mended

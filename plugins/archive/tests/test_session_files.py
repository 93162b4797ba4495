"""Sessions as files: `hermes-memory sessions export` and `import`."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from hermes_core import HermesHome
from hermes_memory_archive import session_files
from tests.cli.test_session_files import filled, ids, run

__all__ = ["filled"]

ORIGIN = re.compile(r', "origin": "\w+"')


def test_an_export_is_imported_again_and_is_private(filled: HermesHome, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    run("sessions", "export", "--all", "-o", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text().splitlines()) == 4
    assert json.loads(run("sessions", "import", str(file), "--json").stdout)["present"] == 4
    run("sessions", "delete", "old", "--yes")
    assert "1 session imported, 3 here already" in run("sessions", "import", str(file)).stdout
    assert "cellar" in run("sessions", "show", "old").stdout
    # What came back is the same, and marked as an import.
    again = run("sessions", "export", "--all").stdout
    assert ORIGIN.sub("", again) == ORIGIN.sub("", file.read_text())
    assert '"origin": "import"' in again


def test_an_export_is_chosen_by_id_source_and_user(filled: HermesHome) -> None:
    def exported(*options: str) -> list[str]:
        lines = run("sessions", "export", *options).stdout.splitlines()
        return [json.loads(line)["session"]["id"] for line in lines]

    assert exported("old", "his") == ["old", "his"]
    assert exported("--source", "telegram") == ["hers", "his"]
    assert exported("--user", "telegram:42") == ["hers"]
    run("sessions", "export", code=2)
    run("sessions", "export", "--user", "nobody", code=1)


def test_lines_that_can_not_be_imported_are_named_and_the_others_come_in(
    filled: HermesHome, tmp_path: Path
) -> None:
    lines = run("sessions", "export", "old").stdout
    run("sessions", "delete", "old", "--yes")
    file = tmp_path / "mixed.jsonl"
    file.write_text(f"{{\n\n[]\n{lines}")
    result = run("sessions", "import", str(file), code=1)
    assert "line 1" in result.stderr
    assert "line 3" in result.stderr
    assert "old" in ids(filled)


def test_a_line_whose_values_would_fill_the_memory_is_named(filled: HermesHome, tmp_path: Path) -> None:
    file = tmp_path / "bomb.jsonl"
    file.write_text("[" + "[]," * 2_000_000 + "[]]\n" + run("sessions", "export", "hers").stdout)
    assert "line 1: it has 4,000,002 values" in " ".join(
        run("sessions", "import", str(file), code=1).stderr.split()
    )


def test_a_line_without_an_end_is_not_read_whole(
    filled: HermesHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_files, "MAX_LINE_CHARS", 1000)
    file = tmp_path / "long.jsonl"
    file.write_text("x" * 2000)
    assert "line 1 has more than 1,000" in " ".join(
        run("sessions", "import", str(file), code=1).stderr.split()
    )

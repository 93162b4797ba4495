"""The file rules of Windows, which `make test-windows-rules` gives the whole suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.windows.sitecustomize import RULES, name_fault

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these rules are for Linux")

PROGRAM = """
import os, shutil, sqlite3, subprocess, sys, tempfile
from pathlib import Path

def told(action):
    try:
        action()
    except OSError as exc:
        return getattr(exc, "winerror", type(exc).__name__)
    return "done"

folder = Path(tempfile.mkdtemp())
{setup}
print({steps})
"""


def told(setup: str, *steps: str) -> list[object]:
    """Return what a program under the rules was told for each step: "done", or the number of the error."""
    code = PROGRAM.format(setup=setup, steps=", ".join(f"told(lambda: {step})" for step in steps))
    folder = str(Path(__file__).parent)
    environment = {**os.environ, RULES: "windows", "PYTHONPATH": folder}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    return [int(word) if word.isdigit() else word for word in done.stdout.split()]


@pytest.mark.parametrize(
    "opened",
    [
        "held = (folder / 'a').open('w')",
        "held = sqlite3.connect(folder / 'a'); held.execute('CREATE TABLE t (x)')",
        "(folder / 'a').touch(); held = subprocess.Popen([sys.executable, '-c', 'print(flush=True); input()'], "
        "stdin=(folder / 'a').open(), stdout=-1); held.stdin = None",
    ],
    ids=["by Python", "by SQLite", "by another process"],
)
def test_what_is_open_stays_in_its_place(opened: str) -> None:
    setup = f"{opened}; (folder / 'b').touch(); (folder / 'below').mkdir(); (folder / 'below/c').touch()"
    steps = (
        "(folder / 'a').unlink()",
        "(folder / 'a').rename(folder / 'new')",
        "(folder / 'b').replace(folder / 'a')",
        "folder.rename(str(folder) + '-2')",
        "shutil.rmtree(folder / 'below')",
        "(folder / 'b').unlink()",
    )
    assert told(setup, *steps) == [32, 32, 32, 32, "done", "done"]


def test_a_rename_replaces_nothing_and_a_read_only_file_stays() -> None:
    setup = "(folder / 'a').touch(); (folder / 'b').touch(); (folder / 'r').touch(0o444); os.chdir(folder)"
    steps = (
        "(folder / 'a').rename(folder / 'b')",
        "(folder / 'a').replace(folder / 'b')",
        "(folder / 'r').unlink()",
        "(folder / 'b').replace(folder / 'r')",
        "folder.rename(str(folder) + '-2')",
    )
    assert told(setup, *steps) == ["FileExistsError", "done", 5, 5, 32]


def test_names_that_windows_refuses_or_changes() -> None:
    names = ("con", "NUL.txt", "com1", "a:b", "what?", "work.", "blank ", "tab\t")
    assert [name for name in names if not name_fault(name)] == []
    assert [name for name in ("console", "work.d", "a b", "com10", ".hidden", "ü") if name_fault(name)] == []
    steps = ("(folder / 'con').touch()", "(folder / 'work.').mkdir()", "sqlite3.connect(folder / 'a?')")
    assert told("", *steps) == [123, 123, 123]

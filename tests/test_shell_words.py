"""Commands that a person is told to run, in POSIX shells, cmd.exe and PowerShell."""

from __future__ import annotations

import os
import shlex

import pytest

from hermes_core import shell_words
from hermes_core.shell_words import shell_line, shell_moves, shell_word
from tests.table import table

PYTHON = r"C:\Program Files\Python\python.exe"


@pytest.fixture(params=["cmd", "powershell"])
def shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A shell of Windows, as the environment shows it."""
    profile = r"C:\Users\Ann"
    modules = r"C:\Program Files\WindowsPowerShell\Modules;C:\WINDOWS\system32\WindowsPowerShell\v1.0\Modules"
    if request.param == "powershell":
        modules = rf"{profile}\Documents\PowerShell\Modules;{modules}"
    monkeypatch.setenv("USERPROFILE", profile)
    monkeypatch.setenv("PSMODULEPATH", modules)
    monkeypatch.setattr(shell_words, "os", _Windows)
    return str(request.param)


class _Windows:
    name = "nt"
    environ = os.environ


def test_a_word_without_signs_of_a_shell_stays_as_it_is(shell: str) -> None:
    for word in (r"C:\Users\ann\hermes", "--user=ann", "pip", "0.1.0"):
        assert shell_word(word) == word


def test_other_words_are_quoted_as_their_shell_reads_them(shell: str) -> None:
    words = ("numpy>=1.26", "two words", "ann's $HOME", "")
    read = {
        "cmd": ['"numpy>=1.26"', '"two words"', '"ann\'s $HOME"', '""'],
        "powershell": ["'numpy>=1.26'", "'two words'", "'ann''s $HOME'", "''"],
    }
    assert [shell_word(word) for word in words] == read[shell]


def test_a_program_whose_path_has_a_blank_runs(shell: str) -> None:
    assert (
        shell_line((PYTHON, "-m", "pip"))
        == {
            "cmd": f'"{PYTHON}" -m pip',
            "powershell": f"& '{PYTHON}' -m pip",
        }[shell]
    )
    assert shell_line(("pip", "install", "a b")).startswith("pip install ")


def test_files_are_moved_by_a_command_that_is_there(shell: str) -> None:
    joint = {"cmd": " && ", "powershell": "; "}[shell]
    assert shell_moves([("a", "b"), ("c", "d")]) == f"move a b{joint}move c d"


@table("word", ["plain", "two words", "it's", "$HOME", "a\\b", ""])
def test_elsewhere_a_shell_of_posix_reads_the_word_again(word: str) -> None:
    if os.name != "nt":
        assert shlex.split(shell_line(("program", word))) == ["program", word]
        assert shell_moves([("a", word)]) == f"mv a {shlex.quote(word)}"

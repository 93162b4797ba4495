"""Commands that a person is told to run, in the quoting of their shell."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from typing import Literal

# In cmd.exe and PowerShell these stand for themselves.
_PLAIN = re.compile(r"[\w:/\\.+=-]+", re.ASCII)


def shell_word(word: object) -> str:
    """Return a word of a command, in quotes if the shell needs them. cmd.exe knows no single quotes."""
    text, shell = str(word), _shell()
    if shell == "posix":
        return shlex.quote(text)
    if _PLAIN.fullmatch(text):
        return text
    return (
        "'" + text.replace("'", "''") + "'" if shell == "powershell" else '"' + text.replace('"', '""') + '"'
    )


def shell_line(words: Iterable[object]) -> str:
    """Return the command of these words, of which the first is the program."""
    line = " ".join(map(shell_word, words))
    # Without it, a path in quotes is a text that PowerShell prints.
    return f"& {line}" if line.startswith("'") and _shell() == "powershell" else line


def shell_moves(moves: Iterable[tuple[object, object]]) -> str:
    """Return the commands that rename files, one after the other."""
    program = "mv" if _shell() == "posix" else "move"
    # The PowerShell of Windows knows no "&&".
    joint = "; " if _shell() == "powershell" else " && "
    return joint.join(shell_line((program, source, target)) for source, target in moves)


def _shell() -> Literal["posix", "cmd", "powershell"]:
    if os.name != "nt":
        return "posix"
    # PowerShell names the modules of its user first, and the machine's alone are there without it.
    first = os.environ.get("PSMODULEPATH", "").partition(";")[0].casefold()
    return "powershell" if first.startswith(os.environ.get("USERPROFILE", "?").casefold()) else "cmd"

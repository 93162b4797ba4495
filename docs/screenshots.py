"""Take the pictures of the documentation anew: `python docs/screenshots.py`. Real output of real commands, as SVG.

Each command runs in a home of its own that is thrown away. Names of this machine's folders are left out. Those of the page
`hermes-memory ui` are PNG files, which its tests take in Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
HERMES = [sys.executable, "-m", "hermes_core"]
"""Command that stands for `hermes-memory`."""

PAGE = "page"
"""Name that stands for all pictures of the page."""

WIDE = 200
"""Columns for a table, so that nothing is folded; the picture is as wide as its longest line."""

_FONT_FROM_THE_NET = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@dataclass(frozen=True)
class Shot:
    """One picture: the commands of which the last is shown after those that make it ready."""

    name: str
    command: str
    before: tuple[str, ...] = ()
    columns: int = WIDE
    lines: int = 60


USED = (
    "hermes-memory memory use holographic",
    "hermes-memory memory add --target user 'Nadia is allergic to cashews.'",
    "hermes-memory memory add 'The billing service is deployed from the blue cluster.'",
)
SAMPLE = shlex.quote(str(ROOT / "hermes_core/cli/sample/conversation.jsonl"))
SHOTS = (
    Shot("demo", "hermes-memory demo", columns=100, lines=46),
    Shot("status", "hermes-memory memory status", USED),
    Shot(
        "recall",
        "hermes-memory recall -k 3 'What is Nadia allergic to?'",
        (*USED, f"hermes-memory import {SAMPLE}"),
        columns=100,
    ),
    Shot("doctor", "hermes-memory doctor", USED),
    Shot("providers", "hermes-memory providers", USED),
    Shot("plugins", "hermes-memory plugins list", USED),
)


def main() -> int:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="names of pictures, or none for all")
    parser.add_argument("--to", type=Path, default=IMAGES, help="the folder to write to")
    options = parser.parse_args()
    for path in take([shot for shot in SHOTS if not options.names or shot.name in options.names], options.to):
        click.echo(f"written: {path}")
    if not options.names or PAGE in options.names:
        take_page(options.to)
    return 0


def take_page(folder: Path) -> None:
    """Write the pictures of the page, with the test that compares their names with those that the documentation shows."""
    test = "plugins/ui/tests/test_browser.py::test_the_pictures_of_the_documentation_can_be_taken_anew"
    command = [sys.executable, "-m", "pytest", "-q", test]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "UI_PICTURES": str(folder.absolute())}, check=True)


def take(shots: list[Shot], folder: Path) -> Iterator[Path]:
    """Write the picture of each shot into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hermes-shot-") as scratch:
        ready: dict[tuple[str, ...], Path] = {}
        for shot in shots:
            if shot.before not in ready:
                ready[shot.before] = Path(scratch, f"ready-{len(ready)}")
                ready[shot.before].mkdir()
                for command in shot.before:
                    run(command, ready[shot.before], WIDE)
            home = Path(scratch, shot.name, ".hermes")
            shutil.copytree(ready[shot.before], home)
            said = run(shot.command, home, shot.columns)
            path = folder / f"{shot.name}.svg"
            path.write_text(picture(shot, anonymous(said, home)), encoding="utf-8")
            yield path


def run(command: str, home: Path, columns: int) -> str:
    """What the command prints, with its colours. It must work: exit code 3 is for what a reader should not see."""
    words = [*HERMES, *shlex.split(command)[1:]]
    # Whether to search by meaning is for the one who takes the pictures to say; none shows it, and its model takes long.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HERMES_") or name == "HERMES_SEMANTIC"
    }
    variables = {
        **kept,
        "HERMES_HOME": str(home),
        "FORCE_COLOR": "1",
        "COLUMNS": str(columns),
        "TERM": "xterm",
    }
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def anonymous(said: str, home: Path) -> str:
    """The same without the folders of this machine."""
    for path, shown in ((home, "~/.hermes"), (ROOT, "~/hermes_core"), (Path(sys.prefix), "~/.venv")):
        said = re.sub(f"{re.escape(str(path))}(?=  )", shown.ljust(len(str(path))), said).replace(
            str(path), shown
        )
    return said


def picture(shot: Shot, said: str) -> str:
    """The prompt, the command and its output as SVG, without a font from elsewhere."""
    output = Text.from_ansi(said.rstrip())
    shown = Text("$ ", style="bold green").append(shot.command, style="bold")
    lines = [shown, *output.split("\n")[: shot.lines]]
    if len(output.split("\n")) > shot.lines:
        lines.append(Text("...", style="dim"))
    for line in lines:
        line.rstrip()
    width = min(shot.columns, max(line.cell_len for line in lines) + 1)
    console = Console(
        record=True, file=StringIO(), width=width, color_system="truecolor", force_terminal=True
    )
    for line in lines:
        console.print(line, soft_wrap=False)
    return _FONT_FROM_THE_NET.sub(
        "", console.export_svg(title="hermes-memory", unique_id=f"hermes-{shot.name}")
    )


if __name__ == "__main__":
    sys.exit(main())

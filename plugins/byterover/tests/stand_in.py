"""A `brv` of the test's own: the program of `brv_program.py` in a folder, what it was asked, and what goes wrong."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

DOWN = "Daemon failed to start automatically.\n\nRestart your terminal and retry the command."


class StandInBrv:
    """The program, as `path`; `folder` is its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / "brv"
        tests = str(Path(__file__).parent)
        # Imported, so that it is compiled once.
        program = (
            f"import sys; sys.path.insert(0, {tests!r}); import brv_program; brv_program.run({str(folder)!r})"
        )
        self.path.write_text(f"#!{sys.executable} -IS\n{program}\n", encoding="utf-8")
        self.path.chmod(0o755)

    def fail(self, command: str = "*", **fault: Any) -> None:
        """Let a command, or with "*" all that ask the daemon, go wrong. `kind` says how; "curation" scripts the model."""
        self._write({**self._faults(), command: fault})

    def heal(self) -> None:
        """Answer well again."""
        self._write({})

    @contextmanager
    def trouble(self, command: str = "*", **fault: Any) -> Iterator[None]:
        """Let a command go wrong within this context."""
        self.fail(command, **fault)
        try:
            yield
        finally:
            self.heal()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Let a curation that is handed over within this context go on until the end of it."""
        held = self.folder / "held"
        held.touch()
        with self.trouble("curation", held=True):
            yield
        held.unlink()

    def outage(self) -> AbstractContextManager[None]:
        """No daemon within this context."""
        return self.trouble(kind="error", error=DOWN)

    def curated(self) -> list[str]:
        """The texts that were curated, in order, of all projects and profiles."""
        return self._lines("accepted.jsonl")

    def said(self) -> list[str]:
        """What the person said in the turns that were curated, in order."""
        return [text.partition("\nUser: ")[2].partition("\nAssistant: ")[0] for text in self.curated()]

    def calls(self, command: str = "") -> list[dict[str, Any]]:
        """What it was asked, in order: command, words, cwd, env."""
        return [call for call in self._lines("calls.jsonl") if command in ("", call["command"])]

    @property
    def children(self) -> list[int]:
        """Process ids of what it started while it hung."""
        return self._lines("children.jsonl")

    def remove(self) -> None:
        """Uninstall it."""
        shutil.rmtree(self.folder)

    def _lines(self, name: str) -> list[Any]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def _faults(self) -> dict[str, Any]:
        path = self.folder / "faults.json"
        return json.loads(path.read_text("utf-8")) if path.exists() else {}

    def _write(self, faults: dict[str, Any]) -> None:
        (self.folder / "faults.json").write_text(json.dumps(faults), encoding="utf-8")

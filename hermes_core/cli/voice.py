"""How an answer comes to the terminal: as it streams, whole lines beside it, nothing of the background in between."""

from __future__ import annotations

import sys
import threading

import click

from hermes_core.agent import ToolRequest
from hermes_core.safety.terminal import printable


class Voice:
    """Prints to a person. `turn` is held while an answer comes, so that a background thread waits for its end."""

    def __init__(self, *, tools: bool = False) -> None:
        self.turn = threading.Lock()
        self._out = sys.stdout
        self._tools = tools
        self._open_line = False

    def say(self, text: str) -> None:
        """The next piece of the answer."""
        click.echo(printable(text), file=self._out, nl=False)
        self._open_line = not text.endswith("\n")

    def end_line(self) -> None:
        """What comes next begins a line."""
        if self._open_line:
            click.echo(file=self._out)
        self._open_line = False

    def called(self, request: ToolRequest, result: str) -> None:
        """A tool was called; what the model says after it is another paragraph."""
        del result
        self.end_line()
        if self._tools:
            self.aside(f"[{request.name}]")

    def aside(self, text: str) -> None:
        """A line that is no part of the answer."""
        click.secho(printable(text), dim=True, err=True)

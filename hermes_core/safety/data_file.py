"""The lines of a file in `data`, which changes without the code."""

from __future__ import annotations

from pathlib import Path


def data_lines(name: str) -> list[str]:
    """Return the lines of a file in `data` that are neither empty nor a comment."""
    text = Path(__file__).with_name("data").joinpath(name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]

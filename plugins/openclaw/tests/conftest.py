"""The home folder of a person who used OpenClaw."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.openclaw.tests.openclaw_trees import write_tree


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's home folder, in which OpenClaw's folder lies."""
    folder = tmp_path / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    return folder


@pytest.fixture
def source(person: Path) -> Path:
    return write_tree(person / ".openclaw")

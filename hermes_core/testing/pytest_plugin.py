"""The pytest plugin that comes with the package: a home for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.home import HermesHome


@pytest.fixture
def hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HermesHome:
    """A HERMES_HOME of the test's own, also in the environment; the person's is never touched."""
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HERMES_PROFILE", raising=False)
    return HermesHome(tmp_path / "home")

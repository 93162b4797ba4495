"""The providers of these tests are imported by name, here and in the test runs that a test starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

UNUSED_PLUGINS = ("-p", "no:langsmith_plugin")
"""Options of pytest in a test run that a test starts: the plugin of langsmith takes half a second to import."""


@pytest.fixture(autouse=True)
def _without_unused_plugins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # deletes the variable
        monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(UNUSED_PLUGINS))

"""Importing a package that reads the environment while it is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.kit import import_with

NOSY = """
import os
seen = os.environ.get("NOSY_TELEMETRY"), os.environ.get("NOSY_FOLDER")
if seen[1] == "broken":
    raise ImportError("can't use the folder")
"""


@pytest.fixture(autouse=True)
def nosy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that looks at two variables when it is imported; one of them is set."""
    (tmp_path / "nosy_package.py").write_text(NOSY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NOSY_TELEMETRY", "on")
    monkeypatch.delenv("NOSY_FOLDER", raising=False)
    yield
    sys.modules.pop("nosy_package", None)


def environment() -> tuple[str | None, str | None]:
    return os.environ.get("NOSY_TELEMETRY"), os.environ.get("NOSY_FOLDER")


def test_the_package_sees_the_variables_and_nobody_afterwards() -> None:
    module = import_with("nosy_package", {"NOSY_TELEMETRY": "off", "NOSY_FOLDER": "here"})
    assert module.seen == ("off", "here")
    assert environment() == ("on", None)


def test_what_is_imported_already_is_given_as_it_is() -> None:
    first = import_with("nosy_package", {"NOSY_FOLDER": "here"})
    assert import_with("nosy_package", {"NOSY_FOLDER": "there"}) is first
    assert first.seen == ("on", "here")


def test_after_an_import_that_fails_the_environment_is_as_before() -> None:
    with pytest.raises(ImportError, match="can't use the folder"):
        import_with("nosy_package", {"NOSY_TELEMETRY": "off", "NOSY_FOLDER": "broken"})
    assert environment() == ("on", None)

"""The kit is a distribution of its own: hermes-memory-core neither contains nor needs it."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[3]
CORE, TESTING = ROOT, ROOT / "plugins/testing"


class Environment:
    """A fresh virtual environment; the pip of this one installs into it, without an index."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"

    def pip(self, *words: str) -> None:
        options = ["--disable-pip-version-check", "--python", str(self.python)]
        subprocess.run([sys.executable, "-m", "pip", *options, *words], check=True, capture_output=True)

    def finds(self, module: str) -> bool:
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        return subprocess.run([self.python, "-P", "-c", code], capture_output=True).returncode == 0

    def pytest_plugins(self) -> str:
        code = "import importlib.metadata as m; print(*[p.value for p in m.entry_points(group='pytest11')])"
        return subprocess.run([self.python, "-c", code], capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = str(tmp_path_factory.mktemp("wheels"))
    return [next(WheelBuilder(str(root)).build(directory=folder)) for root in (CORE, TESTING)]


@pytest.mark.slow
def test_the_kit_comes_and_goes_with_its_own_distribution(wheels: list[str], tmp_path: Path) -> None:
    here = Environment(tmp_path / "environment")
    core, testing = wheels
    here.pip("install", "--no-deps", "--no-index", core)
    assert (here.finds("hermes_core"), here.finds("hermes_memory_testing")) == (True, False)
    assert here.pytest_plugins() == ""
    here.pip("install", "--no-deps", "--no-index", testing)
    assert here.finds("hermes_memory_testing.contract")
    assert here.pytest_plugins() == "hermes_memory_testing.pytest_plugin"
    here.pip("uninstall", "--yes", "hermes-memory-testing")
    assert (here.finds("hermes_core.memory"), here.finds("hermes_memory_testing")) == (True, False)
    assert here.pytest_plugins() == ""


def test_both_distributions_have_no_file_in_common() -> None:
    core, testing = (
        {file.distribution_path for file in WheelBuilder(str(root)).recurse_included_files()}
        for root in (CORE, TESTING)
    )
    assert core & testing == set()
    assert all(path.startswith("hermes_memory_testing/") for path in testing)


def test_both_distributions_have_one_version() -> None:
    core, testing = (WheelBuilder(str(root)).metadata.core for root in (CORE, TESTING))
    assert core.version == testing.version
    assert "hermes-memory-core>=0.1,<0.2" in [
        need.replace("<0.2,>=0.1", ">=0.1,<0.2") for need in testing.dependencies
    ]

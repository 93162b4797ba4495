"""The providers that hermes-agent bundles, installed as plugin folders and loaded without hermes-agent."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome, discover_providers, load_provider
from hermes_core.cli import main
from hermes_core.loader.discover import BUNDLED

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugins/memory/ of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    done = subprocess.run([*pip, "hermes-agent==0.19.0"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip can't download it: {done.stderr.strip().splitlines()[-1:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "unpacked")
    return folder / "unpacked" / "plugins" / "memory"


@pytest.mark.parametrize("name", BUNDLED)
def test_each_is_installed_as_a_folder_and_chosen_on_purpose(
    folders: Path, hermes_home: HermesHome, name: str
) -> None:
    done = CliRunner().invoke(main, ["plugins", "install", str(folders / name)])
    assert done.exit_code == 0, done.stderr
    loaded = load_provider(f"folder:{name}", hermes_home)
    assert loaded.entry.path == str(hermes_home.plugins / name)
    assert loaded.factory()
    listed = {entry.path: entry.name for entry in discover_providers(hermes_home, active=f"folder:{name}")}
    assert listed[loaded.entry.path] == f"folder:{name}"

"""The packages as they are built from this tree: what is in them, and what their metadata tells a stranger."""

from __future__ import annotations

from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
PACKAGES = [pytest.param(ROOT, id="core"), *(pytest.param(folder, id=folder.name) for folder in PLUGINS)]


def test_the_source_of_the_core_holds_the_core_and_nothing_else() -> None:
    packed = [Path(file.relative_path) for file in SdistBuilder(str(ROOT)).recurse_included_files()]
    assert {path.parts[0] for path in packed} == {
        "LICENSE",
        "README.md",
        "cookiecutter-provider",
        "hermes_core",
    }


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_package_carries_its_types_and_its_licence(folder: Path) -> None:
    builder = WheelBuilder(str(folder))
    packed = [Path(file.distribution_path) for file in builder.recurse_included_files()]
    assert "py.typed" in {path.name for path in packed if len(path.parts) == 2}
    assert {path.parts[0] for path in packed} == {packed[0].parts[0]}
    assert "LICENSE" in builder.metadata.core.license_files
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_need_says_which_version_is_enough(folder: Path) -> None:
    core = WheelBuilder(str(folder)).metadata.core
    needs = [*core.dependencies, *(need for extra in core.optional_dependencies.values() for need in extra)]
    assert [need for need in needs if not Requirement(need).specifier] == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_package_says_for_which_pythons_it_is(folder: Path) -> None:
    ours, theirs = (WheelBuilder(str(path)).metadata.core for path in (ROOT, folder))
    said = [line for line in ours.classifiers if not line.startswith("Operating System")]
    assert [line for line in theirs.classifiers if not line.startswith("Operating System")] == said
    assert (theirs.requires_python, theirs.authors) == (ours.requires_python, ours.authors)

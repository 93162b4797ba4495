"""The packages as they are built from this tree: what is in them, and what their metadata tells a stranger."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import CoreMetadata
from packaging.requirements import Requirement

from tests.table import table

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(
    path.parent for folder in ("plugins", "integrations") for path in ROOT.glob(f"{folder}/*/pyproject.toml")
)
PACKAGES = [ROOT, *PLUGINS]
REPOSITORY = "https://github.com/hermes-memory/hermes-memory"


@cache
def metadata_of(folder: Path) -> CoreMetadata:
    return WheelBuilder(str(folder)).metadata.core


def test_the_source_of_the_core_holds_the_core_and_nothing_else() -> None:
    packed = [Path(file.relative_path) for file in SdistBuilder(str(ROOT)).recurse_included_files()]
    assert {path.parts[0] for path in packed} == {
        "LICENSE",
        "README.md",
        "hermes_core",
    }


@table("folder", PACKAGES)
def test_every_package_carries_its_types_and_its_licence(folder: Path) -> None:
    builder = WheelBuilder(str(folder))
    packed = [Path(file.distribution_path) for file in builder.recurse_included_files()]
    assert "py.typed" in {path.name for path in packed if len(path.parts) == 2}
    assert {path.parts[0] for path in packed} == {packed[0].parts[0]}
    assert "LICENSE" in builder.metadata.core.license_files
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@table("folder", PACKAGES)
def test_every_need_says_which_version_is_enough(folder: Path) -> None:
    core = metadata_of(folder)
    needs = [*core.dependencies, *(need for extra in core.optional_dependencies.values() for need in extra)]
    assert [need for need in needs if not Requirement(need).specifier] == []


@table("folder", PACKAGES)
def test_every_package_says_for_which_pythons_it_is(folder: Path) -> None:
    ours, theirs = metadata_of(ROOT), metadata_of(folder)
    said = [line for line in ours.classifiers if not line.startswith("Operating System")]
    assert [line for line in theirs.classifiers if not line.startswith("Operating System")] == said
    assert (theirs.requires_python, theirs.authors) == (ours.requires_python, ours.authors)


@table("folder", PACKAGES)
def test_every_package_links_to_its_source_and_its_changes(folder: Path) -> None:
    urls = metadata_of(folder).urls
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= urls.keys()
    assert all(url.startswith(REPOSITORY) for url in urls.values())
    documents = [url.removeprefix(f"{REPOSITORY}/blob/main/") for url in urls.values() if "/blob/" in url]
    assert all((ROOT / document).is_file() for document in documents)


@table("folder", PACKAGES)
def test_a_readme_has_absolute_links_because_package_indexes_show_it(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https://|#)[^)]*\)", text) == []


@table("folder", PLUGINS)
def test_every_plugin_is_developed_with_the_conformance_kit(folder: Path) -> None:
    if folder.name == "testing":
        return
    groups = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert any(Requirement(need).name == "hermes-memory-testing" for need in groups["dev"])


def test_no_text_leaves_the_plural_to_the_reader() -> None:
    pattern = re.compile(r"\{[^{}]+\} [a-z ]*\w\(e?s\)")
    files = [*ROOT.glob("hermes_core/**/*.py"), *ROOT.glob("plugins/*/hermes_*/*.py")]
    texts = {path: path.read_text("utf-8") for path in files}
    assert [str(path) for path, text in texts.items() if pattern.search(text)] == []

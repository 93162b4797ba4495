"""A distribution that is installed in two versions is named with both places."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.health.provider import examine_packages


def distribution(folder: Path, version: str, entry_points: str = "", name: str = "my-notes") -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


PROVIDER = "[hermes_core.providers]\nnotes = my_notes:Notes\n"


def test_two_versions_of_a_provider_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.0", "2.0"):
        # The older one was no provider yet.
        distribution(tmp_path / version, version, PROVIDER if version == "2.0" else "")
        monkeypatch.syspath_prepend(str(tmp_path / version))
    (found,) = examine_packages(["my-notes"])
    assert found.what == "package my-notes"
    assert all(part in found.detail for part in ("1.0 in", "2.0 in", str(tmp_path / "1.0")))
    assert "pip uninstall my-notes" in found.remedy


def test_one_version_in_two_places_and_packages_of_others_are_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("a", "b"):
        distribution(tmp_path / place, "1.0", PROVIDER)
    for version in ("1.0", "2.0"):
        distribution(tmp_path / "other" / version, version, name="unrelated")
        monkeypatch.syspath_prepend(str(tmp_path / "other" / version))
    for place in ("a", "b"):
        monkeypatch.syspath_prepend(str(tmp_path / place))
    assert list(examine_packages(["my-notes"])) == []


def test_a_package_is_found_under_any_spelling_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.0", "2.0"):
        distribution(tmp_path / version, version, name="some_SDK")
        monkeypatch.syspath_prepend(str(tmp_path / version))
    assert [one.what for one in examine_packages(["some-sdk"])] == ["package some-sdk"]

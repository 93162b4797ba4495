"""Observers are loaded one by one; one that fails is named and hides no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from importlib_metadata import EntryPoint

from hermes_core.loader.entry_points import LoadControl
from hermes_core.loader.load import OBSERVER_GROUP as GROUP
from hermes_core.loader.load import load_observers
from hermes_core.manager.plugins import vet_observer

MODULE = """
from hermes_core import hookimpl

class Audit:
    @hookimpl
    def on_event(self, event):
        pass

ready = Audit()

class Unmarked:
    def on_event(self, event):
        pass

class Misspelt:
    @hookimpl
    def on_events(self, event):
        pass

class Greedy:
    @hookimpl
    def filter_write(self, write, extra):
        return write
"""


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audit_trail.py").write_text(MODULE)
    (tmp_path / "audit_broken.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("audit_trail", "audit_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def points(*values: str) -> list[EntryPoint]:
    return [EntryPoint(f"o{i}", value, GROUP) for i, value in enumerate(values)]


def test_a_class_and_an_object_both_become_observers() -> None:
    loaded, problems = load_observers(entry_points=points("audit_trail:Audit", "audit_trail:ready"))

    assert [type(one).__name__ for one in loaded] == ["Audit", "Audit"]
    assert problems == []


def test_one_that_fails_is_named_with_its_reason_and_hides_no_other() -> None:
    loaded, problems = load_observers(entry_points=points("audit_broken:Audit", "audit_trail:Audit"))

    assert len(loaded) == 1
    assert problems == ["observer 'o0' is not active: RuntimeError: no licence"]


def test_one_that_is_no_observer_is_named_with_its_reason_and_hides_no_other() -> None:
    given = points("audit_trail:Unmarked", "audit_trail:Misspelt", "audit_trail:Greedy", "audit_trail:ready")
    loaded, problems = load_observers(entry_points=given, validate=vet_observer)

    assert len(loaded) == 1
    for problem, reason in zip(
        problems, ("has no hook; mark one of", "did you mean on_event()?", "{'extra'}"), strict=True
    ):
        assert reason in problem


def test_one_that_two_packages_name_is_one() -> None:
    loaded, problems = load_observers(entry_points=points("audit_trail:ready", "audit_trail:ready"))

    assert (len(loaded), problems) == (1, [])


def test_the_block_list_holds_for_observers_too() -> None:
    loaded, problems = load_observers(LoadControl(block=frozenset({"O0"})), points("audit_trail:Audit"))

    assert (loaded, problems) == ([], [])


@pytest.mark.parametrize("left", ["-alf-1.0.dist-info", "half-1.0.dist-info", "other-1.0.dist-info"])
def test_a_package_that_was_half_removed_hides_no_observer(tmp_path: Path, left: str) -> None:
    damaged, sound = tmp_path / left, tmp_path / "audit_trail-1.0.dist-info"
    for folder in (damaged, sound):
        folder.mkdir()
        (folder / "entry_points.txt").write_text(f"[{GROUP}]\naudit = audit_trail:Audit\n")
    (sound / "METADATA").write_text("Metadata-Version: 2.1\nName: audit-trail\nVersion: 1.0\n")
    if left.startswith("other"):
        (damaged / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        (damaged / "entry_points.txt").write_text("[console_scripts]\nno value\n")

    loaded, problems = load_observers()

    assert [type(one).__name__ for one in loaded] == ["Audit"]
    assert problems == []

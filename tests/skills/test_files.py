"""What people, editors and other programs do to the files and folders of skills."""

from __future__ import annotations

from hermes_core.skills.store import SkillStore
from tests.skills.conftest import skill


def test_a_skill_is_changed_by_the_name_that_the_index_gives_it(store: SkillStore) -> None:
    store.create("deploy", "ops", skill())
    assert store.index().startswith("- ops/deploy:")
    store.patch("ops/deploy", "Run it.", "Walk.")
    assert "Walk." in store.view("deploy")

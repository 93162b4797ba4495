"""Notes are recorded in a hash chain, and any version of the history comes back."""

from __future__ import annotations

import pytest

from hermes_core.curated.origins import entry_hash
from hermes_core.curated.store import Notes
from hermes_core.storage.engine import Engine
from tests.curated.conftest import EditByHand


def faults(store: Notes) -> tuple[str, ...]:
    report = store.changes.verify()
    assert report is not None
    return report.faults


def test_each_change_and_each_decision_is_an_event(store: Notes, edit_by_hand: EditByHand) -> None:
    store.add("memory", "Uses ruff")
    edit_by_hand(store, "Uses mypy\n")
    store.add("memory", "Likes tea")
    store.undo()
    store.confirm(["Uses mypy"])
    store.changes.record("reject", entry_hash("Likes coffee"), origin="web")
    events = store.changes._chain.events()
    assert [event.kind for event in events] == ["begin", "add", "edit", "add", "undo", "confirm", "reject"]
    assert events[-2].subject == entry_hash("Uses mypy")
    assert "tea" not in str(events)
    assert faults(store) == ()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE note_changes SET after = 'Likes coffee' WHERE id = 2",
        "DELETE FROM note_changes WHERE id = 1",
        "UPDATE note_events SET at = 1.0 WHERE id = 2",
    ],
)
def test_a_history_that_was_changed_is_reported_and_can_be_accepted(
    store: Notes, engine: Engine, sql: str
) -> None:
    store.add("memory", "Uses ruff")
    store.add("memory", "Likes tea")
    engine.execute(sql)
    assert len(faults(store)) == 1
    store.changes.accept_history()
    assert faults(store) == ()


def test_a_pruned_history_is_whole_and_says_nothing(store: Notes) -> None:
    store.add("memory", "Uses ruff")
    store.add("user", "Is called Ana")
    store.files.prune()
    assert faults(store) == ()
    store.add("memory", "Likes tea")
    assert faults(store) == ()
    assert [event.subject for event in store.changes._chain.events()].count("MEMORY.md") == 1


def test_any_version_comes_back(store: Notes) -> None:
    store.add("memory", "Uses ruff")
    store.add("memory", "Likes tea")
    store.replace("memory", "tea", "Likes coffee")
    store.reset("memory")
    versions = {version.id: version.after for version in store.history()}
    for change, entries in versions.items():
        assert store.restore(change)["success"]
        assert store.entries("memory") == entries
    store.undo()
    assert store.entries("memory") != versions[min(versions)]
    assert "There is no change 99" in store.restore(99)["error"]
    assert faults(store) == ()


def test_a_version_with_a_secret_does_not_come_back(store: Notes, edit_by_hand: EditByHand) -> None:
    store.add("memory", "Uses ruff")
    edit_by_hand(store, "Uses ruff\n§\ntoken: 'abcd1234efgh5678'\n")
    store.remove("memory", "token")
    (edit,) = (version for version in store.history() if version.action == "edit")
    assert "what looks like a secret" in store.restore(edit.id)["error"]
    assert store.entries("memory") == ("Uses ruff",)

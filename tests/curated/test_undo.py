from __future__ import annotations

import shutil
import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core import HermesHome, Session
from hermes_core.curated.document import NotesUsage
from hermes_core.curated.edits import Operation
from hermes_core.curated.store import Notes
from tests.curated.conftest import ATTACK, EditByHand
from tests.rounds import rounds

MakeStore = Callable[..., Notes]

CHANGES: dict[str, Callable[[Notes], object]] = {
    "add": lambda store: store.add("memory", "oats"),
    "replace": lambda store: store.replace("memory", "tea", "coffee"),
    "remove": lambda store: store.remove("memory", "rye"),
    "batch": lambda store: store.write(
        "memory",
        [Operation("add", "oats"), Operation("remove", "", "tea"), Operation("replace", "salt", "rye")],
        batch=True,
    ),
    "reset": lambda store: store.reset("memory"),
}


@pytest.mark.parametrize("action", CHANGES)
def test_a_change_is_undone_and_done_again(store: Notes, action: str) -> None:
    for entry in ("tea", "rye", "milk"):
        store.add("memory", entry)
    CHANGES[action](store)
    changed = store.entries("memory")
    assert store.undo()["success"]
    assert set(store.entries("memory")) == {"tea", "rye", "milk"}
    assert store.history()[0].action == "undo"
    assert store.undo(store.history()[0].id)["success"]
    assert set(store.entries("memory")) == set(changed)


def test_undo_goes_back_step_by_step_and_ends(store: Notes) -> None:
    for entry in ("tea", "rye"):
        store.add("memory", entry)
    store.replace("memory", "tea", "coffee")
    seen = []
    while store.undo()["success"]:
        seen.append(store.entries("memory"))
    assert seen == [("tea", "rye"), ("tea",), ()]
    assert store.undo()["error"].startswith("There is no change to undo;")


def test_an_older_change_is_undone_without_touching_later_ones(store: Notes) -> None:
    store.add("memory", "tea")
    store.remove("memory", "tea")
    store.add("memory", "rye")
    store.undo(2)
    assert set(store.entries("memory")) == {"tea", "rye"}


def test_a_change_whose_entry_changed_again_says_so(store: Notes) -> None:
    store.add("memory", "tea")
    store.replace("memory", "tea", "coffee")
    refused = store.undo(1)
    assert refused["error"] == "The entry 'tea' was changed again later."
    assert refused["remediation"] == "undo that change first"


def test_nothing_is_undone_twice_or_out_of_nowhere(store: Notes) -> None:
    store.add("memory", "tea")
    store.undo(1)
    assert store.undo(1)["error"] == "Change 1 is undone already."
    assert store.undo(99)["error"].startswith("There is no change 99 to undo;")


def test_undo_may_pass_the_limit_because_it_was_there(make_store: MakeStore) -> None:
    store = make_store(memory_char_limit=10)
    store.add("memory", "12345678")
    store.remove("memory", "1234")
    store.add("memory", "abcdefgh")
    assert store.undo(2)["success"]
    assert store.read().usage("memory") == NotesUsage(19, 10)


def test_undo_of_one_target_leaves_the_other(store: Notes) -> None:
    store.add("memory", "tea")
    store.add("user", "Mel")
    store.undo(target="memory")
    assert (store.entries("memory"), store.entries("user")) == ((), ("Mel",))


def test_history_lists_session_change_and_time(make_store: MakeStore) -> None:
    store = make_store(clock=lambda: 1234.5)
    store.add("memory", "tea", session=Session("s1"))
    store.replace("memory", "tea", "rye", session=Session("s2"))
    newest, oldest = store.history()
    assert (newest.action, newest.added, newest.removed, newest.session_id) == (
        "replace",
        ("rye",),
        ("tea",),
        "s2",
    )
    assert (oldest.at, oldest.target, oldest.session_id) == (1234.5, "memory", "s1")
    assert store.history(limit=1) == [newest]
    assert store.history("user") == []


def test_history_outlives_the_process_that_wrote_it(make_store: MakeStore) -> None:
    make_store().add("memory", "tea")
    other = make_store()
    assert other.undo()["success"]
    assert other.entries("memory") == ()


@settings(
    max_examples=rounds(10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from(["tea", "rye", "milk"])), max_size=4)
)
def test_undoing_everything_leads_back_to_the_start(
    store: Notes, hermes_home: HermesHome, steps: list[tuple[str, str]]
) -> None:
    store.reset("memory")
    before = len(store.history(limit=10_000))
    for action, entry in steps:
        store.add("memory", entry)
        CHANGES[action](store)
    done = [version for version in store.history(limit=10_000)[: -before or None] if version.action != "undo"]
    for version in done:
        assert store.undo(version.id)["success"]
    assert store.entries("memory") == ()


def test_changes_after_the_folder_of_the_views_was_deleted_can_be_undone(
    store: Notes, make_store: MakeStore, hermes_home: HermesHome
) -> None:
    store.add("memory", "tea")
    shutil.rmtree(hermes_home.memories)
    thread = threading.Thread(target=store.add, args=("memory", "rye"))  # which has no connection yet
    thread.start()
    thread.join()
    assert store.add("memory", "oats")["success"]
    other = make_store()
    assert [version.added for version in other.history()] == [("oats",), ("rye",), ("tea",)]
    assert hermes_home.memory_md.read_text() == "tea\n§\nrye\n§\noats"
    assert other.undo()["removed_entry"] == "oats"


def test_undo_scans_an_entry_again_before_it_brings_it_back(store: Notes, edit_by_hand: EditByHand) -> None:
    edit_by_hand(store, f"tea\n§\n{ATTACK} and obey")
    assert store.remove("memory", store.read().flagged()[0].handle)["success"]
    refused = store.undo()
    assert not refused["success"]
    assert "matches threat pattern 'prompt_injection'" in refused["error"]
    assert store.entries("memory") == ("tea",)
    store.add("memory", "rye")
    assert store.undo()["success"]

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_core.curated.document import entry_handle
from hermes_core.curated.edits import (
    Edit,
    Operation,
    Refusal,
    apply,
    find,
    merge,
    over_budget,
    reverse,
)

names = st.sampled_from(["tea", "green tea", "rye", "oats", "tea"])
operations = st.lists(
    st.builds(Operation, st.sampled_from(["add", "replace", "remove"]), names, names), max_size=5
)
stores = st.lists(names, max_size=5).map(tuple)


def test_a_whole_entry_beats_a_fragment() -> None:
    assert find(["green tea", "tea"], "tea") == 1


def test_a_fragment_of_several_entries_is_refused_with_all_of_them() -> None:
    found = find(["green tea", "black tea", "rye"], "tea")
    assert isinstance(found, Refusal)
    assert found.matches == ("green tea", "black tea")


def test_of_equal_entries_one_is_restored() -> None:
    back = reverse(["rye"], ["tea", "rye", "tea"], ["tea", "rye"])
    assert isinstance(back, Edit)
    assert sorted(back.entries) == ["rye", "tea"]


def test_equal_entries_are_taken_for_the_first() -> None:
    assert find(["rye", "green tea", "green tea"], "tea") == 1


@pytest.mark.parametrize(
    ("operation", "entries"),
    [
        (Operation("replace", "coffee", "green"), ("rye", "coffee")),
        (Operation("remove", "", "green"), ("rye",)),
    ],
    ids=["replace", "remove"],
)
def test_equal_entries_are_changed_as_one(operation: Operation, entries: tuple[str, ...]) -> None:
    apart = unicodedata.normalize("NFD", "green café")
    edit = apply(["rye", "green café", apart, "green café"], [operation])
    assert isinstance(edit, Edit)
    assert edit.entries == entries
    assert [change.previous for change in edit.changes] == ["green café"]


@pytest.mark.parametrize("entry", ["aime le café crème", "한국어를 공부한다"])
def test_texts_that_look_the_same_are_the_same_entry(entry: str) -> None:
    apart = unicodedata.normalize("NFD", entry)

    assert find(["rye", entry], apart) == find(["rye", apart], entry) == 1
    assert (
        find(["rye", entry], unicodedata.normalize("NFD", entry[:6])) == find(["rye", apart], entry[:6]) == 1
    )
    assert apply([apart], [Operation("add", entry)]) == Edit((apart,))
    replaced = apply([apart], [Operation("replace", entry, entry)])
    assert isinstance(replaced, Edit)
    assert replaced.entries == (entry,)


@pytest.mark.parametrize(
    "old_text",
    [
        "uses ‘ruff’ - always",
        "Uses 'ruff'  –  always",
        "USES 'RUFF' — ALWAYS",
        "Uses\xa0'ruff' — al\u200bways",
    ],
)
def test_a_fragment_matches_whatever_its_dashes_quotes_spaces_and_case(old_text: str) -> None:
    assert find(["rye", "Uses 'ruff' — always, says Ann"], old_text) == 1


def test_a_fragment_that_shows_nothing_matches_nothing() -> None:
    assert isinstance(find(["Likes tea"], "\u200b"), Refusal)


def test_a_fragment_that_is_not_unique_after_folding_is_refused() -> None:
    found = find(["Likes Tea a lot", "likes tea in the morning"], "LIKES TEA")
    assert isinstance(found, Refusal)
    assert found.matches == ("Likes Tea a lot", "likes tea in the morning")
    assert find(["Likes Tea a lot", "likes tea in the morning"], "likes tea") == 1


def test_a_handle_finds_an_entry_whose_text_is_not_known() -> None:
    assert find(["rye", "tea"], entry_handle("tea")) == 1


def test_no_match_says_how_to_try_again() -> None:
    found = find(["rye"], "tea")
    assert isinstance(found, Refusal)
    assert found.show_entries
    assert "current_entries" in found.reason


def edited(entries: tuple[str, ...], asked: list[Operation], limit: int = 10_000) -> Edit | Refusal:
    edit = apply(entries, asked, batch=len(asked) > 1)
    if isinstance(edit, Refusal):
        return edit
    return over_budget(entries, edit, asked, limit, batch=len(asked) > 1) or edit


def test_an_add_up_to_the_limit_fits_and_one_more_character_does_not() -> None:
    assert isinstance(edited(("abc",), [Operation("add", "defg")], 10), Edit)
    refused = edited(("abc",), [Operation("add", "defgh")], 10)
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith(
        "Memory at 3/10 chars. Adding this entry (5 chars) would exceed the limit. Replace or remove existing"
    )


def test_a_batch_may_pass_the_limit_on_its_way() -> None:
    edit = edited(("abc",), [Operation("add", "defgh"), Operation("remove", "", "abc")], 5)
    assert isinstance(edit, Edit)
    assert edit.entries == ("defgh",)


@pytest.mark.parametrize(
    "operation", [Operation("remove", "", "b"), Operation("replace", "x", "b")], ids=["remove", "replace"]
)
def test_an_overfull_store_may_shrink_and_stay_overfull(operation: Operation) -> None:
    assert isinstance(edited(("a" * 20, "bbbb"), [operation], 10), Edit)


def test_a_replacement_that_equals_another_entry_leaves_one_of_them() -> None:
    edit = apply(["tea", "rye"], [Operation("replace", "rye", "tea")])
    assert isinstance(edit, Edit)
    assert edit.entries == ("rye",)


@given(stores, operations, st.integers(1, 40))
def test_an_edit_keeps_the_limit_or_shrinks_or_does_nothing(
    entries: tuple[str, ...], asked: list[Operation], limit: int
) -> None:
    edit = edited(entries, asked, limit)
    if isinstance(edit, Edit):
        size, before = len("\n§\n".join(edit.entries)), len("\n§\n".join(entries))
        assert size <= max(limit, before)
        assert bool(edit.changes) or edit.entries == entries


@given(stores, operations)
def test_a_change_can_be_undone(entries: tuple[str, ...], asked: list[Operation]) -> None:
    edit = edited(entries, asked)
    if isinstance(edit, Edit):
        back = reverse(edit.entries, entries, edit.entries)
        assert isinstance(back, Edit)
        assert set(back.entries) == set(entries)


@given(stores, operations, names)
def test_taking_back_leaves_later_entries_alone(
    entries: tuple[str, ...], asked: list[Operation], later: str
) -> None:
    edit = edited(entries, asked)
    if isinstance(edit, Edit):
        back = reverse((*edit.entries, f"later {later}"), entries, edit.entries)
        assert isinstance(back, Edit)
        assert f"later {later}" in back.entries
        assert Counter(back.entries) >= Counter(set(entries))


@pytest.mark.parametrize(
    ("mine", "theirs", "merged"),
    [
        (["tea", "oats"], ["tea", "rye", "milk"], ("tea", "oats", "milk")),
        (["tea", "rye", "mine"], ["tea", "rye", "theirs"], ("tea", "rye", "theirs", "mine")),
        (
            ["tea", "rye", "both", "mine"],
            ["tea", "rye", "theirs", "both"],
            ("tea", "rye", "theirs", "both", "mine"),
        ),
        (["tea", "rye", "both"], ["tea", "rye", "both", "theirs"], ("tea", "rye", "both", "theirs")),
        (["rye"], ["tea", "oats"], ("oats",)),
        (["tea", "oats"], ["tea", "oats"], ("tea", "oats")),
        (["tea", "tea", "rye"], ["tea", "rye"], ("tea", "tea", "rye")),
        ([], ["tea", "rye", "milk"], ("milk",)),
        ([], ["rye"], ()),
        (["tea"], [], ()),
        (["tea", "oats"], ["tea", "barley"], None),
        (["tea"], ["tea", "barley"], None),
    ],
)
def test_edits_of_the_same_notes_are_joined_entry_by_entry(
    mine: list[str], theirs: list[str], merged: tuple[str, ...] | None
) -> None:
    assert merge(["tea", "rye"], mine, theirs) == merged


@example(("tea", "green tea", "tea"), ("tea",), ("green tea", "tea"))
@given(stores, stores, stores)
def test_joined_edits_hold_what_both_hold_and_nothing_else(
    base: tuple[str, ...], mine: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    merged = merge(base, mine, theirs)
    assert merge(base, mine, base) == mine
    assert merge(base, base, theirs) == theirs
    if merged is not None:
        assert set(merged) <= set(mine) | set(theirs)
        assert set(mine) & set(theirs) <= set(merged)
        assert all(entry in merged for entry in {*mine, *theirs} - set(base))


@pytest.mark.parametrize(
    ("mine", "theirs", "merged"),
    [
        (["tea", "oats"], ["tea", "barley"], ("tea", "barley", "oats")),
        (["tea"], ["tea", "barley"], ("tea", "barley")),
        (["tea", "oats"], ["tea"], ("tea", "oats")),
        (["milk"], ["green tea", "rye", "figs"], ("green tea", "milk", "figs")),
    ],
)
def test_an_entry_that_both_changed_may_stay_in_both_forms(
    mine: list[str], theirs: list[str], merged: tuple[str, ...]
) -> None:
    assert merge(["tea", "rye"], mine, theirs, both=True) == merged


# In one order, since an entry that was moved is one that was removed and added.
ordered = st.sets(st.sampled_from("abcdef")).map(sorted)


@given(ordered, ordered, ordered)
def test_joined_edits_bring_nothing_back_that_one_of_them_removed(
    base: list[str], mine: list[str], theirs: list[str]
) -> None:
    merged = merge(base, mine, theirs, both=True)
    assert merged is not None
    removed = (set(base) - set(mine)) | (set(base) - set(theirs))
    assert set(merged) == (set(mine) | set(theirs)) - removed

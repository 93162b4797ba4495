"""Markdown notes become entries, and settings written by people are read."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import ImportFailed
from hermes_memory_openclaw.notes import parse_notes
from hermes_memory_openclaw.source import parse_relaxed_json
from plugins.openclaw.tests.openclaw_trees import MEMORY_MD, USER_MD


def test_bullets_numbers_and_paragraphs_are_an_entry_each_with_their_headings() -> None:
    assert parse_notes(MEMORY_MD, "MEMORY.md").entries == (
        "Projects: The billing service runs on Postgres 16",
        "Projects: Deploys: go out from release/billing; never on a Friday",
        "People: Ilona is the product owner",
        "People: The office is in Lisbon, near the river.",
    )


def test_empty_fields_and_hints_of_the_template_are_no_facts() -> None:
    assert parse_notes(USER_MD, "USER.md").entries == ("Name: Ann", "Context: Prefers short answers")


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("# A\n## B\n- x\n# C\n- y", ("A > B: x", "C: y")),
        ("- a\n  and more\n- b", ("a and more", "b")),
        ("line one\nline two\n\nnext", ("line one line two", "next")),
        ("> quoted\n> twice", ("quoted twice",)),
        ("---\ntitle: x\n---\n- a", ("a",)),
        ("- a\r\n- b\r\n", ("a", "b")),
        ("\ufeff- a", ("a",)),
        ("<!-- hidden\nnote -->\n- a", ("a",)),
        ("- a\n- a", ("a",)),
        ("one\n§\ntwo", ("one", "two")),
        ("***\n- a\n- - -\n- b", ("a", "b")),
        ("1. a\n10) b", ("a", "b")),
        ("", ()),
    ],
)
def test_markdown_is_read_as_people_write_it(text: str, entries: tuple[str, ...]) -> None:
    assert parse_notes(text).entries == entries


def test_notes_of_a_day_carry_its_date() -> None:
    assert parse_notes("# 2026-01-30\n- Chose uv", "2026-01-30.md").entries == ("2026-01-30: Chose uv",)
    assert parse_notes("- Chose uv", "2026-01-30-tools.md").entries == ("2026-01-30: Chose uv",)
    assert parse_notes("- Chose uv", "tools.md").entries == ("Chose uv",)


def test_code_and_tables_are_left_out_and_counted() -> None:
    notes = parse_notes("- a\n```sh\nrm -rf /\n- b\n```\n| x |\n|---|\n- c\n~~~\nopen")
    assert (notes.entries, notes.left_out) == (("a", "c"), 3)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("<!--" * 200_000, "<!--" * 200_000),
        ("# " + "#" * 200_000 + "x\n- a", f"{'#' * 200_000}x: a"),
        ("- a\n" + "  - b\n" * 100_000, "a" + "; b" * 100_000),
    ],
)
def test_a_large_file_is_read_at_once_whatever_it_repeats(text: str, entry: str) -> None:
    assert parse_notes(text).entries == (entry,)


@given(st.text(st.sampled_from("#-*> |`~\n:_(). ab1§"), max_size=200))
def test_any_text_gives_entries_of_one_line(text: str) -> None:
    for entry in parse_notes(text, "MEMORY.md").entries:
        assert entry == " ".join(entry.split())
        assert entry


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_strict_json_is_read_as_it_is(value: Any) -> None:
    assert parse_relaxed_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a: 1, /* x */ 'b-c': [1, 2,], // y\n}", {"a": 1, "b-c": [1, 2]}),
        ("""{"url": "http://x//y"}""", {"url": "http://x//y"}),
        ("""{'say': 'it\\'s "so"'}""", {"say": 'it\'s "so"'}),
        ("{n: -1.5e3, t: true, z: null}", {"n": -1500.0, "t": True, "z": None}),
    ],
)
def test_what_people_write_into_settings_is_read(text: str, value: object) -> None:
    assert parse_relaxed_json(text) == value


@pytest.mark.parametrize("text", ["", "{", "{a:}", '{"a', "[" * 100_000, "{a: &x [*x]}", "\0", "1" * 5000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ImportFailed):
        parse_relaxed_json(text)


@given(st.text(max_size=50))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    with contextlib.suppress(ImportFailed):
        json.dumps(parse_relaxed_json(text))

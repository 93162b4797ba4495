"""`hermes-memory turns` and `hermes-memory costs`: what turns were given, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.memory import open_memory
from tests.cli.conftest import Hermes

Data = Callable[..., Any]


@pytest.fixture
def used(hermes_home: HermesHome, notes: Path) -> None:
    """A home with a turn for which the provider `notes` recalled something."""
    hermes_home.config_yaml.write_text("memory: {provider: notes}\n")
    with open_memory(hermes_home) as memory:
        turn = memory.conversation("chat").turn("Is \x1b[31mtea here?", turn_id="t1")
        turn.finish("Yes.")
        memory.sessions.meta.add_usage("chat", input_tokens=100, cache_read_tokens=25)


def test_turns_are_listed_and_explained(used: None, hermes: Hermes, data: Data) -> None:
    assert "t1" in hermes("turns", "list").stdout
    text = hermes("turns", "show", "t1").stdout
    assert "noted: Is" in text
    assert "fresh" in text
    assert "\x1b[31m" not in text
    assert data("turns", "list")[0]["id"] == "t1"
    shown = data("turns", "show", "t1")
    assert shown["record"]["sources"][0]["source"] == "notes"
    assert shown["record"]["recall_tokens"] > 0


def test_of_a_long_message_the_part_that_the_turn_was_given_is_shown(
    hermes_home: HermesHome, hermes: Hermes, data: Data
) -> None:
    numbers = " ".join(map(str, range(10_000, 11_000)))
    page = f"{numbers} The spare key of the boathouse hangs behind the barometer. {numbers}"
    with open_memory(hermes_home) as memory:
        memory.conversation("past").turn(page, turn_id="p1").finish("Noted.")
        turn = memory.conversation("chat").turn(
            "Where does the spare key of the boathouse hang?", turn_id="t1"
        )
        turn.finish("Behind the barometer.")

    items = [item for source in data("turns", "show", "t1")["record"]["sources"] for item in source["items"]]
    (item,) = [item for item in items if item["span"]]
    start, end = item["span"]
    assert item["text"] == page[start:end][: len(item["text"])]
    assert start > 5_000
    assert hermes("turns", "show", "t1").stdout


def test_an_unknown_turn_is_an_error(used: None, hermes: Hermes) -> None:
    assert "hermes-memory turns list" in hermes("turns", "show", "nothing", code=1).stderr


def test_costs_are_shown_by_day(used: None, hermes: Hermes, data: Data) -> None:
    assert "25%" in hermes("costs").stdout
    (day,) = data("costs")
    assert (day["turns"], day["input_tokens"], day["cache_share"]) == (1, 100, 0.25)


def test_an_empty_home_says_so(hermes: Hermes) -> None:
    assert "No turn is recorded yet." in hermes("turns", "list").stdout
    assert "Nothing was counted yet." in hermes("costs").stdout

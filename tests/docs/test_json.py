"""The page of the JSON that commands print. That it lacks no key, every test that runs a command looks too: see the
guard in `tests/conftest.py`.
"""

from __future__ import annotations

import json
from typing import Any

import generate
import json_page
import pytest
from click.testing import CliRunner

from hermes_core.cli import main
from hermes_core.cli.sample import sample_path
from hermes_core.home import HermesHome


def printed(*words: str) -> Any:
    return json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)


def test_every_command_that_prints_json_is_there() -> None:
    printing = {
        path
        for path, command in generate.commands()
        if any(param.name == "as_json" for param in command.params)
    }
    assert printing == json_page.documents().keys()


@pytest.mark.parametrize(
    "words",
    [
        ("import", str(sample_path())),
        ("memory", "history"),
        ("memory", "status"),
        ("memory", "show"),
        ("providers", "--all"),
        ("recall", "cashews"),
        ("sessions", "list"),
        ("sessions", "check"),
        ("sessions", "search", "Nadia"),
        ("skills", "list"),
        ("config", "list"),
    ],
    ids=" ".join,
)
def test_a_command_prints_every_key_that_is_always_there(
    words: tuple[str, ...], hermes_home: HermesHome
) -> None:
    for step in (["import", str(sample_path())], ["memory", "add", "A fact."]):
        assert CliRunner().invoke(main, step).exit_code == 0
    seen = set(json_page.keys_of(printed(*words)))
    without = tuple(f"{key}{below}" for key in seen for below in "[.")
    told = json_page.rows(json_page.path_of(words))
    always = [key for key, kind, when in told if not when and "null, or" not in kind]
    missing = [key for key in always if not key.startswith(without)]
    assert [key for key in missing if not any(one.startswith(key) for one in seen)] == []


def test_a_change_of_memory_says_what_it_must(hermes_home: HermesHome) -> None:
    seen: set[str] = set()
    for words in (
        ("add", "The shop opens at nine"),
        ("add", "Tea is at four"),
        ("add", "The shop opens at 9"),
        ("add", "The shop opens at 10"),
        ("remove", "e"),
        ("replace", "Tea", "Tea is at five"),
        ("add", "x" * 2200),
    ):
        seen |= set(json_page.keys_of(printed("memory", *words)))
    hermes_home.memory_md.write_text(
        "Coffee is at six\n§\nThe key of the shop is sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789\n"
    )
    seen |= set(json_page.keys_of(printed("memory", "remove", "shop")))
    hermes_home.memory_md.write_text("Coffee is at six\n")
    seen |= set(json_page.keys_of(printed("memory", "add", "Cake is at seven")))
    hermes_home.memory_md.write_text("x" * 9000)
    seen |= set(json_page.keys_of(printed("memory", "add", "More")))
    told = {key for key, _, _ in json_page.rows("hermes-memory memory replace")}
    assert told - seen == {".performed", ".warning"}


def test_a_key_that_the_page_lacks_is_found() -> None:
    rows = json_page.rows("hermes-memory memory status")
    report = {
        "home": "",
        "selected": None,
        "health": [{"hooks": {"prefetch": 1}}, {"new": []}],
        "builtin": {},
    }
    assert json_page.not_told(report, rows) == [".health[].new"]
    assert json_page.not_told([{"mood": 1}], json_page.rows("hermes-memory sessions list")) == ["[].mood"]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--home", "memory", "sessions", "list", "--json"], "hermes-memory sessions list"),
        (["recall", "memory", "status"], "hermes-memory recall"),
        (["memory", "status"], "hermes-memory memory status"),
        (["lockbox", "recall"], ""),
    ],
)
def test_the_words_of_a_command_lead_to_its_rows(words: list[str], path: str) -> None:
    assert json_page.path_of(words) == path

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from hermes_core.kit import ToolInputInvalid


@pytest.fixture
def run(agent: Any) -> Any:
    agent.add("Bob lives in Berlin")
    agent.add("Bob moved to Tokyo with Eve")
    agent.add("Eve likes tea")
    agent.add("Mel typed \x1b[31mred")
    group = click.Group("holographic")
    agent.provider.register_cli(group)
    root = click.Group("hermes", {"holographic": group}, params=[click.Option(["--home"])])

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(
            root, ["--home", str(agent.home), "holographic", *arguments], catch_exceptions=False
        )

    return invoke


@pytest.mark.parametrize(
    ("arguments", "first", "count"),
    [
        (["facts"], "Mel typed \x1b[31mred", 4),
        (["facts", "eve", "-n", "1"], "Eve likes tea", 1),
        (["facts", "tea"], "Eve likes tea", 1),
        (["probe", "bob"], "Bob moved to Tokyo with Eve", 2),
        (["related", "bob"], "Bob moved to Tokyo with Eve", 3),
        (["reason", "Bob", "Eve"], "Bob moved to Tokyo with Eve", 1),
    ],
)
def test_facts_are_listed_as_lines_and_as_json(
    run: Any, arguments: list[str], first: str, count: int
) -> None:
    data = json.loads(run(*arguments, "--json").stdout)
    lines = run(*arguments).stdout.splitlines()
    assert (data[0]["content"], len(data), len(lines)) == (first, count, count)
    assert first.replace("\x1b", "\N{REPLACEMENT CHARACTER}") in lines[0]


def test_facts_of_a_user_of_a_gateway_are_asked_for_by_name(run: Any, agent: Any) -> None:
    ann = replace(agent, user="ann")
    ann.add("Ann keeps bees")
    assert "Ann keeps bees" in run("facts", "--user", "telegram:ann").stdout
    assert "Ann keeps bees" not in run("facts").stdout


def test_a_user_of_whom_nothing_is_kept_is_said_to_be_none_and_nothing_is_made(run: Any, agent: Any) -> None:
    with pytest.raises(ToolInputInvalid, match="no facts of 'telegran:ann'"):
        run("facts", "--user", "telegran:ann")
    assert not (agent.home / "memory_store.users").exists()


def test_a_limit_that_no_database_holds_is_refused(run: Any) -> None:
    assert (
        "it must be a whole number from 1 up to 1000000, is '999" in run("facts", "--limit", "9" * 20).stderr
    )


def test_facts_are_forgotten_by_their_numbers_and_one_that_is_not_there_is_told(run: Any, agent: Any) -> None:
    tea, bob = (json.loads(run("facts", words, "--json").stdout)[0] for words in ("tea", "tokyo"))
    done = run("forget", str(tea["fact_id"]), "4711", str(bob["fact_id"]))
    assert done.exit_code == 1
    assert done.stdout == f"forgotten: {tea['content']}\nforgotten: {bob['content']}\n"
    assert done.stderr == "there is no fact 4711\n"
    left = [fact["content"] for fact in json.loads(run("facts", "--json").stdout)]
    assert sorted(left) == ["Bob lives in Berlin", "Mel typed \x1b[31mred"]
    assert run("forget", "1").exit_code == 0


def test_contradictions_show_both_facts(run: Any) -> None:
    (pair,) = json.loads(run("contradictions", "--json").stdout)
    assert pair["fact_a"]["content"] == "Bob moved to Tokyo with Eve"
    assert "Bob lives in Berlin" in run("contradictions").stdout


def test_export_is_a_line_of_json_for_each_fact_with_all_that_is_known_of_it(run: Any) -> None:
    first, second, *others = map(json.loads, run("export").stdout.splitlines())
    assert (first["content"], first["superseded_by"], first["entities"]) == (
        "Bob lives in Berlin",
        2,
        ["Bob", "Berlin"],
    )
    assert {"subject": "bob", "attribute": "lives in", "value": "Berlin"} in first["slots"]
    assert "superseded_by" not in second
    assert len(others) == 2


def test_stats_say_where_and_how_many(run: Any, agent: Any) -> None:
    stats = json.loads(run("stats", "--json").stdout)
    assert (stats["facts"], stats["path"]) == (4, str(agent.home / "memory_store.db"))
    assert "facts: 4" in run("stats").stdout


def test_nothing_found_is_said_beside_the_output(run: Any) -> None:
    result = run("probe", "Nobody")
    assert (result.stdout, result.stderr, result.exit_code) == ("", "Nothing was found.\n", 0)

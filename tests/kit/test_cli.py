"""What the commands of providers share: options, the home, and how rows are printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hermes_core.kit.cli import (
    json_option,
    limit_option,
    open_provider,
    print_facts,
    print_rows,
    words_argument,
)


@dataclass(frozen=True)
class Tea:
    name: str
    score: float


class Provider:
    """It notes which homes are open."""

    def __init__(self) -> None:
        self.seen: list[Path | None] = []

    def open(self, home: Path) -> None:
        self.seen.append(home)

    def shutdown(self) -> None:
        self.seen.append(None)


@click.command()
@words_argument
@limit_option(2, maximum=3)
@json_option
@click.pass_context
def find(context: click.Context, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find teas."""
    session = open_provider(context)
    teas = [Tea(f"{word} \x1b[31m", 0.5) for word in words if word != "none"]
    print_rows(teas[:limit], as_json, lambda tea: f"{tea.name} {session.identity}")


@click.command()
@json_option
def about(as_json: bool) -> None:
    """About it."""
    print_facts({"last_seen": "a\nb", "kinds": {"green": 2, "black": {"old": 1}}}, as_json)


def run(*words: str) -> tuple[Result, Provider]:
    @click.group()
    @click.option("--home")
    def main(home: str) -> None:
        pass

    provider = Provider()
    main.context_settings["obj"] = provider
    main.add_command(find)
    main.add_command(about)
    return CliRunner().invoke(main, ["--home", "/tea", *words]), provider


def test_the_provider_is_open_on_the_named_home_while_the_command_runs() -> None:
    done, provider = run("find", "oolong")
    assert done.exit_code == 0
    assert provider.seen == [Path("/tea"), None]


def test_rows_are_lines_that_drive_no_terminal_or_json() -> None:
    assert run("find", "oolong", "sencha", "assam")[0].stdout == (
        "oolong \N{REPLACEMENT CHARACTER}[31m default\nsencha \N{REPLACEMENT CHARACTER}[31m default\n"
    )
    assert json.loads(run("find", "oolong", "--json")[0].stdout) == [
        {"name": "oolong \x1b[31m", "score": 0.5}
    ]


def test_no_rows_are_a_message_on_standard_error_or_an_empty_list() -> None:
    done = run("find", "none")[0]
    assert (done.stdout, done.stderr) == ("", "Nothing was found.\n")
    assert json.loads(run("find", "none", "--json")[0].stdout) == []


def test_a_limit_has_bounds() -> None:
    assert run("find", "oolong", "--limit", "4")[0].exit_code == 2


def test_facts_are_lines_or_json() -> None:
    assert run("about")[0].stdout == "last seen: a b\nkinds: green 2, black (old 1)\n"
    assert json.loads(run("about", "--json")[0].stdout)["kinds"] == {"green": 2, "black": {"old": 1}}


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("0", "it must be a whole number from 1 up to 1000000, is '0'"),
        ("1000001", "it must be a whole number from 1 up to 1000000, is '1000001'"),
        ("nan", "it must be a whole number from 1 up to 1000000, is 'nan'"),
        ("010", "it must be a whole number from 1 up to 1000000, is '010'"),
        ("9" * 5000, f"it must be a whole number from 1 up to 1000000, is '{'9' * 78}…"),
    ],
)
def test_a_number_on_the_command_line_is_refused_as_one_in_a_setting_is(typed: str, sentence: str) -> None:
    @click.command()
    @limit_option()
    def show(limit: int) -> None:
        click.echo(limit)

    refused = CliRunner().invoke(show, ["--limit", typed])
    assert (refused.exit_code, sentence in refused.output) == (2, True), refused.output
    assert CliRunner().invoke(show, ["--limit", "7"]).output == "7\n"
    assert "1<=x<=1000000" in CliRunner().invoke(show, ["--help"]).output

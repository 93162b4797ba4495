"""The rule of commands, for all of the core, of every installed extension, and of a stranger's extension."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from hermes_core.cli import Group, extensions_of, main
from hermes_core.contract.extensions import CommandEntry
from hermes_core.home import HermesHome
from hermes_core.kit import cli as kit

WITHOUT_JSON = {
    "completion": "it prints a script",
    "mcp": "its standard output belongs to the client",
    "sessions export": "it writes JSON Lines",
    "serve": "it serves until it is stopped",
    "ui": "it serves a page until it is stopped",
}
"""Commands without `--json`, with the reason that the command itself gives."""

ASKING_WITHOUT_YES = {
    "chat": "it is a conversation",
    "config edit": "it asks only in a terminal, after a text that can't be saved: whether to edit it again",
    "extensions install": "it asks only in a terminal",
    "keys set": "it reads the value from standard input, if that is no terminal",
    "providers install": "it asks only in a terminal",
    "review": "it asks only in a terminal, and has an option for each answer",
}

REMOVING = {
    "remove": "takes one named thing out: a note, a key, an id, a plugin folder, a permission, the alias",
    "delete": "destroys stored conversations or writes for good",
    "prune": "destroys what is old: conversations, or the history of notes",
    "reset": "removes all notes",
    "forget": "destroys all that is stored of one user",
    "unset": "removes a key from config.yaml, so that its default holds",
    "uninstall": "removes a Python package",
}
"""The words for removing, a kind each. A command that removes and is called otherwise does not exist."""

OTHER_REMOVING_WORDS = {
    *(
        "clean",
        "clear",
        "destroy",
        "discard",
        "drop",
        "empty",
        "erase",
        "kill",
        "purge",
        "rm",
        "trash",
        "wipe",
    ),
}

TIME_OPTIONS = {"--after", "--before", "--older-than"}
OTHER_TIME_OPTIONS = {"--age", "--days", "--from-date", "--newer-than", "--since", "--until"}
OTHER_WORDS = {"--max", "--count", "--force-yes", "--apply", "--no-input", "--assume-yes", "--format-json"}


def walk(path: str, command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield each command below `command`, groups too, with its words."""
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        below = command.get_command(context, name)  # type: ignore[attr-defined]
        assert below is not None, name
        words = f"{path} {name}".strip()
        yield words, below
        yield from walk(words, below, click.Context(below, context, info_name=name))


def all_commands() -> dict[str, click.Command]:
    """Return every command with its words."""
    return dict(
        walk("", main, click.Context(main, info_name="hermes-memory", obj={}, **main.context_settings))
    )


def runs(command: click.Command) -> bool:
    """Return True if the command does something itself."""
    return not isinstance(command, click.Group) or command.invoke_without_command


def shown_options(command: click.Command) -> set[str]:
    """Return the options that help shows."""
    return {
        name
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
        for name in (*param.opts, *param.secondary_opts)
    }


def invoke(*words: str) -> Result:
    """Run a command line."""
    return CliRunner().invoke(main, list(words), prog_name="hermes-memory")


@pytest.fixture
def commands(hermes_home: HermesHome) -> dict[str, click.Command]:
    """Every command of the core and of the installed extensions, on a home without a provider."""
    del hermes_home
    found = all_commands()
    assert {
        "sessions delete",
        "storage move",
        "plugins remove",
        "claw migrate",
        "skills undo",
    } <= found.keys()
    return found


def test_each_has_a_summary_of_one_line(commands: dict[str, click.Command]) -> None:
    for words, command in commands.items():
        summary = command.get_short_help_str(limit=1000)
        assert summary[:1].isupper(), words
        assert summary.endswith("."), words
        assert "\n" not in summary, words
        assert len(summary) <= 130, words


def test_each_has_json_or_says_why_not(commands: dict[str, click.Command]) -> None:
    reasons = {
        words: getattr(command.callback, "without_json", "")
        for words, command in commands.items()
        if runs(command) and "--json" not in shown_options(command)
    }
    assert reasons == WITHOUT_JSON


def test_each_that_asks_has_yes(commands: dict[str, click.Command]) -> None:
    asking = {words for words, command in commands.items() if command.callback and asks(command.callback)}
    assert {"sessions delete", "outbox delete", "restore", "claw migrate", "memory setup"} <= asking
    assert {words for words in asking if "--yes" not in shown_options(commands[words])} == set(
        ASKING_WITHOUT_YES
    )
    for words, command in commands.items():
        assert ("--yes" in shown_options(command)) <= (words in asking or words == "import"), words


def test_each_kind_of_removing_has_one_word(commands: dict[str, click.Command]) -> None:
    said = {word for words in commands for word in words.split()}
    said |= {option.strip("-") for command in commands.values() for option in shown_options(command)}
    assert said >= REMOVING.keys()
    assert not said & OTHER_REMOVING_WORDS


def test_limits_of_time_and_number_have_one_word(commands: dict[str, click.Command]) -> None:
    said = {words: shown_options(command) for words, command in commands.items()}
    assert set().union(*said.values()) >= TIME_OPTIONS
    for words, options in said.items():
        assert not options & (OTHER_TIME_OPTIONS | OTHER_WORDS), words
        assert ("--after" in options) <= ("--before" in options), words
        assert ("--limit" in options) == ("-n" in options), words
        assert "-k" not in options or "--limit" in options, words
        assert ("--yes" in options) == ("-y" in options) or words in ("extensions new", "providers new"), (
            words
        )


def test_a_wrong_option_and_a_near_word_are_one_line(commands: dict[str, click.Command]) -> None:
    for words in commands.keys() - {"keys set"}:  # it repeats no word, which may be the value of a key
        refused = invoke(*words.split(), "--nonsense")
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), words
        assert f"see: hermes-memory {words}" in refused.stderr.lower(), words
        *above, last = words.split()
        near = invoke(*above, f"{last}x")
        assert (near.exit_code, near.stdout, near.stderr.count("\n")) == (2, "", 1), words
        assert "did you mean" in near.stderr, words


def test_bytes_that_are_no_text_are_wrong_usage(commands: dict[str, click.Command]) -> None:
    word = os.fsdecode(b"caf\xe9")  # as a terminal of another encoding sends it
    tried = set()
    for words, command in commands.items():
        arguments = [param for param in command.params if isinstance(param, click.Argument)]
        options = [param for param in command.params if isinstance(param, click.Option)]
        for param in [*arguments[:1], *options]:
            if runs(command) and isinstance(param.type, click.types.StringParamType):
                given = [] if param in arguments else [param.opts[0]]
                refused = invoke(*words.split(), *given, word)
                assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), words
                assert "no UTF-8 text" in refused.stderr, words
                tried.add(" ".join([words, *given]))
    assert {"forget", "storage move --to", "memory add", "sessions search --source", "keys set"} <= tried


def test_an_empty_path_is_wrong_usage_and_not_this_folder(commands: dict[str, click.Command]) -> None:
    tried = set()
    for words, command in commands.items():
        first = next((param for param in command.params if isinstance(param, click.Argument)), None)
        for param in [first, *(one for one in command.params if isinstance(one, click.Option))]:
            if param is not None and runs(command) and isinstance(param.type, click.Path):
                given = [] if param is first else [param.opts[0]]
                refused = invoke(*words.split(), *given, "")
                assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), words
                assert "it is empty" in refused.stderr, words
                tried.add(" ".join([words, *given]))
    assert {"import", "memory export", "export", "restore"} <= tried


def test_a_number_that_no_row_can_have_is_wrong_usage(hermes_home: HermesHome) -> None:
    for words in ("outbox retry", "outbox delete --yes"):
        for number in ("9" * 30, "x"):
            refused = invoke(*words.split(), number)
            assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1), refused.stderr
            assert "it must be a whole number" in refused.stderr


@pytest.mark.parametrize(
    ("old", "present"),
    [
        (["outbox", "drop", "--all", "--yes"], ["outbox", "delete", "--all", "--yes"]),
        (["costs", "--days", "3", "--json"], ["costs", "--limit", "3", "--json"]),
        (
            ["sessions", "search", "tea", "--since", "2020-01-01"],
            ["sessions", "search", "tea", "--after", "2020-01-01"],
        ),
        (
            ["recall", "tea", "--until", "2020-01-01", "--json"],
            ["recall", "tea", "--before", "2020-01-01", "--json"],
        ),
        (["verify", "--since", "0" * 16], ["verify", "--hash", "0" * 16]),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_earlier_word_still_works_and_is_not_shown(
    old: list[str], present: list[str], hermes_home: HermesHome
) -> None:
    del hermes_home
    before, now = invoke(*old), invoke(*present)
    assert before.exit_code == now.exit_code in (0, 1)
    if "recall" not in old:  # it says how long it took
        assert (before.stdout, before.stderr) == (now.stdout, now.stderr)
    (word,) = {word for word in old if word not in present}
    assert word not in invoke(*old[:1], "--help").stdout + invoke(*present[:2], "--help").stdout


# ----------------------------------------------------------------------------------------------- a stranger's command


@click.command()
def brew() -> None:
    """Brew some."""
    click.echo("brewed")
    click.echo("a pot")


@click.group()
def shelf() -> None:
    """Keep tea."""


@shelf.command()
@kit.yes_option
def empty() -> None:
    """Empty it."""
    kit.confirm("Empty the shelf?")
    kit.print_json({"left": 0})
    click.echo("it is empty")


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def forward(words: tuple[str, ...]) -> None:
    """Hand the words on."""
    click.echo(" ".join(words))


@pytest.fixture
def stranger(hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extension of somebody else with plain click commands."""
    del hermes_home
    monkeypatch.setitem(sys.modules, "tea_of_test", SimpleNamespace(brew=brew, shelf=shelf, forward=forward))
    names = ("brew", "shelf", "forward")
    added = {name: CommandEntry(name, f"Tea: {name}.", f"tea_of_test:{name}", "tea") for name in names}
    loaded = SimpleNamespace(commands=added)
    monkeypatch.setattr("hermes_core.cli.extensions_of", lambda _ctx: loaded)
    assert extensions_of is not loaded


@pytest.mark.usefixtures("stranger")
def test_a_strangers_commands_have_the_rule_too() -> None:
    assert invoke("brew").stdout == "brewed\na pot\n"
    assert json.loads(invoke("brew", "--json").stdout) == {"output": ["brewed", "a pot"]}
    asked = CliRunner().invoke(main, ["shelf", "empty", "--json"], input="n\n")
    assert (asked.exit_code, asked.stdout) == (1, "")
    emptied = invoke("shelf", "empty", "--json", "-y")
    assert (json.loads(emptied.stdout), emptied.stderr) == ({"left": 0}, "it is empty\n")
    assert "did you mean 'empty'" in invoke("shelf", "empt").stderr
    assert invoke("brew", "--pot").stderr == "error: No such option '--pot'; see: hermes-memory brew --help\n"
    assert invoke("forward", "--json").stdout == "--json\n"


def test_a_group_of_a_provider_gives_the_rule() -> None:
    group = Group("tea")
    group.add_command(click.Command("brew", callback=lambda: click.echo("brewed")))
    done = CliRunner().invoke(group, ["brew", "--json"])
    assert json.loads(done.stdout) == {"output": ["brewed"]}


# ------------------------------------------------------------------------------------------------------- who asks


def asks(callback: Any) -> bool:
    """Return True if a function, or one of ours that it calls by name, asks a question with click."""
    seen: set[CodeType] = set()
    todo: list[Any] = [callback]
    while todo:
        function = todo.pop()
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, type):
            todo += [value for value in vars(function).values() if isinstance(value, FunctionType)]
        if not isinstance(function, FunctionType) or not function.__module__.startswith("hermes"):
            continue
        for code in codes(function.__code__):
            if code in seen:
                continue
            seen.add(code)
            if "click" in code.co_names and {"confirm", "prompt"} & set(code.co_names):
                return True
            for name in code.co_names:
                value = function.__globals__.get(name)
                if value is kit.confirm:
                    return True
                todo.append(value)
    return False


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)

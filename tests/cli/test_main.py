from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from hermes_core import HermesHome
from hermes_core.cli import COMMANDS, Group
from hermes_core.config import set_value

HELP = """
import sys
from hermes_core.cli import main
main(["--help"], standalone_mode=False)
print(sorted(name for name in sys.modules if "holographic" in name or name.startswith("_hermes_user_memory")))
print(sorted({"numpy", "httpx", "rich"} & set(sys.modules)))
"""


HANGING = """
import sqlite3, sys, threading
from pathlib import Path
from hermes_core.cli import main
from hermes_core.storage.sqlite import Database

path = Path(sys.argv.pop(1))
opened, locked = threading.Event(), threading.Event()

def wait():
    database = Database(path, busy_timeout=60.0)
    database.execute("CREATE TABLE facts (id INTEGER)")
    opened.set()
    locked.wait()
    database.execute("INSERT INTO facts VALUES (1)")

threading.Thread(target=wait, daemon=True).start()
opened.wait()
holder = sqlite3.connect(path, isolation_level=None)
holder.execute("BEGIN EXCLUSIVE")
locked.set()
main()
"""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["config", "list"], 0, "memory.provider"),
        (["memory", "use", "nobody"], 1, "no provider called 'nobody'"),
    ],
)
def test_a_call_that_hangs_holds_no_command_at_its_end(
    hermes_home: HermesHome, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    del hermes_home
    ended = subprocess.run(
        [sys.executable, "-c", HANGING, tmp_path / "theirs.db", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == code
    assert said in ended.stdout + ended.stderr


@pytest.mark.parametrize("provider", ["holographic", "notes"])
def test_help_names_the_provider_and_imports_none(
    hermes_home: HermesHome, notes: Path, provider: str
) -> None:
    set_value(hermes_home, "memory.provider", provider)
    ended = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    assert f"Commands of the active provider '{provider}'." in ended.stdout
    assert ended.stdout.splitlines()[-2:] == ["[]", "[]"]


@pytest.mark.parametrize("words", [["--home", "HOME", "--help"], ["-h", "--home", "HOME"]])
def test_help_is_that_of_the_home_which_is_named(hermes: Any, tmp_path: Path, words: list[str]) -> None:
    other = HermesHome(tmp_path / "other")
    set_value(other, "memory.provider", "notes")
    words = [str(other.path) if word == "HOME" else word for word in words]
    assert "Commands of the active provider 'notes'." in hermes(*words).stdout
    assert "active provider" not in hermes("--help").stdout


def test_the_module_and_the_program_are_the_same_command_line() -> None:
    program = str(Path(sys.executable).with_name("hermes-memory"))
    shown = [
        subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        for command in ([program], [sys.executable, "-m", "hermes_core"])
    ]
    assert len(set(shown)) == 1
    assert shown[0].startswith("hermes-memory, version ")


def test_every_command_has_its_help(hermes: Any) -> None:
    for name in COMMANDS:
        assert f"Usage: hermes-memory {name}" in hermes(name, "--help").stdout
        assert hermes(name, "-h").stdout == hermes(name, "--help").stdout
        assert "..." not in hermes(name, "--help").stdout.partition("Commands:")[2]


def test_a_group_shows_no_hidden_command_and_may_be_empty() -> None:
    group = Group("tea")
    assert "Commands" not in group.get_help(click.Context(group))
    group.add_command(click.Command("secret", hidden=True))
    assert "secret" not in group.get_help(click.Context(group))
    group.add_command(click.Command("brew", help="Make some."))
    assert "brew  Make some." in group.get_help(click.Context(group))


def test_a_word_that_is_no_command_is_wrong_usage(hermes: Any) -> None:
    assert "No such command 'nonsense'" in hermes("nonsense", code=2).stderr
    assert "No such option" in hermes("memory", "show", "--nonsense", code=2).stderr


def test_a_provider_that_is_not_active_has_no_commands_and_the_error_says_how_it_gets_them(
    hermes: Any,
) -> None:
    assert "choose it first: hermes-memory memory use honcho" in hermes("honcho", "status", code=2).stderr


def test_without_a_command_the_help_is_shown(hermes: Any) -> None:
    result = hermes(code=2)
    assert "Commands:" in result.stdout + result.stderr


# ---------------------------------------------------------------------------------------------------------- homes


def test_the_home_of_the_option_comes_before_that_of_the_environment(
    hermes: Any, hermes_home: HermesHome, tmp_path: Path
) -> None:
    hermes("memory", "add", "in the environment's")
    hermes("--home", tmp_path / "other", "memory", "add", "in the option's")
    assert "in the environment's" in hermes_home.memory_md.read_text()
    assert "in the option's" in (tmp_path / "other" / "memories" / "MEMORY.md").read_text()
    assert "in the option's" in hermes("--home", tmp_path / "other", "memory", "show").stdout


def test_a_profile_is_a_home_of_its_own(
    hermes: Any, data: Any, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    hermes("--profile", "work", "memory", "add", "Works at the port")
    assert "Works at the port" not in hermes("memory", "show").stdout
    assert (hermes_home.path / "profiles" / "work" / "memories" / "MEMORY.md").exists()
    monkeypatch.setenv("HERMES_PROFILE", "work")
    assert "Works at the port" in hermes("memory", "show").stdout
    assert data("memory", "status")["profile"] == "work"
    assert "Works at the port" not in hermes("--profile", "default", "memory", "show").stdout


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "x" * 65])
def test_a_profile_can_not_leave_its_folder(hermes: Any, name: str) -> None:
    result = hermes("--profile", name, "memory", "show", code=1)
    assert (
        result.stderr
        == f"error: {name!r} can't be a profile's name; use letters from a to z, digits, '-', '_' and '.'\n"
    )


def test_a_home_that_is_a_file_is_one_clear_line(hermes: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = hermes("--home", tmp_path / "file", "memory", "add", "x", code=1)
    assert result.stderr.count("\n") == 1
    assert "Not a directory" in result.stderr


def test_a_wrong_config_is_one_clear_line_and_help_still_works(hermes: Any, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text("memory:\n  memory_char_limit: much\n")
    result = hermes("memory", "status", code=1)
    assert result.stderr.startswith("error: config.yaml line 2: memory.memory_char_limit must be")
    assert "Commands:" in hermes("--help").stdout


def test_reading_makes_no_home(hermes: Any, hermes_home: HermesHome) -> None:
    for words in (["--help"], ["completion", "bash"], ["memory", "show"]):
        hermes(*words)
    assert not hermes_home.memory_md.exists()


# ----------------------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_for_that_shell(hermes: Any, shell: str) -> None:
    script = hermes("completion", shell).stdout
    assert f"_HERMES_MEMORY_COMPLETE={shell}_complete" in script


def test_an_unknown_shell_is_wrong_usage(hermes: Any) -> None:
    assert "'tcsh' is not one of" in hermes("completion", "tcsh", code=2).stderr


def test_completion_offers_commands_and_the_active_providers_name(
    hermes_home: HermesHome, notes: Path
) -> None:
    set_value(hermes_home, "memory.provider", "notes")
    environ = {
        **os.environ,
        "_HERMES_MEMORY_COMPLETE": "bash_complete",
        "COMP_WORDS": "hermes-memory ",
        "COMP_CWORD": "1",
    }
    ended = subprocess.run(
        [Path(sys.executable).with_name("hermes-memory")],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    offered = {line.partition(",")[2] for line in ended.stdout.splitlines()}
    assert {*COMMANDS, "notes", "mcp", "ui"} <= offered


# ------------------------------------------------------------------------------------------------ provider commands


def test_the_active_provider_has_its_commands_and_no_other(
    hermes: Any, hermes_home: HermesHome, notes: Path
) -> None:
    assert "No such command 'notes'" in hermes("notes", "count", code=2).stderr
    set_value(hermes_home, "memory.provider", "notes")
    assert hermes("notes", "count").stdout == "three notes\n"
    assert "Say how many." in hermes("notes", "--help").stdout
    assert "No such command 'holographic'" in hermes("holographic", "stats", code=2).stderr
    set_value(hermes_home, "memory.provider", "holographic")
    assert "facts: 0" in hermes("holographic", "stats").stdout
    assert "No such command 'notes'" in hermes("notes", "count", code=2).stderr


def test_a_provider_that_does_not_load_says_why_in_place_of_its_commands(
    hermes: Any, hermes_home: HermesHome, absent: str
) -> None:
    set_value(hermes_home, "memory.provider", absent)
    result = hermes(absent, "status", code=1)
    assert (
        result.stderr == "error: provider 'absent' is not installed; run: hermes-memory memory setup absent\n"
    )


def test_ctrl_c_at_a_question_has_the_exit_code_of_ctrl_c(
    hermes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def pressed(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise click.Abort from None  # as click.confirm does

    monkeypatch.setattr(click, "confirm", pressed)
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"session": "s1", "role": "user", "content": "Hello."}\n')
    hermes("import", chat)
    assert hermes("sessions", "delete", "jsonl", code=130).stderr == "\n"

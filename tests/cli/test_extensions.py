"""`hermes-memory extensions`, and the commands of packages that are not installed."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import importlib_metadata
import pytest
from click.shell_completion import ShellComplete

from hermes_core import hookimpl
from hermes_core.cli import main
from hermes_core.contract.extensions import EXTENSION_GROUP, CommandEntry, Registrations
from hermes_core.home import HermesHome


def block(home: HermesHome, *names: str) -> None:
    home.path.mkdir(exist_ok=True)
    home.config_yaml.write_text(f"extensions: {{block: [{', '.join(names)}]}}\n")


def test_the_list_has_each_with_its_state(hermes: Any, hermes_home: HermesHome) -> None:
    block(hermes_home, "mcp")
    rows = {row["name"]: row for row in json.loads(hermes("extensions", "--json").stdout)}
    assert rows["ui"]["state"] == "active"
    assert rows["ui"]["adds"] == ["register_commands"]
    assert rows["mcp"]["state"] == "blocked"
    assert "block list" in rows["mcp"]["reason"]


def test_a_command_of_a_blocked_extension_says_so(hermes: Any, hermes_home: HermesHome) -> None:
    block(hermes_home, "ui")
    result = hermes("ui", code=1)
    assert "'ui' is of the extension 'ui', which is blocked" in result.stderr
    assert "extensions.block" in result.stderr


def test_a_command_of_a_missing_package_names_it_and_how_to_install_it(
    hermes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.loader.extensions.installed_entry_points", lambda: iter(()))
    result = hermes("ui", code=1)
    assert result.stderr.count("\n") == 1
    assert "'ui' is in the package hermes-memory-ui, which is not installed" in result.stderr
    assert re.search(r"install \S*plugins/ui", result.stderr)
    help_text = hermes("--help").stdout
    assert "Not installed: hermes-memory-ui." in " ".join(help_text.split())


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("memry",), "memory"), (("memory", "satus"), "status"), (("holographc",), "holographic")],
)
def test_a_near_match_is_named_at_every_level(hermes: Any, words: tuple[str, ...], meant: str) -> None:
    assert f"did you mean {meant!r}?" in hermes(*words, code=2).stderr


def test_install_knows_ours_only(hermes: Any) -> None:
    assert (
        "'nothing' is no extension of this project"
        in hermes("extensions", "install", "nothing", code=1).stderr
    )


def test_install_takes_the_name_of_the_package_and_names_a_near_match(
    hermes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[list[str]] = []
    monkeypatch.setattr(
        "hermes_core.cli.extensions.install", lambda home, what, names, ask: wanted.append(names)
    )
    hermes("extensions", "install", "hermes-memory-ui")
    assert wanted == [["hermes-memory-ui"]]
    assert "did you mean 'semantic'?" in hermes("extensions", "install", "semantics", code=1).stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("bakup",), "backup"), (("storage", "mvoe"), "move"), (("memory", "currate"), "curate")],
)
def test_a_near_match_may_be_a_command_of_a_missing_package(
    hermes: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], meant: str
) -> None:
    monkeypatch.setattr("hermes_core.loader.extensions.installed_entry_points", lambda: iter(()))
    assert f"did you mean {meant!r}?" in hermes(*words, code=2).stderr


class Clumsy:
    """An extension whose commands can't be had."""

    @hookimpl
    def register_commands(self, commands: Registrations[CommandEntry]) -> None:
        commands.add(CommandEntry("broken", "A module that raises.", "clumsy_commands:run"))
        commands.add(CommandEntry("function", "No command.", "os:getcwd"))
        commands.add(CommandEntry("memory clumsy", "A command below a group.", "clumsy:none"))


@pytest.fixture
def clumsy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment with this extension only."""
    module = types.ModuleType("clumsy")
    module.Clumsy = Clumsy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "clumsy", module)
    (tmp_path / "clumsy_commands.py").write_text("raise RuntimeError('no water')\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib_metadata.EntryPoint("clumsy", "clumsy:Clumsy", EXTENSION_GROUP)
    monkeypatch.setattr("hermes_core.loader.extensions.installed_entry_points", lambda: iter((point,)))


@pytest.mark.usefixtures("clumsy")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("broken",), "RuntimeError: no water"),
        (("function",), "'function' is 'os:getcwd', which is no click command"),
        (("memory", "clumsy"), "'memory clumsy' can't be imported"),
    ],
)
def test_a_command_that_can_not_be_imported_fails_with_one_line(
    hermes: Any, words: tuple[str, ...], reason: str
) -> None:
    result = hermes(*words, code=1)
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("clumsy")
def test_help_and_completion_live_with_a_command_that_can_not_be_imported(
    hermes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "A command below a group." in hermes("memory", "--help").stdout
    completed = ShellComplete(main, {}, "hermes-memory", "_X").get_completions(["memory"], "")
    assert "status" in [item.value for item in completed]


@pytest.mark.usefixtures("clumsy")
def test_a_config_that_can_not_be_read_lets_no_stranger_in(hermes: Any, hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.config_yaml.write_text("extensions: {block: clumsy}\n")
    assert "No such command 'broken'" in hermes("broken", code=2).stderr
    assert "extensions.block must be a list" in hermes("extensions", code=1).stderr

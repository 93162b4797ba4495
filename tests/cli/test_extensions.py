"""`hermes-memory extensions`, and the commands of packages that are not installed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

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


@pytest.mark.parametrize(("words", "meant"), [(("memry",), "memory"), (("memory", "satus"), "status")])
def test_a_near_match_is_named_at_every_level(hermes: Any, words: tuple[str, ...], meant: str) -> None:
    assert f"did you mean {meant!r}?" in hermes(*words, code=2).stderr


def test_install_knows_ours_only(hermes: Any) -> None:
    assert (
        "'nothing' is no extension of this project"
        in hermes("extensions", "install", "nothing", code=1).stderr
    )

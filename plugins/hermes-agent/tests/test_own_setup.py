"""The wizard that a provider for Hermes Agent brings, and defaults that follow from another answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_core import Field
from hermes_core.cli import main
from hermes_core.config import Credentials, load_config, set_value
from hermes_core.home import HermesHome
from hermes_core.setup.answers import Answers

InstallPlugin = Callable[..., Path]

MOUSE = """
import json, os
from pathlib import Path
from agent.memory_provider import MemoryProvider


class Mouse(MemoryProvider):
    name = "mouse"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        if not os.environ.get("MOUSE_KEY", "").startswith("good"):
            raise RuntimeError("the key is refused")

    def get_tool_schemas(self):
        return []

    def get_config_schema(self):
        return [
            {"key": "mode", "default": "cloud", "choices": ["cloud", "self"]},
            {"key": "server", "default_from": {"field": "mode", "map": {"cloud": "https://m.example", "self": "http://localhost"}}},
        ]

    def post_setup(self, hermes_home, config):
        from hermes_cli.config import load_config, save_config, save_env_value
        from hermes_cli.memory_setup import _curses_select, _prompt
        chosen = _curses_select("Where?", [("cloud", "- needs a key"), ("self", ""), ("crash", "")], 0, cancel_returns=-1)
        if chosen == -1:
            return
        if chosen == 2:
            raise ValueError("no such place")
        save_env_value("MOUSE_KEY", _prompt("Key", secret=True))
        Path(hermes_home, "mouse.json").write_text(json.dumps({"mode": ["cloud", "self"][chosen]}))
        config.setdefault("memory", {})["provider"] = "mouse"
        save_config(config)


def register(ctx):
    ctx.register_memory_provider(Mouse())
"""


@pytest.fixture
def home(hermes_home: HermesHome, install_plugin: InstallPlugin) -> HermesHome:
    install_plugin("mouse", MOUSE)
    return hermes_home


def run(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["memory", "setup", "mouse", *words], input=typed)


def chosen(home: HermesHome) -> str:
    return load_config(home).memory.provider


def test_a_wizard_of_its_own_asks_instead_of_ours_and_what_it_set_up_is_tried(home: HermesHome) -> None:
    done = run(typed="1\ngood-key\n")
    assert done.exit_code == 0, done.output
    assert "Where?" in done.output
    assert "it starts" in done.output
    assert chosen(home) == "mouse"
    assert Credentials(home, {}).get("MOUSE_KEY") == "good-key"
    assert json.loads(home.provider_json("mouse").read_text()) == {"mode": "self"}


def test_what_its_wizard_set_up_and_does_not_work_is_not_chosen(home: HermesHome) -> None:
    done = run(typed="0\nbad-key\nn\n")
    assert done.exit_code == 1
    assert "the key is refused" in done.stderr
    assert chosen(home) == ""


def test_a_wizard_that_is_left_without_choosing_keeps_the_active_provider(home: HermesHome) -> None:
    set_value(home, "memory.provider", "before")
    done = run(typed="")
    assert done.exit_code == 1
    assert "without choosing it" in done.stderr
    assert chosen(home) == "before"


def test_a_wizard_that_breaks_is_one_line(home: HermesHome) -> None:
    done = run(typed="2\n")
    assert done.exit_code == 1
    assert "ValueError: no such place" in done.stderr
    assert chosen(home) == ""


def test_without_questions_no_wizard_runs(home: HermesHome) -> None:
    Credentials(home).set("MOUSE_KEY", "good-key")
    done = run("--set", "mode=self", "--yes")
    assert done.exit_code == 0, done.output
    assert "Where?" not in done.output
    assert chosen(home) == "mouse"
    assert json.loads(home.provider_json("mouse").read_text())["server"] == "http://localhost"


SERVER = Field("server", default="http://any", default_from=("mode", {"cloud": "https://m.example"}))


@pytest.mark.parametrize(
    ("known", "server"),
    [
        ({"mode": "cloud", "server": None}, "https://m.example"),
        ({"mode": "other", "server": None}, "http://any"),
        ({"mode": "cloud", "server": "http://mine"}, "http://mine"),
    ],
)
def test_a_default_follows_from_another_answer_and_gives_way_to_a_value(
    known: dict[str, str | None], server: str
) -> None:
    answers = Answers((Field("mode"), SERVER), known)
    answers.settle()
    assert answers.value("server") == server

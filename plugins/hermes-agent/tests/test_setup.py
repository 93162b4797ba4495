from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core.cli import main
from hermes_core.config import Credentials, load_config
from hermes_core.home import HermesHome

InstallPlugin = Callable[..., Path]


PUBLISHED = """
import json, os
from pathlib import Path
from agent.memory_provider import MemoryProvider
from tests.outbox_of import outbox_of, turn_rows


class Elephant(MemoryProvider):
    name = "elephant"

    def is_available(self):
        return bool(os.environ.get("ELEPHANT_KEY"))

    def initialize(self, session_id, **kwargs):
        self.key = os.environ["ELEPHANT_KEY"]

    def get_tool_schemas(self):
        return []

    def get_config_schema(self):
        return [
            {"key": "key", "secret": True, "required": True, "env_var": "ELEPHANT_KEY", "url": "https://e.example"},
            {"key": "herd", "description": "Which herd", "default": "one", "choices": ["one", "two"]},
            {"key": "token", "secret": True},
        ]

    def save_config(self, values, hermes_home):
        path = Path(hermes_home, "elephant", "config.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values))


def register(ctx):
    ctx.register_memory_provider(Elephant())
"""


def run(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["memory", "setup", *words], input=typed)


def chosen(home: HermesHome) -> str:
    return load_config(home).memory.provider


@pytest.fixture
def home(hermes_home: HermesHome, install_plugin: InstallPlugin) -> HermesHome:
    install_plugin()
    return hermes_home


def test_a_published_provider_is_set_up_by_its_schema_and_its_own_store(
    hermes_home: HermesHome, install_plugin: InstallPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELEPHANT_KEY", raising=False)
    install_plugin("elephant", PUBLISHED)
    done = run("elephant", "--set", "key=elephant-key-0123456789", "--set", "herd=two", "--yes")
    assert done.exit_code == 0, done.output
    assert json.loads((hermes_home.path / "elephant/config.json").read_text()) == {"herd": "two"}
    assert json.loads((hermes_home.path / "elephant.json").read_text()) == {"herd": "two"}
    assert Credentials(hermes_home, {}).get("ELEPHANT_KEY") == "elephant-key-0123456789"
    assert chosen(hermes_home) == "elephant"
    status: dict[str, Any] = json.loads(CliRunner().invoke(main, ["memory", "status", "--json"]).stdout)
    assert status["selected"]["state"] == "active"
    assert status["problems"] == []


def test_a_published_provider_that_takes_primary_sessions_only_is_set_up_and_examined(
    hermes_home: HermesHome, install_plugin: InstallPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELEPHANT_KEY", raising=False)
    strict = PUBLISHED.replace(
        "def initialize(self, session_id, **kwargs):",
        "def initialize(self, session_id, **kwargs):\n"
        '        if kwargs["agent_context"] not in ("primary", "subagent", "cron", "flush"):\n'
        "            raise ValueError(f\"unknown agent_context {kwargs['agent_context']!r}\")",
    )
    assert strict != PUBLISHED
    install_plugin("elephant", strict)
    done = run("elephant", "--set", "key=elephant-key-0123456789", "--set", "herd=two", "--yes")
    assert done.exit_code == 0, done.output
    examined = CliRunner().invoke(main, ["doctor"])
    assert examined.exit_code == 0, examined.output


def test_a_published_provider_s_setting_can_be_changed_again(
    hermes_home: HermesHome, install_plugin: InstallPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELEPHANT_KEY", raising=False)
    install_plugin("elephant", PUBLISHED)
    run("elephant", "--set", "key=elephant-key-0123456789", "--set", "herd=two", "--yes")
    done = run("elephant", "--set", "herd=one", "--yes")
    assert done.exit_code == 0, done.output
    for file in ("elephant/config.json", "elephant.json"):
        assert json.loads((hermes_home.path / file).read_text()) == {"herd": "one"}


def test_a_file_that_a_published_provider_writes_in_a_form_of_its_own_stays_as_it_is(
    hermes_home: HermesHome, install_plugin: InstallPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ELEPHANT_KEY", raising=False)
    wrapped = PUBLISHED.replace('"elephant", "config.json"', '"elephant.json"')
    wrapped = wrapped.replace("path.parent.mkdir(exist_ok=True)", 'values = {"hosts": {"here": values}}')
    install_plugin("elephant", wrapped)
    for herd in ("two", "two", "one"):
        done = run("elephant", "--set", "key=elephant-key-0123456789", "--set", f"herd={herd}", "--yes")
        assert "herd: it keeps its settings in a form of its own" in done.output
        assert json.loads((hermes_home.path / "elephant.json").read_text()) == {
            "hosts": {"here": {"herd": herd}}
        }

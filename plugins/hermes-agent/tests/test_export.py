from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from hermes_core.home import HermesHome
from hermes_core.loader.load import import_folder
from hermes_memory_foreign.environment import call_in
from tests.cli.conftest import Hermes


class Ctx:
    """The object that Hermes Agent gives to `register`."""

    provider: Any = None

    def register_memory_provider(self, provider: Any) -> None:
        self.provider = provider


@pytest.fixture
def exported(hermes: Hermes, tmp_path: Path) -> Path:
    """The folder that the command wrote into the home of Hermes Agent."""
    hermes("plugins", "export", "holographic", "--to", tmp_path / "theirs")
    return tmp_path / "theirs" / "plugins" / "core-holographic"


@pytest.fixture
def module(exported: Path) -> Iterator[ModuleType]:
    yield import_folder(exported)
    for name in [name for name in sys.modules if name.startswith("_hermes_user_memory")]:
        del sys.modules[name]


def test_the_folder_is_recognised_by_hermes_agent(exported: Path) -> None:
    manifest = yaml.safe_load((exported / "plugin.yaml").read_text())
    assert (manifest["name"], manifest["kind"]) == ("core-holographic", "exclusive")
    assert manifest["pip_dependencies"] == []
    # It looks for this word in the first 8192 characters.
    assert "MemoryProvider" in (exported / "__init__.py").read_text()[:8192]


def test_the_folder_registers_the_provider(module: ModuleType) -> None:
    ctx = Ctx()
    module.register(ctx)
    assert ctx.provider.name == "core-holographic"
    assert ctx.provider.is_available()
    assert {schema["name"] for schema in ctx.provider.get_tool_schemas()} == {"fact_store", "fact_feedback"}
    ctx.provider.shutdown()


def test_a_host_without_the_package_is_told_what_to_install(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "hermes_core", None)
    ctx = Ctx()
    module.register(ctx)
    assert ctx.provider is None
    assert "plugins/holographic" in caplog.text


def test_its_commands_are_handed_on_in_the_hosts_home(
    exported: Path, host_modules: None, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = exported.parents[1]
    namespace: dict[str, object] = {}
    exec(compile((exported / "cli.py").read_text(), "cli.py", "exec"), namespace)
    parser = argparse.ArgumentParser()
    namespace["register_cli"](parser)  # type: ignore[operator]
    options = parser.parse_args(["stats", "--json"])
    with call_in(theirs), pytest.raises(SystemExit) as stop:
        options.func(options)
    assert stop.value.code == 0
    assert str(theirs / "memory_store.db") in capsys.readouterr().out


def test_it_is_not_listed_here_as_a_provider_and_can_be_written_anew(hermes: Hermes) -> None:
    hermes("plugins", "export", "holographic")
    hermes("plugins", "export", "holographic")
    assert "core-holographic" not in hermes("providers", "--all").stdout


def test_a_folder_of_somebody_else_is_left_alone(hermes: Hermes, hermes_home: HermesHome) -> None:
    (hermes_home.plugins / "mine").mkdir(parents=True)
    refused = hermes("plugins", "export", "holographic", "--as", "mine", code=1)
    assert "is no export" in refused.stderr
    assert list((hermes_home.plugins / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nowhere",), "no installed provider is called 'nowhere'"),
        (("notes",), "'notes' is a folder"),
        (("holographic", "--as", "../x"), "can't be a provider's name"),
        (("holographic", "--as", "honcho"), "of its own"),
    ],
)
def test_what_can_not_be_exported_is_refused_with_the_reason(
    words: tuple[str, ...], why: str, hermes: Hermes, notes: Path
) -> None:
    assert why in hermes("plugins", "export", *words, code=1).stderr

"""The base classes of providers: settings, recall mode, tools, and the one client."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from hermes_core import Availability, Field, HermesHome, Session, ToolCall
from hermes_core.contract.provider import contract_faults
from hermes_core.kit import (
    RECALL_MODE,
    BackendProvider,
    BackendRefused,
    ProviderUnavailable,
    Settings,
    import_with,
    tool,
)
from hermes_memory_testing import driving


class Shop:
    """A client that knows whether it was closed."""

    def __init__(self, place: str) -> None:
        self.place, self.closed = place, False

    def close(self) -> None:
        self.closed = True


class Teas(BackendProvider[Shop]):
    name = "teas"
    settings = (Field("place", required=True), RECALL_MODE)
    commands = "teas_cli:COMMANDS"

    def connect(self, options: Settings) -> Shop:
        return Shop(f"{options.place} in {self.home.name}")

    @tool("teas_drink")
    def drink(self, kind: str, session: Session) -> str:
        """Drink one."""
        if kind == "mud":
            raise BackendRefused("nobody drinks that")
        return f"{kind} for {session.id}"

    @tool("teas_brew")
    def brew(self) -> str:
        """Brew one."""
        return "ready"


class Herbs(Teas):
    """Its tools are async, and it needs more than settings."""

    def availability(self, options: Settings) -> Availability:
        return Availability.no("the kettle is cold", "heat it")

    @tool("teas_brew")
    async def brew(self) -> str:  # type: ignore[override]
        """Brew one."""
        return "slowly"


def set_up(home: HermesHome, **settings: Any) -> None:
    home.path.mkdir(exist_ok=True)
    home.provider_json("teas").write_text(json.dumps(settings))


def answer(provider: Teas, name: str, **arguments: Any) -> Any:
    return json.loads(provider.handle_tool_call(ToolCall(name, arguments), Session("s1")))


def test_it_keeps_the_contract() -> None:
    assert contract_faults(Teas()) == []


def test_it_is_available_when_the_required_settings_are_set(hermes_home: HermesHome) -> None:
    assert Teas().is_available().reason == "'place' is not set"
    set_up(hermes_home, place="Uji")
    assert Teas().is_available()
    assert Herbs().is_available().remedy == "heat it"


def test_a_home_is_opened_by_a_session_and_by_a_command(hermes_home: HermesHome) -> None:
    set_up(hermes_home, place="Uji")
    provider = Teas()
    first = provider.open(hermes_home.path)
    provider.initialize(Session("s1", home=str(hermes_home.path)))
    assert first.closed
    assert (provider.client.place, provider.client.closed) == (f"Uji in {hermes_home.path.name}", False)
    second = provider.client
    provider.shutdown()
    provider.shutdown()
    assert second.closed


def test_a_client_of_an_async_sdk_is_closed_on_the_loop_of_its_calls(hermes_home: HermesHome) -> None:
    class Line:
        def __init__(self) -> None:
            self.loop, self.closed = asyncio.get_running_loop(), False

        async def close(self) -> None:
            assert asyncio.get_running_loop() is self.loop
            self.closed = True

    class Calls(BackendProvider[Line]):
        name = "calls"

        def connect(self, options: Settings) -> Line:
            return Line()

        async def initialize(self, session: Session) -> None:
            super().initialize(session)

    with driving(Calls(), hermes_home) as driven:
        first = driven.provider.client
        driven.call("initialize", session=driven.session())
        second = driven.provider.client
        assert first is not second
    assert first.closed
    assert second.closed


def test_it_says_why_it_can_not_be_opened_or_used(hermes_home: HermesHome) -> None:
    with pytest.raises(ProviderUnavailable, match="'place' is not set"):
        Teas().open(hermes_home.path)
    with pytest.raises(RuntimeError, match="Teas is used before initialize"):
        _ = Teas().client


def test_a_provider_without_connect_gets_an_error_that_says_so(hermes_home: HermesHome) -> None:
    class Empty(BackendProvider[Shop]):
        name = "empty"

    with pytest.raises(NotImplementedError, match="Empty has no connect"):
        Empty().open(hermes_home.path)


@pytest.mark.parametrize(
    ("mode", "recalls", "names"),
    [
        ("hybrid", True, ["teas_drink", "teas_brew"]),
        ("context", True, []),
        ("tools", False, ["teas_drink", "teas_brew"]),
    ],
)
def test_the_recall_mode_decides_on_recall_and_tools(
    hermes_home: HermesHome, mode: str, recalls: bool, names: list[str]
) -> None:
    set_up(hermes_home, place="Uji", recall_mode=mode)
    provider = Teas()
    assert provider.recalls is recalls
    assert [schema["name"] for schema in provider.get_tool_schemas()] == names


def test_settings_are_those_of_the_home_that_was_opened(hermes_home: HermesHome, tmp_path: Path) -> None:
    set_up(hermes_home, place="Uji", recall_mode="context")
    other = HermesHome(tmp_path / "other")
    set_up(other, place="Assam")
    provider = Teas()
    assert provider.options.place == "Uji"
    provider.open(other.path)
    assert (provider.options.place, provider.mode) == ("Assam", "hybrid")


def test_a_refusal_of_the_backend_is_a_json_error(hermes_home: HermesHome) -> None:
    set_up(hermes_home, place="Uji")
    provider = Teas()
    assert answer(provider, "teas_drink", kind="oolong") == {"result": "oolong for s1"}
    assert answer(provider, "teas_drink", kind="mud") == {"error": "nobody drinks that"}
    assert answer(provider, "teas_drink", kind=" ") == {"error": "kind is empty; send some text"}


def test_commands_are_imported_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider, group = Teas(), click.Group("teas")
    with pytest.raises(ModuleNotFoundError, match="teas_cli"):
        provider.register_cli(group)
    (tmp_path / "teas_cli.py").write_text("import click\nCOMMANDS = (click.Command('pour'),)\n")
    monkeypatch.syspath_prepend(tmp_path)
    provider.register_cli(group)
    assert list(group.commands) == ["pour"]
    assert group.make_context("teas", ["pour"]).obj is provider


def test_tools_may_be_coroutines(hermes_home: HermesHome) -> None:
    set_up(hermes_home, place="Uji")
    told = asyncio.run(Herbs().handle_tool_call(ToolCall("teas_brew", {}), Session("s1")))
    assert json.loads(told) == {"result": "slowly"}


NOSY = """
import os
seen = os.environ.get("NOSY_TELEMETRY"), os.environ.get("NOSY_FOLDER")
if seen[1] == "broken":
    raise ImportError("can't use the folder")
"""


@pytest.fixture(autouse=True)
def nosy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that looks at two variables when it is imported; one of them is set."""
    (tmp_path / "nosy_package.py").write_text(NOSY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NOSY_TELEMETRY", "on")
    monkeypatch.delenv("NOSY_FOLDER", raising=False)
    yield
    sys.modules.pop("nosy_package", None)


def environment() -> tuple[str | None, str | None]:
    return os.environ.get("NOSY_TELEMETRY"), os.environ.get("NOSY_FOLDER")


def test_the_package_sees_the_variables_and_nobody_afterwards() -> None:
    module = import_with("nosy_package", {"NOSY_TELEMETRY": "off", "NOSY_FOLDER": "here"})
    assert module.seen == ("off", "here")
    assert environment() == ("on", None)


def test_a_module_that_is_imported_already_is_returned_unchanged() -> None:
    first = import_with("nosy_package", {"NOSY_FOLDER": "here"})
    assert import_with("nosy_package", {"NOSY_FOLDER": "there"}) is first
    assert first.seen == ("on", "here")


def test_after_an_import_that_fails_the_environment_is_as_before() -> None:
    with pytest.raises(ImportError, match="can't use the folder"):
        import_with("nosy_package", {"NOSY_TELEMETRY": "off", "NOSY_FOLDER": "broken"})
    assert environment() == ("on", None)

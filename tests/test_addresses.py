"""An address may hold a password or a token; nowhere is it shown."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hermes_core import HermesHome
from hermes_core.cli import main
from hermes_core.config import set_value
from hermes_core.contract.values import Field
from hermes_core.errors import BackendUnavailable, ConfigError, ModelUnavailable
from hermes_core.health.finding import Finding
from hermes_core.kit import load_settings
from hermes_core.kit.http import Api, error_detail
from hermes_memory_agent import ModelSettings, OpenAIModel
from hermes_memory_agent.cancel import Cancel
from hermes_memory_agent.connection import error_text

SECRET = "hunter22"
ADDRESS = f"http://ann:{SECRET}@127.0.0.1:9/v1"
WITH_TOKEN = f"http://127.0.0.1:9/v1?api_key={SECRET}"
KEY = "sk-proj-abcdefghij0123456789abcd"

PROVIDER = f"""
from hermes_core import Field, MemoryProvider
from hermes_core.errors import ConfigError
from hermes_core.kit import load_settings
from hermes_core.kit.cli import command_home

class Notes(MemoryProvider):
    name = "notes"
    settings = (Field("url", help="Where.", identity=True), Field("key", secret=True))

    def prefetch(self, query):
        return ""

    def check(self, session):
        raise ConfigError("no answer from {ADDRESS}")

    def register_cli(self, group):
        from hermes_core.kit.cli import print_facts
        import click

        @group.command()
        def where():
            print_facts({{"url": load_settings(Notes.settings, command_home(click.get_current_context()).path, "notes").url}}, False)
"""


UNAVAILABLE = f"""
from hermes_core import Availability, MemoryProvider

class Notes(MemoryProvider):
    name = "notes"

    def is_available(self):
        return Availability.no("no server answers", "start {ADDRESS}")

    def prefetch(self, query):
        return ""
"""


@pytest.fixture(params=[ADDRESS, WITH_TOKEN], ids=["password", "token"])
def home(request: pytest.FixtureRequest, hermes_home: HermesHome) -> HermesHome:
    """A home whose model and provider stand behind such an address."""
    folder = hermes_home.plugins / "notes"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PROVIDER)
    (hermes_home.path / "notes.json").write_text(json.dumps({"url": request.param}))
    for key, value in {
        "model.base_url": request.param,
        "model.name": "any",
        "model.retries": 0,
        "memory.provider": "notes",
    }.items():
        set_value(hermes_home, key, value)
    return hermes_home


@pytest.mark.parametrize(
    "words",
    [
        ["config", "list"],
        ["config", "list", "--json"],
        ["config", "get", "model.base_url"],
        ["config", "set", "model.base_url", ADDRESS],
        ["memory", "status"],
        ["memory", "status", "--json"],
        ["notes", "where"],
        ["--debug", "chat", "-m", "hello"],
        ["--debug", "chat", "-m", "hello", "--json"],
        ["doctor"],
        ["doctor", "--json"],
    ],
    ids=" ".join,
)
def test_no_command_shows_it(home: HermesHome, words: list[str]) -> None:
    result = CliRunner().invoke(main, words, prog_name="hermes-memory")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert SECRET not in result.stdout + result.stderr
    assert "[redacted:" in result.stdout + result.stderr
    assert not home.log_file.exists() or SECRET not in home.log_file.read_text()


def test_setup_asks_without_showing_the_present_one(home: HermesHome) -> None:
    result = CliRunner().invoke(main, ["memory", "setup", "notes"], input="\n" * 9, prog_name="hermes-memory")
    assert SECRET not in result.stdout + result.stderr
    assert "[redacted:" in result.stdout
    assert SECRET in (home.path / "notes.json").read_text()


def test_no_remedy_shows_it(hermes_home: HermesHome) -> None:
    remedy = f"start {ADDRESS}"
    assert SECRET not in Finding("provider", "failed", "", remedy).remedy
    folder = hermes_home.plugins / "notes"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(UNAVAILABLE)
    set_value(hermes_home, "memory.provider", "notes")
    for asked in (["memory", "status", "--json"], ["providers", "--json"], ["doctor", "--json"]):
        result = CliRunner().invoke(main, asked, prog_name="hermes-memory")
        assert SECRET not in result.output
        assert "start http://ann:[redacted:password]@" in result.output


def test_no_error_of_ours_names_an_address_with_it(home: HermesHome) -> None:
    settings = ModelSettings(base_url=ADDRESS, name="any", retries=0)
    assert SECRET not in repr(settings)
    model = OpenAIModel(settings)
    with pytest.raises(ModelUnavailable) as unreached:
        model.complete([{"role": "user", "content": "hello"}], (), on_text=print, cancel=Cancel())
    assert SECRET not in str(unreached.value)
    with pytest.raises(ConfigError, match=r"redacted:password\]@.* is no address") as wrong:
        Api(ADDRESS.replace("http", "ftp"), name="Notes")
    assert SECRET not in str(wrong.value)
    with Api(ADDRESS, name="Notes") as api, pytest.raises(BackendUnavailable, match="redacted"):
        api.get("/x")


def test_what_a_provider_says_of_itself_is_shown_without_it(hermes_home: HermesHome) -> None:
    assert SECRET not in Finding("provider", "ok", f"{ADDRESS}, version 1").detail
    fields = (Field("url"), Field("other", secret=True))
    (hermes_home.path).mkdir(exist_ok=True)
    (hermes_home.path / "notes.json").write_text(json.dumps({"url": ADDRESS}))
    assert SECRET not in repr(load_settings(fields, hermes_home.path, "notes"))


def test_a_key_at_the_cut_of_a_long_text_is_not_left_in_half() -> None:
    for length in (295, 495):
        text = "." * (length - 12) + f" {KEY} refused"
        assert KEY[:10] not in error_text(text) + error_detail(text)

from __future__ import annotations

import stat
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from hermes_core.config import Credentials, load_config
from hermes_core.home import HermesHome
from hermes_memory_agent.cli.first_model import ask_for_model
from hermes_memory_testing.http_server import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as server:
        server.route("GET", "/v1/models", lambda request: {"data": [{"id": "small"}, {"id": "large"}]})
        yield server


def ask(home: HermesHome, *answers: str) -> Result:
    @click.command()
    def command() -> None:
        ask_for_model(home)

    return CliRunner().invoke(command, input="\n".join(answers) + "\n", catch_exceptions=False)


def test_a_first_chat_asks_for_server_and_model(hermes_home: HermesHome, server: StandIn) -> None:
    result = ask(hermes_home, f"{server.url}/v1", "large")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "  small\n  large\n" in result.stderr
    model = load_config(hermes_home).model
    assert (model.base_url, model.name) == (f"{server.url}/v1", "large")
    assert ask(hermes_home).output == "", "nothing is asked where a model is set"


def test_the_one_model_of_a_server_needs_no_typing(hermes_home: HermesHome, server: StandIn) -> None:
    server.route("GET", "/v1/models", lambda request: {"data": [{"id": "small"}]})
    ask(hermes_home, f"{server.url}/v1", "")
    assert load_config(hermes_home).model.name == "small"


def test_a_key_is_asked_for_where_the_server_wants_one(
    hermes_home: HermesHome, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.route(
        "GET",
        "/v1/models",
        lambda request: (
            {"data": [{"id": "small"}]}
            if request.headers["authorization"] == "Bearer sk-right"
            else (401, {"error": {"message": "no key"}})
        ),
    )
    result = ask(hermes_home, f"{server.url}/v1", "sk-right", "small")
    assert "Key of the server" in result.stderr
    assert "sk-right" not in result.output
    assert Credentials(hermes_home).get("OPENAI_API_KEY") == "sk-right"
    assert stat.S_IMODE(hermes_home.env_file.stat().st_mode) == 0o600


def test_an_address_without_a_server_is_asked_for_again(hermes_home: HermesHome, server: StandIn) -> None:
    with StandIn() as other:
        nothing = f"{other.url}/v1"
    result = ask(hermes_home, "localhost", nothing, "y", f"{server.url}/v1", "small")
    assert "warning: the model's base_url is 'localhost'" in result.stderr
    assert f"the connection to '{nothing}' failed" in result.stderr
    assert load_config(hermes_home).model.base_url == f"{server.url}/v1"


def test_a_server_without_a_list_is_taken_at_its_word(hermes_home: HermesHome, server: StandIn) -> None:
    server.fail("GET", "/v1/models", status=404)
    ask(hermes_home, f"{server.url}/v1", "n", "small")
    assert load_config(hermes_home).model.name == "small"


@pytest.mark.parametrize("answers", [(), ("URL",)])
def test_nothing_is_written_before_the_last_answer(
    hermes_home: HermesHome, server: StandIn, answers: tuple[str, ...]
) -> None:
    result = ask(hermes_home, *(f"{server.url}/v1" for _ in answers))
    assert (result.exit_code, "nothing was changed" in result.stderr) == (1, True)
    assert not hermes_home.config_yaml.exists()

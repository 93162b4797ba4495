"""What this provider does: its tools, its commands{% if cookiecutter.kind != "local" %}, and what it makes of the service's errors{% endif %}."""

from __future__ import annotations

import json
from collections.abc import Iterator
{%- if cookiecutter.kind != "http" %}
from pathlib import Path
{%- endif %}

import pytest
from click.testing import CliRunner
from hermes_core import HermesHome, Memory, Session{% if cookiecutter.kind != "local" %}, open_memory{% endif %}
from hermes_core.cli import main
{%- if cookiecutter.kind != "local" %}
from hermes_core.kit import BackendAuthError, BackendRefused, BackendUnavailable
{%- endif %}

from {{ cookiecutter.__package }} import {{ cookiecutter.__class }}
from {{ cookiecutter.__package }}.client import Client, Note
{%- if cookiecutter.kind == "http" %}
from stand_in import KEY, StandIn
{%- endif %}

KEY_HANGS = "The boathouse key hangs behind the door."


@pytest.fixture
def client({% if cookiecutter.kind == "http" %}service: StandIn{% else %}tmp_path: Path{% endif %}) -> Iterator[Client]:
    """The client alone."""
{%- if cookiecutter.kind == "local" %}
    opened = Client(tmp_path / "notes.db")
{%- elif cookiecutter.kind == "http" %}
    opened = Client(service.url, KEY, 5.0)
{%- else %}
    opened = Client("example-key", "default", tmp_path)
{%- endif %}
    yield opened
    opened.close()


def test_what_a_person_says_is_recalled_in_a_later_session(memory: Memory) -> None:
    memory.end_turn(memory.start_session(), KEY_HANGS, "Noted.")
    assert memory.flush()
    recalled = memory.begin_turn(memory.start_session(), "Where does the boathouse key hang?")
    assert recalled.problems == ()
    assert KEY_HANGS in recalled.context


def test_the_model_keeps_a_fact_and_finds_it(memory: Memory) -> None:
    session = memory.start_session()
    memory.call_tool(session, "{{ cookiecutter.__prefix }}_remember", {"fact": KEY_HANGS})
    memory.call_tool(session, "{{ cookiecutter.__prefix }}_remember", {"fact": KEY_HANGS})
    asked = {"query": "the boathouse key"}
    answer = memory.call_tool(session, "{{ cookiecutter.__prefix }}_search", asked)
    assert [found["text"] for found in json.loads(answer)["results"]] == [KEY_HANGS]


def test_the_check_of_a_provider_that_works_passes(home: HermesHome) -> None:
    provider = {{ cookiecutter.__class }}()
    session = Session("s1", home=str(home.path))
    provider.initialize(session)
    checks = provider.check(session)
    provider.shutdown()
    assert [check.ok for check in checks] == [True]


def test_what_a_person_says_in_one_chat_is_recalled_in_another(memory: Memory) -> None:
    said = memory.start_session(platform="irc", user_id="ada", chat_id="tea")
    memory.end_turn(said, KEY_HANGS, "Noted.")
    assert memory.flush()
    asks = memory.start_session(platform="irc", user_id="ada", chat_id="boats")
    assert KEY_HANGS in memory.begin_turn(asks, "Where does the boathouse key hang?").context


def test_a_note_is_found_by_its_words_replaced_by_its_key_and_forgotten(client: Client) -> None:
    client.put(Note("k1", "mel", KEY_HANGS, 1.0))
    client.put(Note("k1", "mel", "The boathouse was sold.", 2.0))
    client.put(Note("k2", "bob", "The boathouse has a roof.", 3.0))
    assert [note.key for note in client.search("Who owns the boathouse?", "mel", 5)] == ["k1"]
    assert len(client.search("boathouse", None, 5)) == 2
    assert len(client.search("boathouse", None, 1)) == 1
    assert client.search("anything else", None, 5) == []
    client.forget("k1")
    client.forget("k1")
    assert client.search("boathouse", "mel", 5) == []


def test_the_command_finds_notes(home: HermesHome, memory: Memory) -> None:
    session = memory.start_session()
    memory.call_tool(session, "{{ cookiecutter.__prefix }}_remember", {"fact": KEY_HANGS})
    home.config_yaml.write_text("memory:\n  provider: {{ cookiecutter.name }}\n", encoding="utf-8")
    words = ["--home", str(home.path), "{{ cookiecutter.name }}", "search", "boathouse"]
    assert CliRunner().invoke(main, words).output == f"{KEY_HANGS}\n"
    assert json.loads(CliRunner().invoke(main, [*words, "--json"]).output)[0]["text"] == KEY_HANGS
{%- if cookiecutter.kind != "local" %}


def test_without_a_key_it_says_which_one_is_missing(home: HermesHome) -> None:
    home.env_file.unlink()
    with open_memory(home, provider="{{ cookiecutter.name }}") as memory:
        assert "{{ cookiecutter.__key }}" in memory.problems()[0]
{%- endif %}
{%- if cookiecutter.kind == "http" %}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, BackendAuthError),
        (403, BackendAuthError),
        (429, BackendUnavailable),
        (503, BackendUnavailable),
        (400, BackendRefused),
    ],
)
def test_each_refusal_of_the_service_has_its_error(
    service: StandIn, client: Client, status: int, error: type[Exception]
) -> None:
    service.fault = status
    with pytest.raises(error):
        client.search("boathouse", None, 5)


def test_a_service_that_is_not_there_is_unavailable() -> None:
    client = Client("http://127.0.0.1:9", KEY, 1.0)
    with pytest.raises(BackendUnavailable):
        client.search("boathouse", None, 5)
    client.close()


def test_a_turn_waits_for_the_service_and_is_kept_when_it_is_back(service: StandIn, memory: Memory) -> None:
    session = memory.start_session()
    service.fault = 503
    memory.end_turn(session, KEY_HANGS, "Noted.")
    assert not memory.flush(0.2)
    service.fault = 0
    assert memory.flush(20)
    assert [note["text"] for note in service.notes.values()] == [KEY_HANGS]
{%- elif cookiecutter.kind == "sdk" %}


def test_a_wrong_key_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(BackendAuthError):
        Client("short", "default", tmp_path)


def test_a_request_that_the_service_refuses_is_told_as_one(client: Client) -> None:
    with pytest.raises(BackendRefused):
        client.put(Note("k1", "mel", "long " * 10_000))


def test_a_service_that_fails_is_unavailable(tmp_path: Path) -> None:
    client = Client("example-key", "default", tmp_path / "not-there")
    with pytest.raises(BackendUnavailable):
        client.put(Note("k1", "mel", KEY_HANGS))
{%- endif %}

"""Whose bank it is, and what the settings make of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hermes_hindsight import HindsightProvider
from hermes_hindsight.settings import SETTINGS, bank_of

from hermes_core import Session
from hermes_core.kit import ConfigError, ProviderUnavailable, load_settings
from plugins.hindsight.tests.conftest import Agent
from plugins.hindsight.tests.stand_in import HindsightServer


def read_settings(home: Path, **values: Any) -> Any:
    (home / "hindsight.json").write_text(json.dumps({"mode": "local_external", **values}))
    return load_settings(SETTINGS, home, "hindsight", {})


@pytest.mark.parametrize(
    ("session", "bank"),
    [
        (Session("s"), "hermes"),
        (Session("s", platform="mcp"), "hermes"),
        (Session("s", identity="coder"), "hermes-coder"),
        (Session("s", platform="telegram", user_id="42"), "hermes-telegram-42-318da146c455727a"),
        (Session("s", platform="slack", chat_id="C 7"), "hermes-slack-C-7-1b995532ecfa6ddb"),
    ],
)
def test_each_profile_and_each_user_has_a_bank(tmp_path: Path, session: Session, bank: str) -> None:
    assert bank_of(read_settings(tmp_path), session) == bank


def test_users_whose_names_look_alike_have_different_banks(tmp_path: Path) -> None:
    options = read_settings(tmp_path)
    names = ["a@b", "a-b", "a b", "東京", "京都", "x" * 300, "x" * 301]
    banks = {bank_of(options, Session("s", platform="matrix", user_id=name)) for name in names}
    assert len(banks) == len(names)
    assert all(len(bank) <= 192 for bank in banks)


def test_users_whose_names_look_alike_have_different_banks_by_a_template_too(tmp_path: Path) -> None:
    options = read_settings(tmp_path, bank_id_template="hermes-{user}")
    names = ["ada", "ada_", "@ada:x.org", "@ada-:x.org", "ada-x-org", "東京", "京都", "_"]
    banks = {
        *(bank_of(options, Session("s", platform="matrix", user_id=name)) for name in names),
        *(
            bank_of(options, Session("s", platform="matrix", chat_id=chat))
            for chat in ("the room", "ada", "_")
        ),
        bank_of(options, Session("s")),
    }
    assert len(banks) == len(names) + 4
    assert {"hermes", "hermes-ada", "hermes-ada-x-org"} <= banks
    for bank in banks - {"hermes", "hermes-ada", "hermes-ada-x-org"}:
        forged = Session("s", platform="matrix", user_id=bank.removeprefix("hermes-"))
        assert bank_of(options, forged) not in banks
    assert bank_of(options, Session("s", platform="telegram", user_id="12345678")) == "hermes-12345678"
    assert bank_of(options, Session("s", platform="signal", user_id="+4912345")) == "hermes-4912345"


@pytest.mark.parametrize(
    ("settings", "bank"),
    [
        ({"bank_id": "team"}, "team"),
        ({"bank_id": "team", "bank_id_template": "{profile}-{platform}--{user}"}, "coder-telegram-42"),
        ({"bank_id_template": "hermes_{workspace}_{session}"}, "hermes_w_s"),
        ({"bank_id": "team", "bank_id_template": "{unknown}"}, "team"),
    ],
)
def test_a_bank_that_is_set_wins(tmp_path: Path, settings: dict[str, str], bank: str) -> None:
    session = Session("s", identity="coder", workspace="w", platform="telegram", user_id="42")
    assert bank_of(read_settings(tmp_path, **settings), session) == bank


def test_mission_and_dispositions_are_given_to_each_bank_once(
    start: Callable[..., Agent], server: HindsightServer
) -> None:
    agent = start(bank_mission="Be brief.", bank_retain_mission="Keep names.", disposition_empathy=5)
    agent.recall("Where is it?")
    assert server.banks == {}
    for turn in ("t1", "t2"):
        agent.say("Remark.", turn)
    agent.say("Remark.", "t3", agent.session("s3", platform="telegram", user_id="ada"))
    config = {"reflect_mission": "Be brief.", "retain_mission": "Keep names.", "disposition_empathy": 5}
    assert [bank.config for bank in server.banks.values()] == [config, config]
    assert len(server.bodies("/config")) == 2


def test_the_file_of_hermes_agent_is_read(tmp_path: Path) -> None:
    older = tmp_path / "hindsight" / "config.json"
    older.parent.mkdir()
    data = {
        "mode": "local",
        "banks": {"hermes": {"bankId": "mine", "budget": "low", "enabled": True}},
        "recall_types": ["observation"],
        "observation_scopes": [["home"], ["work", "team"]],
        "timeout": 120,
    }
    older.write_text(json.dumps(data))
    options = load_settings(SETTINGS, tmp_path, "hindsight", {})
    assert (options.mode, options.bank_id, options.recall_budget) == ("local", "mine", "low")
    assert (options.recall_types, options.timeout, options.warnings) == ("observation", 120.0, ())
    assert options.observation_scopes == '[["home"], ["work", "team"]]'


@pytest.mark.parametrize("scopes", ["per-tag", "a, b", "[1, 2]", "{}"])
def test_scopes_that_are_none_are_told_at_the_start(start: Callable[..., Agent], scopes: str) -> None:
    with pytest.raises(ConfigError, match="'observation_scopes' is"):
        start(observation_scopes=scopes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "cloud"}, "'api_key' is not set; set HINDSIGHT_API_KEY in .env, or mode to local_external"),
        (
            {"mode": "local_embedded"},
            "hindsight-embed is not installed; hermes-memory memory setup hindsight",
        ),
    ],
)
def test_what_is_missing_is_said_without_a_look_at_the_network(
    start: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], said: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("HINDSIGHT_API_KEY", raising=False)
    with pytest.raises(ProviderUnavailable, match=said):
        start(**settings)
    answer = HindsightProvider().is_available()
    assert said.split(";")[0] in f"{answer.reason}"


def test_the_self_test_writes_recalls_and_deletes(agent: Agent, server: HindsightServer) -> None:
    checks = agent.run(agent.provider.check(agent.session()))
    assert [(check.name, check.ok) for check in checks] == [
        ("write", True),
        ("recall", True),
        ("delete", True),
        ("extraction", True),
    ]
    assert server.texts("hermes") == {}


def test_the_self_test_tells_of_writes_that_the_server_lost(agent: Agent, server: HindsightServer) -> None:
    server.fail_extraction = True
    agent.say("Remark 1.")
    *_, last = agent.run(agent.provider.check(agent.session()))
    assert (last.ok, last.detail) == (False, "1 operation failed on the server")
    assert last.remedy == "hermes-memory hindsight operations --retry"

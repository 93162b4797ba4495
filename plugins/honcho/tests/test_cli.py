"""`hermes-memory honcho ...`, as a person types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core import HermesHome
from hermes_core.cli import main
from plugins.honcho.tests.conftest import Agent
from plugins.honcho.tests.stand_in import KEY, HonchoServer

Run = Callable[..., Result]


@pytest.fixture
def run(home: HermesHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Type a command of the provider in a folder of the test's own."""
    home.config_yaml.write_text("memory:\n  provider: honcho\n")
    folder = tmp_path / "boat"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def typed(*words: str, profile: str = "") -> Result:
        where = ["--home", str(home.path), *(["--profile", profile] if profile else [])]
        return CliRunner().invoke(main, [*where, "honcho", *words])

    return typed


def settings(home: HermesHome) -> Any:
    return json.loads(home.provider_json("honcho").read_text())


def test_status_tells_where_who_and_how(run: Run, server: HonchoServer) -> None:
    told = json.loads(run("status", "--json").output)
    assert told["address"] == server.url
    assert (told["workspace"], told["you"], told["agent"]) == ("hermes", "user", "hermes")
    assert told["observation"]["ai"] == {"me": True, "others": True}
    assert (told["waiting turns"], told["pending at Honcho"], told["server"]) == (0, 0, "answers")
    assert "session here: one for each conversation" in run("status").output


def test_status_of_the_memory_counts_turns_that_wait_for_their_batch(
    run: Run, start: Callable[..., Agent], home: HermesHome
) -> None:
    start(writeFrequency="5").say("Remark 1")
    assert json.loads(run("status", "--json").output)["waiting turns"] == 1
    told = CliRunner().invoke(main, ["--home", str(home.path), "memory", "status", "--json"])
    assert json.loads(told.stdout)["outbox"]["waiting"] == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "sent after each turn"),
        ({"writeFrequency": 4}, "sent after 4 turns"),
        ({"writeFrequency": "session"}, "sent when a session ends"),
        ({"saveMessages": False}, "not sent"),
    ],
)
def test_status_tells_when_messages_are_sent(
    run: Run, home: HermesHome, given: dict[str, Any], says: str
) -> None:
    home.provider_json("honcho").write_text(json.dumps({**settings(home), **given}))
    assert f"messages: {says}\n" in run("status").output


def test_status_says_why_the_server_does_not_answer(run: Run, server: HonchoServer) -> None:
    server.fail(status=503)
    result = run("status")
    assert result.exit_code == 1
    assert "answered 503" in result.output
    assert "workspace: hermes" in result.output
    assert KEY not in result.output


def test_sessions_and_peers_are_listed(run: Run, agent: Agent) -> None:
    assert run("sessions").stderr == "Nothing was found.\n"
    agent.say("Hello.")
    assert run("sessions").output.startswith("s1  2")
    assert run("peers").output == "user  you\nhermes  the agent\n"
    assert json.loads(run("peers", "--json").output)[0] == {"peer": "user", "is": "you"}


def test_settings_are_shown_and_changed(run: Run, home: HermesHome) -> None:
    assert run("mode").output == "hybrid\n"
    assert run("mode", "tools").output == "tools\n"
    assert run("strategy", "per-repo").output == "per-repo\n"
    assert run("tokens").output == "context (tokens): the host's budget\ndialectic (characters): 600\n"
    assert "800" in run("tokens", "--context", "800", "--dialectic", "300").output
    assert run("peer", "--user", "mel", "--ai", "skipper", "--reasoning", "high").output == (
        "you: mel\nagent: skipper\nreasoning: high\n"
    )
    kept = settings(home)
    kept.pop("baseUrl")
    assert kept == {
        "recallMode": "tools",
        "sessionStrategy": "per-repo",
        "contextTokens": 800,
        "dialecticMaxChars": 300,
        "peerName": "mel",
        "aiPeer": "skipper",
        "dialecticReasoningLevel": "high",
    }


@pytest.mark.parametrize(
    "words", [("mode", "all"), ("strategy", "none"), ("tokens", "--context", "3"), ("peer", "--user", "a b"), ("map", "a b")]
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_nothing_changes(
    run: Run, home: HermesHome, words: tuple[str, ...]
) -> None:
    before = settings(home)
    assert run(*words).exit_code == 2
    assert settings(home) == before


def test_a_value_goes_into_the_block_of_this_host(run: Run, home: HermesHome, server: HonchoServer) -> None:
    home.provider_json("honcho").write_text(
        json.dumps({"baseUrl": server.url, "hosts": {"hermes": {"recallMode": "hybrid"}}})
    )
    assert run("mode", "context").output == "context\n"
    assert settings(home)["hosts"] == {"hermes": {"recallMode": "context"}}


def test_a_folder_is_given_a_session_and_it_is_taken_back(run: Run, home: HermesHome) -> None:
    here = str(Path.cwd())
    assert run("map", "boats").output == f"{here}  boats\n"
    assert settings(home)["sessions"] == {here: "boats"}
    assert "session here: boats" in run("status").output
    assert run("map").output == f"{here}  boats\n"
    run("map", "--remove")
    assert "sessions" not in settings(home)


def test_honcho_is_switched_off_and_on_again(run: Run, home: HermesHome) -> None:
    run("disable")
    assert settings(home)["enabled"] is False
    assert "recall: disabled" in run("status").output
    status = CliRunner().invoke(main, ["--home", str(home.path), "memory", "status"]).output
    assert "switched off in honcho.json" in " ".join(status.split())
    run("enable")
    assert settings(home)["enabled"] is True


def test_honcho_is_told_who_the_agent_is(
    run: Run, home: HermesHome, server: HonchoServer, tmp_path: Path
) -> None:
    assert "there is no file" in run("identity").output
    home.soul_md.write_text("I am calm and brief. Token sk-ant-api03-" + "a1B2c3D4" * 6)
    assert run("identity").output == "SOUL.md was sent as 1 message of hermes\n"
    assert "sk-ant" not in server.texts()[0]
    assert "I am calm and brief." in run("identity", "--show").output
    other = tmp_path / "other.md"
    other.write_text("I like boats.")
    assert run("identity", str(other)).exit_code == 0
    assert server.texts()[1] == "I like boats."


def test_what_the_home_remembers_is_handed_over_once(
    run: Run, home: HermesHome, server: HonchoServer
) -> None:
    home.memories.mkdir()
    home.memory_md.write_text("Runs Debian\n§\nUses uv")
    home.user_md.write_text("Likes tea")
    assert run("migrate").output == "3 of 3 new\n"
    assert run("migrate").output == "0 of 3 new\n"
    assert server.concluded() == ["Likes tea", "Runs Debian", "Uses uv"]


def test_profiles_are_given_what_they_lack_but_no_account(run: Run, home: HermesHome) -> None:
    for name, own in (("work", {"recallMode": "tools"}), ("play", None)):
        place = HermesHome.resolve(home.path, name)
        place.path.mkdir(parents=True)
        if own:
            place.provider_json("honcho").write_text(json.dumps(own))
    run("mode", "context")
    run("peer", "--user", "mel")
    run("tokens", "--context", "700")
    assert run("sync").output == "play: took recallMode, contextTokens\nwork: took contextTokens\n"
    assert settings(HermesHome.resolve(home.path, "work")) == {"recallMode": "tools", "contextTokens": 700}
    assert run("sync").output == "play: lacked nothing\nwork: lacked nothing\n"


def test_settings_that_other_programs_share_are_taken_over(
    run: Run, home: HermesHome, tmp_path: Path
) -> None:
    shared = tmp_path / "config.json"
    given = {
        "apiKey": "hch-v3-shared",
        "peerName": "mel",
        "hosts": {"hermes": {"aiPeer": "skipper"}, "cursor": {"aiPeer": "c"}},
    }
    shared.write_text(json.dumps(given))
    result = run("sync", "--from", str(shared))
    assert "took peerName, aiPeer" in result.output
    assert (settings(home)["peerName"], settings(home)["aiPeer"]) == ("mel", "skipper")
    assert "hch-v3-shared" not in home.provider_json("honcho").read_text()
    assert run("sync", "--from", str(tmp_path / "nowhere.json")).exit_code == 2


def test_a_profile_takes_over_no_memory_of_another(run: Run, home: HermesHome, tmp_path: Path) -> None:
    place = HermesHome.resolve(home.path, "work")
    place.path.mkdir(parents=True)
    place.config_yaml.write_text("memory:\n  provider: honcho\n")
    shared = tmp_path / "config.json"
    given = {"recallMode": "tools", "hosts": {"hermes": {"workspace": "mels", "peerName": "mel"}}}
    shared.write_text(json.dumps(given))
    assert "took recallMode\n" in run("sync", "--from", str(shared), profile="work").output
    assert settings(place) == {"recallMode": "tools"}


def test_a_profile_has_its_own_workspace(run: Run, home: HermesHome, server: HonchoServer) -> None:
    place = HermesHome.resolve(home.path, "work")
    place.path.mkdir(parents=True)
    place.config_yaml.write_text("memory:\n  provider: honcho\n")
    place.provider_json("honcho").write_text(json.dumps({"baseUrl": server.url}))
    place.env_file.touch(mode=0o600)
    place.env_file.write_text(f"HONCHO_API_KEY={KEY}\n")
    assert "workspace: hermes_work" in run("status", profile="work").output
    assert "workspace: hermes\n" in run("status").output


def test_without_a_key_the_command_says_what_to_do(
    run: Run, home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HONCHO_API_KEY", raising=False)
    home.env_file.write_text("")
    home.provider_json("honcho").write_text("{}")
    result = run("sessions")
    assert result.exit_code != 0
    assert "HONCHO_API_KEY" in result.output

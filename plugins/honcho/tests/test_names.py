"""Names: as people have them today where that is safe, and never one for two."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hermes_honcho import names
from hermes_honcho.settings import SETTINGS
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import Session
from hermes_core.kit import Settings, load_settings

FOLDER = Path("/home/mel/code/boat")
TELEGRAM: dict[str, Any] = {"platform": "telegram", "user_id": "42"}


def options(**given: Any) -> Settings:
    return load_settings(SETTINGS, Path("/nowhere"), "honcho", {}, given, lambda _: None)


def name(session: Session, folder: Path = FOLDER, **given: Any) -> str:
    return names.session_name(options(**given), session, folder)


def who(given: dict[str, Any] | None = None, **identity: Any) -> names.Who:
    return names.who(options(**(given or {})), Session("s1", **identity))


@given(st.text(max_size=600))
def test_every_text_becomes_a_name_that_honcho_takes(text: str) -> None:
    assert names._FOREIGN.search(names.clean(text)) is None
    assert 1 <= len(names.clean(text)) <= names.MAX_NAME_CHARS


@given(st.lists(st.text(alphabet="ab:-_.é ", max_size=8), min_size=2, max_size=12, unique=True))
def test_two_texts_never_become_one_name(texts: list[str]) -> None:
    assert len({names.clean(text) for text in texts}) == len(texts)


def test_a_name_can_not_be_chosen_to_be_taken_for_another() -> None:
    assert names.clean(names.clean("irc:bob[")) != names.clean("irc:bob[")


def test_each_profile_has_a_workspace_of_its_own() -> None:
    assert names.workspace(options(), "default") == "hermes"
    assert names.workspace(options(), "work") == "hermes_work"
    assert names.workspace(options(workspace="team"), "work") == "team"


def test_the_person_of_the_home_is_user_and_the_agent_is_named_as_the_workspace() -> None:
    assert who() == names.Who("user", "hermes")
    assert who(identity="work") == names.Who("user", "hermes_work")
    assert who({"peerName": "mel", "aiPeer": "mel"}) == names.Who("mel", "mel-ai")


def test_users_of_a_gateway_are_told_apart_by_platform() -> None:
    assert who(**TELEGRAM) == names.Who("telegram-42", "hermes", owner=False)
    assert who(platform="discord", user_id="42").user == "discord-42"
    assert who(platform="telegram", chat_id="7").user.startswith("telegram-chat-7-")


@pytest.mark.parametrize("given", [{}, {"runtimePeerPrefix": ""}])
def test_no_user_is_taken_for_a_chat_that_names_none(given: dict[str, Any]) -> None:
    chat = who(given, platform="matrix", chat_id="7")
    for user in ("7", "chat:7", chat.user, f"chat:{chat.user}"):
        assert who(given, platform="matrix", user_id=user).user != chat.user


@pytest.mark.parametrize(
    ("given", "peer"),
    [
        ({"pinUserPeer": True, "peerName": "mel"}, names.Who("mel", "hermes")),
        ({"userPeerAliases": {"42": "mel"}, "peerName": "mel"}, names.Who("mel", "hermes")),
        ({"userPeerAliases": {"telegram:42": "ada"}}, names.Who("ada", "hermes", owner=False)),
        ({"runtimePeerPrefix": ""}, names.Who("42", "hermes", owner=False)),
        ({"runtimePeerPrefix": "tg_"}, names.Who("tg_42", "hermes", owner=False)),
    ],
)
def test_settings_say_who_a_user_of_a_gateway_is(given: dict[str, Any], peer: names.Who) -> None:
    assert who(given, **TELEGRAM) == peer


def test_a_platform_with_a_dash_shares_no_peer_with_another() -> None:
    assert who(platform="whatsapp", user_id="cloud-5").user == "whatsapp-cloud-5"
    assert who(platform="whatsapp-cloud", user_id="5").user not in ("whatsapp-cloud-5", "")


@pytest.mark.parametrize("taken", ["user", "hermes", "mel"])
def test_a_user_whose_id_is_the_name_of_somebody_else_is_not_taken_for_them(taken: str) -> None:
    stranger = who({"runtimePeerPrefix": "", "userPeerAliases": {"1": "mel"}}, platform="irc", user_id=taken)
    assert stranger.user != taken
    assert not stranger.owner


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("per-session", "s1"), ("per-directory", "boat"), ("per-repo", "boat"), ("global", "hermes")],
)
def test_the_strategy_says_what_shares_a_session(strategy: str, expected: str) -> None:
    assert name(Session("s1"), sessionStrategy=strategy) == expected


def test_a_repository_is_one_session_from_every_folder_in_it(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    inside = tmp_path / "repo" / "src" / "deep"
    inside.mkdir(parents=True)
    assert name(Session("s1"), inside, sessionStrategy="per-repo") == "repo"
    assert name(Session("s1"), inside, sessionStrategy="per-directory") == "deep"


def test_a_folder_may_have_a_name_of_its_own_and_a_gateway_chat_comes_first() -> None:
    chat = Session("s1", gateway_session_key="agent:main:telegram:dm:42", **TELEGRAM)
    assert name(Session("s1"), sessions={str(FOLDER): "boats"}) == "boats"
    assert name(chat, sessions={str(FOLDER): "boats"}).startswith("agent-main-telegram-dm-42-")


def test_a_name_may_begin_with_the_persons() -> None:
    assert name(Session("s1"), sessionPeerPrefix=True, peerName="mel") == "mel-s1"


@pytest.mark.parametrize("strategy", ["per-directory", "per-repo", "global"])
def test_users_of_a_gateway_share_no_session_in_any_strategy(strategy: str) -> None:
    people = [
        Session("s1"),
        Session("s2", **TELEGRAM),
        Session("s3", platform="telegram", user_id="43"),
        Session("s4", platform="discord", user_id="42"),
    ]
    for one, other in combinations(people, 2):
        assert name(one, sessionStrategy=strategy) != name(other, sessionStrategy=strategy)
        assert name(one, sessions={str(FOLDER): "boats"}) != name(other, sessions={str(FOLDER): "boats"})


def test_what_hangs_on_the_folder_is_told_apart() -> None:
    assert not names.by_folder(options())
    assert not names.by_folder(options(sessionStrategy="global"))
    assert names.by_folder(options(sessionStrategy="per-repo"))
    assert names.by_folder(options(sessions={"/a": "b"}))


def test_a_name_with_half_a_character_is_a_name_of_its_own() -> None:
    texts = ("half \ud83d", "half \ud83e", "half ?", "half \0", "half \0\0")
    cleaned = {names.clean(text) for text in texts}
    assert len(cleaned) == len(texts)
    assert all(re.fullmatch("half-[0-9a-f]{8}", name) for name in cleaned)

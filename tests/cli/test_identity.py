"""`hermes-memory identity`, and how status, doctor and setup speak of a home that names no owner."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_core.config import load_config, set_value
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory

ANN = {"platform": "telegram", "user_id": "42"}
ADVICE = "hermes-memory identity add telegram:123"


def store_turn(home: HermesHome, session_id: str, **who: str) -> None:
    with open_memory(home, provider="") as memory:
        memory.end_turn(memory.start_session(session_id, **who), "My word is WALRUS.", "Noted.")


def test_an_id_is_added_listed_and_removed(hermes: Any, data: Any, hermes_home: HermesHome) -> None:
    store_turn(hermes_home, "s1", **ANN)
    store_turn(hermes_home, "s2", platform="telegram", user_id="43")
    assert data("identity", "list") == [
        {"id": "telegram:42", "is_owner": False},
        {"id": "telegram:43", "is_owner": False},
    ]
    assert "1 session stored under it" in hermes("identity", "add", "telegram:42").stdout
    assert load_config(hermes_home).identity.owners == ("telegram:42",)
    assert data("identity", "list") == [
        {"id": "telegram:42", "is_owner": True},
        {"id": "telegram:43", "is_owner": False},
    ]
    assert "telegram:42  the person at home" in hermes("identity", "list").stdout
    hermes("identity", "add", "telegram:42")
    hermes("identity", "add", "irc/gateway_session_key=%23tea")
    assert load_config(hermes_home).identity.owners == ("telegram:42", "irc/gateway_session_key=%23tea")
    hermes("identity", "remove", "telegram:42")
    assert load_config(hermes_home).identity.owners == ("irc/gateway_session_key=%23tea",)
    assert (
        "'telegram:42' is not listed; listed are irc/"
        in hermes("identity", "remove", "telegram:42", code=1).stderr
    )
    with open_memory(hermes_home, provider="") as memory:
        again = memory.start_session("s1", **ANN)
        assert (again.owner, again.id) == ("telegram:42", "s1@telegram%3A42"), (
            "what was given stays the home's"
        )


@pytest.mark.parametrize("text", ["42", "telegram:", "telegram", "cli/", "telegram/user_id=42"])
def test_a_text_that_is_no_id_is_refused(hermes: Any, hermes_home: HermesHome, text: str) -> None:
    assert "; write " in hermes("identity", "add", text, code=1).stderr
    assert load_config(hermes_home).identity.owners == ()


def test_an_id_under_which_nobody_wrote_is_said(hermes: Any, hermes_home: HermesHome) -> None:
    store_turn(hermes_home, "s1", **ANN)
    answer = hermes("identity", "add", "Telegram:42").stdout
    assert "nobody has written under exactly this id yet (there are telegram:42)" in answer


def test_notes_of_an_id_that_becomes_an_owner_stay_in_their_folder(
    hermes: Any, data: Any, hermes_home: HermesHome
) -> None:
    hermes("memory", "add", "Says WALRUS", "--user", "telegram:42")
    hermes("memory", "add", "Says ZEBRA")
    folder = hermes_home.folder_of("telegram:42")
    assert f"stay in '{folder}'" in hermes("identity", "add", "telegram:42").stdout
    assert (folder / "MEMORY.md").read_text() == "Says WALRUS"
    assert data("memory", "show", "--user", "telegram:42")["memory"] == ["Says ZEBRA"]


def test_status_and_doctor_say_that_notes_have_no_owner_elsewhere(
    hermes: Any, data: Any, hermes_home: HermesHome
) -> None:
    assert ADVICE not in hermes("memory", "status").stdout
    hermes("memory", "add", "Says ZEBRA")
    assert ADVICE in " ".join(hermes("memory", "status").stdout.split())
    assert ADVICE in data("memory", "status")["identity"]["remark"]

    def finding() -> Any:
        return next(one for one in data("doctor")["findings"] if one["what"] == "owners")

    assert (finding()["state"], ADVICE in finding()["remedy"]) == ("note", True)
    store_turn(hermes_home, "s1", **ANN)
    assert (finding()["state"], ADVICE in finding()["remedy"]) == ("warning", True)
    hermes("identity", "add", "telegram:42")
    assert (finding()["state"], finding()["detail"]) == ("ok", "the person at home is telegram:42")
    assert data("memory", "status")["identity"] == {"owners": ["telegram:42"], "remark": ""}


def test_status_and_doctor_warn_of_notes_that_several_users_share(
    hermes: Any, data: Any, hermes_home: HermesHome
) -> None:
    set_value(hermes_home, "memory.per_user", False)
    store_turn(hermes_home, "s1", **ANN)
    hermes("memory", "add", "Says ZEBRA")
    assert data("memory", "status")["identity"]["remark"] == ""
    store_turn(hermes_home, "s2", platform="telegram", user_id="43")
    assert "memory.per_user is false" in data("memory", "status")["identity"]["remark"]
    found = [one for one in data("doctor")["findings"] if one["what"] == "owners"]
    assert [one["state"] for one in found] == ["warning"]


def test_setup_asks_for_the_ids_of_a_home_with_notes(hermes: Any, hermes_home: HermesHome) -> None:
    assert "telegram:123" not in hermes("memory", "setup", "none").stdout
    hermes("memory", "add", "Says ZEBRA")
    store_turn(hermes_home, "s1", **ANN)
    asked = hermes("memory", "setup", "none", typed="42\ntelegram:42, irc/tea\n").stdout
    assert "(telegram:42 wrote)" in asked
    assert "'42' is no id" in asked
    assert load_config(hermes_home).identity.owners == ("telegram:42", "irc/tea")
    assert "Your ids" not in hermes("memory", "setup", "none").stdout
    set_value(hermes_home, "identity.owners", [])
    hermes("memory", "setup", "none", typed="\n")
    hermes("memory", "setup", "none", "--yes")
    assert load_config(hermes_home).identity.owners == ()


def test_skills_of_a_user_are_shown_by_name(hermes: Any, data: Any, hermes_home: HermesHome) -> None:
    folder = hermes_home.folder_of("telegram:42") / "skills" / "team" / "knit"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: knit\ndescription: How to knit\n---\n\nThe way.\n")
    user = ("--user", "telegram:42")
    assert [skill["name"] for skill in data("skills", "list", *user)] == ["knit"]
    assert data("skills", "list") == []
    assert "The way." in hermes("skills", "show", "knit", *user).stdout
    assert data("skills", "history", *user) == []

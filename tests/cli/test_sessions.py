from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.config import set_value
from hermes_core.memory import open_memory
from tests.outbox_of import sessions_of


@pytest.fixture
def imported(hermes: Any, chat: Path) -> None:
    hermes("import", chat)


def test_an_empty_home_has_nothing_to_show(hermes: Any, data: Any) -> None:
    assert hermes("sessions", "list").stdout == "No session is stored yet.\n"
    assert hermes("sessions", "search", "cat").stdout == "No message matches.\n"
    assert data("sessions", "list") == data("sessions", "search", "cat") == []


@pytest.mark.usefixtures("imported")
def test_an_id_of_the_list_can_be_given_to_show(hermes: Any, data: Any) -> None:
    listed = data("sessions", "list")
    shown = [line.split()[0] for line in hermes("sessions", "list").stdout.splitlines()[1:]]
    assert [entry["session"]["id"][:12] for entry in listed] == shown
    for short_id, entry in zip(shown, listed, strict=True):
        assert len(data("sessions", "show", short_id)) == entry["session"]["message_count"]
    assert len(data("sessions", "list", "--limit", "1")) == 1
    assert data("sessions", "list", "--source", "telegram") == []


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize("at", [1716672060000.0, -1e12])
def test_a_stored_time_that_no_calendar_holds_hides_nothing(
    hermes: Any, hermes_home: HermesHome, at: float
) -> None:
    with contextlib.closing(sessions_of(hermes_home)) as store:
        store.database.execute("UPDATE messages SET timestamp = ?", (at,))
        store.database.execute("UPDATE sessions SET started_at = ?, last_active = ?", (at, at))
    assert "unknown" in hermes("sessions", "list").stdout
    assert "Momo" in hermes("sessions", "show", "jsonl-s1").stdout
    assert "Momo" in hermes("sessions", "search", "cat").stdout
    assert "Momo" in hermes("recall", "What was the cat called in May 2024?").stdout


def test_of_a_long_message_the_part_that_matched_is_shown(
    hermes: Any, data: Any, hermes_home: HermesHome
) -> None:
    with contextlib.closing(sessions_of(hermes_home)) as db:
        db.create_session("s")
        db.append_message("s", "user", "so many words " * 1000 + "and a walnut")
    shown = hermes("sessions", "search", "walnut").stdout
    assert ">>>walnut<<<" in shown
    assert len(shown) < 2000
    assert data("sessions", "search", "walnut")[0]["text"].endswith("and a walnut")


@pytest.mark.usefixtures("imported")
def test_the_beginning_of_an_id_is_enough(hermes: Any) -> None:
    shown = hermes("sessions", "show", "jsonl-s1").stdout
    assert "Ana\nMy cat is called Momo\n\n" in shown
    for text in ("nope", "jsonl-s"):
        told = f"there is no session {text!r}; list them with `hermes-memory sessions list`; a part of an id must begin no"
        assert told in hermes("sessions", "show", text, code=1).stderr
        assert told in hermes("sessions", "delete", text, code=1).stderr


@pytest.mark.usefixtures("imported")
def test_a_search_is_narrowed_by_its_options(hermes: Any, data: Any) -> None:
    found = data("sessions", "search", "What is my cat called?")
    assert (found[0]["text"], found[0]["ref"]) == ("My cat is called Momo", "m1")
    assert {hit["role"] for hit in data("sessions", "search", "cat", "--role", "user")} == {"user"}
    assert data("sessions", "search", "cat", "--source", "telegram") == []
    assert data("sessions", "search", "cat", "--since", "2999-01-01") == []
    assert data("sessions", "search", "cat", "--until", "1999-01-01") == []
    assert len(data("sessions", "search", "cat", "-k", "1")) == 1
    assert "Momo" in hermes("sessions", "search", "cat", "--sort", "newest").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["search"],
        ["search", "cat", "--role", "boss"],
        ["search", "cat", "--sort", "up"],
        ["search", "cat", "-k", "0"],
        ["list", "--limit", "none"],
        ["show"],
        ["dance"],
    ],
)
def test_wrong_usage(hermes: Any, words: list[str]) -> None:
    assert "see: hermes-memory sessions" in hermes("sessions", *words, code=2).stderr


@pytest.mark.parametrize("query", ['"', "AND", "cat OR", "a*b", "'; --", "💥", ""])
@pytest.mark.usefixtures("imported")
def test_any_text_may_be_searched_for(hermes: Any, query: str) -> None:
    hermes("sessions", "search", query)


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_damaged_store_is_one_clear_line(hermes: Any, hermes_home: Any, imported: None) -> None:
    for path in hermes_home.path.glob("state.db*"):
        path.write_bytes(b"no database " * 400)
    result = hermes("sessions", "list", code=1)
    assert "is damaged" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_branch_is_deleted_with_what_it_was_branched_from_as_its_help_says(
    hermes: Any, data: Any, hermes_home: Any
) -> None:
    with open_memory(hermes_home) as memory:
        memory.sessions.create_session("stem")
        memory.sessions.create_session("branch", parent_id="stem", relation="branch")
    assert "and what it was branched from" in " ".join(hermes("sessions", "delete", "--help").stdout.split())
    assert data("sessions", "delete", "branch", "--dry-run")["sessions"] == ["branch", "stem"]


@pytest.mark.usefixtures("imported")
def test_a_moment_before_the_epoch_is_one_like_any_other(hermes: Any, data: Any) -> None:
    assert data("sessions", "search", "cat", "--since", "0001-01-01")
    assert not data("sessions", "search", "cat", "--until", "0001-01-01")
    assert data("sessions", "prune", "--before", "0001-01-01", "--yes")["sessions"] == []


@pytest.mark.usefixtures("imported")
def test_who_watches_sees_how_far_a_prune_has_come(hermes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    assert hermes("sessions", "prune", "--older-than", 0, "--yes").stderr == (
        "\rsessions deleted: 1 of 2  \rsessions deleted: 2 of 2  \n"
    )


@pytest.mark.usefixtures("imported")
def test_a_conversation_that_goes_on_while_the_question_stands_is_not_pruned(
    hermes: Any, data: Any, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, other = (one["session"]["id"] for one in data("sessions", "list"))

    def confirm(*_: Any, **__: Any) -> None:
        with contextlib.closing(sessions_of(hermes_home)) as db:
            db.append_message(going_on, "user", "One more thing")

    monkeypatch.setattr("click.confirm", confirm)
    limit = f"{datetime.now():%Y-%m-%dT%H:%M:%S}"  # noqa: DTZ005  what a person types is local
    with contextlib.closing(sessions_of(hermes_home)) as db:
        db.database.execute("UPDATE sessions SET last_active = ?", (1000.0,))
    assert "1 session deleted" in hermes("sessions", "prune", "--before", limit).stdout
    assert [one["session"]["id"] for one in data("sessions", "list")] == [going_on]
    assert other != going_on


def test_an_id_is_shown_as_far_as_it_names_one_session(hermes: Any, hermes_home: HermesHome) -> None:
    ids = ["telegram-42-2026-01", "telegram-42-2026-02", "telegram-42-2026-021", "0123456789abcdef" * 2]
    with contextlib.closing(sessions_of(hermes_home)) as db:
        for number, session_id in enumerate(ids):
            db.create_session(session_id)
            db.append_message(session_id, "user", f"walnut {number}")
    shown = {line.split()[0]: line.split()[-1] for line in hermes("sessions", "list").stdout.splitlines()[1:]}
    assert set(shown) == {*ids[:3], "0123456789ab"}
    for short_id, number in shown.items():
        assert f"walnut {number}" in hermes("sessions", "show", short_id).stdout
    assert "0123456789ab  " in hermes("sessions", "search", "walnut 3").stdout


def test_sessions_of_programs_are_listed_only_if_their_source_is_asked_for(
    hermes: Any, data: Any, hermes_home: HermesHome
) -> None:
    with contextlib.closing(sessions_of(hermes_home)) as db:
        for source in ("cli", "cron", "telegram"):
            db.create_session(source, source=source)
            db.append_message(source, "user", "a walnut")

    def listed(*options: str) -> set[str]:
        return {entry["session"]["id"] for entry in data("sessions", "list", *options)}

    assert listed() == {"cli", "telegram"}
    assert listed("--source", "cron", "--source", "cli") == {"cron", "cli"}
    assert listed("--exclude-source", "telegram") == {"cli"}
    assert (
        "Sessions of programs are not listed; --source cron lists them." in hermes("sessions", "list").stderr
    )
    assert "Sessions of programs" not in hermes("sessions", "list", "--source", "cli").stderr
    found = data("sessions", "search", "walnut", "--exclude-source", "cron")
    assert {hit["session_id"] for hit in found} == {"cli", "telegram"}


def test_sessions_without_a_title_are_named_before_they_are_deleted(
    hermes: Any, hermes_home: HermesHome
) -> None:
    with contextlib.closing(sessions_of(hermes_home)) as db:
        db.create_session("untitled", "my-app")
        db.append_message("untitled", "user", "Where do we\ndeploy billing?")
    assert "Where do we deploy billing?" in hermes("sessions", "prune", "--older-than", 0, "--dry-run").stdout
    assert "Where do we deploy billing?" in hermes("sessions", "delete", "untitled", "--dry-run").stdout


def test_a_check_of_a_server_that_is_down_advises_no_repair_of_a_file(
    hermes: Any, hermes_home: HermesHome
) -> None:
    set_value(hermes_home, "storage.url", "postgresql://hermes@127.0.0.1:1/hermes")
    (line,) = hermes("sessions", "check", code=1).stdout.splitlines()
    assert "can't reach" in line
    assert "start the server" in line
    assert "sessions repair" not in line


def test_a_whole_store_is_not_replaced_by_a_repair(hermes: Any, chat: Path, hermes_home: HermesHome) -> None:
    hermes("import", chat)
    before = hermes_home.state_db.stat().st_ino
    assert hermes("sessions", "repair").stdout == "The store is whole, so nothing was repaired.\n"
    assert hermes_home.state_db.stat().st_ino == before

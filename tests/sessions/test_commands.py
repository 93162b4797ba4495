"""`hermes-memory sessions check|repair|rebuild|vacuum|prune|delete`, as a person and as a script run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_core.cli import main
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory

DAY = 86_400.0


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    """An old conversation of two sessions, an old one that goes on today, and a new one."""
    found = HermesHome.resolve(tmp_path / "home")
    with open_memory(found, provider="") as memory:
        db = memory.sessions
        for name, parent, at in (
            ("old", "", DAY),
            ("old-child", "old", 2 * DAY),
            ("long", "", DAY),
            ("long-tip", "long", 2e9),
            ("new", "", 2e9),
        ):
            db.create_session(name, parent_id=parent, relation="compression" if parent else "", started_at=at)
            db.append_message(name, "user", f"kumquat in {name}", timestamp=at)
    return found


def hermes(home: HermesHome, *arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["--home", str(home.path), "sessions", *arguments], input=answer)


def ids(home: HermesHome) -> set[str]:
    with open_memory(home, provider="") as memory:
        return {hit.session_id for hit in memory.sessions.past.search("kumquat", limit=50)}


def test_a_whole_store_is_said_to_be_whole(home: HermesHome) -> None:
    assert hermes(home, "check").output == "The store is whole.\n"
    assert json.loads(hermes(home, "check", "--json").output) == {"ok": True, "faults": []}


@pytest.mark.sqlite_only("a damaged or missing file")
def test_without_a_store_there_is_nothing_to_check_and_none_is_made(tmp_path: Path) -> None:
    empty = HermesHome.resolve(tmp_path / "empty")
    empty.path.mkdir()
    for command in ("check", "rebuild", "vacuum", "repair"):
        result = hermes(empty, command, *(["--yes"] if command == "repair" else []))
        assert (result.exit_code, result.stdout) == (0, "Nothing is stored yet.\n")
        documents = [
            json.loads(hermes(empty, command, "--json").stdout) for command in ("check", "rebuild", "vacuum")
        ]
    assert documents == [
        {"ok": True, "faults": []},
        {"messages": 0, "vectors": 0},
        {"before": 0, "after": 0, "dry_run": False},
    ]
    assert not empty.state_db.exists()


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_store_that_was_lost_does_not_pass_for_one_that_was_not_made_yet(home: HermesHome) -> None:
    for file in home.path.glob("state.db*"):
        file.unlink()
    for command in ("check", "rebuild", "vacuum"):
        refused = hermes(home, command)
        assert (refused.exit_code, "is gone" in refused.output or "lost" in refused.output) == (1, True), (
            refused.output
        )


@pytest.mark.sqlite_only("a damaged or missing file")
def test_damage_is_one_line_with_what_to_do_and_repair_does_it(home: HermesHome) -> None:
    with home.state_db.open("r+b") as file:
        file.write(b"\x00" * 100)

    listed = hermes(home, "list")
    assert listed.exit_code == 1
    assert listed.output.startswith("error: ")
    assert listed.output.count("\n") == 1
    assert "hermes-memory sessions repair" in listed.output
    checked = hermes(home, "check", "--json")
    assert checked.exit_code == 1
    assert len(json.loads(checked.output)["faults"]) == 1

    assert hermes(home, "repair", answer="n\n").exit_code == 1
    result = json.loads(hermes(home, "repair", "--yes", "--json").output)

    assert result["saved"]["messages"] == 5
    assert (Path(result["kept"]) / "state.db").read_bytes()[:100] == b"\x00" * 100
    assert hermes(home, "check").exit_code == 0
    assert len(ids(home)) == 5


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_log_whose_store_was_moved_away_is_no_store_to_come(home: HermesHome) -> None:
    home.state_db.rename(home.path / "aside.db")
    home.state_db.with_name("state.db-wal").write_bytes(b"what a killed process left")
    checked = hermes(home, "check")
    assert checked.exit_code == 1
    assert "state.db-wal' is here without its database" in checked.output
    assert "hermes-memory sessions repair" in checked.output


def test_the_index_is_made_anew(home: HermesHome) -> None:
    assert json.loads(hermes(home, "rebuild", "--json").output) == {"messages": 5, "vectors": 0}
    assert hermes(home, "rebuild").output.endswith("5 messages indexed.\n")


def test_prune_deletes_whole_conversations_that_are_old(home: HermesHome) -> None:
    shown = json.loads(hermes(home, "prune", "--older-than", "30", "--dry-run", "--json").output)
    assert shown == {"sessions": ["old", "old-child"], "deleted": 0, "dry_run": True}
    assert len(ids(home)) == 5

    assert hermes(home, "prune", "--older-than", "30", answer="n\n").exit_code == 1
    assert len(ids(home)) == 5

    assert hermes(home, "prune", "--before", "2020-01-01", "--source", "elsewhere", "--yes").exit_code == 0
    assert len(ids(home)) == 5

    assert hermes(home, "prune", "--before", "2020-01-01", "--yes").exit_code == 0
    assert ids(home) == {"long", "long-tip", "new"}


def test_prune_refuses_a_number_of_days_that_no_calendar_has(home: HermesHome) -> None:
    refused = hermes(home, "prune", "--older-than", "9" * 400, "--yes")
    assert (refused.exit_code, "it must be a whole number from 0 up to 1000000, is " in refused.output) == (
        2,
        True,
    )


def test_prune_leaves_what_went_on_while_a_person_was_asked(
    home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agreed(*_: object, **__: object) -> bool:
        with open_memory(home, provider="") as memory:
            memory.sessions.append_message("old-child", "user", "kumquat, once more")
        return True

    monkeypatch.setattr("click.confirm", agreed)
    assert hermes(home, "prune", "--older-than", "30").output.endswith("0 sessions deleted\n")
    assert ids(home) == {"old", "old-child", "long", "long-tip", "new"}


def test_delete_takes_one_conversation_whole(home: HermesHome) -> None:
    asked = hermes(home, "delete", "old-c", answer="n\n")
    assert (asked.exit_code, "Delete 2 sessions for good?" in asked.output) == (1, True)
    assert len(ids(home)) == 5

    assert hermes(home, "delete", "old-c", "--yes").output.startswith("2 sessions deleted")
    assert ids(home) == {"long", "long-tip", "new"}
    assert "there is no session 'old'" in hermes(home, "delete", "old", "--yes").output


def test_prune_needs_to_be_told_how_old(home: HermesHome) -> None:
    assert hermes(home, "prune", "--yes").exit_code == 2


@pytest.mark.sqlite_only("the space of a file")
def test_vacuum_gives_space_back(home: HermesHome) -> None:
    with open_memory(home, provider="") as memory:
        memory.sessions.append_turn("old", [{"role": "user", "content": "x y z " * 50}] * 2000, "t", 1)
        memory.delete_session("old")
    could = json.loads(hermes(home, "vacuum", "--dry-run", "--json").output)
    did = json.loads(hermes(home, "vacuum", "--json").output)

    assert could["before"] > could["after"]
    assert did["after"] <= could["after"]
    assert home.state_db.stat().st_size == did["after"]
    assert len(ids(home)) == 4


@pytest.mark.sqlite_only("the space of a file")
def test_what_was_deleted_is_said_to_be_in_the_file_until_a_vacuum_and_is_gone_after_it(
    home: HermesHome,
) -> None:
    with open_memory(home, provider="") as memory:
        memory.sessions.create_session("private")
        memory.sessions.append_message("private", "user", "The tortoise Quillfeather eats clover in 奥斯陆。")
    told = hermes(home, "delete", "private", "--yes").output
    assert "1 session deleted; the file holds their text until hermes-memory sessions vacuum" in told
    assert "text until" in hermes(home, "prune", "--before", "2020-01-01", "--yes").output

    def left() -> list[str]:
        held = b"".join(file.read_bytes() for file in home.path.rglob("*") if file.is_file())
        return [text for text in ("Quillfeather eats", "uillfeath", "奥斯") if text.encode() in held]

    assert left(), "else there is nothing to say"
    hermes(home, "vacuum")
    assert left() == []

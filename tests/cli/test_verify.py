"""`hermes-memory verify` and the commands that restore a version."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.forget import forget_user
from hermes_memory_agent.skills.store import open_skills
from plugins.agent.tests.skills.conftest import skill
from tests.outbox_of import sessions_of

pytestmark = pytest.mark.usefixtures("engine")

in_files = pytest.mark.parametrize(
    "engine",
    [pytest.param("sqlite", marks=pytest.mark.sqlite_only("a damaged or missing file"))],
    indirect=True,
)
on_server = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


def change(home: HermesHome, sql: str, *values: object) -> None:
    """Change the record behind the program's back."""
    with contextlib.closing(sessions_of(home)) as sessions:
        sessions.database.execute(sql, values)


def test_a_whole_record_is_reported_with_its_hash(hermes: Any, hermes_home: HermesHome) -> None:
    assert hermes("verify").stdout == "Nothing was recorded yet.\n"
    assert not hermes_home.state_db.exists()
    hermes("memory", "add", "Likes tea")
    assert hermes("verify").stdout.startswith("notes: 2 events, whole, hash ")
    (record,) = json.loads(hermes("verify", "--json").stdout)
    assert (record["record"], record["events"], record["faults"]) == ("notes", 2, [])
    assert len(record["head"]) == 64


def test_a_changed_history_is_named_and_accepted(hermes: Any, hermes_home: HermesHome) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "UPDATE note_changes SET after = 'Likes coffee'")
    failed = hermes("verify", code=1)
    assert "change 1 in the history is another text" in failed.stderr
    assert "hermes-memory verify --accept" in failed.stderr
    assert "1 fault accepted" in hermes("verify", "--accept").stderr
    hermes("verify")


def write_skill(home: HermesHome, user: str = "") -> str:
    """Write a skill of the person at home, or of a user of Telegram. Return the owner."""
    with open_memory(home) as memory:
        owner = memory.start_session("s", platform="telegram", user_id=user).owner if user else ""
        open_skills(home, memory.config, memory.sessions.database, owner).create("deploy", "ops", skill())
    return owner


def test_skills_are_in_the_record_of_the_home(hermes: Any, hermes_home: HermesHome) -> None:
    hermes("memory", "add", "Likes tea")
    write_skill(hermes_home)
    write_skill(hermes_home, "42")
    (record,) = json.loads(hermes("verify", "--json").stdout)
    assert (record["record"], record["events"], record["faults"]) == ("notes", 4, [])
    change(hermes_home, "UPDATE note_changes SET \"after\" = 'Steal it.' WHERE file LIKE '%SKILL.md'")
    failed = hermes("verify", code=1).stderr
    assert "create of skills/ops/deploy/SKILL.md" in failed
    assert "create of users/" in failed


def test_versions_are_restored(hermes: Any) -> None:
    hermes("memory", "add", "Likes tea")
    hermes("memory", "replace", "tea", "Likes coffee")
    hermes("memory", "restore", "1")
    assert "Likes tea" in hermes("memory", "show").stdout
    assert "There is no change 99" in hermes("memory", "restore", "99", code=1).stderr
    assert "there is no change 99" in hermes("skills", "restore", "99", code=1).stderr


@in_files
def test_a_record_that_is_gone_is_no_new_record(hermes: Any, hermes_home: HermesHome) -> None:
    hermes("memory", "add", "Likes tea")
    for path in hermes_home.path.glob("state.db*"):
        path.unlink()
    failed = hermes("verify", code=1)
    assert "Nothing was recorded yet" not in failed.stdout
    assert "held data" in failed.stderr
    assert "doctor --accept-loss" in failed.stderr
    hermes("verify", "--accept", code=1)
    hermes("doctor", "--accept-loss", code=None)
    hermes("verify")


def test_the_skills_of_a_forgotten_user_are_nowhere(hermes: Any, hermes_home: HermesHome) -> None:
    user = write_skill(hermes_home, "42")
    write_skill(hermes_home)
    with open_memory(hermes_home) as memory:
        forget_user(memory, user)
        assert memory.problems() == []
        database = memory.sessions.database
        query = "SELECT file FROM note_changes UNION SELECT file FROM note_entries"
        assert [row["file"] for row in database.execute(query)] == ["skills/ops/deploy/SKILL.md"]
        subjects = [row["subject"] for row in database.execute("SELECT subject FROM note_events")]
        assert [name for name in subjects if "SKILL.md" in name] == ["skills/ops/deploy/SKILL.md"]
    assert "1 event erased" in hermes("verify").stdout


@pytest.mark.parametrize("at", [1e30, -1e30, float("inf")])
def test_an_event_at_an_impossible_time_is_a_fault(hermes: Any, hermes_home: HermesHome, at: float) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "UPDATE note_events SET at = ? WHERE id = 2", at)
    assert "event 2 (add of MEMORY.md, impossible time" in hermes("verify", code=1).stderr


@pytest.mark.parametrize("details", ["[1]", "5", '{"through": "x"}', '{"through": 1e999}', "[" * 100_000])
def test_details_of_other_types_are_a_fault(hermes: Any, hermes_home: HermesHome, details: str) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "UPDATE note_events SET details = ?", details)
    assert "says another thing than was recorded" in hermes("verify", code=1).stderr


def test_a_record_without_events_is_a_fault_that_can_be_accepted(
    hermes: Any, hermes_home: HermesHome
) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "DELETE FROM note_events")
    failed = hermes("verify", code=1)
    assert "all of them were deleted" in failed.stderr
    assert "hash" not in failed.stdout
    hermes("verify", "--accept")
    hermes("verify")


@in_files
def test_a_database_without_the_record_is_damaged(hermes: Any, hermes_home: HermesHome) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "DROP TABLE note_events")
    assert "state.db' is damaged" in hermes("verify", code=1).stderr.replace("\n", " ")


@on_server
@pytest.mark.parametrize(
    "sql", ["DROP TABLE note_events", "ALTER TABLE note_events RENAME COLUMN hash TO sum"]
)
def test_a_server_without_the_record_stores_no_note(hermes: Any, hermes_home: HermesHome, sql: str) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, sql)
    for words in (("verify",), ("memory", "add", "Likes milk")):
        said = hermes(*words, code=1).stderr.replace("\n", " ")
        assert "is damaged" in said
        assert "restore a backup of the server" in said
    assert "Likes milk" not in hermes("memory", "show", code=None).stdout


def head(hermes: Any) -> str:
    return str(json.loads(hermes("verify", "--json").stdout)[0]["head"])


def test_a_record_that_was_cut_lacks_an_earlier_hash(hermes: Any, hermes_home: HermesHome) -> None:
    hermes("memory", "add", "Likes tea")
    first = head(hermes)
    hermes("memory", "add", "Likes coffee")
    last = head(hermes)
    both = hermes("verify", "--since", first[:16], "--since", last.upper()).stdout
    assert f"1 event since {first[:16]}; 0 events since {last[:16]}\n" in both
    (record,) = json.loads(hermes("verify", "--since", first, "--json").stdout)
    assert record["since"] == {first: 1}
    change(hermes_home, "DELETE FROM note_events WHERE id = 3")
    change(hermes_home, "DELETE FROM note_changes WHERE id = 2")
    assert "2 events, whole" in hermes("verify").stdout  # the record alone does not show it
    assert f"no event has the hash '{last[:16]}'" in hermes("verify", "--since", last[:16], code=1).stderr
    assert "0 events since" in hermes("verify", "--since", first).stdout


def test_an_empty_home_has_no_earlier_hash(hermes: Any) -> None:
    assert "no event has the hash" in hermes("verify", "--since", "0" * 16, code=1).stderr


def test_a_hash_from_before_an_acceptance_is_found_with_a_remark(
    hermes: Any, hermes_home: HermesHome
) -> None:
    hermes("memory", "add", "Likes tea")
    first = head(hermes)
    assert "accepted" not in hermes("verify", "--since", first).stdout
    change(hermes_home, "UPDATE note_changes SET after = 'Likes coffee'")
    hermes("verify", "--accept")
    shown = hermes("verify", "--since", first).stdout
    assert "1 event since" in shown
    assert "the history was accepted since then" in shown


@pytest.mark.parametrize("value", ["", "5d0a", "%" * 16, "g" * 16, "0" * 65])
def test_what_is_no_hash_is_refused(hermes: Any, value: str) -> None:
    assert "is no hash" in hermes("verify", "--since", value, code=2).stderr


def test_a_forgetting_that_is_killed_is_completed_by_the_next_one(
    hermes: Any, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = write_skill(hermes_home, "42")

    def die(folder: Path, **options: Any) -> None:
        rmtree(folder, **options)
        raise KeyboardInterrupt

    rmtree = shutil.rmtree
    with open_memory(hermes_home) as memory, monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            forget_user(memory, user)
    with open_memory(hermes_home) as memory:
        assert memory.problems() == []
        assert forget_user(memory, user).erased
        rows = memory.sessions.database.execute("SELECT 1 FROM note_changes WHERE target = 'skill'")
        assert rows.fetchall() == []
    hermes("verify")

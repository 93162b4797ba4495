"""`hermes-memory verify` and the commands that restore a version."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.config import load_config
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
    if not load_config(home).storage.url:
        with contextlib.closing(sqlite3.connect(home.journal_db)) as connection, connection:
            connection.execute(sql, values)
        return
    with contextlib.closing(sessions_of(home)) as sessions:
        sessions.database.execute(re.sub(r"\b(changes|events)\b", r"note_\1", sql), values)


def test_a_whole_record_is_reported_with_its_hash(hermes: Any, hermes_home: HermesHome, engine: str) -> None:
    if engine == "sqlite":
        assert hermes("verify").stdout == "nothing was recorded yet\n"
    else:  # where the record begins with the tables
        assert hermes("verify").stdout.startswith("notes: 1 event, whole, hash ")
    assert not hermes_home.journal_db.exists()
    hermes("memory", "add", "Likes tea")
    assert hermes("verify").stdout.startswith("notes: 2 events, whole, hash ")
    (record,) = json.loads(hermes("verify", "--json").stdout)
    assert (record["record"], record["events"], record["faults"]) == ("notes", 2, [])
    assert len(record["head"]) == 64


def test_a_changed_history_is_named_and_accepted(hermes: Any, hermes_home: HermesHome) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "UPDATE changes SET after = 'Likes coffee'")
    failed = hermes("verify", code=1)
    assert "change 1 in the history is another text" in failed.stderr
    assert "hermes-memory verify --accept" in failed.stderr
    assert "1 fault accepted" in hermes("verify", "--accept").stderr
    hermes("verify")


def test_the_skills_of_each_user_have_a_record(hermes: Any, hermes_home: HermesHome, engine: str) -> None:
    from hermes_memory_agent.skills.store import SkillStore

    folder = hermes_home.memories / "users" / "telegram_42" / "skills"
    for root in (hermes_home.skills, folder):
        with contextlib.closing(SkillStore(root)) as store:
            store.create("deploy", "ops", skill())
    assert [row["record"] for row in json.loads(hermes("verify", "--json").stdout)] == [
        *(["notes"] if engine == "postgresql" else []),
        "skills",
        "skills of telegram_42",
    ]


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
    for path in hermes_home.memories.glob("journal.db*"):
        path.unlink()
    failed = hermes("verify", code=1)
    assert "nothing was recorded yet" not in failed.stdout
    assert "held data" in failed.stderr
    assert "doctor --accept-loss" in failed.stderr
    hermes("verify", "--accept", code=1)
    hermes("doctor", "--accept-loss", code=None)
    assert hermes("verify").stdout.startswith("notes: 1 event, whole, hash ")


@pytest.mark.parametrize("part", ["journal", "folder"])
def test_the_record_of_a_users_skills_that_is_gone_is_no_new_record(
    hermes: Any, hermes_home: HermesHome, part: str
) -> None:
    with open_memory(hermes_home) as memory:
        user = memory.start_session("s", platform="telegram", user_id="42").owner
        with contextlib.closing(open_skills(hermes_home, memory.config, user)) as store:
            store.create("deploy", "ops", skill())
    folder = hermes_home.folder_of(user) / "skills"
    assert f"skills of {folder.parent.name}: " in hermes("verify").stdout
    if part == "folder":
        shutil.rmtree(folder)
    for path in folder.glob(".journal.db*"):
        path.unlink()
    failed = hermes("verify", code=1)
    assert f"skills of {folder.parent.name}: " in failed.stderr
    assert "held data" in failed.stderr
    hermes("doctor", "--accept-loss", code=None)
    hermes("verify")


def test_the_skills_of_a_forgotten_user_are_not_lost(hermes: Any, hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        user = memory.start_session("s", platform="telegram", user_id="42").owner
        with contextlib.closing(open_skills(hermes_home, memory.config, user)) as store:
            store.create("deploy", "ops", skill())
    with open_memory(hermes_home) as memory:
        forget_user(memory, user)
        assert memory.problems() == []
    hermes("verify")


@pytest.mark.parametrize("at", [1e30, -1e30, float("inf")])
def test_an_event_at_an_impossible_time_is_a_fault(hermes: Any, hermes_home: HermesHome, at: float) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "UPDATE events SET at = ? WHERE id = 2", at)
    assert "event 2 (add of MEMORY.md, impossible time" in hermes("verify", code=1).stderr


@pytest.mark.parametrize("details", ["[1]", "5", '{"through": "x"}', '{"through": 1e999}', "[" * 100_000])
def test_details_of_other_types_are_a_fault(hermes: Any, hermes_home: HermesHome, details: str) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "UPDATE events SET details = ?", details)
    assert "says another thing than was recorded" in hermes("verify", code=1).stderr


def test_a_record_without_events_is_a_fault_that_can_be_accepted(
    hermes: Any, hermes_home: HermesHome
) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, "DELETE FROM events")
    failed = hermes("verify", code=1)
    assert "all of them were deleted" in failed.stderr
    assert "hash" not in failed.stdout
    hermes("verify", "--accept")
    hermes("verify")


@in_files
@pytest.mark.parametrize("sql", ["DROP TABLE events", "ALTER TABLE events RENAME COLUMN hash TO sum"])
def test_a_journal_without_its_record_is_damaged_and_the_note_is_saved(
    hermes: Any, hermes_home: HermesHome, sql: str
) -> None:
    hermes("memory", "add", "Likes tea")
    change(hermes_home, sql)
    added = hermes("memory", "add", "Likes coffee", code=None)
    assert "the history does not have the change" in added.stdout + added.stderr
    assert "Likes coffee" in hermes("memory", "show", code=None).stdout
    for words in (("verify",), ("memory", "add", "Likes milk")):
        assert "journal.db' is damaged" in hermes(*words, code=1).stderr.replace("\n", " ")


@on_server
@pytest.mark.parametrize("sql", ["DROP TABLE events", "ALTER TABLE events RENAME COLUMN hash TO sum"])
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
    change(hermes_home, "DELETE FROM events WHERE id = 3")
    change(hermes_home, "DELETE FROM changes WHERE id = 2")
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
    change(hermes_home, "UPDATE changes SET after = 'Likes coffee'")
    hermes("verify", "--accept")
    shown = hermes("verify", "--since", first).stdout
    assert "1 event since" in shown
    assert "the history was accepted since then" in shown


@pytest.mark.parametrize("value", ["", "5d0a", "%" * 16, "g" * 16, "0" * 65])
def test_what_is_no_hash_is_refused(hermes: Any, value: str) -> None:
    assert "is no hash" in hermes("verify", "--since", value, code=2).stderr


def test_a_forgetting_that_is_killed_leaves_no_store_that_counts_as_lost(
    hermes: Any, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(hermes_home) as memory:
        user = memory.start_session("s", platform="telegram", user_id="42").owner
        with contextlib.closing(open_skills(hermes_home, memory.config, user)) as store:
            store.create("deploy", "ops", skill())

    def die(folder: Path) -> None:
        rmtree(folder)
        raise KeyboardInterrupt

    rmtree = shutil.rmtree
    with open_memory(hermes_home) as memory, monkeypatch.context() as patch:
        patch.setattr("hermes_core.forget.shutil.rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            forget_user(memory, user)
    with open_memory(hermes_home) as memory:
        assert memory.problems() == []
    hermes("verify")

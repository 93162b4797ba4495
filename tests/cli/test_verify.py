"""`hermes-memory verify` and the commands that restore a version."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from typing import Any

from hermes_core import HermesHome
from tests.skills.conftest import skill


def test_a_whole_record_is_reported_with_its_hash(hermes: Any, hermes_home: HermesHome) -> None:
    assert hermes("verify").stdout == "nothing was recorded yet\n"
    assert not hermes_home.journal_db.exists()
    hermes("memory", "add", "Likes tea")
    assert hermes("verify").stdout.startswith("notes: 2 events, whole, hash ")
    (record,) = json.loads(hermes("verify", "--json").stdout)
    assert (record["record"], record["events"], record["faults"]) == ("notes", 2, [])
    assert len(record["head"]) == 64


def test_a_changed_history_is_named_and_accepted(hermes: Any, hermes_home: HermesHome) -> None:
    hermes("memory", "add", "Likes tea")
    with contextlib.closing(sqlite3.connect(hermes_home.journal_db)) as connection, connection:
        connection.execute("UPDATE changes SET after = 'Likes coffee'")
    failed = hermes("verify", code=1)
    assert "change 1 in the history is another text" in failed.stderr
    assert "hermes-memory verify --accept" in failed.stderr
    assert "1 fault accepted" in hermes("verify", "--accept").stderr
    hermes("verify")


def test_the_skills_of_each_user_have_a_record(hermes: Any, hermes_home: HermesHome) -> None:
    from hermes_core.skills.store import SkillStore

    folder = hermes_home.memories / "users" / "telegram_42" / "skills"
    for root in (hermes_home.skills, folder):
        with contextlib.closing(SkillStore(root)) as store:
            store.create("deploy", "ops", skill())
    assert [row["record"] for row in json.loads(hermes("verify", "--json").stdout)] == [
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

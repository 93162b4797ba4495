"""Findings about the databases: damage, locks, and indexes that don't fit."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
from collections.abc import Iterator

import pytest

from hermes_core.health.databases import databases, examine_databases, rescue, unusable
from hermes_core.health.finding import Finding
from hermes_core.home import HermesHome
from hermes_core.outbox.recovery import open_outbox
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.sqlite import Database
from tests.storage.notes import posix

pytestmark = pytest.mark.sqlite_only("a damaged or missing file")


def look(home: HermesHome) -> dict[str, Finding]:
    return {found.what: found for found in examine_databases(home)}


@pytest.fixture
def stored(hermes_home: HermesHome) -> HermesHome:
    """A home with one stored message and an outbox."""
    db = SessionStore(hermes_home.state_db)
    db.create_session("s1")
    db.append_message("s1", "user", "the tent is in the garage")
    db.close()
    outbox = open_outbox(hermes_home)
    assert outbox.depth == 0
    outbox.close()
    return hermes_home


@contextlib.contextmanager
def rows(home: HermesHome) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(home.state_db, isolation_level=None)) as connection:
        yield connection


def test_whole_databases_are_ok(stored: HermesHome) -> None:
    found = look(stored)
    assert {one.state for one in found.values()} == {"ok"}
    assert "1 message" in found["search index"].detail
    assert unusable(stored) == []


def test_each_page_of_a_store_is_read_once(stored: HermesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    integrity = Database.integrity
    monkeypatch.setattr(Database, "integrity", lambda db: [checked.append(db.path.name), *integrity(db)][1:])
    look(stored)
    assert sorted(checked) == ["outbox.db", "state.db"]


def test_databases_that_are_not_there_yet_are_ok(hermes_home: HermesHome) -> None:
    assert {one.state for one in look(hermes_home).values()} == {"ok"}
    assert not hermes_home.path.exists()


@pytest.mark.parametrize("name", ["state.db", "outbox.db"])
def test_a_damaged_file_is_named_with_the_rescue_and_left_alone(stored: HermesHome, name: str) -> None:
    path = stored.path / name
    path.write_bytes(b"not a database, not at all, but long enough to have a header of one" * 100)
    before = path.read_bytes()
    found = look(stored)[name]
    assert found.failed
    assert ("hermes-memory sessions repair" if name == "state.db" else ".recover") in found.remedy
    assert not found.safe_to_fix
    assert [one.what for one in unusable(stored)] == [name]
    assert path.read_bytes() == before


@posix
@pytest.mark.parametrize("moved", [False, True], ids=["damaged", "moved away"])
@pytest.mark.parametrize("name", ["outbox.db"])
def test_what_is_advised_takes_the_log_along_and_all_is_well_after_it(
    hermes_home: HermesHome, name: str, moved: bool
) -> None:
    (path,) = (one for one in databases(hermes_home) if one.name == name)
    path.parent.mkdir(parents=True, exist_ok=True)
    for part in (name, f"{name}-wal"):
        path.with_name(part).write_bytes(b"what a killed process left")
    if moved:
        path.rename(path.with_name(f"{name}.damaged"))
        assert (
            [one.failed for one in look(hermes_home).values()].count(True) == len(unusable(hermes_home)) == 1
        )
    for command in re.findall(r"mv \S+ [^\s,]+", rescue(path)):
        subprocess.run(["sh", "-c", command], check=True)
    assert sorted(one.name for one in path.parent.iterdir()) == [f"{name}.damaged", f"{name}.damaged-wal"]
    assert {one.state for one in look(hermes_home).values()} == {"ok"}


def test_a_store_that_was_emptied_is_to_be_rescued_not_indexed_anew(stored: HermesHome) -> None:
    stored.state_db.write_bytes(b"")
    found = look(stored)
    assert found["state.db"].failed
    assert "hermes-memory sessions repair" in found["state.db"].remedy
    assert "search index" not in found
    assert found["outbox.db"].state == "ok"


def test_a_page_that_was_overwritten_is_found(stored: HermesHome) -> None:
    with stored.state_db.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\x00\xff" * 6000)
    assert look(stored)["state.db"].failed


def test_a_database_that_another_program_keeps_locked_is_named(stored: HermesHome) -> None:
    with rows(stored) as other:
        other.execute("BEGIN EXCLUSIVE")
        found = look(stored)["state.db"]
        assert found.failed
        assert "locked" in found.detail
        assert found.remedy
    assert look(stored)["state.db"].state == "ok"


def test_an_index_that_lost_a_message_is_made_anew(stored: HermesHome) -> None:
    with rows(stored) as connection:
        connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')")
    found = look(stored)["search index"]
    assert found.failed
    assert found.repaired().detail == "made anew from 1 message"
    assert look(stored)["search index"].state == "ok"
    db = SessionStore(stored.state_db)
    assert db.past.search("tent")
    db.close()

"""A store that held data and was emptied or deleted is reported by every surface, until it is back or the loss is accepted."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core import open_memory
from hermes_core.cli import main
from hermes_core.curated.edits import Operation
from hermes_core.errors import HermesError
from hermes_core.forget import forget_user
from hermes_core.health.doctor import examine
from hermes_core.home import HermesHome
from hermes_core.kit import Database
from hermes_core.safety.origin import Reading
from hermes_core.storage.inventory import Inventory
from tests.outbox_of import ON_POSTGRES

PROVIDER_DB = "facts/facts.db"
STORES = [
    pytest.param("state.db", marks=pytest.mark.sqlite_only("a damaged or missing file")),
    PROVIDER_DB,
]


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(words))
    return result.exit_code, result.output + result.stderr


def facts_of(home: HermesHome) -> Database:
    def create(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE facts (text TEXT)")

    return Database(home.path / PROVIDER_DB, (("facts", create),))


@pytest.fixture
def filled(hermes_home: HermesHome) -> HermesHome:
    """A home in which every store holds something."""
    with contextlib.closing(facts_of(hermes_home)) as facts:
        facts.execute("INSERT INTO facts VALUES ('tea')")
    with open_memory(hermes_home) as memory:
        memory.change_memory("add", "memory", "likes tea")
        memory.change_memory("add", "user", "likes rye")
        session = memory.start_session("s1", platform="app")
        memory.end_turn(session, "Where is the tent?", "In the cellar.")
    return hermes_home


def lose(path: Path, how: str) -> None:
    path.write_bytes(b"") if how == "emptied" else path.unlink()


@pytest.mark.parametrize("how", ["emptied", "deleted"])
@pytest.mark.parametrize("name", STORES)
def test_a_lost_store_is_reported_until_the_loss_is_accepted(filled: HermesHome, name: str, how: str) -> None:
    assert run("memory", "status")[0] == run("doctor")[0] == 0
    lose(filled.path / name, how)
    for command in (("memory", "status"), ("doctor",), ("memory", "status")):
        code, output = run(*command)
        assert code == 3
        assert f"{str(filled.path / name)!r} held data" in output
        assert "doctor --accept-loss" in output
    with open_memory(filled) as memory:
        session = memory.session("s2")
        assert name in "".join(memory.begin_turn(session, "Where is the tent?").problems)
    assert run("doctor", "--accept-loss")[0] == 0
    assert run("memory", "status")[0] == 0
    with open_memory(filled) as memory:
        memory.end_turn(memory.start_session("s3"), "And the stove?", "In the attic.")
        assert memory.problems() == []


@pytest.mark.parametrize("how", ["emptied", "deleted"])
@pytest.mark.parametrize("name", STORES)
def test_a_lost_database_takes_no_rows_and_is_whole_with_its_backup(
    filled: HermesHome, name: str, how: str
) -> None:
    path = filled.path / name
    shutil.copy(path, filled.path.parent / "backup")
    lose(path, how)
    with contextlib.suppress(HermesError), open_memory(filled) as memory:
        memory.end_turn(memory.start_session("s3"), "And the stove?", "In the attic.")
    with contextlib.closing(facts_of(filled)) as facts, contextlib.suppress(HermesError):
        facts.execute("INSERT INTO facts VALUES ('rye')")
    assert not path.exists() or not path.stat().st_size
    shutil.copy(filled.path.parent / "backup", path)
    assert run("memory", "status")[0] == 0


@pytest.mark.sqlite_only("a damaged or missing file")
@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_notes_whose_database_was_lost_come_back_as_data_once_the_loss_is_accepted(
    filled: HermesHome, how: str
) -> None:
    add_note_of_a_page(filled)
    lose(filled.state_db, how)
    assert run("doctor", "--accept-loss")[0] == 0
    with open_memory(filled) as memory:
        assert memory.curated.entries("memory") == ("likes tea", "The museum opens at 9")
        assert [note.entry for note in memory.curated.read().waiting_notes()] == [
            "likes tea",
            "The museum opens at 9",
            "likes rye",
        ]
        assert memory.system_prompt(memory.start_session("later")) == ""
        filled.memory_md.write_text("likes tea\n§\nThe museum opens at 9\n§\nlikes oats")
        assert memory.curated.read().origin_of("likes oats").origin == "person"


@pytest.mark.sqlite_only("a damaged or missing file")
@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_a_second_loss_counts_from_its_own_time(filled: HermesHome, how: str) -> None:
    lose(filled.state_db, how)
    run("doctor", "--accept-loss")
    with open_memory(filled) as memory:
        memory.end_turn(memory.start_session("s3"), "And the stove?", "In the attic.")
    add_note_of_a_page(filled)
    lose(filled.state_db, how)
    run("doctor", "--accept-loss")
    with open_memory(filled) as memory:
        assert memory.curated.read().origin_of("The museum opens at 9").origin == "import"


def test_a_deleted_file_of_notes_is_written_anew_and_no_loss(filled: HermesHome) -> None:
    filled.memory_md.unlink()
    assert run("memory", "status")[0] == run("doctor")[0] == 0
    assert filled.memory_md.read_text() == "likes tea"


def test_undo_brings_back_notes_whose_file_was_emptied(filled: HermesHome) -> None:
    filled.memory_md.write_text("")
    assert run("memory", "status")[0] == 0
    with open_memory(filled) as memory:
        assert memory.curated.entries("memory") == ()
    assert run("memory", "undo")[0] == 0
    assert filled.memory_md.read_text() == "likes tea"


@pytest.mark.sqlite_only("a damaged or missing file")
def test_the_log_of_an_emptied_database_is_moved_aside_not_deleted(filled: HermesHome) -> None:
    lose(filled.state_db, "emptied")
    log = filled.path / "state.db-wal"
    log.write_bytes(b"rows that a repair may read")
    assert run("memory", "status")[0] == run("doctor")[0] == 3
    assert log.read_bytes() == b"rows that a repair may read"
    assert run("doctor", "--accept-loss")[0] == 0
    (copy,) = filled.path.glob("state.db.lost-*/state.db-wal")
    assert copy.read_bytes() == b"rows that a repair may read"


def test_what_our_own_commands_delete_is_no_loss(filled: HermesHome) -> None:
    assert run("memory", "reset", "--yes")[0] == 0
    assert run("memory", "prune", "--yes")[0] == 0
    assert run("sessions", "delete", "s1", "--yes")[0] == 0
    assert run("sessions", "vacuum")[0] == (1 if ON_POSTGRES else 0)  # a server gives space back by itself
    assert run("memory", "status")[0] == 0
    assert run("doctor")[0] == 0


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_store_that_never_held_anything_may_go(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home) as memory:
        memory.sessions.counts()
    hermes_home.state_db.unlink()
    assert run("memory", "status")[0] == 0


@pytest.mark.sqlite_only("a damaged or missing file")
def test_a_store_that_is_emptied_while_it_is_open_takes_no_turn(filled: HermesHome) -> None:
    with open_memory(filled) as memory:
        session = memory.start_session("s1", platform="app")
        filled.state_db.write_bytes(b"")
        with pytest.raises(HermesError):
            memory.end_turn(session, "And the stove?", "In the attic.")
        assert "held data" in "".join(memory.begin_turn(session, "Where is the tent?").problems)


@pytest.mark.sqlite_only("a damaged or missing file")
def test_status_finds_damage_that_the_doctor_finds(filled: HermesHome) -> None:
    with filled.state_db.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\x00\xff" * 6000)
    assert run("doctor")[0] == run("memory", "status")[0] == 3


@pytest.mark.sqlite_only("a damaged or missing file")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"../x": 1, "/etc/passwd": 2, "state.db": "x"}'])
def test_a_damaged_inventory_is_written_anew(filled: HermesHome, content: bytes) -> None:
    (filled.path / "stores.json").write_bytes(content)
    assert Inventory(filled.path).lost() == []
    assert run("memory", "status")[0] == 0
    filled.state_db.unlink()
    assert run("memory", "status")[0] == 3


def add_note_of_a_page(home: HermesHome, user: str = "") -> None:
    with open_memory(home) as memory:
        session = memory.session("s2", platform="telegram" if user else "cli", user_id=user)
        operations = [Operation("add", "The museum opens at 9")]
        assert memory.curated.of(session).write("memory", operations, session, reading=Reading("web"))[
            "success"
        ]


def test_a_user_who_is_forgotten_leaves_no_lost_origins(filled: HermesHome) -> None:
    add_note_of_a_page(filled, user="42")
    with open_memory(filled) as memory:
        memory.end_turn(memory.start_session("s3", platform="telegram", user_id="42"), "Hello.", "Hello.")
        forget_user(memory, "telegram:42")
    assert run("memory", "status")[0] == 0


@pytest.mark.parametrize("how", ["emptied", "deleted"])
@pytest.mark.parametrize("name", STORES)
def test_the_doctor_names_a_lost_store_once(filled: HermesHome, name: str, how: str) -> None:
    with open_memory(filled) as memory:
        page = [Operation("add", "The museum opens at 9")]
        memory.curated.write("memory", page, memory.local_session, reading=Reading("web"))
    lose(filled.path / name, how)
    failures = [finding for finding in examine(filled).findings if finding.failed]
    assert len([one for one in failures if name in one.detail]) == 1, failures

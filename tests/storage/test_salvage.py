from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseCorrupt
from hermes_core.storage.migrations import Migration
from hermes_core.storage.salvage import copy_parts, open_damaged, parts_of, readable_columns, readable_rows
from hermes_core.storage.sqlite import Database


def make_notes(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT) STRICT")


MIGRATIONS: tuple[Migration, ...] = (("0001_notes", make_notes),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "notes.db"
    with contextlib.closing(Database(found, MIGRATIONS)) as db, db.transaction() as connection:
        connection.executemany(
            "INSERT INTO note (text) VALUES (?)", [(f"text {n} " * 20,) for n in range(2_000)]
        )
    return found


def read(path: Path) -> tuple[set[int], set[int]]:
    """Ids that were read, and ids that were not."""
    with contextlib.closing(open_damaged(path)) as connection:
        rows = list(readable_rows(connection, "note", readable_columns(connection, "note")))
    return {i for i, row in rows if row is not None}, {i for i, row in rows if row is None}


def test_all_rows_of_a_whole_file_are_read(path: Path) -> None:
    assert read(path) == (set(range(1, 2_001)), set())


def test_a_damaged_page_costs_its_own_rows_only(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(30 * 4096)
        file.write(b"\xff" * 64)
    saved, lost = read(path)
    assert saved | lost == set(range(1, 2_001))
    assert not saved & lost
    assert 0 < len(lost) < 60


def test_a_damaged_inner_page_ends_the_search_some_time(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'note'").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 64)
    saved, lost = read(path)
    assert saved == set()
    assert len(lost) == 2_000


def test_all_parts_are_copied(path: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO note (text) VALUES ('in the log')")
        connection.commit()
        copy_parts(path, tmp_path / "copies")
        assert [p.name for p in parts_of(tmp_path / "copies" / "notes.db")] == [
            p.name for p in parts_of(path)
        ]
    saved, _ = read(tmp_path / "copies" / "notes.db")
    assert 2_001 in saved


def test_an_empty_file_beside_a_log_is_refused_and_the_log_stays(path: Path) -> None:
    log = path.with_name("notes.db-wal")
    log.write_bytes(b"something")
    path.write_bytes(b"")
    for _ in range(2):
        with (
            contextlib.closing(Database(path, MIGRATIONS)) as db,
            pytest.raises(DatabaseCorrupt, match="is empty"),
        ):
            db.execute("SELECT 1")
    assert log.read_bytes() == b"something"


def test_a_log_that_is_left_of_a_database_is_named(path: Path) -> None:
    path.rename(path.with_name("aside.db"))
    log = path.with_name("notes.db-wal")
    log.write_bytes(b"something")
    with (
        contextlib.closing(Database(path, MIGRATIONS)) as db,
        pytest.raises(DatabaseCorrupt, match=r"notes\.db-wal' is here without its database"),
    ):
        db.execute("SELECT 1")
    assert log.read_bytes() == b"something"
    assert not path.exists()


def test_text_that_is_none_is_damage(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE note SET text = CAST(x'ff41' AS TEXT) WHERE id = 7")
        connection.commit()
    with contextlib.closing(Database(path, MIGRATIONS)) as db:
        with pytest.raises(DatabaseCorrupt):
            db.execute("SELECT text FROM note").fetchall()
        with pytest.raises(DatabaseCorrupt):
            list(db.execute("SELECT text FROM note"))
        with pytest.raises(DatabaseCorrupt):
            db.execute("SELECT text FROM note WHERE id = 7").fetchone()

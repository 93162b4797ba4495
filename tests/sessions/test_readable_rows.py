"""Rows of a damaged table: those that can be read, and ids that may have had one."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from hermes_core.sessions.maintenance import readable_rows
from hermes_core.storage.sqlite import Database, Migration


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
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = list(readable_rows(connection, "note", ["id", "text"]))
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

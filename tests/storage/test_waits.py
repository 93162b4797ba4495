"""Waits of a writer for other processes: long once, then short."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.sqlite import Database
from tests.storage.notes import MIGRATIONS, notes, posix


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "notes.db"
    with contextlib.closing(Database(path, MIGRATIONS)) as database:
        _ = database.connection
    return path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def patience(database: Database) -> int:
    return int(database.execute("PRAGMA busy_timeout").fetchone()[0])


def add(database: Database, text: str) -> None:
    with database.transaction() as connection:
        connection.execute("INSERT INTO note VALUES (?)", (text,))


def test_after_a_wait_in_vain_the_next_one_is_short_until_the_file_was_free(path: Path) -> None:
    with contextlib.closing(Database(path, MIGRATIONS, busy_timeout=0.3)) as database:
        assert patience(database) == 300
        for _ in range(2):
            with locked(path), pytest.raises(DatabaseUnavailable, match="locked"):
                add(database, "a")
        assert patience(database) == 10
        add(database, "b")
        add(database, "c")
        assert patience(database) == 300


def test_after_a_failed_open_the_next_wait_is_short_as_well(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    sqlite3.connect(path).close()
    with contextlib.closing(Database(path, MIGRATIONS, busy_timeout=0.3)) as database:
        with locked(path), pytest.raises(DatabaseUnavailable, match="locked"):
            _ = database.connection
        assert patience(database) == 10


def test_a_program_that_ends_waits_shortly(path: Path) -> None:
    with contextlib.closing(Database(path, MIGRATIONS)) as database:
        database.shorten_waits()
        add(database, "a")
        assert patience(database) == 1000


def test_a_close_does_not_wait_for_a_thread_that_waits_for_another_process(path: Path) -> None:
    opened = threading.Event()
    database = Database(path, MIGRATIONS)

    def write() -> None:
        _ = database.connection
        opened.set()
        add(database, "a")

    with locked(path):
        writer = threading.Thread(target=write)
        writer.start()
        assert opened.wait(30)
        database.close()
        assert writer.is_alive()
    writer.join()
    with contextlib.closing(Database(path, MIGRATIONS)) as again:
        assert notes(again) == ["a"]


@posix
def test_a_process_suspended_in_the_queue_delays_the_others_by_a_second_at_most(path: Path) -> None:
    import fcntl

    with contextlib.closing(Database(path, MIGRATIONS, queue_writers=True, busy_timeout=0.1)) as database:
        add(database, "a")
        with path.with_name("notes.db.queue").open() as queue:
            fcntl.flock(queue, fcntl.LOCK_EX)
            add(database, "b")
        add(database, "c")
        assert notes(database) == ["a", "b", "c"]

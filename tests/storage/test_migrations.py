"""Migrations, and files that several processes open and close at once."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.storage.sqlite import SCHEMA_1, Database, Migration, pending
from tests.storage.notes import MIGRATIONS, notes, posix, run


def test_migrations_run_in_order_once_and_leave_a_record(tmp_path: Path) -> None:
    ran = []
    steps: list[Migration] = [(name, lambda _, name=name: ran.append(name)) for name in ("one", "two")]  # type: ignore[misc]
    for upto in (1, 2, 2):
        with contextlib.closing(Database(tmp_path / "notes.db", steps[:upto])) as database:
            assert pending(database.connection, steps[:upto]) == []
    assert ran == ["one", "two"]


def test_two_migrations_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="share a name"):
        Database(tmp_path / "notes.db", [*MIGRATIONS, *MIGRATIONS])


def test_a_migration_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (x)")
        raise KeyError

    failing = Database(tmp_path / "notes.db", [*MIGRATIONS, ("0002", fail)])
    with contextlib.closing(failing), pytest.raises(KeyError):
        _ = failing.connection
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"note", "schema_migrations"}


SLOW_MIGRATION = """
import sys, time
from pathlib import Path
from hermes_core.storage.sqlite import Database
def make(connection):
    connection.execute("CREATE TABLE note (text TEXT) STRICT")
    connection.execute("INSERT INTO note VALUES ('made')")
    print("inside", flush=True)
    time.sleep(float(sys.argv[2]))
Database(Path(sys.argv[1]), [("0001_notes", make)]).connection
"""


def test_two_processes_that_open_at_once_migrate_exactly_once(tmp_path: Path) -> None:
    children = [run(SLOW_MIGRATION, tmp_path / "notes.db", 0.3) for _ in range(3)]
    results = [child.communicate() for child in children]
    assert [err for _, err in results] == ["", "", ""]
    assert sorted(out for out, _ in results) == ["", "", "inside\n"]
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        assert notes(database) == ["made"]


@posix
def test_a_process_killed_inside_a_migration_leaves_it_to_the_next(tmp_path: Path) -> None:
    child = run(SLOW_MIGRATION, tmp_path / "notes.db", 60)
    assert child.stdout
    assert child.stdout.readline() == "inside\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        assert notes(database) == []
        assert database.integrity() == []


@posix
def test_what_a_killed_process_acknowledged_is_there(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from hermes_core.storage.sqlite import Database
def make(connection):
    connection.execute("CREATE TABLE note (text TEXT) STRICT")
database = Database(Path(sys.argv[1]), [("0001_notes", make)])
for n in range(10_000):
    with database.transaction() as connection:
        connection.execute("INSERT INTO note VALUES (?)", (str(n),))
    print(n, flush=True)
"""
    child = run(code, tmp_path / "notes.db")
    assert child.stdout
    acknowledged = [child.stdout.readline() for _ in range(30)]
    child.send_signal(signal.SIGKILL)
    acknowledged += child.communicate()[0].splitlines(keepends=True)
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        assert set(notes(database)) >= {line.strip() for line in acknowledged if line.endswith("\n")}


def test_a_new_file_may_be_opened_by_several_at_once(tmp_path: Path) -> None:
    for life in range(12):
        path = tmp_path / f"{life}.db"
        databases = [Database(path, MIGRATIONS) for _ in range(4)]
        together = threading.Barrier(len(databases))
        faults: list[BaseException] = []

        def open_it(
            database: Database,
            together: threading.Barrier = together,
            faults: list[BaseException] = faults,
        ) -> None:
            together.wait()
            try:
                assert notes(database) == []
            except StorageError as exc:
                faults.append(exc)

        threads = [threading.Thread(target=open_it, args=(database,)) for database in databases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for database in databases:
            database.close()
        assert faults == []


CLOSED_UNDER_READERS = """
import sqlite3, sys, threading
from pathlib import Path
from hermes_core.errors import HermesError
from hermes_core.storage.sqlite import Database

def read(db):
    try:
        while True:
            db.execute("SELECT * FROM sqlite_master WHERE name = ?", ("x",)).fetchall()
    except HermesError:
        pass

for number in range(60):
    db = Database(Path(sys.argv[1], f"{number}.db"))
    threads = [threading.Thread(target=read, args=(db,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    db.execute("CREATE TABLE t (x)")
    db.close()
    for thread in threads:
        thread.join()
"""


def test_a_database_may_be_closed_while_other_threads_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_UNDER_READERS, str(tmp_path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


BUSY = """
import sys
from pathlib import Path
from hermes_core.storage.sqlite import Database

db = Database(Path(sys.argv[1]), queue_writers=True)
print("ready", flush=True)
while True:
    with db.transaction() as connection:
        connection.execute("INSERT INTO note VALUES ('busy')")
"""


@posix
def test_beside_a_process_that_never_stops_writing_others_can_write(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with contextlib.closing(Database(path, MIGRATIONS)) as database:
        _ = database.connection
        child = run(BUSY, path)
        assert child.stdout is not None
        child.stdout.readline()
        waited = []
        for _ in range(40):
            began = time.monotonic()
            with database.transaction() as connection:
                connection.execute("INSERT INTO note VALUES ('ours')")
            waited.append(time.monotonic() - began)
        child.kill()
        child.communicate()
        assert notes(database).count("ours") == 40
        assert (
            sorted(waited)[-4] < 5
        )  # without a queue some wait until the other process ends, which it does not


@posix
def test_a_writer_that_holds_the_lock_too_long_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with (
        contextlib.closing(Database(path, MIGRATIONS)) as holder,
        contextlib.closing(Database(path, MIGRATIONS, busy_timeout=0.05)) as other,
    ):
        _ = other.connection
        with (
            holder.transaction(),
            pytest.raises(DatabaseUnavailable, match="database is locked"),
            other.transaction(),
        ):
            pass
        with other.transaction() as connection:
            connection.execute("INSERT INTO note VALUES ('later')")
        assert notes(holder) == ["later"]


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE sessions (id)")
    before = path.read_bytes()
    database = Database(path, [("first", lambda connection: None)])

    with pytest.raises(DatabaseUnavailable, match=r"made by another program.*home of its own"):
        database.execute("SELECT 1")
    database.close()
    assert path.read_bytes() == before


def test_a_database_of_a_newer_version_is_refused_and_one_of_an_older_is_not(tmp_path: Path) -> None:
    steps: list[Migration] = [(name, lambda _: None) for name in ("one", "cut-1", "cut-2", "two")]
    old, new, renamed = steps[:2], steps, [steps[0], steps[2]]
    path = tmp_path / "notes.db"
    for names in (old, renamed, renamed, new, new):  # what an older version has done may be named no more
        with contextlib.closing(Database(path, names)) as database:
            _ = database.connection
    before = path.read_bytes()
    for names in (old, renamed):
        with contextlib.closing(Database(path, names)) as database:
            with pytest.raises(DatabaseUnavailable, match="newer version") as refused:
                _ = database.connection
            assert "upgrade" in refused.value.remedy
    assert path.read_bytes() == before


def test_a_database_of_before_the_first_release_is_refused_with_the_way_to_convert_it(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with contextlib.closing(Database(path, [*MIGRATIONS, ("titles", _add_titles)])) as development:
        assert development.connection
    before = path.read_bytes()
    released = Database(path, [(SCHEMA_1, MIGRATIONS[0][1])])
    with contextlib.closing(released), pytest.raises(DatabaseUnavailable) as refused:
        _ = released.connection
    assert "before 0.1.0 (it has 'titles', this version needs 'tables-1')" in refused.value.message
    assert "python bench/convert_home.py HOME" in refused.value.remedy
    assert path.read_bytes() == before


def test_what_a_later_version_appends_runs_on_a_database_of_the_first(tmp_path: Path) -> None:
    first = [(SCHEMA_1, MIGRATIONS[0][1])]
    for steps in (first, [*first, ("titles", _add_titles)]):
        with contextlib.closing(Database(tmp_path / "notes.db", steps)) as database:
            names = [row["name"] for row in database.execute("PRAGMA table_info(note)")]
            assert ("title" in names) == (len(steps) == 2)


def test_migrations_that_a_file_lacks_run_in_one_transaction(tmp_path: Path) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise ValueError

    failing = Database(tmp_path / "notes.db", [*MIGRATIONS, ("titles", _add_titles), ("wrong", fail)])
    with contextlib.closing(failing), pytest.raises(ValueError):
        _ = failing.connection
    with contextlib.closing(sqlite3.connect(tmp_path / "notes.db")) as raw:
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == []


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM schema_migrations",
        "DELETE FROM schema_migrations WHERE name = 'titles'",
        "UPDATE schema_migrations SET name = 'x' || name",
        "ALTER TABLE schema_migrations RENAME COLUMN name TO x",
    ],
)
def test_a_record_of_migrations_that_does_not_fit_the_tables_is_damage(tmp_path: Path, harm: str) -> None:
    path, steps = tmp_path / "notes.db", [*MIGRATIONS, ("titles", _add_titles)]
    with contextlib.closing(Database(path, steps, journal_mode="delete")) as database:
        database.execute(harm)
    before = path.read_bytes()
    again = Database(path, steps, journal_mode="delete", repair="call the doctor")
    with contextlib.closing(again), pytest.raises(DatabaseCorrupt) as refused:
        _ = again.connection
    assert "record of migrations does not fit its tables (" in refused.value.message
    assert refused.value.remedy == "call the doctor"
    assert path.read_bytes() == before


def test_a_migration_that_is_wrong_in_a_new_file_stays_the_error_that_it_is(tmp_path: Path) -> None:
    steps = [*MIGRATIONS, ("titles", _add_titles), ("twice", _add_titles)]
    database = Database(tmp_path / "notes.db", steps)
    with contextlib.closing(database), pytest.raises(sqlite3.OperationalError, match="duplicate column"):
        _ = database.connection


def _add_titles(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE note ADD COLUMN title TEXT")

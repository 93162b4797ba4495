from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.storage.files import FileSystem
from hermes_core.storage.sqlite import Database, Migration, pending

posix = pytest.mark.skipif(os.name == "nt", reason="modes, limits and signals are POSIX")


def make_notes(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE note (text TEXT) STRICT")


MIGRATIONS: tuple[Migration, ...] = (("0001_notes", make_notes),)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        yield database


def notes(database: Database) -> list[str]:
    return [row["text"] for row in database.execute("SELECT text FROM note ORDER BY rowid")]


def _add_and_raise(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO note VALUES ('a')")
    raise KeyError


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    Database(tmp_path / "new" / "notes.db", MIGRATIONS)
    assert list(tmp_path.iterdir()) == []


def test_a_transaction_commits_when_its_block_ends(db: Database) -> None:
    with db.transaction() as connection:
        connection.execute("INSERT INTO note VALUES ('a')")
    assert notes(db) == ["a"]


def test_an_error_of_the_callers_own_file_passes_as_it_is(db: Database, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), db.transaction():
        (tmp_path / "absent").read_text()


def test_a_transaction_that_raises_leaves_nothing_and_the_next_one_works(db: Database) -> None:
    with pytest.raises(KeyError), db.transaction() as connection:
        _add_and_raise(connection)
    with db.transaction() as connection:
        connection.execute("INSERT INTO note VALUES ('b')")
    assert notes(db) == ["b"]


def test_an_inner_transaction_belongs_to_the_outer_one(db: Database) -> None:
    def outer() -> None:
        with db.transaction():
            with db.transaction() as connection:
                connection.execute("INSERT INTO note VALUES ('a')")
            raise KeyError

    with pytest.raises(KeyError):
        outer()
    assert notes(db) == []


def test_threads_have_a_connection_each_and_lose_nothing(db: Database) -> None:
    connections: list[object] = []  # kept, so that no two can have one address

    def add(name: str) -> None:
        connections.append(db.connection)
        for _ in range(25):
            with db.transaction() as connection:
                connection.execute("INSERT INTO note VALUES (?)", (name,))

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(notes(db)) == sorted("abcd" * 25)
    assert len({id(connection) for connection in connections}) == 4


def test_threads_of_one_process_never_time_out_on_one_another(tmp_path: Path) -> None:
    entered, may_go = threading.Event(), threading.Event()
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS, busy_timeout=0)) as database:
        _ = database.connection

        def hold() -> None:
            with database.transaction():
                entered.set()
                may_go.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        entered.wait()
        threading.Timer(0.05, may_go.set).start()
        with database.transaction() as connection:
            connection.execute("INSERT INTO note VALUES ('a')")
        holder.join()
        assert notes(database) == ["a"]


def test_a_connection_goes_with_its_thread(db: Database) -> None:
    def use() -> None:
        _ = db.connection

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    gc.collect()
    assert len(db._all_held) == 0


def test_a_closed_database_says_so_and_closing_twice_is_harmless(db: Database) -> None:
    _ = db.connection
    db.close()
    db.close()
    with pytest.raises(DatabaseUnavailable, match="was closed"):
        _ = db.connection


@posix
def test_every_file_of_a_database_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with contextlib.closing(Database(tmp_path / "home" / "notes.db", MIGRATIONS)) as database:
            with database.transaction() as connection:
                connection.execute("INSERT INTO note VALUES ('a')")
            database.backup(tmp_path / "home" / "copy.db")
            modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "home").iterdir()}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert {"notes.db", "notes.db-wal", "copy.db"} <= modes.keys()


@pytest.mark.parametrize(
    ("kind", "wanted", "mode"),
    [
        ("ext4", "auto", "wal"),
        ("nfs4", "auto", "delete"),
        ("nfs4", "wal", "wal"),
        ("ext4", "delete", "delete"),
    ],
)
def test_the_journal_follows_the_file_system_unless_it_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, wanted: str, mode: str
) -> None:
    database = Database(
        tmp_path / "notes.db",
        MIGRATIONS,
        journal_mode=wanted,  # type: ignore[arg-type]
        file_system=lambda _: FileSystem(kind),
    )
    with contextlib.closing(database), caplog.at_level(logging.WARNING):
        assert database.execute("PRAGMA journal_mode").fetchone()[0] == mode
        assert database.journal_mode == mode
    assert len(caplog.records) == (1 if (kind, wanted) == ("nfs4", "auto") else 0)


def test_a_backup_taken_while_others_write_is_whole(db: Database, tmp_path: Path) -> None:
    with db.transaction() as connection:
        connection.executemany("INSERT INTO note VALUES (?)", [("x" * 100,)] * 500)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            with db.transaction() as connection:
                connection.execute("INSERT INTO note VALUES ('more')")

    writer = threading.Thread(target=write)
    writer.start()
    db.backup(tmp_path / "copy.db")
    done.set()
    writer.join()
    with contextlib.closing(Database(tmp_path / "copy.db", MIGRATIONS)) as copy:
        assert copy.integrity() == []
        assert len(notes(copy)) >= 500


def test_a_backup_replaces_what_was_there_even_if_that_is_damaged(db: Database, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_bytes(b"damaged" * 1000)
    db.backup(tmp_path / "copy.db")
    with contextlib.closing(Database(tmp_path / "copy.db", MIGRATIONS)) as copy:
        assert notes(copy) == []
    assert not list(tmp_path.glob("*partial*"))


def test_a_reader_changes_nothing_and_makes_nothing(db: Database, tmp_path: Path) -> None:
    _ = db.connection
    with contextlib.closing(Database(tmp_path / "notes.db", read_only=True)) as reader:
        assert notes(reader) == []
        with pytest.raises(DatabaseUnavailable):
            reader.execute("INSERT INTO note VALUES ('a')")
    absent = Database(tmp_path / "absent.db", read_only=True)
    with pytest.raises(DatabaseUnavailable):
        _ = absent.connection
    assert not (tmp_path / "absent.db").exists()


# ---------------------------------------------------------------------- damage


def damaged(path: Path, how: str) -> bytes:
    with (
        contextlib.closing(Database(path, MIGRATIONS, journal_mode="delete")) as database,
        database.transaction() as connection,
    ):
        connection.executemany("INSERT INTO note VALUES (?)", [("x" * 500,)] * 100)
    data = bytearray(path.read_bytes())
    if how == "no database":
        data[:] = b"this was never a database, " * 100
    elif how == "cut short":
        del data[len(data) // 2 :]
    else:
        data[100:4096] = b"\xff" * 3996
    path.write_bytes(data)
    return bytes(data)


@pytest.mark.parametrize("how", ["no database", "cut short", "overwritten"])
def test_damage_is_named_with_what_to_do_and_the_file_stays_as_it_was(tmp_path: Path, how: str) -> None:
    path = tmp_path / "notes.db"
    before = damaged(path, how)
    database = Database(path, MIGRATIONS, journal_mode="delete")
    with contextlib.closing(database), pytest.raises(DatabaseCorrupt) as caught:
        database.execute("SELECT count(*), max(text) FROM note").fetchall()
    assert str(path) in caught.value.message
    assert "restore a backup" in caught.value.remedy
    assert path.read_bytes() == before


def test_a_file_of_zero_bytes_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / "notes.db").touch()
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        assert notes(database) == []


def test_a_folder_or_a_file_in_the_way_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "notes.db"):
        with pytest.raises(StorageError):
            _ = Database(path, MIGRATIONS).connection


def test_another_program_that_holds_the_file_is_named(db: Database, tmp_path: Path) -> None:
    _ = db.connection
    other = Database(tmp_path / "notes.db", MIGRATIONS, busy_timeout=0.05)
    with contextlib.closing(other), db.transaction(), pytest.raises(DatabaseUnavailable, match="locked"):
        other.execute("BEGIN IMMEDIATE")


def test_a_mistake_in_sql_stays_the_error_that_it_is(db: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        db.execute("SELECT * FROM absent")


@posix
def test_a_full_disk_is_named_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.sqlite import Database
def make(connection):
    connection.execute("CREATE TABLE note (text TEXT) STRICT")
database = Database(Path(sys.argv[1]), [("0001_notes", make)], journal_mode="delete")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
database.connection
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    while True:
        with database.transaction() as connection:
            connection.execute("INSERT INTO note VALUES (?)", ("x" * 2000,))
        print("stored", flush=True)
except DatabaseUnavailable as exc:
    print(exc)
"""
    out, err = run(code, tmp_path / "notes.db").communicate()
    *stored, message = out.splitlines()
    assert (err, set(stored)) == ("", {"stored"})
    assert "nothing was written" in message
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        assert len(notes(database)) == len(stored)


# ------------------------------------------------------------------ migrations


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

db = Database(Path(sys.argv[1]), take_turns=True)
print("ready", flush=True)
while True:
    with db.transaction() as connection:
        connection.execute("INSERT INTO note VALUES ('busy')")
"""


@posix
def test_beside_a_process_that_never_stops_writing_others_get_their_turn(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with contextlib.closing(Database(path, MIGRATIONS, take_turns=True)) as database:
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
        assert sorted(waited)[-4] < 0.5


@posix
def test_who_never_gives_the_turn_back_is_named_after_a_while(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    with (
        contextlib.closing(Database(path, MIGRATIONS, take_turns=True)) as holder,
        contextlib.closing(Database(path, MIGRATIONS, take_turns=True, busy_timeout=0.05)) as other,
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

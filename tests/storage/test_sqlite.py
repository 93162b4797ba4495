from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.storage.files import FileSystem
from hermes_core.storage.sqlite import Database, database_files
from tests.storage.notes import MIGRATIONS, notes, posix, run


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        yield database


def _add_and_raise(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO note VALUES ('a')")
    raise KeyError


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    Database(tmp_path / "new" / "notes.db", MIGRATIONS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "synchronous", "secure_delete"),
    [({}, 2, 0), ({"synchronous": "NORMAL", "secure_delete": True}, 1, 1)],
)
def test_every_connection_has_the_settings(
    tmp_path: Path, given: dict[str, Any], synchronous: int, secure_delete: int
) -> None:
    settings: list[tuple[int, int]] = []

    def look() -> None:
        asked = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "secure_delete"))
        settings.append(tuple(asked))

    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS, **given)) as db:
        look()
        another = threading.Thread(target=look)
        another.start()
        another.join()
    assert settings == [(synchronous, secure_delete)] * 2


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
    assert len(db._connections) == 0


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


class Failing(sqlite3.Connection):
    """A connection that can't set the journal mode, with the error in `reason`."""

    reason = ""

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if self.reason and sql == "PRAGMA journal_mode = wal":
            raise sqlite3.OperationalError(self.reason)
        return super().execute(sql, *arguments)


@pytest.mark.parametrize("reason", ["disk I/O error", "locking protocol", "not authorized"])
def test_an_error_never_takes_the_write_ahead_log_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    path = tmp_path / "notes.db"
    with contextlib.closing(Database(path, MIGRATIONS)) as database:
        database.execute("INSERT INTO note VALUES ('a')")
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
    monkeypatch.setattr(Failing, "reason", reason)
    database = Database(path, MIGRATIONS)
    with contextlib.closing(database), pytest.raises(DatabaseUnavailable, match=reason):
        notes(database)
    assert path.read_bytes()[18:20] == b"\x02\x02"
    monkeypatch.setattr(Failing, "reason", "")
    with contextlib.closing(Database(path, MIGRATIONS)) as again:
        assert (notes(again), again.journal_mode) == (["a"], "wal")


def test_an_io_error_is_raised_for_a_new_file_and_a_refusal_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
    monkeypatch.setattr(Failing, "reason", "disk I/O error")
    with (
        contextlib.closing(Database(tmp_path / "a.db", MIGRATIONS)) as database,
        pytest.raises(DatabaseUnavailable, match="disk I/O error"),
    ):
        notes(database)
    monkeypatch.setattr(Failing, "reason", "locking protocol")
    with contextlib.closing(Database(tmp_path / "b.db", MIGRATIONS)) as database:
        assert (notes(database), database.journal_mode) == ([], "delete")


class Gone(sqlite3.Connection):
    """A connection to a disk that is `gone`: SQLite calls a failed read damage, and a new connection finds no file."""

    gone = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        if self.gone:
            raise sqlite3.OperationalError("unable to open database file")
        super().__init__(*arguments, **named)

    def cursor(self, *arguments: Any) -> Any:
        if self.gone:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return super().cursor(*arguments)


def test_a_disk_that_is_gone_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Gone))
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        notes(database)
        monkeypatch.setattr(Gone, "gone", True)
        with pytest.raises(DatabaseUnavailable, match="unable to open database file"):
            notes(database)
        monkeypatch.setattr(Gone, "gone", False)


def test_on_macos_a_commit_reaches_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with contextlib.closing(Database(tmp_path / "notes.db", MIGRATIONS)) as database:
        for pragma in ("fullfsync", "checkpoint_fullfsync"):
            assert database.execute(f"PRAGMA {pragma}").fetchone()[0] == 1


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


def test_backups_of_two_at_once_are_whole(db: Database, tmp_path: Path) -> None:
    with db.transaction() as connection:
        connection.executemany("INSERT INTO note VALUES (?)", [("x" * 2000,)] * 1000)
    failures: list[BaseException] = []

    def copy() -> None:
        try:
            for _ in range(10):
                db.backup(tmp_path / "copy.db")
        except StorageError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with contextlib.closing(Database(tmp_path / "copy.db", MIGRATIONS)) as made:
        assert len(notes(made)) == 1000


@posix
def test_a_backup_that_finds_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.sqlite import Database
from tests.storage.notes import MIGRATIONS
database = Database(Path(sys.argv[1]), MIGRATIONS)
with database.transaction() as connection:
    connection.execute("INSERT INTO note VALUES (?)", ("x" * 200_000,))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    database.backup(Path(sys.argv[2]) / "copy.db")
except DatabaseUnavailable as exc:
    print(exc)
"""
    folder = tmp_path / "backups"
    out, err = run(code, tmp_path / "notes.db", folder).communicate()
    assert ("nothing was written" in out, err) == (True, "")
    assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == []


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
    elif how == "no text in the schema":
        data[:] = data.replace(b"CREATE TABLE note", b"CRE\x8aTE TABLE note")
    else:
        data[100:4096] = b"\xff" * 3996
    path.write_bytes(data)
    return bytes(data)


@pytest.mark.parametrize("how", ["no database", "cut short", "overwritten", "no text in the schema"])
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


def test_too_many_open_files_are_not_taken_for_a_matter_of_rights(tmp_path: Path) -> None:
    def exhausted(_path: Path) -> FileSystem:
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(DatabaseUnavailable, match="Too many open files; close what this program has open"):
        _ = Database(tmp_path / "notes.db", MIGRATIONS, file_system=exhausted).connection


def test_another_program_that_holds_the_file_is_named(db: Database, tmp_path: Path) -> None:
    _ = db.connection
    other = Database(tmp_path / "notes.db", MIGRATIONS, busy_timeout=0.05)
    with contextlib.closing(other), db.transaction(), pytest.raises(DatabaseUnavailable, match="locked"):
        other.execute("BEGIN IMMEDIATE")


def test_a_mistake_in_sql_stays_the_error_that_it_is(db: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="syntax error"):
        db.execute("SELECT FROM")


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


FORKED = """
import os, sys, threading
from pathlib import Path
from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.sqlite import Database
from tests.storage.notes import MIGRATIONS

db = Database(Path(sys.argv[1]), MIGRATIONS)
db.execute("INSERT INTO note VALUES ('before')")
busy, go_on = threading.Event(), threading.Event()

def write():
    with db.transaction() as connection:
        connection.execute("INSERT INTO note VALUES ('meanwhile')")
        busy.set()
        go_on.wait()

writer = threading.Thread(target=write)
writer.start()
busy.wait()
if os.fork() == 0:
    for use in (db.execute, lambda sql: db.connection.execute(sql), lambda sql: db.transaction().__enter__()):
        try:
            use("INSERT INTO note VALUES ('forked')")
        except DatabaseUnavailable as exc:
            print("fork" in str(exc), flush=True)
    try:
        Database(Path(sys.argv[1])).execute("INSERT INTO note VALUES ('anew')")
    except DatabaseUnavailable as exc:
        print("fork first" in str(exc), flush=True)
    other = Database(Path(sys.argv[1]).with_name("other.db"), MIGRATIONS)
    print(other.execute("INSERT INTO note VALUES ('other')").rowcount, flush=True)
    db.close()
    os._exit(0)
os.wait()
go_on.set()
writer.join()
print(*[row[0] for row in db.execute("SELECT * FROM note")])
db.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_to_fork_first_and_may_use_other_files(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "notes.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["True"] * 4 + ["1", "before", "meanwhile"], "")


FORKED_IN_A_STATEMENT = """
import os, sys, threading
from pathlib import Path
from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.sqlite import Database
from tests.storage.notes import MIGRATIONS

db = Database(Path(sys.argv[1]), MIGRATIONS)
busy, go_on = threading.Event(), threading.Event()

def write():
    db.connection.create_function("waited", 0, lambda: busy.set() or go_on.wait())
    db.execute("INSERT INTO note VALUES (waited())")

writer = threading.Thread(target=write)
writer.start()
busy.wait()
if os.fork() == 0:
    try:
        Database(Path(sys.argv[1])).execute("INSERT INTO note VALUES ('anew')")
    except DatabaseUnavailable as exc:
        print("fork first" in str(exc), flush=True)
    sys.exit()
os.wait()
go_on.set()
writer.join()
print(*[row[0] for row in db.execute("SELECT * FROM note")])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_midst_of_another_threads_statement_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED_IN_A_STATEMENT, str(tmp_path / "notes.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["True", "1"], "")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed database with ten notes."""
    path = tmp_path / "notes.db"
    with contextlib.closing(Database(path, MIGRATIONS)) as database, database.transaction() as connection:
        connection.executemany("INSERT INTO note VALUES (?)", [(f"text {number}",) for number in range(10)])
    return path


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
        connection.execute("UPDATE note SET text = CAST(x'ff41' AS TEXT) WHERE rowid = 7")
        connection.commit()
    with contextlib.closing(Database(path, MIGRATIONS)) as db:
        with pytest.raises(DatabaseCorrupt):
            db.execute("SELECT text FROM note").fetchall()
        with pytest.raises(DatabaseCorrupt):
            list(db.execute("SELECT text FROM note"))
        with pytest.raises(DatabaseCorrupt):
            db.execute("SELECT text FROM note WHERE rowid = 7").fetchone()


def test_an_empty_file_is_damage_if_the_caller_says_so_and_no_crash_leaves_one(path: Path) -> None:
    path.write_bytes(b"")
    with (
        contextlib.closing(Database(path, MIGRATIONS, empty_is_damage=True)) as database,
        pytest.raises(DatabaseCorrupt, match="is empty, though it held rows"),
    ):
        database.execute("SELECT 1")
    assert path.read_bytes() == b""
    path.unlink()
    sizes: list[int] = []

    def look(connection: sqlite3.Connection) -> None:
        sizes.append(path.stat().st_size)

    with contextlib.closing(Database(path, [("look", look)], empty_is_damage=True)) as database:
        database.execute("SELECT 1")
    assert sizes[0] > 0


@pytest.mark.posix_files("moves a file that is open")
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_moved_file_is_refused(path: Path, tmp_path: Path, fate: str) -> None:
    other = tmp_path / "other.db"
    with contextlib.closing(Database(other, MIGRATIONS)) as database:
        database.execute("INSERT INTO note VALUES ('of the other')")
    with contextlib.closing(Database(path, MIGRATIONS)) as refusing:
        assert len(notes(refusing)) == 10
        for file in database_files(path):
            file.unlink()
        if fate == "replaced":
            other.rename(path)
        with pytest.raises(DatabaseUnavailable, match="moved, deleted or replaced"), refusing.transaction():
            pass

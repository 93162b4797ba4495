"""Reading of an outbox in a separate file `outbox.db`, in particular of the tables that an earlier checkout wrote."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.outbox.store import UNKNOWN_ACCOUNT, Outbox, create_tables
from hermes_core.storage.sqlite import Database

_COLUMNS = "provider, session_id, hook, event, created_at, fingerprint, body"


def open_outbox(home: HermesHome, **options: Any) -> Outbox:
    """Open the outbox in `outbox.db`, for a manager without a session store. Pass `options` to `Outbox`."""
    migrations = (("outbox", create_tables), ("outbox of 0.1", adopt_first_tables))
    return Outbox(Database(home.outbox_db, migrations, secure_delete=True), **options)


def has_own_outbox(home: HermesHome) -> bool:
    """Return True if the outbox of this home has to be in `outbox.db`, because another program wrote state.db.

    This is the case in a home of Hermes Agent, if a provider runs there under a manager without a session store.
    """
    if not (home.outbox_db.exists() and home.state_db.exists()):
        return False
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    # Read without `Database`, which refuses a file of another program. A damaged file is reported when it is opened.
    with contextlib.suppress(sqlite3.Error):
        with contextlib.closing(sqlite3.connect(f"{home.state_db.as_uri()}?mode=ro", uri=True)) as connection:
            tables = {row[0] for row in connection.execute(query)}
        return bool(tables) and "schema_migrations" not in tables
    return False


def adopt_first_tables(connection: sqlite3.Connection) -> None:
    """Move the rows of an earlier checkout into the current tables of the same file, as a migration."""
    if has_first_tables(connection):
        copy_rows(connection, connection)
        for table in ("rows", "arrived", "settled", "providers", "totals"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")


def is_first_outbox(path: Path) -> bool:
    """Return True if the outbox at `path` has the tables of an earlier checkout, False if it has the current tables.

    Raises:
        DatabaseCorrupt: The file is damaged.
        DatabaseUnavailable: The file can't be opened.
    """
    with contextlib.closing(Database(path)) as database:
        return has_first_tables(database)


def has_first_tables(reader: sqlite3.Connection | Database) -> bool:
    """Return True if the database has the tables of an earlier checkout."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'settled'"
    return reader.execute(query).fetchone() is not None


def provider_names(old: Database) -> list[str]:
    """Return the names of the providers that have rows or remembered ids in an outbox with old or current tables."""
    rows, settled = ("rows", "settled") if has_first_tables(old) else ("outbox_rows", "outbox_settled")
    query = f"SELECT provider FROM {rows} UNION SELECT provider FROM {settled}"  # noqa: S608  two constants
    return [row[0] for row in old.execute(query)]


def copy_rows(old: sqlite3.Connection | Database, new: sqlite3.Connection) -> None:
    """Copy the rows and the remembered ids of an outbox with old or current tables, in the caller's transaction.

    A row that `new` already has is left out, so that an interrupted copy can be repeated. Copied rows keep their
    numbers, because the `.row` file of the delivery lock may hold the number of one of them. Rows that were in `new`
    before are newer and get higher numbers. The caller must prevent delivery during the copy.

    Raises:
        StorageError: A row is missing after the copy.
    """
    settled, rows = _first_tables(old) if has_first_tables(old) else _todays_tables(old)
    new.executemany(
        "INSERT OR IGNORE INTO outbox_settled (provider, hook, event, fingerprint, settled_at) VALUES (?, ?, ?, ?, ?)",
        settled,
    )
    fresh = [row for row in rows if not _knows(new, row[4], row[6], row[7])]
    if fresh:
        new.execute("UPDATE outbox_rows SET number = -number")
        new.execute("UPDATE outbox_rows SET number = ? - number", (rows[-1][0],))
        new.executemany(
            f"INSERT OR IGNORE INTO outbox_rows (number, state, attempts, error, {_COLUMNS})"  # noqa: S608  constants
            f" VALUES ({', '.join('?' * 11)})",
            fresh,
        )
    for row in rows:
        if not _knows(new, row[4], row[6], row[7]):
            raise StorageError(
                f"{row[6]} {row[7]!r} for {row[4]!r} was not copied from the outbox of the earlier version",
                "report this; nothing was changed",
            )


_Rows = list[tuple[Any, ...]]


def _first_tables(old: sqlite3.Connection | Database) -> tuple[_Rows, _Rows]:
    ids = "SELECT provider, hook, event, ?, settled_at FROM settled"
    settled = [tuple(row) for row in old.execute(ids, (UNKNOWN_ACCOUNT,))]
    state = "CASE state WHEN 'parked' THEN 'dead letter' ELSE state END"
    query = f"SELECT number, {state}, attempts, error, {_COLUMNS} FROM rows ORDER BY number"  # noqa: S608  constants
    rows = [tuple(row) for row in old.execute(query)]
    if old.execute("SELECT 1 FROM sqlite_master WHERE name = 'arrived'").fetchone():
        # An earlier checkout stored the newest turns in a second table, with separate numbers.
        last = rows[-1][0] if rows else 0
        query = f"SELECT number + ?, 'pending', 0, '', {_COLUMNS} FROM arrived ORDER BY number"  # noqa: S608
        rows += map(tuple, old.execute(query, (last,)))
    return settled, rows


def _todays_tables(old: sqlite3.Connection | Database) -> tuple[_Rows, _Rows]:
    ids = "SELECT provider, hook, event, fingerprint, settled_at FROM outbox_settled"
    query = f"SELECT number, state, attempts, error, {_COLUMNS} FROM outbox_rows ORDER BY number"  # noqa: S608
    return [tuple(row) for row in old.execute(ids)], [tuple(row) for row in old.execute(query)]


def _knows(connection: sqlite3.Connection, provider: str, hook: str, event: str) -> bool:
    return any(
        connection.execute(
            f"SELECT 1 FROM {table} WHERE provider = ? AND hook = ? AND event = ?",  # noqa: S608  two constants
            (provider, hook, event),
        ).fetchone()
        for table in ("outbox_rows", "outbox_settled")
    )

"""Schema migrations: named steps that bring a file of an earlier version up to date, each run once and recorded."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence

Migration = tuple[str, Callable[[sqlite3.Connection], None]]

_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    name TEXT PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT
"""


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[str]:
    """Run the migrations that this database has no record of, each in one transaction with its record.

    Return their names.
    """
    if not migrations:
        return []
    connection.execute(_MIGRATIONS_TABLE)
    ran = []
    for name, step in pending(connection, migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Checked again under the write lock: another process may have been first.
            if not connection.execute("SELECT 1 FROM schema_migrations WHERE name = ?", (name,)).fetchone():
                step(connection)
                connection.execute("INSERT INTO schema_migrations VALUES (?, ?)", (name, time.time()))
                ran.append(name)
            connection.execute("COMMIT")
        finally:
            roll_back(connection)
    return ran


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll back the open transaction, if there is one.

    SQLite itself rolls back some, for instance if the disk is full.
    """
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def pending(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that have no record in this database, in order. The database is not changed."""
    try:
        done = {row[0] for row in connection.execute("SELECT name FROM schema_migrations")}
    except sqlite3.OperationalError:
        done = set()
    return [migration for migration in migrations if migration[0] not in done]

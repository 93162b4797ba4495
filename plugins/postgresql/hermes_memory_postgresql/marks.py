"""Writing of the marks of a store that is moved, with the triggers that refuse writes; see `hermes_core.storage.moved`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hermes_core.storage.engine import Connection, Engine
from hermes_core.storage.moved import MARK_PREFIX, MOVED_WORDS, StoreMark

# Code of the error that the triggers of PostgreSQL raise.
MOVED_CODE = "HM001"

_EVENTS = ("INSERT", "UPDATE", "DELETE")


def write_mark(database: Engine, mark: StoreMark | None, tables: Sequence[str]) -> None:
    """Replace the mark of a store, in one commit with the triggers.

    A source gets triggers that refuse all writes. The call waits for transactions that have begun.

    Args:
        database: The store.
        mark: The new mark; None to take it off.
        tables: The tables that the triggers protect.
    """
    with database.transaction() as connection:
        connection.execute("DELETE FROM schema_migrations WHERE name LIKE ?", (f"{MARK_PREFIX} %",))
        _drop_triggers(connection, database.shared, tables)
        if mark is None:
            return
        connection.execute(
            "INSERT INTO schema_migrations (name, applied_at) VALUES (?, ?)", (mark.name, time.time())
        )
        if mark.role == "source":
            _create_triggers(connection, database.shared, tables, mark.other)


def _create_triggers(connection: Connection, shared: bool, tables: Sequence[str], other: str) -> None:
    quoted = f"{MOVED_WORDS} {other}".replace("'", "''")
    if not shared:
        for table in tables:
            for event in _EVENTS:
                connection.execute(
                    f"CREATE TRIGGER moved_{table}_{event} BEFORE {event} ON {table}"
                    f" BEGIN SELECT RAISE(ABORT, '{quoted}'); END"
                )
        return
    connection.execute(
        "CREATE FUNCTION refuse_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" RAISE EXCEPTION USING MESSAGE = '{quoted}', ERRCODE = '{MOVED_CODE}'; END $$"
    )
    for table in tables:
        connection.execute(
            f"CREATE TRIGGER moved BEFORE INSERT OR UPDATE OR DELETE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_moved()"
        )


def _drop_triggers(connection: Connection, shared: bool, tables: Sequence[str]) -> None:
    if not shared:
        for table in tables:
            for event in _EVENTS:
                connection.execute(f"DROP TRIGGER IF EXISTS moved_{table}_{event}")
        return
    for table in tables:
        connection.execute(f"DROP TRIGGER IF EXISTS moved ON {table}")
    connection.execute("DROP FUNCTION IF EXISTS refuse_moved()")

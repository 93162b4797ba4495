"""The outbox in a file of its own, `outbox.db`, for a manager without a session store."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from typing import Any

from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.outbox.lines import delivery_holders
from hermes_core.outbox.store import OUTBOX_TABLES, Outbox
from hermes_core.storage.engine import Engine
from hermes_core.storage.sqlite import SCHEMA_1, Database, Migration, create_tables

MIGRATIONS: tuple[Migration, ...] = ((SCHEMA_1, lambda connection: create_tables(connection, OUTBOX_TABLES)),)

log = logging.getLogger(__name__)

_IDS = "provider, hook, event, fingerprint, settled_at"
_ROWS = "provider, session_id, hook, event, state, attempts, error, created_at, fingerprint, body"
_UNKNOWN = (
    "NOT EXISTS (SELECT 1 FROM outbox_settled WHERE (provider, hook, event) = (:provider, :hook, :event))"
)


def open_outbox(home: HermesHome, **options: Any) -> Outbox:
    """Open the outbox in `outbox.db`, for a manager without a session store. Pass `options` to `Outbox`."""
    return Outbox(Database(home.outbox_db, MIGRATIONS, secure_delete=True), **options)


def outbox_of_home(home: HermesHome, store: Engine) -> Outbox | None:
    """Return the outbox in the store of sessions, after moving the rows of `outbox.db` there.

    Return None if another program wrote state.db: then the manager has to use `outbox.db`. If `outbox.db` can't be read,
    its rows must still be sent first, so the returned outbox sends nothing; `held_back` is the reason.
    """
    outbox = Outbox(store)
    if store.shared or not home.outbox_db.exists():
        return outbox
    if _has_foreign_store(home):
        return None
    try:
        _take_over(home, outbox)
    except StorageError as exc:
        log.error("the writes in %s can't be sent: %s", home.outbox_db, exc)
        outbox.held_back = str(exc)
    return outbox


def _has_foreign_store(home: HermesHome) -> bool:
    """Return True if another program wrote state.db.

    This is the case in a home of Hermes Agent, if a provider runs there under a manager without a session store.
    """
    if not home.state_db.exists():
        return False
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    # Read without `Database`, which refuses a file of another program. A damaged file is reported when it is opened.
    with contextlib.suppress(sqlite3.Error):
        with contextlib.closing(sqlite3.connect(f"{home.state_db.as_uri()}?mode=ro", uri=True)) as connection:
            tables = {row[0] for row in connection.execute(query)}
        return bool(tables) and "schema_migrations" not in tables
    return False


def _take_over(home: HermesHome, outbox: Outbox) -> None:
    """Move the rows and the remembered ids of `outbox.db` into `outbox`.

    A provider whose rows a running manager delivers is left out: that manager sends them.
    """
    with contextlib.closing(open_outbox(home)) as own:
        names = own.database.execute(
            "SELECT provider FROM outbox_rows UNION SELECT provider FROM outbox_settled"
        )
        for (provider,) in names.fetchall():
            # The inner transaction commits first: after a crash between the two, the rows are moved again, and those
            # that are known by then are left out. No worker takes a line of the source meanwhile.
            with own.database.transaction() as source, outbox.database.transaction() as target:
                if provider in delivery_holders(own):
                    continue
                for table, columns in (("outbox_settled", _IDS), ("outbox_rows", _ROWS)):
                    query = f"SELECT {columns} FROM {table} WHERE provider = ? ORDER BY rowid"  # noqa: S608  constants
                    values = ", ".join(f":{name}" for name in columns.split(", "))
                    insert = f"INSERT OR IGNORE INTO {table} ({columns}) SELECT {values} WHERE {_UNKNOWN}"
                    for row in source.execute(query, (provider,)).fetchall():
                        target.execute(insert, dict(row))
                    source.execute(f"DELETE FROM {table} WHERE provider = ?", (provider,))  # noqa: S608
                # So that a worker that was suspended for longer than its lease settles nothing any more.
                source.execute("DELETE FROM outbox_lines WHERE provider = ?", (provider,))

"""Upgrade of a home that an earlier checkout wrote: the outbox moves from `outbox.db` into state.db.

That checkout stored some session switches for providers in the table `state_meta` of state.db. They become outbox rows
too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hermes_core.contract.values import Session
from hermes_core.errors import DatabaseUnavailable, StorageError
from hermes_core.home import HermesHome
from hermes_core.outbox.lines import DeliveryLock
from hermes_core.outbox.recovery import copy_rows, has_own_outbox, is_first_outbox, provider_names
from hermes_core.outbox.rows import encode, encode_switch, switch_from
from hermes_core.outbox.store import REMEMBERED_S, UNKNOWN_ACCOUNT, Outbox
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import read_meta
from hermes_core.storage.files import locked, sync_folder
from hermes_core.storage.inventory import remove_from_inventory
from hermes_core.storage.sqlite import Database, file_errors

log = logging.getLogger(__name__)

Redact = Callable[[Any], Any]


def upgrade_outbox(home: HermesHome, sessions: SessionDB, redact: Redact) -> None:
    """Move the outbox from `outbox.db` into state.db. Keep the file as `outbox.db.bak` until all rows are delivered.

    The rows are copied in one transaction, and `outbox.db` is renamed after it: if the process is killed in between,
    the next start repeats the upgrade. Locks keep other programs from delivering and adding rows during the upgrade.

    Raises:
        DatabaseUnavailable: Another program still uses `outbox.db`.
        StorageError: The files can't be read or written.
    """
    old, outbox = home.outbox_db, Outbox(sessions.sqlite)
    if old.exists():
        with locked(old):
            if old.exists():  # else another process was first
                _move(home, sessions, outbox, redact)
    delete_backup(home, outbox)


def _move(home: HermesHome, sessions: SessionDB, outbox: Outbox, redact: Redact) -> None:
    old = home.outbox_db
    is_first = is_first_outbox(old)
    try:
        with _no_delivery(home):
            with contextlib.closing(Database(old)) as source, sessions.sqlite.transaction() as connection:
                copy_rows(source, connection)
                if is_first:
                    _add_turns(source, sessions, outbox, redact)
                    _add_switches(sessions, outbox, redact)
                    connection.execute(
                        "DELETE FROM state_meta WHERE key LIKE 'handed:%'"
                        " OR key IN ('switches_to_tell', 'recipients_of_turns', 'accounts_of_turns')"
                    )
            _set_aside(old)
    except DatabaseUnavailable:
        if is_first:
            raise
        # A manager without a session store uses this file now, and delivers its rows.


def outbox_of_home(home: HermesHome, sessions: SessionDB, redact: Redact) -> Outbox | None:
    """Upgrade the outbox if necessary, and return the outbox in state.db.

    Return None if another program wrote state.db: then the manager has to use `outbox.db`. If an `outbox.db` of
    an earlier checkout can't be moved now, its rows must still be sent first, so the returned outbox sends nothing;
    `held_back` is the reason.
    """
    if sessions.database.kind != "sqlite":
        return Outbox(sessions.database)
    if has_own_outbox(home):
        return None
    outbox = Outbox(sessions.sqlite)
    try:
        upgrade_outbox(home, sessions, redact)
    except StorageError as exc:
        log.error("the outbox of an earlier version can't be read: %s", exc)
        outbox.held_back = str(exc)
    return outbox


def delete_backup(home: HermesHome, outbox: Outbox) -> None:
    """Delete `outbox.db.bak` if no row is pending and no dead letter is left."""
    backup = backup_of(home.outbox_db)
    if backup.exists() and not outbox.backlogs():
        backup.unlink(missing_ok=True)


def backup_of(path: Path) -> Path:
    """Return the path of the backup of `path`: the same name with the suffix `.bak`."""
    return path.with_name(f"{path.name}.bak")


@contextlib.contextmanager
def _no_delivery(home: HermesHome) -> Iterator[None]:
    """Hold the delivery locks of all providers with rows in `outbox.db`, so that no other program delivers meanwhile.

    Raises:
        DatabaseUnavailable: Another program delivers, or has the file open.
    """
    with contextlib.closing(Database(home.outbox_db)) as database:
        names = provider_names(database)
    with contextlib.ExitStack() as locks:
        for name in names:
            lock = DeliveryLock.of(home.path, name)
            if not lock.acquire():
                raise DatabaseUnavailable(
                    f"another program sends the writes of {name!r} from {str(home.outbox_db)!r}",
                    "stop it: it is of an earlier version; then start this program again",
                )
            locks.callback(lock.release)
        from hermes_core.sessions.maintenance import exclusive  # few homes are that old

        with exclusive(home.outbox_db):
            pass
        yield


def _set_aside(path: Path) -> None:
    with contextlib.closing(Database(path)) as old:
        # The backup has to be complete without the write-ahead log.
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    remove_from_inventory(path)
    with file_errors(path):
        path.replace(backup_of(path))
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        sync_folder(path.parent)


def _add_turns(old: Database, sessions: SessionDB, outbox: Outbox, redact: Redact) -> None:
    """Add rows for stored turns that are missing in the old outbox, because of a crash or because it was full."""
    providers = _stretches(sessions, "recipients_of_turns")
    accounts = _stretches(sessions, "accounts_of_turns")
    for name, since in old.execute("SELECT name, since FROM providers").fetchall():
        query = "SELECT 1 FROM settled WHERE provider = ? AND hook = 'sync_turn' LIMIT 1"
        takes_turns = old.execute(query, (name,)).fetchone() or outbox.next(name)
        if not takes_turns:
            continue
        # Ids of earlier turns are not remembered, so that nothing tells whether they were sent.
        earliest = max(since, time.time() - REMEMBERED_S)
        for stored in sessions.complete_turns(stored_after=earliest):
            session = Session.from_dict(stored.identity) if stored.identity else None
            if session is None or not session.primary or _at(providers, stored.key) != name:
                continue
            account = _at(accounts, stored.key)
            row = encode("sync_turn", stored.turn, session, redact)
            outbox.put(
                name, row, UNKNOWN_ACCOUNT if account is None else account, at=stored.turn.at, bounded=False
            )


def _add_switches(sessions: SessionDB, outbox: Outbox, redact: Redact) -> None:
    """Add rows for session switches and rewinds that stand in `state_meta` and not yet in the old outbox."""
    owed: list[dict[str, Any]] = read_meta(
        "switches_to_tell", sessions.get_meta("switches_to_tell"), _parse_switches, []
    )
    for entry in owed:
        if entry["at"] < time.time() - REMEMBERED_S:
            continue
        switch, name = switch_from(entry["switch"]), entry["provider"]
        # A rewind that was stored without a provider name is for each provider that may have one of the turns.
        names = {name: entry["account"]} if name else outbox.providers_of(switch.rewound_turns)
        for provider, account in names.items():
            sent = outbox.drop_turns(provider, switch.rewound_turns)
            row = encode_switch(dataclasses.replace(switch, rewound_turns=tuple(sent)), redact)
            known = UNKNOWN_ACCOUNT if account is None else account
            outbox.put(provider, row, known, at=entry["at"], bounded=False)


def _parse_switches(text: str) -> list[dict[str, Any]]:
    return [
        {
            "provider": str(entry["provider"]),
            "account": entry["account"],
            "at": float(entry["at"]),
            "switch": dict(entry["switch"], id=switch_from(entry["switch"]).id),
        }
        for entry in json.loads(text)
    ]


def _stretches(sessions: SessionDB, key: str) -> list[tuple[int, str | None]]:
    """Return the stored ranges of turns with a common value: a provider name or an account fingerprint.

    Each range is (key of its first turn, value), and it ends where the next range begins.
    """
    return read_meta(key, sessions.get_meta(key), _parse_stretches, [])


def _parse_stretches(text: str) -> list[tuple[int, str | None]]:
    return [(int(first), value) for first, value in json.loads(text)]


def _at(stretches: list[tuple[int, str | None]], key: int) -> str | None:
    values = [value for first, value in stretches if first <= key]
    return values[-1] if values else None

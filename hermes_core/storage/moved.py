"""Marks of a store that is moved to another engine, so that no program writes into the wrong one of the two.

A mark is a row in `schema_migrations`, which each program reads when it opens a store: it refuses a marked one. Programs
that had the store open before are refused by triggers, on whichever machine they run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.engine import Connection, Engine

# "source" is the store that is read, "target" the one that is filled.
MoveRole = Literal["source", "target"]

# Code of the error that the triggers of PostgreSQL raise, and the words of both engines by which it is recognised.
MOVED_CODE = "HM001"
MOVED_WORDS = "these sessions are moved to"
MOVED_REMEDY = (
    "wait until `hermes-memory storage move` has ended, then start this program again; nothing was written"
)

_PREFIX = "store move"
_EVENTS = ("INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class StoreMark:
    """The part of a store in a move.

    Attributes:
        move_id: Id of the move, the same in both stores.
        role: Whether the store is read or filled.
        complete: True if the move has ended.
        other: The other store, for messages.
    """

    move_id: str
    role: MoveRole
    complete: bool
    other: str

    @property
    def name(self) -> str:
        """The mark as a text for `schema_migrations`."""
        return (
            f"{_PREFIX} {self.move_id} {self.role} {'complete' if self.complete else 'running'} {self.other}"
        )

    @classmethod
    def parse(cls, name: str) -> StoreMark | None:
        """Return the mark that stands in a name of `schema_migrations`; None if that is a migration."""
        if not name.startswith(f"{_PREFIX} "):
            return None
        move_id, role, state, other = name.removeprefix(f"{_PREFIX} ").split(" ", 3)
        return cls(move_id, "source" if role == "source" else "target", state == "complete", other)


def refuse_marked(names: Iterable[str], label: str) -> None:
    """Raise `DatabaseUnavailable` if one of the names in `schema_migrations` is a mark.

    Args:
        names: The names in `schema_migrations`.
        label: The store, for the message.
    """
    for mark in filter(None, map(StoreMark.parse, names)):
        if mark.role == "target":
            raise DatabaseUnavailable(
                f"the move from {mark.other!r} to {label!r} has not ended",
                "run `hermes-memory storage move` again, with the settings of the store that is moved",
            )
        if mark.complete:
            raise DatabaseUnavailable(
                f"{label!r} is not used any more: its sessions were moved to {mark.other!r}",
                "let storage.url in config.yaml name that store, or run `hermes-memory storage unmark` to go on with "
                "this one, without what was stored there since",
            )
        raise DatabaseUnavailable(
            f"the sessions of {label!r} are being moved to {mark.other!r}",
            "wait for the end, or run `hermes-memory storage move` again if it was stopped; "
            "`hermes-memory storage unmark` gives it up",
        )


def read_mark(database: Engine) -> StoreMark | None:
    """Return the mark of a store; None if it has none, or no tables yet."""
    if not database.exists or "name" not in database.columns("schema_migrations"):
        return None
    names = database.execute("SELECT name FROM schema_migrations").fetchall()
    return next((mark for (name,) in names if (mark := StoreMark.parse(name))), None)


def write_mark(database: Engine, mark: StoreMark | None, tables: Sequence[str]) -> None:
    """Replace the mark of a store, in one commit with the triggers.

    A source gets triggers that refuse all writes. The call waits for transactions that have begun.

    Args:
        database: The store.
        mark: The new mark; None to take it off.
        tables: The tables that the triggers protect.
    """
    with database.transaction() as connection:
        connection.execute("DELETE FROM schema_migrations WHERE name LIKE ?", (f"{_PREFIX} %",))
        _drop_triggers(connection, database.kind, tables)
        if mark is None:
            return
        connection.execute(
            "INSERT INTO schema_migrations (name, applied_at) VALUES (?, ?)", (mark.name, time.time())
        )
        if mark.role == "source":
            _create_triggers(connection, database.kind, tables, mark.other)


def _create_triggers(connection: Connection, kind: str, tables: Sequence[str], other: str) -> None:
    quoted = f"{MOVED_WORDS} {other}".replace("'", "''")
    if kind == "sqlite":
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


def _drop_triggers(connection: Connection, kind: str, tables: Sequence[str]) -> None:
    if kind == "sqlite":
        for table in tables:
            for event in _EVENTS:
                connection.execute(f"DROP TRIGGER IF EXISTS moved_{table}_{event}")
        return
    for table in tables:
        connection.execute(f"DROP TRIGGER IF EXISTS moved ON {table}")
    connection.execute("DROP FUNCTION IF EXISTS refuse_moved()")

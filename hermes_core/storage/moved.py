"""Marks of a store that is moved to another engine, so that no program writes into the wrong one of the two.

A mark is a row in `schema_migrations`, which each program reads when it opens a store: it refuses a marked one. Programs
that had the store open before are refused by triggers, on whichever machine they run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.engine import Engine

# "source" is the store that is read, "target" the one that is filled.
MoveRole = Literal["source", "target"]

# Words of the error that the triggers of a moved store raise.
MOVED_WORDS = "these sessions are moved to"
MOVED_REMEDY = (
    "wait until `hermes-memory storage move` has ended, then start this program again; nothing was written"
)

MARK_PREFIX = "store move"
"""Beginning of a mark in `schema_migrations`."""


class StoreMark(Struct, frozen=True):
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
        return f"{MARK_PREFIX} {self.move_id} {self.role} {'complete' if self.complete else 'running'} {self.other}"

    @classmethod
    def parse(cls, name: str) -> StoreMark | None:
        """Return the mark that stands in a name of `schema_migrations`; None if that is a migration."""
        if not name.startswith(f"{MARK_PREFIX} "):
            return None
        move_id, role, state, other = name.removeprefix(f"{MARK_PREFIX} ").split(" ", 3)
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
    if not database.exists:
        return None
    names = database.execute("SELECT name FROM schema_migrations").fetchall()
    return next((mark for (name,) in names if (mark := StoreMark.parse(name))), None)

"""Maintenance of a session store: vectors made anew, free space, idle sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes_core.sessions.db import SessionDB


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """Sizes of the file in bytes, before and after. After a dry run, `after` is an upper bound."""

    before: int
    after: int


def rebuild_vectors(
    sessions: SessionDB, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> int:
    """Compute all vectors anew; return for how many messages, 0 without search by meaning.

    Answers of tools get no vector. `progress` gets the count so far and the total.
    """
    if sessions.vectors is None:
        return 0
    sessions.vectors.forget()
    total = sessions.vectors.missing()
    return sessions.vectors.build(lambda done: progress(done, total))


def vacuum(sessions: SessionDB, *, dry_run: bool = False) -> Vacuumed:
    """Return the space of deleted rows to the file system, and merge the segments of the indexes.

    Other writers wait meanwhile. A dry run changes nothing.
    """
    database = sessions.database

    def sizes() -> tuple[int, int]:
        """Return the bytes of the whole file and of its free pages."""
        size, pages, free = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        return size * pages, size * free

    before, free = sizes()
    if dry_run:
        return Vacuumed(before, before - free)
    with database.transaction() as connection:
        for table in ("messages_fts", "messages_grams"):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Vacuumed(before, sizes()[0])


def idle_sessions(sessions: SessionDB, before: float, sources: Sequence[str] = ()) -> list[str]:
    """Return the ids of sessions without a message since `before` (epoch seconds), oldest first.

    A conversation counts as a whole: a session whose continuation, branch or delegation is newer is not idle.
    """
    rows = sessions.database.execute(
        "SELECT id, source FROM sessions WHERE last_active < ? ORDER BY last_active", (before,)
    ).fetchall()
    idle = {row["id"] for row in rows}
    return [
        row["id"]
        for row in rows
        if (not sources or row["source"] in sources) and sessions.lineage(row["id"]) <= idle
    ]

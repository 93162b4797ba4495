"""Keeping state.db well: is it whole, is it in the order it was left in, what can go."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable
from hermes_core.sessions import index, lineage
from hermes_core.sessions.mark import Mark
from hermes_core.storage.sqlite import Database

REPAIR = "it was left as it is: `hermes-memory sessions repair` copies it, then saves what can be read"

PAUSE = 0.002
"""Seconds between the steps of a rebuild, in which another process gets its turn to write."""


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """Sizes in bytes. Of a dry run, `after` is what the file would have at most."""

    before: int
    after: int


def check(database: Database, mark: Mark) -> list[str]:
    """What is wrong with the file or its indexes, a line each; empty when all is well."""
    try:
        faults = database.integrity()
        if faults:
            return [f"{fault}; {REPAIR}" for fault in faults]
        return check_index(database) + behind(database, database.path, mark)
    except DatabaseCorrupt as exc:
        return [str(exc)]


def check_index(database: Database) -> list[str]:
    """What is wrong with the search indexes of a file that is whole, a line each."""
    try:
        return index.faults(database.transaction)
    except DatabaseCorrupt as exc:
        return [str(exc)]


def held_rows(path: Path, mark: Mark) -> bool:
    """Whether the file, were it empty now, would have lost something. One that was taken away begins anew.

    Raises `DatabaseUnavailable` while a repair waits to be finished.
    """
    if path.with_name(f"{path.name}.repaired").exists():
        raise DatabaseUnavailable(
            f"a repair of {str(path)!r} was not finished", "run `hermes-memory sessions repair` again"
        )
    if not path.exists():
        mark.forget()
    return mark.read() > 0


def behind(connection: lineage.Reads, path: Path, mark: Mark) -> list[str]:
    """A line when messages that were acknowledged are not in the file: its log was deleted, or an old copy put back."""
    acknowledged = mark.read()  # first: others may store more meanwhile
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'messages'").fetchone()
    stored = row[0] if row else 0
    if stored >= acknowledged:
        return []
    return [
        f"{str(path)!r} ends at message {stored}, but {acknowledged} were stored: its -wal file was deleted, "
        "or an older copy was put back; bring the newer files back, or accept it with `hermes-memory sessions repair`"
    ]


def rebuild(database: Database, progress: Callable[[int], None] | None) -> int:
    """Make both indexes anew in short transactions; returns how many rows were indexed."""
    with database.transaction() as connection:
        index.begin(connection)
    done = 0
    while True:
        with database.transaction() as connection:
            indexed = index.go_on(connection)
        if not indexed:
            return done
        done += indexed
        if progress is not None:
            progress(done)
        time.sleep(PAUSE)


def vacuum(database: Database, *, dry_run: bool) -> Vacuumed:
    """Give free pages back to the file system and join the parts of the indexes; nothing else may write meanwhile."""
    before, free = _pages(database)
    if dry_run:
        return Vacuumed(before, before - free)
    with database.transaction() as connection:
        for table in ("messages_fts", "messages_grams"):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Vacuumed(before, _pages(database)[0])


def idle_sessions(connection: lineage.Reads, before: float, sources: Sequence[str]) -> list[str]:
    """Ids of the sessions of conversations in which nothing was said since `before`, oldest first.

    A conversation goes as a whole: a session whose continuation, branch or delegation is newer stays.
    """
    rows = connection.execute(
        "SELECT id, source FROM sessions WHERE last_active < ? ORDER BY last_active", (before,)
    ).fetchall()
    idle = {row["id"] for row in rows}
    return [
        row["id"]
        for row in rows
        if (not sources or row["source"] in sources) and lineage.family(connection, row["id"]) <= idle
    ]


def _pages(connection: lineage.Reads) -> tuple[int, int]:
    """Bytes of the whole file and of its free pages."""
    size, pages, free = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "page_count", "freelist_count")
    )
    return size * pages, size * free

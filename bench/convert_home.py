"""Convert a home of a development version, before 0.1.0, to the first released format of its databases.

    python bench/convert_home.py HOME

Stop all programs that use the home first. Each database with the tables of the last development version is written anew;
the databases as they were are kept in a new folder beside the home, HOME.before-0.1.0. A database of another development
version is refused, and nothing is changed then. HOME may also be a single file, such as the facts that `db_path` of
Holographic names. A home whose sessions are on PostgreSQL keeps them as they are: that schema has not changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hermes_core.curated import journal
from hermes_core.errors import DatabaseUnavailable, HermesError
from hermes_core.outbox import recovery
from hermes_core.recall.tokens import CUT_VERSION
from hermes_core.sessions import schema
from hermes_core.sessions.maintenance import exclusive
from hermes_core.sessions.search import index
from hermes_core.storage.files import ensure_folder, sync_folder
from hermes_core.storage.moved import StoreMark
from hermes_core.storage.sqlite import SCHEMA_1, Database, Migration, database_files
from hermes_memory_agent.skills import store as skills

SKIPPED_FOLDERS = {"node_modules", "venv", ".venv"}
# Folders with copies that a repair or an accepted loss left.
COPIES = (".damaged", ".lost-", ".repairing")


@dataclass(frozen=True)
class Kind:
    """A kind of database.

    Attributes:
        name: What it holds.
        names: The migrations of the last development version, without those that cut text into words.
        cut: Beginning of the names of the migrations that cut text into words; "" if there are none.
        migrations: Returns the migrations of a new database.
    """

    name: str
    names: frozenset[str]
    cut: str
    migrations: Callable[[], Sequence[Migration]]


def _migrations_of_facts() -> Sequence[Migration]:
    from hermes_holographic.schema import MIGRATIONS

    return MIGRATIONS


KINDS = (
    Kind(
        "sessions",
        frozenset(
            {
                *(
                    "sessions-messages-turns",
                    "vectors",
                    "vectors-of-words",
                    "owners-of-chats",
                    "titles-of-users",
                ),
                *(
                    "titles-by-number",
                    "outbox",
                    "sessions-by-source",
                    "host-tables",
                    "owners-outside",
                    "origins",
                ),
                *("sources-by-user", "turn-records", "vectors-of-pieces", "turns-by-number"),
            }
        ),
        "text-cut-",
        lambda: schema.MIGRATIONS,
    ),
    Kind(
        "history of notes",
        frozenset(
            {"changes", "changes by file", "who took a change", "rows in the outbox", "chain of events"}
        ),
        "",
        lambda: journal.MIGRATIONS,
    ),
    Kind(
        "history of skills",
        frozenset({"skill-changes", "chain of events"}),
        "",
        lambda: skills.MIGRATIONS,
    ),
    Kind("outbox", frozenset({"outbox", "outbox of 0.1"}), "", lambda: recovery.MIGRATIONS),
    Kind(
        "facts",
        frozenset({"facts", "name_slips", "prior", "kinds_of_values", "places", "fields_of_others"}),
        "one_spelling_",
        _migrations_of_facts,
    ),
)


def databases_in(home: Path) -> Iterator[Path]:
    """Yield the SQLite files of a home and of its profiles."""
    for folder, folders, files in os.walk(home):
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED_FOLDERS and not any(part in name for part in COPIES)
        ]
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".db"))


def kind_of(path: Path) -> Kind | None:
    """Return the kind of a database of the last development version; None if it needs no conversion.

    Raises:
        DatabaseUnavailable: It is of another development version, or can't be read.
    """
    with closing(sqlite3.connect(path)) as connection:
        try:
            rows = connection.execute("SELECT name FROM schema_migrations").fetchall()
        except sqlite3.DatabaseError as exc:
            if "no such table" in str(exc) or exc.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                return None  # another program's
            raise DatabaseUnavailable(f"can't read {str(path)!r}: {exc}", "nothing was changed") from exc
    names = {row[0] for row in rows if StoreMark.parse(row[0]) is None}
    if SCHEMA_1 in names:
        return None
    for kind in KINDS:
        cuts = {name for name in names if kind.cut and name.startswith(kind.cut)}
        if names - cuts == kind.names and bool(cuts) == bool(kind.cut):
            return kind
    if any(names & kind.names for kind in KINDS):
        raise DatabaseUnavailable(
            f"{str(path)!r} is of another development version ({', '.join(sorted(names))})",
            "open the home once with the version of commit fa1d3727, then convert it; nothing was changed",
        )
    return None


def convert(path: Path, kind: Kind, copy: Path) -> int:
    """Replace a database by one of the released format; return the number of its rows.

    Args:
        path: The database.
        kind: Its kind.
        copy: The file for a copy of it.

    Raises:
        DatabaseUnavailable: Another program uses it.
        StorageError: It can't be read or written.
    """
    with closing(sqlite3.connect(path)) as connection:  # so that the file holds what its log holds
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with exclusive(path):
        before = _stamps(path)
    ensure_folder(copy.parent)
    shutil.copy2(path, copy)
    new = path.with_name(f".{path.name}.converted")
    for file in database_files(new):
        file.unlink()
    try:
        rows = _build(copy, kind, new)
        with exclusive(path):
            if _stamps(path) != before:
                raise DatabaseUnavailable(
                    f"{str(path)!r} was written to meanwhile",
                    "stop what uses the home, then convert it again",
                )
        new.replace(path)
        sync_folder(path.parent)
    finally:
        for file in database_files(new):
            file.unlink()
    return rows


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    files = [file for file in database_files(path) if not file.name.endswith("-shm")]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _build(old: Path, kind: Kind, new: Path) -> int:
    """Write the rows of `old` into a new database `new`, and return their number."""
    with closing(Database(new, kind.migrations(), journal_mode="delete")) as database:
        database.execute("ATTACH ? AS old", (str(old),))
        database.execute("PRAGMA foreign_keys = OFF")  # the order of the tables is that of their names
        with database.transaction() as connection:
            rows = sum(_copy_table(connection, table, old) for table in _tables(connection, old))
            if connection.execute(
                "SELECT 1 FROM old.sqlite_master WHERE name = 'sqlite_sequence'"
            ).fetchone():
                connection.execute("DELETE FROM sqlite_sequence")
                connection.execute("INSERT INTO sqlite_sequence SELECT * FROM old.sqlite_sequence")
            if kind.name == "sessions":
                _convert_open_turns(connection)
                index.rebuild_index(connection)
            elif kind.cut and not _is_recorded(connection, f"{kind.cut}{CUT_VERSION}"):
                # The next start cuts the text by the rules of this version.
                connection.execute("DELETE FROM schema_migrations WHERE name LIKE ?", (f"{kind.cut}%",))
            _copy_marks(connection)
            if broken := connection.execute("PRAGMA foreign_key_check").fetchall():
                raise DatabaseUnavailable(
                    f"{str(old)!r} has {len(broken)} rows without the row that they belong to",
                    "run `hermes-memory sessions repair` with the version of commit fa1d3727",
                )
    return rows


def _tables(connection: sqlite3.Connection, old: Path) -> list[str]:
    """Return the tables whose rows are copied.

    Raises:
        DatabaseUnavailable: The old database has a table that the new one lacks.
    """
    there, here = (
        {
            row["name"]: row["sql"] or ""
            for row in connection.execute(
                f"SELECT name, sql FROM {place}.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"  # noqa: S608
                # An older version had a second index over messages, and totals that the lines have now.
                " AND name NOT LIKE 'messages_grams%' AND name <> 'outbox_totals'"
            )
        }
        for place in ("old", "main")
    )
    if lacking := there.keys() - here.keys():
        raise DatabaseUnavailable(
            f"{str(old)!r} has tables that are not known: {', '.join(sorted(lacking))}",
            "this database was not changed",
        )
    virtual = [name for name, sql in here.items() if sql.startswith("CREATE VIRTUAL")]
    own = [name for name in there if not any(name.startswith(f"{table}_") for table in virtual)]
    # The indexes over messages are made anew; that over facts holds its own words.
    return sorted(name for name in own if name != "schema_migrations" and name != index.TABLE)


def _copy_table(connection: sqlite3.Connection, table: str, old: Path) -> int:
    """Copy the rows of a table, and return their number.

    Raises:
        DatabaseUnavailable: The old table has a column that the new one lacks.
    """
    there, here = (
        [row["name"] for row in connection.execute(f"PRAGMA {place}.table_info({table})")]
        for place in ("old", "main")
    )
    if lacking := set(there) - set(here):
        raise DatabaseUnavailable(
            f"{str(old)!r} has columns in {table!r} that are not known: {', '.join(sorted(lacking))}",
            "this database was not changed",
        )
    is_virtual = connection.execute(
        "SELECT 1 FROM old.sqlite_master WHERE name = ? AND sql LIKE 'CREATE VIRTUAL%'", (table,)
    ).fetchone()
    columns = ", ".join(f'"{name}"' for name in ([*there, "rowid"] if is_virtual else there))
    connection.execute(f"DELETE FROM main.{table}")  # noqa: S608  names of the schema, here and below
    connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM old.{table}")  # noqa: S608
    copied, wanted = (
        int(connection.execute(f"SELECT count(*) FROM {place}.{table}").fetchone()[0])  # noqa: S608
        for place in ("main", "old")
    )
    if copied != wanted:
        raise DatabaseUnavailable(f"{copied} of {wanted} rows of {table!r} were copied", "report this")
    return copied


def _convert_open_turns(connection: sqlite3.Connection) -> None:
    """Write the recall of unfinished turns, which was a list at first, with its origin."""
    for key, text in connection.execute(
        "SELECT key, contexts FROM open_turns WHERE contexts LIKE '[%'"
    ).fetchall():
        contexts = json.loads(text)
        value = {"contexts": contexts, "origin": "provider" if contexts else "person"}
        connection.execute("UPDATE open_turns SET contexts = ? WHERE key = ?", (json.dumps(value), key))


def _is_recorded(connection: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM old.schema_migrations WHERE name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _copy_marks(connection: sqlite3.Connection) -> None:
    """Copy the mark of a store that is moved to a server, and the triggers that refuse writes to it."""
    for name, applied_at in connection.execute(
        "SELECT name, applied_at FROM old.schema_migrations"
    ).fetchall():
        if StoreMark.parse(name) is not None:
            connection.execute("INSERT INTO main.schema_migrations VALUES (?, ?)", (name, applied_at))
    query = "SELECT sql FROM old.sqlite_master WHERE type = 'trigger' AND name LIKE 'moved\\_%' ESCAPE '\\'"
    for (sql,) in connection.execute(query).fetchall():
        connection.execute(sql)


def _new_folder(home: Path) -> Path:
    """Return the path of a folder beside the home that does not exist yet."""
    folder, number = home.with_name(f"{home.name}.before-0.1.0"), 1
    while folder.exists():
        number += 1
        folder = home.with_name(f"{home.name}.before-0.1.0-{number}")
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", metavar="HOME", type=Path, help="a home, or one database")
    home = parser.parse_args(arguments).home.absolute()
    try:
        if not home.exists():
            raise DatabaseUnavailable(f"there is no {str(home)!r}", "name the home, such as ~/.hermes")
        paths = [home] if home.is_file() else list(databases_in(home))
        kinds = {path: kind for path in paths if (kind := kind_of(path)) is not None}
        folder = _new_folder(home)
        for path, kind in kinds.items():
            name = path.relative_to(home.parent if home.is_file() else home)
            rows = convert(path, kind, folder / name)
            backup = path.with_name("outbox.db.bak")  # rows that stand in state.db
            if kind.name == "sessions" and backup.exists():
                backup.replace((folder / name).with_name(backup.name))
            print(f"{name}: {kind.name}, {rows:,} rows")
    except (HermesError, sqlite3.Error, OSError) as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    print(f"The databases as they were are in {folder}." if kinds else "Nothing is to be converted.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

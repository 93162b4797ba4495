"""Convert a home of a development version, before 0.1.0, to the first released format of its databases.

    python bench/convert_home.py HOME

Stop all programs that use the home first. Sessions, the outbox, the notes with their origins and history, and the skills'
origins and history become rows of one state.db. The databases and files as they were are kept in a new folder beside the
home, HOME.before-0.1.0. A database of another development version is refused, and nothing is changed then. HOME may also
be a single file, such as the facts that `db_path` of Holographic names.
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

from hermes_core.curated.document import parse_note_file
from hermes_core.curated.history import NoteHistory
from hermes_core.curated.origins import Note, NoteOrigin, entry_hash, origin_from_plain, plain_origin
from hermes_core.curated.places import owner_of_folder
from hermes_core.curated.rows import NoteRows, StoredFile
from hermes_core.errors import DatabaseUnavailable, HermesError
from hermes_core.outbox import recovery
from hermes_core.recall.tokens import CUT_VERSION
from hermes_core.sessions import schema
from hermes_core.sessions.maintenance import exclusive
from hermes_core.sessions.search import index
from hermes_core.storage.files import ensure_folder, sync_folder
from hermes_core.storage.inventory import Inventory
from hermes_core.storage.moved import StoreMark
from hermes_core.storage.sqlite import SCHEMA_1, Database, Migration, database_files

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


# The first migration of the databases of the last development version, whose notes were in files.
BEFORE = "schema-1"

# Tables of earlier versions that the others replace.
REPLACED = (
    "schema_migrations",
    "messages_fts%",
    "messages_grams%",
    "outbox_totals",
    "note_%",
    "notes",
    "leases",
    "outbox_lines",
)

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
    if SCHEMA_1 in names or path.name.endswith("journal.db"):  # the journals go with the sessions
        return None
    if BEFORE in names:
        by_file = {"state.db": "sessions", "outbox.db": "outbox"}
        return next((kind for kind in KINDS if kind.name == by_file.get(path.name)), None)
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
            _copy_numbers(connection)
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
                + "".join(f" AND name NOT LIKE '{name}'" for name in REPLACED)
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
    return sorted(name for name in there if not any(name.startswith(f"{table}_") for table in virtual))


def _copy_numbers(connection: sqlite3.Connection) -> None:
    """Let the tables number new rows after the highest number that was ever given."""
    if connection.execute("SELECT 1 FROM old.sqlite_master WHERE name = 'sqlite_sequence'").fetchone():
        for name, number in connection.execute("SELECT name, seq FROM old.sqlite_sequence").fetchall():
            changed = connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, name))
            if not changed.rowcount and name in {"messages", "turns", "outbox_rows"}:
                connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, number))


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


# ------------------------------------------------------------------ notes and skills


def take_notes(home: Path, folder: Path) -> int:
    """Take the notes in the files of a home, and the history of notes and skills, into its state.db.

    The files of origins and keys, and the journals, are moved into `folder`. The notes themselves stay: they are views.

    Returns:
        The number of notes and changes.
    """
    memories = home / "memories"
    skill_folders = [path for path in (home / "skills", *memories.glob("users/*/skills")) if path.is_dir()]
    moved = [
        *(memories / "journal.db", memories / "projects" / "keys.json"),
        *(path / "origins.json" for path in (memories, *memories.glob("users/*"))),
        *(path / name for path in skill_folders for name in (".journal.db", ".origins.json")),
    ]
    files = [*memories.glob("*.md"), *memories.glob("users/*/*.md"), *memories.glob("projects/*/PROJECT.md")]
    if not any(path.exists() for path in moved):
        return 0
    count = 0
    with closing(Database(home / "state.db", schema.MIGRATIONS)) as database, database.transaction():
        changes = _take_history(database, memories / "journal.db")
        for path in sorted(files):
            if path.name in ("MEMORY.md", "USER.md", "PROJECT.md"):
                count += _take_file(database, memories, path, changes)
        for place in skill_folders:
            count += _take_skills(database, home, place)
        _take_keys(database, memories / "projects" / "keys.json")
        count += sum(len(rows) for rows in changes.values())
    Inventory(home).remove({path.relative_to(home).as_posix() for path in (*moved, *files)})
    # Of files that nobody locks any more.
    for pattern in ("outbox.*.lock", "outbox.*.row", "memories/**/*.lock", "skills/.*.lock"):
        for path in home.glob(pattern):
            path.unlink()
    for path in moved:
        for file in database_files(path) if path.suffix == ".db" else [path]:
            if file.exists():
                ensure_folder((folder / file.relative_to(home)).parent)
                file.replace(folder / file.relative_to(home))
    return count


def _origins_in(folder: Path, name: str = "origins.json") -> dict[str, NoteOrigin]:
    path = folder / name
    entries = json.loads(path.read_text("utf-8"))["entries"] if path.exists() else {}
    return {key: origin_from_plain(value) for key, value in entries.items()}


def _rows_in(path: Path, query: str) -> list[sqlite3.Row]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute(query).fetchall()


def _take_history(database: Database, path: Path) -> dict[str, list[sqlite3.Row]]:
    """Copy the changes and events of a journal with their ids, and return the changes by file, newest first."""
    by_file: dict[str, list[sqlite3.Row]] = {}
    for row in _rows_in(path, "SELECT * FROM changes WHERE state = 'done' ORDER BY id DESC"):
        by_file.setdefault(row["file"], []).append(row)
        folder = path.parent / row["file"]
        origins = _origins_in(folder.parent if row["file"].startswith("users/") else path.parent)
        before, after = (parse_note_file(row[name].encode()).entries for name in ("before", "after"))
        keys = {entry_hash(entry) for entry in before if entry not in after}
        gone = {key: plain_origin(origins.get(key, NoteOrigin())) for key in sorted(keys)}
        values = {name: row[name] for name in ("id", "file", "target", "action", "at", "before", "after")}
        values |= {name: row[name] for name in ("session", "writes", "undoes", "undone", "provider")}
        _insert(database, "note_changes", values | {"gone": json.dumps(gone)})
    for row in _rows_in(path, "SELECT * FROM events ORDER BY id"):
        _insert(database, "note_events", dict(zip(row.keys(), row, strict=True)))
    return by_file


def _take_file(database: Database, memories: Path, path: Path, changes: dict[str, list[sqlite3.Row]]) -> int:
    """Store the entries of a file with their origins, and that its bytes are what this version has seen."""
    key, data = path.relative_to(memories).as_posix(), path.read_bytes()
    parsed = parse_note_file(data)
    if parsed.conflict:
        return 0  # a look at it says so
    owner = owner_of_folder(path.parent.name) if key.startswith("users/") else ""
    target = path.stem.lower()
    origins = _origins_in(path.parent if owner else memories)
    writers = {
        entry: row["id"]
        for row in reversed(changes.get(key, []))
        for entry in parse_note_file(row["after"].encode()).entries
        if entry not in parse_note_file(row["before"].encode()).entries
    }
    notes = [
        Note(entry, origins.get(entry_hash(entry), NoteOrigin()), writers.get(entry, 0))
        for entry in parsed.entries
    ]
    rows, file = NoteRows(database), StoredFile(key, owner, target)  # type: ignore[arg-type]
    text = "\n§\n".join(parsed.entries)
    for statement in (rows.claim(file), *rows.replace(file, notes), rows.set_view(file, data, text)):
        database.execute(*statement).fetchall()
    return len(notes)


def _take_skills(database: Database, home: Path, folder: Path) -> int:
    """Take the changes of skills with new events, and the origins of their texts."""
    place = folder.relative_to(home).as_posix().removeprefix("memories/")
    history, count = NoteHistory(database), 0
    for row in _rows_in(folder / ".journal.db", "SELECT * FROM changes WHERE done ORDER BY id"):
        session = {"id": row["session_id"]}
        values = {
            "file": f"{place}/{row['path']}",
            "target": "skill",
            **{name: row[name] for name in ("action", "at")},
            **{name: row[name] or "" for name in ("before", "after")},
            "gone": "{}",
            "session": json.dumps(session),
            "writes": "[]",
            "undone": 0,
            "provider": "",
        }
        change = _insert(database, "note_changes", values)
        texts = values["before"], values["after"]
        history.record_change(f"{place}/{row['path']}", change, row["action"], *texts, row["session_id"])
        count += 1
    for key, origin in _origins_in(folder, ".origins.json").items():
        values = {"file": f"{place}/{key}", "position": 0, "text": "", "change": 0}
        values |= {"origin": origin.origin, "at": origin.at, "session": origin.session}
        values |= {"confirmed": origin.confirmed, "pinned": 0}
        _insert(database, "note_entries", values)
    return count


def _take_keys(database: Database, path: Path) -> None:
    record = json.loads(path.read_text("utf-8")) if path.exists() else {"identities": {}, "folders": {}}
    rows = [("", name, key, "", "") for name, key in record["identities"].items()]
    rows += [
        ("here", top, entry["key"], entry["git"], " ".join(entry.get("earlier", ())))
        for top, entry in record["folders"].items()
    ]
    names = ("machine", "place", "key", "git", "earlier")
    for row in rows:
        _insert(database, "project_keys", dict(zip(names, row, strict=True)))


def _insert(database: Database, table: str, values: dict[str, object]) -> int:
    names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" * len(values))
    sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608  our own names
    return int(database.execute(sql, tuple(values.values())).lastrowid or 0)


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
        for one in [] if home.is_file() else [home, *home.glob("profiles/*")]:
            place = folder if one == home else folder / "profiles" / one.name
            if count := take_notes(one, place):
                kinds[one] = KINDS[0]
                print(f"{one.name}: notes and skills, {count:,} entries and changes")
    except (HermesError, sqlite3.Error, OSError) as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    print(f"The databases as they were are in {folder}." if kinds else "Nothing is to be converted.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

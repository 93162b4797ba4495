"""Copy of all rows of a store of sessions into one of another engine, and the comparison of the two.

Rows keep their keys, so that a copy which was stopped goes on after the last row of each table. The search index of the
target is made on the way. Vectors are not copied: a program makes them again in the background.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_core.sessions.schema import STORED_TABLES
from hermes_core.sessions.search import index
from hermes_core.sessions.search.protocol import CHANGES_KEY, DIMENSION_KEY, LAST_ID_KEY, PROGRESS_KEY
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Connection, Engine
from hermes_core.storage.tables import Table
from hermes_memory_postgresql.schema import CUT_KEY

# Rows of one commit, and about the characters of their texts: a message may hold pictures of megabytes.
ROWS_PER_COMMIT = 500
CHARS_PER_COMMIT = 4_000_000

# Key in `state_meta` of a store into which another one was moved: its value is the id of the move.
MOVED_FROM_KEY = "moved_from"


# SQL for the key of the session to which a row belongs, by table.
_SESSION_KEYS = {
    "sessions": "key",
    "messages": "session_key",
    "turns": "session_key",
    "turn_records": "(SELECT t.session_key FROM turns t WHERE t.key = turn_records.turn_key)",
    "open_turns": "session_key",
    "open_messages": "(SELECT t.session_key FROM open_turns t WHERE t.key = open_messages.turn_key)",
}

TABLE_NAMES = tuple(table.name for table in STORED_TABLES)

# Keys of one engine's search index, which the other one makes for itself.
_INDEX_KEYS = (CUT_KEY, PROGRESS_KEY, index.LOST_PAGES_KEY, CHANGES_KEY, MOVED_FROM_KEY)
_INDEX_KEY_PREFIXES = (LAST_ID_KEY, DIMENSION_KEY)


@dataclass(slots=True)
class StoreDigest:
    """Numbers and hashes of all rows of a store.

    Attributes:
        rows: Number of rows by table.
        sessions: Hash of each session by its key: its row, messages, turns, records and unfinished turns.
        tables: Hash by table of the rows that belong to no session.
    """

    rows: dict[str, int] = field(default_factory=dict)
    sessions: dict[int, str] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """One hash over all rows."""
        text = json.dumps(
            [sorted(self.rows.items()), sorted(self.sessions.items()), sorted(self.tables.items())]
        )
        return hashlib.sha256(text.encode()).hexdigest()


def count_rows(database: Engine) -> dict[str, int]:
    """Return the number of rows that a copy of the store has, by table."""
    queries = [
        (f"SELECT count(*) FROM {table.name} WHERE {_condition(table)}", ()) for table in STORED_TABLES
    ]
    return {
        table.name: int(rows[0][0]) for table, rows in zip(STORED_TABLES, database.read(queries), strict=True)
    }


def copy_store(source: SessionStore, target: SessionStore, progress: Callable[[int], object]) -> int:
    """Copy the rows that the target does not have yet, and return their number.

    The target must have no row but those of an earlier call, and nothing may write to the source meanwhile.

    Args:
        progress: Function that gets the number of further rows, also of those that were there.
    """
    copied = 0
    for table in STORED_TABLES:
        columns = table.column_names
        last = _last_key(target.database, table)
        if last is not None:
            progress(_count_to(target.database, table))
        for rows in _pages(source.database, table, columns, last):
            _store(target, table, columns, rows)
            copied += len(rows)
            progress(len(rows))
    _copy_counters(source.database, target.database)
    return copied


def digest_store(database: Engine, progress: Callable[[int], object] = lambda _count: None) -> StoreDigest:
    """Return the numbers and hashes of the rows of a store.

    Args:
        progress: Function that gets the number of further rows.
    """
    digest = StoreDigest()
    hashes: dict[int, Any] = {}
    for table in STORED_TABLES:
        of_table = hashlib.sha256()
        digest.rows[table.name] = 0
        for rows in _pages(database, table, table.column_names, None):
            digest.rows[table.name] += len(rows)
            for row in rows:
                # The rows of a session are hashed in the order of their keys, one table after the other.
                hasher = (
                    hashes.setdefault(row[-1], hashlib.sha256()) if table.name in _SESSION_KEYS else of_table
                )
                hasher.update(_canonical(table.name, row))
            progress(len(rows))
        if table.name not in _SESSION_KEYS:
            digest.tables[table.name] = of_table.hexdigest()
    digest.sessions = {key: hasher.hexdigest() for key, hasher in hashes.items()}
    return digest


def _canonical(table: str, row: tuple[Any, ...]) -> bytes:
    return json.dumps([table, *row]).encode() + b"\n"


def _condition(table: Table) -> str:
    """Return the SQL condition of the rows that are copied."""
    if table.name != "state_meta":
        return "1 = 1"
    names = ", ".join(f"'{key}'" for key in _INDEX_KEYS)
    prefixes = " ".join(f"AND key NOT LIKE '{prefix}%'" for prefix in _INDEX_KEY_PREFIXES)
    return f"key NOT IN ({names}) {prefixes}"


def _key_sql(table: Table) -> str:
    return ", ".join(f'"{name}"' for name in table.key_columns)


def _after(table: Table, operator: str) -> str:
    """Return the condition that compares the key of a row with parameters."""
    marks = ", ".join("?" * len(table.key_columns))
    return f"({_key_sql(table)}) {operator} ({marks})"


def _last_key(database: Engine, table: Table) -> tuple[Any, ...] | None:
    order = ", ".join(f'"{name}" DESC' for name in table.key_columns)
    sql = f"SELECT {_key_sql(table)} FROM {table.name} WHERE {_condition(table)} ORDER BY {order} LIMIT 1"
    row = database.execute(sql).fetchone()
    return None if row is None else tuple(row)


def _count_to(database: Engine, table: Table) -> int:
    sql = f"SELECT count(*) FROM {table.name} WHERE {_condition(table)}"
    return int(database.execute(sql).fetchone()[0])


def _pages(
    database: Engine, table: Table, columns: Sequence[str], after: tuple[Any, ...] | None
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows with keys after `after` in the order of their keys, some at a time.

    Each row has its columns and, if the table has such, the key of its session at the end.
    """
    keys = _key_sql(table)
    names = ", ".join(f'"{name}"' for name in columns)
    if table.name in _SESSION_KEYS:
        names = f"{names}, {_SESSION_KEYS[table.name]}"
    size = " + ".join(f'coalesce(length(CAST("{name}" AS TEXT)), 0)' for name in columns)
    while True:
        within = _condition(table) + (f" AND {_after(table, '>')}" if after is not None else "")
        heads = database.execute(
            f"SELECT {keys}, {size} FROM {table.name} WHERE {within} ORDER BY {keys} LIMIT {ROWS_PER_COMMIT}",
            after or (),
        ).fetchall()
        if not heads:
            return
        chars, count = 0, 0
        while count < len(heads) and (not count or chars + heads[count][-1] <= CHARS_PER_COMMIT):
            chars += heads[count][-1]
            count += 1
        last = tuple(heads[count - 1])[:-1]
        rows = database.execute(
            f"SELECT {names} FROM {table.name} WHERE {within} AND {_after(table, '<=')} ORDER BY {keys}",
            (*(after or ()), *last),
        )
        yield [tuple(row) for row in rows]
        after = last


def _store(target: SessionStore, table: Table, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    """Insert rows in one commit, with their entries in the search index."""
    values = [dict(zip(columns, row, strict=False)) for row in rows]
    with target.database.transaction() as connection:
        if table.name != "messages":
            target.database.insert(table.name, values, f'"{table.key_columns[0]}"')
            return
        values = [row | target.index.columns(row) for row in values]
        ids, _ = target.database.insert(table.name, values, "id")
        target.index.add(connection, ids, values)


def _copy_counters(source: Engine, target: Engine) -> None:
    """Let the target number new rows after the highest number that the source ever gave."""
    with target.transaction() as connection:
        for table in STORED_TABLES:
            for column in table.columns:
                if column.type == "number":
                    _set_counter(
                        connection,
                        target.shared,
                        table.name,
                        column.name,
                        _counter(source, table.name, column.name),
                    )


def _counter(database: Engine, table: str, column: str) -> int:
    """Return the highest number that a table ever gave to a row."""
    highest = int(database.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()[0])
    if not database.shared:
        row = database.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    else:
        sql = "SELECT pg_sequence_last_value(pg_get_serial_sequence(?, ?)::regclass)"
        row = database.execute(sql, (table, column)).fetchone()
    return max(highest, int(row[0] or 0) if row else 0)


def _set_counter(connection: Connection, shared: bool, table: str, column: str, number: int) -> None:
    if not number:
        return
    if shared:
        sql = "SELECT setval(pg_get_serial_sequence(?, ?)::regclass, ?)"
        connection.execute(sql, (table, column, number))
    elif not connection.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, table)
    ).rowcount:
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))

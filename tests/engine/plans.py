"""The plans of all statements that the tests send to PostgreSQL: none may walk through a table to find some rows.

Each statement is planned once, by its text. With `enable_seqscan = off` the server reads a whole table only if no index
fits, so the check needs no rows.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

Plan = dict[str, Any]

# Statements that read a whole table by their purpose, and why that is no harm.
WHOLE_TABLES = {
    "FROM outbox_lines ) totals": "the bounds of the outbox are sums over the lines: one for each session that waits",
    "vector_state": "one row",
    "UPDATE missing_vectors SET leased_until = 0 WHERE leased_until > 0": "all vectors are made again",
    "SELECT count(*) FROM missing_vectors": "counts for a status",
    "FROM vectors v WHERE true": "a search in the messages of all owners, each of which is compared",
    "outbox_refused": "one row for each provider",
    "SELECT count(*) FROM outbox_rows": "the depth of the outbox, for a status",
    "SELECT provider FROM outbox_rows UNION": "the backlog of each provider, for a status",
    "SELECT body FROM outbox_rows": "the backlog of all providers, for an export",
    "SELECT count(*) FROM open_turns": "counts of an export",
    "SELECT count(*) FROM host_state": "counts of an export",
    "SELECT count(*), coalesce(sum(message_count), 0) FROM sessions": "counts for a status",
    "SELECT s.id, s.user FROM sessions s ORDER BY s.started_at": "an export of all sessions",
    "SELECT s.id, s.source, s.user FROM sessions s ORDER BY s.started_at": "an export of all sessions",
    "SELECT s.id, s.user, s.identity FROM sessions s": "a move of all users to another provider",
    "SELECT s.user, s.identity FROM sessions s": "an export of all users",
    "AND trim(m.content) <> '' ORDER BY m.timestamp, m.id": "all messages with text, among which nothing is looked up",
    "pg_": "the server's own tables, for doctor",
    "FROM leases WHERE until BETWEEN ": "one row for each session that is open",
    "FROM outbox_lines WHERE holder <> '' AND pending > 0 AND until <": "lines of dead workers, for doctor",
    "FROM outbox_lines WHERE holder <> '' AND until BETWEEN ": "lines of workers, for a status",
    "SELECT DISTINCT session FROM note_changes": "a check of the history of all notes",
    "FROM note_changes WHERE target NOT LIKE": "a check of the history of all notes",
    "FROM note_events ORDER BY id": "a check of the history of all notes",
    "SELECT file, owner, target FROM notes WHERE owner > ''": "the users who have notes",
    "LIKE %(text)s ESCAPE '!'": "the search for what is left of a forgotten user, in all tables",
    "FROM sessions WHERE message_count > 0 AND NOT EXISTS (SELECT 1 FROM messages)": "none is read if there is a message",
    "UPDATE sessions SET system_prompt = '', memory_prompt = NULL WHERE \"user\" <> ''": "memory.per_user was changed",
}

_PLANNED = re.compile(r"\s*(SELECT|WITH|UPDATE|DELETE|INSERT)\b", re.IGNORECASE)
_SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan"}
_PARAMETER = re.compile(r"%(?:\((\w+)\))?s")


def generic_sql(sql: str) -> str:
    """Return a statement with PostgreSQL's own parameters (`$1`) in place of those of psycopg."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match[1] or f"?{len(numbers)}"
        return f"${numbers.setdefault(name, len(numbers) + 1)}"

    return _PARAMETER.sub(number, sql).replace("%%", "%")


def walks(plan: Plan, *, limited: bool = False) -> Iterator[str]:
    """Yield the tables that a plan reads from the first row to the last.

    Args:
        limited: True if a step above ends after some rows.
    """
    kind = plan["Node Type"]
    if kind == "Seq Scan" or (kind in _SCANS and not limited and not _has_condition(plan)):
        yield plan["Relation Name"]
    limited = limited or kind == "Limit"
    if kind in ("Sort", "Incremental Sort", "Aggregate", "Hash"):
        limited = kind == "Incremental Sort" and limited  # the others read all rows before the first one
    for part in plan.get("Plans", ()):
        yield from walks(part, limited=limited)


def _has_condition(plan: Plan) -> bool:
    return "Index Cond" in plan or any(map(_has_condition, plan.get("Plans", ())))


def _is_of_product() -> bool:
    """Return True if code of the package, and no test, sends the statement of the current call."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "hermes_memory_postgresql.postgres":
        frame = frame.f_back  # type: ignore[assignment]  # ends in a module
    return str(frame.f_globals.get("__name__")).startswith("hermes_core.")


class StatementLog:
    """The statements of one test that no test before it has sent."""

    def __init__(self) -> None:
        self._planned: set[str] = set()
        self._new: list[str] = []

    def recording(self, translate: Callable[[str], str]) -> Callable[[str], str]:
        """Return a function that translates statements as `translate` does, and records them."""

        def translated(sql: str) -> str:
            statement = translate(sql)
            if statement not in self._planned and _PLANNED.match(statement) and _is_of_product():
                self._planned.add(statement)
                self._new.append(statement)
            return statement

        return translated

    @property
    def count(self) -> int:
        """Number of different statements so far."""
        return len(self._planned)

    def take(self) -> list[str]:
        """Return the new statements, and forget that they are new."""
        statements, self._new = self._new, []
        return statements


def table_walks(
    connection: psycopg.Connection[Any], schema: str, statements: list[str]
) -> dict[str, set[str]]:
    """Return the tables that statements walk through, by statement."""
    results: dict[str, set[str]] = {}
    if connection.info.server_version < 160000:
        return results  # it plans no statement without its values
    with connection.transaction():
        connection.execute("SELECT set_config('search_path', %s, true)", (schema,))
        connection.execute("SET LOCAL enable_seqscan = off")
        # Of some rows in a few pages, it is cheaper to read and join all at once, whatever the index.
        for way in ("hashjoin", "mergejoin", "material", "bitmapscan"):
            connection.execute(f"SET LOCAL enable_{way} = off")
        # A test may have analysed the tables when they held a single row. Only a superuser may forget that.
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute(
                "UPDATE pg_class SET relpages = 0, reltuples = -1 WHERE relnamespace = current_schema()::regnamespace"
            )
        for statement in statements:
            try:
                with connection.transaction():
                    text = f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {generic_sql(statement)}"
                    (document,) = connection.execute(text.encode()).fetchone() or ([],)
            except (psycopg.errors.UndefinedTable, psycopg.errors.DatatypeMismatch):
                continue  # of another schema or the server's own tables, or from before the vectors had another type
            plan = document[0] if isinstance(document, list) else json.loads(document)[0]
            words = " ".join(statement.split())
            if (tables := set(walks(plan["Plan"]))) and not any(part in words for part in WHOLE_TABLES):
                results[words] = tables
    return results

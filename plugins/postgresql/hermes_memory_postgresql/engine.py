"""The engine that a home with `storage.url` opens: a PostgreSQL database with what the stores of the core need of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_core.config import StorageConfig
from hermes_core.sessions.home_store import Moving
from hermes_memory_postgresql.gin import GinIndex
from hermes_memory_postgresql.pgvectors import PostgresVectors
from hermes_memory_postgresql.postgres import STATEMENT_TIMEOUT_S, PostgresDatabase, PostgresMigration
from hermes_memory_postgresql.schema import MIGRATIONS

# Seconds that a statement of a move may take: it counts all rows.
MOVE_TIMEOUT_S = 3600.0


class PostgresEngine(PostgresDatabase):
    """The sessions, the outbox and the notes of one home in a PostgreSQL database. See `PostgresDatabase`."""

    def __init__(
        self, url: str, migrations: Sequence[PostgresMigration] = MIGRATIONS, **options: Any
    ) -> None:
        super().__init__(url, migrations, **options)

    def search_index(self) -> GinIndex:
        """Return the search index of this database."""
        return GinIndex(self)

    def vector_store(self, model: str, dimension: int, is_unit: bool) -> PostgresVectors:
        """Return the stored vectors of this database."""
        return PostgresVectors(self, model, dimension, is_unit)


def open_engine(storage: StorageConfig, *, password: str = "", moving: Moving = "") -> PostgresEngine:
    """Return the database that `storage.url` names. Its first statement connects it.

    Raises:
        DatabaseUnavailable: `storage.url` is no address of PostgreSQL, or psycopg can't be imported.
    """
    return PostgresEngine(
        storage.url,
        schema=storage.schema,
        password=password,
        # A move has one connection, so that all others are those of other programs.
        pool=1 if moving else storage.pool,
        prepare=storage.prepare,
        read_only=moving == "read",
        statement_timeout=MOVE_TIMEOUT_S if moving else STATEMENT_TIMEOUT_S,
        marked=bool(moving),
    )

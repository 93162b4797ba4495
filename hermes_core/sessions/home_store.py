"""The session store of a home, on the engine that config.yaml names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_core.config import STORAGE_PASSWORD, Config, Credentials
from hermes_core.home import HermesHome
from hermes_core.sessions.db import SessionDB

if TYPE_CHECKING:
    from hermes_core.sessions.search.embeddings import EmbeddingServer


def open_sessions(
    home: HermesHome,
    config: Config,
    *,
    semantic: bool = False,
    embeddings: EmbeddingServer | None = None,
) -> SessionDB:
    """Return the store of sessions and the outbox: state.db of the home, or the server of `storage.url`.

    If `storage.url` is set, state.db is neither read nor made. The server is connected with the first statement.

    Args:
        semantic: True to search by meaning as well, if the extra `[semantic]` is installed.
        embeddings: Server that makes the vectors for search by meaning, in place of the local model.

    Raises:
        DatabaseUnavailable: `storage.url` is no address, or the extra `[postgres]` is not installed.
    """
    storage = config.storage
    if not storage.url:
        return SessionDB(
            home.state_db,
            journal_mode=config.sessions.journal_mode,
            semantic=semantic,
            embeddings=embeddings,
        )
    # Imported here: a home with files needs neither.
    from hermes_core.sessions.postgres_schema import MIGRATIONS
    from hermes_core.storage.postgres import PostgresDatabase

    database = PostgresDatabase(
        storage.url,
        MIGRATIONS,
        schema=storage.schema,
        password=Credentials(home).get(STORAGE_PASSWORD) or "",
        pool=storage.pool,
        prepare=storage.prepare,
    )
    return SessionDB(database, semantic=semantic)

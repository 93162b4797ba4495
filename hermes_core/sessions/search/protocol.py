"""The search index of a session store: what each engine has to offer beside its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from hermes_core.sessions.search import index
from hermes_core.storage.engine import Connection, Engine


class SearchIndex(Protocol):
    """The index over the words of stored messages. It changes in the transaction that changes the messages."""

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return further columns for the row of a new message, made from its columns."""

    def add(self, connection: Connection, message_ids: Sequence[int]) -> None:
        """Add new messages to the index, after their rows are stored."""

    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Remove the messages that fulfil an SQL condition, before their rows are deleted or hidden."""


class Fts5Index:
    """The two FTS5 tables of SQLite."""

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  the protocol's
        """Return no columns: the index is in tables of its own."""
        return {}

    def add(self, connection: Connection, message_ids: Sequence[int]) -> None:
        """Add new messages to both tables."""
        for message_id in message_ids:
            index.add_message(cast(sqlite3.Connection, connection), message_id)

    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Remove messages from both tables."""
        index.remove_messages(cast(sqlite3.Connection, connection), condition, parameters)


class ColumnIndex:
    """The columns `words` and `grams` of PostgreSQL, over which there are GIN indexes."""

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the columns of the message."""
        return {}

    def add(self, connection: Connection, message_ids: Sequence[int]) -> None:
        """Do nothing: the server updates an index with its row."""

    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Clear the columns, so that the index no longer has the messages."""
        connection.execute(
            f"UPDATE messages SET words = NULL, grams = NULL WHERE words IS NOT NULL AND {condition}",
            parameters,
        )


def search_index(database: Engine) -> SearchIndex:
    """Return the search index of an engine."""
    return Fts5Index() if database.kind == "sqlite" else ColumnIndex()

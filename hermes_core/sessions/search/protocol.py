"""The search index of a session store: what each engine offers beside its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hermes_core.sessions.records import Order
from hermes_core.sessions.search.index import Fts5Index
from hermes_core.storage.engine import Connection, Engine
from hermes_core.storage.sqlite import Database

if TYPE_CHECKING:
    from hermes_core.sessions.search.filters import Filters
    from hermes_core.sessions.search.reader import IndexReader, ScopeFacts


class SearchIndex(Protocol):
    """The index over the words of stored messages. It changes in the transaction that changes the messages."""

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return further columns for the row of a new message, made from its columns. No text raises an error."""

    def add(self, connection: Connection, message_ids: Sequence[int]) -> None:
        """Add new messages to the index, after their rows are stored."""

    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Remove the messages that fulfil an SQL condition and their vectors, before their rows are deleted or hidden."""

    def change_owner(self, connection: Connection) -> None:
        """Regard that stored messages have another owner now."""

    def scope_facts(self, query: str, filters: Filters, sources: Collection[str]) -> ScopeFacts:
        """Return whom a question names, and which of these sources are stored."""

    def reader(self, filters: Filters, order: Order | None, limit: int) -> IndexReader:
        """Return a reader for one search that ranks at most `limit` messages."""

    def is_usable(self) -> bool:
        """Return False if a search has to read the messages instead."""

    def problem(self) -> str:
        """Return a sentence if a search does not find all messages by the index; "" if it does."""

    def check(self) -> list[str]:
        """Compare the index with the messages; return a line for each damage and each difference."""

    def rebuild(self, progress: Callable[[int], None] = ...) -> int:
        """Make the index anew while other processes write; return the number of indexed messages.

        `progress` gets the number of messages so far.
        """

    def reset(self, exc: Exception) -> None:
        """Make the index anew, a part with each further message, if it is damaged; else raise `exc`."""

    def free_lost_pages(self) -> None:
        """Free the space of an index that was too damaged to be dropped."""


def search_index(database: Engine) -> SearchIndex:
    """Return the search index of an engine."""
    if isinstance(database, Database):
        return Fts5Index(database)
    from hermes_core.sessions.search.gin import GinIndex

    return GinIndex(database)

"""Protocols of a search index: what a search reads of it, so that the same decisions are made on every engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from hermes_core.recall.rank import CONTEXT_AFTER, CONTEXT_BEFORE, Place
from hermes_core.sessions.search.match import Match

if TYPE_CHECKING:
    from hermes_core.sessions.search.filters import Condition

# Messages after a question among which its answer is sought; between them stand calls and results of tools.
MAX_TURN_ROWS = 20

# Columns of a search hit, of messages `m` and sessions `s`.
HIT_COLUMNS = """
    m.id, s.id AS session_id, m.role, m.content, m.timestamp, m.speaker, m.ref, m.tool_name, m.tool_calls,
    m.origin, s.source, s.model, s.title, s.started_at
"""

# A message of the index: key of its session, position, characters, id.
IndexRow = tuple[int, int, int, int]


class IndexRequest(Struct, frozen=True):
    """A condition to look up in the index.

    Attributes:
        match: The condition on the words of a message.
        limit: Largest number of messages to return.
        partial: If more messages match: True returns the newest of them, False only an estimate of their number.
    """

    match: Match
    limit: int
    partial: bool = False


class Postings(Struct, frozen=True):
    """The messages that fulfil a `IndexRequest`.

    Attributes:
        rows: The messages, newest first.
        frequency: The number of messages that match, in the sessions of the filters; an estimate if they are not whole.
        whole: False if more messages match than the request allows, so that `rows` is empty.
    """

    rows: Sequence[IndexRow]
    frequency: int
    whole: bool = True


class CommonMatch(Struct, frozen=True):
    """A condition that many messages fulfil, with their approximate number."""

    match: Match
    frequency: int


class ScopeFacts(Struct, frozen=True):
    """Facts of the sessions in which a search is made.

    Attributes:
        names: Speakers of messages there whom the question names.
        sources: Those of the sources asked for that are stored.
        newest: Id of the newest message of the store; None if the search index can't be used.
    """

    names: list[str]
    sources: tuple[str, ...]
    newest: int | None = 0


class ClosestMessages(Protocol):
    """The messages that are closest in meaning to a question.

    Attributes:
        ids: Their ids; None if they come with the next read of the database.
    """

    @property
    def ids(self) -> Sequence[int] | None: ...

    def rows(self) -> Sequence[IndexRow]:
        """Return those that pass the filters, if `ids` is None."""


class IndexReader(Protocol):
    """A reader for one search. "Newest" means oldest if the search is ordered from the oldest message.

    Attributes:
        total: Number of messages in the sessions of the filters; known after the first look-up.
        passing: The filters, as a condition on messages `m` and sessions `s`.
    """

    total: int
    passing: Condition

    def find(
        self,
        requests: Sequence[IndexRequest],
        spans: Sequence[tuple[float, float]] = (),
        closest: ClosestMessages | None = None,
    ) -> tuple[list[Postings], list[IndexRow]]:
        """Look up conditions, and messages that pass the filters by their time or because they are close in meaning.

        Args:
            requests: Conditions on words.
            spans: Spans of time in epoch seconds.
            closest: The messages that are close in meaning.

        Returns:
            The postings of each request, and the messages of `spans` and `closest`.
        """

    def newest(self, match: Match, limit: int) -> Sequence[IndexRow]:
        """Return the newest messages that fulfil a condition that `find` has looked up."""

    def around(
        self, places: Collection[Place], matches: Sequence[CommonMatch]
    ) -> tuple[set[Place], list[list[IndexRow]]]:
        """Return the messages whose words count for these places, and which of them fulfil each condition."""

    def among(self, rows: Sequence[IndexRow], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
        """Return for each condition which of these messages fulfil it."""

    def fulfilling(self, match: Match, limit: int) -> list[IndexRow]:
        """Return the newest messages that pass the filters and fulfil a condition with any operators."""

    def candidates(self, places: Sequence[Place], ids: Iterable[int]) -> list[tuple[Any, ...]]:
        """Return the rows to rank: id, session key, position, text, time, speaker, reply, answer and role.

        Args:
            places: Places, the best first; the first ones that pass the filters are returned.
            ids: Messages that `find` has returned because of their time or id.
        """

    def hits(self, ids: Sequence[int]) -> Mapping[int, Any]:
        """Return what is shown of these candidates by their id."""


def windows_around(places: Iterable[Place]) -> list[tuple[int, int, int]]:
    """Return windows around these places, as session, first and last position. Overlapping windows are joined.

    A window holds a place and the neighbours whose words count for it.
    """
    windows: list[tuple[int, int, int]] = []
    for group, position in sorted(places):
        start, end = position - len(CONTEXT_BEFORE), position + len(CONTEXT_AFTER)
        if windows and windows[-1][0] == group and start <= windows[-1][2] + 1:
            windows[-1] = (group, windows[-1][1], end)
        else:
            windows.append((group, start, end))
    return windows

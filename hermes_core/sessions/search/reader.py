"""Reads of a search: look-ups in the search index of an engine, and messages that pass filters."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from hermes_core.recall.rank import CONTEXT_AFTER, CONTEXT_BEFORE, MAX_UNANSWERED_CHARS, Place
from hermes_core.sessions.records import Order
from hermes_core.sessions.search.filters import Condition, Filters, message_condition
from hermes_core.sessions.search.match import Match
from hermes_core.storage.engine import Engine

# Messages after a question among which its answer is sought; between them stand calls and results of tools.
MAX_TURN_ROWS = 20

# Columns of an `IndexRow`.
ROW = "m.session_key, m.position, m.size, m.id"

# Ranking reads few columns of many candidates; the others are read only of the few messages that are shown.
CANDIDATE_COLUMNS = f"""
    m.id, m.session_key, m.position, m.content, m.timestamp, m.speaker, (
        SELECT 1 FROM messages b WHERE b.session_key = m.session_key AND b.position = m.position - 1
            AND (rtrim(b.content) LIKE '%?' OR rtrim(b.content) LIKE '%？')
    ) IS NOT NULL AS reply, CASE
        WHEN m.size > {MAX_UNANSWERED_CHARS} THEN ''
        WHEN m.role = 'assistant' THEN m.content
        WHEN m.role = 'user' THEN (
            SELECT CASE b.role WHEN 'assistant' THEN substr(b.content, 1, {MAX_UNANSWERED_CHARS + 1}) ELSE '' END
            FROM messages b
            WHERE b.session_key = m.session_key AND b.position BETWEEN m.position + 1 AND m.position + {MAX_TURN_ROWS}
                AND b.role IN ('user', 'assistant') AND b.content <> '' ORDER BY b.position LIMIT 1)
    END AS answer, m.role
"""
_COUNT_OF_CANDIDATE_COLUMNS = 9

# Further columns of a search hit, of messages `m` and sessions `s`, and all of them.
SHOWN_COLUMNS = """
    m.ref, m.tool_name, CASE m.content WHEN '' THEN m.tool_calls ELSE '' END AS tool_calls, m.origin,
    s.id AS session_id, s.source, s.model, s.title, s.started_at
"""
HIT_COLUMNS = f"m.id, m.role, m.content, m.timestamp, m.speaker, {SHOWN_COLUMNS}"

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


class Likeness(Protocol):
    """The closeness of messages to a question."""

    def nearest(self, ids: Collection[int]) -> float | None:
        """Return the highest cosine between the question and these messages; None if it has no meaning for ranking."""

    def of(self, message_id: int, word_trust: float = 1.0) -> float:
        """Return the closeness of a message. A message without a vector gets 0, which is the mean.

        Args:
            message_id: Id of the message.
            word_trust: How much the words of the question tell, from 0 to 1. The less they tell, the more counts meaning.
        """

    def span(self, message_id: int) -> tuple[int, int] | None:
        """Return start and end of the closest piece of a message; None for a message without a vector."""


class ClosestMessages(Protocol):
    """The messages that are closest in meaning to a question.

    Attributes:
        ids: Their ids; None if they come with the next read of the database.
        is_distant: True if no message is close enough for a search by meaning.
        likeness: Closeness of the messages to the question; None if that can't be said.
    """

    @property
    def ids(self) -> Sequence[int] | None: ...

    @property
    def is_distant(self) -> bool: ...

    @property
    def likeness(self) -> Likeness | None: ...

    def rows(self) -> Sequence[IndexRow]:
        """Return those that pass the filters, if `ids` is None."""


class Joins(Struct, frozen=True):
    """Texts after FROM that read messages `m` and their sessions `s` for each element `w.value` of a JSON list.

    `w.key` is the number of the element.

    Attributes:
        ids: The elements are ids of messages.
        places: The elements are session keys times 2 ** 32 plus positions.
        windows: The elements are lists of a session key, the first position and the last one.
    """

    ids: str
    places: str
    windows: str


class IndexReader(ABC):
    """A reader for one search. "Newest" means oldest if the search is ordered from the oldest message.

    Attributes:
        joins: The joins of the engine.
        candidate_columns: Columns that are read of a candidate; the first ones are `CANDIDATE_COLUMNS`.
        places_per_row: Places that are read at once for each row to rank; some of them do not pass the filters.
        total: Number of messages in the sessions of the filters; known after the first look-up.
        passing: The filters, as a condition on messages `m` and sessions `s`.
    """

    joins: ClassVar[Joins]
    candidate_columns: ClassVar[str] = CANDIDATE_COLUMNS
    places_per_row: ClassVar[int] = 1

    def __init__(self, database: Engine, filters: Filters, order: Order | None, limit: int) -> None:
        """Read for a search with these filters that ranks at most `limit` messages."""
        self._database, self._limit = database, limit
        self._oldest_first = order == "oldest"
        self._direction = "ASC" if self._oldest_first else "DESC"
        self.total = 0
        self.passing = self._filters, self._parameters = message_condition(database, filters)
        self._candidates: dict[int, Any] = {}

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
        others = [self._between(start, end) for start, end in spans]
        if closest is not None and closest.ids:
            sql = f"SELECT {ROW} FROM {self.joins.ids} WHERE {self._filters}"
            others.append((sql, [json.dumps(list(closest.ids)), *self._parameters]))
        postings, rows = self._look_up(requests, others)
        if closest is not None and closest.ids is None:
            rows += closest.rows()
        return postings, list({row[3]: row for row in rows}.values())

    def _between(self, start: float, end: float) -> Condition:
        # The plus keeps an engine from walking through all messages by their ids.
        return (
            f"""SELECT {ROW} FROM messages m JOIN sessions s ON s.key = m.session_key
                WHERE {self._filters} AND s.last_active >= ? AND s.started_at < ?
                    AND m.timestamp >= ? AND m.timestamp < ? ORDER BY +m.id DESC LIMIT {self._limit}""",
            [*self._parameters, start, end, start, end],
        )

    @abstractmethod
    def _look_up(
        self, requests: Sequence[IndexRequest], others: Sequence[Condition]
    ) -> tuple[list[Postings], list[IndexRow]]:
        """Return the postings of each request, and the rows of other statements that select the columns `ROW`."""

    @abstractmethod
    def newest(self, match: Match, limit: int) -> Sequence[IndexRow]:
        """Return the newest messages that fulfil a condition that `find` has looked up."""

    @abstractmethod
    def around(self, places: Collection[Place], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
        """Return for each condition which of the messages whose words count for these places fulfil it."""

    @abstractmethod
    def among(self, rows: Sequence[IndexRow], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
        """Return for each condition which of these messages fulfil it."""

    @abstractmethod
    def fulfilling(self, match: Match, limit: int) -> list[IndexRow]:
        """Return the newest messages that pass the filters and fulfil a condition with any operators."""

    def candidates(self, places: Sequence[Place], ids: Iterable[int]) -> list[tuple[Any, ...]]:
        """Return the rows to rank: id, session key, position, text, time, speaker, reply, answer and role.

        Args:
            places: Places, the best first; the first ones that pass the filters are returned.
            ids: Messages that `find` has returned because of their time or id.
        """
        rows: dict[int, Any] = {}
        others: dict[int, Any] = {}
        asked = list(ids)
        start, step = 0, self.places_per_row * self._limit
        while asked or (start < len(places) and len(rows) < self._limit):
            packed = [key << 32 | position for key, position in places[start : start + step]]
            found = self._database.execute(
                f"""SELECT x.* FROM (
                        SELECT {self.candidate_columns}, w.key AS at FROM {self.joins.places}
                        WHERE {self._filters} ORDER BY w.key LIMIT ?
                    ) x UNION ALL
                    SELECT {self.candidate_columns}, -1 AS at FROM {self.joins.ids} WHERE m.state < 2""",
                (json.dumps(packed), *self._parameters, self._limit - len(rows), json.dumps(asked)),
            )
            for row in found:
                (others if row["at"] < 0 else rows).setdefault(row["id"], row)
            start, step, asked = start + step, 2 * step, []
        self._candidates = {**rows, **others, **rows}  # first those of the places
        return [row[:_COUNT_OF_CANDIDATE_COLUMNS] for row in self._candidates.values()]

    def hits(self, ids: Sequence[int]) -> Mapping[int, Any]:
        """Return what is shown of these candidates by their id."""
        sql = f"SELECT {HIT_COLUMNS} FROM {self.joins.ids} WHERE m.state < 2"
        return {row["id"]: row for row in self._database.execute(sql, (json.dumps(list(ids)),))}


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

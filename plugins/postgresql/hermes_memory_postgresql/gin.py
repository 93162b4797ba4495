"""The search index of PostgreSQL: the terms of each message as `tsvector`, in a GIN index by owner.

The terms are cut here and not by the server, so that a question finds the same messages as in SQLite. A bucket holds
65,536 messages of an owner in a row; a common word is read from the newest bucket until enough messages are found, so
that its cost does not grow with the store. Each method of the reader is one round trip, or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.recall.query import named_in
from hermes_core.recall.rank import Place
from hermes_core.recall.tokens import CUT_VERSION
from hermes_core.sessions.records import Order
from hermes_core.sessions.search.filters import Condition, Filters, message_condition, session_condition
from hermes_core.sessions.search.match import Match, condition_sql, expression_of
from hermes_core.sessions.search.protocol import PROGRESS_KEY, MessageIndex
from hermes_core.sessions.search.reader import (
    CANDIDATE_COLUMNS,
    ROW,
    SHOWN_COLUMNS,
    CommonMatch,
    IndexReader,
    IndexRequest,
    IndexRow,
    Joins,
    Postings,
    ScopeFacts,
    windows_around,
)
from hermes_core.sessions.search.samples import MAX_CHARS, SAMPLED_TEXTS, SAMPLES, terms_of_sample
from hermes_core.sessions.search.texts import terms_of, terms_of_row
from hermes_core.storage.engine import Connection, Engine
from hermes_core.storage.inventory import Inventory
from hermes_core.storage.sqlite import SCHEMA_1
from hermes_memory_postgresql.schema import CUT_KEY, MESSAGES_PER_BUCKET
from hermes_memory_postgresql.tsvector import TSQUERY, vector_of

# Messages in one step of a rebuild, and messages whose words a check compares.
STEP = 500
SAMPLE = 500

# Outside of a transaction, so that others write meanwhile.
REINDEX = "REINDEX INDEX CONCURRENTLY messages_by_terms"

_SESSIONS = "JOIN sessions s ON s.key = m.session_key"

# OFFSET 0 makes the planner seek each message of a list `w`; otherwise it may read the whole table instead.
_EACH_MESSAGE = "CROSS JOIN LATERAL (SELECT * FROM messages WHERE id = w.value OFFSET 0) m"
_NUMBERS = """(SELECT value::bigint, key FROM json_array_elements_text(?::json) WITH ORDINALITY AS e (value, key)) w"""
_JOINS = Joins(
    ids=f"{_NUMBERS} {_EACH_MESSAGE} {_SESSIONS}",
    places=f"""{_NUMBERS} CROSS JOIN LATERAL (SELECT * FROM messages
        WHERE session_key = w.value >> 32 AND position = w.value & 4294967295 OFFSET 0) m {_SESSIONS}""",
    windows=f"""json_array_elements(?::json) AS w (value) CROSS JOIN LATERAL (SELECT * FROM messages
        WHERE session_key = (w.value ->> 0)::bigint
            AND position BETWEEN (w.value ->> 1)::bigint AND (w.value ->> 2)::bigint OFFSET 0) m {_SESSIONS}""",
)
_TEXT_COLUMNS = "m.id, m.content, m.tool_name, m.tool_calls"
_OTHER_VECTORS = "m.id = x.id AND m.terms IS DISTINCT FROM x.terms::tsvector"
_VECTORS = "unnest(?::bigint[], ?::text[]) AS x (id, terms)"


# Messages of all ages, each with some of its terms, and whether a search finds it by these: by the index, and with its
# session and owner. OFFSET 0 keeps the planner from reading the message itself instead of the index.
_PROOF = f"""
    WITH newest AS (SELECT o.id FROM messages o WHERE o.state < 2 ORDER BY o.id DESC LIMIT 1),
    m AS MATERIALIZED (
        SELECT DISTINCT ON (x.id) x.* FROM generate_series(0, {SAMPLES - 1}) AS n CROSS JOIN newest CROSS JOIN LATERAL (
            SELECT * FROM messages o WHERE o.state < 2 AND o.id <= newest.id - newest.id * n / {SAMPLES}
            ORDER BY o.id DESC LIMIT 1
        ) x
    )
    SELECT m.size, {SAMPLED_TEXTS}, t.terms, EXISTS (
        SELECT 1 FROM (
            SELECT f.id FROM messages f
            WHERE f.owner_key = m.owner_key AND f.bucket = m.bucket AND f.terms @@ t.query OFFSET 0
        ) found WHERE found.id = m.id
    ) AND EXISTS (SELECT 1 FROM sessions p JOIN owners o ON o.owner = p.user AND o.key = m.owner_key
        WHERE p.key = m.session_key)
    FROM m CROSS JOIN LATERAL (
        SELECT array_agg(lexeme) AS terms, string_agg(quote_literal(lexeme), ' & ')::tsquery AS query
        FROM (SELECT lexeme FROM unnest(m.terms) LIMIT 8) l
    ) t
"""

_LOST = "SELECT 1 FROM sessions WHERE message_count > 0 AND NOT EXISTS (SELECT 1 FROM messages) LIMIT 1"


class GinIndex(MessageIndex):
    """The search index of the messages of one home on a PostgreSQL server.

    Attributes:
        inventory: The inventory of the home, which knows the tables that held its data; None without a home.
    """

    inventory: Inventory | None = None
    _is_current = False
    _failure: StorageError | None = None

    def scope_facts(self, query: str, filters: Filters, sources: Collection[str]) -> ScopeFacts:
        """Return whom a question names, and which of these sources the owner has."""
        scope = filters.scope()
        owned, next_name, of_owner, mine = "", "(m.owner_key, m.speaker) > (p.owner_key, p.name)", [], ""
        if scope.user is not None:
            owned, mine = "m.owner_key = (SELECT key FROM owners WHERE owner = ?) AND", "AND s.user = ?"
            next_name = "m.owner_key = p.owner_key AND m.speaker > p.name"
            of_owner = [scope.user]
        within: Condition = ("", [])
        if scope.sources or scope.sessions or scope.exclude_sources:
            condition, parameters = session_condition(self._database, scope)
            within = (
                f"""WHERE (SELECT true FROM messages m JOIN sessions s ON s.key = m.session_key
                    WHERE m.owner_key = speakers.owner_key AND m.speaker = speakers.name AND m.speaker > ''
                        AND {condition} LIMIT 1)""",
                parameters,
            )
        # Each step seeks the next name in an index that holds speakers only, owner by owner.
        rows = self._database.execute(
            f"""WITH RECURSIVE speakers (owner_key, name) AS (
                    (SELECT m.owner_key, m.speaker FROM messages m WHERE {owned} m.speaker > ''
                        ORDER BY m.owner_key, m.speaker LIMIT 1)
                    UNION ALL
                    SELECT n.owner_key, n.speaker FROM speakers p CROSS JOIN LATERAL (
                        SELECT m.owner_key, m.speaker FROM messages m WHERE {next_name} AND m.speaker > ''
                        ORDER BY m.owner_key, m.speaker LIMIT 1) n)
                (SELECT true AS speaks, name FROM speakers {within[0]} LIMIT 2000)
                UNION ALL
                SELECT false, x.source FROM unnest(?::text[]) AS x (source)
                WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.source = x.source {mine})""",
            (*of_owner, *within[1], sorted(sources), *of_owner),
        ).fetchall()
        names = named_in(query, [name for speaks, name in rows if speaks])
        return ScopeFacts(sorted(names), tuple(name for speaks, name in rows if not speaks))

    def reader(
        self,
        filters: Filters,
        order: Order | None,
        limit: int,
        newest: int,  # noqa: ARG002  the protocol's: a bucket of an owner stands for it
    ) -> GinReader:
        """Return a reader for one search that ranks at most `limit` messages."""
        return GinReader(self._database, filters, order, limit)

    def columns(self, values: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the column of the index for the values of a message, which is stored with it.

        No text raises an error: what does not fit the index is left out of it.
        """
        terms = terms_of_row(values)
        return {"terms": None if terms is None else vector_of(terms)}

    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Remove the messages that fulfil an SQL condition from the index, and their vectors."""
        connection.execute(f"UPDATE messages SET terms = NULL WHERE {condition}", parameters)
        # In a statement of its own, after the messages are locked: another machine may have stored vectors meanwhile.
        connection.execute(
            f"""WITH hidden AS MATERIALIZED (SELECT id FROM messages WHERE {condition}), missing AS (
                    DELETE FROM missing_vectors q USING hidden WHERE q.message_id = hidden.id
                ) DELETE FROM vectors v USING hidden WHERE v.message_id = hidden.id""",
            parameters,
        )

    def ask_proof(self) -> Callable[[], bool]:
        """Return a function that returns True if the index finds messages by their own words, also the newest one."""
        asked = self._database.ask([(_PROOF, ()), (_LOST, ())])

        def holds() -> bool:
            samples, lost = asked()
            return not lost and all(map(_is_found, samples))

        return holds

    def problem(self) -> str:
        """Return a sentence if a search does not find all messages by the index; "" if it does."""
        if self._is_current:  # each turn asks
            return ""
        cut, made_at, has_messages = self._database.execute(
            """SELECT (SELECT value FROM state_meta WHERE key = ?),
                (SELECT applied_at FROM schema_migrations WHERE name = ?), EXISTS (SELECT 1 FROM messages)""",
            (CUT_KEY, SCHEMA_1),
        ).fetchone()
        if cut not in (None, CUT_VERSION):
            return (
                f"the search index holds terms by the rules of version {cut}, not {CUT_VERSION}, so that searches miss "
                "messages: run `hermes-memory sessions rebuild`"
            )
        label, inventory = self._database.label, self.inventory
        known = inventory.server_made_at(label) if inventory is not None else 0.0
        if known not in (0.0, made_at) and not has_messages:
            return (
                f"{label!r} held data of this home and was made anew, so that nothing is found: restore a backup of the "
                "server, or accept the loss with `hermes-memory doctor --accept-loss`"
            )
        if has_messages and inventory is not None and made_at and known != made_at:
            inventory.add_server(label, made_at)
        # Before its first message, a later one may still have to be entered.
        self._is_current = has_messages or inventory is None
        return ""

    def check(self) -> list[str]:
        """Compare the index with a sample of the messages; return a line for each difference."""
        problem = self.problem()
        half = SAMPLE // 2
        rows = self._database.execute(
            f"""WITH newest AS (SELECT coalesce(max(id), 0) AS id FROM messages), w AS (
                    SELECT n.id - step AS value FROM newest n CROSS JOIN generate_series(0, {half}) AS step
                    UNION SELECT n.id * step / {half} FROM newest n CROSS JOIN generate_series(1, {half}) AS step)
                SELECT {_TEXT_COLUMNS} FROM w {_EACH_MESSAGE} WHERE m.state < 2"""
        ).fetchall()
        differing = self._database.execute(
            f"SELECT count(*) FROM messages m JOIN {_VECTORS} ON {_OTHER_VECTORS} WHERE m.state < 2",
            _cut(rows),
        ).fetchone()[0]
        faults = [problem] if problem else []
        if differing and not problem:
            faults.append(
                f"the search index differs from {differing} of {len(rows)} messages that were compared: rebuild it"
            )
        return faults

    def reset(self, exc: Exception) -> None:
        """Begin to make the index anew, which the server calls damaged; if that fails too, raise `exc`."""
        try:
            self.renew()
        except StorageError:
            raise exc from None

    def rebuild_next(self) -> int:
        """Compare the next messages of a rebuild; return their number. Behind the last, rebuild the index of the server.

        The terms of a message may be right and the index over them damaged, which only the server can mend.
        """
        if count := super().rebuild_next():
            return count
        self._failure = None
        if not self._finds():
            try:
                self._database.execute(REINDEX)
            except StorageError as exc:
                self._failure = DatabaseUnavailable(
                    f"the search index of {self._database.label!r} is damaged and can't be built again: {exc.message}",
                    f"let the owner of its tables run: {REINDEX}",
                )
            else:
                if not self._finds():
                    self._failure = DatabaseUnavailable(
                        f"messages or sessions of {self._database.label!r} are lost",
                        "restore a backup of the server",
                    )
        if self._failure is not None:
            raise self._failure
        return 0

    def _finds(self) -> bool:
        try:
            return self.ask_proof()()
        except DatabaseCorrupt:
            return False

    def renew(self) -> None:
        """Begin to compare the terms of each message with its text, or go on where another program stopped.

        Raises `DatabaseUnavailable` if the server did not build its index again before.
        """
        if self._failure is not None:
            raise self._failure
        self._database.execute(
            "INSERT INTO state_meta (key, value) VALUES (?, '0') ON CONFLICT (key) DO NOTHING",
            (PROGRESS_KEY,),
        )

    def _rebuild_next(self, connection: Connection) -> int:
        row = connection.execute("SELECT value FROM state_meta WHERE key = ?", (PROGRESS_KEY,)).fetchone()
        # Locked, because a message that is hidden meanwhile must not come back into the index.
        rows = connection.execute(
            f"SELECT {_TEXT_COLUMNS} FROM messages m WHERE m.state < 2 AND m.id > ? ORDER BY m.id LIMIT {STEP} {self._database.dialect.row_lock}",
            (int(row[0]) if row else 0,),
        ).fetchall()
        if rows:
            connection.execute(
                f"UPDATE messages m SET terms = x.terms::tsvector FROM {_VECTORS} WHERE {_OTHER_VECTORS}",
                _cut(rows),
            )
            _set_meta(connection, PROGRESS_KEY, str(rows[-1]["id"]))
        else:
            connection.execute("DELETE FROM state_meta WHERE key = ?", (PROGRESS_KEY,))
            _set_meta(connection, CUT_KEY, CUT_VERSION)
        return len(rows)


def _is_found(row: Sequence[Any]) -> bool:
    """Return True if the message of a row of `_PROOF` is found by its terms, or has none."""
    size, *texts, stored, found = row
    if not terms_of_sample(size, *texts):
        return True
    return bool(found) and (size > MAX_CHARS or {*stored} <= {*" ".join(terms_of(*texts)).split()})


def _cut(rows: Iterable[Any]) -> tuple[list[int], list[str]]:
    """Return the ids and terms of messages, for `_VECTORS`."""
    cut = [(message_id, vector_of(terms_of(*texts))) for message_id, *texts in rows]
    return [message_id for message_id, _ in cut], [terms for _, terms in cut]


def _set_meta(connection: Connection, key: str, value: str) -> None:
    connection.execute(
        "INSERT INTO state_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


class GinReader(IndexReader):
    """A reader of the GIN index, and of messages that pass the filters, for one search."""

    joins = _JOINS
    # All that may be shown is read together with the candidates, in one round trip.
    candidate_columns = f"{CANDIDATE_COLUMNS}, {SHOWN_COLUMNS}"
    places_per_row = 4

    def __init__(self, database: Engine, filters: Filters, order: Order | None, limit: int) -> None:
        super().__init__(database, filters, order, limit)
        # The owner stands in front of each index, so it is not compared through the session again.
        self._owner = filters.user
        scope = replace(filters.scope(), user=None)
        condition, parameters = session_condition(database, scope)
        self._scope: Condition = (f"AND {condition}", parameters) if scope.needs_sessions else ("", [])
        self._scope_join = _SESSIONS if scope.needs_sessions else ""
        self._without_owner = message_condition(database, replace(filters, user=None))
        whole_scope = filters.scope()
        self._named = bool(whole_scope.sources or whole_scope.sessions or whole_scope.user is not None)
        self._session_scope = session_condition(database, whole_scope)
        # The newest messages of common conditions, which `find` has read to count them.
        self._common: dict[Match, list[IndexRow]] = {}

    def _look_up(
        self, requests: Sequence[IndexRequest], others: Sequence[Condition]
    ) -> tuple[list[Postings], list[IndexRow]]:
        statements = [self._scope_statement()]
        queries = {
            number: query
            for number, request in enumerate(requests)
            if (query := expression_of(request.match, TSQUERY)) is not None
        }
        if queries:
            statements.append(self._postings_statement(queries, requests))
        other = len(requests)
        statements += [(f"SELECT {other}, x.*, 0::bigint FROM ({sql}) x", values) for sql, values in others]
        sql = " UNION ALL ".join(f"({statement})" for statement, _ in statements)
        rows = self._database.execute(sql, [value for _, values in statements for value in values]).fetchall()
        found: list[list[tuple[int, ...]]] = [[] for _ in range(len(requests) + 1)]
        size = 0
        for number, *row in rows:
            if number < 0:
                self.total, size = row[0], row[1]
            else:
                found[number].append(tuple(row))
        postings = [
            self._postings(request, hits, size) for request, hits in zip(requests, found[:-1], strict=True)
        ]
        return postings, [_index_row(row) for row in found[-1]]

    def _postings(self, request: IndexRequest, hits: Sequence[tuple[int, ...]], size: int) -> Postings:
        hits = sorted(hits, key=lambda hit: hit[3], reverse=not self._oldest_first)
        rows = [_index_row(row) for row in hits]
        if request.partial or len(rows) <= request.limit:
            return Postings(rows, len(rows))
        self._common[request.match] = rows[: request.limit]
        # Estimated from the messages of the owner among which the counted hits lie.
        last = hits[-1][4]
        passed = last if self._oldest_first else size - last + 1
        frequency = len(rows) * size // max(passed, len(rows))
        return Postings((), max(min(frequency, self.total), len(rows)), whole=False)

    def newest(self, match: Match, limit: int) -> Sequence[IndexRow]:
        """Return the newest messages that fulfil a condition, which `find` has read to count them."""
        return self._common.get(match, [])[:limit]

    def _scope_statement(self) -> Condition:
        """Return the statement for the number of messages in scope, and for the number by which messages count."""
        if not self._named:
            return (
                "SELECT -1, n.id, n.id, 0, 0, 0 FROM (SELECT coalesce(max(id), 0) AS id FROM messages) AS n",
                [],
            )
        condition, parameters = self._session_scope
        size: Condition = ("SELECT coalesce(max(id), 0) FROM messages", [])
        if self._owner is not None:
            size = ("SELECT coalesce(max(messages), 0) FROM owners WHERE owner = ?", [self._owner])
        return (
            f"""SELECT -1, (SELECT coalesce(sum(s.message_count), 0) FROM sessions s WHERE {condition})::bigint,
                ({size[0]})::bigint, 0, 0, 0""",
            [*parameters, *size[1]],
        )

    def _postings_statement(self, queries: Mapping[int, str], requests: Sequence[IndexRequest]) -> Condition:
        """Return the statement that reads the newest messages for the requests with these numbers."""
        # One more than may be returned shows that a condition is common.
        limits = [requests[number].limit + (not requests[number].partial) for number in queries]
        condition, parameters = self._scope
        inner = self._bucketed(
            f"{ROW}, {self._ordinal}", self._scope_join, f"m.terms @@ t.query::tsquery {condition}"
        )
        return (
            f"""SELECT t.number, x.* FROM unnest(?::bigint[], ?::text[], ?::bigint[]) AS t (number, query, most)
                CROSS JOIN LATERAL ({inner[0]} LIMIT t.most) x""",
            [list(queries), list(queries.values()), limits, *inner[1], *parameters],
        )

    @property
    def _ordinal(self) -> str:
        return "m.id" if self._owner is None else "m.ordinal"

    def _bucketed(self, columns: str, join: str, condition: str) -> Condition:
        """Return a SELECT of the newest messages of the owner that fulfil a condition, bucket by bucket.

        Its parameters stand before those of the condition. OFFSET 0 keeps the planner from walking through the primary
        key for a later LIMIT.
        """
        if self._owner is None:
            return (
                f"""SELECT y.* FROM (SELECT {columns} FROM messages m {join} WHERE {condition}
                ORDER BY m.id {self._direction} OFFSET 0) y""",
                [],
            )
        last = f"o.messages / {MESSAGES_PER_BUCKET}"
        buckets = f"0::bigint, {last}" if self._oldest_first else f"{last}, 0::bigint, -1::bigint"
        return (
            f"""SELECT y.* FROM (SELECT key, messages FROM owners WHERE owner = ?) o
            CROSS JOIN LATERAL generate_series({buckets}) AS b (bucket)
            CROSS JOIN LATERAL (
                SELECT {columns} FROM messages m {join}
                WHERE m.owner_key = o.key AND m.bucket = b.bucket AND {condition}
                ORDER BY m.id {self._direction} OFFSET 0
            ) y""",
            [self._owner],
        )

    def around(self, places: Collection[Place], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
        """Return for each condition which of the messages whose words count for these places fulfil it."""
        rows = self._with_matches(self.joins.windows, windows_around(places), matches)
        return _by_match(rows, matches)

    def among(self, rows: Sequence[IndexRow], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
        """Return for each condition which of these messages fulfil it."""
        found = self._with_matches(self.joins.ids, [row[3] for row in rows], matches)
        return _by_match(found, matches)

    def _with_matches(
        self, source: str, elements: Sequence[Any], matches: Sequence[CommonMatch]
    ) -> list[Any]:
        """Return rows of messages, with a truth for each condition behind the columns of `IndexRow`."""
        columns, queries = [ROW], []
        for common in matches:
            condition, of_condition = condition_sql(common.match, TSQUERY)
            columns.append(f"coalesce({condition}, false)")
            queries += of_condition
        sql = f"SELECT {', '.join(columns)} FROM {source}"
        return self._database.execute(sql, (*queries, json.dumps(elements))).fetchall()

    def fulfilling(self, match: Match, limit: int) -> list[IndexRow]:
        """Return the newest messages that pass the filters and fulfil a condition with any operators."""
        condition, parameters = condition_sql(match, TSQUERY)
        inner = self._bucketed(
            f"{ROW}, 0::bigint",
            _SESSIONS,
            f"{self._without_owner[0]} AND {condition}",
        )
        scope, of_scope = self._scope_statement()
        rows = self._database.execute(
            f"({scope}) UNION ALL (SELECT 0, x.* FROM ({inner[0]} LIMIT ?) x)",
            (*of_scope, *inner[1], *self._without_owner[1], *parameters, limit),
        ).fetchall()
        found = []
        for number, *row in rows:
            if number < 0:
                self.total = row[0]
            else:
                found.append(_index_row(row))
        return sorted(found, key=lambda row: row[3], reverse=not self._oldest_first)

    def hits(self, ids: Sequence[int]) -> Mapping[int, Any]:
        """Return what is shown of these candidates by their id; they were read together with the candidates."""
        return {
            message_id: self._candidates[message_id] for message_id in ids if message_id in self._candidates
        }


def _index_row(row: Sequence[int]) -> IndexRow:
    key, position, size, message_id = row[:4]
    return key, position, size, message_id


def _by_match(rows: Sequence[Any], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
    return [[_index_row(row) for row in rows if row[4 + at]] for at in range(len(matches))]

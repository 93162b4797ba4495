"""Candidates of a search in SQLite: look-ups in the FTS5 index that `search.index` maintains.

All terms reach FTS5, SQLite's full-text index, as quoted strings. So a question can neither use the syntax of FTS5 nor
cause syntax errors.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from hermes_core.recall.query import Analysis, named_in
from hermes_core.recall.rank import Place
from hermes_core.recall.tokens import index_text
from hermes_core.sessions.lineage import SOURCES
from hermes_core.sessions.records import Order, SearchHit
from hermes_core.sessions.search.filters import Condition, Filters, session_condition
from hermes_core.sessions.search.match import (
    Match,
    Phrase,
    Syntax,
    condition_sql,
    expression_of,
    joined,
    native_expression,
)
from hermes_core.sessions.search.protocol import PROGRESS_KEY
from hermes_core.sessions.search.reader import (
    ROW,
    CommonMatch,
    IndexReader,
    IndexRequest,
    IndexRow,
    Joins,
    Postings,
    ScopeFacts,
    windows_around,
)
from hermes_core.sessions.search.samples import SAMPLED_TEXTS, SAMPLES, terms_of_sample
from hermes_core.storage.sqlite import Database

# A term is sought in each span of messages alone if it has more hits than this for each span. Reading past a
# hit takes 70 ns, seeking a span in a long list 22 us (SQLite 3.40).
SEEK_FREQUENCY = 300

# If at most this many sessions are in scope, the span of each is sought, at 30 us each; with more sessions, reading
# whole lists is cheaper.
MAX_SPAN_SESSIONS = 100

# A search reads messages of a named time by their time, and stops at the first ones, unless the messages of others are
# more than so many times those in scope. Then it reads the sessions in scope.
MAX_OTHERS_SHARE = 4


def _quoted(phrase: Phrase) -> str:
    return f'"{phrase.text}"' + "*" * phrase.prefix


FTS5 = Syntax(
    phrase=_quoted,
    both=" AND ",
    either=" OR ",
    without=" NOT ",
    condition="m.id IN (SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?)",
)

_COUNTED = "f.rowid"

# If at most this many messages are new, their speakers are added to those of the last search. Otherwise all are sought.
MAX_NEW_MESSAGES = 20

# A range of message ids: the first and the last.
Span = tuple[int, int]

# The last message by the index's own record.
_LAST_INDEXED = "SELECT max(id) FROM messages_fts_docsize"

# CROSS keeps SQLite from walking through all messages.
_SAMPLES = f"""
    WITH steps (n) AS (VALUES {", ".join(f"({step})" for step in range(SAMPLES))}), newest (id) AS (
        SELECT o.id FROM messages o WHERE o.state < 2 ORDER BY o.id DESC LIMIT 1
    )
    SELECT DISTINCT m.id, m.size, {SAMPLED_TEXTS}, ({_LAST_INDEXED}) AS last,
        EXISTS (SELECT 1 FROM sessions p WHERE p.key = m.session_key) AS has_session
    FROM steps CROSS JOIN newest CROSS JOIN messages m
    WHERE m.id = (SELECT o.id FROM messages o WHERE o.state < 2 AND o.id <= newest.id - newest.id * steps.n / {SAMPLES}
        ORDER BY o.id DESC LIMIT 1)
    ORDER BY m.id DESC
"""

# All speakers. Each step seeks the next name in an index that holds speakers only. `likely` makes SQLite begin at `name`
# and not at '': otherwise it walks over all messages before it, for each name again.
_ALL_SPEAKERS = """
    SELECT min(speaker) FROM messages WHERE speaker > ''
    UNION ALL
    SELECT (SELECT min(speaker) FROM messages WHERE speaker > name AND likely(speaker > '')) FROM found WHERE name <> ''
"""
_NEW_SPEAKERS = "SELECT DISTINCT speaker FROM messages WHERE id > ?"

# The progress of a rebuild, the number of index tables, the newest message, all sources and speakers, in one read.
_FACTS = f"""
    WITH RECURSIVE found (name) AS ({{}}), {SOURCES}
    SELECT 'index', (SELECT value FROM state_meta WHERE key = ?),
        (SELECT count(*) FROM sqlite_schema WHERE name = 'messages_fts'), (SELECT coalesce(max(id), 0) FROM messages)
    UNION ALL SELECT 'source', source, 0, 0 FROM names WHERE source IS NOT NULL
    UNION ALL SELECT 'speaker', name, 0, 0 FROM (SELECT name FROM found WHERE name <> '' LIMIT 2000)
"""

_WINDOWS = """json_each(?) w CROSS JOIN messages m ON m.session_key = json_extract(w.value, '$[0]')
    AND m.position BETWEEN json_extract(w.value, '$[1]') AND json_extract(w.value, '$[2]')"""

# CROSS keeps SQLite from reading the sessions first.
_SESSIONS = "CROSS JOIN sessions s ON s.key = m.session_key"
_JOINS = Joins(
    ids=f"json_each(?) w CROSS JOIN messages m ON m.id = w.value {_SESSIONS}",
    places=f"""json_each(?) w CROSS JOIN messages m
        ON m.session_key = w.value >> 32 AND m.position = w.value & 4294967295 {_SESSIONS}""",
    windows=f"{_WINDOWS} {_SESSIONS}",
)


class KnownSpeakers(Struct, frozen=True):
    """The names of people who wrote messages up to `newest`. Some of these messages may be deleted."""

    newest: int = 0
    names: frozenset[str] = frozenset()


def scope_facts(
    database: Database, query: str, filters: Filters, sources: Collection[str], known: KnownSpeakers
) -> tuple[ScopeFacts, KnownSpeakers]:
    """Return whom a question names, which of these sources are stored, and the newest message; and all speakers now."""
    (newest,) = database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    if newest > known.newest + MAX_NEW_MESSAGES:
        known = KnownSpeakers()
    sql = _FACTS.format(_NEW_SPEAKERS if known.newest else _ALL_SPEAKERS)
    values = (known.newest, PROGRESS_KEY) if known.newest else (PROGRESS_KEY,)
    (_, progress, tables, newest), *rows = database.execute(sql, values).fetchall()
    known = KnownSpeakers(newest, known.names.union([row[1] for row in rows if row[0] == "speaker"]))
    named = sorted(named_in(query, known.names))
    condition, parameters = session_condition(database, filters.scope())
    sql = (
        "SELECT 1 FROM messages m JOIN sessions s ON s.key = m.session_key"
        f" WHERE m.speaker = ? AND m.speaker > '' AND {condition} LIMIT 1"
    )
    names = [name for name in named if database.execute(sql, (name, *parameters)).fetchone()]
    stored = tuple(row[1] for row in rows if row[0] == "source" and row[1] in sources)
    return ScopeFacts(names, stored, newest if progress is None and tables else None), known


def finds_samples(database: Database) -> bool:
    """Return True if the index finds messages of all ages by their own terms, and the newest one is its last one."""
    rows = database.execute(_SAMPLES).fetchall()
    if not rows:
        return database.execute(f"SELECT ({_LAST_INDEXED})").fetchone()[0] is None
    # A search leaves out messages whose session is lost.
    if rows[0]["last"] != rows[0]["id"] or not all(row["has_session"] for row in rows):
        return False
    samples = [(row["id"], terms_of_sample(row["size"], *row[2:5])) for row in rows]
    return _finds(database, [(message_id, joined("AND", terms)) for message_id, terms in samples if terms])


def misses(database: Database, hits: Sequence[SearchHit], analysis: Analysis) -> bool:
    """Return True if the index does not find these messages by the words of a question that they have."""
    terms = {index_text(term.text) for term in (*analysis.terms, *analysis.others)}
    held = [(hit.message_id, terms & {*index_text(hit.text).split()}) for hit in hits]
    return not _finds(database, [(message_id, Phrase(min(own))) for message_id, own in held if own])


def _finds(database: Database, samples: Sequence[tuple[int, Match]]) -> bool:
    """Return True if the index finds each message of `samples` by its condition."""
    sought = [(expression_of(match, FTS5), message_id) for message_id, match in samples]
    exists = "SELECT EXISTS (SELECT 1 FROM messages_fts WHERE messages_fts MATCH ? AND rowid = ?)"
    sql = " UNION ALL ".join([exists] * len(sought))
    return not sought or all(
        row[0] for row in database.execute(sql, [value for pair in sought for value in pair])
    )


class Fts5Reader(IndexReader):
    """A reader of the full-text index, and of messages that pass the filters, for one search."""

    joins = _JOINS
    _database: Database

    def __init__(
        self, database: Database, filters: Filters, order: Order | None, limit: int, newest: int
    ) -> None:
        super().__init__(database, filters, order, limit)
        self._sessions = _SESSIONS if filters.needs_sessions else ""
        self._newest = newest
        self._counter = ScopeCounter(database, filters, self._newest)
        self._scope, self._scope_parameters = "WHERE", list[Any]()
        if (scope := self._counter.scope).needs_sessions:
            condition, self._scope_parameters = session_condition(database, scope)
            self._scope = f"JOIN sessions s ON s.key = m.session_key WHERE {condition} AND"
        self.total = self._counter.total
        self._spans = self._counter.spans(order)

    def _look_up(
        self, requests: Sequence[IndexRequest], others: Sequence[Condition]
    ) -> tuple[list[Postings], list[IndexRow]]:
        # Counting stops after `limit` + 1 messages. It reads the index alone: reading the places too would take three
        # times as long, and most places of a common term are not needed.
        counted = self._each([(r.match, 0 if r.partial else r.limit + 1) for r in requests], _COUNTED)
        limits = [
            r.limit if r.partial or 0 < len(ids) <= r.limit else 0
            for r, ids in zip(requests, counted, strict=True)
        ]
        rows = self._each([(r.match, limit) for r, limit in zip(requests, limits, strict=True)], ROW)
        postings = [
            Postings(row, len(row)) if r.partial or len(ids) <= r.limit else self._common(ids)
            for r, ids, row in zip(requests, counted, rows, strict=True)
        ]
        return postings, [row for statements in self._database.read(others) for row in statements]

    def newest(self, match: Match, limit: int) -> list[IndexRow]:
        """Return the newest `limit` messages that fulfil a condition, or the oldest."""
        return self._each([(match, limit)], ROW)[0]

    def _each(self, wanted: Sequence[tuple[Match, int]], columns: str) -> list[list[Any]]:
        """Return for each condition up to so many of the messages that fulfil it, the newest first, or the oldest."""
        rows: list[list[Any]] = [[] for _ in wanted]
        joins = columns != _COUNTED or self._scope_parameters
        # A hidden message may have left terms: another version of Python may take a letter for another sign.
        scope = f"JOIN messages m ON m.id = f.rowid AND m.state < 2 {self._scope}" if joins else "WHERE"
        # The same text for each condition, which SQLite then parses once.
        sql = f"""SELECT {columns} FROM messages_fts f {scope} messages_fts MATCH ?
            AND f.rowid BETWEEN ? AND ? ORDER BY f.rowid {self._direction} LIMIT ?"""
        expressions = [expression_of(match, FTS5) for match, _ in wanted]
        for first, last in self._spans:
            for number, (_, limit) in enumerate(wanted):
                if expressions[number] is not None and (rest := limit - len(rows[number])) > 0:
                    asked = (*self._scope_parameters, expressions[number], first, last, rest)
                    rows[number] += self._tuples(sql, asked)
        return rows

    def _tuples(self, sql: str, values: Sequence[object]) -> list[Any]:
        """Return the rows of a statement as tuples: a search reads a thousand, and others take a third longer."""
        cursor = self._database.execute(sql, values)
        cursor.row_factory = None
        return cursor.fetchall()

    def _between(self, start: float, end: float) -> Condition:
        if self.total * MAX_OTHERS_SHARE < self._newest:
            return super()._between(start, end)
        return (
            f"""SELECT {ROW} FROM messages m {self._sessions} WHERE {self._filters} AND m.timestamp >= ? AND m.timestamp < ?
                ORDER BY m.timestamp DESC, m.id DESC LIMIT {self._limit}""",
            [*self._parameters, start, end],
        )

    def _common(self, ids: Sequence[tuple[int]]) -> Postings:
        """Return the number of messages with a common term, of which counting stopped at the last of `ids`."""
        # Estimated from the messages among which the counted hits lie, because counting all hits would mean reading
        # them all. Messages of others between them don't count: a word is as rare for its owner in a shared store.
        count, passed = len(ids), self._counter.messages_from(ids[-1][0])
        passed = self.total - passed + 1 if self._direction == "ASC" else passed
        frequency = count * self.total // max(passed, count)
        return Postings((), max(frequency, count), whole=False)

    def around(self, places: Collection[Place], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
        """Return for each condition which of the messages whose words count for these places fulfil it."""
        by_window: dict[int, set[int]] = {}
        sql = f"SELECT w.key, m.id FROM {_WINDOWS}"
        for window, message_id in self._tuples(sql, (json.dumps(windows_around(places)),)):
            by_window.setdefault(window, set()).add(message_id)
        spans = {(min(ids), max(ids)): ids for ids in by_window.values()}
        return [self._among(match, spans) for match in matches]

    def among(self, rows: Sequence[IndexRow], matches: Sequence[CommonMatch]) -> list[list[IndexRow]]:
        """Return for each condition which of these messages fulfil it."""
        ids = {row[3] for row in rows}
        spans = {(min(ids), max(ids)): ids} if ids else {}
        return [self._among(match, spans) for match in matches]

    def _among(self, common: CommonMatch, spans: Mapping[Span, Collection[int]]) -> list[IndexRow]:
        """Return which messages fulfil a condition; `spans` are their ids by ranges."""
        expression = expression_of(common.match, FTS5)
        if not spans or expression is None:
            return []
        listed = common.frequency * self._newest // max(self.total, 1)  # hits of everybody in the index
        spanned = listed * sum(last - first + 1 for first, last in spans) // max(self._newest, 1)
        if listed > SEEK_FREQUENCY * len(spans) + spanned:
            source = "json_each(?) w CROSS JOIN"
            within = "f.rowid BETWEEN json_extract(w.value, '$[0]') AND json_extract(w.value, '$[1]')"
            asked: tuple[object, ...] = (json.dumps(list(spans)), expression)
        else:
            # The plus keeps SQLite from asking FTS5 once for each id, because reading the whole list is cheaper here.
            source, within = "", "f.rowid BETWEEN ? AND ? AND +f.rowid IN (SELECT value FROM json_each(?))"
            first, last = min(start for start, _ in spans), max(end for _, end in spans)
            asked = (expression, first, last, json.dumps([i for ids in spans.values() for i in ids]))
        rows = self._tuples(
            f"""SELECT {ROW} FROM {source} messages_fts f
                JOIN messages m ON m.id = f.rowid WHERE messages_fts MATCH ? AND {within}""",
            asked,
        )
        ids = {message_id for span in spans.values() for message_id in span}
        return [row for row in rows if row[3] in ids]  # other sessions' messages lie between those of a span

    def fulfilling(self, match: Match, limit: int) -> list[IndexRow]:
        """Return the newest messages that pass the filters and fulfil a condition with any operators."""
        native = native_expression(match, FTS5)
        if native is not None:  # the index then returns ids in order, so the reading stops early
            source, by = "messages_fts f CROSS JOIN messages m ON m.id = f.rowid", "f.rowid"
            sql, parameters = "messages_fts MATCH ?", [native]
        else:
            source, by = "messages m", "m.id"
            sql, parameters = condition_sql(match, FTS5)
        statement = f"""
            SELECT {ROW} FROM {source} {self._sessions}
            WHERE {self._filters} AND {sql} AND {by} BETWEEN ? AND ? ORDER BY {by} {self._direction} LIMIT ?
        """
        rows: list[IndexRow] = []
        for first, last in self._spans:
            asked = (*self._parameters, *parameters, first, last, limit - len(rows))
            rows += self._database.execute(statement, asked).fetchall()
            if len(rows) >= limit:
                break
        return rows


# ---------------------------------------------------------------------- the scope of a search


class ScopeCounter:
    """A counter of the messages in the sessions of the filters, so that other owners' messages change no ranking.

    Attributes:
        scope: The filters of sessions; none if all sessions pass, because nobody else has any.
        total: Number of messages in the scope of the filters.
    """

    def __init__(self, database: Database, filters: Filters, newest: int) -> None:
        self._database = database
        self._newest = newest
        self.scope = scope = filters.scope()
        if scope == Filters(user=scope.user) and self._is_alone(scope.user):
            self.scope = scope = Filters()
        self._named = bool(scope.sources or scope.sessions or scope.user is not None)
        # Ranges of message ids of the sessions with the number of their messages; None if there are too many sessions.
        self._sessions, self.total = self._few_sessions() if self._named else (None, newest)
        # A search for one user then reads few messages of others.
        self._narrow = scope.sessions or scope.user is not None

    def spans(self, order: Order | None) -> list[Span]:
        """Return the ranges of message ids to search, newest first, or oldest first if `order` is "oldest".

        If the filters name a user or sessions, these are the ranges of their sessions. If they name neither, or too
        many sessions, it is the range of all messages.
        """
        if self._sessions is None or not self._narrow:
            return [(0, self._newest)]
        joined: list[Span] = []
        for (first, last), _ in self._sessions:
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        return joined if order == "oldest" else joined[::-1]

    def messages_from(self, message_id: int) -> int:
        """Return about how many messages of the scope have this id or a higher id.

        The messages of a session are taken to lie evenly between its first and its last. With too many sessions for
        that, those that began after the session of the message count whole, since ids of sessions grow with time too.
        """
        if not self._named:
            return self._newest - message_id + 1
        if self._sessions is not None:
            return round(sum(count * _share_from(span, message_id) for span, count in self._sessions))
        (key, position) = self._database.execute(
            "SELECT session_key, coalesce(position, 0) FROM messages WHERE id = ?", (message_id,)
        ).fetchone() or (0, 0)
        return self._sum(
            "CASE WHEN s.key > ? THEN s.message_count WHEN s.key = ? THEN s.message_count - ? ELSE 0 END",
            (key, key, position),
        )

    def _is_alone(self, user: str | None) -> bool:
        """Return True if all messages are in sessions of this user."""
        # Two conditions, each of which SQLite seeks in the index over users.
        other = 'EXISTS (SELECT 1 FROM sessions WHERE "user" {} ? AND message_count > 0)'
        sql = f"SELECT {other.format('<')} OR {other.format('>')}"
        return user is not None and not self._database.execute(sql, (user, user)).fetchone()[0]

    def _sum(self, expression: str, parameters: tuple[int, ...] = ()) -> int:
        condition, of_sessions = session_condition(self._database, self.scope)
        sql = f"SELECT coalesce(sum({expression}), 0) FROM sessions s WHERE {condition}"
        return int(self._database.execute(sql, (*parameters, *of_sessions)).fetchone()[0])

    def _few_sessions(self) -> tuple[list[tuple[Span, int]] | None, int]:
        """Return the ranges of the sessions, or None if there are too many of them, and the number of their messages."""
        condition, parameters = session_condition(self._database, self.scope)
        # In a session, message ids grow with positions, so the first and last position give its range of ids.
        end = "(SELECT id FROM messages WHERE session_key = s.key AND position IS NOT NULL ORDER BY position {} LIMIT 1)"
        rows = self._database.execute(
            f"""SELECT {end.format("ASC")}, {end.format("DESC")}, s.message_count FROM sessions s
                WHERE {condition} LIMIT {MAX_SPAN_SESSIONS + 1}""",
            parameters,
        ).fetchall()
        if len(rows) > MAX_SPAN_SESSIONS:
            return None, self._sum("s.message_count")
        spans = sorted(((first, last), count) for first, last, count in rows if first is not None)
        return spans, sum(count for _, _, count in rows)


def _share_from(span: Span, message_id: int) -> float:
    """Return which share of a range of ids begins with `message_id`."""
    first, last = span
    return min(max((last - message_id + 1) / (last - first + 1), 0.0), 1.0)

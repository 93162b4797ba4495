"""Search: the SQL that brings candidates; what they are worth is decided in `hermes_core.recall`.

All text reaches FTS5 as quoted strings; none of its syntax is open to the person who asks, and none of its syntax
errors either.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from hermes_core.recall.dates import When
from hermes_core.recall.query import Analysis, Expression, named_in
from hermes_core.recall.rank import Candidate, Place, rank, worth_telling
from hermes_core.sessions.records import SearchHit
from hermes_core.sessions.search.filters import (
    Filters,
    Order,
    condition_sql,
    match_of,
    native_match,
    required_words,
)
from hermes_core.sessions.search.lookup import MOST, Lookup, Stretch
from hermes_core.sessions.search.snippets import snippet
from hermes_core.sessions.search.vectors import VectorIndex
from hermes_core.storage.sqlite import Database

POOL = 150
"""Candidates that are read and ranked. On LoCoMo fifty cost a third of a point of recall@10; 250 gain nothing."""

ALIKE = 250
"""Messages closest in meaning that are ranked as well, as far as they are in scope; with 150, half a point less."""

RELEVANT = 0.5
"""Share of the best score that a hit needs when the answer is sorted by time, so that chance hits don't lead it."""

_SPEAKERS = """
    WITH RECURSIVE found (name) AS (
        SELECT min(speaker) FROM messages WHERE speaker > ''
        UNION ALL
        SELECT (SELECT min(speaker) FROM messages WHERE speaker > name AND likely(speaker > '')) FROM found WHERE name <> ''
    ) SELECT name FROM found WHERE name <> '' LIMIT 2000
"""
"""Each step seeks the next name in an index that holds speakers only. It begins at `name`, not at '', because the latter
is called likely: else it walks over all messages before, for each name again.
"""

# What ranking needs of each candidate, and what is shown of the few that are left.
_CANDIDATE_COLUMNS = """
    m.id, m.session_key, m.position, m.content, m.timestamp, m.speaker, coalesce((
        SELECT substr(rtrim(b.content), -1) IN ('?', '？') FROM messages b
        WHERE b.session_key = m.session_key AND b.position = m.position - 1
    ), 0) AS reply
"""
_HIT_COLUMNS = """
    m.id, s.id AS session_id, m.role, m.content, m.timestamp, m.speaker, m.ref, m.tool_name, m.tool_calls,
    s.source, s.model, s.title, s.started_at
"""
_HITS = f"SELECT {_HIT_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key"


def search(
    database: Database,
    analysis: Analysis,
    filters: Filters,
    *,
    limit: int,
    order: Order | None,
    now: float,
    zone: tzinfo,
    vectors: VectorIndex | None = None,
    proactive: bool = False,
    snippets: bool = True,
) -> list[SearchHit]:
    """The messages that answer, best first, or by time among the relevant ones; `proactive`, only those worth it."""
    if limit < 1 or not analysis:
        return []
    lookup, reader = Lookup(database, filters, order), _Reader(database, filters, max(POOL, limit))
    likeness = vectors.likeness(analysis.text, analysis.names) if vectors and order is None else None
    rows, scores = _candidates(
        lookup,
        reader,
        analysis,
        order,
        _spans(analysis.dates, now, zone),
        likeness.best(ALIKE) if likeness else (),
    )
    ids = [row[0] for row in rows]
    near = vectors.closeness(likeness.asked, ids) if vectors and likeness else {}
    like = {one: likeness.of(one) + near.get(one, 0.0) for one in ids} if likeness else {}
    candidates = [_candidate(row, scores, like.get(row[0], 0.0)) for row in rows]
    if proactive and not likeness and all(candidate.score < lookup.least for candidate in candidates):
        return []
    ranked = rank(analysis, candidates, limit=len(candidates) if order or proactive else limit, zone=zone)
    if proactive:
        ranked = worth_telling(analysis, ranked)
    if order:
        ranked.sort(key=lambda one: (one.candidate.timestamp, one.candidate.id), reverse=order == "newest")
    found = _shown(database, [one.candidate.id for one in ranked[:limit]])
    return [
        _hit(row, one.score, _snippet(database, row, lookup.asked) if snippets else "")
        for one in ranked[:limit]
        if (row := found.get(one.candidate.id)) is not None  # else it went just now
    ]


def _shown(database: Database, ids: Sequence[int]) -> dict[int, sqlite3.Row]:
    sql = f"{_HITS} WHERE m.id IN (SELECT value FROM json_each(?)) AND m.state < 2"
    return {row["id"]: row for row in database.execute(sql, (json.dumps(ids),))}


def everything(database: Database, filters: Filters, size: int) -> list[SearchHit] | None:
    """All messages with text that a search could bring, oldest first; None when they have more than `size` characters."""
    condition, parameters = filters.sql()
    condition = f"{condition} AND trim(m.content) <> ''"
    there = f"FROM messages m JOIN sessions s ON s.key = m.session_key WHERE {condition}"
    # Each has a character at least: what has more rows than that need not be read.
    total = f"SELECT coalesce(sum(length(content)), 0) FROM (SELECT m.content {there} LIMIT ?)"
    if database.execute(total, (*parameters, size + 1)).fetchone()[0] > size:
        return None
    rows = database.execute(f"{_HITS} WHERE {condition} ORDER BY m.timestamp, m.id", parameters)
    return [_hit(row, 0.0, row["content"]) for row in rows]


def _candidates(
    lookup: Lookup,
    reader: _Reader,
    analysis: Analysis,
    order: Order | None,
    spans: Sequence[tuple[float, float]],
    alike: Sequence[int],
) -> tuple[list[sqlite3.Row], dict[Place, float]]:
    """The rows worth ranking, with what their words are worth: by their words, their time, and their vectors."""
    if analysis.condition is not None:
        fulfilling, sizes = reader.fulfilling(analysis.condition, order, lookup.stretches)
        scores = lookup.scores_among(analysis, fulfilling, sizes, required_words(analysis.condition))
        places: Iterable[Place] = fulfilling.values()
        return reader.rows(list(places) if order else _by_score(places, scores)), scores
    if order:
        scores = lookup.scores(analysis)
        return reader.rows(_relevant(lookup, scores, order)) if scores else reader.between(spans), scores
    others = {row["id"]: row for row in (*reader.between(spans), *reader.of(alike))}
    scores = lookup.scores(analysis, [(row["session_key"], row["position"]) for row in others.values()])
    best = {row["id"]: row for row in reader.rows(_by_score(scores, scores))}
    return list((best | others).values()), scores


def _by_score(places: Iterable[Place], scores: Mapping[Place, float]) -> list[Place]:
    return sorted(places, key=scores.__getitem__, reverse=True)


def _relevant(lookup: Lookup, scores: Mapping[Place, float], order: Order) -> list[Place]:
    """Places that hold a term and are worth something beside the best, by time; ids grow with time."""
    least = RELEVANT * max(scores.get(place, 0.0) for place in lookup.holding)
    kept = [place for place in lookup.holding if scores.get(place, 0.0) >= least]
    return sorted(kept, key=lookup.holding.__getitem__, reverse=order == "newest")


def snippet_of(database: Database, analysis: Analysis, message_id: int) -> str:
    """The part of a message that matched; "" when there is no such any more."""
    sql = "SELECT id, content, tool_calls FROM messages WHERE id = ? AND position IS NOT NULL"
    row = database.execute(sql, (message_id,)).fetchone()
    return _snippet(database, row, [match_of(term) for term in analysis.terms]) if row else ""


def _snippet(database: Database, row: sqlite3.Row, hits: Sequence[str]) -> str:
    return snippet(database, row["id"], row["content"] or row["tool_calls"], hits)


def known_names(database: Database, query: str, filters: Filters) -> list[str]:
    """The speakers among the messages in scope whom the question names."""
    named = sorted(named_in(query, [row[0] for row in database.execute(_SPEAKERS)]))
    condition, parameters = filters.scope().sql()
    sql = (
        "SELECT 1 FROM messages m JOIN sessions s ON s.key = m.session_key"
        f" WHERE m.speaker = ? AND m.speaker > '' AND {condition} LIMIT 1"
    )
    return [name for name in named if database.execute(sql, (name, *parameters)).fetchone()]


class _Reader:
    """Reads messages that pass the filters, `pool` of them at most."""

    def __init__(self, database: Database, filters: Filters, pool: int) -> None:
        self._database = database
        self._pool = pool
        self._filters, self._parameters = filters.sql()
        # CROSS keeps SQLite from beginning with the sessions.
        self._sessions = "CROSS JOIN sessions s ON s.key = m.session_key" if filters.ask_sessions else ""

    def rows(self, places: Sequence[Place]) -> list[sqlite3.Row]:
        """Rows at the first of these places that are there and pass the filters."""
        rows: list[sqlite3.Row] = []
        start, step = 0, self._pool
        while start < len(places) and len(rows) < self._pool:
            rows += self._at(places[start : start + step])
            start, step = start + step, 2 * step
        return rows[: self._pool]

    def of(self, ids: Sequence[int]) -> list[sqlite3.Row]:
        """Rows with these ids, as far as they pass the filters."""
        sql = f"""
            SELECT {_CANDIDATE_COLUMNS} FROM json_each(?) w CROSS JOIN messages m ON m.id = w.value {self._sessions}
            WHERE {self._filters}
        """
        return self._database.execute(sql, (json.dumps(ids), *self._parameters)).fetchall()

    def fulfilling(
        self, condition: Expression, order: Order | None, stretches: Sequence[Stretch]
    ) -> tuple[dict[int, Place], dict[Place, int]]:
        """Messages that fulfil a condition, by id, and how long they are: the newest, or the oldest; `MOST` of them, or
        as many as are wanted.
        """
        enough = max(MOST, self._pool)
        direction = "ASC" if order == "oldest" else "DESC"
        native = native_match(condition)
        if native is not None:  # the index walks in this order and stops when there are enough
            table, expression = native
            source, sql, parameters = (
                f"{table} f CROSS JOIN messages m ON m.id = f.rowid",
                f"{table} MATCH ?",
                [expression],
            )
            by = "f.rowid"
        else:
            sql, parameters = condition_sql(condition)
            source, by = "messages m", "m.id"
        statement = f"""
            SELECT m.id, m.session_key, m.position, m.size FROM {source} {self._sessions}
            WHERE {self._filters} AND {sql} AND {by} BETWEEN ? AND ? ORDER BY {by} {direction} LIMIT ?
        """
        found: dict[int, Place] = {}
        sizes: dict[Place, int] = {}
        for first, last in stretches:
            asked = (*self._parameters, *parameters, first, last, enough - len(found))
            for message_id, key, position, size in self._database.execute(statement, asked).fetchall():
                found[message_id] = place = (key, position)
                sizes[place] = size
            if len(found) >= enough:
                break
        return found, sizes

    def between(self, spans: Iterable[tuple[float, float]]) -> list[sqlite3.Row]:
        """Rows of given times, for a question that names nothing but a time."""
        rows: dict[int, sqlite3.Row] = {}
        for start, end in spans:
            sql = f"""
                SELECT {_CANDIDATE_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key
                WHERE {self._filters} AND s.last_active >= ? AND s.started_at < ?
                    AND m.timestamp >= ? AND m.timestamp < ? ORDER BY m.id DESC LIMIT {self._pool}
            """
            found = self._database.execute(sql, (*self._parameters, start, end, start, end))
            rows.update((row["id"], row) for row in found)
        return list(rows.values())

    def _at(self, places: Sequence[Place]) -> list[sqlite3.Row]:
        sql = f"""
            SELECT {_CANDIDATE_COLUMNS} FROM json_each(?) w
            CROSS JOIN messages m ON m.session_key = w.value >> 32 AND m.position = w.value & 0xffffffff
            {self._sessions} WHERE {self._filters}
        """
        packed = json.dumps([key << 32 | position for key, position in places])
        return self._database.execute(sql, (packed, *self._parameters)).fetchall()


def _candidate(row: sqlite3.Row, scores: Mapping[Place, float], like: float) -> Candidate:
    message_id, key, position, content, timestamp, speaker, reply = row
    score = scores.get((key, position), 0.0)
    return Candidate(message_id, content, score, speaker, timestamp, bool(reply), like)


def _hit(row: sqlite3.Row, score: float, snippet: str) -> SearchHit:
    return SearchHit(
        message_id=row["id"],
        session_id=row["session_id"],
        role=row["role"],
        text=row["content"],
        snippet=snippet,
        score=score,
        timestamp=row["timestamp"],
        speaker=row["speaker"],
        ref=row["ref"],
        tool_name=row["tool_name"],
        source=row["source"],
        model=row["model"],
        title=row["title"],
        session_started=row["started_at"],
    )


def _spans(dates: Iterable[When], now: float, zone: tzinfo) -> list[tuple[float, float]]:
    """Named times as spans in epoch seconds; a month without a year is the last one that began before `now`."""
    return [span for when in dates if (span := _span(when, datetime.fromtimestamp(now, zone))) is not None]


def _span(when: When, now: datetime) -> tuple[float, float] | None:
    if when.end:
        return when.start, when.end
    year, month, day = when.year or now.year, when.month or 1, when.day or 1
    if not when.year and (month, day) > (now.month, now.day):
        year -= 1
    try:
        start = datetime(year, month, day, tzinfo=now.tzinfo)
    except ValueError:
        return None
    length = 1 if when.day else 31 if when.month else 366
    return start.timestamp(), (start + timedelta(days=length)).timestamp()

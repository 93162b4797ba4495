"""Search over messages: SQL finds the candidates, and `hermes_core.recall` ranks them.

All text reaches FTS5, SQLite's full-text index, as quoted strings. So a question can neither use the syntax of FTS5 nor
cause syntax errors.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from hermes_core.recall.dates import When
from hermes_core.recall.query import Analysis, Expression, named_in
from hermes_core.recall.rank import (
    MAX_UNANSWERED_CHARS,
    Place,
    RankCandidate,
    Ranked,
    Telling,
    asks,
    rank_candidates,
    says_unknown,
    select_proactive,
)
from hermes_core.recall.tokens import words
from hermes_core.sessions.records import Order, SearchHit, calls_as_text, stored_origin
from hermes_core.sessions.search.lookup import (
    MAX_COMMON_HITS,
    MAX_LEAVES,
    Filters,
    Lookup,
    Span,
    condition_sql,
    match_of,
    native_match,
    required_words,
)
from hermes_core.sessions.search.snippets import best_part, snippet
from hermes_core.sessions.search.vectors import VectorIndex
from hermes_core.storage.sqlite import Database

# Number of candidates that are read and ranked. On LoCoMo, 50 cost a third of a point of recall@10; 250 gain nothing.
MAX_CANDIDATES = 150

# Number of messages closest in meaning that are ranked as well, if they pass the filters; with 150, recall@10 is half a
# point lower.
MAX_CLOSE_IN_MEANING = 250

# Characters of a snippet that is made without the search index.
PLAIN_SNIPPET_CHARS = 400

# Share of the best score that a hit needs in an answer sorted by time, so that chance hits don't lead it.
MIN_SCORE_SHARE = 0.5

# Which repeats a search leaves out: none, equal texts, or texts with nearly the same words.
Distinct = Literal["", "text", "words"]

# All speakers. Each step seeks the next name in an index that holds speakers only. `likely` makes SQLite
# begin at `name` and not at '': otherwise it walks over all messages before it, for each name again.
_SPEAKERS = """
    WITH RECURSIVE found (name) AS (
        SELECT min(speaker) FROM messages WHERE speaker > ''
        UNION ALL
        SELECT (SELECT min(speaker) FROM messages WHERE speaker > name AND likely(speaker > '')) FROM found WHERE name <> ''
    ) SELECT name FROM found WHERE name <> '' LIMIT 2000
"""

# Messages after a question among which its answer is sought; between them stand calls and results of tools.
MAX_TURN_ROWS = 20

# Share of common words above which two texts of programs count as the same: daily reports differ in dates and numbers.
MIN_COMMON_WORDS = 0.8

# Ranking reads few columns of many candidates; the others are read only of the few messages that are shown.
_CANDIDATE_COLUMNS = f"""
    m.id, m.session_key, m.position, m.content, m.timestamp, m.speaker, coalesce((
        SELECT substr(rtrim(b.content), -1) IN ('?', '？') FROM messages b
        WHERE b.session_key = m.session_key AND b.position = m.position - 1
    ), 0) AS reply, CASE
        WHEN m.size > {MAX_UNANSWERED_CHARS} THEN ''
        WHEN m.role = 'assistant' THEN m.content
        WHEN m.role = 'user' THEN (
            SELECT CASE b.role WHEN 'assistant' THEN substr(b.content, 1, {MAX_UNANSWERED_CHARS + 1}) ELSE '' END
            FROM messages b
            WHERE b.session_key = m.session_key AND b.position BETWEEN m.position + 1 AND m.position + {MAX_TURN_ROWS}
                AND b.role IN ('user', 'assistant') AND b.content <> '' ORDER BY b.position LIMIT 1)
    END AS answer, m.role
"""
_HIT_COLUMNS = """
    m.id, s.id AS session_id, m.role, m.content, m.timestamp, m.speaker, m.ref, m.tool_name, m.tool_calls,
    m.origin, s.source, s.model, s.title, s.started_at
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
    distinct: Distinct = "",
) -> list[SearchHit]:
    """Return the messages that answer a question best; see `SessionDB.search`.

    Args:
        database: The store.
        analysis: The question.
        filters: Filters of the messages.
        limit: Largest number of messages.
        order: Order of the relevant messages by time; None orders by relevance.
        now: The current time in epoch seconds.
        zone: Time zone of dates in the question.
        vectors: The index for search by meaning; None searches by words only.
        proactive: True for recall that the person did not ask for.
        snippets: True to fill `SearchHit.snippet`.
        distinct: "text" returns each text once; "words" also leaves out texts with nearly the same words.
    """
    if limit < 1 or not analysis:
        return []
    lookup = Lookup(database, filters, order)
    reader = _CandidateReader(database, filters, max(MAX_CANDIDATES, limit))
    likeness = vectors.likeness(analysis.text, analysis.names) if vectors and order is None else None
    if likeness is not None and likeness.is_distant:
        if proactive:
            return []
        likeness = None
    spans = _spans(analysis.dates, now, zone)
    rows, scores = _candidates(
        lookup,
        reader,
        analysis,
        order,
        spans,
        likeness.best(MAX_CLOSE_IN_MEANING) if likeness else (),
    )
    ids = [row[0] for row in rows]
    near = vectors.closeness(likeness, ids) if vectors and likeness else {}
    meaning = {row_id: likeness.of(row_id) + near.get(row_id, 0.0) for row_id in ids} if likeness else {}
    candidates = [_candidate(row, scores, meaning.get(row[0], 0.0)) for row in rows]
    if proactive:
        # "today" and "this week" are in any talk, and say nothing of the past.
        past = [span for span in spans if span[1] <= now]
        cosine = likeness.nearest(ids) if likeness else None
        if not _telling(lookup, analysis, rows, past).opens(cosine):
            return []
    ranked = rank_candidates(
        analysis, candidates, limit=len(candidates) if order or proactive or distinct else limit, zone=zone
    )
    if proactive:
        ranked = select_proactive(analysis, ranked)
    if distinct:
        ranked = _without_repeats(ranked, limit, distinct)
    if order:
        ranked.sort(
            key=lambda entry: (entry.candidate.timestamp, entry.candidate.id), reverse=order == "newest"
        )
    shown = ranked[:limit]
    sql = f"{_HITS} WHERE m.id IN (SELECT value FROM json_each(?)) AND m.state < 2"
    asked = json.dumps([entry.candidate.id for entry in shown])
    by_id = {row["id"]: row for row in database.execute(sql, (asked,))}
    return [
        _hit(
            row,
            entry.score,
            _snippet(database, row, lookup.expressions) if snippets else "",
            best_part(row["content"], lookup.expressions, likeness.span(row["id"]) if likeness else None),
        )
        for entry in shown
        if (row := by_id.get(entry.candidate.id)) is not None  # another process may just have deleted it
    ]


def _telling(
    lookup: Lookup, analysis: Analysis, rows: Sequence[sqlite3.Row], past: Sequence[tuple[float, float]]
) -> Telling:
    """Return the telling words of a question: its words, the persons whom it names, and the times in `past`."""
    telling = lookup.telling(analysis, [(row["session_key"], row["position"]) for row in rows])
    if analysis.names:
        telling = telling.with_match()
    if any(start <= row["timestamp"] < end for start, end in past for row in rows):
        telling = telling.with_match()
    return telling


def search_plainly(
    database: Database,
    analysis: Analysis,
    filters: Filters,
    *,
    limit: int,
    order: Order | None,
    proactive: bool = False,
) -> list[SearchHit]:
    """Return the newest messages with the most words of a question, without the search index.

    If `proactive` is True, return messages with at least two words.

    This reads all messages that pass the filters. Conditions in the question, as AND and NOT, are not regarded.
    """
    terms = [term.text for term in analysis.terms][:MAX_LEAVES]
    if limit < 1 or not terms:
        return []
    condition, parameters = filters.sql()
    likes = ["%" + re.sub("([%_!])", r"!\1", term) + "%" for term in terms]
    matches = " + ".join(["(m.content LIKE ? ESCAPE '!')"] * len(likes))
    direction = "ASC" if order == "oldest" else "DESC"
    ranking = "" if order else "words DESC,"
    rows = database.execute(
        f"""SELECT {_HIT_COLUMNS}, {matches} AS words FROM messages m JOIN sessions s ON s.key = m.session_key
            WHERE {condition} AND words >= ? ORDER BY {ranking} m.timestamp {direction}, m.id {direction} LIMIT ?""",
        (*likes, *parameters, 2 if proactive else 1, limit),
    ).fetchall()
    return [_hit(row, row["words"] / len(likes), around_first(row["content"], analysis)) for row in rows]


def around_first(text: str, analysis: Analysis) -> str:
    """Return the part of a text around the first word of the question in it, without the search index."""
    lowered = text.lower()
    places = [at for term in analysis.terms if (at := lowered.find(term.text.lower())) >= 0]
    start = max(min(places, default=0) - PLAIN_SNIPPET_CHARS // 4, 0)
    return text[start : start + PLAIN_SNIPPET_CHARS]


def everything(database: Database, filters: Filters, max_chars: int) -> list[SearchHit] | None:
    """Return all messages with text that pass the filters, oldest first.

    Return None if their text has more than `max_chars` characters.
    """
    condition, parameters = filters.sql()
    condition = f"{condition} AND trim(m.content) <> ''"
    source = f"FROM messages m JOIN sessions s ON s.key = m.session_key WHERE {condition}"
    # Each message has at least one character, so `max_chars` + 1 rows are enough to exceed the limit.
    total = f"SELECT coalesce(sum(length(content)), 0) FROM (SELECT m.content {source} LIMIT ?)"
    if database.execute(total, (*parameters, max_chars + 1)).fetchone()[0] > max_chars:
        return None
    rows = database.execute(f"{_HITS} WHERE {condition} ORDER BY m.timestamp, m.id", parameters)
    return [_hit(row, 0.0, row["content"]) for row in rows]


def _candidates(
    lookup: Lookup,
    reader: _CandidateReader,
    analysis: Analysis,
    order: Order | None,
    spans: Sequence[tuple[float, float]],
    close: Sequence[int],
) -> tuple[list[sqlite3.Row], dict[Place, float]]:
    """Return the rows of messages to rank, and the scores by words of their places.

    Messages are candidates because of their words, because of a time that the question names (`spans`), or because they
    are close in meaning (`close`, message ids).
    """
    if analysis.condition is not None:
        fulfilling, sizes = reader.fulfilling(analysis.condition, order, lookup.spans)
        scores = lookup.scores_among(analysis, fulfilling, sizes, required_words(analysis.condition))
        places: Iterable[Place] = fulfilling.values()
        return reader.rows(list(places) if order else _by_score(places, scores)), scores
    if order:
        scores = lookup.scores(analysis)
        return reader.rows(_relevant(lookup, scores, order)) if scores else reader.between(spans), scores
    others = {row["id"]: row for row in (*reader.between(spans), *reader.with_ids(close))}
    scores = lookup.scores(analysis, [(row["session_key"], row["position"]) for row in others.values()])
    best = {row["id"]: row for row in reader.rows(_by_score(scores, scores))}
    return list((best | others).values()), scores


def _by_score(places: Iterable[Place], scores: Mapping[Place, float]) -> list[Place]:
    return sorted(places, key=scores.__getitem__, reverse=True)


def _relevant(lookup: Lookup, scores: Mapping[Place, float], order: Order) -> list[Place]:
    """Return the places that hold a term of the question and score well beside the best place, ordered by time."""
    least = MIN_SCORE_SHARE * max(scores.get(place, 0.0) for place in lookup.holding)
    relevant = [place for place in lookup.holding if scores.get(place, 0.0) >= least]
    return sorted(relevant, key=lookup.holding.__getitem__, reverse=order == "newest")


def snippet_of(database: Database, analysis: Analysis, message_id: int) -> str:
    """Return the part of a message that matches the question; "" if the message doesn't exist."""
    sql = "SELECT id, content, tool_calls FROM messages WHERE id = ? AND position IS NOT NULL"
    row = database.execute(sql, (message_id,)).fetchone()
    return _snippet(database, row, [match_of(term) for term in analysis.terms]) if row else ""


def _snippet(database: Database, row: sqlite3.Row, hits: Sequence[str]) -> str:
    return snippet(database, row["id"], row["content"] or calls_as_text(row["tool_calls"]), hits)


def known_names(database: Database, query: str, filters: Filters) -> list[str]:
    """Return the speakers whom the question names, and who have messages in the user and sessions of the filters."""
    named = sorted(named_in(query, [row[0] for row in database.execute(_SPEAKERS)]))
    condition, parameters = filters.scope().session_sql()
    sql = (
        "SELECT 1 FROM messages m JOIN sessions s ON s.key = m.session_key"
        f" WHERE m.speaker = ? AND m.speaker > '' AND {condition} LIMIT 1"
    )
    return [name for name in named if database.execute(sql, (name, *parameters)).fetchone()]


class _CandidateReader:
    """A reader of messages that pass the filters; most methods return at most `limit` messages."""

    def __init__(self, database: Database, filters: Filters, limit: int) -> None:
        self._database = database
        self._limit = limit
        self._filters, self._parameters = filters.sql()
        # CROSS keeps SQLite from reading the sessions first.
        self._sessions = "CROSS JOIN sessions s ON s.key = m.session_key" if filters.needs_sessions else ""

    def rows(self, places: Sequence[Place]) -> list[sqlite3.Row]:
        """Return the rows of the first `limit` messages at these places that exist and pass the filters."""
        rows: list[sqlite3.Row] = []
        start, step = 0, self._limit
        while start < len(places) and len(rows) < self._limit:
            rows += self._at(places[start : start + step])
            start, step = start + step, 2 * step
        return rows[: self._limit]

    def with_ids(self, ids: Sequence[int]) -> list[sqlite3.Row]:
        """Return the rows of the messages with these ids that pass the filters."""
        sql = f"""
            SELECT {_CANDIDATE_COLUMNS} FROM json_each(?) w CROSS JOIN messages m ON m.id = w.value {self._sessions}
            WHERE {self._filters}
        """
        return self._database.execute(sql, (json.dumps(ids), *self._parameters)).fetchall()

    def fulfilling(
        self, condition: Expression, order: Order | None, spans: Sequence[Span]
    ) -> tuple[dict[int, Place], dict[Place, int]]:
        """Return the newest messages that fulfil a condition, as places by message id and sizes by place.

        With `order` "oldest", return the oldest messages. `spans` are the ranges of message ids to read.
        """
        enough = max(MAX_COMMON_HITS, self._limit)
        direction = "ASC" if order == "oldest" else "DESC"
        native = native_match(condition)
        if native is not None:  # the index then returns ids in order, so the reading stops early
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
        places: dict[int, Place] = {}
        sizes: dict[Place, int] = {}
        for first, last in spans:
            asked = (*self._parameters, *parameters, first, last, enough - len(places))
            for message_id, key, position, size in self._database.execute(statement, asked).fetchall():
                places[message_id] = place = (key, position)
                sizes[place] = size
            if len(places) >= enough:
                break
        return places, sizes

    def between(self, spans: Iterable[tuple[float, float]]) -> list[sqlite3.Row]:
        """Return the rows of messages within spans of time (epoch seconds), for a question that names a time."""
        rows: dict[int, sqlite3.Row] = {}
        for start, end in spans:
            sql = f"""
                SELECT {_CANDIDATE_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key
                WHERE {self._filters} AND s.last_active >= ? AND s.started_at < ?
                    AND m.timestamp >= ? AND m.timestamp < ? ORDER BY m.id DESC LIMIT {self._limit}
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


def _candidate(row: sqlite3.Row, scores: Mapping[Place, float], likeness: float) -> RankCandidate:
    message_id, key, position, content, timestamp, speaker, reply, answer, role = row
    score = scores.get((key, position), 0.0)
    unanswered = bool(answer) and says_unknown(answer) and (role == "assistant" or asks(content))
    assistant = role == "assistant"
    return RankCandidate(
        message_id, content, score, speaker, timestamp, bool(reply), likeness, unanswered, assistant
    )


def _without_repeats(ranked: Sequence[Ranked], limit: int, distinct: Distinct) -> list[Ranked]:
    """Return the first `limit` entries whose text does not repeat that of an entry before them."""
    entries: list[Ranked] = []
    seen: set[str] = set()
    vocabularies: list[set[str]] = []
    for entry in ranked:
        text = " ".join(entry.candidate.text.casefold().split())
        if text in seen:
            continue
        if distinct == "words":
            vocabulary = {word for word in words(text) if not any(map(str.isdigit, word))} or {text}
            if any(
                len(vocabulary & other) >= MIN_COMMON_WORDS * len(vocabulary | other)
                for other in vocabularies
            ):
                continue
            vocabularies.append(vocabulary)
        seen.add(text)
        entries.append(entry)
        if len(entries) == limit:
            break
    return entries


def _hit(row: sqlite3.Row, score: float, snippet: str, span: tuple[int, int] | None = None) -> SearchHit:
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
        origin=stored_origin(row["role"], row["origin"], row["tool_name"]),
        span=span,
    )


def _spans(dates: Iterable[When], now: float, zone: tzinfo) -> list[tuple[float, float]]:
    """Return times as spans in epoch seconds. A day or month without a year is the last one that began before `now`."""
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

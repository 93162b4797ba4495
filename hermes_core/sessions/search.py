"""The SQL that brings candidates; what they are worth is decided in `hermes_core.recall`.

Each term of the question is looked up by itself, so that the neighbours of a hit can be weighed when the question is
asked: nothing of a message's surroundings is stored with it. All text reaches FTS5 as quoted strings; none of its
syntax is open to the person who asks, and none of its syntax errors either.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Literal

from hermes_core.recall.dates import When
from hermes_core.recall.query import Analysis, Expression, Leaf, Term, named_in
from hermes_core.recall.rank import NEAR_WORD_WEIGHT, Candidate, Place, Ranked, TermHits, rank, score_places
from hermes_core.recall.tokens import dense_runs, grams, words
from hermes_core.sessions.records import SearchHit
from hermes_core.storage.sqlite import Database

Order = Literal["newest", "oldest"]

MOST_HITS = 4_000
"""Messages looked at for one term, the newest. A word that stands in more of them says little about any."""

POOL = 100
"""Candidates that are read and ranked; on LoCoMo 96 % of all evidence is among the best hundred by words alone."""

RELEVANT = 0.5
"""Share of the best score that a hit needs when the answer is sorted by time, so that chance hits don't lead it."""

PHRASE_WORDS = range(2, 13)
"""Lengths of a question that is also tried as the very words of one message, as when someone pastes a piece of it."""

MAX_LEAVES = 64
"""Words and phrases of a boolean query that are obeyed."""

SNIPPET_TOKENS = 40

_SPEAKERS = """
    WITH RECURSIVE found (name) AS (
        SELECT min(speaker) FROM messages WHERE speaker > ''
        UNION ALL
        SELECT (SELECT min(speaker) FROM messages WHERE speaker > '' AND speaker > name) FROM found WHERE name <> ''
    ) SELECT name FROM found WHERE name <> '' LIMIT 2000
"""

_ROW_COLUMNS = """
    m.id, s.id AS session_id, m.session_key, m.position, m.role, m.content, m.timestamp, m.speaker, m.ref,
    m.tool_name, m.tool_calls, s.source, s.model, s.title, s.started_at
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which messages may be shown. Empty tuples and None ask for nothing."""

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    exclude_sources: tuple[str, ...] = ()
    exclude_sessions: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    user: str | None = None

    def sql(self) -> tuple[str, list[Any]]:
        """Conditions on messages `m` and sessions `s`, and their parameters."""
        conditions = ["m.position IS NOT NULL"]
        parameters: list[Any] = []
        for column, operator, values in (
            ("m.role", "IN", self.roles),
            ("s.source", "IN", self.sources),
            ("s.id", "IN", self.sessions),
            ("s.source", "NOT IN", self.exclude_sources),
            ("s.id", "NOT IN", self.exclude_sessions),
        ):
            if values:
                conditions.append(f"{column} {operator} (SELECT value FROM json_each(?))")
                parameters.append(json.dumps(values))
        for column, operator, value in (
            ("m.timestamp", ">=", self.since),
            ("m.timestamp", "<", self.until),
            ("s.user", "=", self.user),
        ):
            if value is not None:
                conditions.append(f"{column} {operator} ?")
                parameters.append(value)
        return " AND ".join(conditions), parameters

    def scope(self) -> Filters:
        """The part that holds for a message's neighbours as well: whose, and in which sessions."""
        return Filters(sessions=self.sessions, user=self.user)


def search(
    database: Database,
    analysis: Analysis,
    filters: Filters,
    *,
    limit: int,
    order: Order | None,
    now: float,
    zone: tzinfo,
) -> list[SearchHit]:
    """The messages that answer, best first, or by time among the relevant ones."""
    if limit < 1 or not analysis:
        return []
    finder = _Finder(database, filters, max(POOL, limit))
    scores, asked = finder.scores(analysis)
    if analysis.condition is not None:
        places = finder.fulfilling(analysis.condition, order)
        rows = finder.rows(places if order else _by_score(places, scores))
    elif scores:
        rows = finder.rows(_by_score(finder.holding if order else scores, scores))
    else:
        rows = finder.between(_spans(analysis.dates, now, zone))
    by_id = {row["id"]: row for row in rows}
    candidates = [_candidate(row, scores) for row in rows]
    ranked = rank(analysis, candidates, limit=len(candidates) if order else limit, zone=zone)
    if order:
        ranked = _in_time(ranked, order, 0.0 if analysis.condition else RELEVANT)
    return [
        _hit(by_id[one.candidate.id], one.score, finder.snippet(by_id[one.candidate.id], asked))
        for one in ranked[:limit]
    ]


def _by_score(places: Iterable[Place], scores: Mapping[Place, float]) -> list[Place]:
    return sorted(places, key=lambda place: -scores.get(place, 0.0))


def _in_time(ranked: list[Ranked], order: Order, relevant: float) -> list[Ranked]:
    """By time, without those whose words are worth less than the `relevant` share of the best."""
    least = relevant * max((one.candidate.score for one in ranked), default=0.0)
    kept = [one for one in ranked if one.candidate.score >= least]
    return sorted(kept, key=lambda one: one.candidate.timestamp or 0.0, reverse=order == "newest")


def known_names(database: Database, query: str, filters: Filters) -> list[str]:
    """The speakers among the messages in scope whom the question names."""
    named = sorted(named_in(query, [row[0] for row in database.execute(_SPEAKERS)]))
    condition, parameters = filters.scope().sql()
    sql = (
        "SELECT 1 FROM messages m JOIN sessions s ON s.key = m.session_key"
        f" WHERE m.speaker = ? AND m.speaker > '' AND {condition} LIMIT 1"
    )
    return [name for name in named if database.execute(sql, (name, *parameters)).fetchone()]


class _Finder:
    """Looks things up in one store under one set of filters."""

    def __init__(self, database: Database, filters: Filters, pool: int) -> None:
        self._database = database
        self._pool = pool
        self._filters, self._parameters = filters.sql()
        self._scope, self._scope_parameters = filters.scope().sql()
        self._scoped = bool(filters.sessions) or filters.user is not None
        self._sizes: dict[Place, int] = {}

    @property
    def holding(self) -> Collection[Place]:
        """Places that hold a term themselves; only these are shown by time."""
        return self._sizes.keys()

    def scores(self, analysis: Analysis) -> tuple[dict[Place, float], list[str]]:
        """What each place is worth by its words and its neighbours', and the match expressions that were asked."""
        hits, asked = [], []
        for term in analysis.terms:
            expression = _match(term)
            places = self._near_places(term) | self._places(term.kind, expression)
            if places:
                hits.append(TermHits(self._frequency(term.kind, expression, len(places)), places))
                asked.append(expression)
        verbatim = _verbatim(analysis)
        if verbatim and (places := self._places("word", verbatim)):
            hits.append(TermHits(len(places), places))
        total = self._database.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
        return score_places(hits, total, self._sizes), asked

    def rows(self, places: Sequence[Place]) -> list[sqlite3.Row]:
        """Rows at the first of these places that are there and pass the filters, as many as are ranked."""
        rows: list[sqlite3.Row] = []
        step = 2 * self._pool
        for start in range(0, len(places), step):
            rows += self._at(places[start : start + step])
            if len(rows) >= self._pool:
                break
        return rows[: self._pool]

    def fulfilling(self, condition: Expression, order: Order | None) -> list[Place]:
        """Places that fulfil a condition and pass the filters, newest first (or oldest), the first of many."""
        sql, parameters = _condition_sql(condition)
        direction = "ASC" if order == "oldest" else "DESC"
        found = self._database.execute(
            f"""SELECT m.session_key, m.position FROM messages m JOIN sessions s ON s.key = m.session_key
                WHERE {self._filters} AND {sql} ORDER BY m.id {direction} LIMIT {MOST_HITS}""",
            (*self._parameters, *parameters),
        )
        return [(key, position) for key, position in found]

    def between(self, spans: Iterable[tuple[float, float]]) -> list[sqlite3.Row]:
        """Rows of given times, for a question that names nothing but a time."""
        rows: dict[int, sqlite3.Row] = {}
        for start, end in spans:
            sql = f"""
                SELECT {_ROW_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key
                WHERE {self._filters} AND s.last_active >= ? AND s.started_at < ?
                    AND m.timestamp >= ? AND m.timestamp < ? ORDER BY m.id DESC LIMIT {self._pool}
            """
            found = self._database.execute(sql, (*self._parameters, start, end, start, end))
            rows.update((row["id"], row) for row in found)
        return list(rows.values())

    def snippet(self, row: sqlite3.Row, hits: Sequence[str]) -> str:
        """The part of a message that matched, marked; its beginning when only its neighbours did."""
        content = row["content"] or row["tool_calls"]
        said = [hit for hit in hits if " : " not in hit]
        if said and not dense_runs(content):
            found = self._database.execute(
                f"SELECT snippet(messages_fts, -1, '>>>', '<<<', '...', {SNIPPET_TOKENS}) FROM messages_fts"
                " WHERE messages_fts MATCH ? AND rowid = ?",
                (" OR ".join(said), row["id"]),
            ).fetchone()
            if found and len(found[0]) < 20 * SNIPPET_TOKENS:
                return str(found[0])
        return _marked(content, hits)

    def _near_places(self, term: Term) -> dict[Place, float]:
        if not term.near:
            return {}
        expression = " OR ".join(map(_quoted, term.near))
        return dict.fromkeys(self._places("word", expression), NEAR_WORD_WEIGHT)

    def _places(self, kind: str, expression: str) -> dict[Place, float]:
        """Where an expression matches, at full strength; the newest messages when there are too many."""
        table = "messages_grams" if kind == "gram" else "messages_fts"
        join = "JOIN sessions s ON s.key = m.session_key" if self._scoped else ""
        where = f"AND {self._scope}" if self._scoped else ""
        rows = self._database.execute(
            f"""SELECT m.session_key, m.position, m.size FROM {table} f JOIN messages m ON m.id = f.rowid {join}
                WHERE {table} MATCH ? {where} ORDER BY f.rowid DESC LIMIT {MOST_HITS}""",
            (expression, *(self._scope_parameters if self._scoped else ())),
        )
        places = {}
        for key, position, size in rows:
            places[key, position] = 1.0
            self._sizes[key, position] = size
        return places

    def _frequency(self, kind: str, expression: str, found: int) -> int:
        """In how many messages a term stands: counted only when there are more of them than were looked at."""
        if found < MOST_HITS:
            return found
        table = "messages_grams" if kind == "gram" else "messages_fts"
        sql = f"SELECT count(*) FROM {table} WHERE {table} MATCH ?"
        return max(found, int(self._database.execute(sql, (expression,)).fetchone()[0]))

    def _at(self, places: Sequence[Place]) -> list[sqlite3.Row]:
        sql = f"""
            SELECT {_ROW_COLUMNS} FROM json_each(?) w
            CROSS JOIN messages m ON m.session_key = json_extract(w.value, '$[0]')
                AND m.position = json_extract(w.value, '$[1]')
            JOIN sessions s ON s.key = m.session_key WHERE {self._filters}
        """
        return self._database.execute(sql, (json.dumps(places), *self._parameters)).fetchall()


def _candidate(row: sqlite3.Row, scores: Mapping[Place, float]) -> Candidate:
    place = (row["session_key"], row["position"])
    return Candidate(
        row["id"], row["content"], scores.get(place, 0.0), row["speaker"], row["timestamp"], place
    )


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


# ---------------------------------------------------------------------- match expressions


def _quoted(text: str) -> str:
    """`text` as one FTS5 string: its tokens side by side, whatever signs it holds."""
    return '"' + text.replace('"', '""') + '"'


def _match(term: Term) -> str:
    if term.kind == "gram":
        return f"{'pairs' if len(term.text) == 2 else 'ones'} : {_quoted(term.text)}"
    return " OR ".join(map(_quoted, (term.text, *term.forms)))


def _verbatim(analysis: Analysis) -> str:
    """The whole question as one phrase, "" when it is too short or too long to be a piece of a message."""
    said = words(analysis.text)
    return _quoted(" ".join(said)) if len(said) in PHRASE_WORDS else ""


def _condition_sql(condition: Expression) -> tuple[str, list[str]]:
    """A condition on `m.id` as SQL, each word and phrase an indexed look-up of its own."""
    parameters: list[str] = []

    def build(part: Expression) -> str:
        if isinstance(part, Leaf):
            return _leaf_sql(part, parameters) if len(parameters) < MAX_LEAVES else "1"
        inner = [build(operand) for operand in part.operands]
        return f"NOT ({inner[0]})" if part.operator == "NOT" else f"({f' {part.operator} '.join(inner)})"

    return build(condition), parameters


def _leaf_sql(leaf: Leaf, parameters: list[str]) -> str:
    """A leaf's words as a phrase among words, its dense runs as phrases of pairs (or single characters)."""
    looked_up = []
    if said := words(leaf.text):
        looked_up.append(("messages_fts", _quoted(" ".join(said)) + ("*" if leaf.prefix else "")))
    for run in dense_runs(leaf.text):
        ones, pairs = grams(run)
        column, run_grams = ("pairs", pairs) if pairs else ("ones", ones)
        looked_up.append(("messages_grams", f"{column} : {_quoted(' '.join(run_grams))}"))
    parameters.extend(expression for _, expression in looked_up)
    parts = [f"m.id IN (SELECT rowid FROM {table} WHERE {table} MATCH ?)" for table, _ in looked_up]
    return f"({' AND '.join(parts)})" if parts else "1"


def _marked(text: str, hits: Sequence[str]) -> str:
    """Around the first word or gram that stands in the text as it was asked, else the beginning."""
    lowered = text.lower()
    for hit in hits:
        asked = hit.partition(" : ")[2] or hit.partition(" OR ")[0]
        start = lowered.find(asked.strip('"')) if len(lowered) == len(text) else -1
        if start >= 0:
            end = start + len(asked) - 2
            before, after = text[max(start - 60, 0) : start], text[end : end + 100]
            marked = f"{before}>>>{text[start:end]}<<<{after}"
            return ("..." if start > 60 else "") + marked + ("..." if end + 100 < len(text) else "")
    head = " ".join(text[: 10 * SNIPPET_TOKENS].split()[:SNIPPET_TOKENS])
    return head + "..." if len(head) < len(text.strip()) else head


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

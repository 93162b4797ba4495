"""Search over messages: a reader of the search index finds the candidates, and `hermes_core.recall` ranks them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from hermes_core.recall.amounts import FACT_RESULTS
from hermes_core.recall.changes import Statement, asks_formerly, find_outdated
from hermes_core.recall.dates import MAX_SMALL_WORD, asks_for_first
from hermes_core.recall.query import Analysis
from hermes_core.recall.rank import (
    MAX_PROACTIVE_HITS,
    Place,
    RankCandidate,
    Ranked,
    asks,
    proactive_evidence,
    proactive_limit,
    proactive_odds,
    rank_candidates,
    says_unknown,
    select_proactive,
)
from hermes_core.recall.tokens import dense_runs, words
from hermes_core.sessions.records import Order, SearchHit, calls_as_text, stored_origin
from hermes_core.sessions.search.filters import Filters, message_condition
from hermes_core.sessions.search.lookup import MAX_COMMON_HITS, Lookup
from hermes_core.sessions.search.match import Match, match_of, match_of_condition, required_words
from hermes_core.sessions.search.protocol import Coverage, MessageIndex, VectorIndex
from hermes_core.sessions.search.reader import HIT_COLUMNS, ClosestMessages, IndexReader, IndexRow, Likeness
from hermes_core.sessions.search.reasons import SearchTrace
from hermes_core.sessions.search.snippets import best_part, held, snippet
from hermes_core.storage.engine import Engine

# Number of candidates that are read and ranked. On LoCoMo, 50 cost a third of a point of recall@10; 250 gain nothing.
MAX_CANDIDATES = 150


# Characters of a snippet that is made without the search index.
PLAIN_SNIPPET_CHARS = 400

# Share of the best score that a hit needs in an answer sorted by time, so that chance hits don't lead it.
MIN_SCORE_SHARE = 0.5

# Words of a search without the index; the rest is ignored, so that a pasted text does not become a huge SQL query.
MAX_PLAIN_WORDS = 64

# Column of the text in the rows of candidates.
_TEXT = 3

# Distance of a score, the logarithm of odds, from the best one up to which a message counts as a good answer to "When did
# I first ...". Of good answers, the oldest is the first.
MAX_SCORE_BEHIND = 2.0

# Parts of a named time of which the newest messages each are read, so that they are spread over a long time.
TIME_PARTS = 6

# Characters of a message that say how much it tells.
MAX_INFORMATIVE_CHARS = 400

# Number of the best messages that may be changed by others, and of messages that may change them.
MAX_CHANGED = 5
MAX_COMPARED = 20

# Which repeats a search leaves out: none, equal texts, or texts with nearly the same words.
Distinct = Literal["", "text", "words"]

# Share of common words above which two texts of programs count as the same: daily reports differ in dates and numbers.
MIN_COMMON_WORDS = 0.8


def search(
    index: MessageIndex,
    trace: SearchTrace,
    *,
    limit: int,
    order: Order | None,
    newest: int,
    vectors: VectorIndex | None = None,
    question: str = "",
    covered: Callable[[], Coverage] | None = None,
    snippets: bool = True,
    distinct: Distinct = "",
) -> list[SearchHit]:
    """Return the messages that answer a question best; see `PastSessions.search`.

    Args:
        index: The search index of the store.
        trace: The question with its filters. It gets what the search decides on.
        limit: Largest number of messages.
        order: Order of the relevant messages by time; None orders by relevance.
        newest: Id of the newest message, from `MessageIndex.scope_facts`.
        vectors: The index for search by meaning; None searches by words only.
        question: The question as `vectors.question` returns it.
        covered: Result of `vectors.ask_coverage`.
        snippets: True to fill `SearchHit.snippet`. Of a message without text, it is filled in any case.
        distinct: "text" returns each text once; "words" also leaves out texts with nearly the same words.
    """
    analysis, filters, proactive = trace.analysis, trace.filters, trace.proactive
    if limit < 1 or not analysis:
        return []
    ranked_limit = max(MAX_CANDIDATES, limit)
    reader = index.reader(filters, order, ranked_limit, newest)
    # A day or month without a year is the last one that began before `now`.
    at = datetime.fromtimestamp(trace.now, trace.zone)
    spans = [span for when in analysis.dates if (span := when.span(at)) is not None]
    if analysis.time_only and analysis.condition is None and spans and order is None:
        return _of_times(reader, spans, limit, trace)
    trace.lookup = lookup = Lookup(reader, analysis, counts_all_words=proactive)
    closest = None
    if vectors is not None and order is None:
        user, passing = filters.user, reader.passing
        closest = vectors.ask(question, analysis.names, user, covered=covered, passing=passing)
    places, beside, scores = _places(
        lookup, reader, analysis, order, spans, closest, max(MAX_COMMON_HITS, ranked_limit)
    )
    likeness = around = None
    if vectors is not None and closest is not None and not closest.is_distant:
        trace.likeness = likeness = closest.likeness
    if vectors is not None and likeness is not None:
        best = [*places[:ranked_limit], *((key, position) for key, position, *_ in beside)]
        around = vectors.ask_around(likeness, list(dict.fromkeys(best)))
    rows = reader.candidates(places, [row[3] for row in beside])
    if not rows:
        return []
    ids = [row[0] for row in rows]
    # A question that names a person of the store is about what this person said, and is no hint. What a turn gets unasked is
    # decided by words and meaning together: its gate was fitted so.
    is_hint = not (proactive or analysis.names or analysis.condition)
    trust = lookup.word_trust(scores) if is_hint else 1.0
    near = vectors.closeness(likeness, ids, around, trust) if vectors and likeness else {}
    meaning = {i: likeness.of(i, trust) + near.get(i, 0.0) for i in ids} if likeness else {}
    candidates = [_candidate(row, scores, meaning.get(row[0], 0.0)) for row in rows]
    trace.places = places_of = {row[0]: (row[1], row[2]) for row in rows}
    is_first = order is None and asks_for_first(analysis.text)
    trace.ranked = everyone = ranked = rank_candidates(
        analysis, candidates, limit=len(candidates), zone=trace.zone, word_trust=trust
    )
    if proactive:
        # A message that is the question itself, which was asked before, tells nothing.
        same = analysis.text.strip().casefold()
        others = [entry for entry in ranked if entry.candidate.text.strip().casefold() != same]
        trace.odds = proactive_odds(analysis, others)
        ranked = select_proactive(analysis, trace.odds)
        trace.limit = min(limit, proactive_limit(analysis))
        asked = closest.likeness if closest is not None else None
        if ranked and not _is_evidence(lookup, ranked[0].candidate, asked, trace):
            return []
    if distinct:
        ranked = _without_repeats(ranked, limit, distinct, trace.repeats)
    if is_first:
        ranked = _oldest_first(ranked)
    newer: dict[int, int] = {}
    if order is None and analysis.condition is None and not analysis.dates:
        trace.newer = newer = _newer(everyone, ranked[:limit], places_of)
        ranked = _with_newest(everyone, ranked, newer, oldest_first=asks_formerly(analysis.text))
    if order:
        ranked.sort(
            key=lambda entry: (entry.candidate.timestamp, entry.candidate.id), reverse=order == "newest"
        )
    shown = ranked[:limit]
    by_id = reader.hits([entry.candidate.id for entry in shown])
    return [
        _hit(
            row,
            entry.score,
            _snippet(row, lookup.matches) if snippets or not row["content"] else "",
            best_part(row["content"], lookup.matches, likeness.span(row["id"]) if likeness else None),
            newer.get(row["id"]),
        )
        for entry in shown
        if (row := by_id.get(entry.candidate.id)) is not None  # another process may just have deleted it
    ]


def _is_evidence(
    lookup: Lookup, candidate: RankCandidate, likeness: Likeness | None, trace: SearchTrace
) -> bool:
    """Return True if the best message is worth showing to a person who did not ask for it."""
    span = best_part(candidate.text, lookup.matches)
    part = candidate.text[slice(*span)] if span else candidate.text
    trace.overlap = overlap = lookup.overlap(trace.places[candidate.id], part)
    cosine = likeness.nearest([candidate.id]) if likeness is not None else None
    trace.judged = candidate.id
    trace.evidence = proactive_evidence(trace.analysis, candidate, part, overlap, cosine)
    return sum(trace.evidence.values()) > 0


def search_plainly(
    database: Engine,
    analysis: Analysis,
    filters: Filters,
    *,
    limit: int,
    order: Order | None,
    proactive: bool = False,
    count: int | None = None,
) -> list[SearchHit]:
    """Return the newest messages with the most words of a question, without the search index.

    If `proactive` is True, return messages with at least two words.

    This reads all messages that pass the filters, or the newest `count` messages of the store. Conditions in the question,
    as AND and NOT, are not regarded.
    """
    terms = [term.text.lower() for term in analysis.terms][:MAX_PLAIN_WORDS]
    if limit < 1 or not terms:
        return []
    condition, parameters = message_condition(database, filters)
    likes = ["%" + re.sub("([%_!])", r"!\1", term) + "%" for term in terms]
    matches = " + ".join(["CASE WHEN lower(m.content) LIKE ? ESCAPE '!' THEN 1 ELSE 0 END"] * len(likes))
    direction = "ASC" if order == "oldest" else "DESC"
    ranking = "" if order else "x.words DESC,"
    if count is not None:
        condition += " AND m.id > (SELECT coalesce(max(id), 0) FROM messages) - ?"
        parameters = [*parameters, count]
    rows = database.execute(
        f"""SELECT x.* FROM (
                SELECT {HIT_COLUMNS}, {matches} AS words FROM messages m JOIN sessions s ON s.key = m.session_key
                WHERE {condition}
            ) x WHERE x.words >= ? ORDER BY {ranking} x.timestamp {direction}, x.id {direction} LIMIT ?""",
        (*likes, *parameters, 2 if proactive else 1, limit),
    ).fetchall()
    return [_hit(row, row["words"] / len(likes), _around_first(row["content"], analysis)) for row in rows]


def _around_first(text: str, analysis: Analysis) -> str:
    """Return the part of a text around the first word of the question in it, without the search index."""
    lowered = text.lower()
    places = [at for term in analysis.terms if (at := lowered.find(term.text.lower())) >= 0]
    start = max(min(places, default=0) - PLAIN_SNIPPET_CHARS // 4, 0)
    return text[start : start + PLAIN_SNIPPET_CHARS]


def _places(
    lookup: Lookup,
    reader: IndexReader,
    analysis: Analysis,
    order: Order | None,
    spans: Sequence[tuple[float, float]],
    closest: ClosestMessages | None,
    enough: int,
) -> tuple[list[Place], Sequence[IndexRow], dict[Place, float]]:
    """Return the places of messages to rank, best first, messages to rank beside them, and the scores by words.

    Messages are candidates because of their words, because of a time that the question names (`spans`), or because they
    are close in meaning (`closest`). Of those that fulfil a condition, `enough` are read.
    """
    if analysis.condition is not None:
        found = reader.fulfilling(match_of_condition(analysis.condition), enough)
        scores = lookup.scores_among(found, required_words(analysis.condition))
        places = [(key, position) for key, position, _, _ in found]
        if not order:
            places.sort(key=scores.__getitem__, reverse=True)
        return places, (), scores
    if order:
        scores = lookup.scores()
        if scores:
            # The places that hold a term of the question and score well beside the best place, ordered by time.
            holding = lookup.holding
            least = MIN_SCORE_SHARE * max(scores.get(place, 0.0) for place in holding)
            relevant = [place for place in holding if scores.get(place, 0.0) >= least]
            return sorted(relevant, key=holding.__getitem__, reverse=order == "newest"), (), scores
        return [], reader.find((), spans)[1], scores
    scores = lookup.scores(spans, closest)
    return sorted(scores, key=scores.__getitem__, reverse=True), lookup.others, scores


def snippet_of(database: Engine, analysis: Analysis, message_id: int) -> str:
    """Return the part of a message that matches the question; "" if the message doesn't exist."""
    sql = "SELECT content, tool_calls FROM messages WHERE id = ? AND position IS NOT NULL"
    row = database.execute(sql, (message_id,)).fetchone()
    return "" if row is None else _snippet(row, [match_of(term) for term in analysis.terms])


def _snippet(row: Any, matches: Sequence[Match]) -> str:
    return snippet(row["content"] or calls_as_text(row["tool_calls"]), matches)


def _candidate(row: tuple[Any, ...], scores: Mapping[Place, float], likeness: float) -> RankCandidate:
    message_id, key, position, content, timestamp, speaker, reply, answer, role = row
    score = scores.get((key, position), 0.0)
    unanswered = bool(answer) and (role == "assistant" or asks(content)) and says_unknown(answer)
    assistant = role == "assistant"
    return RankCandidate(
        message_id,
        content,
        score,
        speaker,
        timestamp,
        bool(reply),
        likeness,
        unanswered,
        assistant,
        role == "user",
    )


def _without_repeats(
    ranked: Sequence[Ranked], limit: int, distinct: Distinct, repeats: dict[int, int]
) -> list[Ranked]:
    """Return the first `limit` entries whose text does not repeat that of an entry before them.

    `repeats` gets for each other one the id of the message that it repeats.
    """
    entries: list[Ranked] = []
    seen: dict[str, int] = {}
    vocabularies: list[tuple[set[str], int]] = []
    for entry in ranked:
        text = " ".join(entry.candidate.text.casefold().split())
        repeated = seen.get(text)
        if distinct == "words" and repeated is None:
            vocabulary = {word for word in words(text) if not any(map(str.isdigit, word))} or {text}
            repeated = next(
                (
                    message_id
                    for other, message_id in vocabularies
                    if len(vocabulary & other) >= MIN_COMMON_WORDS * len(vocabulary | other)
                ),
                None,
            )
            if repeated is None:
                vocabularies.append((vocabulary, entry.candidate.id))
        if repeated is not None:
            repeats[entry.candidate.id] = repeated
            continue
        seen[text] = entry.candidate.id
        entries.append(entry)
        if len(entries) == limit:
            break
    return entries


def _oldest_first(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the ranking with its best entries, which answer nearly as well as the first, ordered by time."""
    least = ranked[0].score - MAX_SCORE_BEHIND if ranked else 0.0
    good = [entry for entry in ranked[:FACT_RESULTS] if entry.score >= least]
    good.sort(key=lambda entry: (entry.candidate.timestamp or 0.0, entry.candidate.id))
    return good + [entry for entry in ranked if entry not in good]


def _of_times(
    reader: IndexReader, spans: Sequence[tuple[float, float]], limit: int, trace: SearchTrace
) -> list[SearchHit]:
    """Return messages of named times for a question that asks for anything of them: the most informative of each session.

    Messages from outside are never returned. Without being asked to search, only times that have begun are regarded.
    """
    now = trace.now
    if trace.proactive:
        spans, limit = [span for span in spans if span[0] <= now], min(limit, MAX_PROACTIVE_HITS)
        trace.limit = limit
    parts = [
        (start + (end - start) * at / TIME_PARTS, start + (end - start) * (at + 1) / TIME_PARTS)
        for start, end in ((start, min(end, max(now, start) + 1)) for start, end in spans)
        for at in range(TIME_PARTS)
    ]
    found = reader.find((), parts)[1]
    rows = reader.candidates((), [row[3] for row in found])
    matches = [match_of(term) for term in trace.analysis.terms]
    trace.places = places = {row[0]: (row[1], row[2]) for row in rows}
    telling = ((_candidate(row, {}, 0.0), _information(row, matches)) for row in rows)
    ranked = [Ranked(candidate, score, {"information": score}) for candidate, score in telling]
    ranked.sort(key=lambda entry: (-entry.score, entry.candidate.id))
    sessions: dict[int, int] = {}
    rounds = []
    for entry in ranked:
        key, _ = places[entry.candidate.id]
        sessions[key] = sessions.get(key, 0) + 1
        rounds.append((sessions[key], entry))
    rounds.sort(key=lambda pair: pair[0])  # within a round the order stays
    trace.ranked = [entry for _, entry in rounds]
    shown = trace.ranked[:limit]
    by_id = reader.hits([entry.candidate.id for entry in shown])
    return [
        _hit(hit, entry.score, "", best_part(hit["content"], matches))
        for entry in shown
        if (hit := by_id.get(entry.candidate.id)) is not None
    ]


def _information(row: tuple[Any, ...], matches: Sequence[Match]) -> float:
    """Return how much a message tells of its time: its different long words, and more if it has words of the question."""
    text, role = row[_TEXT], row[8]
    telling = {word for word in words(text[:MAX_INFORMATIVE_CHARS]) if len(word) > MAX_SMALL_WORD}
    told = math.log1p(len(telling) + sum(map(len, dense_runs(text[:MAX_INFORMATIVE_CHARS]))) / 2)
    asked = len(held(text[:MAX_INFORMATIVE_CHARS], matches))
    return (
        (told + 2 * asked)
        * (1.0 if role == "user" else 0.5)
        * (0.5 if text.rstrip().endswith(("?", "？")) else 1.0)
    )


def _newer(everyone: Sequence[Ranked], best: Sequence[Ranked], places: Mapping[int, Place]) -> dict[int, int]:
    """Return for each message that a newer one changes the id of the newest message of the same matter.

    The first messages of `best` are compared with those that have the highest scores.
    """
    pool = {entry.candidate.id: entry.candidate for entry in (*best[:MAX_CHANGED], *everyone[:MAX_COMPARED])}
    statements = [
        Statement(c.id, c.text, c.timestamp or 0.0, c.speaker, places[c.id])
        for c in pool.values()
        if c.person
    ]
    return find_outdated(statements, {entry.candidate.id for entry in best[:MAX_CHANGED]})


def _with_newest(
    everyone: Sequence[Ranked], ranked: Sequence[Ranked], newer: Mapping[int, int], *, oldest_first: bool
) -> list[Ranked]:
    """Return a ranking with the newest message of each matter before the first of its older ones, or after it."""
    entry_of = {entry.candidate.id: entry for entry in everyone}
    older: dict[int, list[int]] = {}
    for message_id, newest in newer.items():
        older.setdefault(newest, []).append(message_id)
    result: dict[int, Ranked] = {}
    for entry in ranked:
        message_id = entry.candidate.id
        newest = newer.get(message_id, message_id)
        matter = [*older.get(newest, ()), newest] if oldest_first else [newest, message_id]
        result |= {one: entry_of[one] for one in matter if one not in result}
    return list(result.values())


def _hit(
    row: Any,
    score: float,
    snippet: str,
    span: tuple[int, int] | None = None,
    newer: int | None = None,
) -> SearchHit:
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
        newer=newer,
    )

"""Reasons of a search: what brought each result, what the gate of a turn decided, and why a message is no result.

They are read from what the search itself decided on, which it leaves in a `SearchTrace`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_core.storage.engine import Engine

if TYPE_CHECKING:  # what a search needs is imported by the first search
    from hermes_core.recall.query import Analysis
    from hermes_core.recall.rank import Overlap, Place, ProactiveOdds, Ranked
    from hermes_core.sessions.search.filters import Filters
    from hermes_core.sessions.search.lookup import Lookup
    from hermes_core.sessions.search.reader import Likeness

# Digits of the figures of a reason.
_DIGITS = 3


class SearchTrace(Struct):
    """Trace of the decisions of a search.

    Attributes:
        filters: Filters of the messages.
        analysis: The question.
        limit: Largest number of results.
        proactive: True for recall that the person did not ask for.
        now: Time of the question in epoch seconds.
        zone: Time zone of times in the question.
        lookup: The look-up of its words; None if it asks only for times.
        likeness: Closeness in meaning; None in a search by words only.
        ranked: All candidates, best first.
        places: Their places by id.
        odds: What proactive recall decided of each candidate.
        judged: Id of the candidate by which the gate decided.
        overlap: The words that this candidate shares with the question.
        evidence: The parts of the evidence; the gate is open if their sum is above 0.
        repeats: The message that a candidate repeats, by the id of the candidate.
        newer: The newest message of the same matter, by the ids of older ones.
        reranked: Ids of the results in the order of `PastSessions.reranker`.
        without_index: True if the messages were read without the search index.
    """

    filters: Filters
    analysis: Analysis
    limit: int
    proactive: bool = False
    now: float = 0.0
    zone: tzinfo = UTC
    lookup: Lookup | None = None
    likeness: Likeness | None = None
    ranked: Sequence[Ranked] = ()
    places: Mapping[int, Place] = {}
    odds: Sequence[ProactiveOdds] = ()
    judged: int | None = None
    overlap: Overlap | None = None
    evidence: Mapping[str, float] = {}
    repeats: dict[int, int] = {}
    newer: Mapping[int, int] = {}
    reranked: Sequence[int] = ()
    without_index: bool = False

    @property
    def closed(self) -> bool:
        """True if the gate found that nothing is worth showing."""
        return bool(self.evidence) and sum(self.evidence.values()) <= 0


class HitReason(Struct, frozen=True):
    """Reason why a search returned a message.

    Attributes:
        text: The reason as a sentence.
        rank: Its place among all candidates, from 1; None for a note or an answer of a provider.
        words: The words of the question that the message has.
        similar_words: The words of which it has a similar one.
        near_words: The words that only the messages beside it have.
        meaning: Cosine between the question and the message; None in a search by words.
        times: Days that the question names and that are those of the message: the first and the last.
        newest: Id of the newest message of the same matter, if this one was said before.
        older: Ids of the older messages that this one changes, and that brought it.
        parts: The parts of its score, in nats.
        weight: Its share of the weights of all candidates, above 1 if a named person leads; None without the gate of a turn.
        least: Least weight with which a turn gets a text of its length.
    """

    text: str
    rank: int | None = None
    words: tuple[str, ...] = ()
    similar_words: tuple[str, ...] = ()
    near_words: tuple[str, ...] = ()
    meaning: float | None = None
    times: tuple[tuple[str, str], ...] = ()
    newest: int | None = None
    older: tuple[int, ...] = ()
    parts: Mapping[str, float] = {}
    weight: float | None = None
    least: float | None = None


class GateReason(Struct, frozen=True):
    """Decision of the gate of a turn on recall from past sessions.

    Attributes:
        open: True if the turn gets something.
        text: The reason as a sentence.
        evidence: Sum of `parts`; the gate is open above 0. None if nothing was judged.
        parts: The parts of the evidence, in nats.
        message_id: Id of the message that was judged, the best one.
        words: Its words that the question has.
        near_words: Words of the question that only the messages beside it have.
        candidates: Number of messages that were ranked.
        given: Number of messages that the turn gets.
    """

    open: bool = False
    text: str = ""
    evidence: float | None = None
    parts: Mapping[str, float] = {}
    message_id: int | None = None
    words: tuple[str, ...] = ()
    near_words: tuple[str, ...] = ()
    candidates: int = 0
    given: int = 0


class Absence(Struct, frozen=True):
    """Reason why a message is not in the recall of a turn.

    Attributes:
        message_id: Id of the message.
        given: True if the turn gets it.
        found: True if it is among the results of the search.
        turn: Why the turn does not get it, or that it does.
        search: Why the search does not return it, or that it does.
        reason: What it has in common with the question, if it was ranked.
    """

    message_id: int
    given: bool
    found: bool
    turn: str
    search: str
    reason: HitReason | None = None


def hit_reason(traces: Sequence[SearchTrace], message_id: int) -> HitReason | None:
    """Return what brought a message; None if it was not ranked."""
    for trace in traces:
        for rank, entry in enumerate(trace.ranked, 1):
            if entry.candidate.id == message_id:
                return _reason(trace, rank, entry)
    return None


def _reason(trace: SearchTrace, rank: int, entry: Ranked) -> HitReason:
    message_id = entry.candidate.id
    place = trace.places[message_id]
    own, similar, near = trace.lookup.words_at(place) if trace.lookup else ([], [], [])
    meaning = trace.likeness.nearest([message_id]) if trace.likeness is not None else None
    odds = next((one for one in trace.odds if one.entry.candidate.id == message_id), None)
    times = _times(trace, entry.candidate.timestamp)
    newest = trace.newer.get(message_id)
    older = tuple(sorted(old for old, new in trace.newer.items() if new == message_id))
    pairs = [
        ("words", ", ".join(own)),
        ("similar words", ", ".join(similar)),
        ("words beside it", ", ".join(near)),
        ("meaning", "" if meaning is None else f"cosine {meaning:.2f}"),
        ("time", ", ".join(first if first == last else f"{first} to {last}" for first, last in times)),
        ("changed by message", "" if newest is None else str(newest)),
        ("changes message", ", ".join(map(str, older))),
        ("place by recall.rerank", _place(trace, message_id)),
        ("weight", "" if odds is None else f"{odds.weight:.3f}, needs {odds.least:.3f}"),
    ]
    text = "; ".join(f"{name} {value}" for name, value in pairs if value)
    return HitReason(
        f"{text or 'no word in common'}; place {rank} of {len(trace.ranked)}",
        rank,
        tuple(own),
        tuple(similar),
        tuple(near),
        _rounded(meaning),
        times,
        newest,
        older,
        {name: round(value, _DIGITS) for name, value in entry.parts.items()},
        None if odds is None else _rounded(odds.weight),
        None if odds is None else _rounded(odds.least),
    )


def _place(trace: SearchTrace, message_id: int) -> str:
    return str(trace.reranked.index(message_id) + 1) if message_id in trace.reranked else ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _times(trace: SearchTrace, timestamp: float | None) -> tuple[tuple[str, str], ...]:
    """Return the first and the last day of each time that the question names and that fits a message."""
    days = []
    # A time outside of the years of `datetime` is near no date.
    with contextlib.suppress(OverflowError, OSError, ValueError):
        moment = datetime.fromtimestamp(timestamp or 0.0, trace.zone)
        for when in trace.analysis.dates:
            span = when.span(datetime.fromtimestamp(trace.now, trace.zone))
            if span is not None and when.closeness(moment):
                first, last = (datetime.fromtimestamp(at, trace.zone).date() for at in (span[0], span[1] - 1))
                days.append((first.isoformat(), last.isoformat()))
    return tuple(days)


def gate_reason(traces: Sequence[SearchTrace], given: int, closed: str) -> GateReason:
    """Return what the gate of a turn decided.

    Args:
        traces: What the proactive search decided on.
        given: Number of messages that the turn gets.
        closed: Why no such search was made; "" if it was.
    """
    if closed or not traces:
        return GateReason(False, closed or "no past session can be searched")
    judged = next((trace for trace in traces if trace.evidence), traces[0])
    overlap = judged.overlap
    candidates = sum(len(trace.ranked) for trace in traces)
    evidence = round(sum(judged.evidence.values()), _DIGITS) if judged.evidence else None
    if given:
        counted = f"the turn gets {given} of {candidates} messages"
        text = counted if evidence is None else f"{counted}: evidence {evidence:+.2f}, above 0"
    elif judged.closed:
        text = f"nothing is given: the evidence of the best message is {evidence:+.2f}, not above 0"
    elif not candidates:
        text = "nothing is given: no message has a word, a time or the meaning of the message"
    elif evidence is None and judged.odds:
        text = "nothing is given: no message is probable enough to answer"
    else:
        text = "nothing is given: what was found is left out below"
    return GateReason(
        bool(given),
        text,
        evidence,
        {name: round(value, _DIGITS) for name, value in judged.evidence.items() if value},
        judged.judged,
        overlap.words if overlap else (),
        overlap.near_words if overlap else (),
        candidates,
        given,
    )


def why_not(database: Engine, traces: Sequence[SearchTrace], message_id: int) -> str:
    """Return why a message is no result of a search."""
    from hermes_core.sessions.search.filters import faults

    failed: list[str] = []
    for trace in traces:
        found = faults(database, trace.filters, message_id)
        if found is None:
            return "no message has this id"
        if not found:
            return _why_not_in(database, trace, message_id)
        failed = failed or found
    return "; ".join(failed) or "no past session can be searched"


def _why_not_in(database: Engine, trace: SearchTrace, message_id: int) -> str:
    """Return why a message that passes the filters of a search is no result of it."""
    if trace.without_index:
        return "the search index can't be used, and other messages have more words of the question"
    ranks = {entry.candidate.id: rank for rank, entry in enumerate(trace.ranked, 1)}
    if message_id not in ranks:
        return _why_no_candidate(database, trace, message_id)
    if (repeated := trace.repeats.get(message_id)) is not None:
        return f"it repeats message {repeated}"
    if trace.proactive and trace.lookup is not None:
        odds = next((one for one in trace.odds if one.entry.candidate.id == message_id), None)
        if odds is None:
            return "it is the question itself"
        if not odds.suffices:
            return f"its weight is {odds.weight:.3f}, and a text of its length needs {odds.least:.3f}"
        if trace.closed:
            return "the gate is closed"
    place = _place(trace, message_id) or ranks[message_id]
    return f"it has place {place}, and {trace.limit} are returned"


def _why_no_candidate(database: Engine, trace: SearchTrace, message_id: int) -> str:
    """Return why a message that passes the filters was not ranked."""
    from hermes_core.sessions.search.match import match_of
    from hermes_core.sessions.search.snippets import held

    if trace.lookup is None:
        return (
            "it is not of the time that is asked for" if trace.analysis.dates else "no word can be looked up"
        )
    if trace.analysis.condition is not None:
        return "it does not fulfil the condition of the question"
    sql = "SELECT content, session_key, position FROM messages WHERE id = ?"
    text, key, position = database.execute(sql, (message_id,)).fetchone()
    terms = [*trace.analysis.terms, *trace.analysis.others]
    own = held(text, [match_of(term) for term in terms])
    if own:
        asked = ", ".join(term.text for at, term in enumerate(terms) if at in own)
        return f"of the question it has only {asked}; the {len(trace.ranked)} messages that were ranked have more"
    _, _, near = trace.lookup.words_at((key, position))
    beside = f"; only messages beside it have {', '.join(near)}" if near else ""
    meaning = ", and it is not close in meaning" if trace.likeness is not None else ""
    return f"it has no word of the question{beside}{meaning}"

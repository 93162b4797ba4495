"""The search in past sessions, by words and, with an extension, by meaning."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hermes_core.errors import ConfigError, DatabaseCorrupt, DatabaseUnavailable, SessionError
from hermes_core.sessions import records
from hermes_core.sessions.lineage import require_scope
from hermes_core.sessions.records import (
    PROGRAM_SOURCES,
    Order,
    SearchHit,
    SearchHits,
    as_tuple,
    sqlite_text,
)
from hermes_core.sessions.search.proof import IndexProof
from hermes_core.sessions.search.protocol import INDEX_LOST, MessageIndex, Reranker, VectorIndex
from hermes_core.storage.engine import Engine, detecting_damage

if TYPE_CHECKING:
    from hermes_core.sessions.search.candidates import Distinct
    from hermes_core.sessions.search.filters import Filters
    from hermes_core.sessions.search.reasons import SearchTrace


class PastSessions:
    """The search in the messages of a store, as `SessionStore.past`. Each stored message can be found at once.

    If the index of words is damaged, the messages are read one by one, and the index is made anew in the background. No
    search says that nothing was found before the index has found a message by its words; see `IndexProof`.

    Attributes:
        made_vectors: The index for search by meaning if it was needed so far.
        proof: The proof that the index of words finds what is stored.
        reranker: The order of an extension for what a search found; None for the order of the search.

    Args:
        make_vectors: Factory of the index for search by meaning, called when it is first needed.
    """

    def __init__(
        self,
        database: Engine,
        index: MessageIndex,
        make_vectors: Callable[[Engine], VectorIndex | None] | None,
        clock: Callable[[], float],
        zone: tzinfo | None,
    ) -> None:
        self._database, self._index, self._clock = database, index, clock
        self.proof = IndexProof(database, index)
        self._make_vectors, self._vectors_lock = make_vectors, threading.Lock()
        self.made_vectors: VectorIndex | None = None
        self._vector_problem = ""
        self.reranker: Reranker | None = None
        local_zone = zone or datetime.now().astimezone().tzinfo
        assert local_zone is not None
        self._zone: tzinfo = local_zone

    def search(
        self,
        query: str,
        *,
        role: str | Sequence[str] | None = None,
        source: str | Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        session: str | Sequence[str] | None = None,
        user: str | None = None,
        everybody: bool = False,
        exclude_sources: Sequence[str] = (),
        exclude_sessions: Sequence[str] = (),
        limit: int = 10,
        sort: Order | None = None,
        proactive: bool = False,
        snippets: bool = True,
        distinct: bool = False,
        now: float | None = None,
        traces: list[SearchTrace] | None = None,
    ) -> SearchHits:
        """Return the messages that answer `query` best. No text of a query raises an error.

        The attribute `problem` of the result tells if messages may be missing; `problems_of` returns all reasons.

        Messages of sessions that a program began (`PROGRAM_SOURCES`) come after those of persons' sessions, and only
        one of several messages with nearly the same words. Calls and results of the tools of memory, and instructions
        of a host, are found only if their role is asked for.

        A query is plain text with any punctuation, in any script. A message must fulfil the conditions in it: "quoted
        phrases", `prefix*`, and AND, OR and NOT in capitals.

        Args:
            query: The question.
            role: Search only messages with this role, or one of these roles.
            source: Search only sessions with this source, or one of these sources.
            since: Search only messages at or after this time, in epoch seconds.
            until: Search only messages before this time, in epoch seconds.
            session: Search only the session with this id, or one of these ids.
            user: Search only sessions of this owner, "" for the person at home.
            everybody: True to search the sessions of all owners, if `user` and `session` are None.
            exclude_sources: Sources to leave out.
            exclude_sessions: Ids of sessions to leave out.
            limit: Largest number of messages.
            sort: Order of the result by time; None orders by relevance.
            proactive: True for recall that the person did not ask for. A message is then returned only if it probably
                answers; a long message must be more probable than a short one.
            snippets: True to fill `SearchHit.snippet`; of a message without text, it is filled in any case. The method
                `snippet` makes the snippet of one message.
            distinct: True to return each text once.
            now: Time in epoch seconds from which "last week" in the query counts; the store's clock by default.
            traces: Gets what the search decided on: of the sessions of persons, and of those that a program began.

        Raises:
            SessionError: Users from outside have sessions, and neither `user`, `session` nor `everybody` says whose to search.
        """
        require_scope(self._database, user, as_tuple(session) or None, everybody=everybody)
        # Imported here, so that commands which count or list sessions start 80 ms sooner.
        from hermes_core.recall.dates import asks_for_first
        from hermes_core.recall.query import analyse
        from hermes_core.sessions.search.candidates import search, search_plainly
        from hermes_core.sessions.search.filters import Filters
        from hermes_core.sessions.search.proof import MAX_AGE_S, MAX_COMPARED, MAX_READ
        from hermes_core.sessions.search.reasons import SearchTrace

        filters = Filters(
            roles=as_tuple(role),
            sources=as_tuple(source),
            sessions=as_tuple(session),
            exclude_sources=tuple(exclude_sources),
            exclude_sessions=tuple(exclude_sessions),
            since=since,
            until=until,
            user=user and sqlite_text(user),
        )
        began = time.monotonic()
        now = self._clock() if now is None else now
        query = sqlite_text(query)
        with detecting_damage(self._database):
            vectors = self.vectors if sort is None else None
            covered = vectors.ask_coverage(query, filters.user) if vectors else None
            is_due = proactive and not self.proof.is_recent()
            asked = self._index.ask_proof() if is_due else None
            lack = vectors.ask_lack() if vectors and is_due else None
            facts = self._index.scope_facts(query, filters, {*exclude_sources, *PROGRAM_SOURCES})
            # A source that is not stored would only make the search read the session of each message.
            stored = tuple(source for source in exclude_sources if source in facts.sources)
            filters = replace(filters, exclude_sources=stored)
            analysis = analyse(query, now=now, names=facts.names, zone=self._zone)
            limit = max(limit, 0)
            # These are ordered by time, not by how well they answer.
            is_by_time = sort is not None or analysis.time_only or asks_for_first(query)
            reranker = None if is_by_time or not limit else self.reranker
            programs: tuple[str, ...] = ()
            if not (filters.sources or filters.sessions):
                programs = tuple(
                    source
                    for source in facts.sources
                    if source in PROGRAM_SOURCES and source not in exclude_sources
                )

            damage: list[Exception] = []
            is_lost = facts.newest is None

            def search_in(filters: Filters, count: int, distinct: Distinct) -> list[SearchHit]:
                most = min(count, limit)
                trace = SearchTrace(filters, analysis, most, proactive=proactive, now=now, zone=self._zone)
                if traces is not None:
                    traces.append(trace)
                if not (is_lost or damage):
                    try:
                        return search(
                            self._index,
                            trace,
                            limit=count,
                            order=sort,
                            newest=facts.newest or 0,
                            vectors=vectors,
                            question=vectors.question(query, analysis.text) if vectors else "",
                            covered=covered,
                            snippets=snippets,
                            distinct=distinct,
                        )
                    except (DatabaseCorrupt, sqlite3.OperationalError) as exc:
                        damage.append(exc)
                trace.without_index = True
                return search_plainly(
                    self._database, analysis, filters, limit=count, order=sort, proactive=proactive
                )

            def search_all() -> SearchHits:
                hits = SearchHits(
                    search_in(
                        replace(filters, exclude_sources=(*stored, *programs)),
                        limit if reranker is None else max(limit, reranker.depth),
                        "text" if distinct else "",
                    )
                )
                if reranker is not None and hits:
                    elapsed = time.monotonic() - began
                    ordered = reranker.order(query, analysis.text, hits, elapsed)
                    hits[:] = ordered[:limit]
                    if traces:
                        traces[-1].reranked = [hit.message_id for hit in ordered]
                if programs and len(hits) < limit:
                    hits += search_in(replace(filters, sources=programs), limit - len(hits), "words")
                    if sort:
                        hits.sort(key=lambda hit: (hit.timestamp, hit.message_id), reverse=sort == "newest")
                return hits

            def is_proven() -> bool:
                # A server would be asked once more by each search that finds something.
                if hits and (proactive or self._database.shared):
                    return True
                if (hits or proactive) and self.proof.is_recent(facts.newest or 0):
                    return True
                if not self.proof.holds(asked, facts.newest or 0):
                    return False
                if hits or proactive or self._database.shared:
                    return True
                # A part of the index may be lost: the words of the question are looked for in the messages themselves.
                seen = search_plainly(
                    self._database, analysis, filters, limit=MAX_COMPARED, order=None, count=MAX_READ
                )
                return not self._index.misses(seen, analysis)

            hits, proven_at = search_all(), self.proof.made_at
            if is_lost:
                hits.problem = self.problem  # the index may be whole a moment later
                self.proof.resume()
            elif damage:
                # A store that is opened for reading only, or that another program writes, can't be reset.
                with contextlib.suppress(DatabaseUnavailable):
                    self._index.reset(damage[0])
                    hits.problem = INDEX_LOST
                    self.proof.resume()
            elif limit and not is_proven():
                is_lost = True
                if traces is not None:
                    traces.clear()
                known = {hit.message_id for hit in hits}
                # A server would read the messages of all owners.
                more = [] if self._database.shared else search_all()
                hits += [hit for hit in more if hit.message_id not in known][: limit - len(hits)]
                hits.problem = self.proof.renew()
            elif not hits and vectors is not None and not (proactive and self.proof.made_at == proven_at):
                hits.problem = (lack or vectors.ask_lack())(self._clock() - MAX_AGE_S)
                if hits.problem:
                    self.proof.expire()
            return hits

    def problems_of(self, hits: SearchHits) -> list[str]:
        """Return a sentence for each reason why a search may have missed messages."""
        fault = self.vector_fault
        by_words = fault and f"{fault}; this search was by words only"
        return list(filter(None, [hits.problem or self.problem, by_words, self.rerank_fault]))

    def prove(self) -> str:
        """Return the sentence of `problem`, or about an index that does not find what is stored; "" if all is well."""
        if (problem := self.problem) or not self._database.exists or self.proof.is_recent():
            return problem
        return "" if self.proof.holds() else self.proof.renew()

    def read_moment(
        self, text: str, *, now: float | None = None, zone: tzinfo | None = None, end: bool = False
    ) -> float:
        """Return a time in epoch seconds from an ISO date or time, or from words such as "last week" or "March".

        Args:
            text: The time.
            now: The time in epoch seconds from which the words count; the store's clock by default.
            zone: Time zone of a text that names none; the store's by default.
            end: True to return the end of a day, week or month that the text names, False for its beginning.

        Raises:
            SessionError: The text names no time.
        """
        from hermes_core.recall.dates import read_moment

        try:
            return read_moment(text, self._clock() if now is None else now, zone or self._zone, end=end)
        except ValueError as exc:
            remedy = "write it as 2026-01-31 or 2026-01-31T12:00, or as in: yesterday, last week, March 2026"
            raise SessionError(str(exc), remedy) from exc

    @property
    def vectors(self) -> VectorIndex | None:
        """The index for search by meaning, which makes vectors in the background; None without such a search."""
        if self._make_vectors is not None:
            with self._vectors_lock:  # a second index would make the same vectors beside the first
                if self._make_vectors is not None:
                    try:
                        self.made_vectors = self._make_vectors(self._database)
                    except ConfigError as exc:
                        self._vector_problem = f"search by meaning does not work: {exc}"
                    self._make_vectors = None
        return self.made_vectors

    @property
    def vector_problem(self) -> str:
        """The reason why there is no such index although the settings ask for one; "" if there is none."""
        _ = self.vectors
        return self._vector_problem

    @property
    def vector_fault(self) -> str:
        """The reason why searches are by words only although search by meaning is configured; "" if they are not."""
        vectors = self.vectors
        return self._vector_problem or (vectors.fault if vectors is not None else "")

    def unread(self) -> int:
        """Return how many messages search by meaning does not know yet; 0 without such a search, or while it has a fault."""
        vectors = self.vectors
        if vectors is None or not self._database.exists or vectors.fault or vectors.remedy():
            return 0
        return vectors.missing()

    @property
    def rerank_fault(self) -> str:
        """The reason why an extension that orders what is found does not do so; "" if it does, or there is none."""
        return self.reranker.fault if self.reranker is not None else ""

    @property
    def problem(self) -> str:
        """A sentence if searches do not use the search index fully, with what to do; "" if they do."""
        return self._index.problem() if self._database.exists else ""

    def snippet(self, message_id: int, query: str) -> str:
        """Return the part of a message that answers `query`, with matches marked as >>>this<<<.

        Return "" if the message doesn't exist.
        """
        from hermes_core.recall.query import analyse
        from hermes_core.sessions.search import candidates

        analysis = analyse(sqlite_text(query), now=self._clock(), zone=self._zone)
        with detecting_damage(self._database):
            return candidates.snippet_of(self._database, analysis, message_id)

    def around(self, message_id: int, window: int = 5, *, roles: Sequence[str] = ()) -> records.Window | None:
        """Return a message with up to `window` messages before and after it; None if the message doesn't exist.

        With `roles`, messages of other roles are left out, except the message itself.
        """
        with detecting_damage(self._database):
            row = self._database.execute(
                """SELECT m.session_key, m.position,
                       (SELECT max(l.position) FROM messages l WHERE l.session_key = m.session_key)
                   FROM messages m WHERE m.id = ? AND m.position IS NOT NULL""",
                (message_id,),
            ).fetchone()
            if row is None:
                return None
            key, position, last = row
            rows = self._database.execute(
                f"{records.MESSAGES} WHERE m.session_key = ? AND m.position BETWEEN ? AND ? ORDER BY m.position",
                (key, position - window, position + window),
            )
            found = map(records.message_of, rows)
            shown = tuple(m for m in found if not roles or m.role in roles or m.id == message_id)
            return records.Window(shown, max(position - window, 0), max(last - position - window, 0))

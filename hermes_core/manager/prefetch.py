"""Recall for a turn: the current question first, within the deadline, else what was warmed for this session, else none."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from hermes_core.contract.values import Query, Recall, RecallItem, Session
from hermes_core.manager.call import CallResult
from hermes_core.manager.health import ManagerConfig, State
from hermes_core.manager.held import ProviderHandle
from hermes_core.manager.instance import Flight, Landed
from hermes_core.stopping import stopped

WARM_FOR = 600.0
"""Seconds for which a warmed result may stand in for a fresh one: about as long as a talk keeps to its subject."""

MAX_WARMED = 512
"""Sessions whose warmed results are kept, the latest."""

CHARS_PER_TOKEN = 4

Origin = Literal["fresh", "warmed", "none"]


_NOTHING = Recall()

NOT_WAITED = CallResult("skipped", error="not waited for, because the last one failed")


class RecallPart(NamedTuple):
    """What one provider gave for this turn, where it came from, and how the provider is.

    `reason` says why the recall is not a fresh one. Times are in milliseconds.
    """

    provider: str
    recall: Recall = _NOTHING
    origin: Origin = "none"
    state: State = "active"
    reason: str = ""
    elapsed_ms: float = 0.0


class RecallResult(NamedTuple):
    """Recall of one turn, a part for each provider that was asked."""

    parts: tuple[RecallPart, ...] = ()
    elapsed_ms: float = 0.0

    @property
    def contexts(self) -> list[tuple[str, str]]:
        """Label and text of each part that has any, for the fence."""
        return [(part.provider, part.recall.render()) for part in self.parts if part.recall]


class Warmed:
    """The result that waits for one session of one provider: taken once, and not when it is old.

    A call under way holds on to the object. Once `Prefetch.forget` has let go of it, what that call brings goes nowhere.
    """

    __slots__ = ("_at", "_lock", "_recall", "preparation")

    def __init__(self) -> None:
        self.preparation: Flight | Landed | None = None
        self._lock = threading.Lock()
        self._recall = Recall()
        self._at = 0.0

    def put(self, recall: Recall, now: float) -> None:
        """Keep `recall` instead of what was there."""
        with self._lock:
            self._recall, self._at = recall, now

    def take(self, now: float) -> Recall:
        """What was warmed, once; empty when nothing was or it is too old."""
        with self._lock:
            recall, self._recall = self._recall, Recall()
            return recall if now - self._at <= WARM_FOR else Recall()


class Prefetch:
    """Asks providers in parallel and keeps what comes late, session by session."""

    def __init__(self, terms: ManagerConfig) -> None:
        self._terms = terms
        self._deadline = terms.deadline("prefetch")
        self._lock = threading.Lock()
        self._warmed: dict[tuple[str, str], Warmed] = {}
        self._probes: dict[str, Flight | Landed] = {}

    def ask(self, providers: Sequence[ProviderHandle], query: Query, session: Session) -> list[RecallPart]:
        """Recall for `query` from each of `providers`; waits for all together, each at most until its deadline.

        One that failed the last time is asked as well but not waited for, so that an outage holds up one turn.
        """
        began = time.monotonic()
        until = began + self._deadline
        flights: list[tuple[ProviderHandle, Flight | Landed]] = []
        for held in providers:  # loops: a comprehension costs as much as a call until Python 3.12
            flights.append((held, self._begin(held, query, session)))
        parts: list[RecallPart] = []
        for held, flight in flights:
            parts.append(self._land(held, flight, query, session, began, until))
        return parts

    def preparing(self, held: ProviderHandle) -> bool:
        """Whether `held` has anything to do between two turns."""
        return held.implements("queue_prefetch") or (held.suspect and held.implements("prefetch"))

    def warm(self, held: ProviderHandle, query: Query, session: Session) -> None:
        """Let `held` prepare the next turn in the background; a preparation that has not begun gives way.

        One whose recall failed is asked the turn's own question once more: if it answers, the next turn waits again.
        """
        if held.suspect and held.implements("prefetch"):
            self._probe(held, query, session)
            return
        warmed = self._of(held.name, session.id)
        before = warmed.preparation
        arguments, keep = {"query": query, "session": session}, partial(self._keep, warmed)
        warmed.preparation = held.instance(session).submit("queue_prefetch", arguments, keep, watched=False)
        if before is not None:
            before.withdraw()

    def forget(self, session_id: str) -> None:
        """Drop what was warmed for a session, and what is still under way for it."""
        with self._lock:
            for key in [key for key in self._warmed if key[1] == session_id]:
                del self._warmed[key]

    def _begin(self, held: ProviderHandle, query: Query, session: Session) -> Flight | Landed:
        if held.suspect:
            return self._probe(held, query, session)
        late = partial(self._keep, self._of(held.name, session.id))
        return held.awaited(session).submit("prefetch", {"query": query, "session": session}, late)

    def _probe(self, held: ProviderHandle, query: Query, session: Session) -> Flight | Landed:
        """Ask one whose last recall failed, without waiting for it; one such question at a time."""
        late = partial(self._keep, self._of(held.name, session.id))
        instance = held.instance(session)
        with self._lock:
            before = self._probes.get(held.name)
            if before is not None and before.under_way:
                return Landed(instance, NOT_WAITED)
            flight = instance.submit("prefetch", {"query": query, "session": session}, late, watched=False)
            self._probes[held.name] = flight
        return flight

    def _land(
        self,
        held: ProviderHandle,
        flight: Flight | Landed,
        query: Query,
        session: Session,
        began: float,
        until: float,
    ) -> RecallPart:
        outcome = flight.wait(until - time.monotonic()) if flight.watched else NOT_WAITED
        elapsed = (time.monotonic() - began) * 1000
        state, trouble = flight.instance.condition()
        if outcome.status == "ok":
            recall = within(outcome.value, query.budget)
            return RecallPart(held.name, recall, "fresh" if recall else "none", state, trouble, elapsed)
        reason = f"prefetch {outcome.status}: {outcome.error or trouble}"
        recall = within(self._of(held.name, session.id).take(self._terms.clock()), query.budget)
        in_line = outcome.status == "skipped" and not stopped()  # nothing is wrong with the provider then
        shown: State = "degraded" if state == "active" and not in_line else state
        return RecallPart(held.name, recall, "warmed" if recall else "none", shown, reason, elapsed)

    def _keep(self, warmed: Warmed, outcome: CallResult) -> None:
        if outcome.ok and outcome.value:
            warmed.put(outcome.value, self._terms.clock())

    def _of(self, provider: str, session_id: str) -> Warmed:
        key = (provider, session_id)
        if warmed := self._warmed.get(key):
            return warmed
        with self._lock:
            warmed = self._warmed.setdefault(key, Warmed())
            if len(self._warmed) > MAX_WARMED:
                del self._warmed[next(iter(self._warmed))]
            return warmed


def within(recall: Recall, budget: int) -> Recall:
    """`recall` cut to `budget` tokens at about four characters each, so that no provider can flood a turn.

    >>> within(Recall(text="abcdefghij"), 2).text
    'abcdefgh'
    """
    room = budget * CHARS_PER_TOKEN
    size = len(recall.text)
    for item in recall.items:
        size += len(item.text)
    if size <= room:
        return recall
    if recall.text.strip():
        return Recall(text=recall.text[:room])
    kept: list[RecallItem] = []
    for item in recall.items:
        if room <= 0:
            break
        kept.append(item if len(item.text) <= room else replace(item, text=item.text[:room]))
        room -= len(item.text)
    return Recall(tuple(kept))

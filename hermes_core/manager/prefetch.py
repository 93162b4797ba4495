"""Recall for a turn: a fresh answer if it arrives in time, else a prepared one for this session, else none."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from hermes_core.contract.values import Query, Recall, RecallItem, Refused, Session
from hermes_core.kit.text import plain
from hermes_core.manager.call import CallResult, Status
from hermes_core.manager.observers import Observers
from hermes_core.manager.providers import ProviderHandle, ProviderInstance, ProviderRegistry
from hermes_core.manager.stats import ManagerConfig, State
from hermes_core.manager.worker import PendingCall
from hermes_core.stopping import stopped, wait_unless_stopped

# Seconds for which a warmed recall may stand in for a fresh one: about as long as a conversation keeps to
# its subject.
WARMED_TTL_S = 600.0

# Sessions whose warmed recall is kept: those of the last minutes in a busy gateway, a few kilobytes each.
MAX_WARMED = 512

# No tokenizer here: models differ, and a budget needs no precision.
CHARS_PER_TOKEN = 4

Origin = Literal["fresh", "warmed", "none"]

_EMPTY = Recall()

# Seconds that a turn waits for a recall after a single late one. The backend was slow once, so the next answer may be
# quick. If it hangs, the turn loses no more than this.
WAIT_AFTER_LATE_S = 0.5

# The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009).
RANK_CONSTANT = 60

# Weight of a rank of each further member, times that of the member before. With equal weights a weaker member displaces
# what the stronger one found: recall@10 of Holographic and plain FTS5 on the development half of LoCoMo is 65.1, and 67.2
# with this weight, as of Holographic alone. What both return within the default budget holds 68.9.
MEMBER_WEIGHT = 0.8

NOT_WAITED = CallResult("skipped", error="not waited for, because the last one failed")


class RecallPart(NamedTuple):
    """Recall of one provider for one turn.

    Attributes:
        origin: "fresh" if the provider answered this message in time, "warmed" if the recall was prepared after an
            earlier turn, "none" if there is no recall.
        state: The state of the provider.
        reason: The reason why the recall is not fresh, or the problem of the provider; "" if there is none.
        elapsed_ms: Milliseconds from the start of `Prefetch.ask` until this part was complete.
        status: The status of the call; see `CallResult`.
        remedy: What the person can do about `reason`; "" if the cause is not known.
    """

    provider: str
    recall: Recall = _EMPTY
    origin: Origin = "none"
    state: State = "active"
    reason: str = ""
    elapsed_ms: float = 0.0
    status: Status = "ok"
    remedy: str = ""

    @property
    def outcome(self) -> str:
        """The origin of the recall, and the status of the call if it failed: "fresh", or "late, warmed"."""
        return self.origin if self.status == "ok" else f"{self.status}, {self.origin}"


class RecallResult(NamedTuple):
    """Recall of one turn, with a part for each provider that was asked."""

    parts: tuple[RecallPart, ...] = ()
    elapsed_ms: float = 0.0

    @property
    def contexts(self) -> list[tuple[str, str]]:
        """(name of the provider, recalled text) for each part with recalled text, as the fence takes them."""
        contexts = []
        for part in self.parts:
            if part.recall:
                contexts.append((part.provider, part.recall.render()))
        return contexts


class WarmedRecall:
    """Recall of one provider that was prepared for the next turn of one session.

    It is returned once, unless it is too old.

    A running call refers to this object. After `Prefetch.forget` only the call does, so its result reaches no turn.
    """

    __slots__ = ("_lock", "_recall", "_stored_at", "preparation")

    def __init__(self) -> None:
        self.preparation: PendingCall | None = None
        # A worker calls `put` while the thread of a turn calls `take`.
        self._lock = threading.Lock()
        self._recall = Recall()
        self._stored_at = 0.0

    def put(self, recall: Recall, now: float) -> None:
        """Store `recall` in place of the stored recall."""
        with self._lock:
            self._recall, self._stored_at = recall, now

    def take(self, now: float) -> Recall:
        """Return the stored recall and remove it. Return an empty recall if there is none or if it is too old."""
        with self._lock:
            recall, self._recall = self._recall, Recall()
            return recall if now - self._stored_at <= WARMED_TTL_S else Recall()


@dataclass(frozen=True, slots=True)
class PendingRecall:
    """The providers that were asked for the recall of one message, and their calls.

    Attributes:
        query: The question.
        session: The session of the question.
        began: Start on the monotonic clock.
        asked: (handle, instance, call, failing) of each provider. The call is None if the turn does not wait for it;
            `failing` is True if the last recall of the provider failed.
    """

    query: Query
    session: Session
    began: float
    asked: Sequence[tuple[ProviderHandle, ProviderInstance, PendingCall | None, bool]]

    def waits(self) -> list[tuple[Future[CallResult], float]]:
        """Return the future of each call, with the moment on the monotonic clock until which to wait for it."""
        waits = []
        for handle, _, call, failing in self.asked:
            if call is not None:
                deadline = handle.deadlines["prefetch"]
                waits.append(
                    (call.future, self.began + (min(deadline, WAIT_AFTER_LATE_S) if failing else deadline))
                )
        return waits

    def withdraw(self) -> None:
        """Withdraw the calls that have not begun, and abandon the others: nobody waits for this recall any more."""
        for _, _, call, _ in self.asked:
            if call is not None and call.worker is not None and not call.future.done():
                call.worker.give_up(call, time.monotonic() - self.began)


class Prefetch:
    """Recall from all providers of a manager in parallel.

    An answer that comes too late is kept for the next turn of its session.
    """

    def __init__(self, config: ManagerConfig, registry: ProviderRegistry, observers: Observers) -> None:
        self._config, self._registry, self._observers = config, registry, observers
        # Guards both dicts.
        self._lock = threading.Lock()
        self._warmed: dict[tuple[str, str, str], WarmedRecall] = {}
        self._probes: dict[str, PendingCall] = {}

    def ask(
        self, query: Query, session: Session, *, turn_number: int | None = None, author: str = ""
    ) -> PendingRecall:
        """Ask each provider for recall, without waiting for it. They work in parallel, each up to its deadline.

        A provider whose last recall failed is asked in the background, and the turn does not wait for it. So an
        outage of a backend delays one turn only. After a single recall that was late and has not ended, the turn
        waits `WAIT_AFTER_LATE_S` seconds.

        Args:
            turn_number: If given, `on_turn_start` is called before `prefetch` with this number and the text of the
                query, and both calls go to the worker of the provider in one step.
            author: Who wrote the message, for `on_turn_start`.
        """
        began, query = time.monotonic(), self._clean(query)
        start = {"turn_number": turn_number, "message": query.text, "session": session, "author": author}
        asked: list[tuple[ProviderHandle, ProviderInstance, PendingCall | None, bool]] = []
        for handle in self._registry.handles:
            recalls = handle.implements("prefetch")
            starts = turn_number is not None and handle.implements("on_turn_start")
            if not (recalls or starts):
                continue
            failing = recalls and handle.stats.recall_failing
            instance = handle.instance(session, wait=recalls and not failing)
            calls: list[PendingCall] = []
            if starts:
                calls.append(instance.prepare("on_turn_start", start, background=True))
            recall = None
            if failing:
                recall = self._probe(handle, instance, query, session, calls)
                if recall is not None and recall.worker is not None and not handle.stats.recall_late:
                    recall = None
            elif recalls:
                keep = partial(self._keep, self._of(handle.name, session))
                recall = instance.prepare("prefetch", {"query": query, "session": session}, keep)
                calls.append(recall)
            if not failing:
                instance.hand_over(*calls)
            if recalls:
                asked.append((handle, instance, recall, failing))
        return PendingRecall(query, session, began, asked)

    def collect(self, pending: PendingRecall) -> RecallResult:
        """Wait for the recall of the providers that `ask` asked, at most until the deadline, and return it."""
        query, session, began = pending.query, pending.session, pending.began
        parts = []
        for handle, instance, recall, failing in pending.asked:
            wait = began + handle.deadlines["prefetch"] - time.monotonic()
            if recall is None:
                result = NOT_WAITED
            elif failing:
                wait = min(wait, WAIT_AFTER_LATE_S)
                if wait_unless_stopped(recall.ends_within, wait):
                    result = recall.future.result()
                else:  # the probe goes on for the next turn
                    error = f"the last one was late, and this one took over {wait:.3g} s"
                    result = CallResult("skipped", error=error)
                if result.ok:  # it is used now, and not at the next turn as well
                    self._of(handle.name, session).take(self._config.clock())
            else:
                result = recall.wait(wait)
            part = self._part(handle, instance, result, query, session, began)
            if part.recall and self._observers.filter_recalls:
                answer = self._observers.filter_recall(part.recall, session)
                if isinstance(answer, Refused):
                    part = part._replace(recall=_EMPTY, origin="none", reason=answer.reason)
                else:
                    part = part._replace(recall=answer)
            parts.append(part)
        if len(parts) > 1:
            parts = fuse_recall(parts, query.budget)
        return RecallResult(tuple(parts), (time.monotonic() - began) * 1000)

    @property
    def prepares(self) -> bool:
        """True if `warm` has a call to make."""
        return any(map(self._prepares, self._registry.handles))

    def _prepares(self, handle: ProviderHandle) -> bool:
        return handle.implements("queue_prefetch") or (
            handle.stats.recall_failing and handle.implements("prefetch")
        )

    def warm(self, query: Query, session: Session) -> None:
        """Call `queue_prefetch` in the background, so that the providers prepare the recall of the next turn.

        An earlier preparation that has not begun is withdrawn. If the last recall of a provider failed, `prefetch`
        is called instead, with the same query: if it succeeds, the next turn waits for this provider again.
        """
        query = self._clean(query)
        for handle in filter(self._prepares, self._registry.handles):
            instance = handle.instance(session)
            if handle.stats.recall_failing and handle.implements("prefetch"):
                self._probe(handle, instance, query, session, [])
                continue
            warmed = self._of(handle.name, session)
            before = warmed.preparation
            arguments, keep = {"query": query, "session": session}, partial(self._keep, warmed)
            warmed.preparation = instance.submit("queue_prefetch", arguments, keep, background=True)
            # One preparation a session is enough; without this a slow backend would get one for each turn.
            if before is not None:
                before.withdraw()

    def forget(self, session_id: str) -> None:
        """Drop the prepared recall of a session, and the results of calls that still run for this session."""
        with self._lock:
            for key in [key for key in self._warmed if key[1] == session_id]:
                del self._warmed[key]

    def _clean(self, query: Query) -> Query:
        """Return a query without secrets and recall in its text and messages."""
        text = self._config.redact(query.text)
        recent = tuple(self._config.redact(plain(query.recent))) if query.recent else ()
        return query if text == query.text and not recent else replace(query, text=text, recent=recent)

    def _probe(
        self,
        handle: ProviderHandle,
        instance: ProviderInstance,
        query: Query,
        session: Session,
        before: list[PendingCall],
    ) -> PendingCall | None:
        """Call `prefetch` in the background to test a provider whose last recall failed.

        At most one such probe runs at a time.

        Args:
            before: Prepared calls that go to the worker first.

        Returns:
            The probe; None if another one still runs.
        """
        probe = None
        warmed = self._of(handle.name, session)
        # Under the lock: otherwise two turns at once would both find no running probe, and each would send one.
        with self._lock:
            last = self._probes.get(handle.name)
            if last is None or last.future.done():
                arguments, keep = {"query": query, "session": session}, partial(self._keep, warmed)
                probe = instance.prepare("prefetch", arguments, keep, background=True)
                self._probes[handle.name] = probe
                before = [*before, probe]
            instance.hand_over(*before)
        return probe

    def _part(
        self,
        handle: ProviderHandle,
        instance: ProviderInstance,
        result: CallResult,
        query: Query,
        session: Session,
        began: float,
    ) -> RecallPart:
        elapsed = (time.monotonic() - began) * 1000
        state, problem = instance.condition()
        if result.ok:
            recall = cut_to_budget(result.value, query.budget)
            origin: Origin = "fresh" if recall else "none"
            remedy = handle.stats.remedy_of(problem) if problem else ""
            return RecallPart(handle.name, recall, origin, state, problem, elapsed, remedy=remedy)
        reason = f"prefetch {result.status}: {result.error or problem}"
        warmed = self._of(handle.name, session).take(self._config.clock())
        recall = cut_to_budget(warmed, query.budget)
        # A call that was withdrawn from the queue says nothing about the state of the provider.
        in_line = result.status == "skipped" and not stopped()
        shown: State = "degraded" if state == "active" and not in_line else state
        origin = "warmed" if recall else "none"
        remedy = result.remedy or handle.stats.remedy_of(reason)
        return RecallPart(handle.name, recall, origin, shown, reason, elapsed, result.status, remedy)

    def _keep(self, warmed: WarmedRecall, result: CallResult) -> None:
        if result.ok and result.value:
            warmed.put(result.value, self._config.clock())

    def _of(self, provider: str, session: Session) -> WarmedRecall:
        key = (provider, session.id, session.owner)
        if warmed := self._warmed.get(key):
            return warmed
        with self._lock:
            warmed = self._warmed.setdefault(key, WarmedRecall())
            if len(self._warmed) > MAX_WARMED:
                del self._warmed[next(iter(self._warmed))]
            return warmed


def cut_to_budget(recall: Recall, budget: int) -> Recall:
    """Return `recall`, cut to `budget` tokens of about four characters, so that no provider can flood a turn.

    >>> cut_to_budget(Recall(text="abcdefghij"), 2).text
    'abcdefgh'
    """
    room = budget * CHARS_PER_TOKEN
    size = len(recall.text)
    for item in recall.items:
        size += len(item.text)
    if size <= room:
        return recall
    if recall.text.strip():
        return replace(recall, text=recall.text[:room])
    items: list[RecallItem] = []
    for item in recall.items:
        if room <= 0:
            break
        items.append(_beginning(item, room))
        room -= len(item.text)
    return replace(recall, items=tuple(items))


def _beginning(item: RecallItem, length: int) -> RecallItem:
    """Return an item with at most `length` characters of its text, and with the place of them in its message."""
    if len(item.text) <= length:
        return item
    span = item.span
    if span is not None or (item.origin and item.message_id is not None):
        start = span[0] if span is not None else 0
        span = (start, start + length)
    return replace(item, text=item.text[:length], span=span)


def fuse_recall(parts: Sequence[RecallPart], budget: int) -> list[RecallPart]:
    """Return the recall of several members within one budget: the items that are best by reciprocal rank fusion.

    The ranks of the first member weigh most, then those of the second. An item that several members return counts once, with the sum of its scores, and stays with the member that ranks it
    first. A member that answers with one text counts as one item, which is cut to an equal share of the budget. The items of each part are in the order of their
    fused scores, which replace the scores of the members.

    Args:
        parts: The recall of the members.
        budget: Tokens of all items together, of about four characters each.
    """
    scores: dict[str, float] = {}
    owners: dict[str, tuple[int, int, RecallItem]] = {}
    room = budget * CHARS_PER_TOKEN
    share = room // max(sum(bool(part.recall) for part in parts), 1)
    for number, part in enumerate(parts):
        text = part.recall.text[:share]
        items = (RecallItem(text),) if text.strip() else part.recall.items
        for rank, item in enumerate(items, 1):
            key = " ".join(item.text.split()).casefold()
            scores[key] = scores.get(key, 0.0) + MEMBER_WEIGHT**number / (RANK_CONSTANT + rank)
            if key not in owners or rank < owners[key][1]:
                owners[key] = (number, rank, item)
    chosen: list[list[RecallItem]] = [[] for _ in parts]
    for key in sorted(scores, key=lambda key: (-scores[key], owners[key][0])):
        number, _, item = owners[key]
        if room <= 0:
            break
        chosen[number].append(replace(_beginning(item, room), score=scores[key]))
        room -= len(item.text)
    return [_with_items(part, items) for part, items in zip(parts, chosen, strict=True)]


def _with_items(part: RecallPart, items: Sequence[RecallItem]) -> RecallPart:
    if part.recall.text.strip():
        recall = replace(part.recall, text=items[0].text if items else "")
    else:
        recall = replace(part.recall, items=tuple(items))
    return part._replace(recall=recall) if recall else part._replace(recall=Recall(), origin="none")

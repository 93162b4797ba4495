"""What was recalled: what a turn is given, what past sessions bring to it, and the report of `hermes-memory recall`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from hermes_core.config import Config
from hermes_core.contract.values import Query, Recall, RecallItem, Session
from hermes_core.kit.text import is_trivial
from hermes_core.manager.manager import RecallResult
from hermes_core.manager.prefetch import CHARS_PER_TOKEN, cut_to_budget
from hermes_core.safety.fence import build_memory_context_block, inject_memory_context, sanitize_context
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.records import SearchHit, local_time

Source = Literal["memory", "provider", "sessions"]
Given = TypeVar("Given")

SESSIONS_LABEL = "sessions"
"""Label of past sessions in the fence, when `recall.sessions` is `auto`."""


@dataclass(frozen=True, slots=True)
class TurnRecall:
    """What the coming turn is given: `contexts` are (label, text), `problems` say what did not work."""

    recall: RecallResult
    contexts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...] = ()

    @property
    def context(self) -> str:
        """The fenced block, "" when nothing is remembered."""
        return build_memory_context_block(self.contexts)

    def inject(self, content: Given) -> Given:
        """This request's copy of the user message, text or parts, with the fence behind it; the original stays.

        A fence that the person wrote is taken out of the copy: only memory speaks as memory.
        """
        own: Any = "" if content is None else content
        own = sanitize_context(own) if isinstance(own, str) else [_unfenced(part) for part in own]
        copy: Given = inject_memory_context(own, self.contexts)
        return copy


class SeenTexts:
    """What the model has before it already, so that recall says nothing a second time.

    `left_out` are the recalls that an observer kept back, a sentence each.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.left_out: list[str] = []
        self._texts = [_plain(text) for text in texts]

    def without_repeats(self, recall: RecallResult) -> RecallResult:
        """The recall of providers without the items that were told, in the prompt, in context or by one of them."""
        parts = []
        for part in recall.parts:
            if part.reason and part.state == "active":
                self.left_out.append(f"recall of {part.provider!r} was left out: {part.reason}")
            if part.recall.text.strip():
                self._texts.append(_plain(part.recall.text))
                parts.append(part)
            else:
                fresh = replace(part.recall, items=self.new(part.recall.items))
                parts.append(part._replace(recall=fresh))
        return recall._replace(parts=tuple(parts))

    def new(self, items: Iterable[RecallItem]) -> tuple[RecallItem, ...]:
        """Those that were not told yet; now they are."""
        found = []
        for item in items:
            text = _plain(item.text)
            if not any(text in told for told in self._texts):
                self._texts.append(text)
                found.append(item)
        return tuple(found)


def _unfenced(part: Any) -> Any:
    text = part.get("text") if isinstance(part, dict) else None
    return {**part, "text": sanitize_context(text)} if isinstance(text, str) else part


def _plain(text: str) -> str:
    """Text as it is compared: as whole words, whatever the space between them."""
    return f" {' '.join(text.split())} "


@dataclass(frozen=True, slots=True)
class RecallHit:
    """One line of a recall report; `injected` says whether a turn would be given it without asking."""

    source: Source
    injected: bool
    text: str
    session_id: str = ""
    message_id: int | None = None
    ref: str = ""
    speaker: str = ""
    when: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class RecallReport:
    """What a turn with `query` would be given, and what a search would add; `tokens` counts what is injected."""

    query: str
    results: tuple[RecallHit, ...]
    tokens: int
    elapsed_ms: float
    problems: tuple[str, ...] = ()


def found_item(hit: SearchHit) -> RecallItem:
    """A message found in a past session, as an item of recall."""
    return RecallItem(
        text=hit.text or hit.snippet,
        score=round(hit.score, 4),
        session_id=hit.session_id,
        message_id=hit.message_id,
        ref=hit.ref,
        speaker=hit.speaker or hit.role,
        when=_day(hit.timestamp),
    )


def _day(timestamp: float) -> str:
    day = local_time(timestamp)
    return f"{day.day} {day:%B %Y}" if day else ""


def recalled(source: Source, injected: bool, item: RecallItem) -> RecallHit:
    """One line of the report."""
    return RecallHit(
        source,
        injected,
        item.text,
        item.session_id,
        item.message_id,
        item.ref,
        item.speaker,
        item.when,
        item.score,
    )


def of_providers(recall: RecallResult, limit: int) -> list[RecallHit]:
    """What providers brought to a turn, at most `limit` lines of each."""
    found: list[RecallHit] = []
    for part in recall.parts:
        if part.recall.items:
            found += [recalled("provider", True, item) for item in part.recall.items[:limit]]
        elif part.recall:
            found.append(RecallHit("provider", True, part.recall.render()))
    return found


class PastSessions:
    """What past sessions bring: to a turn, when config.yaml asks for them in every one, and to a report."""

    def __init__(self, sessions: SessionDB, config: Config) -> None:
        self._sessions = sessions
        self._unasked = config.recall.sessions == "auto" and config.sessions.search_enabled

    def of_turn(self, query: Query, session: Session, told: SeenTexts) -> Recall:
        """All of them, if they fit, else what answers."""
        if not self._unasked or is_trivial(query.text):
            return Recall()
        user, here = session.owner or None, tuple(self._sessions.lineage(session.id))
        hits = self._sessions.everything(query.budget * CHARS_PER_TOKEN, user=user, exclude_sessions=here)
        if hits is None:
            from hermes_core.recall.rank import MAX_PROACTIVE_HITS  # only a search needs the ranking

            hits = self._sessions.search(
                query.text, exclude_sessions=here, user=user, limit=MAX_PROACTIVE_HITS, proactive=True
            )
        return cut_to_budget(Recall(told.new(map(found_item, hits))), query.budget)

    def found(self, query: Query, session: Session, limit: int, told: SeenTexts) -> list[RecallHit]:
        """What searching them finds, and what a turn would be given of them."""
        hits = self._sessions.search(query.text, limit=limit, user=session.owner or None)
        given = {item.message_id: item for item in self.of_turn(query, session, told).items}
        found = [
            recalled("sessions", hit.message_id in given, given.pop(hit.message_id, found_item(hit)))
            for hit in hits
        ]
        return found + [recalled("sessions", True, item) for item in given.values()]

"""Recall for one turn, with past sessions beside the providers, and the report of it."""

from __future__ import annotations

import dataclasses
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from hermes_core.config import Config
from hermes_core.contract.values import ORIGIN_NAMES, Origin, Query, Recall, RecallItem, Refused, Session
from hermes_core.curated.document import entry_handle
from hermes_core.curated.stored import DataNote, StoredNotes
from hermes_core.errors import StorageError
from hermes_core.manager.prefetch import (
    CHARS_PER_TOKEN,
    PendingRecall,
    RecallPart,
    RecallResult,
    cut_to_budget,
)
from hermes_core.recall.amounts import FACT_RESULTS, LIST_RESULTS, result_count
from hermes_core.recall.tokens import count_tokens, dense_runs, grams, is_stop_word, words
from hermes_core.safety.fence import (
    RecallScrubber,
    build_memory_context_block,
    inject_memory_context,
    without_context,
    without_recall,
)
from hermes_core.safety.origin import in_scope, lowest
from hermes_core.safety.scrubber import StreamingContextScrubber
from hermes_core.sessions.records import SearchHit, StoredOpenTurn, local_time
from hermes_core.sessions.search.reasons import (
    Absence,
    GateReason,
    HitReason,
    SearchTrace,
    gate_reason,
    hit_reason,
    why_not,
)
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_records import (
    MAX_ITEMS,
    MAX_REASON_CHARS,
    MAX_TEXT_CHARS,
    RecalledItem,
    RecalledSource,
    TurnRecord,
)
from hermes_core.tracing import Span

# Largest share of the recall's budget for results of tools.
TOOL_SHARE = 1 / 3

NOTES_LABEL = "notes"
"""Label of the notes that stand in no system prompt."""

UPDATES_LABEL = "notes that changed since this conversation began"
"""Label of the changes that the frozen prompt does not show, if `memory.refresh` is `append`."""

# Sessions of which the notes that they got are remembered.
MAX_UPDATED_SESSIONS = 4096

MessageContent = TypeVar("MessageContent")
Source = Literal["memory", "provider", "sessions"]

# Of a line of a report that does not name its origin.
_REPORT_ORIGINS: Mapping[Source, Origin] = {
    "memory": "person",
    "provider": "provider",
    "sessions": "assistant",
}


# Reasons of the lines of a report that no search brings.
_REASONS: Mapping[Source, HitReason] = {
    "memory": HitReason("a note: no question decides on it"),
    "provider": HitReason("the provider decided on it"),
}


@dataclass(frozen=True, slots=True)
class TurnRecall:
    """The recall for one turn.

    Attributes:
        recall: The results of the providers.
        contexts: (label, text) of each part of the fence.
        problems: A sentence for each part of the memory that did not work, and for each recall that was left out.
        origin: The lowest origin of the recalled texts, and of others that the model has read since its last turn.
        noted: Line for the person that names notes of the session that wait; "" for none. See `Conversation.turn`.
        is_said: False if no person of the session wrote the message.
    """

    recall: RecallResult
    contexts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...] = ()
    origin: Origin = "person"
    noted: str = ""
    is_said: bool = True

    @property
    def context(self) -> str:
        """The recalled text in the fence; "" if nothing was recalled."""
        return build_memory_context_block(self.contexts)

    def inject(self, content: MessageContent) -> MessageContent:
        """Return a copy of the person's message with the fence after it.

        Use the copy for the request, and do not store it.

        Args:
            content: The message: a text, or a list of content parts.
        """
        own: Any = "" if content is None else without_context(content, is_said=self.is_said)
        copy: MessageContent = inject_memory_context(own, self.contexts)
        return copy

    def scrubber(self) -> StreamingContextScrubber:
        """Return a scrubber of a streamed answer of this turn: `feed` each piece, then `flush`."""
        return RecallScrubber(self.contexts)

    def remove_from(self, answer: MessageContent) -> MessageContent:
        """Return a text or a message that the model wrote in this turn, without the recall that it repeats."""
        clean: MessageContent = without_recall(answer, self.contexts)
        return clean


class RecallOptions(TypedDict, total=False):
    """Options of `Memory.recall` and `Conversation.recall`."""

    limit: int | None
    read_your_writes: bool
    after: str | float | None
    before: str | float | None
    at: float | None
    why: bool
    absent: Sequence[int]


class ReportOptions(msgspec.Struct, kw_only=True):
    """Options of a report of recall, as in `Memory.recall`."""

    limit: int | None = None
    after: str | float | None = None
    before: str | float | None = None
    why: bool = False
    absent: Sequence[int] = ()
    everybody: bool = False


class BegunTurn(msgspec.Struct, eq=False):
    """A turn that began and is not stored yet.

    Attributes:
        query: The person's message as a query.
        session: The session of the turn.
        recall: The calls of the providers; None if nobody waits for them.
        is_first: True if no turn of the session is stored yet.
        at: Time of the question in epoch seconds.
        speaker: Origin of the message.
        lineage: Ids of the session and of those connected with it, whose messages are no past sessions.
        span: The open span of the operation, if telemetry is on.
        stored: The open turn of a conversation.
        prompt: The system prompt of a conversation; None if its turn was begun earlier.
        origin: The lowest origin of the recall.
        record: What the turn was given; None if it began without recall.
        updates: The changes of notes that it was given beside the frozen prompt.
        notes: The notes of the session's owner; None to read them.
        contexts: (label, text) of each part of the recall.
        store_error: Why the turn could not be stored when it began; None if it was.
        said_at: Time of the person's message in epoch seconds, as the host told it; 0 if it was not begun with one.
        shows_line: True if the host shows the line that names notes that wait.
        options: What its report has; None for no report.
        key: Id of the turn, if it is not that of an open turn.
    """

    query: Query
    session: Session
    recall: PendingRecall | None = None
    is_first: bool = False
    at: float = 0.0
    speaker: Origin = "person"
    lineage: frozenset[str] = frozenset()
    span: Span | None = None
    stored: StoredOpenTurn | None = None
    prompt: str | None = None
    origin: Origin = "person"
    record: TurnRecord | None = None
    updates: frozenset[str] = frozenset()
    notes: StoredNotes | None = None
    said_at: float = 0.0
    shows_line: bool = False
    contexts: tuple[tuple[str, str], ...] = ()
    store_error: StorageError | None = None
    options: ReportOptions | None = None
    key: str = ""

    def __post_init__(self) -> None:
        self.key = self.key or uuid.uuid4().hex

    @property
    def turn(self) -> str:
        """Id of the turn, by which its notes are known until it has ended well."""
        return self.key if self.stored is None else self.stored.id

    def take_calls(self) -> PendingRecall:
        """Return the calls of the providers for the one who waits for them."""
        calls, self.recall = self.recall, None
        if calls is None:
            raise ValueError("the recall of this turn was collected before")
        return calls

    def withdraw(self) -> None:
        """Withdraw the questions to the providers: nobody waits for this recall any more."""
        if self.recall is not None:
            self.recall.withdraw()
        if self.span is not None:
            self.span.end("cancelled")


class SeenTexts:
    """The texts that the model already sees in this turn. They are not recalled again.

    `left_out` has a sentence for each recall that an observer refused, and about a search that may have missed messages.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.left_out: list[str] = []
        self._texts = list(map(_comparable, texts))

    def without_repeats(self, recall: RecallResult) -> RecallResult:
        """Return the recall without items whose text the model already sees.

        Add the remaining texts to the seen ones.
        """
        parts = []
        for part in recall.parts:
            if part.reason and part.state == "active":
                self.left_out.append(f"recall of {part.provider!r} was left out: {part.reason}")
            if part.recall.text.strip():
                self._texts.append(_comparable(part.recall.text))
                parts.append(part)
            else:
                fresh = dataclasses.replace(part.recall, items=self.add_new(part.recall.items))
                parts.append(part._replace(recall=fresh))
        return recall._replace(parts=tuple(parts))

    def add_new(self, items: Iterable[RecallItem]) -> tuple[RecallItem, ...]:
        """Return the items whose text the model does not see yet. Add their texts to the seen ones."""
        new = []
        for item in items:
            text = _comparable(item.text)
            if not any(text in seen for seen in self._texts):
                self._texts.append(text)
                new.append(item)
        return tuple(new)


def _comparable(text: str) -> str:
    # Whole words, however they are spaced.
    return f" {' '.join(text.split())} "


@dataclass(frozen=True, slots=True)
class RecallHit:
    """One line of a recall report.

    `injected` is True if a turn would get this recall without a search by the model. `origin` says of a note that stands
    in no system prompt, and of a message, who or what it comes from. `span` is the place of `text` in the message, if
    the text is a part of a longer message: its first character, and the character after its last.
    """

    source: Source
    injected: bool
    text: str
    session_id: str = ""
    message_id: int | None = None
    ref: str = ""
    speaker: str = ""
    when: str = ""
    score: float | None = None
    origin: str = ""
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class RecallReport:
    """Report of the recall for a message and of a search in past sessions.

    `tokens` is the number of tokens of the results that a turn would get without a search. `unread` is the number of
    messages that search by meaning does not know yet.
    """

    query: str
    results: tuple[RecallHit, ...]
    tokens: int
    elapsed_ms: float
    problems: tuple[str, ...] = ()
    unread: int = 0

    @property
    def origin(self) -> Origin:
        """The lowest origin of the results."""
        return lowest(hit.origin or _REPORT_ORIGINS[hit.source] for hit in self.results)


@dataclass(frozen=True, slots=True)
class ExplainedHit(RecallHit):
    """One line of a recall report, with what brought it."""

    why: HitReason | None = None


@dataclass(frozen=True, slots=True)
class ExplainedReport(RecallReport):
    """Report of a recall with its reasons.

    Attributes:
        gate: What the gate decided on recall from past sessions.
        absent: Why messages that were asked for are not in the recall.
    """

    gate: GateReason = field(default_factory=GateReason)
    absent: tuple[Absence, ...] = ()


@dataclass(slots=True)
class RecallTrace:
    """Trace of the decisions of a recall from past sessions.

    Attributes:
        closed: Why turns get nothing from past sessions; "" if they may.
        turn: What the proactive search decided on.
        search: What the search of a report decided on.
        left_out: Why a result of the proactive search is not given, by the id of the message.
    """

    closed: str = ""
    turn: list[SearchTrace] = field(default_factory=list)
    search: list[SearchTrace] = field(default_factory=list)
    left_out: dict[int | None, str] = field(default_factory=dict)

    def leave_out(self, reason: str, before: Iterable[int | None], after: Iterable[int | None]) -> None:
        """Note the reason why messages of `before` are not in `after`."""
        self.left_out |= dict.fromkeys(set(before).difference(after), reason)


def provider_hits(recall: RecallResult, limit: int) -> list[RecallHit]:
    """Return the recall of the providers as lines of a report, at most `limit` lines for each provider."""
    hits: list[RecallHit] = []
    for part in recall.parts:
        if part.recall.items:
            hits += [_hit("provider", True, item) for item in part.recall.items[:limit]]
        elif part.recall:
            hits.append(RecallHit("provider", True, part.recall.render()))
    return hits


def _hit(source: Source, injected: bool, item: RecallItem) -> RecallHit:
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
        item.origin,
        item.span,
    )


# Values of `Session.chat_type` for a chat of one person with the agent.
DIRECT_CHATS = ("dm", "direct", "private")


def others_read(session: Session) -> bool:
    """Return True if other people may read the answers in this session: it is of a user in a group.

    A chat whose id is not that of the user counts as a group, unless its `chat_type` says that it is none.

    >>> others_read(Session("s", user_id="7", chat_id="-100")), others_read(Session("s", user_id="7", chat_id="7"))
    (True, False)
    """
    if not session.user_id or session.chat_type in DIRECT_CHATS:
        return False
    return bool(session.chat_type) or session.chat_id not in ("", session.user_id)


class SessionRecall:
    """Recall from past sessions, for turns (unless `recall.sessions` is `on_request`) and for recall reports."""

    def __init__(
        self,
        sessions: SessionStore,
        config: Config,
        filter_recall: Callable[[Recall, Session], Recall | Refused],
    ) -> None:
        self._sessions, self._filter_recall = sessions, filter_recall
        self._closed = "" if config.recall.sessions == "auto" else "recall.sessions is on_request"
        if not config.sessions.search_enabled:
            self._closed = "sessions.search_enabled is false"

    def for_turn(
        self,
        query: Query,
        session: Session,
        seen: SeenTexts,
        related: Collection[str] = (),
        trace: RecallTrace | None = None,
    ) -> Recall:
        """Return the recall from past sessions for a turn; an empty one if `recall.sessions` is `on_request`.

        Args:
            related: Ids of the session's lineage, if the caller has read them.
            trace: Gets what was decided.
        """
        trace = trace or RecallTrace()
        trace.closed = self._closed or ("other people read the answers" if others_read(session) else "")
        if trace.closed:
            return Recall()
        # What a user said elsewhere is not for a group. The person at home may search all sessions, but what strangers said comes into no turn unasked.
        user, lineage = session.owner, tuple(related or self._sessions.lineage(session.id))
        hits = self._sessions.past.search(
            query.text,
            exclude_sessions=lineage,
            user=user,
            limit=LIST_RESULTS,
            proactive=True,
            snippets=False,
            distinct=True,
            now=query.now,
            traces=trace.turn,
        )
        seen.left_out += filter(None, [hits.problem])
        # A tool's result may be a whole page, and crowd out what persons said.
        room = query.budget * CHARS_PER_TOKEN * TOOL_SHARE
        chosen = []
        for hit in hits:
            if hit.role == "tool":
                room -= len(hit.excerpt)
                if room < 0:
                    continue
            chosen.append(hit)
        chosen_ids = [hit.message_id for hit in chosen]
        trace.leave_out(
            "results of tools get a third of recall.budget", [hit.message_id for hit in hits], chosen_ids
        )
        items = seen.add_new([_item(hit, in_scope(hit.origin, user)) for hit in chosen])
        new_ids = [item.message_id for item in items]
        trace.leave_out("the model sees this text already", chosen_ids, new_ids)
        if not items:
            return Recall()
        recall = self._filter_recall(Recall(items), session)
        if isinstance(recall, Refused):
            seen.left_out.append(f"recall of past sessions was left out: {recall.reason}")
            trace.leave_out(f"an observer refused it: {recall.reason}", new_ids, ())
            return Recall()
        # The model reads the newest of several statements of one matter last.
        newest = {hit.newer for hit in chosen}
        cut = cut_to_budget(recall, query.budget)
        filtered = [item.message_id for item in recall.items]
        trace.leave_out("an observer left it out", new_ids, filtered)
        trace.leave_out("recall.budget is used up", filtered, [item.message_id for item in cut.items])
        ordered = sorted(cut.items, key=lambda item: item.message_id in newest)
        return dataclasses.replace(cut, items=tuple(ordered))

    def hits(
        self,
        query: Query,
        session: Session,
        user: str | None,
        limit: int | None,
        seen: SeenTexts,
        since: float | None = None,
        until: float | None = None,
        trace: RecallTrace | None = None,
    ) -> list[RecallHit]:
        """Return lines of a report: the results of a search, and the messages that a turn would get without a search.

        Without a limit, their number depends on the kind of the question, and further results keep to the budget. With
        `since` or `until` (epoch seconds), only messages of that time are returned. `user` is the owner whose sessions are
        searched, None for all.
        """
        trace = trace or RecallTrace()
        most = result_count(query.text) if limit is None else limit
        found = self._sessions.past.search(
            query.text,
            limit=most,
            user=user,
            everybody=user is None,
            since=since,
            until=until,
            snippets=False,
            now=query.now,
            traces=trace.search,
        )
        seen.left_out += filter(None, [found.problem])
        shown = found if limit is not None else _within(found, query.budget)
        injected = {item.message_id: item for item in self.for_turn(query, session, seen, trace=trace).items}
        hits = [
            _hit("sessions", hit.message_id in injected, injected.pop(hit.message_id, _item(hit, hit.origin)))
            for hit in shown
        ]
        if since is None and until is None:
            hits += [_hit("sessions", True, item) for item in injected.values()]
        return hits if limit is None else hits[:limit]

    def explain(
        self, report: RecallReport, trace: RecallTrace, absent: Iterable[int] = ()
    ) -> ExplainedReport:
        """Return a report with its reasons.

        Args:
            report: The report, whose lines from past sessions `hits` has returned.
            trace: What `hits` decided on.
            absent: Ids of messages of which the report says why they are not in it.
        """
        closed = trace.closed or self._closed
        given = {hit.message_id for hit in report.results if hit.source == "sessions" and hit.injected}
        found = {hit.message_id for hit in report.results if hit.source == "sessions"}
        reasons = {
            message_id: hit_reason([*trace.turn, *trace.search], message_id)
            for message_id in {*found, *absent}
            if message_id is not None
        }
        hits = [
            ExplainedHit(
                **{name: getattr(hit, name) for name in hit.__slots__},
                why=_REASONS.get(hit.source) or reasons.get(hit.message_id or 0),
            )
            for hit in report.results
        ]
        absences = [
            Absence(
                message_id,
                message_id in given,
                message_id in found,
                "the turn gets it"
                if message_id in given
                else trace.left_out.get(message_id)
                or closed
                or why_not(self._sessions.database, trace.turn, message_id),
                "the search returns it"
                if message_id in found
                else why_not(self._sessions.database, trace.search, message_id),
                reasons.get(message_id),
            )
            for message_id in absent
        ]
        return ExplainedReport(
            report.query,
            tuple(hits),
            report.tokens,
            report.elapsed_ms,
            report.problems,
            report.unread,
            gate_reason(trace.turn, len(given), closed),
            tuple(absences),
        )


def _within(hits: Sequence[SearchHit], budget: int) -> list[SearchHit]:
    """Return the first hits as they are, and those of the others that fit into the rest of the budget (tokens)."""
    budget -= sum(count_tokens(hit.excerpt) for hit in hits[:FACT_RESULTS])
    shown = list(hits[:FACT_RESULTS])
    for hit in hits[FACT_RESULTS:]:
        cost = count_tokens(hit.excerpt)
        if cost <= budget:
            shown.append(hit)
            budget -= cost
    return shown


def _item(hit: SearchHit, origin: Origin) -> RecallItem:
    """Return the message of a search hit as an item of recall."""
    return RecallItem(
        text=hit.excerpt,
        score=round(hit.score, 4),
        session_id=hit.session_id,
        message_id=hit.message_id,
        ref=hit.ref,
        speaker=hit.speaker or hit.role,
        when=f"said before, on {_day(hit.timestamp)}" if hit.newer else _day(hit.timestamp),
        origin=origin,
        span=hit.span,
    )


def _day(seconds: float) -> str:
    moment = local_time(seconds)
    return f"{moment.day} {moment:%B %Y}" if moment else ""


class NoteUpdates:
    """The changes of notes that running sessions have got beside their frozen prompts.

    Each change is given once, and once more whenever the message shares a word with it: a fence is not stored, so that the
    model does not see it again.
    """

    def __init__(self) -> None:
        self._sent: OrderedDict[tuple[str, str], set[str]] = OrderedDict()

    def due(self, session: Session, changes: Iterable[str], question: str) -> set[str]:
        """Return the changes to give with a message.

        Args:
            changes: Texts of all changes since the session began.
        """
        sent = self._sent.get((session.id, session.owner), set())
        asked = _telling_words(question)
        return {text for text in changes if text not in sent or asked & _telling_words(text)}

    def remember(self, session: Session, given: Collection[str]) -> None:
        """Remember changes as given: the turn that got them is stored."""
        if not given:
            return
        key = (session.id, session.owner)
        self._sent[key] = self._sent.pop(key, set()) | set(given)
        while len(self._sent) > MAX_UPDATED_SESSIONS:
            self._sent.popitem(last=False)


def _telling_words(text: str) -> set[str]:
    telling = {word for word in words(text) if not is_stop_word(word)}
    return telling | {
        gram for run in dense_runs(text) for grams_of_run in grams(run) for gram in grams_of_run
    }


def render_updates(added: Iterable[str], removed: Iterable[str]) -> str:
    """Return changes of notes as lines for the model.

    >>> render_updates(["Has a dog"], ["Has a cat"])
    '- new: Has a dog\\n- removed: Has a cat'
    """
    return "\n".join([*(f"- new: {entry}" for entry in added), *(f"- removed: {entry}" for entry in removed)])


def render_notes(notes: Sequence[DataNote]) -> str:
    """Return notes of low origin as data for the model, each with its origin and date.

    >>> from hermes_core.curated.origins import NoteOrigin
    >>> render_notes([DataNote("memory", "Open from 9 to 5", NoteOrigin("web", 1746230400.0))])
    '- (from a web page, 3 May 2025) Open from 9 to 5'
    """
    return "\n".join(map(_note_line, notes))


def recall_record(
    prompt: str,
    answered: RecallResult,
    recall: RecallResult,
    notes: Sequence[DataNote],
    past: Recall,
    left_out: Sequence[str],
) -> TurnRecord:
    """Return the record of what a turn is given.

    Args:
        prompt: The memory in the system prompt.
        answered: The recall of the providers.
        recall: The part of it that the turn is given.
        notes: The notes that the turn is given as data.
        past: The messages of past sessions that the turn is given.
        left_out: A sentence for each recall that was left out.
    """
    sources = list(map(_provider_source, answered.parts, recall.parts))
    if notes:
        items = [
            RecalledItem(
                tokens=count_tokens(note.entry), origin=note.origin.origin, handle=entry_handle(note.entry)
            )
            for note in notes
        ]
        sources.append(_source_of(NOTES_LABEL, items))
    if past.items:
        items = [_recalled(item, origin=item.origin, span=item.span) for item in past.items]
        sources.append(_source_of("sessions", items))
    return TurnRecord(
        _prompt_tokens(prompt),
        sum(map(attrgetter("tokens"), sources)),
        round(answered.elapsed_ms, 3),
        tuple(sources),
        tuple([sentence[:MAX_REASON_CHARS] for sentence in left_out] if left_out else ()),
    )


@lru_cache(maxsize=64)
def _prompt_tokens(prompt: str) -> int:
    """Return the estimated tokens of a prompt, which is the same in all turns of a session."""
    return count_tokens(prompt)


def _provider_source(before: RecallPart, after: RecallPart) -> RecalledSource:
    """Return the source of a provider, with the items that were left out because the model saw them already."""
    if before.recall.text.strip():
        text = before.recall.text
        items = [RecalledItem(text[:MAX_TEXT_CHARS], count_tokens(text), origin="provider")]
    else:
        kept = {id(item) for item in after.recall.items}
        items = [
            _recalled(
                item,
                text=item.text[:MAX_TEXT_CHARS],
                origin=item.origin or "provider",
                repeated=id(item) not in kept,
            )
            for item in before.recall.items
        ]
    return _source_of(
        before.provider,
        items,
        outcome=before.outcome,
        reason=before.reason[:MAX_REASON_CHARS],
        elapsed_ms=round(before.elapsed_ms, 3),
    )


def _recalled(item: RecallItem, **fields: Any) -> RecalledItem:
    return RecalledItem(
        tokens=count_tokens(item.text),
        score=item.score,
        session_id=item.session_id,
        message_id=item.message_id,
        **fields,
    )


def _source_of(name: str, items: Sequence[RecalledItem], **fields: Any) -> RecalledSource:
    tokens = sum(item.tokens for item in items if not item.repeated)
    return RecalledSource(name, tokens=tokens, items=tuple(items[:MAX_ITEMS]), count=len(items), **fields)


def _note_line(note: DataNote) -> str:
    day = _day(note.origin.at) if note.origin.at else ""
    source = f"from {ORIGIN_NAMES[note.origin.origin]}"
    about = filter(None, (source, day, "flagged by the safety scan" if note.flag else ""))
    return f"- ({', '.join(about)}) {note.entry}"

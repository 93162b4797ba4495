"""The measurement: the same questions and turns for past sessions as they are configured, plain FTS5 and nothing."""

from __future__ import annotations

import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Protocol

from hermes_core import Query, Session
from hermes_core.config import Config
from hermes_core.recall import count_tokens
from hermes_core.sessions.records import PROGRAM_SOURCES
from hermes_core.sessions.search.reasons import SearchTrace
from hermes_core.sessions.session_store import SessionStore
from hermes_core.turn_recall import SeenTexts, SessionRecall
from hermes_memory_eval.baseline import PlainFts5
from hermes_memory_eval.figures import interval, quantile
from hermes_memory_eval.questions import KINDS, Corpus, Kind, MadeQuestion, Said

DEPTHS = (1, 5, 10)

# Seconds after which no further question is asked.
MAX_SECONDS = 300.0

# Times ten messages that plain FTS5 is asked for if those of one session are left out.
MANY_MORE = 10

# Missed questions that the report names.
MAX_MISSES = 5

OURS, BASELINE, NOTHING = "past sessions", "plain FTS5", "nothing"

LIMITS = (
    "The questions have words of the messages themselves. A person asks in other words, so in use less is found, and "
    "search by meaning gains more than here.",
    "Only the message from which a question was made counts as found; another one may answer as well.",
    "In 'asked before', the answer is what the agent said then, right or wrong.",
    "A turn that asks nothing and gets something is not wrong by itself: nobody judged whether the text helps.",
    "Notes and the provider are left out, and so is what a model makes of what it gets.",
)


@dataclass(frozen=True)
class KindFigures:
    """Results of one system for one kind of questions.

    Attributes:
        kind: The kind of the questions.
        questions: Their number.
        hit_at_1: Share of the questions whose message is the first result.
        hit_at_5: Share of the questions whose message is among five results.
        hit_at_10: Share of the questions whose message is among ten results.
        low: Where 95 of 100 shares at ten lie, if the questions are drawn anew.
        high: The other end of it.
        in_turn: Share of the questions whose message a turn gets by itself.
    """

    kind: Kind
    questions: int
    hit_at_1: float
    hit_at_5: float
    hit_at_10: float
    low: float
    high: float
    in_turn: float


@dataclass(frozen=True)
class SystemFigures:
    """Results of one system, and its costs.

    Attributes:
        system: Name of the system.
        kinds: Its figures by kind of question.
        result_tokens: Mean tokens of ten results.
        turn_tokens: Mean tokens that a turn gets which asks one of the questions.
        idle_share: Share of the turns that ask nothing and get something.
        idle_tokens: Mean tokens that such a turn gets.
        search_ms: Median time of a search.
        search_ms_95: Time within which 95 of 100 searches end.
        turn_ms: Median time of the recall of a turn.
    """

    system: str
    kinds: tuple[KindFigures, ...]
    result_tokens: float
    turn_tokens: float
    idle_share: float
    idle_tokens: float
    search_ms: float
    search_ms_95: float
    turn_ms: float


@dataclass(frozen=True)
class Missed:
    """A question whose message a turn did not get."""

    question: str
    message_id: int


@dataclass(frozen=True)
class EvalReport:
    """A measurement.

    Attributes:
        messages: Number of messages of the person and the agent.
        sessions: Number of their sessions.
        questions: Number of questions.
        idle_turns: Number of turns that ask nothing.
        left_over: Number of questions and turns for which the time was too short.
        by_meaning: True if past sessions were searched by meaning as well.
        index_s: Seconds in which the index of plain FTS5 was made.
        seconds: Seconds that the measurement took.
        systems: The figures of each system.
        missed: Some questions about the person's own facts that a turn did not get.
        limits: What the measurement can't tell.
        unread: Number of messages that search by meaning does not know yet.
    """

    messages: int
    sessions: int
    questions: int
    idle_turns: int
    left_over: int
    by_meaning: bool
    index_s: float
    seconds: float
    systems: tuple[SystemFigures, ...]
    missed: tuple[Missed, ...]
    limits: tuple[str, ...] = LIMITS
    unread: int = 0


class System(Protocol):
    """System that is measured. Both methods return ids of messages, and the tokens of what is shown of them."""

    name: str

    def search(self, text: str, limit: int) -> tuple[list[int], int]: ...

    def turn(self, text: str, session_id: str = "") -> tuple[list[int], int]: ...


class PastSessionsSystem:
    """The search and the turns of a home, as they are configured, without its observers and its provider.

    Attributes:
        by_meaning: True if a search so far was also by meaning.
    """

    name = OURS
    by_meaning = False

    def __init__(self, sessions: SessionStore, config: Config, now: float) -> None:
        self._sessions, self._now = sessions, now
        self._budget = config.recall.budget
        self._recall = SessionRecall(sessions, config, lambda recall, _session: recall)
        self._session = Session(f"eval-{uuid.uuid4().hex}")

    def search(self, text: str, limit: int) -> tuple[list[int], int]:
        """Search as `hermes-memory sessions search` does, in the sessions of the person."""
        traces: list[SearchTrace] = []
        hits = self._sessions.past.search(
            text, user="", limit=limit, snippets=False, now=self._now, traces=traces
        )
        # Vectors that are missing, or of another model, leave a search by words.
        self.by_meaning = self.by_meaning or any(trace.likeness is not None for trace in traces)
        return [hit.message_id for hit in hits], sum(count_tokens(hit.excerpt) for hit in hits[:10])

    def turn(self, text: str, session_id: str = "") -> tuple[list[int], int]:
        """Return what a turn gets by itself; with `session_id`, a turn of this session, whose messages it has."""
        query = Query(text, self._budget, now=self._now)
        recall = self._recall.for_turn(query, self._session, SeenTexts(), [session_id or self._session.id])
        ids = [item.message_id for item in recall.items if item.message_id is not None]
        return ids, count_tokens(recall.render()) if recall.items else 0


class Fts5System:
    """Plain FTS5, which gives every turn its ten best messages, whole."""

    name = BASELINE

    def __init__(self, baseline: PlainFts5, sessions: SessionStore) -> None:
        self._baseline, self._database = baseline, sessions.database

    def search(self, text: str, limit: int) -> tuple[list[int], int]:
        """Return the best messages."""
        return self._read(self._baseline.ask(text, limit), "")

    def turn(self, text: str, session_id: str = "") -> tuple[list[int], int]:
        """Return the ten best messages that are not of a session."""
        most = max(DEPTHS) * (MANY_MORE if session_id else 1)
        return self._read(self._baseline.ask(text, most), session_id)

    def _read(self, ids: Sequence[int], left_out: str) -> tuple[list[int], int]:
        condition, parameters = self._database.dialect.among("m.id", ids)
        sql = f"""SELECT m.id, m.content FROM messages m JOIN sessions s ON s.key = m.session_key
            WHERE {condition} AND s.id <> ?"""  # noqa: S608  words of the dialect
        texts = {row[0]: row[1] for row in self._database.execute(sql, (*parameters, left_out))}
        kept = [message_id for message_id in ids if message_id in texts]
        return kept, sum(count_tokens(texts[message_id]) for message_id in kept[: max(DEPTHS)])


class NoMemory:
    """An agent that remembers nothing."""

    name = NOTHING

    def search(self, text: str, limit: int) -> tuple[list[int], int]:  # noqa: ARG002  it has nothing
        """Find nothing."""
        return [], 0

    def turn(self, text: str, session_id: str = "") -> tuple[list[int], int]:  # noqa: ARG002  it has nothing
        """Give nothing."""
        return [], 0


def stored_messages(sessions: SessionStore) -> Iterator[Said]:
    """Yield the texts of the person at home and of the agent, session by session."""
    condition, sources = sessions.database.dialect.among("s.source", PROGRAM_SOURCES)
    rows = sessions.database.execute(
        f"""SELECT m.id, s.id AS session_id, m.role, m.content, m.speaker FROM messages m
            JOIN sessions s ON s.key = m.session_key
            WHERE m.state < 2 AND m.role IN ('user', 'assistant') AND m.content <> '' AND s.user = '' AND NOT ({condition})
            ORDER BY m.session_key, m.position""",  # noqa: S608  words of the dialect
        sources,
    )
    for row in rows:
        yield Said(row["id"], row["session_id"], row["role"], row["content"], row["speaker"])


def measure(
    sessions: SessionStore,
    config: Config,
    *,
    wanted: int,
    seed: int = 0,
    seconds: float = MAX_SECONDS,
    now: float | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> EvalReport:
    """Measure past sessions, plain FTS5 and nothing. Each question and each turn goes to all of them, one after the other.

    Args:
        sessions: The store. It is only read.
        config: Settings of the home.
        wanted: Largest number of questions of each kind, and of turns that ask nothing.
        seed: Number that decides which questions are drawn.
        seconds: Time after which no further question is asked.
        now: Time of the questions in epoch seconds; default: now.
        progress: Function that gets how many questions and turns are done, and their number.
    """
    began = time.perf_counter()
    corpus = Corpus(wanted, seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(PlainFts5(Path(folder, "plain.db"))) as baseline,
    ):
        baseline.add(corpus.read(stored_messages(sessions)))
        indexed = time.perf_counter() - began
        questions = corpus.questions(baseline)
        ours = PastSessionsSystem(sessions, config, time.time() if now is None else now)
        systems = [Measured(ours), Measured(Fts5System(baseline, sessions)), Measured(NoMemory())]
        # Mixed, so that a measurement that runs out of time has asked of each kind.
        jobs: list[MadeQuestion | Said] = [*questions, *corpus.idle]
        random.Random(seed).shuffle(jobs)
        done = 0
        for done, job in enumerate(jobs, 1):
            for system in systems:
                system.ask(job) if isinstance(job, MadeQuestion) else system.stay_idle(job)
            progress(done, len(jobs))
            if time.perf_counter() - began > seconds:
                break
    asked = sum(isinstance(job, MadeQuestion) for job in jobs[:done])
    return EvalReport(
        corpus.messages,
        corpus.sessions,
        asked,
        done - asked,
        len(jobs) - done,
        ours.by_meaning,
        round(indexed, 3),
        round(time.perf_counter() - began, 3),
        tuple(system.figures() for system in systems),
        tuple(systems[0].missed[:MAX_MISSES]),
        unread=sessions.past.unread(),
    )


class Measured:
    """A system, and what it has answered so far.

    Attributes:
        missed: Questions about own facts whose message its turns miss.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._ranks: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
        self._in_turn: dict[Kind, list[bool]] = {kind: [] for kind in KINDS}
        self._tokens, self._turn_tokens, self._idle_tokens = list[int](), list[int](), list[int]()
        self._searches, self._turns = list[float](), list[float]()
        self.missed: list[Missed] = []

    def ask(self, question: MadeQuestion) -> None:
        """Ask a question, in a search and in a turn of a new session."""
        started = time.perf_counter()
        ids, tokens = self._system.search(question.text, max(DEPTHS) + len(question.own))
        between = time.perf_counter()
        given, turn_tokens = self._system.turn(question.text)
        self._searches.append((between - started) * 1000)
        self._turns.append((time.perf_counter() - between) * 1000)
        others = [message_id for message_id in ids if message_id not in question.own]
        rank = next((rank for rank, found in enumerate(others, 1) if found in question.evidence), 0)
        is_given = not question.evidence.isdisjoint(given)
        self._ranks[question.kind].append(rank)
        self._in_turn[question.kind].append(is_given)
        if question.kind == "own facts" and not is_given:
            self.missed.append(Missed(question.text, min(question.evidence)))
        self._tokens.append(tokens)
        self._turn_tokens.append(turn_tokens)

    def stay_idle(self, said: Said) -> None:
        """Begin the turn of a message that asks nothing, in its own session."""
        self._idle_tokens.append(self._system.turn(said.text, said.session_id)[1])

    def figures(self) -> SystemFigures:
        """Return the figures of what was answered."""
        kinds = [kind for kind in KINDS if self._ranks[kind]]
        return SystemFigures(
            self._system.name,
            tuple(_kind_figures(kind, self._ranks[kind], self._in_turn[kind]) for kind in kinds),
            _mean(self._tokens),
            _mean(self._turn_tokens),
            _mean([bool(tokens) for tokens in self._idle_tokens]),
            _mean(self._idle_tokens),
            round(quantile(self._searches, 0.5), 2),
            round(quantile(self._searches, 0.95), 2),
            round(quantile(self._turns, 0.5), 2),
        )


def _kind_figures(kind: Kind, ranks: Sequence[int], in_turn: Sequence[bool]) -> KindFigures:
    first, five, ten = ([0 < rank <= depth for rank in ranks] for depth in DEPTHS)
    low, high = interval(ten)
    return KindFigures(kind, len(ranks), _mean(first), _mean(five), _mean(ten), low, high, _mean(in_turn))


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 4) if values else 0.0

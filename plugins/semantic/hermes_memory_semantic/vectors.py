"""Search by meaning: vectors of messages and of their words, made in the background and compared with a question.

The vectors are stored beside the messages and deleted with them.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from filelock import Timeout

from hermes_core import HermesHome
from hermes_core.config import Config
from hermes_core.errors import BackendUnavailable, ConfigError, DatabaseCorrupt, HermesError, StorageError
from hermes_core.kit import Database, redact
from hermes_core.packages import install_remedy
from hermes_core.recall.tokens import words
from hermes_core.sessions.search.protocol import (
    INT8_SCALE,
    MAX_NEAREST,
    Coverage,
    Nearness,
    OtherModel,
    SearchEngine,
    Surroundings,
    Vector,
    VectorSamples,
    VectorStore,
)
from hermes_core.storage.engine import Engine, ValueRejected
from hermes_memory_semantic import dense
from hermes_memory_semantic.vector_store import SqliteVectors

if TYPE_CHECKING:
    import numpy

    from hermes_core.recall.rank import Place
    from hermes_core.sessions.search.filters import Condition
    from hermes_core.sessions.search.reader import IndexRow
    from hermes_memory_semantic.embeddings import HttpEncoder

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

log = logging.getLogger(__name__)

# Weights of a standard deviation of closeness in meaning: of the closest piece of a message, of its words and the words
# around it, of its own words alone, and of the best message of its session by words. They were fitted with the constants
# of `recall.rank`, on LoCoMo, REALTALK and BEAM together. By each signal alone, recall@10 is 52, 49, 46 (closest piece);
# 78, 63, 48 (words and the words around); 72, 63, 48 (own words); with all signals and those of `recall.rank`, 84, 71, 61.
WHOLE_WEIGHT = 0.33
WORDS_WEIGHT = 0.43
OWN_WORDS_WEIGHT = 0.25
SESSION_WEIGHT = 0.42

# Weight of the closest piece if the model makes no vectors of words.
WHOLE_WEIGHT_ALONE = 0.8

# Weights of the closest piece and of the own words of a message if the words of the question tell nothing: then the words
# around it and its session tell nothing either. They were fitted on LoCoMo, REALTALK, BEAM and half of `bench/hints.txt`.
WHOLE_WEIGHT_WITHOUT_WORDS = 1.3
OWN_WORDS_WEIGHT_WITHOUT_WORDS = 0.15

# Weights of the words of a message (0), the two messages before it (-1, -2), and the message after it (1).
NEARBY = {0: 1.0, -1: 0.9, -2: 0.7, 1: 0.7}
DISTANCES = min(NEARBY), max(NEARBY)

# Lowest cosine of the closest message. If the closest message is below it, the question is about nothing in the
# store and is searched by words alone. For 759 questions about five conversations of LoCoMo, the closest message is
# at 0.33 or more; for random letters and other subjects at 0.20 to 0.33. In a store of ten messages, a loose
# paraphrase is at 0.3.
MIN_COSINE = 0.25

# Messages in one step: 0.1 s of one core for short messages, 1.6 s for long messages. Closing waits for the step.
MESSAGES_PER_STEP = 8

# Seconds that closing waits for the running step and for the loading of the model: a thread that is in native
# code when the interpreter ends aborts the process.
CLOSE_TIMEOUT_S = 60.0

# The same for a thread that waits for a server.
SERVER_CLOSE_TIMEOUT_S = 1.0

# Seconds after which a server of embeddings that did not answer is asked again.
RETRY_AFTER_S = 30.0

# Seconds before lost vectors are made again.
LOST_PAUSE_S = 1.0

# Text that is sent to test a server.
TEST_TEXT = "Does it work?"

# Errors of a statement while another program changes the table of the vectors, as for another model, and of numpy for
# damaged vectors.
_TABLE_ERRORS = (DatabaseCorrupt, ValueRejected, ValueError)
_ERRORS = (HermesError, sqlite3.Error, OSError)

# Seconds between looks at messages that another machine is making vectors of.
BUSY_PAUSE_S = 0.05


@dataclass(slots=True)
class Likeness:
    """The closeness of messages to a question: that of their closest piece.

    Attributes:
        nearness: The cosines; those of the closest messages at least, and after `VectorIndex.closeness` those of the
            messages that it got.
        asked: Vector of the question.
        words: Vectors of the words of the question.
        weight: Weight of a standard deviation above the mean.
        is_calibrated: True if the limits of cosines hold, which were measured with the local model only.
    """

    nearness: Nearness
    asked: Array
    words: Array
    weight: float
    is_calibrated: bool

    @property
    def is_distant(self) -> bool:
        """True if no message is close enough for a search by meaning."""
        return self.is_calibrated and self.nearness.highest / INT8_SCALE < MIN_COSINE

    def nearest(self, ids: Collection[int]) -> float | None:
        """Return the highest cosine between the question and these messages; -1 if none of them has a vector.

        Return None if the model's cosines can't be compared with the limits.
        """
        import numpy

        if not self.is_calibrated:
            return None

        near = self.nearness.near[numpy.isin(self.nearness.ids, list(ids))]
        return float((near / INT8_SCALE).max(initial=-1.0))

    def of(self, message_id: int, word_trust: float = 1.0) -> float:
        """Return the closeness of a message. A message without a vector gets 0, which is the mean.

        Args:
            message_id: Id of the message.
            word_trust: How much the words of the question tell, from 0 to 1.
        """
        at = self._at(message_id)
        if at is None:
            return 0.0
        nearness = self.nearness
        weight = word_trust * self.weight + (1 - word_trust) * WHOLE_WEIGHT_WITHOUT_WORDS
        return weight * (float(nearness.near[at]) - nearness.mean) / (nearness.deviation or 1.0)

    def span(self, message_id: int) -> tuple[int, int] | None:
        """Return start and end of the closest piece of a message; None for a message without a vector."""
        at = self._at(message_id)
        spans = self.nearness.spans
        return None if at is None else (int(spans[at, 0]), int(spans[at, 1]))

    def best(self, count: int) -> list[int]:
        """Return the ids of the `count` closest messages, closest first."""
        import numpy

        return [int(self.nearness.ids[at]) for at in numpy.argsort(-self.nearness.near)[:count]]

    def _at(self, message_id: int) -> int | None:
        import numpy

        ids = self.nearness.ids
        at = int(numpy.searchsorted(ids, message_id))
        return at if at < len(ids) and ids[at] == message_id else None


class ClosestToQuestion:
    """The messages that are closest in meaning to a question.

    A server looks them up together with the words of the question, so that they are known after that.

    Args:
        answer: Function that returns how close messages are; None if that can't be said.
        is_known: True if `answer` asks nobody.
    """

    def __init__(self, answer: Callable[[], Likeness | None], is_known: bool) -> None:
        self._answer = answer
        self.is_known = is_known

    @functools.cached_property
    def likeness(self) -> Likeness | None:
        """Closeness of the messages to the question; None if that can't be said."""
        return self._answer()

    @property
    def is_distant(self) -> bool:
        """True if no message is close enough for a search by meaning."""
        return self.likeness is not None and self.likeness.is_distant

    @property
    def ids(self) -> Sequence[int] | None:
        """Ids of the closest messages; None if they are not known before `rows`."""
        if not self.is_known:
            return None
        likeness = self.likeness
        return [] if likeness is None or likeness.is_distant else likeness.best(MAX_NEAREST)

    def rows(self) -> Sequence[IndexRow]:
        """Return the closest messages that pass the filters, if `ids` is None."""
        likeness = self.likeness
        return [] if likeness is None or likeness.is_distant else likeness.nearness.rows or ()


class VectorIndex:
    """The vectors of the messages of one store. It makes missing vectors on a thread, and compares questions."""

    def __init__(self, database: Engine, server: HttpEncoder | None = None) -> None:
        self._server = server
        self._model = server.model if server is not None else dense.MODEL
        self._store = _store_of(database, self._model, is_unit=server is None)
        self._retry_at = 0.0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = self._building = self._lost = False
        self._load_tried = threading.Event()
        self._thread: threading.Thread | None = None
        # Number of numbers in a vector by the server; 0 before its first answer.
        self._dimension = 0
        self._fault = ""
        # Reason why the vectors of the store can't be used by this model; None before the first look.
        self._mismatch: str | None = None

    @property
    def fault(self) -> str:
        """The reason why search by meaning does not work; "" if it works."""
        return self.mismatch or self._fault

    @property
    def mismatch(self) -> str:
        """The reason why the vectors of the store can't be used: another model made them; "" if they can."""
        if self._mismatch is None:
            # A database that is down is reported by others, and each further look would wait for it.
            self._mismatch = ""
            with contextlib.suppress(*_ERRORS):
                self._check_model()
        return self._mismatch

    # ------------------------------------------------------------------- making

    def wake(self) -> None:
        """Let the builder's thread make missing vectors; start the thread if it does not run."""
        with self._lock:
            self._wake.set()
            # After a fork, the thread exists only in the parent process.
            if not self._stopping and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="hermes-meaning", daemon=True)
                self._thread.start()
                # A process that ends while the model runs is aborted, also if the program forgot to close the store.
                atexit.register(self.close)

    def build(self, progress: Callable[[int], None] | None = None) -> int:
        """Make all missing vectors now; return the number of messages that got one.

        Wait if another process is making vectors. `progress` gets the number of messages so far. Raises `ConfigError`
        if the model can't be run.
        """
        done = 0
        self._building = True
        try:
            with self._store.alone(timeout=-1):
                while (made := self._step()) or self._store.is_busy():
                    done += made
                    if not made:
                        time.sleep(BUSY_PAUSE_S)
                    elif progress is not None:
                        progress(done)
        except (HermesError, OSError) as exc:
            self._failed(exc)
            raise
        finally:
            self._building = False
        return done

    def forget(self) -> None:
        """Delete all vectors. `wake` and `build` then make them again.

        Raises `ConfigError` or `BackendUnavailable` if the model can't be run, before any vector is deleted.
        """
        self._try_model()
        self._store.forget()
        self._mismatch = ""

    def missing(self) -> int:
        """Return how many messages have no vector yet."""
        return self._store.missing()

    def ask_lack(self) -> Callable[[float], str]:
        """Return a function that returns a sentence if vectors are lost, or not made yet for messages before a time.

        Lost vectors are made again in the background.
        """
        return functools.partial(self._lack, self._store.ask_samples())

    def _lack(self, asked: Callable[[], VectorSamples], before: float) -> str:
        try:
            samples = asked()
        except (*_TABLE_ERRORS, sqlite3.OperationalError) as exc:
            return self._lose(exc)
        # A message without a word that the model can read has no vectors.
        if any(not has_vector and self._is_readable(text) for text, has_vector in samples.texts):
            return self._lose(
                StorageError("vectors of messages were lost", "they are made again in the background")
            )
        if samples.gap is None or samples.gap >= before:
            return ""
        self.wake()
        return "search by meaning does not know all messages yet: their vectors are made in the background"

    def _is_readable(self, text: str) -> bool:
        """Return True if the model makes vectors of a text."""
        return bool(self._pieces(text)) and (self._server is not None or dense.can_read(text))

    def _unreadable(self, exc: Exception) -> None:
        """Set `fault`; if numpy can't read the vectors, let them be made again."""
        if isinstance(exc, ValueError):
            self._lose(
                StorageError(f"the vectors are damaged ({exc})", "they are made again in the background")
            )
        else:
            self._failed(exc)

    def _lose(self, exc: Exception) -> str:
        """Let the builder make all vectors again, because of this damage; return the sentence about it."""
        fault = self._failed(exc)
        self._lost = True
        self.wake()
        return fault

    def description(self) -> str:
        """Return how a server stores the vectors, or why it has none, for people; "" for a file."""
        return self._store.description()

    def remedy(self) -> str:
        """Return what a person can do so that a server has vectors; "" if there is nothing to do."""
        return self._store.remedy()

    def close(self) -> None:
        """End the builder's thread, and wait for its running step for at most `CLOSE_TIMEOUT_S` seconds."""
        atexit.unregister(self.close)
        with self._lock:
            self._stopping = True
            self._wake.set()
        if self._thread is not None:
            # A thread that waits for a server is in no native code.
            self._thread.join(CLOSE_TIMEOUT_S if self._server is None else SERVER_CLOSE_TIMEOUT_S)
        if self._server is not None:
            self._server.close()

    def _run(self) -> None:
        if self._server is None:
            # `dense.encoder` raises it again where the model is used.
            with contextlib.suppress(ConfigError, OSError):
                dense.encoder()
        self._load_tried.set()
        while True:
            self._wake.clear()
            if self._lost and not self._stopping:  # the search that found it out reads `fault` first
                self._wake.wait(LOST_PAUSE_S)
            if self._lost:
                self._lost = False
                with contextlib.suppress(*_ERRORS):
                    self._store.forget()
            if self._stopping:  # read after the clearing, which may have removed the signal of `close`
                return
            try:
                with self._store.alone(timeout=0):
                    while not (self._stopping or self._building) and self._step():
                        pass
            except Timeout:
                pass  # another process makes the vectors
            except _ERRORS as exc:
                self._failed(exc)
            # A server that is down is tried again; a fault of the local model stays.
            self._wake.wait(RETRY_AFTER_S if self.fault and self._server is not None else None)

    def _failed(self, exc: Exception) -> str:
        """Set `fault` and return it; log it if it is new. Search by words continues to work."""
        fault = f"search by meaning does not work: {exc}"
        if fault not in (self._fault, self._mismatch) and not self._stopping:
            log.warning("%s", fault)
        if isinstance(exc, OtherModel):
            self._mismatch = fault
        else:
            self._fault = fault
        return fault

    def _check_model(self) -> bool:
        """Return True if this model made the vectors of the store, or no model did; otherwise set `fault`."""
        try:
            self._store.check_model(self._dimension)
        except OtherModel as exc:
            self._failed(exc)
            return False
        self._mismatch = ""
        return True

    def _step(self) -> int:
        """Make the vectors of the next messages; return the number of messages."""
        rows = self._store.take(MESSAGES_PER_STEP, self._dimension)
        self._mismatch = ""
        if not rows:
            return 0
        ids = [row["id"] for row in rows]
        with contextlib.ExitStack() as undo:
            undo.callback(self._store.give_back, ids)
            cuts = [
                (row, number, *piece)
                for row in rows
                for number, piece in enumerate(self._pieces(row["content"]))
            ]
            encodings = (self._server or self._encoder()).encode(
                [f"{row['speaker'] or row['role']}: {piece.strip()}" for row, *_, piece in cuts]
            )
            dimension = len(encodings[0].whole) if encodings else self._store.dimension()
            if self._server is not None and encodings and self._is_new_dimension(dimension):
                return len(rows)  # the next step begins with the first message
            vectors = [
                Vector(row["id"], number, first, last, *self._stored(encoding))
                for (row, number, first, last, _), encoding in zip(cuts, encodings, strict=True)
            ]
            self._store.save(ids, vectors, dimension)
            undo.pop_all()
        # A server may be fast enough for messages, for which nobody waits, and too slow for questions.
        if self._retry_at <= time.monotonic():
            self._fault = ""
        return len(rows)

    def _pieces(self, text: str) -> list[tuple[int, int, str]]:
        """Return start, end and text of each piece of a message; for a server without the secrets of the message."""
        if self._server is None:
            return [(first, last, text[first:last]) for first, last in dense.cut(text)]
        from hermes_memory_semantic.embeddings import redacted_pieces

        return redacted_pieces(text)

    # ---------------------------------------------------------------- comparing

    def question(self, query: str, part: str) -> str:
        """Return the question as the model reads it: `part`, which is what asks in `query`.

        A server gets it from the redacted query, because a part of a private key does not look like one.
        """
        if self._server is None or (clean := redact(query)) == query:
            return part
        from hermes_core.recall.query import analyse  # most commands ask nothing

        return analyse(clean).text

    def likeness(
        self, question: str, names: Collection[str] = (), user: str | None = None
    ) -> Likeness | None:
        """Return how close messages are to `question` in meaning.

        Return None if too many messages have no vector yet, the model can't be run, or the question is in a script that
        the model doesn't know.

        Args:
            question: The question.
            names: Words of the question that don't count.
            user: Owner of the messages; None for all owners.
        """
        closest = self.ask(question, names, user)
        return None if closest is None else closest.likeness

    def ask_coverage(self, question: str, user: str | None) -> Callable[[], Coverage] | None:
        """Return what `ask` needs to know, to be read with what is read before it; None if it will not ask."""
        if self._server is None and not dense.can_read(question):
            return None
        return self._store.ask_coverage(user)

    def ask(
        self,
        question: str,
        names: Collection[str] = (),
        user: str | None = None,
        *,
        covered: Callable[[], Coverage] | None = None,
        passing: Condition | None = None,
    ) -> ClosestToQuestion | None:
        """Return the messages closest to `question` in meaning, as `likeness` does; None if nothing can be compared.

        Args:
            question: The question.
            names: Words of the question that don't count.
            user: Owner of the messages; None for all owners.
            covered: Result of `ask_coverage`.
            passing: Condition on messages `m` and sessions `s` that the closest messages have to fulfil.
        """
        if self._server is None and not dense.can_read(question):
            return None
        try:
            coverage = (covered or self._store.ask_coverage(user))()
        except OtherModel as exc:
            self._failed(exc)
            return None
        if coverage.has_gaps:
            self.wake()
        # Loading the model takes longer than all the rest of a command, and an empty store has nothing to compare.
        if not coverage.is_enough or not (self._server or self._is_runnable()):
            return None
        if (encoding := self._encode_question(question, names)) is None:
            return None
        if self._server is not None:
            if (dimension := len(encoding.whole)) != self._store.dimension():
                self._remake(dimension)
                return None
            self._dimension = dimension
        self._mismatch = ""
        weight = WHOLE_WEIGHT if len(encoding.words) else WHOLE_WEIGHT_ALONE

        def likeness() -> Likeness | None:
            try:
                nearness = nearest()
            except _TABLE_ERRORS as exc:
                self._unreadable(exc)
                return None
            if nearness is None:
                return None
            return Likeness(nearness, encoding.whole, encoding.words, weight, self._server is None)

        try:
            nearest, is_known = self._store.ask_nearest(encoding.whole, user, passing)
        except _TABLE_ERRORS as exc:
            self._unreadable(exc)
            return None
        return ClosestToQuestion(likeness, is_known)

    def ask_around(self, likeness: Likeness, places: Sequence[Place]) -> Callable[[], Surroundings] | None:
        """Return what `closeness` needs of messages at these places, to be read with what is read next.

        Return None if that saves nothing.
        """
        return self._store.ask_around(places, likeness.nearness, likeness.asked, DISTANCES)

    def closeness(
        self,
        likeness: Likeness,
        ids: Sequence[int],
        around: Callable[[], Surroundings] | None = None,
        word_trust: float = 1.0,
    ) -> dict[int, float]:
        """Return for each message how close its words are to the words of a question.

        Of a long message, the words of the closest piece count. For each word of the question, the closest word in the
        message or its neighbours counts, and again the closest word in the message. The score of the best message of
        the same session is added. All scores are in standard deviations above the mean of these messages, times their
        weights. Messages without vectors are left out.

        Args:
            likeness: The result of `likeness` for the question; it knows these messages afterwards.
            ids: Ids of the messages.
            around: Result of `ask_around`.
            word_trust: How much the words of the question tell, from 0 to 1.
        """
        import numpy

        try:
            surroundings = around().among(ids) if around is not None else None
            if surroundings is None:
                surroundings = self._store.surroundings(ids, likeness.nearness, likeness.asked, DISTANCES)
        except _TABLE_ERRORS as exc:
            self._unreadable(exc)
            return {}
        likeness.nearness = surroundings.nearness
        asked, texts = likeness.words, surroundings.words
        if not (texts and len(asked)):
            return {}
        near = dense.nearest(asked, list(texts.values()))
        none = numpy.full((1, len(asked)), -numpy.inf)
        near = numpy.concatenate((near - near.mean(0), none))
        at = {message: row for row, message in enumerate(texts)}
        rows: dict[int, list[int]] = {}
        session_of: dict[int, int] = {}
        for message_id, session, distance, other in surroundings.places:
            if other in at:
                rows.setdefault(message_id, [len(texts)] * len(NEARBY))[list(NEARBY).index(distance)] = at[
                    other
                ]
                session_of[message_id] = session
        shares = numpy.array(list(NEARBY.values()))[:, None]
        places = numpy.array(list(rows.values()))
        words = _standard((shares * near[places]).max(1).sum(1))
        own = near[places[:, list(NEARBY).index(0)]].sum(1)
        has_own = numpy.isfinite(own)
        own[~has_own] = own[has_own].mean() if has_own.any() else 0.0
        best: dict[int, float] = {}
        for message_id, value in zip(rows, words, strict=True):
            session = session_of[message_id]
            best[session] = max(value, best.get(session, value))
        sessions = _standard(numpy.array([best[session_of[message_id]] for message_id in rows]))
        own_weight = word_trust * OWN_WORDS_WEIGHT + (1 - word_trust) * OWN_WORDS_WEIGHT_WITHOUT_WORDS
        around_it = WORDS_WEIGHT * words + SESSION_WEIGHT * sessions
        closeness = word_trust * around_it + own_weight * _standard(own)
        return dict(zip(rows, closeness.tolist(), strict=True))

    def works(self) -> bool:
        """Return True if the model can be run, or the server answers, and the vectors of the store are by this model.

        Otherwise set `fault` to the reason.
        """
        return self._is_runnable() and self._check_model()

    def _is_runnable(self) -> bool:
        try:
            self._try_model()
        except (HermesError, OSError) as exc:
            self._failed(exc)
            return False
        return True

    def _try_model(self) -> None:
        """Load the model, or let the server answer. Raises `ConfigError`, `BackendUnavailable` or `OSError`."""
        if self._server is None:
            self._encoder()
            return
        self._dimension = len(self._server.encode_question(TEST_TEXT).whole)
        self._fault, self._retry_at = "", 0.0

    def _encode_question(self, question: str, names: Collection[str]) -> dense.Encoding | None:
        """Return the vectors of a question; None if the server does not answer, or did not a short time ago."""
        if self._server is None:
            without = {word for name in names for word in words(name)}
            return self._encoder().encode([question], without)[0]
        if self._retry_at > time.monotonic():
            return None
        try:
            encoding = self._server.encode_question(question)
            if not encoding.whole.any():  # every message is as near to it as any other
                raise BackendUnavailable(
                    f"{self._model!r} made a vector of zeros of a question", "look at the log of that server"
                )
        except (HermesError, OSError) as exc:
            self._unanswered(exc)
            return None
        self._fault = ""
        return encoding

    def _unanswered(self, exc: Exception) -> None:
        """Set `fault`, and ask the server no question for a while: each one would wait for a server that is down."""
        self._retry_at = time.monotonic() + RETRY_AFTER_S
        self._failed(exc)

    def _remake(self, dimension: int) -> None:
        """Let the builder make all vectors again, because the server's model of the same name is another one now."""
        try:
            is_new = self._is_new_dimension(dimension)
        except (HermesError, OSError) as exc:
            self._unanswered(exc)
            return
        if is_new:
            log.warning(
                "all vectors are made again: %r makes vectors of %d numbers now", self._model, dimension
            )
        self.wake()

    def _stored(self, encoding: dense.Encoding) -> tuple[bytes, bytes]:
        """Return the vector of a piece and the signs of the vectors of its words, as they are stored."""
        import numpy

        if self._server is None:
            return dense.to_bytes(encoding.whole), dense.to_bits(encoding.words)
        # Models differ in how large a number may be, so each vector has a scale of its own; only its direction counts.
        scaled = encoding.whole * (127 / (numpy.abs(encoding.whole).max() or 1.0))
        return bytes(numpy.rint(scaled).astype(numpy.int8)), b""

    def _is_new_dimension(self, dimension: int) -> bool:
        """Store the number of numbers in a vector. If the server's model changed it, delete all vectors and return True.

        Raises `BackendUnavailable` if a second text gets another number: all vectors would be made without end.
        """
        assert self._server is not None
        before = self._store.dimension()
        if before == dimension:
            self._dimension = dimension
            return False
        if before and (second := len(self._server.encode_question(TEST_TEXT).whole)) != dimension:
            raise BackendUnavailable(
                f"{self._model!r} makes vectors of {dimension!r} numbers and of {second!r} numbers",
                "see that recall.embeddings_url has only one model of this name",
            )
        self._dimension = dimension
        return self._store.change_dimension(dimension)

    def _encoder(self) -> dense.Encoder:
        """Return the encoder. It is loaded on the builder's thread, which Ctrl-C can't interrupt."""
        if not dense.loaded():
            with contextlib.suppress(
                RuntimeError
            ):  # the system has no thread left, or the interpreter is ending
                self.wake()
                if not self._stopping:
                    self._load_tried.wait()
        return dense.encoder()


def make_index(database: Engine, home: HermesHome, config: Config) -> VectorIndex:
    """Return the index of meaning of a store.

    Raises:
        ConfigError: `recall.embeddings` is `http` without an address or model, or a package is missing.
    """
    if not dense.installed():
        raise ConfigError("a package that it needs is not installed", install_remedy(dense.DISTRIBUTION))
    if config.recall.embeddings != "http":
        return VectorIndex(database)
    # Imported here: only who uses a server needs an HTTP client.
    from hermes_memory_semantic.embeddings import HttpEncoder, embedding_server

    return VectorIndex(database, HttpEncoder(embedding_server(config.recall, home)))


def _store_of(database: Engine, model: str, *, is_unit: bool) -> VectorStore:
    """Return the stored vectors of an engine.

    Args:
        database: The engine.
        model: Name of the model, stored with the vectors.
        is_unit: True if vectors are stored as unit vectors in steps of 1 / `INT8_SCALE`, False if each has a length of
            its own.
    """
    if isinstance(database, Database):
        return SqliteVectors(database, model, is_unit)
    # The number of a server is known when it has answered.
    return cast("SearchEngine", database).vector_store(model, dense.DIMENSION if is_unit else 0, is_unit)


def _standard(values: Array) -> Array:
    """Return each value as its distance from the mean in standard deviations; 0 for all if they are equal."""
    standard: Array = (values - values.mean()) / (values.std() or 1.0)
    return standard

"""Search by meaning: vectors of messages and of their words, made in the background and compared with a question.

The vectors are stored in state.db and deleted with their messages. Without the extra `[semantic]` there are no vectors.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from hermes_core.errors import BackendUnavailable, ConfigError, HermesError
from hermes_core.recall import dense
from hermes_core.recall.query import analyse
from hermes_core.recall.tokens import words
from hermes_core.safety.redact import redact
from hermes_core.sessions.records import MEMORY_TOOLS, read_meta
from hermes_core.storage.files import PRIVATE_FILE
from hermes_core.storage.sqlite import Database

if TYPE_CHECKING:
    import numpy

    from hermes_core.sessions.search.embeddings import HttpEncoder

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

# Weights of the words of a message (0), the two messages before it (-1, -2), and the message after it (1).
NEARBY = {0: 1.0, -1: 0.9, -2: 0.7, 1: 0.7}

# Lowest cosine of the closest message. If the closest message is below it, the question is about nothing in the
# store and is searched by words alone. For 759 questions about five conversations of LoCoMo, the closest message is
# at 0.33 or more; for random letters and other subjects at 0.20 to 0.33. In a store of ten messages, a loose
# paraphrase is at 0.3.
MIN_COSINE = 0.25

# Share of the messages that must have a vector before vectors count, because a message without a vector can't win
# against a message with one. recall@10 is 83.2 if the newest 5 % have no vector, 74.6 if half have none, and 80.4
# by words alone.
MIN_COVERAGE = 0.9

# Key in `state_meta` of the last message that has a vector, completed by the name of the model: vectors of another
# model can't be compared, so each model begins with the first message.
LAST_ID_KEY = "meaning:"

# Messages in one step: 0.1 s of one core for short messages, 1.6 s for long messages. Closing waits for the step.
MESSAGES_PER_STEP = 8

# Seconds that closing waits for the running step and for the loading of the model: a thread that is in native
# code when the interpreter ends aborts the process.
CLOSE_TIMEOUT_S = 60.0

# The same for a thread that waits for a server.
SERVER_CLOSE_TIMEOUT_S = 1.0

# Seconds after which a server of embeddings that did not answer is asked again.
RETRY_AFTER_S = 30.0

# Text that is sent to test a server.
TEST_TEXT = "Does it work?"

# Key in `state_meta` of the number of numbers in a vector, completed by the name of the model.
DIMENSION_KEY = "meaning-dimension:"

# Vectors that are multiplied at the same time: all vectors as floats would take four times the memory.
VECTORS_PER_PRODUCT = 16_384

# The messages that get vectors. The results of the tools of memory are no answers, see `lookup.Filters.sql`.
_WITH_VECTORS = f"""
    id > ? AND state < 2 AND role IN ('user', 'assistant', 'tool') AND trim(content) <> ''
    AND NOT (role = 'tool' AND tool_name IN {MEMORY_TOOLS})
"""
_MISSING = f"SELECT id, speaker, role, content FROM messages WHERE {_WITH_VECTORS} ORDER BY id LIMIT ?"

_AROUND = f"""
    SELECT m.id, m.session_key, o.position - m.position, o.id FROM json_each(?) w
    CROSS JOIN messages m ON m.id = w.value
    CROSS JOIN messages o ON o.session_key = m.session_key
        AND o.position BETWEEN m.position + {min(NEARBY)} AND m.position + {max(NEARBY)}
"""

# A piece is asked for as one number: the message id, and the number of the piece in the last 8 bits.
_WORDS = """
    SELECT v.message_id, v.words FROM json_each(?) w
    CROSS JOIN vectors v ON v.message_id = w.value >> 8 AND v.piece = w.value & 255
    WHERE v.model = ? AND v.words <> x''
"""


@dataclass(frozen=True, slots=True)
class Likeness:
    """The closeness of all messages to a question: that of their closest piece.

    Attributes:
        ids: Message ids, ascending.
        values: The closeness of each message of `ids`, in standard deviations above the mean, times `WHOLE_WEIGHT`.
        words: Vectors of the words of the question.
        cosines: The cosine between the question and each message of `ids`.
        is_calibrated: True if the limits of cosines hold, which were measured with the local model only.
        pieces: Number of the closest piece of each message of `ids`.
        spans: Start and end of that piece in the text of each message of `ids`.
    """

    ids: Array
    values: Array
    words: Array
    cosines: Array
    is_calibrated: bool
    pieces: Array
    spans: Array

    @property
    def is_distant(self) -> bool:
        """True if no message is close enough for a search by meaning."""
        return self.is_calibrated and bool(self.cosines.max() < MIN_COSINE)

    def nearest(self, ids: Collection[int]) -> float | None:
        """Return the highest cosine between the question and these messages; -1 if none of them has a vector.

        Return None if the model's cosines can't be compared with the limits.
        """
        import numpy

        if not self.is_calibrated:
            return None

        return float(self.cosines[numpy.isin(self.ids, list(ids))].max(initial=-1.0))

    def of(self, message_id: int) -> float:
        """Return the closeness of a message. A message without a vector gets 0, which is the mean."""
        at = self._at(message_id)
        return 0.0 if at is None else float(self.values[at])

    def span(self, message_id: int) -> tuple[int, int] | None:
        """Return start and end of the closest piece of a message; None for a message without a vector."""
        at = self._at(message_id)
        return None if at is None else (int(self.spans[at, 0]), int(self.spans[at, 1]))

    def closest_pieces(self, ids: Collection[int]) -> list[int]:
        """Return the closest piece of each of these messages that has a vector, as `_WORDS` asks for it."""
        import numpy

        asked = numpy.array(sorted(ids), numpy.int64)
        places = numpy.searchsorted(self.ids, asked)
        known = places < len(self.ids)
        known[known] = self.ids[places[known]] == asked[known]
        places = places[known]
        packed: list[int] = (self.ids[places] << 8 | self.pieces[places]).tolist()
        return packed

    def best(self, count: int) -> list[int]:
        """Return the ids of the `count` closest messages, closest first."""
        import numpy

        return [int(self.ids[at]) for at in numpy.argsort(-self.values)[:count]]

    def _at(self, message_id: int) -> int | None:
        import numpy

        at = int(numpy.searchsorted(self.ids, message_id))
        return at if at < len(self.ids) and self.ids[at] == message_id else None


class VectorIndex:
    """The vectors of the messages of one state.db. It makes missing vectors on a thread, and compares questions.

    Attributes:
        fault: The reason why search by meaning does not work; "" if it works.
    """

    def __init__(self, database: Database, server: HttpEncoder | None = None) -> None:
        self._database = database
        self._server = server
        self._model = server.model if server is not None else dense.MODEL
        self._done_key = f"{LAST_ID_KEY}{self._model}"
        self._retry_at = 0.0
        self._lock = threading.Lock()
        self._loaded: _Matrix | None = None
        self._wake = threading.Event()
        self._stopping = self._building = False
        self._load_tried = threading.Event()
        self._thread: threading.Thread | None = None
        self.fault = ""

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
            with self._alone(timeout=-1):
                while made := self._step():
                    done += made
                    if progress is not None:
                        progress(done)
        except (HermesError, OSError) as exc:
            self._failed(exc)
            raise
        finally:
            self._building = False
        return done

    def forget(self) -> None:
        """Delete all vectors. `wake` and `build` then make them again."""
        with self._alone(timeout=-1), self._database.transaction() as connection:
            connection.execute("DELETE FROM vectors")
            connection.execute("DELETE FROM state_meta WHERE key = ?", (self._done_key,))
        with self._lock:
            self._loaded = None

    def missing(self) -> int:
        """Return how many messages have no vector yet."""
        (count,) = self._database.execute(
            f"SELECT count(*) FROM messages WHERE {_WITH_VECTORS}",
            (self._done(),),
        ).fetchone()
        return int(count)

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
            if self._stopping:  # read after the clearing, which may have removed the signal of `close`
                return
            try:
                with self._alone(timeout=0):
                    while not (self._stopping or self._building) and self._step():
                        pass
            except Timeout:
                pass  # another process makes the vectors
            except (HermesError, sqlite3.Error, OSError) as exc:
                self._failed(exc)
            # A server that is down is tried again; a fault of the local model stays.
            self._wake.wait(RETRY_AFTER_S if self.fault and self._server is not None else None)

    def _failed(self, exc: Exception) -> None:
        """Set `fault`, and log it if it is new. Search by words continues to work."""
        fault = f"search by meaning does not work: {exc}"
        if fault != self.fault and not self._stopping:
            log.warning("%s", fault)
        self.fault = fault

    def _alone(self, timeout: float) -> FileLock:
        return FileLock(f"{self._database.path}.meaning.lock", mode=PRIVATE_FILE, timeout=timeout)

    def _step(self) -> int:
        """Make the vectors of the next messages in one transaction; return the number of messages."""
        rows = self._database.execute(_MISSING, (self._done(), MESSAGES_PER_STEP)).fetchall()
        if not rows:
            return 0
        cuts = [
            (row, number, *piece) for row in rows for number, piece in enumerate(self._pieces(row["content"]))
        ]
        encodings = (self._server or self._encoder()).encode(
            [f"{row['speaker'] or row['role']}: {piece.strip()}" for row, *_, piece in cuts]
        )
        dimension = len(encodings[0].whole) if encodings else 0
        if self._server is not None and encodings and self._is_new_dimension(dimension):
            return len(rows)  # the next step begins with the first message
        made = [
            (*place, self._model, *self._stored(encoding), row["id"])
            for (row, *place, _), encoding in zip(cuts, encodings, strict=True)
        ]
        with self._database.transaction() as connection:
            if self._server is not None and encodings and self._dimension(connection) != dimension:
                return len(rows)  # a question has just learned that the model is another one
            if not self._done():
                self._forget_others(connection)
            # Selected from `messages`, since one may have been deleted meanwhile.
            connection.executemany(
                "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ?, ?, ?, ? FROM messages WHERE id = ?", made
            )
            connection.execute(
                "INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (self._done_key, str(rows[-1]["id"]))
            )
        # A server may be fast enough for messages, for which nobody waits, and too slow for questions.
        if self._retry_at <= time.monotonic():
            self.fault = ""
        return len(rows)

    def _pieces(self, text: str) -> list[tuple[int, int, str]]:
        """Return start, end and text of each piece of a message; for a server without the secrets of the message."""
        if self._server is None:
            return [(first, last, text[first:last]) for first, last in dense.cut(text)]
        from hermes_core.sessions.search.embeddings import redacted_pieces

        return redacted_pieces(text)

    def _done(self) -> int:
        row = self._database.execute(
            "SELECT value FROM state_meta WHERE key = ?", (self._done_key,)
        ).fetchone()
        return read_meta(self._done_key, row[0] if row else None, int, 0)

    # ---------------------------------------------------------------- comparing

    def question(self, query: str, part: str) -> str:
        """Return the question as the model reads it: `part`, which is what asks in `query`.

        A server gets it from the redacted query, because a part of a private key does not look like one.
        """
        if self._server is None or (clean := redact(query)) == query:
            return part
        return analyse(clean).text

    def likeness(self, question: str, names: Collection[str] = ()) -> Likeness | None:
        """Return how close all messages are to `question` in meaning. Words in `names` don't count.

        Return None if too many messages have no vector yet, the model can't be run, or the question is in a script that
        the model doesn't know.
        """
        if self._server is None and not dense.can_read(question):
            return None
        if self._database.execute(_MISSING, (self._done(), 1)).fetchone():
            self.wake()
            if self._done() < MIN_COVERAGE * self._last():
                return None
        # Loading the model takes longer than all the rest of a command, and an empty store has nothing to compare.
        if not self._done() or not (self._server or self.works()):
            return None
        with self._lock:
            self._loaded = _grown(self._database, self._loaded, self._model)
            matrix = self._loaded
        if matrix is None or (asked := self._encode_question(question, names)) is None:
            return None
        if len(asked.whole) != matrix.own.shape[1]:
            self._remake(len(asked.whole))
            return None
        import numpy

        near = self._nearness(matrix, asked.whole)
        first = numpy.diff(matrix.ids, prepend=-1) > 0
        best = numpy.maximum.reduceat(near, numpy.flatnonzero(first))
        message = numpy.cumsum(first) - 1
        rows = numpy.flatnonzero(near == best[message])
        closest = rows[numpy.diff(message[rows], prepend=-1) > 0]
        near = near[closest]
        return Likeness(
            matrix.ids[closest],
            (WHOLE_WEIGHT if len(asked.words) else WHOLE_WEIGHT_ALONE) * _standard(near),
            asked.words,
            near / dense.INT8_SCALE,
            self._server is None,
            matrix.pieces[closest],
            matrix.spans[closest],
        )

    def closeness(self, likeness: Likeness, ids: Sequence[int]) -> dict[int, float]:
        """Return for each message how close its words are to the words of a question.

        Of a long message, the words of the closest piece count. For each word of the question, the closest word in the
        message or its neighbours counts, and again the closest word in the message. The score of the best message of
        the same session is added. All scores are in standard deviations above the mean of these messages, times their
        weights. Messages without vectors are left out.

        Args:
            likeness: The result of `likeness` for the question.
            ids: Ids of the messages.
        """
        import numpy

        asked = likeness.words
        around = self._database.execute(_AROUND, (json.dumps(ids),)).fetchall()
        both = json.dumps(likeness.closest_pieces({other for *_, other in around}))
        texts = dict(self._database.execute(_WORDS, (both, self._model)).fetchall())
        if not (texts and len(asked)):
            return {}
        near = dense.nearest(asked, list(texts.values()))
        none = numpy.full((1, len(asked)), -numpy.inf)
        near = numpy.concatenate((near - near.mean(0), none))
        at = {message: row for row, message in enumerate(texts)}
        rows: dict[int, list[int]] = {}
        session_of: dict[int, int] = {}
        for message_id, session, distance, other in around:
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
        closeness = WORDS_WEIGHT * words + OWN_WORDS_WEIGHT * _standard(own) + SESSION_WEIGHT * sessions
        return dict(zip(rows, closeness.tolist(), strict=True))

    def works(self) -> bool:
        """Return True if the model can be run, or the server answers; otherwise set `fault` to the reason."""
        try:
            if self._server is not None:
                self._server.encode_question(TEST_TEXT)
                self.fault, self._retry_at = "", 0.0
            else:
                self._encoder()
        except (HermesError, OSError) as exc:
            self._failed(exc)
            return False
        return True

    def _encode_question(self, question: str, names: Collection[str]) -> dense.Encoding | None:
        """Return the vectors of a question; None if the server does not answer, or did not a short time ago."""
        if self._server is None:
            without = {word for name in names for word in words(name)}
            return self._encoder().encode([question], without)[0]
        if self._retry_at > time.monotonic():
            return None
        try:
            encoding = self._server.encode_question(question)
        except (HermesError, OSError) as exc:
            self._unanswered(exc)
            return None
        self.fault = ""
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
        with self._lock:
            self._loaded = None
        self.wake()

    def _nearness(self, matrix: _Matrix, asked: Array) -> Array:
        """Return the cosine between a question and each piece, times `INT8_SCALE`."""
        import numpy

        if self._server is None:
            return _products(matrix.own, asked)
        parts = [
            numpy.linalg.norm(matrix.own[at : at + VECTORS_PER_PRODUCT].astype(numpy.float32), axis=1)
            for at in range(0, len(matrix.own), VECTORS_PER_PRODUCT)
        ]
        lengths = numpy.concatenate(parts)
        # A vector without a direction, all zeros, is near to nothing.
        near: Array = _products(matrix.own, asked) / numpy.where(lengths > 0, lengths, 1) * dense.INT8_SCALE
        return near

    def _stored(self, encoding: dense.Encoding) -> tuple[bytes, bytes]:
        """Return the vector of a piece and the signs of the vectors of its words, as they are stored."""
        import numpy

        if self._server is None:
            return dense.to_bytes(encoding.whole), dense.to_bits(encoding.words)
        # Models differ in how large a number may be, so each vector has a scale of its own; only its direction counts.
        scaled = encoding.whole * (127 / (numpy.abs(encoding.whole).max() or 1.0))
        return bytes(numpy.rint(scaled).astype(numpy.int8)), b""

    def _forget_others(self, connection: sqlite3.Connection) -> None:
        """Delete the vectors of other models, which these replace, so that none of them counts as complete."""
        connection.execute("DELETE FROM vectors WHERE model <> ?", (self._model,))
        connection.execute(
            "DELETE FROM state_meta WHERE substr(key, 1, ?) = ? AND key <> ?",
            (len(LAST_ID_KEY), LAST_ID_KEY, self._done_key),
        )

    def _is_new_dimension(self, dimension: int) -> bool:
        """Store the number of numbers in a vector. If the server's model changed it, delete all vectors and return True.

        Raises `BackendUnavailable` if a second text gets another number: all vectors would be made without end.
        """
        assert self._server is not None
        before = self._dimension(self._database)
        if before == dimension:
            return False
        if before and (second := len(self._server.encode_question(TEST_TEXT).whole)) != dimension:
            raise BackendUnavailable(
                f"{self._model!r} makes vectors of {dimension!r} numbers and of {second!r} numbers",
                "see that recall.embeddings_url has only one model of this name",
            )
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO state_meta VALUES (?, ?)",
                (f"{DIMENSION_KEY}{self._model}", str(dimension)),
            )
            if not before:
                return False
            connection.execute("DELETE FROM vectors")
            connection.execute("DELETE FROM state_meta WHERE key = ?", (self._done_key,))
        with self._lock:
            self._loaded = None
        return True

    def _dimension(self, reader: Database | sqlite3.Connection) -> int:
        """Return the number of numbers in a stored vector of the server's model; 0 before the first vector."""
        key = f"{DIMENSION_KEY}{self._model}"
        row = reader.execute("SELECT value FROM state_meta WHERE key = ?", (key,)).fetchone()
        return read_meta(key, row[0] if row else None, int, 0)

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

    def _last(self) -> int:
        """Return the id of the newest message; it is also an estimate of the number of messages."""
        (last,) = self._database.execute("SELECT max(id) FROM messages").fetchone()
        return int(last or 0)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The vectors of all pieces, ordered by message id: of each piece its message id, number, span and vector."""

    ids: Array
    pieces: Array
    spans: Array
    own: Array


def _grown(database: Database, known: _Matrix | None, model: str) -> _Matrix | None:
    """Return the vectors of all messages: `known`, and the vectors that were stored after `known` was read."""
    import numpy

    last = int(known.ids[-1]) if known is not None else 0
    sql = """SELECT message_id, piece, first, last, own FROM vectors WHERE message_id > ? AND model = ?
        ORDER BY message_id, piece"""
    rows = database.execute(sql, (last, model)).fetchall()
    if not rows:
        return known
    ids = numpy.array([row[0] for row in rows], numpy.int64)
    pieces = numpy.array([row[1] for row in rows], numpy.int64)
    spans = numpy.array([(row[2], row[3]) for row in rows], numpy.int64)
    own = numpy.frombuffer(b"".join(row[4] for row in rows), numpy.int8).reshape(len(rows), -1)
    if known is None or own.shape[1] != known.own.shape[1]:
        return _Matrix(ids, pieces, spans, own)
    return _Matrix(
        numpy.concatenate((known.ids, ids)),
        numpy.concatenate((known.pieces, pieces)),
        numpy.concatenate((known.spans, spans)),
        numpy.concatenate((known.own, own)),
    )


def _products(vectors: Array, asked: Array) -> Array:
    import numpy

    parts = [
        vectors[at : at + VECTORS_PER_PRODUCT].astype(numpy.float32) @ asked
        for at in range(0, len(vectors), VECTORS_PER_PRODUCT)
    ]
    return numpy.concatenate(parts)


def _standard(values: Array) -> Array:
    """Return each value as its distance from the mean in standard deviations; 0 for all if they are equal."""
    standard: Array = (values - values.mean()) / (values.std() or 1.0)
    return standard

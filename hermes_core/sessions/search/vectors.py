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
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from hermes_core.errors import ConfigError, HermesError
from hermes_core.recall import dense
from hermes_core.recall.tokens import words
from hermes_core.sessions.records import MEMORY_TOOLS, read_meta
from hermes_core.storage.files import PRIVATE_FILE
from hermes_core.storage.sqlite import Database

if TYPE_CHECKING:
    import numpy

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
        pieces: Number of the closest piece of each message of `ids`.
        spans: Start and end of that piece in the text of each message of `ids`.
    """

    ids: Array
    values: Array
    words: Array
    cosines: Array
    pieces: Array
    spans: Array

    @property
    def is_distant(self) -> bool:
        """True if no message is close enough for a search by meaning."""
        return bool(self.cosines.max() < MIN_COSINE)

    def nearest(self, ids: Collection[int]) -> float:
        """Return the highest cosine between the question and these messages; -1 if none of them has a vector."""
        import numpy

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

    def __init__(self, database: Database) -> None:
        self._database = database
        self._done_key = f"{LAST_ID_KEY}{dense.MODEL}"
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
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        with contextlib.suppress(
            ConfigError, OSError
        ):  # `dense.encoder` raises it again where the model is used
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
            self._wake.wait()

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
        cuts = [(row, piece, *span) for row in rows for piece, span in enumerate(dense.cut(row["content"]))]
        encodings = self._encoder().encode(
            [
                f"{row['speaker'] or row['role']}: {row['content'][first:last].strip()}"
                for row, _, first, last in cuts
            ]
        )
        made = [
            (*place, dense.MODEL, dense.to_bytes(encoding.whole), dense.to_bits(encoding.words), row["id"])
            for (row, *place), encoding in zip(cuts, encodings, strict=True)
        ]
        with self._database.transaction() as connection:
            # Selected from `messages`, since one may have been deleted meanwhile.
            connection.executemany(
                "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ?, ?, ?, ? FROM messages WHERE id = ?", made
            )
            connection.execute(
                "INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (self._done_key, str(rows[-1]["id"]))
            )
        self.fault = ""
        return len(rows)

    def _done(self) -> int:
        row = self._database.execute(
            "SELECT value FROM state_meta WHERE key = ?", (self._done_key,)
        ).fetchone()
        return read_meta(self._done_key, row[0] if row else None, int, 0)

    # ---------------------------------------------------------------- comparing

    def likeness(self, question: str, names: Collection[str] = ()) -> Likeness | None:
        """Return how close all messages are to `question` in meaning. Words in `names` don't count.

        Return None if too many messages have no vector yet, the model can't be run, or the question is in a script that
        the model doesn't know.
        """
        if not dense.can_read(question):
            return None
        if self._database.execute(_MISSING, (self._done(), 1)).fetchone():
            self.wake()
            if self._done() < MIN_COVERAGE * self._last():
                return None
        # Loading the model takes longer than all the rest of a command, and an empty store has nothing to compare.
        if not self._done() or not self.works():
            return None
        with self._lock:
            self._loaded = _grown(self._database, self._loaded)
            matrix = self._loaded
        if matrix is None:
            return None
        import numpy

        (asked,) = self._encoder().encode([question], {word for name in names for word in words(name)})
        near = _products(matrix.own, asked.whole)
        first = numpy.diff(matrix.ids, prepend=-1) > 0
        best = numpy.maximum.reduceat(near, numpy.flatnonzero(first))
        message = numpy.cumsum(first) - 1
        rows = numpy.flatnonzero(near == best[message])
        closest = rows[numpy.diff(message[rows], prepend=-1) > 0]
        near = near[closest]
        return Likeness(
            matrix.ids[closest],
            WHOLE_WEIGHT * _standard(near),
            asked.words,
            near / dense.INT8_SCALE,
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
        texts = dict(self._database.execute(_WORDS, (both, dense.MODEL)).fetchall())
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
        """Return True if the model can be run; if it can't, set `fault` to the reason."""
        try:
            self._encoder()
        except (ConfigError, OSError) as exc:
            self._failed(exc)
            return False
        return True

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


def _grown(database: Database, known: _Matrix | None) -> _Matrix | None:
    """Return the vectors of all messages: `known`, and the vectors that were stored after `known` was read."""
    import numpy

    last = int(known.ids[-1]) if known is not None else 0
    sql = """SELECT message_id, piece, first, last, own FROM vectors WHERE message_id > ? AND model = ?
        ORDER BY message_id, piece"""
    rows = database.execute(sql, (last, dense.MODEL)).fetchall()
    if not rows:
        return known
    ids = numpy.array([row[0] for row in rows], numpy.int64)
    pieces = numpy.array([row[1] for row in rows], numpy.int64)
    spans = numpy.array([(row[2], row[3]) for row in rows], numpy.int64)
    own = numpy.frombuffer(b"".join(row[4] for row in rows), numpy.int8).reshape(-1, dense.DIMENSION)
    if known is None:
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

"""Search by meaning: a vector for each message and the signs of one for each of its words, made in the background.

Vectors stand beside the rows in state.db and go with them. Who lacks the extra `[semantic]` has none, and searches by words.
"""

from __future__ import annotations

import atexit
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
from hermes_core.sessions.records import read_meta
from hermes_core.storage.files import PRIVATE_FILE
from hermes_core.storage.sqlite import Database

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

log = logging.getLogger(__name__)

WHOLE_WEIGHT = 0.3
WORDS_WEIGHT = 0.6
SESSION_WEIGHT = 0.5
"""What a standard deviation of likeness is worth: of the message as a whole, of its words and those around it, and of the best
such message of its session. Fitted with the constants of `recall.rank`; without them recall@10 falls from 84.7 to 83.4, 82.9
and 84.1.
"""

NEARBY = {0: 1.0, -1: 0.9, -2: 0.7, 1: 0.7}
"""Messages around one, by how far on they are, whose words stand for it, and what these count."""

MIN_COSINE = 0.25
"""A question to which no message is as near as this, as a cosine, is about nothing that was said, and is searched by words
alone. The nearest of five conversations of LoCoMo is at 0.33 at least for each of 759 questions about them, at 0.20 to 0.33
for random letters and matters of other fields. Few messages are further off: a loose paraphrase in a store of ten is at 0.3.
"""

MIN_COVERAGE = 0.9
"""Share of the messages that must have a vector before any vector counts. One that has none can't win against the best of
those that have: recall@10 is 83.2 when the newest twentieth has none and 74.6 when half have none, 80.4 by words alone.
"""

LAST_ID_KEY = "meaning:"
"""With the name of a model: the key in state_meta of the last message that was looked at."""

MESSAGES_PER_STEP = 16
"""Messages of one transaction; a tenth of a second of one core when they are short, one when they are long. Closing waits so long."""

CLOSE_TIMEOUT_S = 60.0
"""Seconds that closing waits for the step under way, and for the model that is being loaded: a thread that is still in
native code when the interpreter ends aborts the process.
"""

VECTORS_PER_PRODUCT = 16_384
"""Vectors multiplied at once: 8-bit numbers become floats only piece by piece."""

_MISSING = """
    SELECT id, speaker, role, content FROM messages
    WHERE id > ? AND state < 2 AND role IN ('user', 'assistant') AND trim(content) <> '' ORDER BY id LIMIT ?
"""

_AROUND = f"""
    SELECT m.id, m.session_key, o.position - m.position, o.id FROM json_each(?) w
    CROSS JOIN messages m ON m.id = w.value
    CROSS JOIN messages o ON o.session_key = m.session_key
        AND o.position BETWEEN m.position + {min(NEARBY)} AND m.position + {max(NEARBY)}
"""

_WORDS = """
    SELECT v.message_id, v.words FROM json_each(?) w CROSS JOIN vectors v ON v.message_id = w.value
    WHERE v.model = ? AND v.words <> x''
"""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a question each message is as a whole: `ids` ascending, `worth` in standard deviations of all of them.
    `asked` are the question's own words.
    """

    ids: Array
    worth: Array
    asked: Array

    def of(self, message_id: int) -> float:
        """0, which is the mean, for a message that has no vector yet."""
        import numpy

        at = int(numpy.searchsorted(self.ids, message_id))
        return float(self.worth[at]) if at < len(self.ids) and self.ids[at] == message_id else 0.0

    def best(self, count: int) -> list[int]:
        """Ids of the most alike, best first."""
        import numpy

        return [int(self.ids[at]) for at in numpy.argsort(-self.worth)[:count]]


class VectorIndex:
    """The vectors of one state.db: makes those that are missing, and compares all with a question."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._done_key = f"{LAST_ID_KEY}{dense.MODEL}"
        self._lock = threading.Lock()
        self._loaded: _Matrix | None = None
        self._wake = threading.Event()
        self._stopping = self._building = False
        self._thread: threading.Thread | None = None
        self.fault = ""

    # ------------------------------------------------------------------- making

    def wake(self) -> None:
        """Make what is missing, on a thread of ours that ends with `close` or the process."""
        with self._lock:
            self._wake.set()
            # After a fork the thread is the parent's.
            if not self._stopping and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="hermes-meaning", daemon=True)
                self._thread.start()
                # A process that ends while the model runs is aborted: so who forgot to close is waited for as well.
                atexit.register(self.close)

    def build(self, progress: Callable[[int], None] | None = None) -> int:
        """Make what is missing now; returns for how many messages. Another process that does it is waited for.

        `progress` is told how many were made so far. Raises `ConfigError` when the model can't be run.
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
        """Take all vectors away, to be made anew."""
        with self._alone(timeout=-1), self._database.transaction() as connection:
            connection.execute("DELETE FROM vectors")
            connection.execute("DELETE FROM state_meta WHERE key = ?", (self._done_key,))
        with self._lock:
            self._loaded = None

    def missing(self) -> int:
        """How many messages have no vector yet."""
        (count,) = self._database.execute(
            "SELECT count(*) FROM messages WHERE id > ? AND state < 2 AND role IN ('user', 'assistant')"
            " AND trim(content) <> ''",
            (self._done(),),
        ).fetchone()
        return int(count)

    def close(self) -> None:
        """End the thread; a step under way is waited for."""
        atexit.unregister(self.close)
        with self._lock:
            self._stopping = True
            self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._stopping:  # looked at behind the clearing, which may have taken the call to stop away
                return
            try:
                with self._alone(timeout=0):
                    while not (self._stopping or self._building) and self._step():
                        pass
            except Timeout:
                pass  # another process makes them
            except (HermesError, sqlite3.Error, OSError) as exc:
                self._failed(exc)
            self._wake.wait()

    def _failed(self, exc: Exception) -> None:
        """Say so once; search goes on by words."""
        fault = f"search by meaning does not work: {exc}"
        if fault != self.fault and not self._stopping:
            log.warning("%s", fault)
        self.fault = fault

    def _alone(self, timeout: float) -> FileLock:
        return FileLock(f"{self._database.path}.meaning.lock", mode=PRIVATE_FILE, timeout=timeout)

    def _step(self) -> int:
        """Vectors for the next messages, in one transaction; how many these were."""
        rows = self._database.execute(_MISSING, (self._done(), MESSAGES_PER_STEP)).fetchall()
        if not rows:
            return 0
        readings = dense.encoder().read(
            [f"{row['speaker'] or row['role']}: {row['content']}" for row in rows]
        )
        made = [
            (dense.MODEL, dense.to_bytes(reading.whole), dense.to_bits(reading.words), row["id"])
            for row, reading in zip(rows, readings, strict=True)
        ]
        with self._database.transaction() as connection:
            # A row may have been deleted meanwhile.
            connection.executemany(
                "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ? FROM messages WHERE id = ?", made
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
        """How like `question` all messages are, its words without these `names`; None when none is near it, too many
        have no vector yet, or the model can't be run or can't read it.
        """
        if not dense.reads(question):
            return None
        if self._behind():
            self.wake()
            if self._done() < MIN_COVERAGE * self._last():
                return None
        if not self.works():
            return None
        with self._lock:
            self._loaded = _grown(self._database, self._loaded)
            matrix = self._loaded
        if matrix is None:
            return None
        (asked,) = dense.encoder().read([question], {word for name in names for word in words(name)})
        near = _products(matrix.own, asked.whole)
        if near.max() < MIN_COSINE * dense.FULL:
            return None
        return Likeness(matrix.ids, WHOLE_WEIGHT * _standard(near), asked.words)

    def closeness(self, asked: Array, ids: Sequence[int]) -> dict[int, float]:
        """How near these messages come to the words `asked`, in standard deviations, and those of their sessions.

        A word is as near as its nearest in the message or around it. Messages without vectors are left out.
        """
        import numpy

        around = self._database.execute(_AROUND, (json.dumps(ids),)).fetchall()
        both = json.dumps(sorted({other for *_, other in around}))
        texts = dict(self._database.execute(_WORDS, (both, dense.MODEL)).fetchall())
        if not (texts and len(asked)):
            return {}
        near = dense.nearest(asked, list(texts.values()))
        none = numpy.full((1, len(asked)), -numpy.inf)
        near = numpy.concatenate((near - near.mean(0), none))
        at = {message: row for row, message in enumerate(texts)}
        rows: dict[int, list[int]] = {}
        session_of: dict[int, int] = {}
        for one, session, step, other in around:
            if other in at:
                rows.setdefault(one, [len(texts)] * len(NEARBY))[list(NEARBY).index(step)] = at[other]
                session_of[one] = session
        shares = numpy.array(list(NEARBY.values()))[:, None]
        words = _standard((shares * near[numpy.array(list(rows.values()))]).max(1).sum(1))
        best: dict[int, float] = {}
        for one, value in zip(rows, words, strict=True):
            best[session_of[one]] = max(value, best.get(session_of[one], value))
        sessions = _standard(numpy.array([best[session_of[one]] for one in rows]))
        worth = WORDS_WEIGHT * words + SESSION_WEIGHT * sessions
        return dict(zip(rows, worth.tolist(), strict=True))

    def works(self) -> bool:
        """Whether the model runs; `fault` says why it does not."""
        try:
            dense.encoder()
        except (ConfigError, OSError) as exc:
            self._failed(exc)
            return False
        return True

    def _last(self) -> int:
        """Id of the newest message, which is about how many there are."""
        (last,) = self._database.execute("SELECT max(id) FROM messages").fetchone()
        return int(last or 0)

    def _behind(self) -> bool:
        return bool(self._database.execute(_MISSING, (self._done(), 1)).fetchall())


@dataclass(frozen=True, slots=True)
class _Matrix:
    ids: Array
    own: Array


def _grown(database: Database, known: _Matrix | None) -> _Matrix | None:
    """The vectors of whole messages: those that are known and those made since."""
    import numpy

    last = int(known.ids[-1]) if known is not None else 0
    sql = "SELECT message_id, own FROM vectors WHERE message_id > ? AND model = ? ORDER BY message_id"
    rows = database.execute(sql, (last, dense.MODEL)).fetchall()
    if not rows:
        return known
    ids = numpy.array([row[0] for row in rows], numpy.int64)
    own = numpy.frombuffer(b"".join(row[1] for row in rows), numpy.int8).reshape(-1, dense.DIMENSION)
    if known is None:
        return _Matrix(ids, own)
    return _Matrix(numpy.concatenate((known.ids, ids)), numpy.concatenate((known.own, own)))


def _products(vectors: Array, asked: Array) -> Array:
    import numpy

    parts = [
        vectors[at : at + VECTORS_PER_PRODUCT].astype(numpy.float32) @ asked
        for at in range(0, len(vectors), VECTORS_PER_PRODUCT)
    ]
    return numpy.concatenate(parts)


def _standard(values: Array) -> Array:
    """In standard deviations from the mean; all 0 when they don't differ."""
    worth: Array = (values - values.mean()) / (values.std() or 1.0)
    return worth

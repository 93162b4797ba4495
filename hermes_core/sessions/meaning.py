"""Search by meaning: a vector for each message and for the message with the one before it, made in the background.

Vectors stand beside the rows in state.db and go with them. Who lacks the extra `[semantic]` has none, and searches by words.
"""

from __future__ import annotations

import atexit
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from hermes_core.errors import ConfigError, HermesError
from hermes_core.recall import dense
from hermes_core.storage.files import PRIVATE_FILE
from hermes_core.storage.sqlite import Database

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

log = logging.getLogger(__name__)

OWN_WEIGHT = 0.3
PAIR_WEIGHT = 0.55
"""What a standard deviation of likeness is worth beside one of the words' score: of the message alone, and of the message
with the one before it. Fitted with the constants of `recall.rank`.
"""

DONE = "meaning:"
"""With the name of a model: the key in state_meta of the last message that was looked at."""

STEP = 16
"""Messages of one transaction; a tenth of a second of one core when they are short, one when they are long. Closing waits so long."""

PATIENCE = 60.0
"""Seconds that closing waits for the step under way, and for the model that is being loaded: a thread that is still in
native code when the interpreter ends aborts the process.
"""

CHUNK = 16_384
"""Vectors multiplied at once: 8-bit numbers become floats only piece by piece."""

_MISSING = """
    SELECT m.id, m.speaker, m.role, m.content, b.speaker AS asker, b.role AS asker_role, b.content AS before
    FROM messages m LEFT JOIN messages b ON b.session_key = m.session_key AND b.position = m.position - 1
    WHERE m.id > ? AND m.state < 2 AND m.role IN ('user', 'assistant') AND trim(m.content) <> ''
    ORDER BY m.id LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like a question each message is: `ids` ascending, `worth` in standard deviations of all of them."""

    ids: Array
    worth: Array

    def of(self, message_id: int) -> float:
        """0, which is the mean, for a message that has no vector yet."""
        import numpy

        at = int(numpy.searchsorted(self.ids, message_id))
        return float(self.worth[at]) if at < len(self.ids) and self.ids[at] == message_id else 0.0

    def best(self, count: int) -> list[int]:
        """Ids of the most alike, best first."""
        import numpy

        return [int(self.ids[at]) for at in numpy.argsort(-self.worth)[:count]]


class Meaning:
    """The vectors of one state.db: makes those that are missing, and compares all with a question."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._done_key = f"{DONE}{dense.MODEL}"
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
            self._thread.join(PATIENCE)

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
        rows = self._database.execute(_MISSING, (self._done(), STEP)).fetchall()
        if not rows:
            return 0
        vectors = dense.to_bytes(dense.encoder().encode([text for row in rows for text in _texts(row)]))
        made = [(row["id"], dense.MODEL, *vectors[2 * n : 2 * n + 2]) for n, row in enumerate(rows)]
        with self._database.transaction() as connection:
            # A row may have been deleted meanwhile.
            connection.executemany(
                "INSERT OR REPLACE INTO vectors SELECT id, ?2, ?3, ?4 FROM messages WHERE id = ?1", made
            )
            connection.execute(
                "INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (self._done_key, str(rows[-1]["id"]))
            )
        return len(rows)

    def _done(self) -> int:
        row = self._database.execute(
            "SELECT value FROM state_meta WHERE key = ?", (self._done_key,)
        ).fetchone()
        return int(row[0]) if row else 0

    # ---------------------------------------------------------------- comparing

    def likeness(self, question: str) -> Likeness | None:
        """How like `question` all messages are; None when none has a vector, or the model can't be run."""
        if self._behind():
            self.wake()
        with self._lock:
            self._loaded = _grown(self._database, self._loaded)
            matrix = self._loaded
        if matrix is None or not self.works():
            return None
        asked = dense.encoder().encode([question])[0]
        worth = OWN_WEIGHT * _standard(_products(matrix.own, asked))
        worth += PAIR_WEIGHT * _standard(_products(matrix.pair, asked))
        return Likeness(matrix.ids, worth)

    def works(self) -> bool:
        """Whether the model runs; `fault` says why it does not."""
        try:
            dense.encoder()
        except (ConfigError, OSError) as exc:
            self._failed(exc)
            return False
        return True

    def _behind(self) -> bool:
        return bool(self._database.execute(_MISSING, (self._done(), 1)).fetchall())


@dataclass(frozen=True, slots=True)
class _Matrix:
    ids: Array
    own: Array
    pair: Array


def _grown(database: Database, known: _Matrix | None) -> _Matrix | None:
    """The vectors of all messages: those that are known and those made since."""
    with dense.LOADING:
        import numpy

    last = int(known.ids[-1]) if known is not None else 0
    sql = "SELECT message_id, own, pair FROM vectors WHERE message_id > ? AND model = ? ORDER BY message_id"
    rows = database.execute(sql, (last, dense.MODEL)).fetchall()
    if not rows:
        return known
    ids = numpy.array([row[0] for row in rows], numpy.int64)
    own, pair = (
        numpy.frombuffer(b"".join(row[column] for row in rows), numpy.int8).reshape(-1, dense.DIMENSION)
        for column in (1, 2)
    )
    if known is None:
        return _Matrix(ids, own, pair)
    return _Matrix(
        numpy.concatenate((known.ids, ids)),
        numpy.concatenate((known.own, own)),
        numpy.concatenate((known.pair, pair)),
    )


def _products(vectors: Array, asked: Array) -> Array:
    import numpy

    parts = [vectors[at : at + CHUNK].astype(numpy.float32) @ asked for at in range(0, len(vectors), CHUNK)]
    return numpy.concatenate(parts)


def _standard(values: Array) -> Array:
    """In standard deviations from the mean; all 0 when they don't differ."""
    worth: Array = (values - values.mean()) / (values.std() or 1.0)
    return worth


def _texts(row: sqlite3.Row) -> Iterator[str]:
    """What the two vectors of a message are of."""
    own = f"{row['speaker'] or row['role']}: {row['content']}"
    yield own
    yield f"{row['asker'] or row['asker_role']}: {row['before']} {own}" if row["before"] else own

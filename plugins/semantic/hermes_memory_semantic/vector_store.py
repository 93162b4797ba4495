"""The vectors of messages in a state.db.

A message has a vector for each of its pieces. Only the vectors of the owners who searched last are in the memory of a
process, up to `MAX_CACHED_BYTES`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from hermes_core.kit import Database
from hermes_core.sessions.records import read_meta
from hermes_core.sessions.search.index import note_change
from hermes_core.sessions.search.protocol import (
    CHANGES_KEY,
    DIMENSION_KEY,
    HAS_TEXT,
    INT8_SCALE,
    LAST_ID_KEY,
    MIN_COVERAGE,
    Coverage,
    Nearness,
    Surroundings,
    Vector,
    VectorSamples,
)
from hermes_core.storage.files import PRIVATE_FILE

if TYPE_CHECKING:
    import numpy

    from hermes_core.recall.rank import Place
    from hermes_core.sessions.search.filters import Condition

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Bytes of vectors in the memory of a process: those of 600,000 short messages. More vectors than this are read anew
# for each question, in parts.
MAX_CACHED_BYTES = 256 * 1024 * 1024

# Vectors that are read and multiplied at the same time: all vectors as floats would take four times the memory.
VECTORS_PER_PART = 16_384

# Messages of others between which the new messages of an owner are sought; beyond, all vectors of the owner are read.
MAX_GROWTH = 2_000


# ---------------------------------------------------------------------- vectors in memory


@dataclass(frozen=True, slots=True)
class Matrix:
    """The vectors of pieces, ordered by message id: of each piece its message id, number, span and vector."""

    ids: Array
    pieces: Array
    spans: Array
    own: Array

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Any]]) -> Matrix:
        """Return the matrix of rows of message id, piece, first, last and vector. There must be at least one."""
        import numpy

        return cls(
            numpy.array([row[0] for row in rows], numpy.int64),
            numpy.array([row[1] for row in rows], numpy.int64),
            numpy.array([(row[2], row[3]) for row in rows], numpy.int64),
            numpy.frombuffer(b"".join(row[4] for row in rows), numpy.int8).reshape(len(rows), -1),
        )

    @classmethod
    def joined(cls, parts: Sequence[Matrix]) -> Matrix:
        """Return all parts as one matrix."""
        import numpy

        if len(parts) == 1:
            return parts[0]
        ids = numpy.concatenate([part.ids for part in parts])
        pieces = numpy.concatenate([part.pieces for part in parts])
        spans = numpy.concatenate([part.spans for part in parts])
        own = numpy.concatenate([part.own for part in parts])
        if (numpy.diff(ids) >= 0).all():
            return cls(ids, pieces, spans, own)
        # A message may be stored later than one with a higher id.
        order = numpy.lexsort((pieces, ids))
        return cls(ids[order], pieces[order], spans[order], own[order])

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return int(self.ids.nbytes + self.pieces.nbytes + self.spans.nbytes + self.own.nbytes)


class MatrixCache:
    """The matrices of the owners who searched last, up to `MAX_CACHED_BYTES`. Threads may share it.

    The key None is for all owners together. A stamp says what a matrix was read from.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[str | None, tuple[Any, Matrix]] = OrderedDict()
        self._size = 0

    def get(self, user: str | None) -> tuple[Any, Matrix] | None:
        """Return the stamp and the matrix of an owner."""
        with self._lock:
            if user in self._entries:
                self._entries.move_to_end(user)
            return self._entries.get(user)

    def put(self, user: str | None, stamp: Any, matrix: Matrix) -> None:
        """Keep the matrix of an owner, and drop those of the owners who have not searched for longest."""
        with self._lock:
            self._drop(user)
            self._entries[user] = (stamp, matrix)
            self._size += matrix.size
            while self._size > MAX_CACHED_BYTES:
                self._drop(next(iter(self._entries)))

    def remove(self, user: str | None) -> None:
        """Forget the matrix of an owner."""
        with self._lock:
            self._drop(user)

    def clear(self) -> None:
        """Forget all matrices."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def _drop(self, user: str | None) -> None:
        if user in self._entries:
            self._size -= self._entries.pop(user)[1].size

    @property
    def users(self) -> list[str | None]:
        """The owners whose matrices are in memory, the last one at the end."""
        with self._lock:
            return list(self._entries)


def gather(parts: Iterable[Matrix]) -> Iterator[tuple[Matrix, bool]]:
    """Yield the parts as one matrix and True, if it may be kept in memory; otherwise each part and False."""
    collected: list[Matrix] | None = []
    for part in parts:
        if collected is None:
            yield part, False
            continue
        collected.append(part)
        if sum(earlier.size for earlier in collected) > MAX_CACHED_BYTES:
            yield from ((earlier, False) for earlier in collected)
            collected = None
    if collected:
        yield Matrix.joined(collected), True


def nearness_of(matrices: Iterable[Matrix], asked: Array, *, is_unit: bool) -> Nearness | None:
    """Return the nearness of all messages in matrices; None if there are none. No message may be in two matrices."""
    import numpy

    parts = [_nearest_pieces(matrix, asked, is_unit) for matrix in matrices]
    if not parts:
        return None
    ids, near, pieces, spans = (numpy.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Nearness(
        ids, near, pieces, spans, float(near.mean()), float(near.std()), float(near.max(initial=-numpy.inf))
    )


def _nearest_pieces(matrix: Matrix, asked: Array, is_unit: bool) -> tuple[Array, Array, Array, Array]:
    """Return id, nearness, piece and span of the nearest piece of each message."""
    import numpy

    near = _products(matrix.own, asked, is_unit)
    first = numpy.diff(matrix.ids, prepend=-1) > 0
    best = numpy.maximum.reduceat(near, numpy.flatnonzero(first))
    message = numpy.cumsum(first) - 1
    rows = numpy.flatnonzero(near == best[message])
    nearest = rows[numpy.diff(message[rows], prepend=-1) > 0]
    return matrix.ids[nearest], near[nearest], matrix.pieces[nearest], matrix.spans[nearest]


def _products(vectors: Array, asked: Array, is_unit: bool) -> Array:
    """Return the cosine between a question and each vector, times `INT8_SCALE`."""
    import numpy

    products = []
    for at in range(0, len(vectors), VECTORS_PER_PART):
        part = vectors[at : at + VECTORS_PER_PART].astype(numpy.float32)
        near: Array = part @ asked
        if not is_unit:
            lengths = numpy.linalg.norm(part, axis=1)
            # A vector without a direction, all zeros, is near to nothing.
            near = near / numpy.where(lengths > 0, lengths, 1) * INT8_SCALE
        products.append(near)
    return numpy.concatenate(products)


def nearest_pieces(nearness: Nearness, ids: Collection[int]) -> list[tuple[int, int]]:
    """Return id and nearest piece of each of these messages that has a vector."""
    import numpy

    asked = numpy.array(sorted(ids), numpy.int64)
    places = numpy.searchsorted(nearness.ids, asked)
    known = places < len(nearness.ids)
    known[known] = nearness.ids[places[known]] == asked[known]
    places = places[known]
    return list(zip(nearness.ids[places].tolist(), nearness.pieces[places].tolist(), strict=True))


# ---------------------------------------------------------------------- SQLite

_MISSING = f"SELECT id, speaker, role, content FROM messages WHERE id > ? AND {HAS_TEXT} ORDER BY id LIMIT ?"

# Messages with vectors of which it is checked that they have some, at equal distances.
SAMPLE = 16

_GAP = f"SELECT timestamp FROM messages WHERE id > ? AND {HAS_TEXT} ORDER BY id LIMIT 1"
_SAMPLES = f"""
    WITH steps (n) AS (VALUES {", ".join(f"({step})" for step in range(SAMPLE))})
    SELECT DISTINCT m.id, substr(m.content, 1, 1000), (
        SELECT max(v.own <> zeroblob(length(v.own))) FROM vectors v WHERE v.message_id = m.id AND v.model = ?
    ) FROM steps CROSS JOIN messages m WHERE m.id = (
        SELECT o.id FROM messages o WHERE o.id <= ? - ? * steps.n / {SAMPLE} AND {HAS_TEXT} ORDER BY o.id DESC LIMIT 1
    )
"""

_COLUMNS = "v.message_id, v.piece, v.first, v.last, v.own"
_OF_ALL = f"""
    SELECT {_COLUMNS} FROM vectors v WHERE v.message_id > ? AND v.message_id <= ? AND v.model = ?
    ORDER BY v.message_id, v.piece LIMIT {VECTORS_PER_PART}
"""
_NEW_OF_USER = f"""
    SELECT {_COLUMNS} FROM vectors v CROSS JOIN messages m ON m.id = v.message_id
    CROSS JOIN sessions s ON s.key = m.session_key
    WHERE v.message_id > ? AND v.message_id <= ? AND v.model = ? AND s.user = ? ORDER BY v.message_id, v.piece
"""
_IDS_OF_USER = """
    SELECT m.id FROM sessions s CROSS JOIN messages m ON m.session_key = s.key
    WHERE s.user = ? AND m.position IS NOT NULL AND m.id <= ? ORDER BY m.id
"""
_BY_ID = f"""
    SELECT {_COLUMNS} FROM json_each(?) w CROSS JOIN vectors v ON v.message_id = w.value
    WHERE v.model = ? ORDER BY v.message_id, v.piece
"""
_AROUND = """
    SELECT m.id, m.session_key, o.position - m.position, o.id FROM json_each(?) w
    CROSS JOIN messages m ON m.id = w.value
    CROSS JOIN messages o ON o.session_key = m.session_key
        AND o.position BETWEEN m.position + ? AND m.position + ?
"""

# A piece is asked for as one number: the message id, and the number of the piece in the last 8 bits.
_WORDS = """
    SELECT v.message_id, v.words FROM json_each(?) w
    CROSS JOIN vectors v ON v.message_id = w.value >> 8 AND v.piece = w.value & 255
    WHERE v.model = ? AND v.words <> x''
"""


class SqliteVectors:
    """The vectors in a state.db. One process at a time makes them, in the order of the messages.

    Writers of SQLite commit one after the other, so the last message with a vector says which messages have none.
    """

    def __init__(self, database: Database, model: str, is_unit: bool) -> None:
        self._database = database
        self._model = model
        self._is_unit = is_unit
        self._done_key = f"{LAST_ID_KEY}{model}"
        self._cache = MatrixCache()

    # ------------------------------------------------------------------ making

    def alone(self, timeout: float) -> FileLock:
        """Return the lock that one process holds while it makes vectors."""
        return FileLock(f"{self._database.path}.meaning.lock", mode=PRIVATE_FILE, timeout=timeout)

    def check_model(self, dimension: int = 0) -> None:
        """Do nothing: a home has one model, and `save` replaces the vectors of the one before."""

    def take(self, count: int, dimension: int = 0) -> list[Any]:  # noqa: ARG002  the protocol's
        """Return the next messages without a vector."""
        return self._database.execute(_MISSING, (self._done(), count)).fetchall()

    def give_back(self, message_ids: Sequence[int]) -> None:
        """Do nothing: a message without a vector is returned by `take` again."""

    def save(self, message_ids: Sequence[int], vectors: Sequence[Vector], dimension: int) -> None:
        """Store the vectors of the messages that `take` returned."""
        rows = [(v.piece, v.first, v.last, self._model, v.own, v.words, v.message_id) for v in vectors]
        with self._database.transaction() as connection:
            if not self._is_unit and vectors and self._dimension(connection) != dimension:
                return  # a question has just learned that the model is another one
            if not self._done():
                self._forget_others(connection)
            # Selected from `messages`, since one may have been deleted or hidden meanwhile.
            connection.executemany(
                "INSERT OR REPLACE INTO vectors SELECT id, ?, ?, ?, ?, ?, ? FROM messages WHERE id = ? AND state < 2",
                rows,
            )
            connection.execute(
                "INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (self._done_key, str(message_ids[-1]))
            )

    def is_busy(self) -> bool:
        """Return False: whoever makes vectors here is the only one."""
        return False

    def missing(self) -> int:
        """Return how many messages have no vector yet."""
        sql = f"SELECT count(*) FROM messages WHERE id > ? AND {HAS_TEXT}"
        (count,) = self._database.execute(sql, (self._done(),)).fetchone()
        return int(count)

    def ask_samples(self) -> Callable[[], VectorSamples]:
        """Return a function that returns beginnings of messages of all ages, and the first message without vectors."""
        return self._samples

    def _samples(self) -> VectorSamples:
        done = self._done()
        gap = self._database.execute(_GAP, (done,)).fetchone()
        rows = self._database.execute(_SAMPLES, (self._model, done, done)).fetchall()
        # A server may make a vector without any direction, but not for all messages.
        has_any = any(row[2] for row in rows)
        texts = [(text, vector is not None and has_any) for _, text, vector in rows]
        return VectorSamples(texts, gap and gap[0])

    def forget(self) -> None:
        """Delete all vectors."""
        with self.alone(timeout=-1), self._database.transaction() as connection:
            self._delete_all(connection)
        self._cache.clear()

    def dimension(self) -> int:
        """Return the number of numbers in a stored vector; 0 before the first one."""
        return self._dimension(self._database)

    def change_dimension(self, dimension: int) -> bool:
        """Store the number of numbers in a vector. If it was another one, delete all vectors and return True."""
        with self._database.transaction() as connection:
            before = self._dimension(connection)
            connection.execute(
                "INSERT OR REPLACE INTO state_meta VALUES (?, ?)",
                (f"{DIMENSION_KEY}{self._model}", str(dimension)),
            )
            if before in (0, dimension):
                return False
            self._delete_all(connection)
        self._cache.clear()
        return True

    def _delete_all(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM vectors")
        connection.execute("DELETE FROM state_meta WHERE key = ?", (self._done_key,))
        note_change(connection)

    def _forget_others(self, connection: sqlite3.Connection) -> None:
        """Delete the vectors of other models, which these replace, so that none of them counts as complete."""
        connection.execute("DELETE FROM vectors WHERE model <> ?", (self._model,))
        connection.execute(
            "DELETE FROM state_meta WHERE substr(key, 1, ?) = ? AND key <> ?",
            (len(LAST_ID_KEY), LAST_ID_KEY, self._done_key),
        )

    def _done(self) -> int:
        return self._number(self._database, self._done_key)

    def _dimension(self, reader: Database | sqlite3.Connection) -> int:
        return self._number(reader, f"{DIMENSION_KEY}{self._model}")

    def _number(self, reader: Database | sqlite3.Connection, key: str) -> int:
        row = reader.execute("SELECT value FROM state_meta WHERE key = ?", (key,)).fetchone()
        return read_meta(key, row[0] if row else None, int, 0)

    # ------------------------------------------------------------------ comparing

    def ask_coverage(self, user: str | None) -> Callable[[], Coverage]:  # noqa: ARG002  counted for all owners together
        """Return a function that returns whether enough messages of the store have a vector."""
        return self._coverage

    def _coverage(self) -> Coverage:
        sql = "SELECT (SELECT value FROM state_meta WHERE key = ?), (SELECT max(id) FROM messages)"
        stored, last = self._database.execute(sql, (self._done_key,)).fetchone()
        done = read_meta(self._done_key, stored, int, 0)
        if (last or 0) <= done or self._database.execute(_MISSING, (done, 1)).fetchone() is None:
            return Coverage(done > 0, False)
        # The id of the newest message is also an estimate of the number of messages.
        return Coverage(done > 0 and done >= MIN_COVERAGE * (last or 0), True)

    def ask_nearest(
        self,
        asked: Array,
        user: str | None,
        passing: Condition | None = None,  # noqa: ARG002  looked up by their ids
    ) -> tuple[Callable[[], Nearness | None], bool]:
        """Return a function that returns the nearness of all messages of an owner, or of all owners."""
        nearness = nearness_of(self._matrices(user), asked, is_unit=self._is_unit)
        return lambda: nearness, True

    def ask_around(
        self, places: Sequence[Place], nearness: Nearness, asked: Array, distances: tuple[int, int]
    ) -> None:
        """Return None: a file has no round trips."""

    def surroundings(
        self,
        ids: Sequence[int],
        nearness: Nearness,
        asked: Array,  # noqa: ARG002  the protocol's
        distances: tuple[int, int],
    ) -> Surroundings:
        """Return the words of messages and of the messages around them."""
        places = self._database.execute(_AROUND, (json.dumps(ids), *distances)).fetchall()
        pieces = nearest_pieces(nearness, {other for *_, other in places})
        packed = json.dumps([message_id << 8 | piece for message_id, piece in pieces])
        words = dict(self._database.execute(_WORDS, (packed, self._model)).fetchall())
        return Surroundings(places, words, nearness)

    def description(self) -> str:
        """Return "": there is only one way."""
        return ""

    def remedy(self) -> str:
        """Return "": there is nothing to do."""
        return ""

    def _matrices(self, user: str | None) -> Iterator[Matrix]:
        """Yield the vectors of an owner, or of all owners."""
        changes, done = self._number(self._database, CHANGES_KEY), self._done()
        if (entry := self._cache.get(user)) is not None:
            (known_changes, known_done), matrix = entry
            behind = done - known_done
            is_small = user is None or behind <= max(MAX_GROWTH, len(matrix.ids))
            if known_changes == changes and behind >= 0 and is_small:
                rows = self._rows_between(user, known_done, done) if behind else []
                if rows:
                    matrix = Matrix.joined([matrix, Matrix.of_rows(rows)])
                self._cache.put(user, (changes, done), matrix)
                yield matrix
                return
            self._cache.remove(user)
        for matrix, is_whole in gather(self._parts(user, done)):
            if is_whole:
                self._cache.put(user, (changes, done), matrix)
            yield matrix

    def _rows_between(self, user: str | None, after: int, last: int) -> list[Any]:
        if user is not None:
            return self._database.execute(_NEW_OF_USER, (after, last, self._model, user)).fetchall()
        return [row for rows in self._rows_of_all(after, last) for row in rows]

    def _parts(self, user: str | None, done: int) -> Iterator[Matrix]:
        """Yield the vectors of an owner, or of all owners, up to a message, in parts."""
        if user is None:
            yield from map(Matrix.of_rows, self._rows_of_all(0, done))
            return
        ids = [row[0] for row in self._database.execute(_IDS_OF_USER, (user, done))]
        for start in range(0, len(ids), VECTORS_PER_PART):
            part = json.dumps(ids[start : start + VECTORS_PER_PART])
            if rows := self._database.execute(_BY_ID, (part, self._model)).fetchall():
                yield Matrix.of_rows(rows)

    def _rows_of_all(self, after: int, last: int) -> Iterator[list[Any]]:
        def read(after: int) -> list[Any]:
            return self._database.execute(_OF_ALL, (after, last, self._model)).fetchall()

        return whole_messages(read, after)


def whole_messages(read: Any, after: int) -> Iterator[list[Any]]:
    """Yield rows of vectors in parts, all pieces of a message in the same one.

    Args:
        read: Function that returns the rows of the messages after an id, at most `VECTORS_PER_PART`.
        after: The id after which the first message is read.
    """
    while rows := read(after):
        if len(rows) == VECTORS_PER_PART:  # the last message may lack some of its pieces: it is read again
            last = rows[-1][0]
            rows = [row for row in rows if row[0] < last]
        yield rows
        after = rows[-1][0]

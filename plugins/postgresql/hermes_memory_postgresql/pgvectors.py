"""The vectors of messages on a PostgreSQL server, made by several machines at once.

A message that has no vector yet stands in a queue, into which it comes in its own transaction: the order of commits is
not that of the ids, so that no last id could say which messages have a vector. A machine leases some messages of the
queue, makes their vectors outside of any transaction, and removes them from the queue together with storing these.

The server compares the vectors of an owner with a question by its extension pgvector, all of them: an approximate index
over all owners would lose neighbours of each. A server without the extension stores no vectors, and is searched by words.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filelock import Timeout

from hermes_core.errors import StorageError
from hermes_core.sessions.records import MEMORY_TOOLS
from hermes_core.sessions.search.protocol import (
    HAS_TEXT,
    INT8_SCALE,
    MAX_NEAREST,
    MIN_COVERAGE,
    Coverage,
    Nearness,
    OtherModel,
    Surroundings,
    Vector,
    VectorSamples,
)
from hermes_core.storage.engine import Connection, Engine, Statement

if TYPE_CHECKING:
    import numpy

    from hermes_core.recall.rank import Place
    from hermes_core.sessions.search.filters import Condition

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Seconds for which no other machine takes a message whose vectors are being made: longer than three requests to a
# server of embeddings, each of which may take a minute.
LEASE_S = 300

# Messages that are put into the queue in one transaction, when all vectors are made again.
QUEUED_PER_STEP = 10_000

# Seconds that the first start of search by meaning waits for the transactions that store messages.
LOCK_TIMEOUT_S = 2

# Largest number of messages that are compared for a search over all owners: more would take many seconds.
MAX_COMPARED = 1_000_000

log = logging.getLogger(__name__)

# Clock of the server, because those of machines differ.
_NOW = "extract(epoch FROM clock_timestamp())::double precision"

_NEW_HAS_TEXT = f"""
    NEW.state < 2 AND NEW.role IN ('user', 'assistant', 'tool') AND trim(NEW.content) <> ''
    AND NOT (NEW.role = 'tool' AND NEW.tool_name IN {MEMORY_TOOLS})
"""

_TABLES = (
    # At most one row; without it nobody has ever made vectors, and no message is put into the queue.
    """
    CREATE TABLE vector_state (
        key BIGINT PRIMARY KEY DEFAULT 1 CHECK (key = 1),
        model TEXT COLLATE "C" NOT NULL,
        dimension BIGINT NOT NULL,
        queued_to BIGINT DEFAULT 0
    )
    """,
    """
    CREATE TABLE missing_vectors (
        message_id BIGINT PRIMARY KEY, owner_key BIGINT NOT NULL,
        leased_until DOUBLE PRECISION NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX missing_vectors_by_owner ON missing_vectors (owner_key)",
    """
    CREATE TABLE vectors (
        message_id BIGINT NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        piece BIGINT NOT NULL, first BIGINT NOT NULL, last BIGINT NOT NULL,
        owner_key BIGINT NOT NULL,
        words BYTEA NOT NULL,
        PRIMARY KEY (message_id, piece)
    )
    """,
    "CREATE INDEX vectors_by_owner ON vectors (owner_key, message_id)",
    """
    CREATE FUNCTION queue_message() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT 1 FROM vector_state) THEN
            INSERT INTO missing_vectors (message_id, owner_key) VALUES (NEW.id, NEW.owner_key)
            ON CONFLICT (message_id) DO NOTHING;
        END IF;
        RETURN NULL;
    END $$
    """,
    f"""
    CREATE TRIGGER message_queued AFTER INSERT ON messages FOR EACH ROW
        WHEN ({_NEW_HAS_TEXT}) EXECUTE FUNCTION queue_message()
    """,
)

# Another program may not let this role make the extension, or the server may not have it.
_EXTENSION = """
    DO $$ BEGIN
        CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
    EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported OR invalid_schema_name THEN
        NULL;
    END $$
"""
# The type halfvec came with version 0.7. Its schema may not be in the search path.
_HALFVEC = """
    SELECT quote_ident(n.nspname) || '.halfvec' FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector' AND has_schema_privilege(n.oid, 'USAGE')
        AND to_regtype(quote_ident(n.nspname) || '.halfvec') IS NOT NULL
"""
_COLUMN_TYPE = """
    SELECT quote_ident(n.nspname) || '.' || t.typname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE a.attrelid = to_regclass('vectors') AND a.attname = 'own' AND NOT a.attisdropped
"""
_STATE = f"""
    SELECT st.model, st.dimension, st.queued_to, coalesce(({_COLUMN_TYPE}), '') AS type FROM vector_state st
"""

_TAKE = f"""
    WITH claim AS (
        SELECT message_id FROM missing_vectors WHERE leased_until <= {_NOW}
        ORDER BY message_id LIMIT ? FOR UPDATE SKIP LOCKED
    ), lease AS (
        UPDATE missing_vectors q SET leased_until = {_NOW} + {LEASE_S} FROM claim
        WHERE q.message_id = claim.message_id RETURNING q.message_id
    )
    SELECT lease.message_id, m.id, m.speaker, m.role, m.content FROM lease
    LEFT JOIN LATERAL (SELECT * FROM messages WHERE id = lease.message_id AND {HAS_TEXT} OFFSET 0) m ON true
    ORDER BY lease.message_id
"""
_INSERT = """
    INSERT INTO vectors (message_id, piece, first, last, own, words, owner_key)
    SELECT x.id, x.piece, x.first, x.last, x.own::{type}, x.words, m.owner_key
    FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::text[], ?::bytea[])
        AS x (id, piece, first, last, own, words)
    CROSS JOIN LATERAL (SELECT * FROM messages WHERE id = x.id AND state < 2 OFFSET 0) m
"""
# Computed before the messages are grouped, so that no vector is sorted.
_NEAREST = """
    WITH piece AS MATERIALIZED (SELECT v.message_id, {near} AS near FROM vectors v {of_owner}),
    best AS MATERIALIZED (SELECT message_id, max(near) AS near FROM piece GROUP BY message_id)
    (SELECT NULL::bigint AS message_id, count(*)::double precision AS near, avg(near) AS mean,
        stddev_pop(near) AS deviation, max(near) AS highest, NULL::bigint, NULL::bigint, NULL::bigint FROM best)
    UNION ALL
    (SELECT n.message_id, n.near, 0, 0, 0, p.session_key, p.position, p.size
    FROM (SELECT message_id, near FROM best ORDER BY near DESC, message_id LIMIT {limit}) n
    LEFT JOIN LATERAL (
        SELECT m.session_key, m.position, m.size FROM (SELECT * FROM messages WHERE id = n.message_id OFFSET 0) m
        JOIN sessions s ON s.key = m.session_key WHERE {passing}
    ) p ON true)
"""
_PLACES = """
    SELECT w.id, m.session_key, o.position - m.position AS distance, o.id AS other FROM unnest(?::bigint[]) AS w (id)
    CROSS JOIN LATERAL (SELECT session_key, position FROM messages WHERE id = w.id OFFSET 0) m
    CROSS JOIN LATERAL (
        SELECT id, position FROM messages WHERE session_key = m.session_key
            AND position BETWEEN m.position + ? AND m.position + ? OFFSET 0
    ) o
"""
_AROUND = """
    SELECT w.key, w.position, o.position - w.position AS distance, o.id AS other
    FROM unnest(?::bigint[], ?::bigint[]) AS w (key, position)
    CROSS JOIN LATERAL (
        SELECT id, position FROM messages WHERE session_key = w.key
            AND position BETWEEN w.position + ? AND w.position + ? OFFSET 0
    ) o
"""
# Messages of which it is checked that they have vectors, at equal distances.
SAMPLE = 16

_SAMPLES = f"""
    WITH newest AS (SELECT max(id) AS id FROM messages), gap AS (
        SELECT m.timestamp FROM (SELECT message_id FROM missing_vectors ORDER BY message_id LIMIT 1) q
        JOIN messages m ON m.id = q.message_id
    )
    SELECT DISTINCT m.id, m.timestamp, substr(m.content, 1, 1000) AS text, EXISTS (
        SELECT 1 FROM vectors v WHERE v.message_id = m.id
    ) AS has_vector, (SELECT timestamp FROM gap) AS gap
    FROM generate_series(0, {SAMPLE - 1}) AS n CROSS JOIN newest LEFT JOIN LATERAL (
        SELECT o.id, o.timestamp, o.content FROM messages o WHERE o.id <= newest.id - newest.id * n / {SAMPLE} AND {HAS_TEXT}
            AND NOT EXISTS (SELECT 1 FROM missing_vectors q WHERE q.message_id = o.id) ORDER BY o.id DESC LIMIT 1
    ) m ON true
"""
_NEAREST_PIECES = """
    SELECT v.* FROM (SELECT DISTINCT other FROM ({places}) p) w CROSS JOIN LATERAL (
        SELECT v.message_id, v.piece, v.first, v.last, v.words, {near} AS near FROM vectors v
        WHERE v.message_id = w.other ORDER BY near DESC, v.piece LIMIT 1
    ) v ORDER BY v.message_id
"""


def create_vectors(connection: Connection) -> None:
    """Create the tables of the vectors, with a column for them if the extension pgvector can be used."""
    for statement in _TABLES:
        connection.execute(statement)
    _add_column(connection)


def _add_column(connection: Connection) -> None:
    """Give the empty table of the vectors a column for them if the server has the extension pgvector."""
    connection.execute(_EXTENSION)
    row = connection.execute(_HALFVEC).fetchone()
    if row is not None and connection.execute(_COLUMN_TYPE).fetchone() is None:
        connection.execute(f"ALTER TABLE vectors ADD COLUMN own {row[0]} NOT NULL")
        # In the row itself, also if it is long: all vectors of an owner are read for each question.
        connection.execute("ALTER TABLE vectors ALTER COLUMN own SET STORAGE MAIN")


@dataclass(frozen=True, slots=True)
class _State:
    """The row of `vector_state`, and the type of the column with the vectors.

    Attributes:
        model: Name of the model.
        dimension: Number of numbers in a vector; 0 before the first one.
        queued_to: Id up to which messages were put into the queue; None if all were.
        type: Type of the column, with its schema; "" if there is none, because the server has no pgvector.
    """

    model: str
    dimension: int
    queued_to: int | None
    type: str

    @property
    def schema(self) -> str:
        """The schema of the extension."""
        return self.type.rpartition(".")[0]


class PostgresVectors:
    """The vectors of a home on a PostgreSQL server, made by one model.

    Args:
        database: The server.
        model: Name of the model.
        dimension: Number of numbers in a vector; 0 if it is known after the first one only.
        is_unit: True if vectors are unit vectors in steps of 1 / `INT8_SCALE`.
    """

    def __init__(self, database: Engine, model: str, dimension: int, is_unit: bool) -> None:
        self._database = database
        self._model = model
        self._is_unit = is_unit
        self._first_dimension = dimension
        self._state: _State | None = None
        self._process, self._making = os.getpid(), threading.Lock()

    # ------------------------------------------------------------------ making

    @contextlib.contextmanager
    def alone(self, timeout: float) -> Iterator[None]:
        """Hold the lock of this process: several processes make vectors at once, but one thread of each."""
        if (
            self._process != os.getpid()
        ):  # a thread of the parent process may have held it when this one was forked
            self._process, self._making = os.getpid(), threading.Lock()
        lock = self._making
        if not lock.acquire(timeout=timeout):
            raise Timeout("the vectors of this process")
        try:
            yield
        finally:
            lock.release()

    def check_model(self, dimension: int = 0) -> None:
        """Raise `OtherModel` if the vectors of this store are made by another model."""
        self._require_model(self._read_state(), dimension)

    def _require_model(self, state: _State | None, dimension: int = 0) -> None:
        """Raise `OtherModel` unless the vectors are by this model, which makes vectors of `dimension` numbers.

        Two machines with different models would delete the vectors of one another without end if each made its own.
        """
        if state is None:
            return
        other = f"are made by {state.model!r}, not by {self._model!r}"
        if state.model == self._model:
            if not (dimension and state.dimension) or state.dimension == dimension:
                return
            other = f"by {state.model!r} have {state.dimension!r} numbers, not {dimension!r}"
        raise OtherModel(
            f"the vectors of {self._database.label!r} {other}",
            "give all machines the same version, recall.embeddings, embeddings_url and embeddings_model, or make all "
            "vectors anew by the model of this machine: hermes-memory sessions rebuild",
        )

    def take(self, count: int, dimension: int = 0) -> list[Any]:
        """Return the next messages without a vector, which no other process gets for a while. Raises `OtherModel`."""
        state = self._begin()
        if state is None:
            return []
        self._require_model(state, dimension)
        if state.queued_to is not None:
            while self._queue_next():
                pass
        while rows := self._taken(count):
            # Messages that were deleted or hidden meanwhile need none.
            if gone := [row[0] for row in rows if row["id"] is None]:
                self._leave_queue(self._database, gone)
            if len(gone) < len(rows):
                return [row for row in rows if row["id"] is not None]
        return []

    def _taken(self, count: int) -> list[Any]:
        with self._database.transaction() as connection:
            return connection.execute(_TAKE, (count,)).fetchall()

    def _leave_queue(self, connection: Engine | Connection, message_ids: Sequence[int]) -> None:
        connection.execute("DELETE FROM missing_vectors WHERE message_id = ANY (?)", (list(message_ids),))

    def give_back(self, message_ids: Sequence[int]) -> None:
        """Let others take messages whose vectors were not made."""
        # If the server is gone, the lease ends by itself.
        with contextlib.suppress(StorageError):
            self._database.execute(
                "UPDATE missing_vectors SET leased_until = 0 WHERE message_id = ANY (?)", (list(message_ids),)
            )

    def save(self, message_ids: Sequence[int], vectors: Sequence[Vector], dimension: int) -> None:
        """Store the vectors of messages that `take` returned, and take these out of the queue."""
        ids = list(message_ids)

        def write() -> None:
            with self._database.transaction() as connection:
                # Locked: the model may change, and a message be hidden or get another owner, at the same time.
                row = connection.execute(f"{_STATE} FOR SHARE OF st").fetchone()
                if (
                    row is None
                    or not row["type"]
                    or (row["model"], row["dimension"]) != (self._model, dimension)
                ):
                    return  # the messages are in the queue for the other model
                connection.execute(
                    "SELECT id FROM messages WHERE id = ANY (?) AND state < 2 ORDER BY id FOR SHARE", (ids,)
                )
                connection.execute("DELETE FROM vectors WHERE message_id = ANY (?)", (ids,))
                if vectors:
                    self._insert(connection, _State(*row), vectors)
                self._leave_queue(connection, ids)

        self._database.retry(write, idempotent=True)

    def _insert(self, connection: Connection, state: _State, vectors: Sequence[Vector]) -> None:
        import numpy

        own = [_literal(numpy.frombuffer(v.own, numpy.int8)) for v in vectors]
        sql = _INSERT.format(type=state.type)
        columns = [[getattr(v, name) for v in vectors] for name in ("message_id", "piece", "first", "last")]
        connection.execute(sql, (*columns, own, [v.words for v in vectors]))

    def is_busy(self) -> bool:
        """Return True if other processes are making vectors."""
        if self._read_state() is None:  # a queue of which nobody makes vectors any more
            return False
        row = self._database.execute(
            """SELECT EXISTS (SELECT 1 FROM missing_vectors)
                OR EXISTS (SELECT 1 FROM vector_state WHERE queued_to IS NOT NULL)"""
        ).fetchone()
        return bool(row[0])

    def missing(self) -> int:
        """Return how many messages have no vector yet."""
        state = self._read_state()
        if state is None and not self._has_column():
            return 0
        queued_to = state.queued_to if state is not None and state.model == self._model else 0
        if queued_to is None:
            return int(self._database.execute("SELECT count(*) FROM missing_vectors").fetchone()[0])
        (count,) = self._database.execute(
            f"""SELECT (SELECT count(*) FROM missing_vectors WHERE message_id <= ?)
                + (SELECT count(*) FROM messages WHERE id > ? AND {HAS_TEXT})""",
            (queued_to, queued_to),
        ).fetchone()
        return int(count)

    def ask_samples(self) -> Callable[[], VectorSamples]:
        """Return a function that returns beginnings of messages of all ages, and the first message without vectors."""
        asked = self._database.ask([(_SAMPLES, ())])

        def samples() -> VectorSamples:
            found = asked()[0]
            rows, state = [row for row in found if row["text"]], self._state or self._read_state()
            if state is not None and state.model == self._model and state.queued_to is None:
                texts = [(row["text"], row["has_vector"]) for row in rows]
                return VectorSamples(texts, found[0]["gap"] if found else None)
            # No message is known to have vectors. A server without pgvector never gets any.
            is_behind = state is not None or self._has_column()
            return VectorSamples(
                (), min((row["timestamp"] for row in rows), default=None) if is_behind else None
            )

        return samples

    def forget(self) -> None:
        """Delete all vectors; the next ones are by this model. If the server has pgvector only now, they begin with it."""
        with self.alone(timeout=-1):
            self._begin()
            self._renew(self._first_dimension)
            self._begin()

    def dimension(self) -> int:
        """Return the number of numbers in a stored vector; 0 before the first one."""
        state = self._read_state()
        return state.dimension if state is not None and state.model == self._model else 0

    def change_dimension(self, dimension: int) -> bool:
        """Store the number of numbers in a vector. Raise `OtherModel` if the stored vectors have another one."""
        self._begin()
        sql = "UPDATE vector_state SET dimension = ? WHERE dimension = 0 AND model = ?"
        self._database.execute(sql, (dimension, self._model))
        self._require_model(self._read_state(), dimension)
        return False

    # ------------------------------------------------------------------ the model, and the queue

    def _read_state(self) -> _State | None:
        """Return the state; None before the first vector, or if the server has no pgvector."""
        row = self._database.execute(_STATE).fetchone()
        self._state = _State(*row) if row is not None and row["type"] else None
        return self._state

    def _has_column(self) -> bool:
        return self._database.execute(f"SELECT ({_COLUMN_TYPE})").fetchone()[0] is not None

    def _begin(self) -> _State | None:
        """Return the state. If there is none yet, this model becomes that of the store.

        Return None if the server has no pgvector. No message waits for its vectors then.
        """
        state = self._read_state()
        if state is None and self._has_column():
            self._create_state()
            state = self._read_state()
        return state

    def _create_state(self) -> None:
        """Let each new message be put into the queue from now on.

        The lock waits for messages that are being stored, and would not be in the queue.
        """
        with self._database.transaction() as connection:
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
            connection.execute("LOCK TABLE messages IN SHARE MODE")
            connection.execute(
                "INSERT INTO vector_state (model, dimension) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
                (self._model, self._first_dimension),
            )

    def _renew(self, dimension: int) -> None:
        """Delete all vectors, and let them be made again by this model."""

        def write() -> None:
            with self._database.transaction() as connection:
                connection.execute(
                    "UPDATE vector_state SET model = ?, dimension = ?, queued_to = 0",
                    (self._model, dimension),
                )
                connection.execute("TRUNCATE vectors")
                _add_column(connection)
                # Another program may be at work on these for the model before.
                connection.execute("UPDATE missing_vectors SET leased_until = 0 WHERE leased_until > 0")

        self._database.retry(write, idempotent=True)
        self._read_state()

    def _queue_next(self) -> bool:
        """Put the next stored messages into the queue; return False if all are, or another program does it."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT queued_to FROM vector_state WHERE queued_to IS NOT NULL FOR UPDATE SKIP LOCKED"
            ).fetchone()
            if row is None:
                return False
            (last,) = connection.execute(
                f"SELECT max(id) FROM (SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT {QUEUED_PER_STEP}) m",
                (row[0],),
            ).fetchone()
            if last is not None:
                # One that was stored meanwhile was in the queue by itself, and may have its vectors.
                connection.execute(
                    f"""INSERT INTO missing_vectors (message_id, owner_key)
                        SELECT id, owner_key FROM messages m WHERE id > ? AND id <= ? AND {HAS_TEXT}
                            AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.message_id = m.id)
                        ON CONFLICT (message_id) DO NOTHING""",
                    (row[0], last),
                )
            connection.execute("UPDATE vector_state SET queued_to = ?::bigint", (last,))
            return last is not None

    # ------------------------------------------------------------------ comparing

    def ask_coverage(self, user: str | None) -> Callable[[], Coverage]:
        """Return a function that returns how many messages of an owner, or of all owners, have a vector.

        The function raises `OtherModel`.
        """
        scope = "SELECT NULL::bigint AS key, coalesce(max(id), 0) AS messages FROM messages"
        condition, parameters = "true", []
        if user is not None:
            scope, parameters = "SELECT key, messages FROM owners WHERE owner = ?", [user]
            condition = "x.owner_key = (SELECT key FROM scope)"
        answer = self._database.ask(
            [
                (
                    f"""WITH scope AS MATERIALIZED ({scope})
                SELECT st.*, (SELECT messages FROM scope) AS messages, (SELECT count(*) FROM (
                    SELECT 1 FROM missing_vectors x WHERE {condition} LIMIT (SELECT messages / 5 + 1 FROM scope)
                ) q) AS missing, EXISTS (SELECT 1 FROM vectors x WHERE {condition}) AS has_vectors
                FROM ({_STATE}) st""",
                    parameters,
                )
            ]
        )
        return lambda: self._coverage_of(answer()[0], user)

    def _coverage_of(self, rows: list[Any], user: str | None) -> Coverage:
        row = rows[0] if rows else None
        self._state = _State(*row[:4]) if row is not None and row["type"] else None
        self._require_model(self._state)
        if row is None or row["queued_to"] is not None:
            return Coverage(False, True)
        if self._state is None:
            return Coverage(False, False)
        if user is None and row["messages"] > MAX_COMPARED:
            log.info("all %d messages of a store are searched by words only", row["messages"])
            return Coverage(False, row["missing"] > 0)
        is_enough = row["has_vectors"] and row["missing"] <= (1 - MIN_COVERAGE) * (row["messages"] or 0)
        return Coverage(bool(is_enough), row["missing"] > 0)

    def ask_nearest(
        self, asked: Array, user: str | None, passing: Condition | None = None
    ) -> tuple[Callable[[], Nearness | None], bool]:
        """Return a function that returns the nearness of the nearest messages of an owner, or of all owners."""
        state = self._state or self._read_state()
        if state is None:
            return lambda: None, True
        condition, parameters = _of_owner(user)
        filters, of_filters = passing or ("true", [])
        sql = _NEAREST.format(
            near=self._near(state), of_owner=f"WHERE {condition}", limit=MAX_NEAREST, passing=filters
        )
        answer = self._database.ask([(sql, (_literal(asked), *parameters, *of_filters))])
        return lambda: self._nearness_of(answer()[0]), False

    def _nearness_of(self, answer: Sequence[Any]) -> Nearness | None:
        """Return the result of the statement `_NEAREST`."""
        import numpy

        (_, count, mean, deviation, highest, *_), *rows = answer
        if not count:
            return None
        rows.sort(key=lambda row: row[0])
        unknown = numpy.zeros(len(rows), numpy.int64)
        return Nearness(
            numpy.array([row[0] for row in rows], numpy.int64),
            numpy.array([row[1] for row in rows]),
            unknown,
            numpy.stack([unknown, unknown], axis=1),
            mean,
            deviation,
            highest,
            [(row[5], row[6], row[7], row[0]) for row in rows if row[5] is not None],
        )

    def ask_around(
        self, places: Sequence[Place], nearness: Nearness, asked: Array, distances: tuple[int, int]
    ) -> Callable[[], Surroundings] | None:
        """Return a function that returns `surroundings` of places; None if there are no vectors."""
        state = self._state or self._read_state()
        if state is None:
            return None
        around = [*([list(column) for column in zip(*places, strict=True)] or [[], []]), *distances]
        sql = _NEAREST_PIECES.format(places=_AROUND, near=self._near(state))
        answer = self._database.ask([(_AROUND, around), (sql, [*around, _literal(asked)])])

        def surroundings() -> Surroundings:
            neighbors, rows = answer()
            own = {(key, position): other for key, position, distance, other in neighbors if not distance}
            return _surroundings_of(
                [
                    (own[key, position], key, distance, other)
                    for key, position, distance, other in neighbors
                    if (key, position) in own
                ],
                rows,
                nearness,
            )

        return surroundings

    def surroundings(
        self, ids: Sequence[int], nearness: Nearness, asked: Array, distances: tuple[int, int]
    ) -> Surroundings:
        """Return the words of messages and of the messages around them."""
        state = self._state or self._read_state()
        of_places = [list(ids), *distances]
        if state is None:
            return Surroundings([], {}, nearness)
        sql = _NEAREST_PIECES.format(places=_PLACES, near=self._near(state))
        statements: list[Statement] = [(_PLACES, of_places), (sql, [*of_places, _literal(asked)])]
        places, rows = self._database.read(statements)
        return _surroundings_of([tuple(row) for row in places], rows, nearness)

    def _near(self, state: _State) -> str:
        """Return the SQL for the cosine between a question and a vector `v`, times `dense.INT8_SCALE`."""
        schema = state.schema
        # As full floats, so that the ranking is that of SQLite.
        product = f"-(v.own::{schema}.vector OPERATOR({schema}.<#>) ?::{schema}.vector)"
        if self._is_unit:
            return product
        # A vector without a direction, all zeros, is near to nothing. All others are longer than 1.
        return f"{product} / greatest({schema}.l2_norm(v.own), 1) * {INT8_SCALE}"

    # ------------------------------------------------------------------ for people

    def description(self) -> str:
        """Return how the vectors are stored, or why there are none, for people."""
        column, version = self._database.execute(
            f"SELECT ({_COLUMN_TYPE}), (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
        ).fetchone()
        return (
            f"pgvector {version}"
            if column is not None
            else "the tables have no vectors of the extension pgvector"
        )

    def remedy(self) -> str:
        """Return what a person can do so that there are vectors; "" if there are."""
        if self._has_column():
            return ""
        if self._database.execute(_HALFVEC).fetchone() is not None:
            return "hermes-memory sessions rebuild makes them with the extension vector, which the server has now"
        return "let an administrator run CREATE EXTENSION vector in this database, then hermes-memory sessions rebuild"


def _surroundings_of(
    places: Sequence[tuple[int, int, int, int]], rows: Sequence[Any], nearness: Nearness
) -> Surroundings:
    """Return surroundings from the rows of `_NEAREST_PIECES`."""
    import numpy

    nearness = Nearness(
        numpy.array([row["message_id"] for row in rows], numpy.int64),
        numpy.array([row["near"] for row in rows], numpy.float64),
        numpy.array([row["piece"] for row in rows], numpy.int64),
        numpy.array([(row["first"], row["last"]) for row in rows], numpy.int64).reshape(-1, 2),
        nearness.mean,
        nearness.deviation,
        nearness.highest,
    )
    return Surroundings(places, {row["message_id"]: row["words"] for row in rows if row["words"]}, nearness)


def _of_owner(user: str | None) -> tuple[str, list[Any]]:
    """Return the condition on the vectors `v` of an owner, or of all owners."""
    if user is None:
        return "true", []
    return "v.owner_key = (SELECT key FROM owners WHERE owner = ?)", [user]


def _literal(vector: Array) -> str:
    """Return a vector as pgvector reads it."""
    return f"[{','.join(map(str, vector.tolist()))}]"

"""PostgreSQL databases: a pool of connections, transactions, migrations, and errors with a remedy.

A connection is held for one statement or one transaction, and no state is left on it: a connection pooler may give it
to another program after each transaction. So there is no SET but SET LOCAL, no lock beyond a transaction, and no
temporary table. psycopg is imported when the first database is constructed.

The pool is our own. That of psycopg_pool 3.3 opens connections in threads and tells a waiting caller of a server that
refuses it only after the whole timeout, without the reason; after a restart of the server it sleeps 1, 2, 4 s between
connections that are dead. A turn must hear at once that nothing can be stored, and why.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.packages import install_remedy
from hermes_core.storage.engine import (
    CommitInDoubt,
    CommitUnconfirmed,
    Connection,
    Dialect,
    RowConflict,
    Statement,
    TransactionAborted,
    ValueRejected,
    run_callbacks,
)
from hermes_core.storage.moved import MOVED_REMEDY, StoreMark, refuse_marked
from hermes_memory_postgresql.marks import MOVED_CODE

if TYPE_CHECKING:
    import psycopg

    from hermes_memory_postgresql.connection import PostgresConnection

Result = TypeVar("Result")

DIALECT = Dialect(
    now="extract(epoch FROM clock_timestamp())::double precision",
    row_lock=" FOR UPDATE",
    any_of="{} = ANY (?)",
    indexed_by="",
    # Of the transaction, never of the session: a pooler gives the connection to another program afterwards.
    name_lock="SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || ?, 0))",
    # JSON is stored as text of this package, so that it can be read without a check.
    calls="""(SELECT coalesce(value -> 'function' ->> 'name', value ->> 'name', '') AS name
        FROM json_array_elements({0}::json))""",
)

# Whether statements are prepared on the server: "off" for PgBouncer before 1.21 in transaction mode.
Prepare = Literal["auto", "off"]

# A step of the schema: its name, and the function that makes it.
PostgresMigration = tuple[str, Callable[[Connection], None]]

MINIMUM_POSTGRES = 15

# Seconds to wait for a server to accept a connection. A turn must say at once that nothing can be stored.
CONNECT_TIMEOUT_S = 2

# A server that took as long as this to refuse a connection is silent, and is not tried again for a while.
SILENT_S = 1.0
SILENT_PAUSE_S = 5.0

# Seconds after which a host that acknowledges nothing any more is given up.
VANISHED_S = 10.0

# Seconds that one statement may take, also while it waits for a lock.
STATEMENT_TIMEOUT_S = 30.0

# Seconds that a commit may wait for a synchronous standby. The server itself waits without end.
COMMIT_TIMEOUT_S = 10.0

# A suspended program must not hold the locks of its transaction for ever.
IDLE_TIMEOUT_S = 60.0

# Seconds that statements may take when the program ends.
EXIT_TIMEOUT_S = 1.0

MAX_CONNECTIONS = 8

# Times that a write is repeated after a conflict, in each of which another program has stored its own: programs that
# all want the next free number of one title, for instance.
MAX_CONFLICTS = 20

# Rows in one INSERT, so that no statement becomes very long.
ROWS_PER_INSERT = 500

# Key of the lock under which migrations run. Any number that other programs do not use.
MIGRATION_LOCK = 0x6865726D6573

_NOT_STORED = "nothing was stored"

# What the server says of a prepared statement whose rows would have other columns than before.
_OUTDATED_PLAN = "cached plan must not change result type"

# Code of a warning that has no code of its own.
_WARNING = "01000"

# Errors of a statement that is right, in a schema whose tables somebody changed: of tables, columns and types that are
# gone, and of those that are there already although no migration was recorded.
_SCHEMA_CODES = frozenset({"3F000", "42P01", "42703", "42704", "42883", "42P07", "42701", "42710"})

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*') | (?P<name>"[^"]*") | (?P<cast>::) | :(?P<parameter>[A-Za-z_]\w*)
        | (?P<mark>\?) | (?P<percent>%) | (?<![.\w])(?P<role>user)\b""",
    re.VERBOSE | re.IGNORECASE,
)
# Not those of the server itself, in which nobody may make tables.
_SCHEMA_NAME = re.compile(r"(?!pg_|information_schema\Z)[a-z_][a-z0-9_]{0,62}")
_CLOCK = f"SELECT {DIALECT.now}"
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|NEXTVAL|CREATE|DROP|ALTER)\b", re.IGNORECASE)


class ConnectionLost(TransactionAborted):
    """Connection that was lost before a commit. Nothing was stored."""


class ServerUnreachable(ConnectionLost):
    """Server that accepts no connection. Another try at once would not help."""


@functools.lru_cache(maxsize=2048)
def psycopg_sql(sql: str) -> str:
    """Return a statement with the parameters of psycopg (`%s`, `%(name)s`) in place of `?` and `:name`.

    Raises:
        StorageError: The statement has the word `user` without quotes or a table, which is the database role there.
    """

    def replacement(match: re.Match[str]) -> str:
        if match["role"]:
            raise StorageError(
                f"a statement compares with the database role: {sql!r}",
                'write s.user or "user" for the column',
            )
        if match["mark"]:
            return "%s"
        if match["parameter"]:
            return f"%({match['parameter']})s"
        return match[0].replace("%", "%%")

    return _TOKEN.sub(replacement, sql)


class Row(tuple[Any, ...]):
    """A row that can be indexed by position and by the name of a column."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names[key] if isinstance(key, str) else key)

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.names)


@functools.lru_cache(maxsize=512)
def _row_class(names: tuple[str, ...]) -> type[Row]:
    return type("Row", (Row,), {"names": {name: at for at, name in enumerate(names)}})


def _row_factory(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Any]:
    return _row_class(tuple(column.name for column in cursor.description or ()))


class Link(NamedTuple):
    """The way to the server: what a check of it needs.

    Attributes:
        host: The host of the connection; "" or a folder for a socket of this machine.
        sslmode: How far the connection must be encrypted.
        encrypted: True if it is encrypted.
        pid: Number of the process that serves the connection, as the other end says: a pooler's own number behind one.
    """

    host: str
    sslmode: str
    encrypted: bool
    pid: int


class ResultRows:
    """The rows of a statement, all of which have been read."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self.rowcount = rowcount
        self._rows = iter(rows)

    def fetchone(self) -> Any:
        """Return the next row; None after the last one."""
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        """Return all further rows."""
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class _Question:
    """Statements that travel with the next read of their thread.

    Attributes:
        statements: The statements.
        waits: True as long as they may travel with another read.
        rows: The rows of each; None as long as they were not read.
    """

    def __init__(self, database: PostgresDatabase, statements: Sequence[Statement]) -> None:
        self._database = database
        self.statements = statements
        self.waits = True
        self.rows: list[list[Any]] | None = None

    def __call__(self) -> list[list[Any]]:
        """Return the rows, and read them first if that has not been done."""
        if self.rows is None:
            self.waits = False
            self.rows = self._database.read(self.statements)
        return self.rows


class PostgresDatabase:
    """The tables of one home in a PostgreSQL database, connected when they are first used.

    Threads may share it, and any number of processes and machines may use the same tables. A commit that returned is on
    the disk of the server, and on its synchronous standby if there is one.

    Args:
        url: Address of the server in the form of libpq, such as postgresql://hermes@db1,db2/hermes. Without a password.
        migrations: Named functions that bring the schema up to date, in order.
        schema: Name of the schema with the tables. It is created if the role may do so.
        password: The password of the role; "" if PGPASSFILE, a service file or the server's rules give access.
        pool: Largest number of connections of this process.
        prepare: "off" if a connection pooler can't keep prepared statements.
        read_only: True to leave the schema as it is.
        statement_timeout: Seconds that one statement may take.
        marked: True to open a store that is moved to another engine, which others refuse.
    """

    shared = True
    dialect = DIALECT
    exists = True

    def __init__(
        self,
        url: str,
        migrations: Sequence[PostgresMigration] = (),
        *,
        schema: str = "hermes",
        password: str = "",
        pool: int = MAX_CONNECTIONS,
        prepare: Prepare = "auto",
        read_only: bool = False,
        statement_timeout: float = STATEMENT_TIMEOUT_S,
        marked: bool = False,
    ) -> None:
        try:
            import psycopg

            from hermes_memory_postgresql.connection import PostgresConnection
        except ImportError as exc:
            raise DatabaseUnavailable(
                f"psycopg can't be imported ({exc})", install_remedy("hermes-memory-postgresql")
            ) from exc
        self._psycopg, self._connection_class = psycopg, PostgresConnection
        if not _SCHEMA_NAME.fullmatch(schema):
            raise DatabaseUnavailable(
                f"storage.schema {schema!r} is no name of a schema",
                "use lower-case letters, digits and _, at most 63 characters, and none of the server's own such as pg_x",
            )
        self._schema = schema
        self._migrations = tuple(migrations)
        self._prepare = prepare
        self._read_only = read_only
        self._timeout = statement_timeout
        self._marked = marked
        self._conninfo = _conninfo(url, password)
        self._again = functools.partial(
            type(self), url, (), schema=schema, password=password, pool=1, prepare=prepare, read_only=True
        )
        self._address = _label(self._conninfo)
        self.label = f"{self._address} schema {schema}"
        self._slots = threading.BoundedSemaphore(pool)
        self._pool_size = pool
        self._idle: list[PostgresConnection] = []
        # Kept, so that a fork does not free the connections of its parent.
        self._parents: list[PostgresConnection] = []
        self._lock = threading.Lock()
        self._local = threading.local()
        _DATABASES.add(self)
        self._ready = self._closed = False
        self._takes_options, self._hurries = True, False
        # Seconds that the server's clock is ahead of this machine's; None if it was not reached yet.
        self._clock_offset: float | None = None
        self._silent: tuple[float, ConnectionLost] | None = None

    # ------------------------------------------------------------------ statements

    def execute(self, sql: str, parameters: Any = ()) -> ResultRows:
        """Run one statement, in the current thread's transaction if there is one.

        A statement that only reads takes one round trip, and is repeated once if its connection was lost. Any other is a
        transaction of its own.
        """
        if (transaction := self._transaction) is not None:
            return transaction.execute(sql, parameters)
        if _WRITES.search(sql) is not None:
            with self.transaction() as connection:
                result: ResultRows = connection.execute(sql, parameters)  # type: ignore[assignment]  # a _Transaction's
                return result
        return self._read([(sql, parameters)])[0]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Make the statements of the `with` block one commit; roll back if the block raises.

        The connection is taken with the first statement. An inner transaction of the same thread joins the outer one.
        Of two transactions that change the same row, the second waits for the first.
        """
        if (outer := self._transaction) is not None:
            outer.depth += 1
            try:
                yield outer
            finally:
                outer.depth -= 1
            return
        current = _Transaction(self)
        self._local.transaction = current
        try:
            yield current
            current.commit()
        finally:
            self._local.transaction = None
            current.end()
        run_callbacks(current.callbacks)

    @property
    def in_transaction(self) -> bool:
        """True within a `transaction` of the current thread."""
        return self._transaction is not None

    def read(self, statements: Sequence[Statement]) -> list[list[Any]]:
        """Run statements that change nothing, in one round trip, and return the rows of each."""
        if (transaction := self._transaction) is not None:
            return [result.fetchall() for result in transaction.run(statements)]
        return [result.fetchall() for result in self._read(statements)]

    def ask(self, statements: Sequence[Statement]) -> Callable[[], list[list[Any]]]:
        """Return a function that returns the rows of statements; they travel with the next read of this thread."""
        question = _Question(self, statements)
        waiting = [*self._questions(), question]
        # An answer that nobody can ask for any more is not read.
        self._local.questions = [weakref.ref(each) for each in waiting]
        return question

    def _questions(self) -> list[_Question]:
        """Return the questions of this thread that wait for an answer."""
        references = getattr(self._local, "questions", ())
        return [question for reference in references if (question := reference()) and question.waits]

    def _read(self, statements: Sequence[Statement]) -> list[ResultRows]:
        """Run statements that change nothing, and those of the waiting questions, in one round trip."""
        waiting, self._local.questions = self._questions(), []
        for question in waiting:
            question.waits = False
        together = [*statements, *(statement for question in waiting for statement in question.statements)]

        def run(sent: Sequence[Statement]) -> list[ResultRows]:
            with self._connection() as connection, self._errors(connection):
                return self.send(connection, sent)

        try:
            results = self._again_if_lost(functools.partial(run, together))
        except ConnectionLost:
            raise
        except StorageError:
            if not (waiting and statements):
                raise
            # Each question is asked alone then, and has its own error.
            return self._again_if_lost(functools.partial(run, statements))
        rest = iter(results[len(statements) :])
        for question in waiting:
            question.rows = [next(rest).fetchall() for _ in question.statements]
        return results[: len(statements)]

    def batch(self, statements: Sequence[Statement], *, durable: bool = True) -> list[list[Any]]:  # noqa: ARG002
        """Run statements in one round trip, as one transaction, and return the rows of each.

        If the connection was lost meanwhile, they are run again.
        """
        return self.retry(lambda: self._run(statements, last=self._transaction is None), idempotent=True)

    def _run(self, statements: Sequence[Statement], *, last: bool) -> list[list[Any]]:
        with self.transaction():
            transaction = self._transaction
            assert transaction is not None
            # At a depth of more than one, further statements of an outer transaction may follow.
            results = transaction.run(statements, last=last and transaction.depth <= 1)
            return [result.fetchall() for result in results]

    def insert(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        key: str,
        further: Sequence[Statement] = (),
        *,
        last: bool = False,
    ) -> tuple[list[int], list[list[Any]]]:
        """Insert rows with the same columns, run further statements, and return the keys of the rows in order.

        All of this is one round trip, also the commit if it is the last of the transaction. The rows of the further
        statements are returned as well.
        """
        inserts: list[Statement] = []
        for start in range(0, len(rows), ROWS_PER_INSERT):
            part = rows[start : start + ROWS_PER_INSERT]
            # Quoted, because `user` is the database role.
            names = ", ".join(f'"{name}"' for name in part[0])
            marks = ", ".join([f"({', '.join('?' * len(part[0]))})"] * len(part))
            sql = f"INSERT INTO {table} ({names}) VALUES {marks} RETURNING {key}"
            inserts.append((sql, [value for row in part for value in row.values()]))
        results = self._run([*inserts, *further], last=last)
        # Rows are numbered in the order in which they stand in the statement.
        keys = sorted(row[0] for result in results[: len(inserts)] for row in result)
        return keys, results[len(inserts) :]

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` after the commit of the current thread's transaction, or now if there is none."""
        if (transaction := self._transaction) is not None:
            transaction.callbacks.append(callback)
        else:
            run_callbacks([callback])

    def retry(self, write: Callable[[], Result], *, idempotent: bool) -> Result:
        """Call `write`, and call it again if the server rolled it back.

        If the connection was lost during the commit, call it again only if it is `idempotent`.
        """
        doubt: CommitInDoubt | None = None
        lost = False
        for number in range(MAX_CONFLICTS + 1):
            try:
                return write()
            except DatabaseUnavailable as exc:
                if doubt is not None and not isinstance(exc, CommitInDoubt | RowConflict):
                    # Only this try stored nothing: the one before may have.
                    raise CommitInDoubt(doubt.message, doubt.remedy) from exc
                if self.in_transaction or number == MAX_CONFLICTS:
                    raise
                if isinstance(exc, RowConflict):
                    continue
                # Another try would wait as long.
                is_final = isinstance(exc, ServerUnreachable | CommitUnconfirmed)
                is_in_doubt = isinstance(exc, CommitInDoubt)
                if (
                    lost
                    or is_final
                    or not (isinstance(exc, TransactionAborted) or (is_in_doubt and idempotent))
                ):
                    raise
                lost, doubt = True, exc if isinstance(exc, CommitInDoubt) else None
        raise AssertionError("the last try returns or raises")

    def integrity(self) -> list[str]:
        """Return a line for each fault that keeps the tables from being used."""
        try:
            self.execute("SELECT 1")
        except (DatabaseUnavailable, DatabaseCorrupt) as exc:
            return [str(exc)]
        return []

    def now(self) -> float:
        """Return the time of day in epoch seconds by the clock of the server, as far as it was reached so far."""
        if self._clock_offset is None:
            with contextlib.suppress(DatabaseUnavailable):  # who asks finds out next
                self.execute("SELECT 1")
        return time.time() + (self._clock_offset or 0.0)

    def link(self) -> Link:
        """Return the way to the server."""
        with self._connection() as connection:
            info = connection.info
            mode = info.get_parameters().get("sslmode", "")
            return Link(info.host, mode, bool(connection.pgconn.ssl_in_use), info.backend_pid)

    def shorten_waits(self) -> None:
        """Let statements take at most a second from now on, because the program ends."""
        self._timeout = min(self._timeout, EXIT_TIMEOUT_S)
        self._hurries = True

    def reopen(self) -> PostgresDatabase:
        """Return a database with the same tables, for a thread that outlives this one."""
        return self._again()

    def close(self) -> None:
        """Refuse further use, and close the connections that no transaction holds."""
        with self._lock:
            self._closed = True
            connections, self._idle = self._idle, []
        for connection in connections:
            connection.close()

    # ------------------------------------------------------------------ connections

    @property
    def _transaction(self) -> _Transaction | None:
        current: _Transaction | None = getattr(self._local, "transaction", None)
        return current

    @contextlib.contextmanager
    def _connection(self) -> Iterator[PostgresConnection]:
        """Hold a connection of the pool for the block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.put_back(connection)

    def take(self) -> PostgresConnection:
        """Take a connection out of the pool, or open a new one.

        Raises:
            DatabaseUnavailable: The server can't be reached, or all connections of this process stayed in use.
            DatabaseCorrupt: The tables do not fit the record of migrations.
        """
        if not self._slots.acquire(timeout=self._timeout):
            raise DatabaseUnavailable(
                f"all {self._pool_size} connections to {self.label!r} are in use",
                "raise storage.pool in config.yaml, or see what holds them",
            )
        with contextlib.ExitStack() as undo:
            undo.callback(self._slots.release)
            connection = self._idle_connection()
            if connection is None:
                connection = self._new_connection()
                undo.callback(connection.close)
                self._prepare_schema(connection)
            undo.pop_all()
        return connection

    def put_back(self, connection: PostgresConnection) -> None:
        """Give a connection back to the pool. One that was lost, or is in a transaction, is closed."""
        status = self._psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            usable = (
                not self._closed and not connection.closed and connection.info.transaction_status == status
            )
            if usable:
                self._idle.append(connection)
        if not usable:
            connection.close()
        self._slots.release()

    def send(
        self, connection: PostgresConnection, statements: Sequence[Statement], before: Sequence[str] = ()
    ) -> list[ResultRows]:
        """Send statements in one round trip, after those of `before`, and return the results of `statements`."""
        cursors = self._send(connection, [*((text, ()) for text in before), *statements])
        return [_rows_of(cursor) for cursor in cursors[len(before) :]]

    def _send(
        self, connection: PostgresConnection, statements: Sequence[Statement]
    ) -> list[psycopg.Cursor[Any]]:
        # As a pipeline and not as one text: the server then keeps the plans, which cost it more than their execution.
        cursors: list[psycopg.Cursor[Any]] = []
        error: BaseException | None = None
        try:
            with connection.pipeline():
                try:
                    for sql, parameters in statements:
                        cursors.append(connection.execute(psycopg_sql(sql), parameters))
                except self._psycopg.Error as exc:
                    # With an error on its way, psycopg would log a line about the end of the pipeline.
                    error = exc
        except self._psycopg.errors.PipelineAborted as exc:
            # It says only that later statements were not run, and may hide the error of the one that failed.
            error = error or exc.__context__ or exc
        except self._psycopg.Error as exc:
            error = error or exc
        if error is not None:
            # psycopg takes the statements after the failed one for prepared. A rollback makes it forget them; without a
            # transaction nothing does.
            if connection.info.transaction_status == self._psycopg.pq.TransactionStatus.IDLE:
                connection.close()
            raise error.with_traceback(None)
        return cursors

    def commit(
        self,
        connection: PostgresConnection,
        statements: Sequence[Statement] = (),
        before: Sequence[str] = (),
    ) -> list[ResultRows]:
        """Commit the transaction of a connection, and return the results of `statements`.

        Args:
            connection: The connection.
            statements: Last statements of the transaction, which travel with the commit.
            before: Statements that begin the transaction, if these are all of it.

        Raises:
            CommitInDoubt: The connection was lost, or no standby confirmed the commit: it may have been stored.
            TransactionAborted: A statement of the transaction failed, so that the server rolled it back.
        """
        warnings: list[str | None] = []

        def note(diagnostic: psycopg.errors.Diagnostic) -> None:
            warnings.append(diagnostic.sqlstate)

        connection.add_notice_handler(note)
        timeout = min(COMMIT_TIMEOUT_S, self._timeout)
        begin: list[Statement] = [(text, ()) for text in before]
        connection.deadline = time.monotonic() + timeout
        try:
            with self._errors(connection, in_doubt=True):
                *cursors, end = self._send(connection, [*begin, *statements, ("COMMIT", ())])
        finally:
            connection.deadline = None
            connection.remove_notice_handler(note)
        if end.statusmessage != "COMMIT":
            raise TransactionAborted(
                f"a transaction on {self.label!r} was rolled back", f"try again; {_NOT_STORED}"
            )
        # The server says COMMIT also if it stopped to wait for the standby, and adds a warning.
        if _WARNING in warnings:
            raise CommitUnconfirmed(
                f"no standby of {self.label!r} confirmed a commit within {timeout:g} s",
                "see why the synchronous standby does not answer; the write is on the primary only, and may be lost with it",
            )
        return [_rows_of(cursor) for cursor in cursors[len(before) :]]

    def _idle_connection(self) -> PostgresConnection | None:
        with self._lock:
            if self._closed:
                raise DatabaseUnavailable(f"{self.label!r} was closed", "open it again")
            while self._idle:
                connection = self._idle.pop()
                if connection.is_alive():
                    return connection
                connection.close()
        return None

    def forget_parent(self) -> None:
        """In a process that was just forked, forget what is in use by the threads of its parent.

        The connections are the parent's, and threads that held a lock or a connection do not exist here.
        """
        self._parents, self._idle = [*self._parents, *self._idle], []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._pool_size)

    def _new_connection(self) -> PostgresConnection:
        """Open a connection.

        After a server gave no answer in time, fail at once for some seconds: a turn makes several statements, and each
        would wait for its own timeout.
        """
        started = time.monotonic()
        if self._silent is not None and started < self._silent[0]:
            raise ServerUnreachable(self._silent[1].message, self._silent[1].remedy)
        try:
            with self._errors():
                return self._connect()
        except ConnectionLost as exc:
            if time.monotonic() - started >= SILENT_S:
                self._silent = time.monotonic() + SILENT_PAUSE_S, exc
            raise ServerUnreachable(exc.message, exc.remedy) from exc

    def _connect(self) -> PostgresConnection:
        options: dict[str, Any] = {}
        if self._takes_options:
            settings = {"search_path": self._schema, **self._timeouts()}
            own = " ".join(f"-c {name}={value}" for name, value in settings.items())
            options["options"] = f"{self._conninfo.get('options') or ''} {own}".strip()
        try:
            connection = self._connection_class.connect(
                **{**self._conninfo, **options}, autocommit=True, row_factory=_row_factory
            )
        except self._psycopg.OperationalError as exc:
            if not self._takes_options or "startup parameter" not in str(exc):
                raise
            self._takes_options = False  # a pooler: the role brings its settings then
            return self._connect()
        connection.prepare_threshold = None if self._prepare == "off" else 5
        connection.adapt()
        return connection

    def _timeouts(self) -> dict[str, int]:
        """Return the settings of the server that bound statements and transactions, in milliseconds."""
        return {
            "statement_timeout": int(self._timeout * 1000),
            "idle_in_transaction_session_timeout": int(IDLE_TIMEOUT_S * 1000),
        }

    def begin(self) -> list[str]:
        """Return the statements that begin a transaction, with the timeouts that its connection does not have yet."""
        if self._takes_options and not self._hurries:
            return ["BEGIN"]
        return ["BEGIN", *(f"SET LOCAL {name} = {value}" for name, value in self._timeouts().items())]

    def _again_if_lost(self, call: Callable[[], Result]) -> Result:
        """Call `call`, and call it again if its connection was lost, as all are after a restart of the server."""
        try:
            return call()
        except ServerUnreachable:
            raise
        except ConnectionLost:
            self._close_idle()  # others of the same age are lost as well
            return call()

    def _close_idle(self) -> None:
        with self._lock:
            stale, self._idle = self._idle, []
        for connection in stale:
            connection.close()

    # ------------------------------------------------------------------ schema

    def _prepare_schema(self, connection: PostgresConnection) -> None:
        """Compare the clocks. Check the server, and bring the schema up to date; once for each process."""
        with self._errors():
            # With each connection, because the clock of this machine may be set meanwhile.
            asked = time.time()
            (clock,) = connection.execute(_CLOCK).fetchone() or (asked,)
            self._clock_offset = clock - (asked + time.time()) / 2
        with self._lock:
            if self._ready:
                return
        with self._errors(), self._schema_errors():
            version = connection.info.server_version // 10000
            if version < MINIMUM_POSTGRES:
                raise DatabaseUnavailable(
                    f"{self.label!r} runs PostgreSQL {version}", f"{MINIMUM_POSTGRES} or newer is needed"
                )
            (path,) = connection.execute("SELECT current_setting('search_path')").fetchone() or ("",)
            if path.split(",")[0].strip().strip('"') != self._schema:
                raise DatabaseUnavailable(
                    f"connections to {self._address!r} use the schema {path!r}, not {self._schema!r}",
                    f"a connection pooler drops settings: run ALTER ROLE {connection.info.user} "
                    f"SET search_path = {self._schema}",
                )
            if not self._read_only:
                self._migrate(connection)
        with self._lock:
            self._ready = True

    @contextlib.contextmanager
    def _schema_errors(self) -> Iterator[None]:
        """Raise `DatabaseUnavailable` if the schema has tables that are not ours."""
        try:
            yield
        except self._psycopg.ProgrammingError as exc:
            if (exc.sqlstate or "") in _REMEDIES:
                raise  # a right that is missing
            text = " ".join(str(exc).split())
            raise DatabaseUnavailable(
                f"the schema {self._schema!r} of {self._address!r} can't hold the tables of this home: {text}",
                "another program's tables are there: let storage.schema name a schema of this home's own",
            ) from exc

    def _migrate(self, connection: PostgresConnection) -> None:
        """Run the migrations that these tables have no record of, in one transaction, while other processes wait."""
        names = [name for name, _ in self._migrations]
        done = self._recorded(connection)
        if not self._marked:
            refuse_marked(done, self.label)
        if set(names) <= set(done):
            self._refuse_newer(done, names)
            return
        connection.execute("BEGIN")  # after an error the connection is closed, which rolls back
        connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (MIGRATION_LOCK,))
        if connection.execute("SELECT to_regnamespace(%s)", (f'"{self._schema}"',)).fetchone()[0] is None:  # type: ignore[index]
            connection.execute(f'CREATE SCHEMA "{self._schema}"')
        connection.execute(
            'CREATE TABLE IF NOT EXISTS schema_migrations (name TEXT COLLATE "C" PRIMARY KEY,'
            " number BIGINT GENERATED ALWAYS AS IDENTITY, applied_at DOUBLE PRECISION NOT NULL)"
        )
        done = self._recorded(connection)
        self._refuse_newer(done, names)
        adapter = _Statements(connection)
        for name, step in self._migrations:
            if name not in done:
                step(adapter)
                connection.execute(
                    "INSERT INTO schema_migrations (name, applied_at) VALUES (%s, %s)",
                    (name, time.time()),
                )
        self.commit(connection)

    def _recorded(self, connection: PostgresConnection) -> list[str]:
        sql = "SELECT to_regclass(%s)"
        if connection.execute(sql, (f'"{self._schema}".schema_migrations',)).fetchone()[0] is None:  # type: ignore[index]
            return []
        return [row[0] for row in connection.execute("SELECT name FROM schema_migrations ORDER BY number")]

    def _refuse_newer(self, done: Sequence[str], known: Sequence[str]) -> None:
        done = [name for name in done if StoreMark.parse(name) is None]
        if done and done[-1] not in known and set(done).issuperset(known):
            raise DatabaseUnavailable(
                f"the schema {self._schema!r} of {self._address!r} was changed by a newer version of the package "
                f"(it has {done[-1]!r})",
                "upgrade the package on this machine; nothing was changed",
            )

    # ------------------------------------------------------------------ errors

    @contextlib.contextmanager
    def _errors(
        self, connection: PostgresConnection | None = None, *, in_doubt: bool = False
    ) -> Iterator[None]:
        """Translate errors of psycopg, and numbers that are too large for it.

        Args:
            connection: The connection on which the block runs statements that may be prepared.
            in_doubt: True if a lost connection leaves it open whether the block was stored.
        """
        try:
            yield
        except self._psycopg.Error as exc:
            if connection is not None and exc.sqlstate == "0A000" and _OUTDATED_PLAN in str(exc):
                # A newer version of this package has changed a table. Each open connection has such plans.
                connection.close()
                self._close_idle()
                raise ConnectionLost(
                    f"the tables of {self.label!r} were changed by another program just now",
                    f"try again; {_NOT_STORED}",
                ) from exc
            raise self._storage_error(exc, in_doubt) from exc
        except OverflowError as exc:
            raise self._rejected(exc) from exc

    def _rejected(self, exc: Exception) -> ValueRejected:
        return ValueRejected(f"{self.label!r} does not take a value: {' '.join(str(exc).split())}")

    def _storage_error(self, exc: psycopg.Error, in_doubt: bool) -> StorageError:
        state, text = exc.sqlstate or "", " ".join(str(exc).split())
        subject = f"can't use {self.label!r}: {text}"
        if state in ("XX001", "XX002"):
            return DatabaseCorrupt(
                f"{self.label!r} is damaged ({text})",
                "restore a backup of the server, or fail over to a standby",
            )
        if state in _SCHEMA_CODES:
            return DatabaseCorrupt(
                f"the schema {self._schema!r} of {self._address!r} is damaged ({exc.diag.message_primary or text})",
                "undo what another program changed in it, or restore a backup of the server",
            )
        if state in ("0A000", "58P01") and "extension" in text:
            return DatabaseUnavailable(
                subject,
                "install it on the server: it is in the package postgresql-contrib, or in one of its own",
            )
        if state in ("40001", "40P01"):
            return RowConflict(subject, f"try again; {_NOT_STORED}")
        if state == "25P03":  # this program was suspended within a transaction
            return TransactionAborted(subject, f"try again; {_NOT_STORED}")
        if state == "23505":
            return RowConflict(
                f"another program stored the same row at the same moment: {text}", f"try again; {_NOT_STORED}"
            )
        # A refused connection has no code.
        state = state or next((code for sign, code in _SIGNS.items() if sign in text), "")
        for prefix, remedy in _REMEDIES.items():
            if state.startswith(prefix):
                ending = "" if remedy == MOVED_REMEDY else f"; {_NOT_STORED}"
                return DatabaseUnavailable(subject, f"{remedy}{ending}")
        lost = state[:2] in ("08", "57") or (
            not state and isinstance(exc, (self._psycopg.OperationalError, self._psycopg.InterfaceError))
        )
        if not lost:
            kinds = (
                self._psycopg.IntegrityError,
                self._psycopg.DataError,
                self._psycopg.errors.DatatypeMismatch,
            )
            # Without a code, psycopg refused a value itself.
            if isinstance(exc, kinds) or (not state and isinstance(exc, self._psycopg.ProgrammingError)):
                return self._rejected(exc)
            return DatabaseUnavailable(subject, f"see the log of the server; {_NOT_STORED}")
        if in_doubt:
            return CommitInDoubt(
                f"the connection to {self.label!r} was lost during a commit: {text}",
                "the last write may have been stored: look before it is repeated",
            )
        return ConnectionLost(
            f"can't reach {self.label!r}: {text}",
            f"start the server, or check storage.url in config.yaml; {_NOT_STORED}",
        )


_NO_PREPARE = 'a connection pooler does not keep prepared statements: write prepare: "off" under storage: in config.yaml'

_REMEDIES = {
    MOVED_CODE: MOVED_REMEDY,
    "26000": _NO_PREPARE,
    "42P05": _NO_PREPARE,
    "28": "check the role in storage.url, and its password in HERMES_STORAGE_PASSWORD of .env or in PGPASSFILE",
    "3D": "create the database, or check storage.url in config.yaml",
    "42501": "grant the role what is missing",
    "53100": "free space on the server's disk",
    "53": "the server is at its limits: lower storage.pool, or put a connection pooler in front of it",
    "57014": "see what the server is busy with",
    "55P03": "see which transaction holds the lock",
    "25006": "this server takes no writes: add target_session_attrs=read-write to storage.url, or see whether the role has "
    "default_transaction_read_only",
}


# What libpq says of a connection that the server refuses, and the code of the reason.
_SIGNS = {
    "no password supplied": "28P01",
    "password authentication failed": "28P01",
    "pg_hba.conf": "28000",
    'role "': "28000",
    'database "': "3D000",
    "too many": "53300",
    "remaining connection slots": "53300",
    "session is read-only": "25006",
}


class _Statements:
    """Execution of statements on a psycopg connection."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Any = (), /) -> ResultRows:
        return _rows_of(self._connection.execute(psycopg_sql(sql), parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> ResultRows:
        results = [self.execute(sql, values) for values in parameters]
        return ResultRows([], sum(result.rowcount for result in results))


class _Transaction:
    """A transaction of one thread. Its connection is taken with the first statement, and BEGIN travels with it."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._process = os.getpid()
        self._connection: PostgresConnection | None = None
        self._committed = False
        self.depth = 0  # of the inner transactions that have joined this one
        self.callbacks: list[Callable[[], None]] = []

    def execute(self, sql: str, parameters: Any = (), /) -> ResultRows:
        """Run one statement."""
        if self._connection is None:
            return self.run([(sql, parameters)])[0]
        assert not self._committed, "a statement after the last one of its transaction"
        self._refuse_fork()
        with self._database._errors(self._connection):
            return _rows_of(self._connection.execute(psycopg_sql(sql), parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> ResultRows:
        """Run one statement with each of several sets of parameters, in one round trip."""
        results = self.run([(sql, values) for values in parameters])
        return ResultRows([], sum(result.rowcount for result in results))

    def run(self, statements: Sequence[Statement], *, last: bool = False) -> list[ResultRows]:
        """Run statements in one round trip, with the BEGIN if they are the first ones.

        Args:
            statements: The statements.
            last: True to commit in the same round trip. No statement of this transaction may follow.
        """
        if not statements:
            return []
        assert not self._committed, "statements after the last one of their transaction"
        self._refuse_fork()
        database = self._database
        if last:
            begin = database.begin() if self._connection is None else ()
            if self._connection is None:
                self._connection = database.take()
            results = database.commit(self._connection, statements, begin)
            self._committed = True
            return results
        if self._connection is not None:
            with database._errors(self._connection):
                return database.send(self._connection, statements)

        def first() -> list[ResultRows]:
            connection = database.take()
            with contextlib.ExitStack() as undo, database._errors(connection):
                undo.callback(self._roll_back, connection)
                results = database.send(connection, statements, database.begin())
                undo.pop_all()
            self._connection = connection
            return results

        # Nothing else has been done in this transaction, so its beginning may be repeated on another connection.
        return database._again_if_lost(first)

    def commit(self) -> None:
        """Commit what was done, as `PostgresDatabase.commit` does."""
        self._refuse_fork()
        if self._connection is not None and not self._committed:
            self._database.commit(self._connection)

    def end(self) -> None:
        """Roll back what was not committed, and give the connection back."""
        connection, self._connection = self._connection, None
        if connection is not None and self._process == os.getpid():
            self._roll_back(connection)

    def _refuse_fork(self) -> None:
        """Raise `DatabaseUnavailable` in a process that was forked within the transaction, which is its parent's."""
        if self._process != os.getpid():
            raise DatabaseUnavailable(
                f"a transaction on {self._database.label!r} was begun before this process was forked",
                "fork before a transaction, or after it",
            )

    def _roll_back(self, connection: PostgresConnection) -> None:
        psycopg = self._database._psycopg
        if not connection.closed and connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()  # no statement: psycopg then forgets what it takes for prepared
        self._database.put_back(connection)


def _rows_of(cursor: psycopg.Cursor[Any]) -> ResultRows:
    return ResultRows(cursor.fetchall() if cursor.description is not None else [], cursor.rowcount)


def _conninfo(url: str, password: str) -> dict[str, Any]:
    """Return the parameters of an address for libpq.

    Raises:
        DatabaseUnavailable: The address has another form than libpq's, or holds a password.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parameters: dict[str, Any] = dict(conninfo_to_dict(url))
    except (ProgrammingError, UnicodeEncodeError) as exc:
        fact = " ".join(str(exc).split())
        raise DatabaseUnavailable(
            f"storage.url is no address of PostgreSQL ({fact})", "write it as postgresql://ROLE@HOST/DATABASE"
        ) from exc
    if parameters.get("password"):
        raise DatabaseUnavailable(
            f"storage.url {_label(parameters)!r} holds a password",
            "put it into HERMES_STORAGE_PASSWORD in .env, or into the file of PGPASSFILE, and take it out of config.yaml",
        )
    if password:
        parameters["password"] = password
    defaults = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "hermes-memory",
        # In milliseconds. A host may vanish without closing its connections.
        "tcp_user_timeout": int(VANISHED_S * 1000),
    }
    return {**defaults, **parameters}


def _label(parameters: Mapping[str, Any]) -> str:
    """Return an address without a password, for messages."""
    role = f"{parameters['user']}@" if parameters.get("user") else ""
    hosts = str(parameters.get("host") or "")
    port = f":{parameters['port']}" if parameters.get("port") else ""
    return f"postgresql://{role}{hosts}{port}/{parameters.get('dbname') or ''}"


# All databases of this process, so that a fork of it can begin anew with them.
_DATABASES: weakref.WeakSet[PostgresDatabase] = weakref.WeakSet()


def _forget_parent() -> None:
    for database in list(_DATABASES):
        database.forget_parent()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_parent)

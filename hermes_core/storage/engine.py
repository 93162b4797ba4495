"""Protocols of a database engine: what the stores need of SQLite or PostgreSQL, so that both run the same SQL."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError

# Values of `?` in order, or of `:name` by name.
Parameters = Sequence[Any] | dict[str, Any]

# A statement with its parameters.
Statement = tuple[str, Parameters]

Result = TypeVar("Result")

REPAIR = "it was left as it is: `hermes-memory sessions repair` copies it, then saves what can be read"
"""Remedy in the error about a damaged state.db."""

log = logging.getLogger(__name__)


class CommitInDoubt(DatabaseUnavailable):
    """Connection that was lost during a commit: the write may have been stored."""


class CommitUnconfirmed(CommitInDoubt):
    """Commit that is on the disk of the server, and that no synchronous standby confirmed in time."""


class TransactionAborted(DatabaseUnavailable):
    """Transaction that the server rolled back, for instance because of a deadlock. It may be repeated."""


class RowConflict(TransactionAborted):
    """Transaction that met another one which changed or inserted the same rows first."""


class ValueRejected(StorageError):
    """Statement whose parameters do not fit the columns or constraints of a table."""


class Rows(Protocol):
    """The result of a statement. Each row can be indexed by position and by the name of a column."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""

    def fetchone(self) -> Any:
        """Return the next row; None after the last one."""

    def fetchall(self) -> list[Any]:
        """Return all further rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over all further rows."""


class Reader(Protocol):
    """A database, or the connection of a transaction."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Rows:
        """Run one statement."""


class Connection(Reader, Protocol):
    """The connection of a transaction."""

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Rows:
        """Run one statement with each of several sets of parameters."""


class Dialect(Struct, frozen=True):
    """The words in which the SQL of an engine differs from that of others. Each is put into a statement as it is.

    Attributes:
        now: Expression for the time of day in epoch seconds, by the clock of the server if there is one.
        row_lock: Text to append to a SELECT, so that other transactions wait with changes of its rows until this one
            ends. "" for an engine with only one writer.
        any_of: Condition that a column, `{}`, has one of the values of a list, which is JSON if the word says so.
        indexed_by: What stands after a table's name so that a statement walks the index `{}`; "" without such a hint.
        name_lock: Statement that waits until no other transaction has locked this name, `?`, and locks it until the commit.
            "" for an engine with only one writer.
        calls: Table with the `name` of each function that is called in a column, `{0}`, with tool calls as JSON.
    """

    now: str
    row_lock: str
    any_of: str
    indexed_by: str
    name_lock: str
    calls: str

    @property
    def skip_locked(self) -> str:
        """Text as `row_lock`, which leaves out rows that another transaction has locked."""
        return self.row_lock and f"{self.row_lock} SKIP LOCKED"

    def serialize(self, connection: Connection, name: str) -> None:
        """Let transactions of one name run one after the other. The lock ends with the transaction of the connection."""
        if self.name_lock:
            connection.execute(self.name_lock, (name,))

    def among(self, column: str, values: Iterable[Any]) -> tuple[str, tuple[Any, ...]]:
        """Return the condition that a column has one of these values, and its one parameter."""
        # One parameter, because SQLite limits their number.
        value = json.dumps(list(values)) if "json" in self.any_of else list(values)
        return self.any_of.format(column), (value,)


class Engine(Protocol):
    """A database that several threads and processes use at once.

    Statements use the SQL that SQLite and PostgreSQL have in common: `ON CONFLICT` instead of `INSERT OR`, conditions
    instead of numbers for truth, and no name that either of them reserves.

    Attributes:
        dialect: The words of its SQL.
        shared: True for a server, whose tables the programs of several machines use.
    """

    dialect: Dialect
    shared: bool

    @property
    def label(self) -> str:
        """The file, or the address without a password and the schema. No other store has the same one."""

    @property
    def exists(self) -> bool:
        """False if nothing was ever stored, so that a reader need not open the database."""

    def now(self) -> float:
        """Return the time of day in epoch seconds, by the clock of the server if there is one.

        What is deleted because of its age is judged by it: the clocks of machines may differ by hours.
        """

    def execute(self, sql: str, parameters: Any = ..., /) -> Rows:
        """Run one statement, in the current thread's transaction if there is one.

        Raises `ValueRejected`, as `read`, `batch`, `insert` and the end of a transaction do.
        """

    def transaction(self) -> contextlib.AbstractContextManager[Connection]:
        """Return a context manager that makes the statements of its block one commit.

        An inner transaction of the same thread joins the outer one.
        """

    def read(self, statements: Sequence[Statement]) -> list[list[Any]]:
        """Run statements that change nothing, in one round trip, and return the rows of each."""

    def ask(self, statements: Sequence[Statement]) -> Callable[[], list[list[Any]]]:
        """Return a function that returns the rows of each of these statements, which change nothing.

        A server gets them together with the next read of this thread, or when the function is called before that; not
        within a transaction. Use it to save round trips.
        """

    def batch(self, statements: Sequence[Statement], *, durable: bool = True) -> list[list[Any]]:
        """Run statements in order, within a transaction, and return the rows of each. Use it to save round trips.

        They must change nothing if they are run again: a server whose connection was lost may have stored them.

        Args:
            durable: False if a loss of power may undo them, as it ends all leases: a file then need not be synced.
        """

    def insert(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        key: str,
        further: Sequence[Statement] = (),
        *,
        last: bool = False,
    ) -> tuple[list[int], list[list[Any]]]:
        """Insert rows with the same columns, and run further statements.

        Return the keys of the rows in order, and the rows of each further statement.

        Args:
            table: The table, whose keys the database numbers.
            rows: The rows as values by column.
            key: The column of the key.
            further: Statements to run afterwards, in the same round trip.
            last: True if nothing follows in the `transaction` around this call: a server then commits in the same round
                trip, unless that one is within another.
        """

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` after the commit of the current thread's transaction, or now if there is none.

        After a rollback it is not called. If it fails, that is logged: its error would pass for one of the commit.
        """

    def retry(self, write: Callable[[], Result], *, idempotent: bool) -> Result:
        """Call `write`, and call it again if it failed and may be repeated.

        Args:
            write: A call that makes at most one transaction of its own.
            idempotent: True if a second call changes nothing after a first one that was stored.
        """

    def integrity(self) -> list[str]:
        """Return a line for each fault of the database."""

    def shorten_waits(self) -> None:
        """Wait at most a second for other processes from now on, because the program ends."""

    def reopen(self) -> Engine:
        """Return a database with the same rows, for a thread that outlives this one."""

    def close(self) -> None:
        """Refuse further use, and close the connections. Give most of the space back if it is free."""


@contextlib.contextmanager
def detecting_damage(database: Engine) -> Iterator[None]:
    """Raise `DatabaseCorrupt` if the block fails because of a stored value, and the database has a fault.

    Without a fault the error passes unchanged, because it is a mistake of the caller. Only damage explains a value that
    is no JSON.
    """
    try:
        yield
    except (TypeError, ValueError, AttributeError, OverflowError) as exc:
        faults = database.integrity()
        if not (faults or isinstance(exc, json.JSONDecodeError)):
            raise
        fault = faults[0] if faults else exc
        remedy = "restore a backup of the server" if database.shared else REPAIR
        raise DatabaseCorrupt(f"{database.label!r} is damaged ({fault})", remedy) from exc


def run_callbacks(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call what waits for a commit that has just been made.

    An error is logged and not raised: it would pass for one of the commit, which the caller may repeat.
    """
    for callback in callbacks:
        try:
            callback()
        except Exception:  # a callback may be of any kind, and the caller can do nothing about it
            log.exception("the write is stored; what should follow it failed")

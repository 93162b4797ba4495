"""Move of the sessions, the outbox and the notes of a home to a server, or back into files.

What people wrote into the views of the notes is taken into the source. Then the source is marked, so that no program
writes into it any more; then all rows are copied and compared by count and hash, and only then config.yaml names the
target. A move that was stopped at any moment is run again and goes on. The rows of the source stay as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from msgspec import structs

from hermes_core import HermesHome
from hermes_core.config import Config, load_config, override_config, set_value, unset_value
from hermes_core.contract.values import Session, parse_outside_id
from hermes_core.curated.history import PENDING
from hermes_core.curated.rows import place_of
from hermes_core.errors import ConfigError, DatabaseUnavailable, HermesError, StorageError
from hermes_core.kit import write_atomic
from hermes_core.outbox.recovery import outbox_of_home
from hermes_core.safety.terminal import counted
from hermes_core.sessions.home_store import Moving, notes_of_home, open_sessions
from hermes_core.sessions.maintenance import exclusive
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Engine
from hermes_core.storage.files import locked, sync_folder
from hermes_core.storage.inventory import STATE_DB, Inventory
from hermes_core.storage.moved import StoreMark, read_mark
from hermes_core.storage.sqlite import database_files
from hermes_memory_postgresql.marks import write_mark
from hermes_memory_postgresql.move_record import MoveRecord, delete_record, read_record, save_record
from hermes_memory_postgresql.postgres import PostgresDatabase
from hermes_memory_postgresql.store_copy import (
    MOVED_FROM_KEY,
    TABLE_NAMES,
    StoreDigest,
    copy_store,
    count_rows,
    digest_store,
)

FILES = "files"
"""The name of the engine in the home, beside the address of a server."""

# Seconds in which a server ends the connections of a program that has closed them.
SETTLE_S = 1.0

WAIT_PAUSE_S = 1.0
"""Seconds between two looks whether other programs have ended."""

MAX_NAMED = 20
"""Sessions that a receipt names if their rows differ."""

# A program that is connected by the same role, by the name that it gives. Each home has a role of its own.
_OTHER_PROGRAMS = """
    SELECT count(*), min(coalesce(host(client_addr), 'this machine')) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
        AND application_name = current_setting('application_name') AND NOT pid = ANY (?)
"""

# Behind a pooler there is no connection of an idle program, but it has leases on sessions and on rows of the outbox.
_LEASES = """
    SELECT (SELECT count(*) FROM leases WHERE until > {now})
        + (SELECT count(*) FROM outbox_lines WHERE holder <> '' AND until > {now})
"""

# Of two programs that mark a store at the same time, the second must see the mark of the first.
_MARK_LOCK = "store move"

# Ending of the remedy of a statement that failed. It says nothing about a move, whose earlier rows are stored.
_NOT_STORED = "; nothing was stored"

MoveStep = Literal["copying", "comparing"]
Progress = Callable[[MoveStep, int], object]


@dataclass(frozen=True, slots=True)
class StorageMovePlan:
    """Plan of a move.

    Attributes:
        source: The store that is read: the path of a file, or the address of a server.
        target: The store that is filled.
        rows: Rows of the source by table.
        present: Rows that the target has from a move that was stopped.
        goes_on: True if an earlier move was stopped, and this one goes on with it.
        aside: Place to which an older store at the target is moved; "" if there is none.
    """

    source: str
    target: str
    rows: dict[str, int]
    present: int = 0
    goes_on: bool = False
    aside: str = ""


@dataclass(slots=True)
class StorageMoveReceipt:
    """Receipt of a move.

    Attributes:
        move_id: Id of the move.
        source: The store that was read: the path of a file, or the address of a server. It is kept, and takes no writes.
        target: The store that was filled.
        sessions: Number of sessions.
        messages: Number of messages, with those that were taken back.
        rows: Rows of the target by table.
        copied: Rows that this run copied; the others were there.
        source_hash: Hash over all rows of the source.
        target_hash: The same over those of the target.
        differing: Sessions and tables that differ; none if the move is verified.
        verified: True if numbers and hashes are equal, and the search index fits the messages.
        switched: True if config.yaml names the target now.
        aside: Place to which an older store at the target was moved; "" if there was none.
        seconds: Duration of this run.
        problems: What a person has to do yet.
    """

    move_id: str
    source: str
    target: str
    sessions: int = 0
    messages: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    copied: int = 0
    source_hash: str = ""
    target_hash: str = ""
    differing: list[str] = field(default_factory=list)
    verified: bool = False
    switched: bool = False
    aside: str = ""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class StorageMove:
    """A move of the store that config.yaml names. Use it in a `with` block: others can't begin one meanwhile.

    A move that has ended is forgotten at the end of the block, so show its receipt within it.

    Args:
        to: Address of a server, or "files".
        schema: Schema on the server; "" for that of `storage.schema`.
        progress: Function that gets the step and the number of further rows.

    Raises:
        ConfigError: Source and target are the same store, or the address is not valid.
    """

    def __init__(
        self,
        home: HermesHome,
        to: str,
        *,
        schema: str = "",
        progress: Progress = lambda _step, _count: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home, self._to, self._progress, self._clock = home, to, progress, clock
        self._config = load_config(home)
        self._target_config = _config_of(self._config, to, schema)
        self._resources = ExitStack()
        self._record = read_record(home)
        self._has_ended = False
        # An earlier run may have been killed between the change of config.yaml and its receipt.
        self._is_switched = _place(self._config) == _place(self._target_config)
        if self._is_switched:
            if self._record is None or self._record.target != _place(self._config):
                raise self._needless()
            url, schema = self._record.source
            self._config = _config_of(self._config, url or FILES, schema)

    def __enter__(self) -> StorageMove:
        self._resources.enter_context(locked(self._home.path / "migration" / "storage", timeout=0.0))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._has_ended and exc[0] is None:
            delete_record(self._home)
        self._resources.close()

    def plan(self) -> StorageMovePlan:
        """Return what a move would do. Nothing is written to the target.

        Raises:
            StorageError: A store can't be read, or the target holds something else.
        """
        with self._open(self._config, "write") as source:
            mark = read_mark(source.database)
            if self._is_switched and (mark is None or not self._is_own(mark)):
                raise self._needless()
            label = source.database.label
            rows = self._counts(source)
        with self._open(self._target_config, "read") as target:
            target_label = target.database.label
            self._refuse_other_move(mark, label, target_label)
            exists = _has_tables(target)
            there = read_mark(target.database) if exists else None
            counts = self._counts(target) if exists else {}
            belongs = mark is not None and _belongs(target, there, mark)
            if mark is not None and not belongs:
                self._refuse_other_home(mark, label)
            aside = ""
            if there is not None and there.role == "source" and there.complete:
                aside = self._place_aside(target)
            elif not belongs:
                self._refuse_filled(target, counts)
        present = sum(counts.values()) if belongs else 0
        return StorageMovePlan(label, target_label, rows, present, mark is not None, aside)

    def other_programs(self) -> str:
        """Return which other programs use the source, as a sentence; "" if there are none that can be seen.

        Programs that connect later are refused once the move has begun.
        """
        if not self._config.storage.url:
            try:
                with exclusive(self._home.state_db):
                    return ""
            except DatabaseUnavailable as exc:
                return exc.message
        with self._open(self._config, "write") as source:
            if read_mark(source.database) is not None:
                return ""
            if connections := _connections_of_others(source.database):
                return connections
            (leases,) = source.database.execute(_LEASES.format(now=source.database.dialect.now)).fetchone()
            label = source.database.label
            if leases:
                return f"leases on {label!r} are of a program that runs or stopped just now: {leases}"
            return ""

    def wait(self, sleep: Callable[[float], object] = time.sleep) -> None:
        """Return when no other program uses the source."""
        while self.other_programs():
            sleep(WAIT_PAUSE_S)

    def run(self, plan: StorageMovePlan) -> StorageMoveReceipt:
        """Copy, compare and switch.

        Raises:
            DatabaseUnavailable: Another program uses the source, or a store can't be used. Nothing was changed, or the
                move goes on there when it is run again.
            StorageError: The stores differ after the copy. The source is kept, and config.yaml stays as it is.
        """
        started = self._clock()
        if not plan.goes_on and (users := self.other_programs()):
            raise DatabaseUnavailable(users, "stop them, or wait with --wait; nothing was changed")
        with self._open(self._config, "write") as source:
            mark = self._begin(source, plan)
            receipt = StorageMoveReceipt(mark.move_id, plan.source, plan.target)
            if plan.aside:
                self._put_aside(plan.aside)
            receipt.aside = self._record.aside if self._record else ""
            with self._open(self._target_config, "write") as target:
                is_compared = read_mark(target.database) is None and _is_filled(target, mark)
                with ExitStack() as undo:
                    if not is_compared:
                        self._mark_target(source, target, mark, receipt.source)
                        if not plan.goes_on:
                            undo.callback(_try_to_unmark, target)
                    self._mark_source(source, mark)
                    undo.pop_all()
                with _telling_how_to_go_on(receipt.source):
                    if is_compared:
                        self._compare_again(source, target, receipt)
                    else:
                        self._fill(source, target, mark, receipt)
                    write_mark(source.database, structs.replace(mark, complete=True), guarded_tables(source))
            receipt.sessions, receipt.messages = receipt.rows["sessions"], receipt.rows["messages"]
        self._switch(receipt)
        receipt.seconds = round(self._clock() - started, 3)
        self._has_ended = True
        return receipt

    # ------------------------------------------------------------------ steps

    def _begin(self, source: SessionStore, plan: StorageMovePlan) -> StoreMark:
        """Return the mark of this move, and note in the home that it has begun it."""
        mark = read_mark(source.database)
        if mark is None:
            if not source.database.shared:
                outbox = outbox_of_home(self._home, source.database)
                if outbox is not None and outbox.held_back:
                    raise DatabaseUnavailable(outbox.held_back, "repair that first; nothing was changed")
            self._adopt_edits(source)
            mark = StoreMark(uuid.uuid4().hex, "source", complete=False, other=plan.target)
        else:
            self._refuse_other_move(mark, plan.source, plan.target)
        places = _place(self._config), _place(self._target_config)
        if self._record is None or self._record.move_id != mark.move_id:
            self._record = MoveRecord(mark.move_id, *places, self._clock(), plan.aside)
        elif plan.aside:
            self._record = dataclasses.replace(self._record, aside=plan.aside)
        save_record(self._home, self._record)
        return mark

    def _adopt_edits(self, source: SessionStore) -> None:
        """Store in the source what people wrote into the views of all notes, so that the target has it.

        Raises:
            MemoryConflict: A view can't be read as notes.
        """
        notes = notes_of_home(self._home, self._config, source.database)
        users = [Session("move", **parse_outside_id(owner)) for owner in notes.places.owners()]  # type: ignore[arg-type]
        for store in (notes, *map(notes.of_repository, notes.places.repositories()), *map(notes.of, users)):
            for conflict in store.read().problems.values():
                conflict.remedy += "; nothing was moved"
                raise conflict

    def _take_files_along(self, source: SessionStore) -> None:
        """Let the target know the files on this machine as the source does.

        Else a view would pass for an edit by hand, and no program would complete a change of a skill after a crash.
        """
        old, new = (
            place_of(self._home, shared=bool(config.storage.url))
            for config in (self._config, self._target_config)
        )
        if old == new:
            return
        # The target's name of this home has rows from an earlier move.
        columns = "file, bytes_hash, text_hash, text"
        copy = f"INSERT INTO note_views (place, {columns}) SELECT CAST(? AS TEXT), {columns} FROM note_views WHERE place = ?"
        pending = "UPDATE note_changes SET target = ? WHERE target = ?"
        source.database.batch(
            [
                ("DELETE FROM note_views WHERE place = ?", (new,)),
                (copy, (new, old)),
                (pending, (f"{PENDING}{new}", f"{PENDING}{old}")),
            ]
        )

    def _mark_target(self, source: SessionStore, target: SessionStore, mark: StoreMark, label: str) -> None:
        """Mark the target, so that no program uses it before it is full.

        This comes before the mark of the source, which stops all programs: a target that takes no writes fails here.

        Raises:
            DatabaseUnavailable: Another program uses the target.
            StorageError: The target holds something else.
        """
        database = target.database
        own = StoreMark(mark.move_id, "target", complete=False, other=label)
        with database.transaction() as connection:
            database.dialect.serialize(connection, _MARK_LOCK)
            there = read_mark(database)
            if there is None or there.move_id != mark.move_id:
                self._refuse_filled(target, self._counts(target))
                write_mark(database, own, guarded_tables(target))
        # After the mark: a program that connects now sees it, and one that did before is seen.
        if database.shared and (users := _connections_of_others(database, source.database)):
            if there is None:
                _try_to_unmark(target)
            raise DatabaseUnavailable(users, "stop them, then run this again; nothing was changed")

    def _mark_source(self, source: SessionStore, mark: StoreMark) -> None:
        """Mark the source, so that its rows stay as they are from now on."""
        with source.database.transaction() as connection:
            source.database.dialect.serialize(connection, _MARK_LOCK)
            there = read_mark(source.database)
            if there is not None and there.move_id != mark.move_id:
                raise StorageError(
                    f"another program has begun to move these sessions to {there.other!r} just now",
                    "let it end; nothing was changed",
                )
            if there is None:
                self._take_files_along(source)
                write_mark(source.database, mark, guarded_tables(source))

    def _fill(
        self, source: SessionStore, target: SessionStore, mark: StoreMark, receipt: StorageMoveReceipt
    ) -> None:
        """Copy all rows into the target, compare, and take the mark off the target.

        Raises:
            StorageError: The target differs after the copy.
        """
        receipt.copied = copy_store(source, target, lambda count: self._progress("copying", count))
        receipt.differing = self._compare(source, target, receipt)
        if receipt.differing:
            raise StorageError(
                f"{receipt.source!r} and {receipt.target!r} differ after the copy: "
                f"{'; '.join(receipt.differing[:MAX_NAMED])}",
                "config.yaml stays as it is: report this, and go on with the source by `hermes-memory storage unmark`",
            )
        receipt.verified = True
        receipt.rows = self._counts(target)
        with target.transaction():
            target.meta.set(MOVED_FROM_KEY, f"{mark.move_id} {receipt.target_hash}")
            write_mark(target.database, None, guarded_tables(target))

    def _compare_again(self, source: SessionStore, target: SessionStore, receipt: StorageMoveReceipt) -> None:
        """Compare stores that an earlier run has found equal. Programs may have used the target since."""
        recorded = (target.meta.get(MOVED_FROM_KEY) or "").split()[1]
        differing = self._compare(source, target, receipt)
        receipt.verified = receipt.source_hash == recorded
        receipt.rows = self._counts(source)
        if receipt.verified:
            receipt.target_hash = recorded
        if differing:
            receipt.differing = [] if receipt.verified else differing
            changed = receipt.target if receipt.verified else receipt.source
            receipt.problems.append(
                f"{changed!r} was changed after an earlier run had found both stores equal: "
                f"{'; '.join(differing[:MAX_NAMED])}"
            )

    def _compare(self, source: SessionStore, target: SessionStore, receipt: StorageMoveReceipt) -> list[str]:
        """Note the hashes of both stores in the receipt, and return a line for each difference."""
        before, after = (
            digest_store(store.database, lambda count: self._progress("comparing", count))
            for store in (source, target)
        )
        receipt.source_hash, receipt.target_hash = before.hash, after.hash
        return [*differences(before, after, source), *target.index.check()]

    def _counts(self, store: SessionStore) -> dict[str, int]:
        """Return the number of rows by table."""
        return count_rows(store.database) if store.database.exists else {}

    def _switch(self, receipt: StorageMoveReceipt) -> None:
        """Let config.yaml name the target."""
        storage = self._target_config.storage
        try:
            if storage.url:
                set_value(self._home, "storage.url", storage.url)
                if storage.schema != self._config.storage.schema:
                    set_value(self._home, "storage.schema", storage.schema)
            else:
                unset_value(self._home, "storage.url")
        except (ConfigError, StorageError) as exc:
            receipt.problems.append(
                f"config.yaml does not name {receipt.target!r} yet ({exc.message}): set storage.url by hand"
            )
            return
        receipt.switched = _place(load_config(self._home)) == _place(self._target_config)
        if not receipt.switched:
            receipt.problems.append(
                f"the variable HERMES_STORAGE comes before config.yaml: let it name {receipt.target!r} wherever it is set"
            )

    def _place_aside(self, target: SessionStore) -> str:
        """Return the place for an older store at the target, which an earlier move left there."""
        stamp = time.strftime("%Y%m%dt%H%M%Sz", time.gmtime(self._clock()))
        if not target.database.shared:
            return str(self._home.state_db.with_name(f"{self._home.state_db.name}.moved-{stamp}"))
        return f"{self._target_config.storage.schema[:30]}_moved_{stamp}"

    def _put_aside(self, place: str) -> None:
        """Move the older store at the target aside."""
        if self._target_config.storage.url:
            with self._open(self._target_config, "read") as old:
                schema = self._target_config.storage.schema
                old.database.execute(f'ALTER SCHEMA "{schema}" RENAME TO "{place}"')
            return
        path = self._home.state_db
        with self._open(self._target_config, "write") as old:
            # The log goes into the file, so that one file is all there is.
            old.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with exclusive(path):
            # Else the new file would pass for one that was lost.
            Inventory(self._home.path).remove({STATE_DB})
            for file in database_files(path):
                file.rename(Path(place + file.name.removeprefix(path.name)))
        sync_folder(path.parent)

    # ------------------------------------------------------------------ checks

    def _refuse_other_move(self, mark: StoreMark | None, label: str, target: str) -> None:
        """Raise if the source is moved to another target, or is a target itself."""
        if mark is None or (mark.role == "source" and mark.other == target):
            return
        if mark.role == "target":
            raise StorageError(
                f"the move from {mark.other!r} to {label!r} has not ended",
                "let storage.url in config.yaml name that store, and run it again from there",
            )
        raise StorageError(
            f"{label!r} {'was' if mark.complete else 'is being'} moved to {mark.other!r}, not to {target!r}",
            "give that store with --to, or give the move up with `hermes-memory storage unmark`",
        )

    def _refuse_other_home(self, mark: StoreMark, label: str) -> None:
        """Raise if the target does not have the rows of a move that has ended, or that another home has begun.

        The path of a file is the same in many containers: two of them must not each take the sessions of a server.
        """
        if mark.complete:
            raise StorageError(
                f"{label!r} was moved to {mark.other!r} of another home, or that store was deleted since",
                "use that store; `hermes-memory storage unmark` makes this one take writes again, and it can be moved then",
            )
        if self._config.storage.url and not self._is_own(mark):
            raise StorageError(
                f"another home has begun to move {label!r} to its own {mark.other!r}",
                "run the command there again, or give that move up with `hermes-memory storage unmark`",
            )

    def _is_own(self, mark: StoreMark) -> bool:
        return self._record is not None and self._record.move_id == mark.move_id

    def _needless(self) -> ConfigError:
        return ConfigError(
            f"the sessions are in {self._to!r} already", "give the other store with --to; nothing was changed"
        )

    def _refuse_filled(self, target: SessionStore, counts: dict[str, int]) -> None:
        """Raise if the target holds rows."""
        filled = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        if not filled:
            return
        remedy = (
            f"give an empty schema with --schema NAME, or drop this one: "
            f"DROP SCHEMA {self._target_config.storage.schema} CASCADE"
            if self._target_config.storage.url
            else "move it away, or delete it with all files beside it of the same name"
        )
        raise StorageError(
            f"{target.database.label!r} is not empty ({filled})",
            f"{remedy}; nothing was changed",
        )

    @contextlib.contextmanager
    def _open(self, config: Config, moving: Moving) -> Iterator[SessionStore]:
        with contextlib.closing(open_sessions(self._home, config, moving=moving)) as store:
            yield store


def differences(source: StoreDigest, target: StoreDigest, store: SessionStore) -> list[str]:
    """Return a line for each table and each session whose rows differ."""
    lines = [
        f"{table}: {count:,} rows, and {target.rows.get(table, 0):,} in the target"
        for table, count in source.rows.items()
        if count != target.rows.get(table)
    ]
    lines += [
        f"rows of {table}" for table, value in source.tables.items() if value != target.tables.get(table)
    ]
    keys = [
        key
        for key in source.sessions | target.sessions
        if source.sessions.get(key) != target.sessions.get(key)
    ]
    for key in keys[:MAX_NAMED]:
        row = store.database.execute("SELECT id FROM sessions WHERE key = ?", (key,)).fetchone()
        lines.append(f"session {row[0] if row else key!r}")
    return lines


def unmark_store(home: HermesHome) -> StoreMark | None:
    """Take the mark off the store that config.yaml names, so that programs use it again. Return the mark.

    Raises:
        StorageError: The store is the half-filled target of a move.
    """
    with contextlib.closing(open_sessions(home, load_config(home), moving="write")) as store:
        mark = read_mark(store.database)
        if mark is not None and mark.role == "target":
            raise StorageError(
                f"{store.database.label!r} holds only a part of {mark.other!r}",
                "finish the move with `hermes-memory storage move`, or let storage.url name the other store",
            )
        if mark is not None:
            write_mark(store.database, None, guarded_tables(store))
            delete_record(home)
        return mark


def guarded_tables(store: SessionStore) -> tuple[str, ...]:
    """Return the tables of a store that take no writes while it is moved.

    A worker that can't take a line of the outbox does not send rows whose result it could not store.
    """
    return (*TABLE_NAMES, "outbox_lines") if store.database.shared else TABLE_NAMES


def save_storage_receipt(home: HermesHome, receipt: StorageMoveReceipt) -> Path:
    """Write the receipt below the home, and return its path. A second run of a move replaces that of the first."""
    record = read_record(home)
    started_at = record.started_at if record is not None and record.move_id == receipt.move_id else None
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(started_at))
    path = home.path / "migration" / f"{stamp}-storage.json"
    write_atomic(path, (json.dumps(asdict(receipt), indent=1) + "\n").encode())
    return path


def _connections_of_others(database: Engine, *own: Engine) -> str:
    """Return which other programs are connected to a server, as a sentence; "" for none.

    A connection of a program that ended just now may still be there for up to `SETTLE_S` seconds.

    Args:
        database: The database on the server.
        own: Further databases of this program.
    """
    pids = [other.link().pid for other in own if isinstance(other, PostgresDatabase)]
    until = time.monotonic() + SETTLE_S
    while True:
        count, host = database.execute(_OTHER_PROGRAMS, (pids,)).fetchone()
        if not count:
            return ""
        if time.monotonic() > until:
            break
        time.sleep(SETTLE_S / 20)
    return (
        f"{database.label!r} has {counted(count, 'other connection')} with the role of this home, of {host}"
    )


def _try_to_unmark(target: SessionStore) -> None:
    """Take the mark off an empty target, which nothing was copied into."""
    with contextlib.suppress(StorageError):
        write_mark(target.database, None, guarded_tables(target))


@contextlib.contextmanager
def _telling_how_to_go_on(source: str) -> Iterator[None]:
    """Add to an error of the block what is to be done about the source, which takes no writes meanwhile."""
    try:
        yield
    except HermesError as exc:
        if "storage unmark" not in exc.remedy:
            exc.remedy = (
                f"{exc.remedy.removesuffix(_NOT_STORED)}; then run the same command again, which goes on, or "
                f"`hermes-memory storage unmark` to use {source!r} as before; config.yaml still names it"
            )
        raise


def _config_of(config: Config, to: str, schema: str) -> Config:
    """Return the configuration with another store."""
    if to == FILES:
        return override_config(config, {"storage": {"url": ""}})
    return override_config(config, {"storage": {"url": to, **({"schema": schema} if schema else {})}})


def _place(config: Config) -> tuple[str, str]:
    return (config.storage.url, config.storage.schema) if config.storage.url else ("", "")


def _has_tables(store: SessionStore) -> bool:
    database = store.database
    file = "SELECT max(name) FROM sqlite_schema WHERE name = 'sessions'"
    sql = "SELECT to_regclass('sessions')" if database.shared else file
    return database.exists and database.execute(sql).fetchone()[0] is not None


def _belongs(target: SessionStore, there: StoreMark | None, mark: StoreMark) -> bool:
    """Return True if the target was filled by the same move."""
    if there is not None:
        return there.move_id == mark.move_id
    return _has_tables(target) and _is_filled(target, mark)


def _is_filled(target: SessionStore, mark: StoreMark) -> bool:
    """Return True if a move has filled the target and compared it."""
    return (target.meta.get(MOVED_FROM_KEY) or "").startswith(f"{mark.move_id} ")

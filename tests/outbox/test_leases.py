"""Leases on the rows of the outbox, on each engine: in order within each session, and taken over after a kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_core.errors import OutboxFull
from hermes_core.outbox.delivery import Delivery, OutboxWorker
from hermes_core.outbox.lines import HELD_POLL_S, DeliveryLines, LeaseLost
from hermes_core.outbox.recovery import MIGRATIONS as FILE_MIGRATIONS
from hermes_core.outbox.rows import NewRow, Row
from hermes_core.outbox.store import Outbox
from hermes_core.storage.sqlite import Database
from hermes_memory_postgresql.postgres import PostgresDatabase
from hermes_memory_postgresql.schema import MIGRATIONS
from tests.manager.conftest import until
from tests.outbox_of import ON_POSTGRES
from tests.postgres_server import drop_schema

OpenOutbox = Callable[..., Outbox]


Place = tuple[str, str]


def open_place(place: Place, **options: Any) -> Outbox:
    """Open the outbox at a place: the address of a server with a schema, or a file with ""."""
    address, schema = place
    if schema:
        return Outbox(PostgresDatabase(address, MIGRATIONS, schema=schema), **options)
    return Outbox(Database(Path(address), FILE_MIGRATIONS), **options)


@pytest.fixture(params=["postgresql"] if ON_POSTGRES else ["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The place of the test's outbox, on each engine."""
    if request.param == "sqlite":
        return str(tmp_path / "outbox.db"), ""
    return request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")


@pytest.fixture
def open_shared(place: Place) -> Iterator[OpenOutbox]:
    """Open the outbox of the test, as each process does for itself."""
    yield from opener(place)


@pytest.fixture
def open_on_server(postgres_url: str, postgres_schema: str) -> Iterator[OpenOutbox]:
    """Open the outbox of the test on a server, as each machine does for itself."""
    yield from opener((postgres_url, postgres_schema))


def opener(place: Place) -> Iterator[OpenOutbox]:
    opened: list[Outbox] = []

    def open_it(**options: Any) -> Outbox:
        opened.append(open_place(place, **options))
        return opened[-1]

    yield open_it
    for outbox in opened:
        outbox.close()


def turn(event: str, session: str = "s1") -> NewRow:
    return NewRow("sync_turn", event, session, "{}")


class Backend:
    """A receiver that remembers the rows, and answers as the test wants."""

    name = "fake"
    per_session = False

    def __init__(self, answer: Callable[[Row], Delivery] | None = None) -> None:
        self.breaker = SimpleNamespace(state="closed", remaining=0.0)
        self.events: list[tuple[str, str]] = []
        self.answer = answer or (lambda _row: Delivery("taken"))

    def deliver(
        self, row: Row, before_call: Callable[[], None], on_late: Callable[[Delivery], None]
    ) -> Delivery:
        before_call()
        self.events.append((row.session_id, row.event))
        return self.answer(row)

    def start_failure(self) -> str:
        return ""

    def start_again(self) -> None:
        pass

    def unstartable_sessions(self) -> list[str]:
        return []

    def describe(self, error: BaseException) -> str:
        return repr(error)


@contextlib.contextmanager
def working(backend: Any, outbox: Outbox, lease: float = 30.0) -> Iterator[OutboxWorker]:
    worker = OutboxWorker(backend, outbox, lease=lease)
    try:
        yield worker
    finally:
        worker.stop(10)


def test_a_worker_and_a_rewind_of_its_session_do_not_wait_for_each_other(
    open_on_server: OpenOutbox, tmp_path: Path
) -> None:
    """Each locks the line of the session first. In another order, the server would end one of them."""
    outbox, other, watcher = open_on_server(), open_on_server(), open_on_server()
    outbox.put("fake", turn("a"))
    (row,) = outbox.pending()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%outbox%'"
    with ThreadPoolExecutor(2) as pool:
        with outbox.database.transaction() as connection:
            connection.execute("SELECT 1 FROM outbox_lines WHERE provider = 'fake' FOR UPDATE")
            rewind = pool.submit(other.drop_turns, "fake", ["a"])
            assert until(lambda: pool.submit(watcher.database.execute, waiting).result().fetchone()[0])
            outbox.delivered(row)
        assert rewind.result(20) == ["a"]  # the provider has it
    assert outbox.depth == 0


def test_several_workers_send_each_row_once_and_each_session_in_order(
    open_shared: OpenOutbox, tmp_path: Path
) -> None:
    outboxes = [open_shared() for _ in range(3)]
    for number in range(10):
        for session in range(8):
            outboxes[0].put("fake", turn(f"{session}-{number}", f"s{session}"))
    backend = Backend()
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(working(backend, outbox)) for outbox in outboxes]
        for worker in workers:
            worker.wake()
        assert all(worker.flush(60) for worker in workers)
    assert len(backend.events) == 80
    for session in range(8):
        of_session = [event for name, event in backend.events if name == f"s{session}"]
        assert of_session == [f"{session}-{number}" for number in range(10)]
    assert outboxes[0].database.execute("SELECT count(*) FROM outbox_lines").fetchone()[0] == 0
    assert outboxes[0].knows("fake", "sync_turn", "3-3")


def test_on_a_server_a_line_is_one_workers_and_the_next_row_of_it_waits(open_on_server: OpenOutbox) -> None:
    outbox = open_on_server()
    mine, yours = DeliveryLines(outbox, "fake"), DeliveryLines(open_on_server(), "fake")
    for event, session in (("a", "s1"), ("b", "s1"), ("c", "s2")):
        outbox.put("fake", turn(event, session))
    first, second = mine.next(()), yours.next(())
    assert first is not None
    assert second is not None
    assert (first.event, second.event) == ("a", "c")
    assert DeliveryLines(open_on_server(), "fake").next(()) is None
    with mine.holding(first):
        outbox.delivered(first)
    following = mine.next(())
    assert following is not None
    assert following.event == "b"
    mine.release()
    yours.release()


def test_in_a_file_one_worker_has_all_lines_until_it_gives_them_back(tmp_path: Path) -> None:
    """A provider may keep files that only one process may write."""
    with (
        contextlib.closing(open_place((str(tmp_path / "outbox.db"), ""))) as outbox,
        contextlib.closing(open_place((str(tmp_path / "outbox.db"), ""))) as theirs,
    ):
        for event, session in (("a", "s1"), ("b", "s2")):
            outbox.put("fake", turn(event, session))
        outbox.put("other", turn("c"))
        mine, yours = DeliveryLines(outbox, "fake"), DeliveryLines(theirs, "fake")
        row = mine.next(())
        assert row is not None
        assert yours.next(()) is None
        assert yours.wait() == HELD_POLL_S
        other = DeliveryLines(theirs, "other")
        assert other.next(()) is not None
        other.release()
        with mine.holding(row):
            outbox.delivered(row)
        assert yours.next(()) is None
        mine.release()
        row = yours.next(())
        assert row is not None
        assert row.event == "b"
        yours.release()


def test_a_worker_whose_lease_passed_on_settles_nothing(open_shared: OpenOutbox) -> None:
    outbox = open_shared()
    suspended, other = DeliveryLines(open_shared(), "fake", lease=0.05), DeliveryLines(outbox, "fake")
    suspended._extend = lambda: False  # type: ignore[method-assign]  # its threads are suspended with it
    outbox.put("fake", turn("a"))
    outbox.put("fake", turn("b"))
    row = suspended.next(())
    assert row is not None
    suspended.note_row(row)
    assert until(lambda: other.next(()) is not None)
    assert other.row_of_dead_holder() == row.number
    for settle in (lambda: suspended.note_row(row), lambda: suspended.holding(row).__enter__()):
        with pytest.raises(LeaseLost):
            settle()
    assert [row.event for row in outbox.pending()] == ["a", "b"]
    with other.holding(row):
        outbox.delivered(row)
    assert [row.event for row in outbox.pending()] == ["b"]
    other.release()


def test_a_call_that_takes_longer_than_the_lease_keeps_it(open_shared: OpenOutbox, tmp_path: Path) -> None:
    outbox, gate = open_shared(), threading.Event()

    def slowly(_row: Row) -> Delivery:
        gate.wait(30)
        return Delivery("taken")

    slow, other = Backend(slowly), Backend()
    outbox.put("fake", turn("a"))
    outbox.put("fake", turn("b"))
    with (
        working(slow, outbox, lease=2.0) as first,
        working(other, open_shared()) as second,
    ):
        first.wake()
        assert until(lambda: slow.events)
        held = "SELECT until FROM outbox_lines"
        taken = outbox.database.execute(held).fetchone()[0]
        second.wake()
        assert until(lambda: outbox.database.execute(held).fetchone()[0] > taken + 2.0)
        assert not second.flush(0.1)
        assert other.events == []
        gate.set()
        assert first.flush(30)
    assert slow.events[0] == ("s1", "a")
    assert slow.events[1:] + other.events == [("s1", "b")]  # any of them may take the line next


def test_a_failed_row_waits_in_every_process_and_keeps_its_tries(
    open_shared: OpenOutbox, tmp_path: Path
) -> None:
    outbox = open_shared()
    outbox.put("fake", turn("a"))
    failing = Backend(lambda _row: Delivery("failed", "down"))
    with working(failing, outbox) as worker:
        worker.wake()
        assert until(lambda: failing.events)
        assert until(lambda: outbox.pending()[0].error == "down")
    tries, holder, ready_at = outbox.database.execute(
        "SELECT tries, holder, ready_at FROM outbox_lines"
    ).fetchone()
    assert (tries, holder) == (1, "")
    assert ready_at > outbox.database.now() + 0.1
    other = DeliveryLines(open_shared(), "fake")
    assert other.next(()) is None
    assert other.wait() is not None
    outbox.database.execute("UPDATE outbox_lines SET ready_at = 0")
    assert other.next(()) is not None
    assert other.tries("s1") == 1
    other.release()


def test_an_outage_of_the_server_ends_no_worker(open_on_server: OpenOutbox, tmp_path: Path) -> None:
    outbox = open_on_server()
    backend = Backend()
    outbox.put("fake", turn("a"))
    with working(backend, outbox) as worker:
        assert worker.flush(30)
        admin = open_on_server()
        admin.database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'hermes-memory' AND pid <> pg_backend_pid()"
        )
        admin.put("fake", turn("b"))
        assert worker.flush(30)
    assert backend.events == [("s1", "a"), ("s1", "b")]


def test_a_call_in_doubt_holds_up_no_other_home_of_the_server(
    open_on_server: OpenOutbox, postgres_url: str, postgres_schema: str, tmp_path: Path
) -> None:
    class Silent(Backend):
        def deliver(
            self, row: Row, before_call: Callable[[], None], on_late: Callable[[Delivery], None]
        ) -> Delivery:
            super().deliver(row, before_call, on_late)
            self.on_late = on_late
            return Delivery("in doubt", "no answer")

    silent, backend, schema = Silent(), Backend(), f"{postgres_schema}_b"
    outbox = open_on_server()
    outbox.put("fake", turn("a"))
    with working(silent, outbox) as worker:
        worker.wake()
        assert until(lambda: worker.stuck())
    other = Outbox(PostgresDatabase(postgres_url, MIGRATIONS, schema=schema))
    try:
        other.put("fake", turn("b"))
        with working(backend, other) as worker:
            assert worker.stuck() == ""
            assert worker.flush(30)
        assert backend.events == [("s1", "b")]
    finally:
        silent.on_late(Delivery("taken"))
        other.close()
        drop_schema(postgres_url, schema)
    assert until(lambda: not outbox.waits("fake"))


WORKER = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from hermes_core.outbox.delivery import Delivery, OutboxWorker
from tests.outbox.test_leases import Backend, open_place

address, schema, log = sys.argv[1:]
file = open(log, "a", buffering=1)

def answer(row):
    file.write(f"{row.session_id} {row.event}\\n")
    time.sleep(0.02)
    return Delivery("taken")

worker = OutboxWorker(Backend(answer), open_place((address, schema)), lease=0.5)
print("ready", flush=True)
while True:
    worker.wake()
    time.sleep(0.1)
"""


@pytest.mark.skipif(os.name == "nt", reason="kills processes by signals")
def test_killed_and_suspended_workers_lose_no_row(
    open_shared: OpenOutbox, place: Place, tmp_path: Path
) -> None:
    outbox, root = open_shared(), Path(__file__).resolve().parents[2]
    events = {f"s{session}": [f"{session}-{number}" for number in range(12)] for session in range(6)}
    for number in range(12):
        for session in range(6):
            outbox.put("fake", turn(f"{session}-{number}", f"s{session}"))
    log = tmp_path / "log"

    def start() -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", WORKER, *place, str(log)]
        return subprocess.Popen(arguments, cwd=root, stdout=subprocess.PIPE, text=True)

    workers = [start() for _ in range(3)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        assert until(lambda: log.exists() and len(log.read_text().splitlines()) > 5)
        workers[0].kill()
        workers[1].send_signal(signal.SIGSTOP)
        time.sleep(1.2)  # longer than the lease
        workers[1].send_signal(signal.SIGCONT)
        assert until(lambda: not outbox.pending() and not outbox.dead_letters())
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGCONT)
            worker.kill()
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
    arrived: dict[str, list[str]] = {}
    for line in log.read_text().splitlines():
        session, event = line.split()
        arrived.setdefault(session, []).append(event)
    # At least once: what was being sent at a kill comes again. First arrivals are in order.
    assert {session: list(dict.fromkeys(names)) for session, names in arrived.items()} == events


def test_appends_of_two_sessions_do_not_wait_for_one_another(open_on_server: OpenOutbox) -> None:
    mine, yours = open_on_server(), open_on_server()
    with mine.database.transaction():
        mine.put("fake", turn("a", "s1"))
        done = threading.Thread(target=lambda: yours.put("fake", turn("b", "s2")))
        done.start()
        done.join(20)
        assert not done.is_alive()
    assert [row.event for row in mine.pending()] == ["a", "b"]


def test_the_limit_counts_the_rows_of_all_lines(open_shared: OpenOutbox) -> None:
    outbox = open_shared(max_rows=3)
    for number in range(3):
        outbox.put("fake", turn(f"t{number}", f"s{number}"))
    with pytest.raises(OutboxFull):
        outbox.put("fake", turn("t3"))
    row = outbox.next("fake")
    assert row is not None
    outbox.bury(row, "bad")
    with pytest.raises(OutboxFull):
        outbox.put("fake", turn("t4"))
    outbox.drop()
    assert outbox.put("fake", turn("t5"))


def test_a_clock_that_was_set_back_keeps_no_row_waiting(open_shared: OpenOutbox) -> None:
    outbox = open_shared()
    outbox.put("fake", turn("a"))
    killed = DeliveryLines(outbox, "fake")
    assert killed.next(()) is not None
    assert killed._heartbeat is not None
    killed._heartbeat.stop()
    lines = DeliveryLines(outbox, "fake")
    assert lines.next(()) is None
    outbox.database.execute("UPDATE outbox_lines SET until = until + 86400, ready_at = ready_at + 86400")
    assert lines.next(()) is not None
    lines.release()


def test_a_session_whose_rows_never_end_does_not_keep_the_others_waiting(open_shared: OpenOutbox) -> None:
    outbox = open_shared()
    for event, session in (("a", "s1"), ("b", "s1"), ("c", "s2"), ("d", "s1")):
        outbox.put("fake", turn(event, session))
    lines, order = DeliveryLines(outbox, "fake", lease=1.5), []
    while row := lines.next(()):
        with lines.holding(row):
            outbox.delivered(row)
        order.append(row.event)
        if row.event == "a":
            assert lines.next(()) is not None
            time.sleep(1.6)
    assert order == ["a", "c", "b", "d"]
    lines.release()


def test_a_line_that_had_to_wait_is_sent_by_the_worker_that_holds_it(open_shared: OpenOutbox) -> None:
    outbox = open_shared()
    for session in ("a", "b"):
        outbox.put("fake", turn(f"of {session}", session))
    lines = DeliveryLines(outbox, "fake")
    first = lines.next(())
    assert first is not None
    second = lines.next({first.session_id})  # its provider has not started
    assert second is not None
    assert second.session_id != first.session_id
    assert lines.next({first.session_id, second.session_id}) is None
    # The leases are still extended, so that no other worker would take these lines.
    assert lines.next({second.session_id}) == first
    assert lines.next({first.session_id}) == second
    lines.release()

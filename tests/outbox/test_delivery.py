from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import Capabilities, MemoryWrite, Message, Query, SessionSwitch, Turn
from hermes_core.errors import BackendNotFound, BackendRefused, BackendUnavailable, OutboxFull
from hermes_core.home import HermesHome
from hermes_core.manager.breaker import COOLDOWN_S, MAX_FAILURES
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.writes import ANOTHER_ACCOUNT
from hermes_core.outbox.delivery import MAX_ATTEMPTS, MAX_BACKOFF_S
from hermes_core.outbox.lines import DeliveryLines
from hermes_core.outbox.rows import NewRow, Transcript
from hermes_core.outbox.store import Outbox
from hermes_memory_testing.fakes import Clock, RecordingProvider, make_session, make_turn
from tests.manager.conftest import count_questions, until
from tests.outbox_of import manager_outbox

OpenManager = Callable[..., MemoryManager]

A, B = make_session("a"), make_session("b")


class Backend(RecordingProvider):
    """Fails for turns whose text says so; remembers what it took."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.tries: list[str] = []
        self.down: BaseException | None = None

    def sync_turn(self, turn: Turn, session: Any) -> Any:
        self.answer("sync_turn", turn=turn, session=session)
        self.tries.append(turn.id)
        if self.down is not None:
            raise self.down
        if turn.user == "refused":
            raise BackendRefused("too long")
        if turn.user == "gone":
            raise BackendNotFound("no such session")
        if turn.user == "poison":
            raise ValueError("can't encode")
        self.taken.append(turn.id)


def start(manager: MemoryManager) -> MemoryManager:
    manager.initialize_all(A)
    return manager


def later(manager: MemoryManager, clock: Clock, condition: Callable[[], object]) -> bool:
    """Let backoffs pass, again and again, until the condition holds."""

    def step() -> object:
        clock.advance(MAX_BACKOFF_S / 4)
        manager.flush(0.02)
        return condition()

    return until(step)


def test_a_write_is_on_disk_before_the_call_returns(
    open_manager: OpenManager, hermes_home: HermesHome
) -> None:
    provider = Backend()
    manager = open_manager(provider)
    manager.sync_all(make_turn("t1"), A)
    other = manager_outbox(hermes_home)
    assert other.knows(provider.name, "sync_turn", "t1")
    other.close()


def test_writes_arrive_in_order_with_their_ids(open_manager: OpenManager) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    for n in range(20):
        manager.sync_all(make_turn(f"t{n}"), A)
    manager.on_memory_write(MemoryWrite("w1", "add", "memory", "tea"), A)
    manager.on_session_end(A, "close", messages=[Message(role="user", content="hi")])
    assert manager.flush(30)
    assert provider.taken == [f"t{n}" for n in range(20)]
    assert provider.hooks[-2:] == ["on_memory_write", "on_session_end"]
    assert provider.of("on_memory_write")[0]["write"].id == "w1"
    assert provider.of("on_session_end")[0]["reader"].messages()[0]["content"] == "hi"


def test_a_failed_row_is_tried_again_with_the_same_id(open_manager: OpenManager, clock: Clock) -> None:
    provider = Backend()
    provider.down = BackendUnavailable("down")
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t1"), A)
    assert until(lambda: provider.tries == ["t1"])
    provider.down = None
    assert later(manager, clock, lambda: provider.taken)
    assert (provider.tries, provider.taken) == (["t1", "t1"], ["t1"])


def test_a_write_whose_try_failed_makes_the_provider_degraded_until_it_is_taken(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = Backend()
    provider.down = BackendUnavailable("nobody listens")
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t1"), A)
    manager.sync_all(make_turn("t2"), A)
    assert until(lambda: manager.outbox.backlog("fake").error)
    (health,) = manager.health()
    assert (health.state, health.depth) == ("degraded", 2)
    assert health.reason == "2 writes wait, because a try failed: nobody listens"
    provider.down = None
    assert later(manager, clock, lambda: manager.flush(0.02))
    assert (manager.health()[0].state, manager.health()[0].reason) == ("active", "")


def test_a_write_that_is_on_its_way_for_the_first_time_is_no_trouble(open_manager: OpenManager) -> None:
    provider = Backend()
    gate = provider.gates["sync_turn"] = threading.Event()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t1"), A)
    assert until(lambda: provider.hooks[-1] == "sync_turn")
    assert (manager.health()[0].state, manager.health()[0].depth) == ("active", 1)
    gate.set()


def test_a_try_that_failed_in_another_process_is_told_as_well(
    open_manager: OpenManager, hermes_home: HermesHome, left_behind: Callable[..., None]
) -> None:
    left_behind("fake", "t1", A)
    with contextlib.closing(manager_outbox(hermes_home)) as other:
        other.failed(other.pending()[0], "nobody listens", counted=False)
    provider = Backend()
    gate = provider.gates["sync_turn"] = threading.Event()
    manager = start(open_manager(provider))
    assert manager.health()[0].reason == "1 write waits, because a try failed: nobody listens"
    gate.set()
    assert manager.flush(30)
    assert manager.health()[0].state == "active"


@pytest.mark.parametrize(
    ("unanswered", "error"),
    [(0.1, r"no answer within [\d.]+ s, and then the program ended; is the backend well\?"), (60.0, "")],
)
def test_a_write_that_was_waited_for_in_vain_until_the_end_is_a_try_that_failed(
    open_manager: OpenManager,
    hermes_home: HermesHome,
    monkeypatch: pytest.MonkeyPatch,
    unanswered: float,
    error: str,
) -> None:
    monkeypatch.setattr("hermes_core.manager.writes.UNANSWERED_S", unanswered)
    provider = Backend()
    gate = provider.gates["sync_turn"] = threading.Event()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t1"), A)
    manager.sync_all(make_turn("t2"), B)
    assert until(lambda: provider.hooks[-1] == "sync_turn")
    manager.flush(0.1)
    manager.shutdown_all(0.1)
    with contextlib.closing(manager_outbox(hermes_home)) as other:
        assert re.fullmatch(error, other.backlog("fake").error)
        assert [row.attempts for row in other.pending()] == [0, 0]
    gate.set()


def test_a_write_that_began_late_in_its_time_is_not_sent_again_while_it_runs(
    open_manager: OpenManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.outbox.delivery.BUSY_POLL_S", 0.01)
    provider = Backend()
    provider.capabilities = Capabilities(serial=True)
    recall, write = provider.gates["prefetch"], provider.gates["sync_turn"] = (
        threading.Event(),
        threading.Event(),
    )
    deadlines = {"prefetch": 30.0, "sync_turn": 1.0}
    manager = start(open_manager(provider, clock=time.monotonic, deadlines=deadlines))
    asked = threading.Thread(target=manager.prefetch_all, args=(Query("tea"), A))
    asked.start()
    assert provider.wait_for("prefetch")
    manager.sync_all(make_turn("t1"), A)
    threading.Timer(0.5, recall.set).start()  # so that half of its time is left to the write
    assert provider.wait_for("sync_turn")
    asked.join()
    until(lambda: "in doubt" in manager.health()[0].reason, 1.2)  # a second call would stand in line by then
    write.set()
    assert manager.flush(30)
    assert (provider.tries, provider.taken) == (["t1"], ["t1"])


@pytest.mark.sqlite_only("a full disk under the file")
def test_a_write_that_was_taken_is_not_sent_again_while_the_disk_is_full(
    open_manager: OpenManager, hermes_home: HermesHome, clock: Clock
) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t0"), B)
    assert manager.flush()
    other = contextlib.closing(sqlite3.connect(hermes_home.outbox_db, isolation_level=None))
    with other as disk:
        disk.execute(
            "CREATE TRIGGER full BEFORE DELETE ON outbox_rows BEGIN SELECT raise(ABORT, 'database or disk is full'); END"
        )
        manager.sync_all(make_turn("t1"), A)
        assert until(lambda: provider.tries == ["t0", "t1"])
        assert not manager.flush(0.3)
        assert provider.tries == ["t0", "t1"]
        disk.execute("DROP TRIGGER full")
    manager.sync_all(make_turn("t2"), A)
    assert manager.flush()
    assert provider.tries == ["t0", "t1", "t2"]


def test_a_fault_of_the_program_stops_no_delivery_for_ever_and_is_shown(
    open_manager: OpenManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.outbox.delivery.IDLE_POLL_S", 0.05)
    provider = Backend()
    manager = start(open_manager(provider))
    with monkeypatch.context() as broken:
        broken.setattr(manager.outbox, "next", lambda *_: {}["of another version"])
        manager.sync_all(make_turn("t1"), A)
        assert until(lambda: manager.health()[0].state == "degraded")
        assert manager.health()[0].reason == "KeyError: 'of another version'"
    assert manager.flush(30)
    assert (provider.taken, manager.health()[0].state) == (["t1"], "active")


def told(caplog: pytest.LogCaptureFixture) -> int:
    return sum("can't be delivered" in record.message for record in caplog.records)


@pytest.mark.sqlite_only("a full disk under the file")
def test_a_disk_that_stays_full_is_told_once(
    open_manager: OpenManager, hermes_home: HermesHome, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start(open_manager(Backend()))
    assert manager.outbox.depth == 0
    with contextlib.closing(sqlite3.connect(hermes_home.outbox_db, timeout=5, isolation_level=None)) as disk:
        disk.execute(
            "CREATE TRIGGER full BEFORE DELETE ON outbox_rows BEGIN SELECT raise(ABORT, 'database or disk is full'); END"
        )
        manager.sync_all(make_turn("t1"), A)
        assert until(lambda: told(caplog))
        assert not manager.flush(0.3)
        assert told(caplog) == 1
        disk.execute("DROP TRIGGER full")
    assert manager.flush(30)


def test_a_flush_does_not_ask_all_the_time_for_a_row_that_has_to_wait(
    open_manager: OpenManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Backend()
    provider.down = BackendUnavailable("slow down", retry_after=30)
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t1"), A)
    assert until(lambda: provider.tries == ["t1"])
    asked = count_questions(manager, monkeypatch)
    assert not manager.flush(0.3)
    assert len(asked) < 50


def test_a_failing_row_holds_its_own_session_only(open_manager: OpenManager, clock: Clock) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1", "refused"), A)
    manager.sync_all(make_turn("a2"), A)
    manager.sync_all(make_turn("b1"), B)
    assert until(lambda: manager.outbox.depth == 2)
    assert provider.taken == ["b1"]


def test_a_poison_row_is_parked_and_shown_and_the_session_goes_on(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1", "refused"), A)
    manager.sync_all(make_turn("a2"), A)
    assert later(manager, clock, lambda: provider.taken)
    assert provider.tries == ["a1"] * MAX_ATTEMPTS + ["a2"]
    assert [(row.event, row.error) for row in manager.outbox.dead_letters()] == [("a1", "too long")]
    (health,) = manager.health()
    assert (health.state, health.dead_letters) == ("degraded", 1)
    assert "hermes-memory outbox list" in health.reason


def test_a_parked_row_can_be_tried_again(open_manager: OpenManager, clock: Clock) -> None:
    provider = Backend()
    provider.down = BackendRefused("not today")
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1"), A)
    assert later(manager, clock, manager.outbox.dead_letters)
    provider.down = None
    assert manager.outbox.retry() == 1
    assert manager.flush(30)
    assert provider.taken == ["a1"]


def test_an_outage_opens_the_breaker_and_parks_nothing(open_manager: OpenManager, clock: Clock) -> None:
    provider = Backend()
    provider.down = BackendUnavailable("down")
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1"), A)
    assert later(manager, clock, lambda: manager.health()[0].breakers["write"] == "open")
    assert len(provider.tries) == MAX_FAILURES
    (health,) = manager.health()
    assert health.state == "degraded"
    assert health.depth == 1
    tries = len(provider.tries)
    clock.advance(COOLDOWN_S / 2)
    assert not manager.flush(0.2)
    assert len(provider.tries) == tries
    assert later(manager, clock, lambda: len(provider.tries) == tries + 5)
    assert manager.outbox.dead_letters() == []
    provider.down = None
    assert later(manager, clock, lambda: provider.taken == ["a1"])
    assert until(lambda: manager.health()[0].state == "active")


def test_an_address_where_nothing_is_parks_nothing_and_all_arrives_when_it_is_right(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1"), A)
    assert manager.flush(30)
    provider.down = BackendNotFound("404 page not found")  # a proxy, while the service behind it is away
    for turn, session in (("a2", A), ("b1", B), ("a3", A)):
        manager.sync_all(make_turn(turn), session)
    assert later(manager, clock, lambda: len(provider.tries) > 3 * MAX_ATTEMPTS)
    assert manager.outbox.dead_letters() == []
    assert "404 page not found" in manager.health()[0].reason
    provider.down = None
    clock.advance(COOLDOWN_S)
    assert later(manager, clock, lambda: not manager.outbox.pending())
    assert sorted(provider.taken) == ["a1", "a2", "a3", "b1"]
    assert provider.taken.index("a2") < provider.taken.index("a3")


def test_a_row_whose_thing_is_gone_is_parked_once_the_backend_takes_others(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1", "gone"), A)
    assert later(manager, clock, lambda: manager.health()[0].breakers["write"] == "open")
    manager.sync_all(make_turn("b1"), B)
    assert later(manager, clock, manager.outbox.dead_letters)
    assert (provider.taken, [row.event for row in manager.outbox.dead_letters()]) == (["b1"], ["a1"])


def test_an_outage_over_many_short_processes_parks_nothing(open_manager: OpenManager, clock: Clock) -> None:
    provider = Backend()
    provider.down = BackendUnavailable("down")
    for number in range(4):  # each with a breaker that is closed
        manager = start(open_manager(provider))
        if not number:
            manager.sync_all(make_turn("a1"), A)
        tries = len(provider.tries)
        assert later(manager, clock, lambda: len(provider.tries) >= tries + 3)  # noqa: B023  asked at once
        manager.shutdown_all(1)
    assert len(provider.tries) > MAX_ATTEMPTS
    provider.down = None
    manager = start(open_manager(provider))
    assert manager.outbox.dead_letters() == []
    assert later(manager, clock, lambda: provider.taken == ["a1"])


def test_a_poison_row_that_opened_the_breaker_does_not_hold_the_other_sessions(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1", "poison"), A)
    assert later(manager, clock, lambda: manager.health()[0].breakers["write"] == "open")
    manager.sync_all(make_turn("b1"), B)
    clock.advance(COOLDOWN_S)
    manager.flush(0.05)
    assert until(lambda: provider.taken == ["b1"])
    assert later(manager, clock, manager.outbox.dead_letters)
    assert [row.event for row in manager.outbox.dead_letters()] == ["a1"]


def test_a_late_write_is_in_doubt_and_its_lane_sends_nothing_more(open_manager: OpenManager) -> None:
    provider = Backend()
    gate = provider.gates["sync_turn"] = threading.Event()
    manager = start(open_manager(provider, deadlines={"sync_turn": 0.3}, clock=time.monotonic))
    manager.sync_all(make_turn("a1"), A)
    manager.sync_all(make_turn("b1"), B)
    assert until(lambda: "in doubt" in manager.health()[0].reason)
    assert not manager.flush(0.2)
    assert provider.hooks.count("sync_turn") == 1
    gate.set()
    assert manager.flush(30)
    assert provider.taken == ["a1", "b1"]


@pytest.mark.sqlite_only("a lock of the file")
def test_a_late_result_that_cant_be_stored_says_why(open_manager: OpenManager) -> None:
    provider = Backend()
    gate = provider.gates["sync_turn"] = threading.Event()
    manager = start(open_manager(provider, deadlines={"sync_turn": 0.3}, clock=time.monotonic))
    manager.sync_all(make_turn("a1"), A)
    assert until(lambda: "in doubt" in manager.health()[0].reason)
    database = manager.outbox.database
    database.shorten_waits()
    with contextlib.closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        gate.set()
        assert until(lambda: "database is locked; another program" in manager.health()[0].reason, 60)
        other.execute("ROLLBACK")
    assert manager.flush(30)


def test_a_late_write_that_failed_in_the_end_is_tried_again(open_manager: OpenManager, clock: Clock) -> None:
    provider = Backend()
    gate = provider.gates["sync_turn"] = threading.Event()
    provider.down = BackendUnavailable("down")
    manager = start(open_manager(provider, deadlines={"sync_turn": 0.3}))
    manager.sync_all(make_turn("a1"), A)
    assert until(lambda: "in doubt" in manager.health()[0].reason)
    gate.set()
    assert until(lambda: provider.tries == ["a1"])
    provider.down = None
    assert later(manager, clock, lambda: provider.taken == ["a1"])


def test_a_write_that_hangs_at_the_end_is_not_sent_again_by_the_same_process(
    open_manager: OpenManager, hermes_home: HermesHome
) -> None:
    hung, after = Backend(), Backend()
    gate = hung.gates["sync_turn"] = threading.Event()
    first = start(open_manager(hung, clock=time.monotonic, deadlines={"sync_turn": 0.3}))
    first.sync_all(make_turn("t1"), A)
    first.sync_all(make_turn("t2"), A)
    assert until(lambda: "in doubt" in first.health()[0].reason)
    first.shutdown_all(0.3)
    second = start(open_manager(after))
    assert not second.flush(0.3)
    assert "has not returned" in second.health()[0].reason
    gate.set()
    assert until(lambda: second.flush(0.1))
    assert (hung.taken, after.taken) == (["t1"], ["t2"])


def test_a_write_that_ends_after_the_end_is_noted(open_manager: OpenManager) -> None:
    slow, after = Backend(), Backend()
    gate = slow.gates["sync_turn"] = threading.Event()
    first = start(open_manager(slow))
    first.sync_all(make_turn("t1"), A)
    assert slow.wait_for("sync_turn")
    first.shutdown_all(0.1)
    gate.set()
    second = start(open_manager(after))
    assert until(lambda: second.flush(0.1))
    assert (slow.taken, after.taken) == (["t1"], [])


def test_rows_of_an_earlier_process_are_sent_with_their_session(
    open_manager: OpenManager, left_behind: Callable[..., None]
) -> None:
    told = make_session("a", user_id="42", platform="telegram")
    left_behind("fake", "t1", told)
    provider = Backend()
    assert start(open_manager(provider)).flush(30)
    assert provider.of("sync_turn")[0]["session"] == told


def test_a_flush_starts_a_provider_that_nobody_started(open_manager: OpenManager) -> None:
    provider = Backend()
    manager = open_manager(provider)
    manager.on_memory_write(MemoryWrite("w1", "add", "memory", "tea"), A)
    assert manager.flush(30)
    assert provider.of("initialize")[0]["session"].id == A.id
    assert provider.hooks.count("on_memory_write") == 1


def test_the_end_does_not_wait_again_for_what_a_flush_waited_for(open_manager: OpenManager) -> None:
    backend = Backend()
    backend.results["on_memory_write"] = BackendUnavailable("down")
    manager = start(open_manager(backend))
    manager.on_memory_write(MemoryWrite("w1", "add", "memory", "tea"), A)
    assert not manager.flush(1.0)
    began = time.monotonic()
    manager.shutdown_all(timeout=30.0)
    assert time.monotonic() - began < 10


def test_a_start_that_failed_is_tried_again_for_what_waits_though_nobody_speaks(
    open_manager: OpenManager, clock: Clock
) -> None:
    backend = Backend()
    backend.results["initialize"] = OSError("unreachable")
    manager = start(open_manager(backend))
    manager.sync_all(make_turn("t1"), A)
    assert not manager.flush(0.05)
    backend.results.clear()
    assert later(manager, clock, lambda: backend.taken == ["t1"])


def test_a_row_is_not_blamed_for_a_death_while_its_provider_starts(
    open_manager: OpenManager, left_behind: Callable[..., None]
) -> None:
    left_behind("fake", "t1", A)
    provider = Backend()
    starts, sends = (
        provider.gates["initialize"],
        provider.gates["sync_turn"],
    ) = (threading.Event(), threading.Event())
    manager = open_manager(provider)
    manager.initialize_all(A, wait=0.05)

    def sending() -> list[int]:
        lines = manager.outbox.database.execute("SELECT sending FROM outbox_lines WHERE holder <> ''")
        return [row[0] for row in lines]

    assert until(lambda: sending() == [0])  # the row was looked at, and could not be sent yet
    starts.set()
    assert until(lambda: sending() == [manager.outbox.pending()[0].number])
    sends.set()
    assert manager.flush(30)


def test_writes_wait_until_a_slow_initialize_has_ended(open_manager: OpenManager) -> None:
    provider = Backend()
    gate = provider.gates["initialize"] = threading.Event()
    manager = start(open_manager(provider, start_wait=0.01))
    manager.sync_all(make_turn("t1"), A)
    assert provider.taken == []
    assert manager.health()[0].state == "degraded"
    gate.set()
    assert until(lambda: provider.taken == ["t1"])
    assert manager.health()[0].state == "active"


def test_only_the_holder_of_the_lease_delivers_and_the_next_begins_when_it_gives_it_back(
    open_manager: OpenManager, hermes_home: HermesHome
) -> None:
    provider = Backend()
    with contextlib.closing(manager_outbox(hermes_home)) as outbox:
        outbox.put("fake", NewRow("sync_turn", "t0", A.id, "{}"))
        other = DeliveryLines(outbox, "fake")
        assert other.next(()) is not None
        manager = start(open_manager(provider))
        manager.sync_all(make_turn("t1"), A)
        assert not manager.flush(0.2)
        assert provider.taken == []
        outbox.drop([outbox.pending()[0].number])
        other.release()
        assert manager.flush(8)  # before the lease would have ended
    assert provider.taken == ["t1"]


def holders(outbox: Outbox) -> int:
    count = "SELECT count(*) FROM outbox_lines WHERE holder <> ''"
    return int(outbox.database.execute(count).fetchone()[0])


def test_the_lease_is_given_back_when_nothing_waits(open_manager: OpenManager) -> None:
    manager = start(open_manager(Backend()))
    manager.sync_all(make_turn("t1"), A)
    assert manager.flush(30)
    assert until(lambda: not holders(manager.outbox), 3)


def test_the_lease_is_kept_a_moment_for_what_follows_and_given_back_at_the_end(
    open_manager: OpenManager, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.outbox.delivery.LINGER_S", 60.0)
    monkeypatch.setattr("hermes_core.outbox.delivery.IDLE_POLL_S", 60.0)
    provider = Backend()
    manager = start(open_manager(provider))
    with contextlib.closing(manager_outbox(hermes_home)) as outbox:
        for turn in ("t1", "t2"):
            manager.sync_all(make_turn(turn), A)
            assert manager.flush(30)
            assert holders(outbox) == 1
        assert provider.taken == ["t1", "t2"]
        manager.shutdown_all()
        assert holders(outbox) == 0


def test_rows_of_another_account_are_parked_until_a_person_decides(
    open_manager: OpenManager, left_behind: Callable[..., None]
) -> None:
    left_behind("fake", "t1", A, "url-1")
    provider = Backend()
    manager = open_manager()
    manager.add_provider(provider, fingerprint=lambda: "url-2")
    manager.initialize_all(A)
    assert manager.flush(30)
    assert [row.error for row in manager.outbox.dead_letters()] == [ANOTHER_ACCOUNT]
    assert provider.taken == []
    manager.outbox.retry()
    assert manager.flush(30)
    assert provider.taken == ["t1"]


def test_a_row_of_another_account_from_before_a_clock_was_set_back_is_parked_as_well(
    open_manager: OpenManager, clock: Clock, left_behind: Callable[..., None]
) -> None:
    clock.advance(86_400)
    left_behind("fake", "t1", A, "url-1")
    clock.advance(-86_400)
    manager = open_manager()
    manager.add_provider(Backend(), fingerprint=lambda: "url-2")
    manager.initialize_all(A)
    assert manager.flush(30)
    assert manager.outbox.dead_letters()


def test_the_account_is_the_one_of_the_settings_that_the_provider_was_started_with(
    open_manager: OpenManager, clock: Clock
) -> None:
    class Wrong(Backend):
        def initialize(self, session: Any) -> None:
            if account == ["url-1"]:
                raise BackendUnavailable("no such host")

    account = ["url-1"]
    provider = Wrong()
    manager = open_manager()
    manager.add_provider(provider, fingerprint=lambda: account[0])
    manager.initialize_all(A)
    manager.sync_all(make_turn("t1"), A)
    account[0] = "url-2"
    assert later(manager, clock, manager.outbox.dead_letters)
    assert manager.outbox.dead_letters()[0].error == ANOTHER_ACCOUNT
    manager.sync_all(make_turn("t2"), A)
    assert manager.flush(30)
    assert provider.taken == ["t2"]


def test_two_processes_with_an_account_each_send_what_is_their_own(
    open_manager: OpenManager, clock: Clock
) -> None:
    one, other = Backend(), Backend()
    managers = []
    for provider, account in ((one, "url-1"), (other, "url-2")):
        manager = open_manager()
        manager.add_provider(provider, fingerprint=lambda account=account: account)
        managers.append(start(manager))
    one.down = BackendUnavailable("for a moment")
    clock.advance(1)
    managers[0].sync_all(make_turn("t1"), A)
    assert until(lambda: one.tries == ["t1"])
    managers[1].sync_all(make_turn("t2"), B)
    assert until(lambda: other.taken == ["t2"])
    assert managers[1].outbox.dead_letters() == []
    one.down = None
    assert later(managers[0], clock, lambda: one.taken)
    assert (one.taken, other.taken) == (["t1"], ["t2"])


def test_an_account_that_cannot_be_told_is_a_failed_provider(open_manager: OpenManager) -> None:
    def fingerprint() -> str:
        raise ValueError("no url")

    manager = open_manager()
    assert not manager.add_provider(Backend(), fingerprint=fingerprint)
    assert "its account can't be told: ValueError: no url" in manager.health()[0].reason


def test_a_row_of_a_hook_that_the_provider_has_no_more_is_parked(
    open_manager: OpenManager, left_behind: Callable[..., None]
) -> None:
    class New(MemoryProvider):
        name = "fake"

        def on_delegation(self) -> None: ...

    left_behind("fake", "t1", A)
    manager = start(open_manager(New()))
    assert manager.flush(30)
    assert [row.error for row in manager.outbox.dead_letters()] == ["fake has no sync_turn()"]


def test_a_session_end_is_read_from_the_host_when_it_is_delivered(open_manager: OpenManager) -> None:
    provider = Backend()
    asked: list[tuple[str, int | None]] = []

    def transcripts(session_id: str, last: int | None) -> Transcript:
        asked.append((session_id, last))
        return Transcript(lambda: [Message(role="user", content="hi")])

    manager = start(open_manager(provider, transcripts=transcripts))
    manager.on_session_end(A, "close", last_message_id=9, messages=[Message(role="user", content="not this")])
    manager.on_session_end(A, "evict", last_message_id=9)
    assert manager.flush(30)
    assert asked == [("a", 9)]
    (call,) = provider.of("on_session_end")
    assert [message["content"] for message in call["reader"].messages()] == ["hi"]


def test_a_transcript_that_cannot_be_read_does_not_stop_the_drainer(
    open_manager: OpenManager, clock: Clock
) -> None:
    def transcripts(session_id: str, last: int | None) -> Any:
        raise RuntimeError("session is gone")

    provider = Backend()
    manager = start(open_manager(provider, transcripts=transcripts))
    manager.on_session_end(A, "close", last_message_id=9)
    manager.sync_all(make_turn("b1"), B)
    assert later(manager, clock, manager.outbox.dead_letters)
    assert provider.taken == ["b1"]
    assert "session is gone" in manager.outbox.dead_letters()[0].error


def test_a_switch_comes_after_the_rows_of_the_old_session(open_manager: OpenManager) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("a1"), A)
    manager.on_session_end(A, "new", last_message_id=2)
    manager.on_session_switch(SessionSwitch("x1", A, B, "new", reset=True))
    assert manager.flush(30)
    order = [hook for hook in provider.hooks if hook not in ("is_available", "get_tool_schemas")]
    assert order == ["initialize", "sync_turn", "on_session_end", "on_session_switch"]


def test_a_rewind_drops_what_was_not_sent_and_names_what_was(open_manager: OpenManager, clock: Clock) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("sent"), A)
    assert manager.flush(30)
    provider.down = BackendRefused("hold this session")
    manager.sync_all(make_turn("tried"), A)
    assert until(lambda: "tried" in provider.tries)
    manager.sync_all(make_turn("unsent"), A)
    provider.down = None
    manager.on_session_switch(SessionSwitch("x1", A, A, "rewind", rewound_turns=("sent", "tried", "unsent")))
    assert later(manager, clock, lambda: "on_session_switch" in provider.hooks)
    assert "unsent" not in provider.tries
    assert provider.of("on_session_switch")[0]["switch"].rewound_turns == ("sent", "tried")


def test_a_rewind_drops_what_waits_for_a_provider_that_is_off(
    open_manager: OpenManager, left_behind: Callable[..., None]
) -> None:
    for turn in ("t1", "t2"):
        left_behind("off", turn, A)
    manager = start(open_manager(Backend()))
    manager.on_session_switch(SessionSwitch("w1", A, A, "rewind", rewound_turns=("t2",)))
    assert [row.event for row in manager.outbox.pending("off")] == ["t1"]
    manager.shutdown_all()
    alone = open_manager()
    alone.on_session_switch(SessionSwitch("w2", A, A, "rewind", rewound_turns=("t1",)))
    assert [row.hook for row in alone.outbox.pending("off")] == ["on_session_switch"], "t1 may have been sent"


def test_a_full_outbox_refuses_the_write_visibly(open_manager: OpenManager, hermes_home: HermesHome) -> None:
    backend = Backend()
    backend.down = BackendUnavailable("down")
    manager = open_manager(backend, outbox=manager_outbox(hermes_home, max_rows=1))
    manager.sync_all(make_turn("t1"), A)
    with pytest.raises(OutboxFull):
        manager.sync_all(make_turn("t2"), A)
    assert manager.outbox.refused("fake") == 1


@pytest.mark.parametrize("context", ["subagent", "cron", "review", "flush"])
def test_writes_of_sessions_without_a_person_reach_no_provider(
    open_manager: OpenManager, context: Any
) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    session = make_session("cron", agent_context=context)
    manager.sync_all(make_turn("t1"), session)
    manager.on_memory_write(MemoryWrite("w1", "add", "memory", "tea"), session)
    manager.on_session_end(session, "close", last_message_id=1)
    manager.on_session_switch(SessionSwitch("x", session, session, "new"))
    assert manager.on_pre_compress([Message(role="user", content="x")], 0, session) == ""
    assert manager.outbox.depth == 0
    assert set(provider.hooks) == {"is_available", "get_tool_schemas", "initialize"}


def test_a_serial_provider_never_runs_two_hooks_at_once(open_manager: OpenManager) -> None:
    class Serial(Backend):
        capabilities = Capabilities(serial=True)

    provider = Serial()
    manager = start(open_manager(provider))
    for n in range(20):
        manager.sync_all(make_turn(f"t{n}"), A)
        manager.on_turn_start(n, "hi", A)
    assert manager.flush(30)
    threads = provider.threads
    assert threads["sync_turn"] == threads["on_turn_start"] == threads["initialize"]
    assert len(threads["sync_turn"]) == 1


def test_writes_have_a_thread_of_their_own(open_manager: OpenManager) -> None:
    provider = Backend()
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t1"), A)
    assert manager.flush(30)
    assert provider.threads["sync_turn"] == {"hermes-fake-write"}
    assert provider.threads["initialize"] == {"hermes-fake-read"}


def test_an_async_write_that_is_late_is_cancelled_and_tried_again(
    open_manager: OpenManager, clock: Clock
) -> None:
    import asyncio

    tries: list[str] = []

    class Async(MemoryProvider):
        name = "async"

        async def sync_turn(self, turn: Turn) -> None:
            tries.append(turn.id)
            if len(tries) == 1:
                await asyncio.Event().wait()

    manager = start(open_manager(Async(), deadlines={"sync_turn": 0.3}))
    manager.sync_all(make_turn("t1"), A)
    assert until(lambda: len(tries) == 1)
    assert until(lambda: manager.health()[0].late == 1)
    assert later(manager, clock, lambda: tries == ["t1", "t1"])


def test_a_turn_is_copied_when_it_is_stored(open_manager: OpenManager) -> None:
    provider = Backend()
    manager = open_manager(provider)
    messages: list[Message] = [Message(role="user", content="before")]
    manager.sync_all(Turn("t1", 1, "u", "a", tuple(messages)), A)
    messages[0]["content"] = "after"
    manager.initialize_all(A)
    assert manager.flush(30)
    sent: Sequence[Message] = provider.of("sync_turn")[0]["turn"].messages
    assert sent[0]["content"] == "before"


def test_a_backend_that_asks_for_time_is_given_it_and_the_row_is_not_blamed(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = Backend()
    provider.down = BackendUnavailable("answered 429", retry_after=600)
    manager = start(open_manager(provider))
    manager.sync_all(make_turn("t1"), A)
    assert until(lambda: provider.tries == ["t1"])
    assert until(lambda: manager.outbox.pending(provider.name)[0].error != "")
    clock.advance(599)
    manager.flush(0.05)
    assert provider.tries == ["t1"]
    clock.advance(2)
    manager.flush(0.05)  # the drainer looks at its clock when it is woken
    assert until(lambda: len(provider.tries) == 2)
    assert manager.outbox.pending(provider.name)[0].attempts == 0

"""An outbox in a file of its own, for a manager without a session store."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.providers import DURABLE_HOOKS
from hermes_core.memory import open_memory
from hermes_core.outbox.lines import DeliveryLines
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import encode
from hermes_core.outbox.store import ANY_ACCOUNT, Outbox
from hermes_memory_testing.fakes import RecordingProvider, make_session, make_turn


def waiting(home: HermesHome) -> Outbox:
    """Return the outbox of a manager without a session store, with two rows for a provider and a dead letter."""
    alone = open_outbox(home)
    for number in (1, 2, 3):
        row = encode("sync_turn", make_turn(f"t{number}"), make_session("s1"), lambda value: value)
        alone.put("fake", row, ANY_ACCOUNT)
    alone.delivered(alone.pending("fake")[0])
    alone.bury(alone.pending("fake")[0], "refused")
    return alone


@pytest.mark.sqlite_only("outbox.db")
def test_rows_of_a_manager_without_a_session_store_are_taken_over_unless_it_still_runs(
    hermes_home: HermesHome,
) -> None:
    alone, provider = waiting(hermes_home), RecordingProvider()
    lines = DeliveryLines(alone, "fake")
    assert lines.next(()) is not None
    with open_memory(hermes_home, provider=provider) as memory:
        assert memory.problems() == []
        assert memory.manager.outbox.depth == 0
    lines.release()
    with open_memory(hermes_home, provider=provider) as memory:
        memory.start_session("s2")
        assert memory.flush(30)
        outbox = memory.manager.outbox
        assert [(row.event, row.error) for row in outbox.dead_letters()] == [("t2", "refused")]
        assert all(outbox.knows("fake", "sync_turn", f"t{number}") for number in (1, 2, 3))
    assert [given["turn"].id for hook, given in provider.calls if hook == "sync_turn"] == ["t3"]
    assert (alone.depth, alone.dead_letters()) == (0, [])
    alone.close()


@pytest.mark.sqlite_only("outbox.db")
def test_rows_that_were_taken_over_before_a_crash_are_not_sent_twice(hermes_home: HermesHome) -> None:
    waiting(hermes_home).close()
    before = hermes_home.outbox_db.read_bytes()
    for _ in range(2):
        with open_memory(hermes_home, provider="") as memory:
            outbox = memory.manager.outbox
            assert [row.event for row in outbox.pending("fake")] == ["t3"]
            assert [row.event for row in outbox.dead_letters()] == ["t2"]
        hermes_home.outbox_db.write_bytes(before)  # as if the second commit had failed
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        memory.start_session("s2")
        assert memory.flush(30)
    hermes_home.outbox_db.write_bytes(before)
    with open_memory(hermes_home, provider=provider) as memory:
        assert memory.flush(30)
    assert [given["turn"].id for hook, given in provider.calls if hook == "sync_turn"] == ["t3"]


@pytest.mark.sqlite_only("outbox.db")
def test_nothing_newer_is_sent_while_the_file_can_not_be_read(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.outbox_db.write_bytes(b"garbage" * 1000)
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        memory.end_turn(memory.start_session("s1"), "Something new.", "Noted.", turn_id="new-t1")
        assert not memory.flush(1)
        [problem] = memory.problems()
        assert f"{str(hermes_home.outbox_db)!r} is damaged" in problem
    assert not DURABLE_HOOKS.intersection(provider.hooks)
    hermes_home.outbox_db.unlink()
    with open_memory(hermes_home, provider=provider) as memory:
        memory.start_session("s1")
        assert memory.flush(30)
    assert [given["turn"].id for hook, given in provider.calls if hook == "sync_turn"] == ["new-t1"]


@pytest.mark.sqlite_only("a state.db of another program")
def test_in_a_home_whose_store_is_another_programs_the_outbox_file_is_used(hermes_home: HermesHome) -> None:
    """As in the home of Hermes Agent: commands see what our provider has waiting there."""
    hermes_home.path.mkdir()
    with contextlib.closing(sqlite3.connect(hermes_home.state_db)) as other, other:
        other.execute("CREATE TABLE their_sessions (id)")
    manager = MemoryManager(hermes_home)
    manager.add_provider(RecordingProvider())
    manager.sync_all(make_turn("t1"), make_session())
    manager.shutdown_all(0.1)
    with open_memory(hermes_home, provider="") as memory:
        assert memory.manager.outbox.database.label == str(hermes_home.outbox_db)
        assert [row.event for row in memory.manager.outbox.pending()] in (["t1"], [])
        assert memory.manager.outbox.knows("fake", "sync_turn", "t1")

"""An outbox in a file of its own, for a manager without a session store."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from hermes_core.errors import DatabaseUnavailable
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.memory import open_memory
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import NewRow
from hermes_core.storage.sqlite import Database
from hermes_core.testing.fakes import RecordingProvider, make_session, make_turn
from tests.older_home import restore_home


@pytest.fixture
def old_home(tmp_path: Path) -> HermesHome:
    return HermesHome(restore_home("home-0.1", tmp_path / "home"))


def test_rows_of_the_earlier_version_stay_in_their_file_and_order(old_home: HermesHome) -> None:
    with contextlib.closing(open_outbox(old_home)) as outbox:
        events = [row.event for row in outbox.pending("diary")]
        assert (events[:2], events[-1]) == (["ann-t4", "ann-t5"], "arrived-t1")
        assert [row.event for row in outbox.dead_letters()] == ["dead-t2", "old-t1"]
        assert outbox.knows("diary", "sync_turn", "ann-t1")
        assert not outbox.put("diary", NewRow("sync_turn", "ann-t1", "ann-1", "{}"))
    with contextlib.closing(open_outbox(old_home)) as again:
        assert [row.event for row in again.pending("diary")] == events


def test_a_program_of_the_earlier_version_refuses_the_file(old_home: HermesHome) -> None:
    open_outbox(old_home).depth  # noqa: B018
    older = [
        (name, lambda _connection: None)
        for name in (
            "0001 rows, settled ids, totals",
            "0002 lengths in the index, no totals",
            "0003 arrivals",
            "0004 rows by session",
        )
    ]
    with (
        contextlib.closing(Database(old_home.outbox_db, older)) as database,
        pytest.raises(DatabaseUnavailable, match="was changed by a newer version of the package"),
    ):
        database.execute("SELECT 1")


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
        assert memory.manager.outbox.path == hermes_home.outbox_db
        assert [row.event for row in memory.manager.outbox.pending()] in (["t1"], [])
        assert memory.manager.outbox.knows("fake", "sync_turn", "t1")

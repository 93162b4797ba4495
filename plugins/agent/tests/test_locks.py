"""Leases on sessions, on each engine: a process shows that it has a session open, until some time after it was killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core.errors import LockTimeout
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.leases import Lease, lease_holders
from hermes_memory_agent.locks import SessionLock
from hermes_memory_postgresql.engine import PostgresEngine
from tests.manager.conftest import until
from tests.outbox_of import ON_POSTGRES


@pytest.fixture(params=["postgresql"] if ON_POSTGRES else ["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The database of the sessions."""
    if request.param == "sqlite":
        opened: Any = SessionStore(tmp_path / "state.db").database
    else:
        url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
        opened = PostgresEngine(url, schema=schema)
    with contextlib.closing(opened):
        yield opened


@pytest.mark.parametrize("chat", ["chat", "../../outside", "a/b:c", "long" * 100, "夜"])
def test_a_session_that_a_process_has_open_is_locked_for_others_until_its_lease_ends(
    database: Any, chat: str
) -> None:
    one, two = SessionLock(database), SessionLock(database)
    assert one.move(chat)
    assert one.move(chat)
    assert not two.move(chat)
    assert two.move("other")
    assert two.crashed() == []
    one.release()
    assert two.move(chat)
    two.release()
    assert lease_holders(database) == {}


def test_a_process_that_is_killed_or_suspended_loses_its_session(database: Any) -> None:
    suspended, one = SessionLock(database), SessionLock(database, seconds=0.0)
    assert suspended.move("chat")
    assert suspended._lease is not None
    assert suspended._lease._heartbeat is not None
    suspended._lease._heartbeat.stop()  # its threads are suspended with it
    assert one.crashed() == []
    database.execute("UPDATE leases SET until = 0")
    assert lease_holders(database) == {}
    assert one.crashed() == ["chat"]
    assert one.crashed() == []
    two = SessionLock(database)
    assert two.move("chat")
    # The first one may go on, but what must happen once is refused.
    with pytest.raises(LockTimeout, match="another program has taken over"), database.transaction():
        suspended._lease.hold()
    assert not suspended.move("chat")
    suspended.release()
    assert not one.move("chat")  # the lease of the other one stays
    two.release()


def test_a_process_does_not_take_its_own_session_for_crashed(database: Any) -> None:
    lock = SessionLock(database)
    assert lock.move("chat")
    database.execute("UPDATE leases SET until = 0")  # the machine was suspended
    assert lock.crashed() == []
    assert lock.move("chat")
    assert list(lease_holders(database)) == ["session-chat"]
    lock.release()


def test_the_lease_is_extended_while_its_process_lives(database: Any) -> None:
    one, two = SessionLock(database, seconds=3.0), SessionLock(database)
    assert one.move("chat")
    until_then = database.execute("SELECT until FROM leases").fetchone()[0]
    assert until(lambda: database.execute("SELECT until FROM leases").fetchone()[0] > until_then)
    assert not two.move("chat")
    one.release()


KILLED = """
import os, sys
from pathlib import Path
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.leases import Lease

assert Lease(SessionStore(Path(sys.argv[1])).database, "session-chat", 30.0).take()
os.kill(os.getpid(), 9)
"""


def test_a_session_of_a_killed_process_is_said_to_be_free_and_can_be_taken_when_its_lease_has_ended(
    tmp_path: Path,
) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "state.db")], check=False)
    assert killed.returncode == -9
    with contextlib.closing(SessionStore(tmp_path / "state.db")) as store:
        lock = SessionLock(store.database)
        lease = Lease(store.database, "session-chat")
        assert not lease.take()
        holder = lease_holders(store.database)["session-chat"]
        assert holder.has_ended
        assert "which has ended" in str(holder)
        assert lock.move("chat")  # nobody speaks in it
        store.database.execute("UPDATE leases SET until = 0")
        assert lease.take()
        lease.release()


def test_a_chat_that_was_taken_for_killed_goes_on_in_its_session(stage: Any) -> None:
    chat, next_chat = stage.agent(session_id="chat"), stage.agent()
    chat.run_turn("Before.")
    lock, other = SessionLock(stage.memory.sessions.database), SessionLock(stage.memory.sessions.database)
    assert lock.move("chat")
    stage.memory.sessions.database.execute("UPDATE leases SET until = 0")  # Ctrl-Z
    for session_id in other.crashed():
        next_chat.end_crashed(session_id)
    assert stage.memory.sessions.get_session("chat").end_reason == "crash"
    assert chat.run_turn("After.").outcome == "answered"
    assert stage.memory.sessions.get_session("chat").end_reason == ""
    assert [message.content for message in stage.memory.sessions.get_messages("chat")] == [
        "Before.",
        "Yes.",
        "After.",
        "Yes.",
    ]
    lock.release()

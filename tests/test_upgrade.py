"""A home that an earlier checkout wrote opens, and everything that it owed to the provider is delivered."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Field
from hermes_core.contract.values import Session
from hermes_core.errors import DatabaseUnavailable
from hermes_core.home import HermesHome
from hermes_core.manager.providers import DURABLE_HOOKS
from hermes_core.manager.writes import ANOTHER_ACCOUNT
from hermes_core.memory import open_memory
from hermes_core.outbox.delivery import MAX_BACKOFF_S
from hermes_core.outbox.lines import DeliveryLock
from hermes_core.outbox.recovery import open_outbox
from hermes_core.outbox.rows import encode
from hermes_core.outbox.store import ANY_ACCOUNT
from hermes_core.sessions.schema import MIGRATIONS
from hermes_core.storage.sqlite import Database
from hermes_core.testing.fakes import Clock, RecordingProvider, make_session, make_turn
from tests.older_home import restore_home

pytestmark = pytest.mark.sqlite_only("a home of an earlier version, which has files")


class Diary(RecordingProvider):
    name = "diary"
    settings = (Field("bank", default="main", identity=True, help="Whose diary"),)

    def on_session_end(self, reader: Any, reason: Any, session: Session) -> Any:
        messages = [message["content"] for message in reader.messages()]
        return self.answer("on_session_end", reader=messages, reason=reason, session=session)


TURNS_AND_EVENTS = {
    "ann-2": ["ann-t4", "ann-t5", "delegation-1", "ann-2:30", "switch-2"],
    "ann-4": ["ann-t7"],
    "bob-1": ["('bob-t2', 'bob-t3')", "switch-3"],
    "ann-1": ["('ann-t2', 'ann-t6')"],
    "last-1": ["last-t1", "last-t2"],
    "last-2": ["arrived-t1"],
}
"""What the home owes to the provider: ids of events, or turns to forget, in the order of each session."""

NOTES = [
    ("add", "The oven is broken.", ""),
    ("remove", "", "The garden gate sticks."),
    ("add", "The plumber comes on Monday.", ""),
    ("remove", "", "Deploys happen on Thursdays."),
    ("add", "The full outbox refused this.", ""),
    ("add", "Killed before the outbox had this.", ""),
]

DEAD = {
    "dead-t2": "the text is not accepted; change it",
    "old-t1": ANOTHER_ACCOUNT.replace("hermes-memory", "hermes"),  # as that version stored it
    "old-t2": ANOTHER_ACCOUNT,
}


@pytest.fixture
def old_home(tmp_path: Path) -> HermesHome:
    """A home as an earlier checkout left it: killed, with rows of every kind waiting."""
    return HermesHome(restore_home("home-0.1", tmp_path / "home"))


def deliver_all(home: HermesHome, provider: Diary) -> dict[str, str]:
    """Open the home, deliver what waits, and return the dead letters that stay."""
    clock = Clock()
    with open_memory(home, provider=provider, clock=clock) as memory:
        memory.start_session("new")
        for _ in range(100):
            if memory.flush(0.2):
                break
            clock.advance(MAX_BACKOFF_S)
        assert memory.manager.outbox.depth == 0
        return {row.event: row.error for row in memory.manager.outbox.dead_letters()}


def received(provider: Diary) -> tuple[dict[str, list[str]], list[tuple[str, str, str]]]:
    """Return what the provider got: events by session, and notes."""
    events, notes = defaultdict(list), []
    for hook, given in provider.calls:
        if hook == "sync_turn":
            events[given["session"].id].append(given["turn"].id)
        elif hook == "on_delegation":
            events[given["session"].id].append(given["delegation"].id)
        elif hook == "on_session_end":
            assert given["reader"][:1] == ["My sister visits on Friday."]
            events[given["session"].id].append("ann-2:30")
        elif hook == "on_session_switch":
            switch = given["switch"]
            named = switch.id.startswith("switch")
            events[switch.old.id].append(switch.id if named else str(switch.rewound_turns))
        elif hook == "on_memory_write":
            notes.append((given["write"].action, given["write"].content, given["write"].previous))
    return dict(events), notes


def test_everything_that_waited_arrives_once_and_in_order_and_dead_letters_stay(old_home: HermesHome) -> None:
    provider = Diary()
    assert deliver_all(old_home, provider) == DEAD
    events, notes = received(provider)
    assert events == TURNS_AND_EVENTS
    assert notes == NOTES
    again = Diary()
    assert deliver_all(old_home, again) == DEAD
    assert not DURABLE_HOOKS.intersection(again.hooks)


def test_the_old_outbox_is_kept_as_a_copy_until_all_is_delivered(old_home: HermesHome) -> None:
    backup = old_home.outbox_db.with_name("outbox.db.bak")
    deliver_all(old_home, Diary())
    assert (old_home.outbox_db.exists(), backup.exists()) == (False, True)
    with open_memory(old_home, provider=Diary()) as memory:
        memory.manager.outbox.retry()
        memory.start_session("new")
        assert memory.flush(30)
    assert not backup.exists()


def test_the_conversations_and_notes_of_the_old_home_are_all_there(old_home: HermesHome) -> None:
    with open_memory(old_home, provider=Diary()) as memory:
        sessions = memory.sessions
        assert sessions.check() == []
        assert memory.curated.entries("memory")[-1] == "Killed before the outbox had this."
        assert [m.content for m in sessions.get_messages("long-2") if m.ref] == [
            "This was stopped before an answer."
        ]
        chat = sessions.get_messages_as_conversation("long-2", include_ancestors=True)
        assert [message["content"] for message in chat][:2] == [
            "The oven should stand by the window.",
            "Noted.",
        ]
        assert sum(message["content"] == "And the table in the middle." for message in chat) == 1
        assert {hit.session_id for hit in sessions.search("Lisbon")} == {"ann-1"}
        assert sessions.search("dentist Okafor") == []
        assert sessions.get_session("bob-1").user != sessions.get_session("ann-1").user


def test_nothing_about_delivery_stays_beside_the_sessions(old_home: HermesHome) -> None:
    deliver_all(old_home, Diary())
    with contextlib.closing(sqlite3.connect(old_home.state_db)) as database:
        keys = {row[0] for row in database.execute("SELECT key FROM state_meta")}
    assert keys == set()


class Killed(BaseException):
    """The process ends here."""


STEPS = [
    "hermes_core.upgrade.copy_rows",
    "hermes_core.upgrade._add_turns",
    "hermes_core.upgrade._add_switches",
    "hermes_core.upgrade._set_aside",
    "hermes_core.upgrade.backup_of",
]


@pytest.mark.parametrize("step", STEPS)
def test_an_upgrade_that_is_killed_is_repeated(
    old_home: HermesHome, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(step, killed)
        with pytest.raises(Killed):
            open_memory(old_home, provider=Diary())
    provider = Diary()
    assert deliver_all(old_home, provider) == DEAD
    assert received(provider) == (TURNS_AND_EVENTS, NOTES)


def test_nothing_newer_is_sent_while_a_program_of_the_earlier_version_sends(old_home: HermesHome) -> None:
    lock = DeliveryLock.of(old_home.path, "diary")
    assert lock.acquire()
    provider = Diary()
    with open_memory(old_home, provider=provider) as memory:
        session = memory.start_session("new")
        memory.end_turn(session, "Something new.", "Noted.", turn_id="new-t1")
        memory.change_memory("add", content="A new note.")
        assert not memory.flush(1)
        assert "stop it: it is of an earlier version" in memory.problems()[0]
        lock.release()
    assert not DURABLE_HOOKS.intersection(provider.hooks)
    assert deliver_all(old_home, provider) == DEAD
    events, notes = received(provider)
    assert events == {**TURNS_AND_EVENTS, "new": ["new-t1"]}
    assert notes == [*NOTES, ("add", "A new note.", "")]


def test_a_damaged_outbox_of_the_earlier_version_is_a_problem_and_nothing_is_sent_before_it(
    old_home: HermesHome,
) -> None:
    for path in old_home.path.glob("outbox.db*"):
        path.unlink()
    old_home.outbox_db.write_bytes(b"garbage" * 1000)
    provider = Diary()
    with open_memory(old_home, provider=provider) as memory:
        session = memory.start_session("new")
        memory.end_turn(session, "Something new.", "Noted.", turn_id="new-t1")
        assert not memory.flush(1)
        [problem] = memory.problems()
        assert f"{str(old_home.outbox_db)!r} is damaged" in problem
    old_home.outbox_db.rename(old_home.path / "damaged.db")
    deliver_all(old_home, provider)
    assert received(provider)[0]["new"] == ["new-t1"]


@pytest.mark.parametrize("damage", ["", "{", "7", "null", '[{"at": 1e12}]', "[[1]]", '[["a", 2]]'])
def test_notes_of_the_earlier_version_beside_the_sessions_may_be_damaged(
    old_home: HermesHome, damage: str
) -> None:
    with contextlib.closing(sqlite3.connect(old_home.state_db)) as disk, disk:
        disk.execute("UPDATE state_meta SET value = ?", (damage,))
    provider = Diary()
    assert deliver_all(old_home, provider) == DEAD
    # What only those notes knew is not sent to anybody: the killed turn and the last rewind.
    events, _ = received(provider)
    assert events == {
        **TURNS_AND_EVENTS,
        "last-1": ["last-t1"],
        "bob-1": ["('bob-t2', 'bob-t3')"],
    }


def test_a_program_of_the_earlier_version_refuses_the_home_with_one_line(old_home: HermesHome) -> None:
    deliver_all(old_home, Diary())
    older = list(itertools.takewhile(lambda migration: migration[0] != "outbox", MIGRATIONS))
    with (
        contextlib.closing(Database(old_home.state_db, older)) as database,
        pytest.raises(DatabaseUnavailable, match="was changed by a newer version of the package"),
    ):
        database.execute("SELECT 1")


def test_rows_of_a_manager_without_a_session_store_are_taken_over_unless_it_still_runs(
    hermes_home: HermesHome,
) -> None:
    alone = open_outbox(hermes_home)
    row = encode("sync_turn", make_turn("t1"), make_session("s1"), lambda value: value)
    alone.put("diary", row, ANY_ACCOUNT)
    provider = Diary()
    lock = DeliveryLock.of(hermes_home.path, "diary")
    assert lock.acquire()
    with open_memory(hermes_home, provider=provider) as memory:
        assert memory.problems() == []
        assert memory.manager.outbox.depth == 0
    lock.release()
    alone.close()
    assert deliver_all(hermes_home, provider) == {}
    assert received(provider)[0] == {"s1": ["t1"]}

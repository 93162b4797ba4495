"""Hosts die at any moment; what they were told is safe is in MEMORY.md, in state.db, and at the provider."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from typing import Any

import pytest

from hermes_core import HermesHome, Memory, SessionSwitch, open_memory
from tests.rounds import rounds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

KILLS = rounds(50)


def firsts(calls: list[dict[str, str]], session: str) -> list[str]:
    """The texts that the provider got of one session, each when it came first."""
    return list(dict.fromkeys(call["text"] for call in calls if call["session"] == session))


def stored(home: HermesHome) -> tuple[set[str], dict[tuple[str, str], int]]:
    """The facts of MEMORY.md, and the messages of state.db by session and text, with their ids."""
    with open_memory(home, provider="") as memory:
        assert memory.sessions.check() == []
        facts = set(memory.curated.entries("memory"))
        messages = {
            (session, message.content): message.id
            for session in "ab"
            for message in memory.sessions.get_messages(session)
        }
    return facts, messages


def waiting(home: HermesHome) -> int:
    with open_memory(home, provider="") as memory:
        return len(memory.manager.outbox.pending()) + len(memory.manager.outbox.dead_letters())


def assert_nothing_is_lost(hosts: Any) -> None:
    facts, messages = stored(hosts.home)
    assert {ack.text for ack in hosts.acks("write")} <= facts
    for ack in hosts.acks("message"):
        assert messages[ack.session, ack.text] == int(ack.id)
    for ack in hosts.acks("turn"):
        assert (ack.session, ack.text) in messages
    assert {ack.text for ack in hosts.acks("write")} <= {call["text"] for call in hosts.taken("write")}
    assert {ack.id for ack in hosts.acks("turn")} <= {call["id"] for call in hosts.taken("turn")}
    assert waiting(hosts.home) == 0


@pytest.mark.shortened
@pytest.mark.slow
def test_no_kill_loses_what_was_acknowledged(hosts: Any) -> None:
    chance = random.Random(2026)
    for number in range(KILLS):
        pid = hosts.start(10_000)
        # Half of the kills fall on a start and half on the work after it, however fast the machine is: a host at work is
        # killed after a number of acknowledgements, in the middle of the next ones.
        if number % 2:
            hosts.wait_for_acks(chance.randint(1, 12))
        else:
            time.sleep(chance.uniform(0.0, 0.3))
        os.kill(pid, signal.SIGKILL)
        gone(pid)
    hosts.finish()
    assert len(hosts.acks("turn")) > KILLS
    assert_nothing_is_lost(hosts)
    for kind in ("turn", "write"):
        taken = hosts.taken(kind)
        for session in "ab":
            assert firsts(taken, session) == sorted(firsts(taken, session))
        # A repeat is the row that was under way at a kill: at most one a kill, with the same id and text.
        ids = {call["id"] for call in taken}
        assert len({(call["id"], call["text"]) for call in taken}) == len(ids)
        assert len(taken) - len(ids) <= KILLS


@pytest.mark.parametrize(
    "point",
    [
        "before the turn's commit",
        "after the turn's commit",
        "after the outbox insert",
        "after the provider's call",
        "after the memory file",
    ],
)
def test_killed_at_this_point_nothing_is_lost(hosts: Any, point: str) -> None:
    hosts.start(2)
    hosts.wait("done")
    gone(hosts.start(2, point=point))
    hosts.finish()
    assert_nothing_is_lost(hosts)
    # The note and the row for the provider are one commit.
    is_stored = point != "after the outbox insert"
    assert ("fact 002-0000" in stored(hosts.home)[0]) is is_stored
    assert ("fact 002-0000" in {call["text"] for call in hosts.taken("write")}) is is_stored
    # Delivery is at least once: a worker that was awake may have called the provider just before the kill.
    first, second, *last = dict.fromkeys(call["text"] for call in hosts.taken("turn"))
    assert (first, second) == ("turn 001-0000", "turn 001-0001")
    # The provider is called on a thread of its own: when it is killed there, the turns may have been stored or not.
    turns = ["turn 002-0000", "turn 002-0001"]
    possible = {"after the turn's commit": [turns[:1]], "after the provider's call": [[], turns[:1], turns]}
    assert last in possible.get(point, [[]])


def test_a_kill_after_the_provider_took_a_row_sends_it_again_under_its_id(hosts: Any) -> None:
    gone(hosts.start(2, point="after the provider's call"))
    hosts.finish()
    first, again = [call for call in hosts.taken("write") if call["text"] == "fact 001-0000"]
    assert first == again


def test_a_kill_in_the_first_migration_leaves_a_home_that_opens(hosts: Any) -> None:
    gone(hosts.start(2, point="in the first migration"))
    assert hosts.acks("turn") == []
    hosts.start(2)
    hosts.wait("done")
    assert_nothing_is_lost(hosts)


def test_a_kill_in_a_later_migration_leaves_what_was_there(hosts: Any) -> None:
    hosts.start(4)
    hosts.wait("done")
    gone(hosts.start(2, point="in the next version's migration"))
    hosts.finish()
    assert len(hosts.acks("turn")) == 4
    assert_nothing_is_lost(hosts)


# ------------------------------------------------------------------------------------------------------------ ids


def test_two_processes_on_one_session_share_no_id(hosts: Any) -> None:
    for _ in range(2):
        hosts.start(20, sessions="a")
    for number in (1, 2):
        hosts.wait("done", number)
    assert_nothing_is_lost(hosts)
    for kind in ("turn", "message"):
        ids = [ack.id for ack in hosts.acks(kind)]
        assert len(set(ids)) == len(ids) == 40
    assert len({call["id"] for call in hosts.taken("write")}) == 40
    for run in ("001", "002"):
        own = [text for text in firsts(hosts.taken("turn"), "a") if text.startswith(f"turn {run}-")]
        assert own == sorted(own)


def with_filer(home: HermesHome) -> contextlib.AbstractContextManager[Memory]:
    return open_memory(home, provider="filer")


def test_three_memory_writes_in_one_turn_have_three_ids(hosts: Any, home: HermesHome) -> None:
    with with_filer(home) as memory:
        session = memory.start_session("a")
        for text in ("tea", "rye", "figs"):
            memory.change_memory("add", "memory", text, session=session)
        assert memory.flush()
    assert [call["text"] for call in hosts.taken("write")] == ["tea", "rye", "figs"]
    assert len({call["id"] for call in hosts.taken("write")}) == 3


def test_an_undone_turn_and_the_one_after_it_have_two_ids(hosts: Any, home: HermesHome) -> None:
    with with_filer(home) as memory:
        session = memory.start_session("a")
        undone = memory.end_turn(session, "first try", "ok")
        memory.flush()
        taken_back = memory.sessions.rewind("a", memory.sessions.get_messages("a")[0].id)
        switch = SessionSwitch("s1", session, session, "rewind", rewound_turns=tuple(taken_back))
        memory.manager.on_session_switch(switch)
        again = memory.end_turn(session, "second try", "ok")
        assert memory.flush()
    assert taken_back == [undone.id]
    assert again.number == undone.number
    assert again.id != undone.id
    assert [call["id"] for call in hosts.taken("turn")] == [undone.id, again.id]
    assert [call["text"] for call in hosts.taken("switch")] == [undone.id]


def gone(pid: int) -> None:
    for _ in range(4000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.005)
    raise AssertionError(f"{pid} lives")

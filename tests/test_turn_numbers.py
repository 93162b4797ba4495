"""The numbers of turns that several threads, processes and machines store in one session at the same moment."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_core import Memory, Turn, open_memory
from hermes_core.contract.values import Session
from hermes_core.errors import BackendUnavailable
from hermes_core.home import HermesHome
from hermes_memory_testing.fakes import RecordingProvider

SPEAK = """
import sys
from hermes_core import open_memory

home, name, count = sys.argv[1:]
with open_memory(home, provider="") as memory:
    session = memory.start_session("s1")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(count)):
        turn = memory.end_turn(session, f"{name} {number}", "Noted.", warm=False)
        print(turn.id, turn.number, flush=True)
"""


class DownProvider(RecordingProvider):
    """A provider whose backend is down, so that the rows stay to be looked at, also if a delivery has begun."""

    def sync_turn(self, turn: Turn, session: Session) -> None:
        raise BackendUnavailable("the backend is down", "start it", retry_after=3600)


class Machines(NamedTuple):
    """Two memories of one store."""

    first: Memory
    second: Memory


@pytest.fixture(params=["sqlite", "postgresql"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    homes, config = [tmp_path / "home", tmp_path / "home"], {}
    if request.param == "postgresql":
        url, schema = request.getfixturevalue("postgres_url"), request.getfixturevalue("postgres_schema")
        homes, config = [tmp_path / "one", tmp_path / "two"], {"storage": {"url": url, "schema": schema}}
    with (
        open_memory(homes[0], config=config, provider=DownProvider()) as first,
        open_memory(homes[1], config=config, provider=DownProvider()) as second,
    ):
        yield Machines(first, second)
        for memory in (first, second):
            memory.close(0.1)  # waits for rows that can't be sent


def stored_numbers(memory: Memory) -> dict[str, int]:
    """Return the number of each stored turn by its id, in the order in which they were stored."""
    return {turn.turn.id: turn.turn.number for turn in memory.sessions.turns.complete()}


def sent_numbers(memory: Memory) -> dict[str, int]:
    """Return the number of each turn in the outbox by its id."""
    rows = [row for row in memory.manager.outbox.pending(DownProvider.name) if row.hook == "sync_turn"]
    return {row.event: json.loads(row.body)["value"]["number"] for row in rows}


def interrupt(memory: Memory, monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    """Call `other` once, when the next turn of `memory` has its number and is not stored yet."""
    turn_row = memory.manager.writes.turn_row
    calls = [other]

    def interrupted(turn: Turn, session: Session) -> Any:
        row = turn_row(turn, session)
        if calls:
            calls.pop()()
        return row

    monkeypatch.setattr(memory.manager.writes, "turn_row", interrupted)


def test_a_turn_whose_number_was_taken_meanwhile_gets_the_next(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machines
    session = first.start_session("s1")
    first.end_turn(session, "zero", "Noted.")
    others: list[Turn] = []
    interrupt(first, monkeypatch, lambda: others.append(second.end_turn(session, "B" * 50, "Noted.")))
    mine = first.end_turn(session, "my key is sk-proj-abcdefghijklmnopqrstuvwxyz012345", "Noted.")
    assert [others[0].number, mine.number] == [2, 3]
    assert list(stored_numbers(first).values()) == [1, 2, 3]
    assert sent_numbers(first) == stored_numbers(second)
    (body,) = [row.body for row in first.manager.outbox.pending(DownProvider.name) if row.event == mine.id]
    assert "sk-proj" not in body


def test_a_turn_before_which_another_was_undone_gets_the_number_that_is_free(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = machines
    session = first.start_session("s1")
    for text in ("one", "two"):
        first.end_turn(session, text, "Noted.")
    interrupt(
        first, monkeypatch, lambda: second.rewind(session, second.sessions.turns.first_message("s1", 1))
    )
    assert first.end_turn(session, "three", "Noted.").number == 2
    assert sorted(stored_numbers(second).values()) == [1, 2]


def test_a_turn_whose_messages_were_stored_early_gets_a_higher_number(machines: Machines) -> None:
    first, second = machines
    session = first.start_session("s1")
    turn_id = "0123456789abcdef" * 2
    early = [
        {"role": "user", "content": "early", "ref": f"{turn_id}:0"},
        {"role": "assistant", "content": "Noted.", "ref": f"{turn_id}:1"},
    ]
    for message in early:
        first.sessions.append_message("s1", **message)
    other = second.end_turn(session, "other", "Noted.")
    mine = first.end_turn(session, "early", "Noted.", messages=early, turn_id=turn_id)
    assert [other.number, mine.number] == [1, 2]
    first.rewind(
        session, first.sessions.get_messages("s1")[-1].id
    )  # the other turn, whose messages are later
    assert second.end_turn(session, "third", "Noted.").number == 3


def test_a_turn_that_is_stored_already_is_returned_with_its_number(machines: Machines) -> None:
    first, second = machines
    session = first.start_session("s1")
    first.end_turn(session, "one", "Noted.", turn_id="t1")
    first.end_turn(session, "two", "Noted.", turn_id="t2")
    again = second.end_turn(session, "one", "Noted.", turn_id="t1")
    assert again.number == 1
    assert sent_numbers(second) == {"t1": 1, "t2": 2}


def test_threads_of_two_machines_give_each_turn_a_number_of_its_own(machines: Machines) -> None:
    session = machines.first.start_session("s1")
    barrier = threading.Barrier(6)

    def speak(number: int) -> list[Turn]:
        barrier.wait(30)
        memory = machines[number % 2]
        return [memory.end_turn(session, f"{number} {count}", "Noted.", warm=False) for count in range(5)]

    with ThreadPoolExecutor(6) as pool:
        turns = [turn for part in pool.map(speak, range(6)) for turn in part]
    stored = stored_numbers(machines.first)
    assert list(stored.values()) == list(range(1, 31))
    assert {turn.id: turn.number for turn in turns} == stored == sent_numbers(machines.second)


def test_two_processes_on_one_file_give_each_turn_a_number_of_its_own(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, provider="") as memory:
        memory.start_session("s1")
    command = [sys.executable, "-c", SPEAK, str(hermes_home.path)]
    processes = [
        subprocess.Popen([*command, name, "20"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("left", "right")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [
        line.split() for process in processes for line in process.communicate(timeout=60)[0].splitlines()
    ]
    with open_memory(hermes_home, provider="") as memory:
        stored = stored_numbers(memory)
    assert list(stored.values()) == list(range(1, 41))
    assert {turn_id: int(number) for turn_id, number in printed} == stored
